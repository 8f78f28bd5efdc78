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


FIELDS = {
    "_lu_with_info": "LU pivots info",
    "aminmax": "min max",
    "cummax": "values indices",
    "cummin": "values indices",
    "frexp": "mantissa exponent",
    "geqrf": "a tau",
    "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges",
    "kthvalue": "values indices",
    "linalg_cholesky_ex": "L info",
    "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_inv_ex": "inverse info",
    "linalg_ldl_factor": "LD pivots",
    "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values",
    "linalg_lu": "P L U",
    "linalg_lu_factor": "LU pivots",
    "linalg_lu_factor_ex": "LU pivots info",
    "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet",
    "linalg_solve_ex": "result info",
    "linalg_svd": "U S Vh",
    "lu_unpack": "P L U",
    "max": "values indices",
    "median": "values indices",
    "min": "values indices",
    "mode": "values indices",
    "nanmedian": "values indices",
    "qr": "Q R",
    "slogdet": "sign logabsdet",
    "sort": "values indices",
    "svd": "U S V",
    "topk": "values indices",
    "triangular_solve": "solution cloned_coefficient",
}


def _named_tuple(name: str, fields: tuple[str, ...]) -> type:
    """Creates the named tuple `name` with the given fields in this module (so that results can be pickled)."""
    members: dict[str, Any] = {field: property(operator.itemgetter(i)) for i, field in enumerate(fields)}
    members |= {"n_fields": len(fields), "n_sequence_fields": len(fields), "__match_args__": fields}
    members |= {"__slots__": (), "__module__": __name__}
    members["__doc__"] = f"What `torch.{name}` returns: {', '.join(fields)}."
    return type(name, (_Sequence,), members)


_TYPES = {name: _named_tuple(name, tuple(fields.split())) for name, fields in FIELDS.items()}
globals().update(_TYPES)
all_return_types: list[type] = list(_TYPES.values())


def return_type(name: str) -> type:
    """Returns the named tuple that a function returns, by the function's name.

    >>> torch.tensor([3, 1]).max(0)
    torch.return_types.max(
    values=tensor(3),
    indices=tensor(0))
    >>> torch.return_types.max((5, 6)).indices
    6
    """
    return _TYPES[name]
