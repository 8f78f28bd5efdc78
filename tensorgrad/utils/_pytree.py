"""`torch.utils._pytree`: flattens nested lists, tuples and dicts into a list of leaves and a description."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple


class TreeSpec(NamedTuple):
    """Describes the nesting of leaves: a container's type (None for a leaf), its keys or context, and its children."""

    type: Any
    context: Any
    children: tuple

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children)


LeafSpec = TreeSpec(None, None, ())
_registered: dict[type, tuple[Callable, Callable]] = {}


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, **options: Any) -> None:
    """Registers a container type with the functions of this module.

    Args:
        cls: the container type; subclasses are not included.
        flatten_fn: `flatten_fn(value)` returns `(children, context)`.
        unflatten_fn: `unflatten_fn(children, context)` rebuilds the value.
        options: accepted for compatibility and ignored.
    """
    _registered[cls] = flatten_fn, unflatten_fn


def _children(value: Any) -> tuple[list, Any] | None:
    """Returns the children of a container and the context needed to rebuild it, or None for a leaf."""
    kind = type(value)
    if kind in _registered:
        children, context = _registered[kind][0](value)
        return list(children), context
    if kind in (dict, OrderedDict):
        return list(value.values()), list(value)
    if kind is defaultdict:
        return list(value.values()), (value.default_factory, list(value))
    if isinstance(value, tuple) or kind is list:
        return list(value), None
    return None


def _rebuilt(spec: TreeSpec, children: list) -> Any:
    kind = spec.type
    if kind in _registered:
        return _registered[kind][1](children, spec.context)
    if kind in (dict, OrderedDict):
        return kind(zip(spec.context, children))
    if kind is defaultdict:
        return defaultdict(spec.context[0], zip(spec.context[1], children))
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def tree_flatten(tree: Any, is_leaf: Callable | None = None) -> tuple[list, TreeSpec]:
    """Flattens nested containers. Returns `(leaves, description)`.

    >>> from tensorgrad.utils._pytree import tree_flatten, tree_unflatten
    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, 3)})
    >>> leaves, tree_unflatten(leaves, spec)
    ([1, 2, 3], {'a': 1, 'b': (2, 3)})
    """
    found = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if found is None:
        return [tree], LeafSpec
    leaves: list = []
    specs = []
    for child in found[0]:
        inside, spec = tree_flatten(child, is_leaf)
        leaves += inside
        specs.append(spec)
    return leaves, TreeSpec(type(tree), found[1], tuple(specs))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """Rebuilds the nested containers that `tree_flatten` flattened.

    Raises:
        ValueError: If the number of leaves does not match the description.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: expected {treespec.num_leaves} leaves, but got {len(leaves)}")
    remaining = iter(leaves)

    def build(spec: TreeSpec) -> Any:
        return next(remaining) if spec.type is None else _rebuilt(spec, [build(child) for child in spec.children])

    return build(treespec)


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """Applies `func` to every leaf (and the corresponding leaves of `rests`), and keeps the nesting."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(*values) for values in zip(leaves, *others)], spec)


def tree_map_only(kind: Any, func: Callable, tree: Any, is_leaf: Callable | None = None) -> Any:
    """Like `tree_map`, but applies `func` only to leaves of the given type."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree, is_leaf=is_leaf)


def tree_leaves(tree: Any, is_leaf: Callable | None = None) -> list:
    """Returns the leaves as a flat list."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable | None = None) -> TreeSpec:
    """Returns the description of the nesting, without the leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_any(predicate: Callable, tree: Any) -> bool:
    """Returns whether the predicate holds for any leaf."""
    return any(map(predicate, tree_leaves(tree)))


def tree_all(predicate: Callable, tree: Any) -> bool:
    """Returns whether the predicate holds for all leaves."""
    return all(map(predicate, tree_leaves(tree)))
