"""Dictionaries whose keys are tensors, by identity, and are not kept alive by them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from tensorgrad.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference to any object, equal to others of the same object and to nothing else.

    >>> from tensorgrad.utils.weak import WeakIdRef
    >>> x = torch.ones(2)
    >>> WeakIdRef(x) == WeakIdRef(x), WeakIdRef(x) == WeakIdRef(torch.ones(2))
    (True, False)
    """

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Callable | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> Any:
        """Returns the object; None if it is gone."""
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, others = self(), other() if isinstance(other, weakref.ref) else None
        if mine is not None and others is not None:
            return mine is others
        return self is other


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary whose keys are objects by their identity; an entry goes when its key does.

    Args:
        dict: entries to begin with.
        ref_type: the class of the references.

    >>> from tensorgrad.utils.weak import WeakIdKeyDictionary
    >>> x, names = torch.ones(2), WeakIdKeyDictionary()
    >>> names[x] = "x"
    >>> names[x], x in names, torch.ones(2) in names, len(names)
    ('x', True, False, 1)
    >>> del x
    >>> len(names)
    0
    """

    def __init__(self, dict: Mapping | None = None, ref_type: type = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        data = self.data

        def forget(reference: Any) -> None:  # holds the entries, not this dictionary
            data.pop(reference, None)

        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: Any) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # it cannot be referred to weakly
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator:
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[Any]:
        """Returns the references to all keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Returns a dictionary with the same keys and values."""
        made = type(self)(None, self.ref_type)
        for key, value in self.items():
            made[key] = value
        return made

    __copy__ = copy


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor.

    >>> from tensorgrad.utils.weak import TensorWeakRef
    >>> x = torch.ones(2)
    >>> reference = TensorWeakRef(x)
    >>> reference() is x
    True
    >>> del x
    >>> reference() is None
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        """Returns the tensor; None if it is gone."""
        return self.ref()
