"""Pooling of `torch.nn.functional`, and its inverse, written in TorchScript: see `functional.py`.

They are never run as Python.
"""

from __future__ import annotations

from typing import Optional

import tensorgrad as torch
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors


def of_each(values: list[int], dims: int) -> list[int]:
    return values * dims if len(values) == 1 else values


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool1d(input, output_size)


def adaptive_max_pool1d(input: Tensor, output_size: list[int], return_indices: bool = False) -> Tensor:
    return adaptive_max_pool1d_with_indices(input, output_size)[0]


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool2d(input, of_each(output_size, 2))


def adaptive_max_pool2d(input: Tensor, output_size: list[int], return_indices: bool = False) -> Tensor:
    return adaptive_max_pool2d_with_indices(input, output_size)[0]


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool3d(input, of_each(output_size, 3))


def adaptive_max_pool3d(input: Tensor, output_size: list[int], return_indices: bool = False) -> Tensor:
    return adaptive_max_pool3d_with_indices(input, output_size)[0]


def fractional_sizes(
    input: Tensor, output_size: Optional[list[int]], output_ratio: Optional[list[float]], dims: int
) -> list[int]:
    if output_size is not None:
        return of_each(output_size, dims)
    if output_ratio is None:
        raise ValueError(f"fractional_max_pool{dims}d requires specifying either an output_size or an output_ratio")
    sizes: list[int] = []
    for i in range(dims):
        ratio = output_ratio[0] if len(output_ratio) == 1 else output_ratio[i]
        sizes.append(int(float(input.size(i - dims)) * ratio))
    return sizes


def fractional_samples(input: Tensor, samples: Optional[Tensor], dims: int) -> Tensor:
    if samples is not None:
        return samples
    batch = 1 if input.dim() == dims + 1 else input.size(0)
    return torch.rand([batch, input.size(-dims - 1), dims], dtype=input.dtype, device=input.device)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: list[int],
    output_size: Optional[list[int]] = None,
    output_ratio: Optional[list[float]] = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:
    size = fractional_sizes(input, output_size, output_ratio, 2)
    samples = fractional_samples(input, _random_samples, 2)
    return torch.ops.aten.fractional_max_pool2d(input, of_each(kernel_size, 2), size, samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: list[int],
    output_size: Optional[list[int]] = None,
    output_ratio: Optional[list[float]] = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> Tensor:
    return fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, False, _random_samples
    )[0]  # fmt: skip


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: list[int],
    output_size: Optional[list[int]] = None,
    output_ratio: Optional[list[float]] = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:
    size = fractional_sizes(input, output_size, output_ratio, 3)
    samples = fractional_samples(input, _random_samples, 3)
    return torch.ops.aten.fractional_max_pool3d(input, of_each(kernel_size, 3), size, samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: list[int],
    output_size: Optional[list[int]] = None,
    output_ratio: Optional[list[float]] = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> Tensor:
    return fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, False, _random_samples
    )[0]  # fmt: skip


def unpooled_size(
    input: Tensor, kernel: list[int], stride: list[int], padding: list[int], output_size: Optional[list[int]]
) -> list[int]:
    dims = len(kernel)
    sizes: list[int] = []
    for i in range(dims):
        sizes.append((input.size(i - dims) - 1) * stride[i] + kernel[i] - 2 * padding[i])
    if output_size is not None:
        if len(output_size) == dims + 2:
            output_size = output_size[2:]
        if len(output_size) != dims:
            raise ValueError(
                f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
                f"'{len(output_size)}'"
            )
        for i in range(dims):
            least, most = sizes[i] - stride[i], sizes[i] + stride[i]
            if output_size[i] <= least or output_size[i] >= most:
                raise ValueError(f'invalid output_size "{output_size}" (dim {i} must be between {least} and {most})')
        sizes = output_size
    for i in range(dims):
        if sizes[i] < 0:
            raise ValueError(
                "max_unpooling: output_size must contain non-negative spatial dimensions, but got "
                f"output_size[{i}]={sizes[i]}"
            )
    return sizes


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: Optional[list[int]] = None,
    padding: list[int] = (0,),
    output_size: Optional[list[int]] = None,
) -> Tensor:
    steps = kernel_size
    if stride is not None:
        steps = stride
    size = unpooled_size(input, kernel_size, steps, padding, output_size) + [1]
    return torch.ops.aten.max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), size).squeeze(-1)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: Optional[list[int]] = None,
    padding: list[int] = (0,),
    output_size: Optional[list[int]] = None,
) -> Tensor:
    kernel, pads = of_each(kernel_size, 2), of_each(padding, 2)
    steps = kernel
    if stride is not None:
        steps = of_each(stride, 2)
    size = unpooled_size(input, kernel, steps, pads, output_size)
    return torch.ops.aten.max_unpool2d(input, indices, size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: Optional[list[int]] = None,
    padding: list[int] = (0,),
    output_size: Optional[list[int]] = None,
) -> Tensor:
    kernel, pads = of_each(kernel_size, 3), of_each(padding, 3)
    steps = kernel
    if stride is not None:
        steps = of_each(stride, 3)
    size = unpooled_size(input, kernel, steps, pads, output_size)
    return torch.ops.aten.max_unpool3d(input, indices, size, steps, pads)


def root_of_sums(means: Tensor, norm_type: float, count: int) -> Tensor:
    return torch.pow(torch.sign(means) * torch.relu(torch.abs(means)) * count, 1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: list[int], stride: Optional[list[int]] = None, ceil_mode: bool = False
) -> Tensor:
    kernel = of_each(kernel_size, 1)
    steps = kernel
    if stride is not None:
        steps = of_each(stride, 1)
    if norm_type == float("inf"):
        return torch.ops.aten.max_pool1d(torch.abs(input), kernel, steps, [0], [1], ceil_mode)
    if norm_type == float("-inf"):
        return -torch.ops.aten.max_pool1d(-torch.abs(input), kernel, steps, [0], [1], ceil_mode)
    means = torch.ops.aten.avg_pool1d(torch.pow(input, norm_type), kernel, steps, [0], ceil_mode)
    return root_of_sums(means, norm_type, kernel[0])


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: list[int], stride: Optional[list[int]] = None, ceil_mode: bool = False
) -> Tensor:
    kernel = of_each(kernel_size, 2)
    steps = kernel
    if stride is not None:
        steps = of_each(stride, 2)
    if norm_type == float("inf"):
        return torch.ops.aten.max_pool2d(torch.abs(input), kernel, steps, [0, 0], [1, 1], ceil_mode)
    if norm_type == float("-inf"):
        return -torch.ops.aten.max_pool2d(-torch.abs(input), kernel, steps, [0, 0], [1, 1], ceil_mode)
    means = torch.ops.aten.avg_pool2d(torch.pow(input, norm_type), kernel, steps, [0, 0], ceil_mode)
    return root_of_sums(means, norm_type, kernel[0] * kernel[1])


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: list[int], stride: Optional[list[int]] = None, ceil_mode: bool = False
) -> Tensor:
    kernel = of_each(kernel_size, 3)
    steps = kernel
    if stride is not None:
        steps = of_each(stride, 3)
    if norm_type == float("inf"):
        return torch.ops.aten.max_pool3d(torch.abs(input), kernel, steps, [0, 0, 0], [1, 1, 1], ceil_mode)
    if norm_type == float("-inf"):
        return -torch.ops.aten.max_pool3d(-torch.abs(input), kernel, steps, [0, 0, 0], [1, 1, 1], ceil_mode)
    means = torch.ops.aten.avg_pool3d(torch.pow(input, norm_type), kernel, steps, [0, 0, 0], ceil_mode)
    return root_of_sums(means, norm_type, kernel[0] * kernel[1] * kernel[2])


POOLS = (
    lp_pool1d, lp_pool2d, lp_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d,
    adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices,
    fractional_max_pool2d, fractional_max_pool3d, fractional_max_pool2d_with_indices,
    fractional_max_pool3d_with_indices, max_unpool1d, max_unpool2d, max_unpool3d,
)  # fmt: skip
