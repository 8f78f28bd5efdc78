"""`torch.utils._foreach_utils`: groups of tensors that one `_foreach_` op can take, as optimizers make them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorgrad.devices import device
from tensorgrad.dtypes import bfloat16, dtype, float32, float64
from tensorgrad.tensor import Tensor

Lists = list[list[Tensor | None]]

_STEPS = (float32, float64)  # counts of steps may stay on the CPU


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Returns the kinds of devices, besides the CPU, whose `_foreach_` ops take all tensors at once.

    >>> from tensorgrad.utils import _foreach_utils
    >>> _foreach_utils._get_foreach_kernels_supported_devices()
    ['cuda']
    """
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Returns the kinds of devices for which optimizers have `fused=True`.

    >>> from tensorgrad.utils import _foreach_utils
    >>> _foreach_utils._get_fused_kernels_supported_devices()
    ['cuda', 'cpu']
    """
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: device) -> bool:
    """Returns whether a device has `_foreach_` ops.

    >>> from tensorgrad.utils import _foreach_utils
    >>> _foreach_utils._device_has_foreach_support(torch.device("cpu"))
    True
    """
    return device.type in ("cpu", *_get_foreach_kernels_supported_devices())


def _has_foreach_support(tensors: Sequence[Tensor | None], device: device) -> bool:
    """Returns whether a device has `_foreach_` ops for these tensors: plain ones, or None.

    >>> from tensorgrad.utils import _foreach_utils
    >>> _foreach_utils._has_foreach_support([torch.ones(2), None], torch.device("cpu"))
    True
    """
    plain = all(t is None or type(t) is Tensor or t.__class__.__name__ == "Parameter" for t in tensors)
    return _device_has_foreach_support(device) and plain


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[device, dtype], tuple[Lists, list[int]]]:
    """Groups lists of tensors by the device and dtype of the first list's tensors.

    Args:
        tensorlistlist: Lists of the same length (or empty): parameters, their gradients, their states. Only the first
            list may not contain None.
        with_indices: Whether the positions of the tensors in the lists are returned, too.

    Returns:
        Device and dtype -> (the lists with only that group's tensors, their positions).

    Raises:
        RuntimeError: If the lists' lengths differ, the first is empty or contains None, or tensors of one position
            differ in device or dtype. (Counts of steps may be float32 or float64 on the CPU, and states bfloat16.)

    >>> from tensorgrad.utils import _foreach_utils
    >>> parameters = [torch.ones(1), torch.ones(1, dtype=torch.float64), torch.zeros(1)]
    >>> groups = _foreach_utils._group_tensors_by_device_and_dtype([parameters, [None] * 3], with_indices=True)
    >>> for (device, dtype), (lists, indices) in groups.items():
    ...     print(device, dtype, lists, indices)
    cpu torch.float32 [[tensor([1.]), tensor([0.])], [None, None]] [0, 2]
    cpu torch.float64 [[tensor([1.], dtype=torch.float64)], [None]] [1]
    """
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: expected a list of lists whose first is not empty")
    first = tensorlistlist[0]
    lengths = [len(tensors) for tensors in tensorlistlist]
    if any(length not in (0, len(first)) for length in lengths):
        raise RuntimeError(
            f"_group_tensors_by_device_and_dtype: expected lists of {len(first)} tensors or none, got {lengths}"
        )
    groups: dict[tuple[device, dtype], tuple[Lists, list[int]]] = {}
    for i, leader in enumerate(first):
        if leader is None:
            raise RuntimeError(
                f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {i}-th Tensor is "
                "not."
            )
        for tensors in tensorlistlist[1:]:
            if tensors and not _go_together(leader, tensors[i]):
                raise RuntimeError(
                    "Tensors of the same index must be on the same device and the same dtype except `step` tensors "
                    "that can be CPU and float32/64, and optimizer states that can be bfloat16 for mixed-precision "
                    "training"
                )
        lists, indices = groups.setdefault((leader.device, leader.dtype), ([[] for _ in tensorlistlist], []))
        for group, tensors in zip(lists, tensorlistlist):
            group.extend(tensors[i : i + 1])
        if with_indices:
            indices.append(i)
    return groups


def _go_together(leader: Tensor, other: Tensor | None) -> bool:
    if other is None or (other.device.type == "cpu" and other.dtype in _STEPS):
        return True
    return other.device == leader.device and other.dtype in (leader.dtype, bfloat16)
