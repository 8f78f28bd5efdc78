"""What a sparse tensor consists of: indices and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kinds import composite, export, op
from tensorgrad.layouts import layout, sparse_coo
from tensorgrad.storage.sparse import BSCArray, BSRArray, CompressedArray, COOArray, CSCArray, CSRArray, SparseArray
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, wrap


def lazily(file: str, name: str) -> Any:
    """A kernel of kernels/sparse whose first argument may be dense; its file is loaded when it is first called."""

    def kernel(xp: Any, *values: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(f"tensorgrad.kernels.sparse.{file}"), name)(*values)

    return kernel


def title(array: Any) -> str:
    """The name of an array's layout in messages."""
    return array.title if isinstance(array, SparseArray) else "Strided"


def layout_of(tensor: Tensor) -> layout:
    """The layout of a tensor."""
    return STORAGES[tensor._array.__class__].layout


# --- values --------------------------------------------------------------------------------------------------------

values_at = op(
    "values_at(input, pattern)",
    lazily("parts", "values_at_pattern"),
    batch="sparse",
    linear="input",
    input=lambda g, pattern: with_values(pattern, g),
    where=(),
    doc="What `input`, sparse or dense, has where `pattern` stores its values, in their order.",
)
with_values = op(
    "sparse_with_values(pattern, values)",
    None,
    batch="sparse",
    linear="values",
    values=lambda g, pattern: values_at(g, pattern),
    where=(),
    doc="A sparse tensor with the pattern of `pattern` and other values.",
)
raw_values_of = op(
    "sparse_values(input)",
    None,
    batch="sparse",
    linear="input",
    input=lambda g, input: with_values(input, g),
    backward_name="ValuesBackward0",
    where=(),
)
_coalesce = op(
    "coalesce(input)", None, batch="sparse", linear="input", input=lambda g: g, backward_name="CoalesceBackward0",
    where=(),
)  # fmt: skip


def _read_only(array: np.ndarray) -> Tensor:
    """A tensor over indices, which must not change: kernels rely on them."""
    shown = array.view()
    shown.flags.writeable = False
    return wrap(shown)


def _check(self: Tensor, name: str, expected: str, *kinds: type) -> Any:
    """The tensor's array. Raises: RuntimeError unless it is of one of these kinds."""
    if not isinstance(self._array, kinds):
        raise RuntimeError(f"{name} expected {expected} layout but got {title(self._array)}")
    return self._array


@composite("method")
def coalesce(self: Tensor) -> Tensor:
    """Returns a COO tensor that stores each coordinate once, in order; the values of equal coordinates are added.

    Raises:
        RuntimeError: For tensors of another layout.

    >>> s = torch.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (2,))
    >>> s.coalesce().values()
    tensor([2., 4.])
    """
    array = _check(self, "coalesce", "sparse coordinate tensor", COOArray)
    return self if array.coalesced else _coalesce(self)


@composite("method")
def is_coalesced(self: Tensor) -> bool:
    """Returns whether a COO tensor is known to store each coordinate once, in order.

    Raises:
        RuntimeError: For tensors of another layout.

    >>> torch.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,)).is_coalesced()
    False
    """
    return _check(self, "is_coalesced", "sparse coordinate tensor", COOArray).coalesced


@composite("method")
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Says whether the tensor is coalesced, unchecked unless it is coalesced again: returns the tensor."""
    _check(self, "_coalesced_", "sparse coordinate tensor", COOArray).coalesced = bool(coalesced)
    return self


def _coalesced_array(self: Tensor, name: str) -> COOArray:
    array = _check(self, name, "sparse coordinate tensor" if name == "indices" else "sparse tensor", SparseArray)
    if isinstance(array, COOArray) and not array.coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return array


@composite("method")
def indices(self: Tensor) -> Tensor:
    """Returns the coordinates of the stored elements of a coalesced COO tensor, (sparse dims, number of elements).

    Raises:
        RuntimeError: If it is not coalesced, or has another layout.

    >>> torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().indices()
    tensor([[0, 1],
            [1, 0]])
    """
    _check(self, "indices", "sparse coordinate tensor", COOArray)
    return _read_only(_coalesced_array(self, "indices").indices)


@composite("method")
def values(self: Tensor) -> Tensor:
    """Returns the stored elements of a sparse tensor; gradients flow through them.

    Raises:
        RuntimeError: If a COO tensor is not coalesced; for dense tensors.

    >>> torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().values()
    tensor([2., 3.])
    """
    _coalesced_array(self, "values")
    return raw_values_of(self)


@composite("method", name="_indices")
def raw_indices(self: Tensor) -> Tensor:
    """Returns the coordinates of a COO tensor, coalesced or not."""
    return _read_only(_check(self, "_indices", "sparse coordinate tensor", COOArray).indices)


@composite("method", name="_values")
def raw_values(self: Tensor) -> Tensor:
    """Returns the values of a COO tensor, coalesced or not, detached from the graph."""
    return wrap(_check(self, "_values", "sparse coordinate tensor", COOArray).values)


@composite("method")
def _nnz(self: Tensor) -> int:
    """Returns the number of stored elements (of dense parts, or of blocks; in each matrix of a batch)."""
    array = _check(self, "_nnz", "sparse tensor", SparseArray)
    return array.indices.shape[1] if isinstance(array, COOArray) else array.plain.shape[-1]


def stored_elements(self: Tensor, dim: Any, keepdim: bool, name: str) -> Tensor:
    """All stored elements of a sparse tensor, for a reduction over all of its dimensions.

    Raises: RuntimeError for a reduction over fewer, as in PyTorch.
    """
    if keepdim:
        raise RuntimeError(f"{name} currently does not support keepdim=True")
    dims = dim if isinstance(dim, tuple | list) else () if dim is None else (dim,)
    if len(dims) not in (0, self._array.ndim):
        raise RuntimeError(
            f"{name} currently only supports full reductions, so 'dim' must either be empty or contain all "
            f"dimensions of the input, got {dim}"
        )
    return raw_values_of(coalesce(self) if isinstance(self._array, COOArray) else self)


def _compressed(name: str, expected: str, part: str, what: str, example: str, *kinds: type) -> None:
    def method(self: Tensor) -> Tensor:
        return _read_only(getattr(_check(self, name, expected, *kinds), part))

    made, shown = example.split(" -> ")
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Returns {what}.

    Raises:
        RuntimeError: For tensors of another layout.

    >>> torch.tensor([[0.0, 2.0], [3.0, 4.0]]).{made}.{name}()
    {shown}
    """
    composite("method")(method)


_BY_ROWS, _BY_COLUMNS = "sparse row compressed tensor", "sparse column compressed tensor"
_compressed("crow_indices", _BY_ROWS, "compressed", "where each row of a CSR or BSR tensor begins in its values",
            "to_sparse_csr() -> tensor([0, 1, 3])", CSRArray, BSRArray)  # fmt: skip
_compressed("col_indices", _BY_ROWS, "plain", "the column of each value of a CSR or BSR tensor",
            "to_sparse_csr() -> tensor([1, 0, 1])", CSRArray, BSRArray)  # fmt: skip
_compressed("ccol_indices", _BY_COLUMNS, "compressed", "where each column of a CSC or BSC tensor begins in its values",
            "to_sparse_csc() -> tensor([0, 1, 3])", CSCArray, BSCArray)  # fmt: skip
_compressed("row_indices", _BY_COLUMNS, "plain", "the row of each value of a CSC or BSC tensor",
            "to_sparse_csc() -> tensor([1, 0, 1])", CSCArray, BSCArray)  # fmt: skip


@composite("method")
def sparse_dim(self: Tensor) -> int:
    """Returns the number of sparse dimensions: 0 for dense tensors.

    >>> torch.zeros(2, 3).sparse_dim(), torch.zeros(2, 3).to_sparse().sparse_dim()
    (0, 2)
    """
    array = self._array
    return array.sparse_dim if isinstance(array, COOArray) else 2 if isinstance(array, CompressedArray) else 0


@composite("method")
def dense_dim(self: Tensor) -> int:
    """Returns the number of dense dimensions: all of them for dense tensors.

    >>> torch.zeros(2, 3).dense_dim(), torch.zeros(2, 3).to_sparse(1).dense_dim()
    (2, 1)
    """
    array = self._array
    return array.dense_dim if isinstance(array, CompressedArray) else array.ndim - sparse_dim(self)


export("_dimI", sparse_dim, "method")  # old names
export("_dimV", dense_dim, "method")

# --- layout --------------------------------------------------------------------------------------------------------


def _layout(self: Tensor) -> layout:
    """How the elements are stored: `torch.strided`, or one of the sparse layouts.

    >>> torch.ones(2).layout, torch.ones(2).to_sparse().layout
    (torch.strided, torch.sparse_coo)
    """
    return STORAGES[self._array.__class__].layout


def _is(wanted: str) -> Any:
    return lambda self: STORAGES[self._array.__class__].layout.name == wanted


def _show(name: str, wanted: str, what: str, make: str) -> None:
    doc = f"Whether the layout is {what}.\n\n>>> torch.ones(1, 1).{make}().{name}\nTrue"
    setattr(Tensor, name, property(_is(wanted), doc=doc))


setattr(Tensor, "layout", property(_layout, doc=_layout.__doc__))  # noqa: B010
_show("is_sparse", sparse_coo.name, "COO: not for the compressed ones", "to_sparse")
_show("is_sparse_csr", "sparse_csr", "CSR", "to_sparse_csr")
