"""`NestedTensor`: the layout `torch.jagged`, in which the pieces differ in the length of one dimension.

The pieces are stored one after the other along that dimension: a batch of B sequences of vectors of size D is a tensor
of values (total length, D), and B + 1 offsets that say where each sequence begins and ends. The tensor's shape is
(B, j1, D), where `j1` stands for the lengths (`nested_int.py`). With `lengths`, a piece may end before the next begins.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad import layouts
from tensorgrad.errors import wrap_dim
from tensorgrad.nested._internal import nested_int
from tensorgrad.nested._internal.base import ELEMENTWISE, Nested
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

__all__ = ["NestedTensor", "jagged_from_list", "jagged_from_tensor_and_lengths", "nested_from_padded",
           "nested_view_from_values_offsets", "nested_view_from_values_offsets_lengths"]  # fmt: skip


_tensor_symint_registry = nested_int.SIZES  # PyTorch's name, which libraries import


class NestedTensor(Nested):
    """A batch of tensors that differ in the length of one dimension.

    Made by `torch.nested.nested_tensor(..., layout=torch.jagged)` and the other functions of `torch.nested`.

    Args:
        values: the pieces one after the other along dimension `_ragged_idx - 1`.
        offsets: where each piece begins, and where the last one ends; (B + 1,), on the same device.
        lengths: how long each piece is, (B,), if it may end before the next one begins.
        requires_grad: of the tensor.
        _ragged_idx: which dimension of the whole is ragged; 0 is the batch.
        _metadata_cache: the smallest and the largest length, if they are known.

    >>> x = torch.nested.nested_tensor_from_jagged(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 3]))
    >>> [tuple(piece.shape) for piece in x.unbind()]
    [(1, 2), (2, 2)]
    >>> (x + 1).sum(1)
    tensor([[ 1.,  2.],
            [ 8., 10.]])
    """

    _offsets: Tensor
    _lengths: Tensor | None
    _ragged_idx: int
    _metadata_cache: dict[str, Any]
    _size: tuple

    _layout = layouts.jagged
    _elementwise_names = ELEMENTWISE
    _own: ClassVar[frozenset[str]] = frozenset(
        ("_values", "_offsets", "_lengths", "_ragged_idx", "_metadata_cache", "_size")
    )

    def __init__(
        self,
        values: Tensor,
        offsets: Tensor,
        *,
        lengths: Tensor | None = None,
        requires_grad: bool = False,
        _ragged_idx: int = 1,
        _metadata_cache: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if offsets is None:
            raise AssertionError("offsets must not be None")
        if offsets.ndim != 1:
            raise AssertionError(f"offsets must be 1D, but got {offsets.ndim}D")
        if isinstance(values, Nested):
            raise AssertionError("values must not be a NestedTensor")
        if values.device != offsets.device:
            raise AssertionError(
                "values and offsets must be on the same device, but got "
                f"values.device={values.device} and offsets.device={offsets.device}"
            )
        count, at = offsets.shape[0] - 1, _ragged_idx - 1
        if lengths is not None and lengths.shape[0] != count:
            raise AssertionError(
                f"offsets and lengths batch sizes must match: offsets.shape[0] - 1 = {count}, "
                f"lengths.shape[0] = {lengths.shape[0]}"
            )
        if not 0 <= at < values.ndim:
            raise IndexError(f"the values have {values.ndim} dimensions, so dimension {_ragged_idx} cannot be ragged")
        self._values, self._offsets, self._lengths, self._ragged_idx = values, offsets, lengths, _ragged_idx
        self._metadata_cache = _metadata_cache or {}
        length = nested_int.of_tensor(offsets if lengths is None else lengths)
        self._size = (count, *values.shape[:at], length, *values.shape[at + 1 :])
        if requires_grad:
            self._values = values.detach().requires_grad_() if values.grad_fn is not None else values.requires_grad_()

    def _with(self, values: Tensor, ragged_idx: int | None = None) -> NestedTensor:
        return NestedTensor(
            values,
            self._offsets,
            lengths=self._lengths,
            _ragged_idx=self._ragged_idx if ragged_idx is None else ragged_idx,
            _metadata_cache=self._metadata_cache,
        )

    def _pieces(self) -> list[Tensor]:
        return pieces(self._values, self._offsets, self._lengths, self._ragged_idx - 1)

    def _map(self, function: Any) -> NestedTensor:
        values = torch.cat([function(piece) for piece in self._pieces()], self._ragged_idx - 1)
        if self._lengths is None:
            return self._with(values)
        return NestedTensor(values, offsets_of(self._lengths), _ragged_idx=self._ragged_idx)  # without gaps

    # --- geometry ---

    def values(self) -> Tensor:
        """Returns the pieces one after the other, as one ordinary tensor: a view."""
        return self._values.view_as(self._values)

    def offsets(self) -> Tensor:
        """Returns where each piece begins, and where the last one ends."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """Returns the lengths of the pieces if these may end before the next one begins, else None."""
        return self._lengths

    @property
    def shape(self) -> Size:
        """The sizes, of which one stands for all lengths."""
        return Size(self._size)

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape, or the size of a dimension."""
        return Size(self._size) if dim is None else self._size[wrap_dim(dim, len(self._size))]

    def dim(self) -> int:
        """Returns the number of dimensions: one more than those of a piece."""
        return len(self._size)

    def stride(self, dim: int | None = None) -> Any:
        """Returns the steps in memory, in elements; that of the batch is a multiple of the ragged size."""
        steps = self._values.stride()
        strides = (self._size[self._ragged_idx] * steps[self._ragged_idx - 1], *steps)
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def numel(self) -> int:
        """Returns the number of elements of all pieces."""
        if self._lengths is None:
            return self._values.numel()
        others = [n for d, n in enumerate(self._size) if d not in (0, self._ragged_idx)]
        return int(self._lengths.sum().item()) * math.prod(others)

    def __len__(self) -> int:
        return self._size[0]

    def data_ptr(self) -> int:
        """Returns 0: a nested tensor has no memory but that of its values."""
        return 0

    def is_contiguous(self, memory_format: Any = layouts.contiguous_format) -> bool:
        """Returns whether the values are contiguous, and nothing lies between the pieces."""
        if self._lengths is not None:
            return False
        return memory_format is layouts.preserve_format or self._values.is_contiguous(memory_format=memory_format)

    def is_same_size(self, other: Any) -> bool:
        """Returns whether another nested tensor has the same shape."""
        return self._size == other._size

    # --- lengths ---

    def _length_of_each(self) -> Tensor:
        return self._offsets.diff() if self._lengths is None else self._lengths

    def _extreme(self, name: str, function: Any) -> int:
        if name not in self._metadata_cache:
            found = self._length_of_each()
            self._metadata_cache[name] = _stored(int(function(found).item()) if len(found) else 0)
        return self._metadata_cache[name].shape[0]

    def _get_max_seqlen(self) -> int:
        return self._extreme("max_seqlen", torch.max)

    def _get_min_seqlen(self) -> int:
        return self._extreme("min_seqlen", torch.min)

    _max_seqlen, _min_seqlen = property(_get_max_seqlen), property(_get_min_seqlen)
    _max_seqlen_tensor = property(lambda self: self._metadata_cache.get("max_seqlen"))
    _min_seqlen_tensor = property(lambda self: self._metadata_cache.get("min_seqlen"))
    _maybe_max_seqlen = property(lambda self: _length(self._max_seqlen_tensor))
    _maybe_min_seqlen = property(lambda self: _length(self._min_seqlen_tensor))

    # --- text and files ---

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        graph = f", requires_grad={self.requires_grad}" if self.requires_grad else ""
        if self.grad_fn:
            graph = f", grad_fn={self.grad_fn}"
        return f"NestedTensor(size={self._size}, offsets={self._offsets}{graph}, contiguous={self.is_contiguous()})"

    def _parts(self) -> dict[str, Any]:
        """What it is made of, by the names of the constructor's arguments."""
        return {
            "values": self._values.detach(),
            "offsets": self._offsets,
            "lengths": self._lengths,
            "_ragged_idx": self._ragged_idx,
            "_metadata_cache": self._metadata_cache,
            "requires_grad": self.requires_grad,
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild_njt, (self._parts(),), self._attributes() or None

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        """Returns the names of the tensors that it is made of, and the rest."""
        names = ["_values", "_offsets"]
        names += [
            name for name in ("_lengths", "_min_seqlen_tensor", "_max_seqlen_tensor") if getattr(self, name) is not None
        ]
        return names, {"requires_grad": self.requires_grad, "ragged_idx": self._ragged_idx}

    @staticmethod
    def __tensor_unflatten__(
        inner_tensors: dict[str, Any], meta: dict[str, Any], outer_size: Any, outer_stride: Any
    ) -> Any:
        """Returns the tensor that `__tensor_flatten__` took apart."""
        known = {
            "min_seqlen": inner_tensors.get("_min_seqlen_tensor"),
            "max_seqlen": inner_tensors.get("_max_seqlen_tensor"),
        }
        return NestedTensor(
            inner_tensors["_values"],
            inner_tensors["_offsets"],
            lengths=inner_tensors.get("_lengths"),
            requires_grad=meta["requires_grad"],
            _ragged_idx=meta["ragged_idx"],
            _metadata_cache={name: value for name, value in known.items() if value is not None},
        )


def _rebuild_njt(constructor_kwargs: dict[str, Any]) -> NestedTensor:
    """Makes a nested tensor from its parts, as they are in a file."""
    return NestedTensor(**constructor_kwargs)


def _stored(length: int) -> Tensor:
    """A length as PyTorch keeps it: a tensor of that size and no elements."""
    return torch.empty(length, 0)


def _length(stored: Tensor | None) -> int | None:
    return None if stored is None else stored.shape[0]


def pieces(values: Tensor, offsets: Tensor, lengths: Tensor | None, dim: int) -> list[Tensor]:
    """The pieces of values along a dimension: views.

    Raises: RuntimeError if they exceed the values.
    """
    total = values.shape[dim]
    starts = offsets.tolist()
    counts = [b - a for a, b in pairwise(starts)] if lengths is None else lengths.tolist()
    if any(n < 0 for n in counts) or sum(counts) > total:
        raise RuntimeError(f"unbind(): lengths {counts} of the pieces do not fit into {total} values")
    if lengths is None:
        if sum(counts) != total:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={counts}"
            )
        return list(values.split(counts, dim))
    if any(a < 0 or a + n > total for a, n in zip(starts, counts)):
        raise RuntimeError("unbind(): nested tensor offsets and lengths do not match ragged_idx dimension")
    return [values.narrow(dim, a, n) for a, n in zip(starts, counts)]


# --- making them -----------------------------------------------------------------------------------------------------


def _known(min_seqlen: int | None, max_seqlen: int | None) -> dict[str, Any]:
    given = {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen}
    return {name: _stored(length) for name, length in given.items() if length is not None}


def nested_view_from_values_offsets_lengths(
    values: Tensor,
    offsets: Tensor,
    lengths: Tensor | None,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """Returns a nested tensor that shares the memory of `values`, and to which gradients of its pieces flow back."""
    return NestedTensor(
        values.view_as(values),
        offsets,
        lengths=lengths,
        _ragged_idx=ragged_idx,
        _metadata_cache=_known(min_seqlen, max_seqlen),
    )


def nested_view_from_values_offsets(
    values: Tensor, offsets: Tensor, ragged_idx: int = 1, min_seqlen: int | None = None, max_seqlen: int | None = None
) -> NestedTensor:
    """Returns a nested tensor that shares the memory of `values`, without gaps between the pieces."""
    return nested_view_from_values_offsets_lengths(values, offsets, None, ragged_idx, min_seqlen, max_seqlen)


def offsets_of(lengths: Tensor) -> Tensor:
    """Where pieces of these lengths begin if they are one after the other, and where the last one ends."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def positions(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """For each of the values, the number of its piece, and its place in it."""
    lengths = offsets.diff()
    batch = torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)
    return batch, torch.arange(len(batch), device=offsets.device) - (offsets[:-1] - offsets[0])[batch]


def nested_from_padded(
    padded: Tensor,
    offsets: Tensor,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
    sum_S: int | None = None,
) -> NestedTensor:
    """Returns a nested tensor of what pieces of these lengths keep of an ordinary tensor (B, ..., length, ...)."""
    batch, place = positions(offsets)
    rows = padded.movedim(ragged_idx, 1)[batch, place]  # (total, others)
    values = rows.movedim(0, ragged_idx - 1)
    return NestedTensor(values, offsets, _ragged_idx=ragged_idx, _metadata_cache=_known(min_seqlen, max_seqlen))


def jagged_from_list(
    tensors: list[Tensor], offsets: Tensor | None, dtype: Any = None, device: Any = None
) -> tuple[NestedTensor, Tensor]:
    """Returns a nested tensor of pieces that differ in the size of one dimension at most, and its offsets.

    Raises:
        RuntimeError: There are none, or they differ in dtype, device, number of dimensions, or several sizes.
    """
    if not tensors:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    for what, same in (("dtype", "have the same dtype"), ("device", "be on the same device")):
        if len({getattr(t, what) for t in tensors}) != 1:
            raise RuntimeError(f"When constructing a nested tensor, all tensors in list must {same}")
    if len({t.ndim for t in tensors}) != 1:
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dim")
    if tensors[0].ndim == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    shapes = [tuple(t.shape) for t in tensors]
    ragged = [d for d in range(tensors[0].ndim) if any(shape[d] != shapes[0][d] for shape in shapes)]
    if len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged "
            "layout only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * "
            "dim."
        )
    dim = ragged[0] if ragged else 0
    values = torch.cat(list(tensors), dim)
    values = values.to(
        device=values.device if device is None else device, dtype=values.dtype if dtype is None else dtype
    )
    lengths = [shape[dim] for shape in shapes]
    if offsets is None:
        offsets = torch.tensor([0, *lengths], device=values.device).cumsum(0)
    made = nested_view_from_values_offsets(values, offsets, dim + 1, min(lengths), max(lengths))
    return made, offsets


def jagged_from_tensor_and_lengths(
    tensor: Tensor, starts: Tensor, lengths: Tensor
) -> tuple[NestedTensor, Tensor, Tensor | None]:
    """Returns a nested tensor of what lies between `starts` and `starts + lengths` in each row, a view; its offsets and
    its lengths.

    Raises: RuntimeError if there is not one start and length for each row.
    """
    count, longest = tensor.shape[0], tensor.shape[1] if tensor.ndim > 1 else 0
    if tensor.ndim < 2:
        raise AssertionError("tensor must at least be 2D for the nested narrow op to work")
    if any(t.ndim > 1 or (t.ndim == 1 and t.shape[0] not in (1, count)) for t in (starts, lengths)):
        raise RuntimeError(
            "When constructing a jagged nested tensor using narrow(), your start and length must be Tensors that "
            "broadcast to input.shape[0]"
        )
    starts, lengths = starts.expand(count), lengths.expand(count)
    rows = longest * torch.arange(count, dtype=torch.int64, device=tensor.device)
    offsets = torch.cat([starts + rows, (starts[-1] + rows[-1] + lengths[-1]).unsqueeze(0)])
    values = tensor.view(-1, *tensor.shape[2:])
    smallest, largest = int(lengths.min().item()), int(lengths.max().item())
    if bool((starts[1:] + rows[1:] == starts[:-1] + rows[:-1] + lengths[:-1]).all()):  # nothing between them
        first, last = int(offsets[0].item()), int(offsets[-1].item())
        made = nested_view_from_values_offsets(values[first:last], offsets - offsets[0], 1, smallest, largest)
        return made, offsets, None
    made = nested_view_from_values_offsets_lengths(values, offsets, lengths, 1, smallest, largest)
    return made, offsets, lengths
