"""What stands in for some absent names (system/absent_names.py): functions that do what PyTorch's do, in other ways."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from tensorgrad.system import folders

index_as_they_are = contextlib.nullcontext  # under vmap, tensors of one number index as they are
no_proxy_modes = contextlib.nullcontext  # no mode is on that could be turned off


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """`torch.compiler.list_backends`, by another name."""
    from tensorgrad import compiler

    return compiler.list_backends(exclude_tags)


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """`torch.compiler.disable`, by another name."""
    from tensorgrad import compiler

    return compiler.disable(fn, recursive, **options)


def explain(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a function of the arguments: it calls `f` with them, and says which plans it has, or why it has none."""
    from tensorgrad.capture.compiled import region_of
    from tensorgrad.capture.explained import explained

    def inner(*args: Any, **kwargs: Any) -> Any:
        return explained(f, region_of(f), args, kwargs)

    return inner(*args, **kwargs) if args or kwargs else inner


def graph_break(msg: str = "") -> None:
    """A region that comes here runs as it is."""
    from tensorgrad.capture import compiled

    compiled.graph_break()


def reset() -> None:
    """`torch.compiler.reset`, by another name."""
    from tensorgrad import compiler

    compiler.reset()


def is_batched(tensor: Any) -> bool:
    """Returns whether a tensor is one sample within `torch.vmap`."""
    from tensorgrad.transforms.batch import BatchedArray

    return isinstance(tensor._array, BatchedArray)


def add_batch_dim(tensor: Any, in_dim: int, vmap_level: Any) -> Any:
    """Returns what stands for one sample within `torch.vmap`."""
    from tensorgrad._functorch import vmap

    return vmap._add_batch_dim(tensor, in_dim, vmap_level)


def remove_batch_dim(tensor: Any, vmap_level: Any, batch_size: int, out_dim: int) -> Any:
    """Returns all samples of a tensor that stands for one."""
    from tensorgrad._functorch import vmap

    return vmap._remove_batch_dim(tensor, vmap_level, batch_size, out_dim)


def infer_schema(*args: Any, **kwargs: Any) -> str:
    """`torch.library.infer_schema`, by another name."""
    from tensorgrad.library import infer_schema

    return infer_schema(*args, **kwargs)


def contiguous_strides(shape: Any, row_major: bool = True) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor, or of matrices that are stored column by column."""
    sizes = [max(n, 1) for n in shape]
    strides = [math.prod(sizes[i:]) for i in range(1, len(sizes) + 1)]
    if not row_major and len(sizes) > 1:
        strides[-2:] = [1, sizes[-2]]
    return tuple(strides)


def nested_strides_offsets(nested_size: Any) -> tuple[Any, Any]:
    """Returns the strides of pieces of these shapes that are stored row by row, and where each begins."""
    from tensorgrad.nested._internal.strided import StridedNestedTensor

    pieces = StridedNestedTensor(nested_size, [tuple(size) for size in nested_size.tolist()])
    return pieces._nested_tensor_strides(), pieces._nested_tensor_storage_offsets()


def nested_view_from_buffer(self: Any, nested_size: Any, nested_strides: Any, offsets: Any) -> Any:
    """Returns the nested tensor of the strided layout whose pieces lie so in a tensor of one dimension: a view."""
    from tensorgrad.serialization.nested import rebuild_strided

    return rebuild_strided(self.view(-1), nested_size, nested_strides, offsets)


def nested_tensor_from_mask(t: Any, mask: Any, mask_check: bool = True) -> Any:
    """Returns the nested tensor of what a mask keeps of each row: the beginning of it."""
    from tensorgrad.nested import as_nested_tensor

    lengths = mask.sum(1).tolist()
    if mask_check and any(not mask[i, :n].all() for i, n in enumerate(lengths)):
        raise RuntimeError("Expected _nested_tensor_from_mask_left_aligned(t, mask) to be true, but got false.")
    return as_nested_tensor([row[:n] for row, n in zip(t.unbind(), lengths)])


def opcheck(*args: Any, **kwargs: Any) -> Any:
    """`torch.library.opcheck`, by another name."""
    from tensorgrad.library import opcheck

    return opcheck(*args, **kwargs)


def warn_once(message: str, *_: Any, **__: Any) -> None:
    """Warns; Python shows a warning of one place once."""
    warnings.warn(message, stacklevel=2)


def amp_update_scale(
    self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: float, scale_backoff_factor: float,
    growth_interval: int,
) -> Any:  # fmt: skip
    """Changes a gradient scaler's scale in place: it shrinks when infinities were found, and grows after a while."""
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
        return self
    growth_tracker.add_(1)
    if growth_tracker.item() == growth_interval:
        grown = self * scale_growth_factor
        if grown.isfinite().item():
            self.copy_(grown)
        growth_tracker.zero_()
    return self


def amp_unscale(self: Any, found_inf: Any, inv_scale: Any) -> None:
    """Multiplies gradients in place, and sets `found_inf` to 1 if one of them is infinite or not a number."""
    for gradient in self:
        if not gradient.isfinite().all().item():
            found_inf.fill_(1.0)
        gradient.mul_(inv_scale)


def when_cuda_is_used(callable: Any, **_: Any) -> None:
    """Calls a function at once if there is a GPU; else never, as then none will be used that it could wait for."""
    from tensorgrad import cuda

    if cuda.is_available():
        callable()


def indented(s_: str, numSpaces: int) -> str:
    """Returns a text whose lines after the first begin with so many spaces more; empty lines stay empty.

    >>> from tensorgrad.compat.absent_values import indented
    >>> indented("Linear(\\n bias", 2)
    'Linear(\\n   bias'
    """
    first, *rest = s_.split("\n")
    return "\n".join([first, *(" " * numSpaces + line if line.strip() else "" for line in rest)])


def with_gradients_if_differentiable(func: Any) -> Any:
    """Returns an optimizer's `step` that records itself if the optimizer is `differentiable`, and else does not."""
    import functools

    from tensorgrad.autograd import set_grad_enabled

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return step


def operation(qualified_name: str) -> Any:
    """Returns an operator by its name, such as "aten::relu", and its overloads' names; None twice if there is none."""
    from tensorgrad._ops import ops

    namespace, _, name = qualified_name.partition("::")
    packet = getattr(getattr(ops, namespace), name, None)
    if packet is None:
        return None, None
    return packet, ["" if overload == "default" else overload for overload in packet.overloads()]


def restore_location(storage: Any, location: str) -> Any:
    """Returns a storage of a file on the device that the file names, as `torch.load` does without `map_location`.

    Raises:
        RuntimeError: If there is no such device.
    """
    from tensorgrad.ops.pytorch.storage_values import memory_of, shown
    from tensorgrad.serialization.reading import Places

    return storage if location == "cpu" else shown(Places(None)(memory_of(storage).array, location))


@contextlib.contextmanager
def fresh_cache(cache_entries: Any = None, dir: Any = None, delete: bool = True) -> Iterator[None]:
    """Changes nothing for its block: nothing is compiled into files, so there is no cache of them."""
    yield


class TritonSettings:
    """Settings of PyTorch's compiler for kernels in Triton: programs set them, and nothing reads them."""

    cudagraphs = debug_sync_graph = debug_sync_kernel = False
    cudagraph_trees = unique_kernel_names = True


class PlainSizes:
    """`torch.fx.experimental.symbolic_shapes.ShapeEnv`, made to let sizes be symbols: here they stay numbers.

    >>> from tensorgrad.compat.absent_values import PlainSizes as ShapeEnv
    >>> from tensorgrad._subclasses.fake_tensor import FakeTensorMode
    >>> FakeTensorMode(shape_env=ShapeEnv(assume_static_by_default=True)).from_tensor(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings  # accepted for compatibility
        self.guards: list[Any] = []  # what holds of the symbols: nothing, as there are none


def build_directory(name: str, verbose: bool = False) -> str:
    """Returns the folder of an extension, which is created: in $TORCH_EXTENSIONS_DIR, or where caches are.

    Args:
        name: the extension's name.
        verbose: whether the folder is printed.
    """
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    if root is None:
        cache = folders.cache(system=False) or tempfile.gettempdir()
        version = f"py{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}_cpu"
        root = os.path.join(cache, "torch_extensions", version)
    if verbose:
        print(f"Using {root} as PyTorch extensions root...", file=sys.stderr)
    folder = os.path.join(root, name)
    os.makedirs(folder, exist_ok=True)
    return folder


class TypeStore:
    """The types of scripted modules, which programs forget to free memory: none is kept here."""

    def __init__(self) -> None:
        self.type_store: dict[type, list[Any]] = {}
        self.methods_compiled: set[Any] = set()


type_store = TypeStore()


def scaled_mm(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """Returns the product of two matrices of float8 numbers, which stand for themselves times a scale.

    Args:
        self: A matrix (m, k).
        mat2: A matrix (k, n).
        scale_a: The scale of `self`: one number, or one for each row (m, 1).
        scale_b: The scale of `mat2`: one number, or one for each column (1, n).
        bias: A vector (n), added to each row.
        scale_result: A number that a result in float8 is divided by.
        out_dtype: The dtype of the result; by default that of `self`.

    Raises:
        RuntimeError: If these are not matrices of a float8 dtype, or a scale has another shape.
    """
    from tensorgrad.dtypes import FLOAT8

    if self.dim() != 2 or mat2.dim() != 2:
        raise RuntimeError(f"_scaled_mm(): expected two matrices, got {self.dim()} and {mat2.dim()} dimensions")
    sides = ("self", self, scale_a, (self.shape[0], 1)), ("mat2", mat2, scale_b, (1, mat2.shape[-1]))
    for name, matrix, scale, lines in sides:
        if matrix.dtype not in FLOAT8:
            raise RuntimeError(f"_scaled_mm(): expected {name} to be of a float8 dtype, got {matrix.dtype}")
        if scale.numel() != 1 and tuple(scale.shape) != lines:
            raise RuntimeError(
                f"_scaled_mm(): expected one number or the shape {lines} for the scale of {name}, got the shape "
                f"{tuple(scale.shape)}"
            )
    product = (self.float() @ mat2.float()) * scale_a * scale_b
    if bias is not None:
        product = product + bias.float()
    dtype = self.dtype if out_dtype is None else out_dtype
    if scale_result is not None and dtype in FLOAT8:
        product = product / scale_result
    return product.to(dtype)


def __getattr__(name: str) -> Any:
    """`FloorDiv`, a function of sympy, and `BuildExtension`, a command of setuptools, which need not be installed."""
    if name == "BuildExtension":
        from tensorgrad.compat.build_extension import BuildExtension

        return BuildExtension
    if name != "FloorDiv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    sympy: Any = importlib.import_module("sympy")

    class FloorDiv(sympy.Function):
        """base // divisor of symbolic integers: a number if both are, and simplified where it divides exactly."""

        nargs = (2,)
        precedence = 35  # lower than that of an addition: brackets are written around it
        is_integer = True

        @property
        def base(self) -> Any:
            """What is divided."""
            return self.args[0]

        @property
        def divisor(self) -> Any:
            """What it is divided by."""
            return self.args[1]

        @classmethod
        def eval(cls, base: Any, divisor: Any) -> Any:
            """Returns the quotient, if it is known."""
            if divisor.is_zero:
                raise ZeroDivisionError("division by zero")
            if base.is_zero:
                return sympy.S.Zero
            if divisor == 1:
                return base
            if base.is_Integer and divisor.is_Integer:
                return sympy.Integer(int(base) // int(divisor))
            if isinstance(base, cls):
                return cls(base.args[0], base.args[1] * divisor)
            terms = sympy.Add.make_args(base)
            whole = [term for term in terms if divisor.is_Integer and (term / divisor).is_integer]
            if whole:
                return cls(base - sympy.Add(*whole), divisor) + sympy.Add(*whole) / divisor
            above, below = sympy.fraction(sympy.together(sympy.cancel(base / divisor)))
            if below == 1:
                return above
            return None if (above, below) == (base, divisor) else cls(above, below)

        def _sympystr(self, printer: Any) -> str:
            base, divisor = (printer.parenthesize(part, 999.5) for part in self.args)
            return f"({base}//{divisor})"

    globals()["FloorDiv"] = FloorDiv
    FloorDiv.__module__ = "torch.utils._sympy.functions"
    return FloorDiv
