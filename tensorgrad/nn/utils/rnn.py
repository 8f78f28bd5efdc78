"""Batches of sequences of different lengths: padded to one length, or packed without the padding.

A packed batch is sorted by length, longest first, and stored time step by time step. Each step has one row for every
sequence that is long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.tensor import Tensor


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """A packed batch, as returned by `pack_padded_sequence` and accepted by `tensorgrad.nn.LSTM`.

    Args:
        data: the rows (N, ...) of all time steps, one step after another.
        batch_sizes: the number of rows of each step, on the CPU.
        sorted_indices: the permutation that sorts the batch by length; None if it was already sorted.
        unsorted_indices: the inverse permutation.

    >>> from tensorgrad.nn.utils.rnn import pack_sequence
    >>> packed = pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None) -> PackedSequence:
        if batch_sizes is None:  # the oldest form: a pair
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn.utils.rnn."
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Returns the batch with its data on another device or of another dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Returns the batch on the CPU."""
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Returns the batch on a GPU."""
        return self.to("cuda")

    def double(self) -> PackedSequence:
        """The batch in float64."""
        return self.to(torch.float64)

    def float(self) -> PackedSequence:
        """The batch in float32."""
        return self.to(torch.float32)

    def half(self) -> PackedSequence:
        """The batch in float16."""
        return self.to(torch.float16)

    def long(self) -> PackedSequence:
        """The batch in int64."""
        return self.to(torch.int64)

    def int(self) -> PackedSequence:
        """The batch in int32."""
        return self.to(torch.int32)

    def short(self) -> PackedSequence:
        """The batch in int16."""
        return self.to(torch.int16)

    def char(self) -> PackedSequence:
        """The batch in int8."""
        return self.to(torch.int8)

    def byte(self) -> PackedSequence:
        """The batch in uint8."""
        return self.to(torch.uint8)

    def pin_memory(self) -> PackedSequence:
        """Returns the batch in pinned memory, from which copies to a GPU are faster."""
        return self._with(self.data.pin_memory())

    def is_pinned(self) -> bool:
        """Returns whether the data is in pinned memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the inverse of a permutation, or None for None.

    >>> torch.nn.utils.rnn.invert_permutation(torch.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    result = torch.empty_like(permutation)
    result[permutation] = torch.arange(permutation.numel(), device=permutation.device, dtype=permutation.dtype)
    return result


def _rows(sizes: list[int], lengths: list[int]) -> Tensor:
    """Returns the index of each row of a packed batch in the flattened padded batch (time, sequence)."""
    width = len(lengths)
    return torch.tensor([t * width + b for t, n in enumerate(sizes) for b in range(n)], dtype=torch.int64, device="cpu")


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch (T, B, ...) of sequences of the given lengths.

    Args:
        batch_first: the input is (B, T, ...).
        enforce_sorted: require decreasing lengths; if False, the sequences are sorted first.

    Raises:
        RuntimeError: a length is not positive or too long, their number is not the batch size, or they are not sorted.

    >>> from tensorgrad.nn.utils.rnn import pack_padded_sequence
    >>> pack_padded_sequence(torch.tensor([[1, 4], [2, 5], [3, 0]]), [3, 2]).data
    tensor([1, 4, 2, 5, 3])
    """
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    if lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.ndim}D {lengths.device} tensor"
        )
    order = lengths.to(torch.int64)
    sorted_indices: Tensor | None = None
    if not enforce_sorted:
        order, sorted_indices = torch.sort(order, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if batch_first:
        input = input.transpose(0, 1)
    found = order.tolist()
    _check_lengths(input, found)
    sizes = [sum(n > t for n in found) for t in range(found[0])]
    rows = _rows(sizes, found).to(input.device)
    data = input.reshape(input.shape[0] * input.shape[1], *input.shape[2:]).index_select(0, rows)
    return PackedSequence(data, torch.tensor(sizes, dtype=torch.int64, device="cpu"), sorted_indices, None)


def _check_lengths(input: Tensor, lengths: list[int]) -> None:
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(lengths) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={input.shape[1]})"
        )
    if min(lengths) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if lengths != sorted(lengths, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    if lengths[0] > input.shape[0]:
        raise RuntimeError(
            f"pack_padded_sequence: the longest length is {lengths[0]}, but the batch has {input.shape[0]} time steps"
        )


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the padded batch (T, B, ...) of a packed one, and the lengths.

    Args:
        batch_first: return (B, T, ...).
        padding_value: the value of the padding.
        total_length: T, if it should exceed the longest length.

    Raises:
        ValueError: `total_length` is less than the longest length.

    >>> from tensorgrad.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
    >>> pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2, 3],
            [4, 5, 0]]), tensor([3, 2]))
    """
    sizes = sequence.batch_sizes.tolist()
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    time, width, data = total_length or longest, sizes[0], sequence.data
    lengths = [sum(n > b for n in sizes) for b in range(width)]
    rows = _rows(sizes, lengths).to(data.device)
    whole = data.new_full((time * width, *data.shape[1:]), padding_value).index_copy(0, rows, data)
    padded, found = whole.reshape(time, width, *data.shape[1:]), torch.tensor(lengths, dtype=torch.int64, device="cpu")
    if batch_first:
        padded = padded.transpose(0, 1)
    order = sequence.unsorted_indices
    if order is not None:
        padded, found = padded.index_select(0 if batch_first else 1, order), found[order.cpu()]
    return padded, found


def pad_sequence(
    sequences: Tensor | list[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Pads tensors (L, ...) of different lengths to one batch (T, B, ...).

    Args:
        batch_first: return (B, T, ...).
        padding_value: the value of the padding.
        padding_side: where to pad, `"right"` or `"left"`.

    Raises:
        RuntimeError: there are no sequences, or their shapes differ beyond the first dimension.

    >>> from tensorgrad.nn.utils.rnn import pad_sequence
    >>> pad_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])], batch_first=True, padding_value=-1)
    tensor([[ 1,  2,  3],
            [ 4,  5, -1]])
    """
    if isinstance(sequences, Tensor):
        sequences = list(sequences.unbind(0))
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    for i, s in enumerate(sequences):
        if not isinstance(s, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(s).__name__} (pad_sequence())"
            )
    longest, rest = max(len(s) for s in sequences), sequences[0].shape[1:]
    padded = []
    for s in sequences:
        if s.shape[1:] != rest:
            raise RuntimeError(
                "pad_sequence: expected sequences whose shapes differ only in the first dimension, but got "
                f"{list(sequences[0].shape)} and {list(s.shape)}"
            )
        filling = s.new_full((longest - len(s), *rest), padding_value)
        padded.append(torch.cat([s, filling] if padding_side == "right" else [filling, s]))
    return torch.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences of a padded batch.

    >>> from tensorgrad.nn.utils.rnn import unpad_sequence
    >>> unpad_sequence(torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2]), batch_first=True)
    [tensor([1, 2, 3]), tensor([4, 5])]
    """
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [sequence[:n] for sequence, n in zip(batch.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (L, ...) of different lengths, which must be sorted, longest first, with `enforce_sorted`.

    Raises:
        RuntimeError: as in `pad_sequence` and `pack_padded_sequence`.

    >>> from tensorgrad.nn.utils.rnn import pack_sequence
    >>> pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])]).batch_sizes
    tensor([2, 2, 1])
    """
    padded = pad_sequence(sequences)
    lengths = torch.as_tensor([len(s) for s in sequences], device="cpu")
    return pack_padded_sequence(padded, lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the sequences of a packed batch.

    >>> from tensorgrad.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])]))
    [tensor([1, 2, 3]), tensor([4, 5])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
