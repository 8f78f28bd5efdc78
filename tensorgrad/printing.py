"""`repr(tensor)`: exactly the text that PyTorch prints.

Everything here works on plain arrays, in three steps:

1. `_shown` copies the few elements that a summary (`...`) leaves visible. No other elements are read, so
   printing a tensor of a billion elements costs as much as printing one of a thousand.
2. `_cells` formats those elements at one width and in one notation (`1.`, `1.5000` or `1.5000e+00`).
3. `_layout` arranges the strings in brackets and lines, and `suffixed` appends what the values do not show.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tensorgrad import dtypes
from tensorgrad.layouts import strided
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.quantized import QuantizedStorage
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor
from tensorgrad.transforms.batch import BatchedArray, BatchedStorage


class PrintOptions:
    """The settings of `set_printoptions`, with PyTorch's defaults (`shape` is an addition, off by default)."""

    def __init__(self) -> None:
        self.precision: int = 4
        self.threshold: float = 1000
        self.edgeitems: int = 3
        self.linewidth: float = 80
        self.sci_mode: bool | None = None
        self.shape: bool = False


PRINT_OPTIONS = PrintOptions()

_PROFILES: dict[str | None, dict] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "shape": False},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80, "shape": False},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80, "shape": False},
}


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None, shape=None
) -> None:
    """Sets how tensors are printed, for the whole process. `None` leaves a setting unchanged, except `sci_mode`.

    Args:
        precision: Digits after the decimal point (4).
        threshold: Tensors with more elements are summarized with `...` (1000).
        edgeitems: Items that a summary shows at each end of each dimension (3).
        linewidth: Characters per line (80).
        profile: "default", "short" or "full" (never summarize); sets everything above, and `shape` to False,
            before the other arguments apply. Any other name does nothing, as in PyTorch.
        sci_mode: True for scientific notation, False to disable it, None to decide by the values. As in PyTorch, every
            call sets it: a call without it resets it to None.
        shape: True to append `, shape=(2, 3)` to every tensor (not in PyTorch).

    Example::
        >>> torch.set_printoptions(precision=2)
        >>> torch.tensor([1.12345])
        tensor([1.12])
        >>> torch.set_printoptions(profile="default")
        >>> torch.tensor([1.12345])
        tensor([1.1235])
    """
    given: dict = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given["shape"] = shape
    changes = dict(_PROFILES.get(profile, {}))
    changes.update((name, value) for name, value in given.items() if value is not None)
    for name, value in changes.items():
        setattr(PRINT_OPTIONS, name, value)
    PRINT_OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict:
    """Returns the current settings, as a dictionary that `set_printoptions(**...)` accepts.

    Example::
        >>> from tensorgrad.printing import get_printoptions
        >>> get_printoptions()["precision"]
        4
    """
    return dict(vars(PRINT_OPTIONS))


@contextmanager
def printoptions(**settings) -> Iterator[None]:
    """A context manager that changes print options temporarily. Takes the arguments of `set_printoptions`.

    Example::
        >>> from tensorgrad.printing import printoptions
        >>> with printoptions(precision=1):
        ...     print(torch.tensor([0.25, 3.14159]))
        tensor([0.2, 3.1])
    """
    before = get_printoptions()
    try:
        set_printoptions(**settings)
        yield
    finally:
        set_printoptions(**before)


def format_tensor(
    array,
    *,
    dtype_name: str,
    default_dtype_names,
    device: str | None = None,
    requires_grad: bool = False,
    grad_fn: str | None = None,
    tangent: str | None = None,
    prefix: str = "tensor(",
    is_meta: bool = False,
    shape: tuple[int, ...] | None = None,
    contents: str | None = None,
) -> str:
    """Formats a tensor as `torch.Tensor.__repr__` does, under the current print options.

    Args:
        array: The values: a NumPy array, another device's array, or any strided array with basic slicing and a `.get()`
            that copies to the host; only the shown elements are copied. None for a meta tensor.
        dtype_name: Its dtype as PyTorch names it, such as "bfloat16".
        default_dtype_names: Dtypes to leave out: {"int64", "bool", the default float, its complex type}.
            (While the default is a 16-bit float, PyTorch takes "complex64" for its complex type.)
        device: Shown as `device='cuda:0'` unless "cpu", which is the default; "meta" is that of meta tensors.
        requires_grad: Shown as `requires_grad=True` if there is no `grad_fn`.
        grad_fn: The class name of the graph node, shown as `grad_fn=<AddBackward0>`.
        tangent: The text of its tangent in forward mode.
        prefix: The start of the text; may contain a line break (`"Parameter containing:\\ntensor("`). The values
            are aligned below its last line.
        is_meta: No values exist: `tensor(..., device='meta', size=(2, 3))`.
        shape: The shape; required for meta tensors, otherwise taken from the array.
        contents: What is written in place of the values.

    Example::
        >>> import numpy as np
        >>> from tensorgrad.printing import format_tensor
        >>> usual = {"float32", "complex64", "int64", "bool"}
        >>> print(format_tensor(np.array([1, 2.5]), dtype_name="float64", default_dtype_names=usual))
        tensor([1.0000, 2.5000], dtype=torch.float64)
        >>> print(format_tensor(None, dtype_name="int64", default_dtype_names=usual, is_meta=True, shape=(2,)))
        tensor(..., device='meta', size=(2,), dtype=torch.int64)
    """
    shape = tuple(int(n) for n in (array.shape if shape is None else shape))
    indent = len(prefix) - (prefix.rfind("\n") + 1)
    empty = not is_meta and 0 in shape
    suffixes = []
    if PRINT_OPTIONS.shape:
        suffixes.append(f"shape={shape}")
    device = device or ("meta" if is_meta else "cpu")
    if device != "cpu":
        suffixes.append(f"device='{device}'")
    # The size is printed if the values cannot show it; PyTorch does so for every tensor when `edgeitems` is 0.
    if is_meta or (len(shape) != 1 if empty else not PRINT_OPTIONS.edgeitems):
        suffixes.append(f"size={shape}")
    # The printed values distinguish integers, booleans and complex numbers from floats. Without values, only the
    # default float can be left out.
    unsaid = default_dtype_names
    if is_meta or empty:
        unsaid = [name for name in default_dtype_names if name.startswith(("float", "bfloat"))]
    if dtype_name not in unsaid:
        suffixes.append(f"dtype=torch.{dtype_name}")
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    body = contents or ("..." if is_meta else "[]" if empty else _body(array, shape, indent))
    return suffixed(prefix + body, suffixes, indent)


def format_scalar_spec(item, spec: str) -> str:
    """Formats the element of a 0-dimensional tensor with a format spec, as the Python scalar would be.

    `item` is that scalar or the 0-dimensional array. PyTorch does this only for plain `Tensor`s: tensors with
    dimensions, meta tensors and instances of a subclass (`Parameter` too) use `object.__format__`, which
    raises `TypeError: unsupported format string passed to Tensor.__format__` unless the spec is empty. The
    caller makes that distinction.

    Example::
        >>> from tensorgrad.printing import format_scalar_spec
        >>> format_scalar_spec(3.14159, ".2f")
        '3.14'
    """
    if hasattr(item, "dtype"):
        item = _plain(np.asarray(item)).item()
    return format(item, spec)


def _body(array, shape: tuple[int, ...], indent: int) -> str:
    """The bracketed values of an array with at least one element."""
    size = 1
    for n in shape:
        size *= n
    edge = PRINT_OPTIONS.edgeitems
    gaps = [size > PRINT_OPTIONS.threshold and n > 2 * edge for n in shape]
    values = _plain(_shown(array, shape, gaps, edge))
    cells, width = _cells(values.reshape(-1))
    return _layout(iter(cells), values.shape, gaps, indent, width)


def values_as_text(tensor: Tensor, indent: int) -> str:
    """Returns the values of a tensor as they are printed, with lines after the first indented.

    >>> from tensorgrad.printing import values_as_text
    >>> values_as_text(torch.tensor([1, 2]), 0), values_as_text(torch.ones(2, 0), 0)
    ('[1, 2]', '[]')
    """
    return _body(tensor._array, tuple(tensor.shape), indent) if tensor.numel() else "[]"


def _shown(array, shape: tuple[int, ...], gaps: list[bool], edge: int) -> np.ndarray:
    """The elements that a summary shows, as a compact NumPy array: `edge` at both ends of each axis with a gap."""
    to_host = STORAGES[array.__class__].to_host if array.__class__ in STORAGES else _fetched
    if not any(gaps):
        return to_host(array)
    small = np.empty([2 * edge if gap else n for n, gap in zip(shape, gaps, strict=True)], array.dtype)
    # (target, source) slices for the pieces of each axis; basic slices only, so that nothing is copied on the way and
    # every array library supports them.
    pieces = [
        [(slice(0, edge), slice(0, edge)), (slice(edge, 2 * edge), slice(n - edge, n))]
        if gap
        else [(slice(None), slice(None))]
        for n, gap in zip(shape, gaps, strict=True)
    ]
    for corner in itertools.product(*pieces):
        to, source = zip(*corner, strict=True)
        small[to] = to_host(array[source])
    return small


def _fetched(array) -> np.ndarray:
    return array.get()


def _plain(values: np.ndarray) -> np.ndarray:
    """The same values in a type that `tolist` converts to Python scalars (those of ml_dtypes do not)."""
    if values.dtype.kind in "biuc" or values.dtype.char in "fd":
        return values
    return values.astype(np.complex64 if values.dtype.kind == "W" else np.float32)


def _cells(values: np.ndarray) -> tuple[list[str], int]:
    """The strings for flat `values`, padded on the left, and the width that PyTorch assumes when it fills a line."""
    if values.dtype.kind == "c":
        reals, real_width = _float_cells(values.real)
        imags, imag_width = _float_cells(values.imag)
        imags = [text.lstrip() for text in imags]
        cells = [f"{re}{im}j" if im[0] == "-" else f"{re}+{im}j" for re, im in zip(reals, imags, strict=True)]
        return cells, real_width + imag_width + 1
    if values.dtype.kind == "f":
        return _float_cells(values)
    texts = [str(value) for value in values.tolist()]
    width = max(map(len, texts), default=1)
    return [text.rjust(width) for text in texts], width


def _float_cells(values: np.ndarray) -> tuple[list[str], int]:
    """`_cells` for real floating values. Zeros, infinities and nans do not affect the notation or the width."""
    precision, forced = PRINT_OPTIONS.precision, PRINT_OPTIONS.sci_mode
    decisive = values[np.isfinite(values) & (values != 0)].astype(np.float64)
    whole = bool((decisive == np.trunc(decisive)).all())
    scientific, width = False, 1
    if decisive.size:
        small, large = (float(bound) for bound in (np.abs(decisive).min(), np.abs(decisive).max()))
        scientific = large / small > 1000.0 or large > 1e8 or (not whole and small < 1e-4)
        scientific = scientific if forced is None else forced
        spec = f".{precision}e" if scientific else ".0f" if whole else f".{precision}f"
        # Among values of one sign the longest string is that of the largest or (1e-100) the smallest: four candidates.
        signs = [part for part in (decisive[decisive > 0], decisive[decisive < 0]) if part.size]
        width = max(len(format(float(v), spec)) for part in signs for v in (part.min(), part.max()))
        if whole and not scientific:
            width += 1  # the decimal point
    if scientific:
        texts = [format(v, f".{precision}e") for v in values.tolist()]
    elif whole:
        texts = [format(v, ".0f") + ("." if np.isfinite(v) else "") for v in values.tolist()]
    else:
        texts = [format(v, f".{precision}f") for v in values.tolist()]
    return [text.rjust(width) for text in texts], width


def _layout(cells: Iterator[str], shape: tuple[int, ...], gaps: list[bool], indent: int, width: int) -> str:
    """Formats the next `prod(shape)` cells in brackets; `gaps` marks the axes with `...` in the middle."""
    if not shape:
        return next(cells)
    row = len(shape) == 1
    if row:
        items = list(itertools.islice(cells, shape[0]))
    else:
        items = [_layout(cells, shape[1:], gaps[1:], indent + 1, width) for _ in range(shape[0])]
    if gaps[0]:
        items.insert(len(items) // 2, " ..." if row and items else "...")
    margin = " " * (indent + 1)
    if not row:
        return "[" + ("," + "\n" * (len(shape) - 1) + margin).join(items) + "]"
    per_line = int(max(1, min(len(items), (PRINT_OPTIONS.linewidth - indent) / (width + 2))))
    lines = [", ".join(items[start : start + per_line]) for start in range(0, len(items), per_line)]
    return "[" + (",\n" + margin).join(lines) + "]"


def suffixed(text: str, suffixes: list[str], indent: int, on_a_new_line: bool = False) -> str:
    """Appends the suffixes to `text`, each on the last line if it fits there, else on a new one, and the bracket."""
    used = len(text) - text.rfind("\n") + 1  # two more than the actual length: the margin that PyTorch leaves
    for suffix in suffixes:
        if on_a_new_line or used + len(suffix) + 2 > PRINT_OPTIONS.linewidth:
            on_a_new_line = False
            text += ",\n" + " " * indent + suffix
            used = indent + len(suffix)
        else:
            text += ", " + suffix
            used += len(suffix) + 2
    return text + ")"


def _of_parts(tensor, prefix: str, grad_fn: str | None) -> str:
    """Formats a sparse tensor: the parts of its array, then what is not the default."""
    indent = len(prefix) - (prefix.rfind("\n") + 1)
    array = tensor._array
    parts = [f"{name}={_part(part, indent + len(name) + 1)}" for name, part in array.named_parts()]
    suffixes = [f"size={tuple(tensor.shape)}", f"nnz={tensor._nnz()}"]
    unsaid = {dtypes.DEFAULT.floating.name, dtypes.DEFAULT.complex.name, "int64", "bool"}
    if not array.values.size:
        unsaid = {dtypes.DEFAULT.floating.name}
    if tensor.dtype.name not in unsaid:
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes.append(f"layout={tensor.layout}")
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    text = prefix + (",\n" + " " * indent).join(parts)
    if array.title == "Sparse":  # PyTorch begins a new line only in this layout
        return suffixed(text + ",\n" + " " * indent + suffixes[0], suffixes[1:], indent)
    return suffixed(text, suffixes, indent)


def _of_integers(tensor, prefix: str) -> str:
    """Formats a quantized tensor: the numbers that its integers stand for, and what they mean."""
    array = tensor._array
    text = format_tensor(array.numbers(), dtype_name="float32", default_dtype_names={"float32"}, prefix=prefix)
    suffixes = [f"size={tuple(array.shape)}", f"dtype={array.kind}", f"quantization_scheme={tensor.qscheme()}"]
    if array.axis is None:
        suffixes += [f"scale={array.scale}", f"zero_point={array.zero_point}"]
    else:
        suffixes += [f"scale={tensor.q_per_channel_scales()}", f"zero_point={tensor.q_per_channel_zero_points()}",
                     f"axis={array.axis}"]  # fmt: skip
    return suffixed(text.removesuffix(")"), suffixes, len(prefix))


def _of_batch(array: BatchedArray) -> str:
    """Formats a batched tensor (vmap): the values of all samples."""
    with array.level.off():
        value = textwrap.indent(repr(array.value), "    ")
    where = 0 if array.mapped else None
    return f"BatchedTensor(lvl={array.level.number}, bdim={where}, value=\n{value}\n)"


def _part(array: np.ndarray, indent: int) -> str:
    """A part of a sparse array, its lines aligned below the first."""
    if not array.size:
        return f"tensor([], size={array.shape})"
    text = format_tensor(
        array,
        dtype_name=dtypes.from_numpy_dtype(array.dtype).name,
        default_dtype_names=[d.name for d in dtypes.FROM_NUMPY.values()],  # the dtype of the values comes at the end
        prefix=" " * indent + "tensor(",
    )
    return text[indent:]


def tensor_repr(tensor, contents: str | None = None) -> str:
    """Formats a tensor: its values (or `contents`), and whatever is not the default (dtype, device, grad_fn, …)."""
    cls, storage = type(tensor), STORAGES[tensor._array.__class__]
    prefix = "tensor(" if cls in PLAIN else f"{cls.__name__}("
    try:
        grad_fn = tensor.grad_fn and tensor.grad_fn.name().rpartition("::")[2]
    except RuntimeError:  # a view created without grad, which cannot follow its base
        grad_fn = "Invalid"
    complex_name = dtypes.DEFAULT.complex.name
    if storage is BatchedStorage:
        return _of_batch(tensor._array)
    if storage.layout is not strided:
        return _of_parts(tensor, prefix, grad_fn)
    if storage is QuantizedStorage:
        return _of_integers(tensor, prefix)
    empty = storage.device_type == "meta"  # also if the tensor says that it is on another device
    names = tensor._array.dtype.names
    written = names is None or empty or contents or not tensor.numel()
    if not written and (names[0] != "float4_e2m1fn_x2" or not tensor.ndim):
        tensor.reshape(-1)[0].item()  # raises: such values have no text
    return format_tensor(
        None if empty or contents else tensor._array if storage.xp else storage.to_host(tensor._array),
        dtype_name=tensor.dtype.name,
        default_dtype_names={dtypes.DEFAULT.floating.name, complex_name, "int64", "bool"},
        device=str(tensor.device),
        requires_grad=tensor.requires_grad,
        grad_fn=grad_fn,
        tangent=LOCAL.transforms[-1].tangent_shown(tensor) if LOCAL.transforms else None,
        prefix=prefix,
        is_meta=empty,
        shape=tuple(tensor.shape),
        contents=contents,
    )


def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    text = tensor_repr(self, tensor_contents)
    return f"Parameter({text})" if "_is_param" in self.__dict__ else text


Tensor.__repr__ = _repr  # type: ignore[assignment]
