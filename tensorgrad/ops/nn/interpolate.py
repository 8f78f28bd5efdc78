"""Resizing of images and other fields (N, C, *S)."""

from __future__ import annotations

import numpy as np

from tensorgrad.dispatch.kinds import FUNCTIONAL, Function, composite, op
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_flag, warn
from tensorgrad.kernels.array import interpolate as kernels
from tensorgrad.tensor import Tensor

# --- rows: one for each mode and number of dimensions, as in PyTorch -----------------------------------------------

# (mode, spatial dimensions, antialias) -> (row, the kernels' name of the mode)
NAMES = {
    ("nearest", 1, False): ("upsample_nearest1d", "nearest"),
    ("nearest", 2, False): ("upsample_nearest2d", "nearest"),
    ("nearest", 3, False): ("upsample_nearest3d", "nearest"),
    ("nearest-exact", 1, False): ("upsample_nearest_exact1d", "nearest-exact"),
    ("nearest-exact", 2, False): ("upsample_nearest_exact2d", "nearest-exact"),
    ("nearest-exact", 3, False): ("upsample_nearest_exact3d", "nearest-exact"),
    ("linear", 1, False): ("upsample_linear1d", "linear"),
    ("bilinear", 2, False): ("upsample_bilinear2d", "linear"),
    ("trilinear", 3, False): ("upsample_trilinear3d", "linear"),
    ("bicubic", 2, False): ("upsample_bicubic2d", "cubic"),
    ("bilinear", 2, True): ("upsample_bilinear2d_aa", "linear-aa"),
    ("bicubic", 2, True): ("upsample_bicubic2d_aa", "cubic-aa"),
    ("lanczos", 2, True): ("upsample_lanczos2d_aa", "lanczos-aa"),
}
ROWS: dict[str, Function] = {}


def _declare(name: str, mode: str) -> None:
    def kernel(xp, x, size, align, scales):
        return kernels.interpolate(xp, x, mode, size, align, scales)

    ROWS[name] = op(
        f"{name}(input, size: any, align: bool, scales: any)",
        kernel,
        linear="input",
        batch="fold",
        input=lambda g, input_shape, align, scales: _interpolate_grad(g, input_shape, name, mode, align, scales),
        shape=lambda x, size, align, scales: (*x.shape[:2], *size),
        doc="Resizes the input to (N, C, *size).",
        format_of=("input",),
        where=(),
    )


for _name, _mode in NAMES.values():
    _declare(_name, _mode)

_interpolate_grad = op(  # linear in the gradient: its derivative is the resizing op
    "interpolate_grad(grad, shape: any, row: str, mode: str, align: bool, scales: any)",
    lambda xp, g, shape, row, mode, align, scales: kernels.interpolate_grad(xp, g, shape, mode, align, scales),
    linear="grad",
    batch="fold",
    grad=lambda g, grad_shape, row, align, scales: ROWS[row](g, grad_shape[2:], align, scales),
    shape=lambda g, shape, *rest: tuple(shape),
    doc="The transpose of the resizing `row`.",
    format_of=("grad",),
    where=(),
)

# --- arguments -----------------------------------------------------------------------------------------------------

WITHOUT_CORNERS = ("nearest", "area", "nearest-exact")
ANTIALIASED = ("bilinear", "bicubic", "lanczos")
LETTERS = ("W", "HW", "DHW")


def _is_integer(value) -> bool:
    not_one = isinstance(value, bool) or (isinstance(value, Tensor) and value.is_floating_point())
    return hasattr(value, "__index__") and not not_one


def _target(input: Tensor, size, scale_factor) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Returns the target size, and the factors if given instead. Raises: ValueError or TypeError if they do not fit."""
    given = input._array.shape[2:]
    dims = max(input._array.ndim - 2, 0)
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    what, wanted = ("output size", size) if scale_factor is None else ("scale_factor", scale_factor)
    if isinstance(wanted, tuple | list):
        if len(wanted) != dims:
            name, of, letter = (what, "shape ", "s") if scale_factor is not None else ("output", "", "o")
            raise ValueError(
                f"Input and {name} must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {list(given)} and {what} of {of}{wanted}. Please provide input tensor in (N, C, d1, "
                f"d2, ...,dK) format and {what} in ({letter}1, {letter}2, ...,{letter}K) format."
            )
    else:
        wanted = (wanted,) * dims
    if scale_factor is None:
        if not all(_is_integer(n) for n in wanted):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got size "
                f"with types {[type(n) for n in wanted]}"
            )
        return tuple(n.__index__() for n in wanted), None
    if not all(isinstance(s, int | float | np.number) for s in wanted):
        raise TypeError(
            f"expected scale_factor to be a float or a tuple of floats, but got {[type(s) for s in wanted]}"
        )
    factors = tuple(float(s) for s in wanted)
    return tuple(int(n * s) for n, s in zip(given, factors, strict=True)), factors


def _mismatch(mode: str, ndim: int) -> NotImplementedError:
    """Returns the error for a mode that does not exist, or not for that number of dimensions."""
    needs = {"linear": 3, "bilinear": 4, "trilinear": 5}
    if ndim in (3, 4, 5) and mode in needs:
        return NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {needs[mode]}D input")
    return NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | "
        f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {mode})"
    )


def _check(row: str, input: Tensor, size: tuple[int, ...]) -> None:
    """Raises: RuntimeError for empty sizes, NotImplementedError for dtypes without a row."""
    shape, letters = input._array.shape, LETTERS[len(size) - 1]
    if min(*shape[2:], *size) <= 0:
        before, after = (
            ", ".join(f"{letter}: {n}" for letter, n in zip(letters, sizes, strict=True)) for sizes in (shape[2:], size)
        )
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input ({before}) "
            f"{'and ' if len(size) == 1 else ''}output ({after})"
        )
    if not shape[1]:
        raise RuntimeError(f"Non-empty {len(shape)}D data tensor expected but got a tensor with sizes {list(shape)}")
    dtype, mode = input._array.dtype, dict(NAMES.values())[row]
    if dtype.kind in "biuc" and not (dtype == np.uint8 and row not in ("upsample_linear1d", "upsample_trilinear3d")):
        kernel = f"compute_indices_weights_{mode.partition('-')[0]}"
        if mode.endswith("-aa"):
            kernel = "compute_index_ranges_weights"
        elif len(size) == 2 and sum(size) <= 128 and mode != "cubic":
            kernel = f"upsample_{'nearest' if mode != 'linear' else 'bilinear'}2d_channels_last"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input)}'")


# --- public functions ----------------------------------------------------------------------------------------------


@composite("functional")
def interpolate(
    input: Tensor,
    size=None,
    scale_factor=None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the input (N, C, *S) to (N, C, *size), or to floor(S · scale_factor).

    Args:
        size, scale_factor: exactly one of them, as one number or one for each spatial dimension.
        mode: "nearest" and "nearest-exact" (one to three dimensions; the first rounds positions down, the second to the
            nearest), "linear" (one), "bilinear", "bicubic" (two), "trilinear" (three), "area" (means), and with
            `antialias` "lanczos".
        align_corners: whether to align the centers of the outermost elements; by default their outer edges are aligned.
        recompute_scale_factor: whether to compute the factor from the sizes. Otherwise a given factor is used
            unchanged, although the sizes are rounded.
        antialias: whether all elements count where an image shrinks ("bilinear", "bicubic" and "lanczos").

    Shapes: (N, C, L), (N, C, H, W) or (N, C, D, H, W). Two-dimensional uint8 images are resized in integer arithmetic.

    Raises:
        ValueError: If options do not fit together.
        NotImplementedError: If the mode does not support the number of dimensions or the dtype.
        RuntimeError: If a size is empty.

    >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> torch.nn.functional.interpolate(x, scale_factor=2)[0, 0]
    tensor([[0., 0., 1., 1.],
            [0., 0., 1., 1.],
            [2., 2., 3., 3.],
            [2., 2., 3., 3.]])
    >>> torch.nn.functional.interpolate(x, size=(1, 3), mode="bilinear", align_corners=True)
    tensor([[[[0.0000, 0.5000, 1.0000]]]])
    """
    antialias = bool(antialias)
    if mode in WITHOUT_CORNERS and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    ndim = input._array.ndim
    wanted, factors = _target(input, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if antialias and not (mode in ANTIALIASED and ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "area" and ndim in (3, 4, 5):
        return FUNCTIONAL[f"adaptive_avg_pool{ndim - 2}d"](input, wanted)
    if mode == "lanczos" and ndim == 4:
        if align_corners:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
    if (mode, ndim - 2, antialias) not in NAMES:
        raise _mismatch(mode, ndim)
    row, _ = NAMES[mode, ndim - 2, antialias]
    _check(row, input, wanted)
    if align_corners is not None:
        check_flag(align_corners, "align_corners")
    return ROWS[row](input, wanted, bool(align_corners), None if recompute_scale_factor else factors)


def _deprecated(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


@composite("functional")
def upsample(
    input: Tensor, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """Deprecated alias of `interpolate`; warns.

    >>> torch.nn.functional.upsample(torch.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite("functional")
def upsample_nearest(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """Deprecated: `interpolate` in mode "nearest"; warns.

    >>> torch.nn.functional.upsample_nearest(torch.tensor([[[1.0, 2.0]]]), size=3)
    tensor([[[1., 1., 2.]]])
    """
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@composite("functional")
def upsample_bilinear(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """Deprecated: linear `interpolate` with `align_corners=True`; warns.

    >>> torch.nn.functional.upsample_bilinear(torch.tensor([[[[1.0, 2.0]]]]), size=(1, 3))
    tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
