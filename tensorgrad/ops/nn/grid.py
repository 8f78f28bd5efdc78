"""Sampling of images at the points of a grid, and the grids of affine maps: spatial transformers.

Source: M. Jaderberg et al., "Spatial transformer networks" (2015).
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import as_integer, warn
from tensorgrad.kernels.array import grid as kernels
from tensorgrad.ops.create import linspace, ones, zeros
from tensorgrad.ops.join import stack
from tensorgrad.tensor import Tensor

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")

# --- the twin, in simpler ops, with derivatives of any order -------------------------------------------------------


def sampled_by_ops(input: Tensor, grid: Tensor, mode: str | int, padding: str | int, align: bool | None) -> Tensor:
    """Computes `grid_sample` with ordinary ops: for each tap, gathers a neighbor and weights it."""
    mode, padding = (given if isinstance(given, str) else names[given]
                     for given, names in ((mode, MODES), (padding, PADDINGS)))  # fmt: skip
    sizes, (batch, channels) = input.shape[2:], input.shape[:2]
    axes = []
    for d, size in enumerate(sizes):
        positions = _position(grid.select(-1, len(sizes) - 1 - d), size, mode, padding, align)
        axes.append((size, *_taps(positions, size, mode)))
    total: Any = None
    for tap in product(range(kernels.COUNT[mode]), repeat=len(sizes)):
        index: Any = 0
        weight: Any = 1
        inside: Any = True
        for t, (size, first, weights) in zip(tap, axes, strict=True):
            here = first + t
            if mode == "bicubic":
                here = _bounded(here, size, padding, align)
            inside = inside & (here >= 0) & (here < size)
            index = index * size + here.clamp(0, size - 1)
            weight = weight * weights[t]
        flat = index.reshape(batch, 1, -1).expand(-1, channels, -1)
        values = input.reshape(batch, channels, -1).gather(2, flat).reshape(batch, channels, *grid.shape[1:-1])
        values = values.where(inside.unsqueeze(1), 0) * (weight.unsqueeze(1) if mode != "nearest" else 1)
        total = values if total is None else total + values
    return total


def _position(x: Tensor, size: int, mode: str, padding: str, align: bool | None) -> Tensor:
    """Converts coordinates from -1 to 1 to positions in the input, mapped inside it according to `padding`.

    If `align` is None, they are positions already (and `padding` is "zeros").
    """
    if align is None:
        return x
    x = (x + 1) * ((size - 1) / 2) if align else (x + 1) * (size / 2) - 0.5
    if padding == "zeros" or mode == "bicubic":
        return x
    if padding == "reflection":
        low, span = (0.0, size - 1) if align else (-0.5, size)
        if not span:
            return x * 0
        x = x - low
        x = (-x).where(x < 0, x)
        rest = x.fmod(span)
        x = (span - rest).where((x / span).floor().fmod(2) != 0, rest) + low
    inside = (x > 0) & (x < size - 1)  # on the border itself the derivative is zero
    return x.where(inside, x.detach().nan_to_num(0).clamp(0, size - 1))


def _taps(x: Tensor, size: int, mode: str) -> tuple[Tensor, list]:
    """Returns the index (int64) of the first neighbor of each position, and the weights of all neighbors."""
    if mode == "nearest":
        return _whole(x.detach().round(), size), [1]
    first = x.detach().floor()
    t = x - first
    if mode == "bilinear":
        return _whole(first, size), [1 - t, t]
    a = -0.75
    near = [((a + 2) * u - (a + 3)) * u * u + 1 for u in (t, 1 - t)]
    far = [((a * u - 5 * a) * u + 8 * a) * u - 4 * a for u in (t + 1, 2 - t)]
    return _whole(first - 1, size), [far[0], near[0], near[1], far[1]]


def _whole(x: Tensor, size: int) -> Tensor:
    """Returns positions as int64; positions far outside remain outside, and NaN counts as outside."""
    return x.nan_to_num(-9).clamp(-9 - 4 * size, 9 + 5 * size).long()


def _bounded(index: Tensor, size: int, padding: str, align: bool | None) -> Tensor:
    if padding == "border":
        return index.clamp(0, size - 1)
    if padding == "zeros":
        return index
    period = max(2 * size - 2 if align else 2 * size, 1)
    index = index % period
    return (period - (0 if align else 1) - index).where(index >= size, index)


# --- rows ----------------------------------------------------------------------------------------------------------


def _checked(x, grid, mode, padding, align):
    """Raises: RuntimeError or NotImplementedError for shapes and dtypes that do not fit."""
    if not len(x) == len(grid):
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(x.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != x.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    for d, n in enumerate(x.shape[2:], start=2):
        if not n:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                f"{list(x.shape)} with dimension {d} being empty"
            )
    if x.ndim not in (4, 5) or x.ndim != grid.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with "
            f"sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
        )
    mode, padding = (
        names[v] if v.__class__ is int and 0 <= v < 3 else v for names, v in ((MODES, mode), (PADDINGS, padding))
    )
    if mode not in MODES or padding not in PADDINGS:
        for argument, value, names in (("interpolation_mode", mode, MODES), ("padding_mode", padding, PADDINGS)):
            if value not in names:
                as_integer(value, argument)
        raise RuntimeError(
            f"grid_sampler(): expected interpolation_mode and padding_mode from 0 to 2, but got {mode} and {padding}"
        )
    if mode == "bicubic" and x.ndim == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if x.dtype.kind in "biuc":
        raise NotImplementedError(
            f"\"grid_sampler_{x.ndim - 2}d_cpu_kernel_impl\" not implemented for '{scalar_type(x)}'"
        )
    if x.dtype != grid.dtype:
        raise RuntimeError(f"expected scalar type {scalar_type(x)} but found {scalar_type(grid)}")
    return x, grid, mode, padding, align


def _row(dims: int):
    def prepare(x, grid, mode, padding, align):
        if x.ndim != dims + 2 or grid.ndim != dims + 2:
            raise RuntimeError(
                f"grid_sampler(): expected {dims + 2}D input and grid with same number of dimensions, but got input "
                f"with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
            )
        return _checked(x, grid, mode, padding, align)

    return op(
        f"grid_sampler_{dims}d(input, grid, interpolation_mode: any, padding_mode: any, align_corners: bool)",
        "grid.grid_sample",
        batch="fold",
        prepare=prepare,
        twin=sampled_by_ops,
        backward_kernel=lambda xp, g, input, grid, interpolation_mode, padding_mode, align_corners, needs: (
            kernels.grid_sample_grad(xp, g, input, grid, interpolation_mode, padding_mode, align_corners, needs)
        ),
        shape=lambda x, grid, *rest: (*x.shape[:2], *grid.shape[1:-1]),
        doc=f"`grid_sample` in {dims} dimensions, with integer codes for mode and padding (see `grid_sampler`).",
        where=("function",),
    )


grid_sampler_2d, grid_sampler_3d = _row(2), _row(3)

# --- public functions ----------------------------------------------------------------------------------------------


@composite("function")
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample` with integer codes: mode 0 bilinear, 1 nearest, 2 bicubic; padding 0 zeros, 1 border, 2 reflection.

    >>> x, centre = torch.arange(4.0).reshape(1, 1, 2, 2), torch.zeros(1, 1, 1, 2)
    >>> torch.grid_sampler(x, centre, 0, 0, False).item()
    1.5
    """
    if input._array.ndim not in (4, 5) or input._array.ndim != grid._array.ndim:
        _checked(input._array, grid._array, interpolation_mode, padding_mode, align_corners)
    sample = grid_sampler_3d if input._array.ndim == 5 else grid_sampler_2d
    return sample(input, grid, interpolation_mode, padding_mode, align_corners)


def _default_corners() -> bool:
    warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
        "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.",
    )
    return False


@composite("functional")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Samples images (N, C, H, W) at the points `grid` (N, H', W', 2): (N, C, H', W'). Volumes likewise.

    Args:
        grid: the points (x, y) or (x, y, z), where -1 and 1 are the edges of the image.
        mode: "bilinear" (in three dimensions trilinear), "nearest", or "bicubic" (two dimensions only).
        padding_mode: the values outside: "zeros", the nearest element of the "border", or a "reflection" of the image.
        align_corners: whether -1 and 1 are the centers of the outermost elements instead of their outer edges.

    Raises:
        ValueError: If a mode is unknown.
        RuntimeError: If shapes or dtypes do not fit together.

    >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> grid = torch.tensor([[[[0.0, 0.0], [1.0, -1.0]]]])
    >>> torch.nn.functional.grid_sample(x, grid, align_corners=True)
    tensor([[[[1.5000, 1.0000]]]])
    """
    if mode not in MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if align_corners is None:
        align_corners = _default_corners()
    return grid_sampler(input, grid, mode, padding_mode, align_corners)


def _points(sizes: tuple, align_corners: bool, like: Tensor) -> Tensor:
    """The homogeneous coordinates (x, y, 1) of all elements of an image, (1, elements, dimensions + 1)."""
    given, dims = {"dtype": like.dtype, "device": like.device}, len(sizes)
    axes: list[Tensor] = []
    for d, n in enumerate(sizes):
        axis = linspace(-1, 1, n, **given) if n > 1 else zeros(n, **given)
        if not align_corners and n > 1:
            axis = axis * (n - 1) / n
        axes.insert(0, axis.reshape([-1 if e == d else 1 for e in range(dims)]).expand(sizes))
    return stack([*axes, ones(sizes, **given)], -1).reshape(1, -1, dims + 1)


def _affine_twin(theta, size, align_corners):
    count, _, *sizes = size
    grid = _points(sizes, align_corners, theta).expand(count, -1, -1).bmm(theta.transpose(1, 2))
    return grid.reshape(count, *sizes, len(sizes))


def _affine_gradient(g, size, align_corners):
    count, _, *sizes = size
    points = _points(sizes, align_corners, g).expand(count, -1, -1)
    return g.reshape(count, -1, len(sizes)).transpose(1, 2).bmm(points)


_affine_grid = op(  # saves nothing, since the points are made anew
    "affine_grid_generator(theta, size: any, align_corners: bool)", twin=_affine_twin, linear="theta", where=(),
    theta=_affine_gradient, shape=lambda theta, size, corners: ((size[0], *size[2:], len(size) - 2), theta.dtype),
    backward_name="AffineGridGeneratorBackward0",
)  # fmt: skip


@composite("function")
def affine_grid_generator(theta: Tensor, size, align_corners: bool) -> Tensor:
    """`affine_grid` without its checks on the arguments.

    >>> double = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]])
    >>> torch.affine_grid_generator(double, (1, 1, 1, 2), False)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    if len(size) not in (4, 5):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    return _affine_grid(theta, tuple(size), align_corners)


@composite("functional")
def affine_grid(theta: Tensor, size, align_corners: bool | None = None) -> Tensor:
    """Returns the points to which affine maps `theta` (N, 2, 3) or (N, 3, 4) send the elements of an image of `size`.

    Args:
        theta: the matrices, for homogeneous coordinates (x, y, 1).
        size: the size of the output images, (N, C, H, W) or (N, C, D, H, W).
        align_corners: as for `grid_sample`, which takes the result, (N, H, W, 2) or (N, D, H, W, 3).

    Raises:
        ValueError: If the dtype or shape does not fit.
        NotImplementedError: If the number of dimensions is not supported.

    >>> identity = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> torch.nn.functional.affine_grid(identity, (1, 1, 1, 2), align_corners=False)
    tensor([[[[-0.5000,  0.0000],
              [ 0.5000,  0.0000]]]])
    """
    if align_corners is None:
        align_corners = _default_corners()
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    dims = len(size) - 2
    if tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got "
            f"{theta.shape}."
        )
    if align_corners and min(size[2:]) == 1:
        warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This "
            "is not an intended use case of affine_grid. See the documentation of affine_grid for details.",
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return affine_grid_generator(theta, size, align_corners)
