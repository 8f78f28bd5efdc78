"""The named results of ops with several outputs: `torch.max(x, 0).indices`."""

from __future__ import annotations

from collections import namedtuple


def return_type(name: str, *fields: str) -> type:
    """A named tuple called `name` with `fields`, kept in this module (so that results can be pickled).

    >>> import tensorgrad as torch
    >>> torch.tensor([3, 1]).max(0)
    torch.return_types.max(
    values=tensor(3),
    indices=tensor(0))
    """
    if name not in globals():
        cls = namedtuple(name, fields, module=__name__)  # type: ignore[misc]
        cls.__repr__ = _repr
        cls.__doc__ = f"What `torch.{name}` returns: {', '.join(fields)}."
        globals()[name] = cls
    return globals()[name]


def _repr(self) -> str:
    named = ",\n".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
    return f"torch.return_types.{type(self).__name__}(\n{named})"
