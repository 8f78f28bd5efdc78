"""Gradient clipping, which prevents too large steps."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dtypes import F32
from tensorgrad.rows.kernel_tables import COMPILED, device_kernel
from tensorgrad.settings import SETTINGS
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor, wrap
from tensorgrad.transforms.transform import beside_ops

_PART = 65536  # how many squares are summed in single precision


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not found and isinstance(parameters, types.GeneratorType):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=4)
    return [p.grad for p in found if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Returns the norm of all tensors, concatenated to one vector, as a 0-dimensional tensor.

    Args:
        norm_type: the degree of the norm; `inf` is the largest absolute value.
        error_if_nonfinite: raise an error if the norm is infinite or NaN.
        foreach: accepted and ignored: there is only one implementation.

    Raises:
        RuntimeError: the norm is not finite and `error_if_nonfinite` is set.

    >>> torch.nn.utils.get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return torch.zeros(())
    device = tensors[0].device
    plain = all(tensor.__class__ in PLAIN for tensor in tensors)
    total = _euclidean(tensors) if norm_type == 2.0 and plain else None
    if total is None:
        norms = [tensor.norm(norm_type) for tensor in tensors]
        if not plain:  # the norms of distributed tensors are those of the whole
            norms = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
        norms = [norm.to(device) for norm in norms]
        total = torch.stack(norms).norm(norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _in_one_launch(arrays: list[Any]) -> bool:
    """Returns whether the compiled kernels take all of these arrays."""
    return all([a.__class__ is np.ndarray and a.dtype is F32 and a.flags.carray for a in arrays])


def _kernel(name: str, arrays: list[Any]) -> Any:
    """Returns the row of a compiled kernel for a list of arrays, if it is ready and worthwhile."""
    row: Any = COMPILED.get(name)
    many = row is not None and not SETTINGS.deterministic and sum([a.size for a in arrays]) >= row.elements
    return row if many and row.available() else None


def _scaled(tensors: list[Tensor], factor: float) -> bool:
    """Multiplies float32 tensors on the CPU by a number in one launch. Returns whether a kernel takes them."""
    arrays = [tensor._array for tensor in tensors]
    once = len({*map(id, arrays)}) == len(arrays)  # threads must not meet in one array
    row = _kernel("gradient_scale", arrays) if once and arrays and _in_one_launch(arrays) else None
    if row is None:
        return False
    for tensor in tensors:
        if tensor._memory is not None:  # otherwise its version has not been read yet
            tensor._memory.bump()
    row.ready(arrays, factor)
    return True


def _euclidean(tensors: list[Tensor]) -> Tensor | None:
    """Returns the norm in one pass over all tensors, or None if they are not on one device or no kernel takes them.

    On the CPU, contiguous float32 tensors are supported.
    """
    arrays = [tensor._array for tensor in tensors]
    if arrays[0].__class__ is not np.ndarray:
        kernel = device_kernel("gradient_norm", STORAGES[arrays[0].__class__])
        total = NotImplemented if kernel is None else kernel(arrays)
        return None if total is NotImplemented else wrap(total)
    if not _in_one_launch(arrays):
        return None
    row = _kernel("gradient_norm", arrays)
    if row is not None:
        total = row.ready(arrays).sum()
    else:
        total = 0.0
        with np.errstate(all="ignore"):
            for flat in (a.reshape(-1) for a in arrays):
                for part in (flat[at : at + _PART] for at in range(0, flat.size, _PART)):
                    total += float(np.dot(part, part))
    return torch.tensor(math.sqrt(total), dtype=torch.float32)


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients in place by max_norm / total_norm where that is less than 1.

    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> torch.nn.utils.clip_grads_with_norm_(w, 1.0, total_norm=torch.tensor(5.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    _scale(_grads(parameters), max_norm, total_norm)


def _scale(grads: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
    if grads and grads[0]._array.__class__ is not np.ndarray:
        kernel = device_kernel("clip_gradients", STORAGES[grads[0]._array.__class__])
        arrays = [grad._array for grad in grads]
        if kernel is not None and kernel(arrays, total_norm._array, float(max_norm)) is not NotImplemented:
            for grad in grads:
                grad._storage.bump()
            return
    factor: Any = float(max_norm) / (total_norm + 1e-6)
    factor = factor.clamp(max=1.0)
    plain = all(grad.__class__ in PLAIN for grad in grads)
    if (factor.dtype is torch.float32 or not plain) and factor.device.type == "cpu":
        factor = factor.item()  # a Python scalar needs no broadcasting
        if plain and _scaled(grads, factor):
            return
        for grad in grads:
            grad.mul_(factor)
        return
    for grad in grads:
        grad.mul_(factor.to(grad.device))


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales the gradients in place so that the norm of all of them, as one vector, is at most `max_norm`.

    Args:
        parameters: the tensors whose gradients are clipped; those without a gradient are skipped.
        max_norm: the maximum norm.
        norm_type: the degree of the norm.
        error_if_nonfinite: raise an error if the norm is infinite or NaN.
        foreach: accepted and ignored: there is only one implementation.

    Returns:
        The norm before clipping.

    >>> w = torch.ones(2, requires_grad=True)
    >>> (w * torch.tensor([3.0, 4.0])).sum().backward()
    >>> torch.nn.utils.clip_grad_norm_(w, max_norm=1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    grads = _grads(parameters)
    given = grads, max_norm, norm_type, error_if_nonfinite
    total = beside_ops(_clip, given, tuple(grads))
    return _clip(*given) if total is NotImplemented else total


def _clip(grads: list[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    _scale(grads, max_norm, total)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """Deprecated alias of `clip_grad_norm_`.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> torch.nn.utils.clip_grad_norm(w, 1.0)
    tensor(5.)
    """
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every element of the gradients, in place, to [-clip_value, clip_value].

    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3.0, -5.0])
    >>> torch.nn.utils.clip_grad_value_([w], 4.0)
    >>> w.grad
    tensor([ 3., -4.])
    """
    clip_value = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(min=-clip_value, max=clip_value)
