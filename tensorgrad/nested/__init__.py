"""Nested tensors: batches of tensors of different shapes, without padding.

Two layouts. In `torch.jagged`, the pieces differ in the length of one dimension, and the tensor is a tensor of values
and one of offsets: most functions of tensors take it. In `torch.strided`, the default, as in PyTorch, pieces may differ
in all sizes, and few functions take it.

>>> x = torch.nested.nested_tensor([[1.0, 2.0], [3.0, 4.0, 5.0]], layout=torch.jagged)
>>> (x * 10).to_padded_tensor(-1)
tensor([[10., 20., -1.],
        [30., 40., 50.]])
>>> x.mean(1)
tensor([1.5000, 4.0000])
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad import layouts
from tensorgrad.nested._internal import nested_tensor as _jagged
from tensorgrad.nested._internal import ops as _ops
from tensorgrad.nested._internal import strided as _strided
from tensorgrad.nested._internal import strided_ops as _strided_ops
from tensorgrad.nested._internal.base import Nested as _Nested
from tensorgrad.symbolic import SymInt
from tensorgrad.tensor import Tensor

__all__ = ["to_padded_tensor", "as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "narrow",
           "masked_select"]  # fmt: skip


def _layout(given: Any, where: str = "nested tensors") -> layouts.layout:
    """Raises: RuntimeError for a layout other than `torch.strided` (None) and `torch.jagged`."""
    if given not in (None, layouts.strided, layouts.jagged):
        raise RuntimeError(f"Specified layout is unsupported for {where}: {given}")
    return layouts.strided if given is None else given


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Tensor:
    """Returns a nested tensor of tensors, to which gradients flow back.

    Args:
        ts: a list of tensors with as many dimensions; or a tensor, whose first dimension counts the pieces; or a nested
            tensor, which is returned as it is if dtype and device fit.
        dtype: by default that of the tensors.
        device: by default that of the tensors.
        layout: `torch.strided` (the default) or `torch.jagged`.

    Raises:
        TypeError: `ts` is something else.
        RuntimeError: the tensor has fewer than two dimensions; the nested tensor has another layout; the tensors do not
            fit the layout.

    >>> a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> x = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
    >>> (x * x).sum().backward()
    >>> b.grad
    tensor([2., 2., 2.])
    """
    listed = isinstance(ts, list | tuple) and all(isinstance(t, Tensor) for t in ts)
    if not isinstance(ts, Tensor) and not listed:
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if isinstance(ts, Tensor):
        if ts.dim() < 2:
            raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
        if ts.is_nested:
            if layout is not ts.layout:
                raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
            return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    kind = _layout(layout)
    if kind is layouts.strided:
        made = _strided.of_tensor(ts) if isinstance(ts, Tensor) else _strided.of_list(list(ts))
        return made._with(made._values.to(device=device or made.device, dtype=dtype or made.dtype))
    if not isinstance(ts, Tensor):
        return _jagged.jagged_from_list(list(ts), None, dtype, device)[0]
    count, length = ts.shape[:2]
    values = ts.contiguous().flatten(0, 1).to(device=device or ts.device, dtype=dtype or ts.dtype)
    offsets = torch.arange(count + 1, device=values.device, dtype=torch.int64) * length
    return _jagged.nested_view_from_values_offsets(values, offsets, min_seqlen=length, max_seqlen=length)


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a nested tensor with copies of the given tensors: a leaf.

    Args:
        tensor_list: tensors, or anything that `torch.tensor` takes, with as many dimensions.
        dtype: by default that of the tensors.
        layout: `torch.strided` (the default) or `torch.jagged`.
        device: by default that of the tensors.
        requires_grad: of the result.
        pin_memory: for faster copies to a GPU.

    Raises:
        RuntimeError: the tensors do not fit the layout.

    >>> x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
    >>> x.is_leaf, len(x), x.offsets()
    (True, 2, tensor([0, 2, 6]))
    """
    kind = _layout(layout)
    with torch.no_grad():
        if kind is layouts.strided:
            made: Any = _strided.of_list([t if isinstance(t, Tensor) else torch.tensor(t) for t in tensor_list])
            made = made._with(made._values.detach().to(device=device or made.device, dtype=dtype or made.dtype))
        else:
            tensors = [t if isinstance(t, Tensor) else torch.as_tensor(t) for t in tensor_list]
            made = _jagged.jagged_from_list(tensors, None, dtype, device)[0]
            made = made._with(made._values.detach())
        if pin_memory:
            made = made.pin_memory()
    return made.requires_grad_(requires_grad)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Returns a nested tensor of the jagged layout: a view of `values`, to which gradients flow back.

    Args:
        values: the pieces one after the other along dimension `jagged_dim - 1`.
        offsets: where each of the B pieces begins, and where the last ends: (B + 1,).
        lengths: how long each piece is: (B,). Together with offsets, a piece may end before the next one begins.
        jagged_dim: which dimension of the result is ragged; 1 if None.
        min_seqlen: the smallest length, if it is known.
        max_seqlen: the largest length, if it is known.

    Raises:
        RuntimeError: neither offsets nor lengths are given.
        ValueError: `jagged_dim` is less than 1.

    >>> x = torch.nested.nested_tensor_from_jagged(torch.arange(6), lengths=torch.tensor([1, 3, 2]))
    >>> x.unbind()
    (tensor([0]), tensor([1, 2, 3]), tensor([4, 5]))
    """
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = _jagged.offsets_of(lengths), None
    dim = 1 if jagged_dim is None else jagged_dim
    if dim < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {jagged_dim}.")
    return _jagged.nested_view_from_values_offsets_lengths(values, offsets, lengths, dim, min_seqlen, max_seqlen)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = layouts.strided) -> Tensor:
    """Returns what lies between `start` and `start + length` along a dimension, for each row of a tensor.

    Args:
        tensor: (B, longest, *).
        dim: 1 in the jagged layout; 0 in the strided one.
        start: where each piece begins: a number, or (jagged layout) a tensor (B,).
        length: how long each piece is, likewise.
        layout: `torch.jagged` for a view of `tensor`, `torch.strided` for a copy.

    Raises:
        RuntimeError: another `dim`, or starts and lengths that are neither numbers nor tensors.

    >>> x = torch.arange(6).reshape(2, 3)
    >>> torch.nested.narrow(x, 1, torch.tensor([0, 1]), torch.tensor([2, 1]), torch.jagged).unbind()
    (tensor([0, 1]), tensor([4]))
    """
    for name, value in (("start", start), ("length", length)):
        if not isinstance(value, int | SymInt | Tensor):
            raise RuntimeError(f"{name} must be an integer or a tensor")
    if _layout(layout, "nested narrow") is layouts.strided:
        if isinstance(start, Tensor) or isinstance(length, Tensor):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        return as_nested_tensor(torch.unbind(tensor), layout=layouts.strided).narrow(dim, start, length)
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    starts, lengths = (
        value if isinstance(value, Tensor) else torch.tensor([value], device=tensor.device) for value in (start, length)
    )
    return _jagged.jagged_from_tensor_and_lengths(tensor, starts, lengths)[0]


def masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    """Returns the elements where a mask is true, those of each row as a piece.

    Args:
        tensor: an ordinary tensor.
        mask: booleans, of a shape that broadcasts to it.

    Raises:
        RuntimeError: one of them is not strided.

    >>> x = torch.arange(6).reshape(2, 3)
    >>> torch.nested.masked_select(x, x > 1).unbind()
    (tensor([2]), tensor([3, 4, 5]))
    """
    for what, value in (("tensor", tensor), ("mask", mask)):
        if value.layout is not layouts.strided:
            given = f", given {value.layout}" if value is tensor else f", given: {value.layout}"
            raise RuntimeError(f"torch.nested.masked_select requires a strided {what}{given}")
    counts = mask.expand(tensor.shape).sum(tensor.ndim - 1).view(-1)
    return _jagged.nested_view_from_values_offsets(tensor.masked_select(mask), _jagged.offsets_of(counts))


def to_padded_tensor(input: Tensor, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
    """Returns the pieces as one ordinary tensor, each filled up with `padding` to the largest size: a copy.

    Args:
        input: a nested tensor.
        padding: the value of the elements that no piece has.
        output_size: the size of the result, if it is to be larger.
        out: not supported.

    Raises:
        RuntimeError: `output_size` is less than a piece's size (strided layout), or there are gaps between the pieces
            (jagged layout).

    >>> x = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(2, 1)])
    >>> torch.nested.to_padded_tensor(x, 0.0)
    tensor([[[1., 1.],
             [0., 0.]],
    <BLANKLINE>
            [[1., 0.],
             [1., 0.]]])
    """
    if out is not None:
        raise NotImplementedError("to_padded_tensor: out= is not supported")
    if not isinstance(input, _Nested):
        raise NotImplementedError("to_padded_tensor: expected a nested tensor, but got an ordinary one")
    return input.to_padded_tensor(padding, output_size)
