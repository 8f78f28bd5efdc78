"""Lists and dicts that cannot be changed: the arguments of nodes, so that a graph knows all uses of its nodes."""

from __future__ import annotations

from typing import Any, NoReturn

from tensorgrad.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **options: Any) -> NoReturn:
    raise NotImplementedError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args "
        f"of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n    new_args = "
        "... # copy and mutate args\n    node.args = new_args"
    )


class immutable_list(list):
    """A list that refuses to be changed.

    >>> from tensorgrad.fx.immutable_collections import immutable_list
    >>> immutable_list([1, 2])[0]
    1
    """

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple:
        return type(self), (tuple(iter(self)),)


class immutable_dict(dict):
    """A dict that refuses to be changed.

    >>> from tensorgrad.fx.immutable_collections import immutable_dict
    >>> immutable_dict(a=1)["a"]
    1
    """

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __setitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple:
        return type(self), (dict(self),)


_pytree.register_pytree_node(
    immutable_list,
    lambda values: (list(values), None),
    lambda values, _: immutable_list(values),
    serialized_type_name="torch.fx.immutable_collections.immutable_list",
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda values: (list(values.values()), list(values)),
    lambda values, keys: immutable_dict(zip(keys, values, strict=True)),
    serialized_type_name="torch.fx.immutable_collections.immutable_dict",
)
