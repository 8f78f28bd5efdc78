"""From one layout to another: `to_dense`, `to_sparse`, `to_sparse_csr`, ..., `sparse_mask`."""

from __future__ import annotations

from typing import Any

from tensorgrad import layouts
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.layouts import AnyLayout, strided
from tensorgrad.ops.copy import to
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse_parts import coalesce, layout_of, lazily, title
from tensorgrad.storage.sparse import COMPRESSED, CompressedArray, COOArray, SparseArray
from tensorgrad.tensor import Tensor

_to_dense = op(
    "sparse_to_dense(input, masked: bool)",
    None,
    batch="sparse",
    linear="input",
    input=lambda g, input, masked: _to_dense_grad(g, input, masked),
    backward_name="ToDenseBackward0",
    where=(),
)
_written = op(  # into a dense tensor: its gradient, dense, goes on as it is
    "sparse_written(input)",
    None,
    batch="sparse",
    linear="input",
    input=lambda g: g,
    backward_name="ToDenseBackward0",
    where=(),
)
to_layout = op(
    "to_layout(input, layout: any, block: any, dense_dim: int, sparse_dim: any)",
    lazily("convert", "to_layout"),
    batch="sparse",
    linear="input",
    input=lambda g, input: as_layout_of(g, input),
    backward_name="ToSparseBackward0",
    where=(),
)
mask_ = op(
    "sparse_mask(input, mask)",
    lazily("parts", "mask"),
    batch="sparse",
    linear="input",
    input=lambda g, input, mask: as_layout_of(g, input),
    backward_name="SparseMaskBackward0",
    where=(),
)
_shared = op(
    "sparse_shared(input, mask)",
    lazily("parts", "shared"),
    batch="sparse",
    linear="input",
    input=lambda g, input, mask: as_layout_of(g, input),
    backward_name="SparseMaskBackward0",
    where=(),
)


def _to_dense_grad(g: Tensor, input: Tensor, masked: bool) -> Tensor:
    if masked:
        return mask_(g, coalesce(input) if isinstance(input._array, COOArray) else input)
    return as_layout_of(g, input)


def as_dense_dim(array: Any) -> int:
    """How many dimensions of a sparse array are dense."""
    return array.ndim - array.sparse_dim if array.__class__ is COOArray else array.dense_dim


def as_layout_of(x: Tensor, model: Tensor) -> Tensor:
    """`x` in the layout of `model`, with blocks of the same size and as many dense dimensions."""
    array: Any = model._array
    if layout_of(x) is layout_of(model):
        return x
    if layout_of(model) is strided:
        return to_dense(x)
    is_coo = array.__class__ is COOArray
    dense_dim = array.ndim - array.sparse_dim if is_coo else array.dense_dim
    return to_layout(x, layout_of(model), (1, 1) if is_coo else tuple(array.block), dense_dim, None)


def keep_layout(name: str, tensor: Tensor, args: tuple, result: Tensor) -> Tensor:
    """The result of an in-place op in the layout of its tensor, unless it is dense and the tensor is not.

    Raises: RuntimeError if the op had to coalesce the tensor, as PyTorch does.
    """
    array, made = tensor._array, result._array
    if isinstance(array, COOArray) and not array.coalesced and made.coalesced and not args:
        raise RuntimeError(f"{name}_ requires coalesced input")
    if not isinstance(made, SparseArray):
        return result
    return as_layout_of(result, tensor) if isinstance(array, SparseArray) else _written(result)


inplace.KEEP_LAYOUT = keep_layout


@composite("method")
def to_dense(self: Tensor, dtype=None, *, masked_grad: bool | None = None) -> Tensor:
    """Returns the tensor with all its zeros stored, cast to `dtype` if given; a dense tensor itself.

    With `masked_grad` (the default for sparse tensors) its gradient is sparse, with the tensor's pattern.

    >>> torch.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 2.],
            [3., 0.]])
    """
    dtype = arguments.kind("to_dense", dtype)
    arguments.flags("to_dense", masked_grad=masked_grad)
    if isinstance(self._array, SparseArray):
        self = _to_dense(self, True if masked_grad is None else bool(masked_grad))
    return self if dtype is None else to(self, dtype)


def _layout_given(name: str, given: Any) -> Any:
    if not isinstance(given, layouts.layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {type(given).__name__}")
    if given is not strided and given is not layouts.sparse_coo and given not in COMPRESSED:
        raise RuntimeError(f"{name}: expected a sparse layout or torch.strided, got {given}")
    return given


@composite("method")
def to_sparse(
    self: Tensor, sparse_dim: int | None = None, *, layout: AnyLayout = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Returns the tensor in a sparse layout, COO unless `layout` says otherwise, with the elements that are not zero.

    Args:
        sparse_dim: For COO, how many dimensions are sparse: the first ones; all by default.
        layout: `torch.sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
        blocksize: For BSR and BSC, the height and width of the blocks.
        dense_dim: For CSR, CSC, BSR and BSC, how many of the last dimensions are dense.

    Raises:
        RuntimeError: For dimensions, blocks and layouts that do not fit each other.

    >>> torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    tensor(indices=tensor([[0, 1],
                           [1, 0]]),
           values=tensor([2., 3.]),
           size=(2, 2), nnz=2, layout=torch.sparse_coo)
    """
    array = self._array
    if sparse_dim is not None:
        sparse_dim = arguments.integer("to_sparse", "sparse_dim", sparse_dim)
        if not isinstance(array, SparseArray) and not 0 <= sparse_dim <= array.ndim:
            raise RuntimeError(
                f"to_sparse: sparse_dim argument must be in [0,{array.ndim}] range, but {sparse_dim} is given"
            )
        if isinstance(array, SparseArray):
            if sparse_dim == 2 and isinstance(array, CompressedArray):
                return _converted(self, layouts.sparse_coo)
            if not isinstance(array, COOArray) or sparse_dim != array.sparse_dim:
                raise RuntimeError(
                    f"to_sparse: cannot make {sparse_dim} dimensions sparse of a tensor of layout {layout_of(self)}"
                )
            return self
        return to_layout(self, layouts.sparse_coo, (1, 1), 0, int(sparse_dim))
    wanted = layouts.sparse_coo if layout is None else _layout_given("to_sparse", layout)
    return _converted(self, wanted, blocksize, dense_dim)


def _converted(self: Tensor, wanted: Any, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """The tensor in a layout, after all checks."""
    array, name = self._array, f"to_{wanted.name}"
    if isinstance(blocksize, int):
        blocksize = (blocksize, blocksize)
    if blocksize is not None:
        blocksize = arguments.sizes(name, "blocksize", blocksize)
    if dense_dim is not None:
        dense_dim = arguments.integer(name, "dense_dim", dense_dim)
    kind = COMPRESSED.get(wanted)
    if wanted is strided:
        return to_dense(self)
    blocked = kind is not None and kind.blocked
    if blocksize is None and blocked:
        if layout_of(self) is not wanted:
            raise RuntimeError(f"{name}: conversion from {title(array)} to {kind.title} requires blocksize argument")  # type: ignore[union-attr]
        blocksize = array.block
    if blocksize is not None and not blocked:
        raise RuntimeError(f"{name}: conversion to {wanted.name} does not use the argument blocksize, got {blocksize}")
    if layout_of(self) is wanted and (not blocked or tuple(blocksize) == tuple(array.block)):
        return self
    if dense_dim is not None and isinstance(array, SparseArray):
        raise RuntimeError(f"{name}: the argument dense_dim is for dense tensors only")
    dense = int(dense_dim or 0) if not isinstance(array, SparseArray) else as_dense_dim(array)
    if kind is not None:
        if array.ndim - dense < 2 or dense < 0:
            raise RuntimeError(
                f"{name}: expected a tensor of at least 2 dimensions besides {dense} dense ones, got {array.ndim}"
            )
        height, width = array.shape[array.ndim - dense - 2 : array.ndim - dense]
        if blocked:
            if len(blocksize) != 2 or min(blocksize) < 1:
                raise RuntimeError(f"{name}: expected blocksize (height, width) of positive numbers, got {blocksize}")
            if height % blocksize[0] or width % blocksize[1]:
                raise RuntimeError(
                    f"{name}: tensor sparse size ({height},{width}) must be divisible by given blocksize "
                    f"({blocksize[0]},{blocksize[1]})"
                )
    return to_layout(self, wanted, tuple(blocksize) if blocked else (1, 1), dense, None)


@composite("method")
def to_sparse_coo(self: Tensor) -> Tensor:
    """Returns the tensor in COO layout: see `to_sparse`.

    >>> torch.eye(2).to_sparse_coo().values()
    tensor([1., 1.])
    """
    return to_sparse(self)


@composite("method")
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Returns a matrix, or a batch of them, in CSR layout: row after row.

    Raises:
        RuntimeError: For fewer than two dimensions, and batches whose matrices differ in their number of elements.

    >>> torch.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse_csr().crow_indices()
    tensor([0, 1, 3])
    """
    return _converted(self, layouts.sparse_csr, None, dense_dim)


@composite("method")
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Returns a matrix, or a batch of them, in CSC layout: column after column. See `to_sparse_csr`.

    >>> torch.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse_csc().row_indices()
    tensor([1, 0, 1])
    """
    return _converted(self, layouts.sparse_csc, None, dense_dim)


@composite("method")
def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """Returns a matrix, or a batch of them, in BSR layout: rows of dense blocks of the size `blocksize`.

    >>> torch.eye(4).to_sparse_bsr((2, 2)).values().shape
    torch.Size([2, 2, 2])
    """
    return _converted(self, layouts.sparse_bsr, blocksize, dense_dim)


@composite("method")
def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """Returns a matrix, or a batch of them, in BSC layout: columns of dense blocks of the size `blocksize`.

    >>> torch.eye(4).to_sparse_bsc((2, 2)).values().shape
    torch.Size([2, 2, 2])
    """
    return _converted(self, layouts.sparse_bsc, blocksize, dense_dim)


@composite("method")
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Returns the elements of this tensor where `mask`, a sparse tensor of the same shape, stores elements.

    The result has the pattern of the mask; of two CSR (or two CSC) tensors, only what both store, as in PyTorch.

    Raises:
        RuntimeError: If the shapes differ, or `mask` is dense.

    >>> torch.tensor([[1.0, 2.0], [3.0, 4.0]]).sparse_mask(torch.eye(2).to_sparse()).values()
    tensor([1., 4.])
    """
    arguments.tensors("sparse_mask", mask=mask)
    if not isinstance(mask._array, SparseArray):
        raise NotImplementedError(f"sparse_mask: expected a sparse mask, got layout {layout_of(mask)}")
    if self._array.shape != mask._array.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    pattern = mask._array
    if isinstance(self._array, CompressedArray) and isinstance(pattern, CompressedArray) and not pattern.blocked:
        return _shared(self, mask)
    return mask_(self, mask)
