"""The handle that every `register_*hook` returns."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

_next_id: Any = itertools.count()


class RemovableHandle:
    """Returned by every `register_*hook`: `remove()` removes the hook; also a context manager.

    `hooks_dict` is the table that holds the hook under the key `id`. Other entries under that key, in the table or
    tables `extra_dict`, are removed with it. The handle does not keep the tables alive. It can be pickled together
    with the owner of its tables.

    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> with x.register_hook(lambda grad: 10 * grad):
    ...     (2 * x).backward()
    >>> x.grad
    tensor(20.)
    """

    __slots__ = ("__weakref__", "extra_dict_ref", "hooks_dict_ref", "id")
    hooks_dict_ref: weakref.ref
    extra_dict_ref: tuple[weakref.ref, ...]

    def __init__(self, hooks_dict: OrderedDict, *, extra_dict: OrderedDict | Iterable[OrderedDict] | None = None):
        self.id = next(_next_id)
        self._refer(hooks_dict, () if extra_dict is None else extra_dict)

    def _refer(self, hooks_dict: OrderedDict, extra: Any) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.extra_dict_ref = tuple(weakref.ref(table) for table in ([extra] if isinstance(extra, dict) else extra))

    @classmethod
    def add(cls, hooks_dict: OrderedDict, hook: Callable, *, extra_dict: Any = None) -> RemovableHandle:
        """Appends `hook` to `hooks_dict` and returns its handle."""
        handle = cls(hooks_dict, extra_dict=extra_dict)
        hooks_dict[handle.id] = hook
        return handle

    def remove(self) -> None:
        """Removes the hook; calling it again has no effect."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = ref()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple:
        tables: tuple = (self.hooks_dict_ref(), self.id)
        return (*tables, tuple(ref() for ref in self.extra_dict_ref)) if self.extra_dict_ref else tables

    def __setstate__(self, state: tuple) -> None:
        global _next_id
        table, self.id, *extra = state
        # If a table no longer exists, the handle refers to an empty one.
        self._refer(OrderedDict() if table is None else table, [t for t in extra[0] if t is not None] if extra else ())
        _next_id = itertools.count(max(next(_next_id), self.id + 1))  # so that no later handle gets this key

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()
