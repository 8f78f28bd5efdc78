"""The named results of ops with several outputs: `torch.max(x, 0).indices`."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any


class _Sequence(tuple):
    """A tuple with named fields, constructed from a sequence and pickled as PyTorch does."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    n_fields = n_sequence_fields = n_unnamed_fields = 0

    def __new__(cls, sequence: Iterable[Any], dict: dict[str, Any] | None = None):
        if not hasattr(sequence, "__iter__"):
            raise TypeError("constructor requires a sequence")
        if len(values := tuple(sequence)) != cls.n_fields:
            wanted = f"torch.return_types.{cls.__name__}() takes a {cls.n_fields}-sequence"
            raise TypeError(f"{wanted} ({len(values)}-sequence given)")
        return super().__new__(cls, values)

    def __reduce__(self):
        return type(self), (tuple(self), {})

    def __repr__(self) -> str:
        named = ",\n".join(f"{field}={value!r}" for field, value in zip(self.__match_args__, self, strict=True))
        return f"torch.return_types.{type(self).__name__}(\n{named})"


all_return_types: list[type] = []


def return_type(name: str, *fields: str) -> type:
    """Creates the named tuple `name` with the given fields in this module (so that results can be pickled).

    >>> torch.tensor([3, 1]).max(0)
    torch.return_types.max(
    values=tensor(3),
    indices=tensor(0))
    >>> torch.return_types.max((5, 6)).indices
    6
    """
    if name not in globals():
        members: dict[str, Any] = {field: property(operator.itemgetter(i)) for i, field in enumerate(fields)}
        members |= {"n_fields": len(fields), "n_sequence_fields": len(fields), "__match_args__": fields}
        members |= {"__slots__": (), "__module__": __name__}
        members["__doc__"] = f"What `torch.{name}` returns: {', '.join(fields)}."
        globals()[name] = type(name, (_Sequence,), members)
        all_return_types.append(globals()[name])
    return globals()[name]
