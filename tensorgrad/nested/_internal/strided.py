"""The layout `torch.strided`: pieces that may differ in all sizes.

The values are one row of memory, in which each piece has its sizes, its strides and the place where it begins.
Transposes, views and slices of all pieces are other sizes and strides of the same values.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NoReturn

import tensorgrad as torch
from tensorgrad import layouts
from tensorgrad.errors import wrap_dim
from tensorgrad.nested._internal.base import Nested
from tensorgrad.tensor import Tensor

__all__ = ["NO_SIZES", "StridedNestedTensor", "of_list", "of_tensor", "rows"]

NO_SIZES = "Internal error: NestedTensorImpl doesn't support {}. Please file an issue."


def rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a piece that is stored row by row."""
    return tuple(math.prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


class StridedNestedTensor(Nested):
    """Tensors of different shapes as one. (In PyTorch, its class is `Tensor`.)

    Args:
        values: the memory, one-dimensional.
        sizes: the shape of each piece.
        strides: the strides of each piece; row by row if None.
        starts: where each piece begins; one after the other if None.
        ndim: the number of dimensions of the pieces, if there are none.
    """

    _sizes: list[tuple[int, ...]]
    _strides: list[tuple[int, ...]]
    _starts: list[int]
    _piece_ndim: int

    _layout = layouts.strided
    _own: ClassVar[frozenset[str]] = frozenset(("_values", "_sizes", "_strides", "_starts", "_piece_ndim"))

    def __init__(
        self,
        values: Tensor,
        sizes: list[tuple[int, ...]],
        strides: list[tuple[int, ...]] | None = None,
        starts: list[int] | None = None,
        ndim: int = 0,
    ) -> None:
        self._values, self._sizes = values, sizes
        self._strides = [rows(size) for size in sizes] if strides is None else strides
        self._starts = _one_after_the_other(sizes) if starts is None else starts
        self._piece_ndim = len(sizes[0]) if sizes else ndim

    def _with(self, values: Tensor) -> StridedNestedTensor:
        return self._viewed(values, self._sizes, self._strides, self._starts)

    def _viewed(
        self, values: Tensor, sizes: list, strides: list | None = None, starts: list | None = None
    ) -> StridedNestedTensor:
        return StridedNestedTensor(values, sizes, strides, starts, self._piece_ndim)

    def _pieces(self) -> list[Tensor]:
        values = self._values
        if self.is_contiguous():
            parts = values.split([math.prod(size) for size in self._sizes]) if self._sizes else ()
            return [part.view(size) for part, size in zip(parts, self._sizes)]
        return self._places()

    def _places(self) -> list[Tensor]:
        """The pieces, each a view of its own: autograd lets these be written, and parts of one `split` not."""
        values = self._values
        return [
            values.narrow(0, start, math.prod(size)).view(size)
            if stride == rows(size)
            else values.as_strided(size, stride, values.storage_offset() + start)
            for size, stride, start in zip(self._sizes, self._strides, self._starts)
        ]

    def _map(self, function: Any) -> StridedNestedTensor:
        return of_list([function(piece) for piece in self._pieces()])

    # --- geometry ---

    @property
    def shape(self) -> NoReturn:
        """Raises RuntimeError: the pieces have shapes of their own."""
        raise RuntimeError(NO_SIZES.format("sizes"))

    def size(self, dim: int | None = None) -> int:  # type: ignore[override]  # always of one dimension
        """Returns the number of pieces (dimension 0), or a size that all pieces have.

        Raises:
            RuntimeError: If they differ in it, or no dimension is given.
            IndexError: If there is no such dimension.
        """
        if dim is None:
            raise RuntimeError(NO_SIZES.format("sizes"))
        dim = wrap_dim(dim, self.dim())
        if dim == 0:
            return len(self._sizes)
        found = {size[dim - 1] for size in self._sizes}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return found.pop()

    def stride(self, dim: int | None = None) -> NoReturn:
        """Raises RuntimeError: the pieces have strides of their own."""
        raise RuntimeError(NO_SIZES.format("strides"))

    def dim(self) -> int:
        """Returns the number of dimensions: one more than those of a piece."""
        return self._piece_ndim + 1

    def numel(self) -> int:
        """Returns the number of elements of all pieces."""
        return sum(math.prod(size) for size in self._sizes)

    def __len__(self) -> int:
        raise RuntimeError(NO_SIZES.format("sizes"))

    def __iter__(self) -> Any:
        raise RuntimeError(NO_SIZES.format("sizes"))

    def data_ptr(self) -> int:
        """Returns the address of the first value."""
        return self._values.data_ptr()

    def is_contiguous(self, memory_format: Any = layouts.contiguous_format) -> bool:
        """Returns whether the pieces are stored row by row, one after the other."""
        return (
            self._starts == _one_after_the_other(self._sizes)
            and self._strides == [rows(size) for size in self._sizes]
            and self._values.numel() == self.numel()
        )

    def is_same_size(self, other: Any) -> bool:
        """Returns whether the pieces of another nested tensor have the same shapes."""
        return self._sizes == other._sizes

    def values(self) -> Tensor:
        """Returns all values as one ordinary tensor of one dimension: a view."""
        return self._values.view_as(self._values)

    def _nested_tensor_size(self) -> Tensor:
        """Returns the shapes of the pieces."""
        return torch.tensor(self._sizes, dtype=torch.int64)

    def _nested_tensor_strides(self) -> Tensor:
        """Returns the strides of the pieces."""
        return torch.tensor(self._strides, dtype=torch.int64)

    def _nested_tensor_storage_offsets(self) -> Tensor:
        """Returns where each piece begins."""
        return torch.tensor(self._starts, dtype=torch.int64)

    # --- text and files ---

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        requires = self.requires_grad
        shown = [repr(piece.detach().requires_grad_(requires)) for piece in self._pieces()]
        lines = ",\n".join("\n".join("  " + line for line in text.split("\n")) for text in shown)
        graph = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn else ", requires_grad=True" if requires else ""
        return f"nested_tensor([\n{lines}\n]{graph})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.grad_fn is not None:
            raise RuntimeError("a nested tensor with a history cannot be pickled: detach() it first")
        args = (self._values, self._sizes, self._strides, self._starts, self._piece_ndim)
        return StridedNestedTensor, args, self._attributes() or None


def _one_after_the_other(sizes: list[tuple[int, ...]]) -> list[int]:
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += math.prod(size)
    return starts


def of_list(tensors: list[Tensor]) -> StridedNestedTensor:
    """A nested tensor of tensors with as many dimensions; it has copies of them, to which gradients flow back.

    Raises: RuntimeError if they differ in their number of dimensions, in dtype or in device.
    """
    if not tensors:
        return StridedNestedTensor(torch.empty(0), [], ndim=0)
    for i, other in enumerate(tensors):
        if other.ndim != tensors[0].ndim:
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. Found dimension "
                f"{other.ndim} for Tensor at index {i} and dimension {tensors[0].ndim} for Tensor "
                "at index 0."
            )
        for what in ("dtype", "device"):
            if getattr(other, what) != getattr(tensors[0], what):
                raise RuntimeError(f"nested_tensor: expected tensors of the same {what}")
    if tensors[0].ndim == 0:
        raise RuntimeError("nested_tensor: expected tensors with at least one dimension")
    return StridedNestedTensor(torch.cat([t.reshape(-1) for t in tensors]), [tuple(t.shape) for t in tensors])


def of_tensor(tensor: Tensor) -> StridedNestedTensor:
    """The rows of a tensor as pieces, in its memory."""
    return StridedNestedTensor(tensor.reshape(-1), [tuple(tensor.shape[1:])] * tensor.shape[0], ndim=tensor.ndim - 1)
