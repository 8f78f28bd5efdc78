"""Matrix products by cuBLAS.

cuBLAS is column-major: what is stored as a row-major matrix C is Cᵀ to it. So `C = A·B` is computed as `Cᵀ = Bᵀ·Aᵀ`,
and neither factor is ever copied for being transposed: a matrix that is contiguous along its rows is passed unchanged,
one that is contiguous along its columns with the flag "transposed".

CuPy's own products are not used: they widen float16, send stacks of bfloat16 to a loop for integers, copy transposed
stacks, and cannot be captured in a CUDA graph (they set the handle's stream in every call).

The precisions are PyTorch's: sums of float16 and bfloat16 in float32; float32 as TF32 only if
`torch.backends.cuda.matmul.allow_tf32` (or `torch.set_float32_matmul_precision`) allows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad import dtypes
from tensorgrad.kernels.cuda.runtime import switches
from tensorgrad.kernels.cuda.runtime.calls import Functions, Handles

# --- the library ---------------------------------------------------------------------------------------------------

SIGNATURES = {
    "cublasCreate_v2": "p", "cublasDestroy_v2": "p", "cublasGetVersion_v2": "pp", "cublasSetStream_v2": "pp",
    "cublasSetWorkspace_v2": "ppz", "cublasSetMathMode": "pi", "cublasSetPointerMode_v2": "pi",
    "cublasGemmEx_64": "piilllppilpilppilii",
    "cublasGemmStridedBatchedEx_64": "piilllppillpillppilllii",
    "cublasDotEx_64": "plpilpilpii", "cublasDotcEx_64": "plpilpilpii",
}  # fmt: skip
STATUS = {
    1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}  # fmt: skip
LIBRARY = Functions("cublas", SIGNATURES, lambda status: f"CUBLAS_STATUS_{STATUS.get(status, status)}")

# From cublasOperation_t, cublasPointerMode_t, cublasMath_t, cublasGemmAlgo_t.
NORMAL, TRANSPOSED = 0, 1
ON_HOST, ON_DEVICE = 0, 1
WIDE_REDUCTIONS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
DEFAULT_ALGORITHM = -1
# From cublasComputeType_t.
IN_16F, IN_32F, IN_TF32, IN_64F = 64, 68, 77, 70

_COMPUTE = {code: ctypes.c_int(code) for code in (IN_16F, IN_32F, IN_TF32, IN_64F)}
_ALGORITHM = ctypes.c_int(DEFAULT_ALGORITHM)


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """How a dtype is passed to cuBLAS."""

    code: int  # cudaDataType_t
    compute: int  # cublasComputeType_t
    sums: int  # cudaDataType_t of the sums of inner products
    number: Any  # the C type of alpha and beta
    parts: int  # 2 for complex numbers, else 1
    name: str
    in_c: ctypes.c_int  # the code


TYPES = {
    np.dtype(np.float32): Kind(0, IN_32F, 0, ctypes.c_float, 1, "float32", ctypes.c_int(0)),
    np.dtype(np.float64): Kind(1, IN_64F, 1, ctypes.c_double, 1, "float64", ctypes.c_int(1)),
    np.dtype(np.float16): Kind(2, IN_32F, 0, ctypes.c_float, 1, "float16", ctypes.c_int(2)),
    np.dtype(np.complex64): Kind(4, IN_32F, 4, ctypes.c_float, 2, "complex64", ctypes.c_int(4)),
    np.dtype(np.complex128): Kind(5, IN_64F, 5, ctypes.c_double, 2, "complex128", ctypes.c_int(5)),
}
with contextlib.suppress(ImportError):  # without the package ml_dtypes there are no such arrays
    TYPES[dtypes.bfloat16.numpy] = Kind(14, IN_32F, 0, ctypes.c_float, 1, "bfloat16", ctypes.c_int(14))

# --- handles -------------------------------------------------------------------------------------------------------

# Bytes of workspace per stream, as NVIDIA recommends for Hopper; less if memory is short.
WORKSPACES = (32 << 20, 8 << 20, 1 << 20)
MOST_WORKSPACES = 4  # per handle, for the streams that it used last


class Handle:
    """A cuBLAS handle of one thread and device, and its current settings."""

    def __init__(self):
        made = ctypes.c_void_p()
        LIBRARY.cublasCreate_v2(ctypes.addressof(made))
        self.address, self.in_c = made.value, made
        self.stream = self.math = None
        self.plans: OrderedDict = OrderedDict()  # of cublaslt.py
        # One per stream: products on two streams may run at the same time.
        self.workspaces = self.own_workspaces = {}

    def follow(self, stream: int) -> None:
        """Switches to a stream. Setting the stream resets the workspace, so the workspace is set after it."""
        LIBRARY.cublasSetStream_v2(self.address, stream)
        if stream not in self.workspaces:
            if self.workspaces is self.own_workspaces and len(self.workspaces) >= MOST_WORKSPACES:
                del self.workspaces[next(iter(self.workspaces))]  # its stream will allocate another, if it goes on
            self.workspaces[stream] = _workspace()
        memory, size = self.workspaces[stream]
        if memory is not None:
            LIBRARY.cublasSetWorkspace_v2(self.address, memory.ptr, size)
        self.stream = stream

    def use_workspaces(self, workspaces: dict | None) -> None:
        """Uses a graph's workspaces from now on, as it may be replayed in any stream; or its own again (None)."""
        self.workspaces, self.stream = self.own_workspaces if workspaces is None else workspaces, None

    def compute(self, mode: int) -> None:
        """Sets the math mode."""
        if self.math != mode:
            LIBRARY.cublasSetMathMode(self.address, mode)
            self.math = mode

    def __del__(self, ending=sys.is_finalizing):
        # At interpreter exit CUDA may already be gone, along with the handle.
        if not ending() and hasattr(self, "address"):
            LIBRARY.cublasDestroy_v2(self.address)


def _workspace():
    for size in WORKSPACES:
        try:
            return cupy.cuda.alloc(size), size
        except cupy.cuda.memory.OutOfMemoryError:
            continue
    return None, 0  # cuBLAS then uses its default workspace


handle = Handles(Handle).current


def version() -> int:
    """Returns cuBLAS's version, such as 130000."""
    number = ctypes.c_int()
    LIBRARY.cublasGetVersion_v2(handle().address, ctypes.addressof(number))
    return number.value


# --- products ------------------------------------------------------------------------------------------------------


def computing(kind: Kind, tf32: bool | None) -> tuple[int, int]:
    """Returns the compute type for a dtype, and the math mode. `tf32`: None follows the matmul settings."""
    compute, math_mode, allowed = kind.compute, 0, switches.matmul
    if compute == IN_32F:
        if kind.name in ("float32", "complex64"):
            if allowed.allow_tf32 if tf32 is None else tf32:
                compute = IN_TF32
        elif kind.name == "float16":
            if allowed.allow_fp16_accumulation:
                compute = IN_16F
            elif not allowed.allow_fp16_reduced_precision_reduction:
                math_mode = WIDE_REDUCTIONS
        elif not allowed.allow_bf16_reduced_precision_reduction:
            math_mode = WIDE_REDUCTIONS
    return compute, math_mode


@lru_cache(maxsize=256)
def factor(value, kind: Kind, compute: int):
    """Returns alpha or beta in memory, as the type of the computation."""
    memory: Any
    if compute == IN_16F:
        memory = ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    elif kind.parts == 1:
        memory = kind.number(value)
    else:
        value = complex(value)
        memory = (kind.number * 2)(value.real, value.imag)
    place = _Place(ctypes.addressof(memory))
    place.memory = memory
    return place


class _Place(ctypes.c_void_p):
    """The address of a number, which it keeps alive."""

    memory: Any


@lru_cache(maxsize=4096)
def layout(shape, strides, size):
    """Returns how cuBLAS can read the matrices in an array's last two dimensions.

    `size` is that of an element in bytes. The result is (transposed, leading dimension), or None. Not transposed means
    contiguous along rows.

    >>> layout((3, 4), (16, 4), 4), layout((3, 4), (4, 12), 4), layout((3, 4), (0, 4), 4)
    ((0, 4), (1, 3), None)
    """
    rows, columns = shape[-2:]
    down, along = strides[-2:]
    if any(step < 0 for step in strides[:-2]):
        return None
    if along == size or columns == 1:
        pitch = columns if rows == 1 else down // size
        if pitch >= max(columns, 1) and (rows == 1 or down % size == 0):
            return 0, max(pitch, 1)
    if down == size or rows == 1:
        pitch = rows if columns == 1 else along // size
        if pitch >= max(rows, 1) and (columns == 1 or along % size == 0):
            return 1, max(pitch, 1)
    return None


class _Form(NamedTuple):
    """A product's arguments that depend on its arrays' shapes and strides, in cuBLAS's order (right, left, out).

    They are already C numbers, which ctypes takes in half the time that it needs to convert Python's.
    """

    first: tuple  # whether transposed, twice; m, n, k
    pitches: tuple
    several: bool
    length: ctypes.c_int64  # of a row of matrices
    steps: tuple
    places: list  # offsets in bytes


@lru_cache(maxsize=4096)
def _form(size, out_size, *geometry: Any):
    """Returns the form of a product (a, b, out), given shapes and strides; None if cuBLAS cannot read one of them."""
    a, b, out = geometry[:2], geometry[2:4], geometry[4:]
    left, right, made = layout(a[0], a[1], size), layout(b[0], b[1], size), layout(out[0], out[1], out_size)
    if left is None or right is None:
        return None
    count, steps, places = stacked(out[0][:-2], *(x[1][:-2] for x in (b, a, out)))
    sizes = size, size, out_size
    lengths = out[0][-1], out[0][-2], a[0][-1]
    return _Form(
        (ctypes.c_int(right[0]), ctypes.c_int(left[0]), *map(ctypes.c_int64, lengths)),
        tuple(map(ctypes.c_int64, (right[1], left[1], made[1]))),
        count > 1,
        ctypes.c_int64(count),
        tuple(ctypes.c_int64(step // width) for step, width in zip(steps, sizes, strict=True)),
        places,
    )


def readable(x):
    return x if layout(x.shape, x.strides, x.itemsize) is not None else cupy.ascontiguousarray(x)


def gemm(a, b, out, alpha=1, beta=0, tf32=None):
    """Computes `out = alpha · a @ b + beta · out` for matrices or stacks of them, all of one dtype of TYPES.

    The result of 16-bit factors may be float32. `a` (*, m, k) and `b` (*, k, n) have the leading dimensions of `out`
    (*, m, n), possibly with strides of 0; `out` is contiguous along its rows. A stack whose matrices are not evenly
    spaced becomes one product per evenly spaced part. `tf32`: whether float32 may be rounded to TF32 (None follows the
    settings).

    Raises: RuntimeError with the shapes if cuBLAS refuses.
    """
    if not out.size:
        return out
    if not a.shape[-1]:
        out[...] = out * out.dtype.type(beta) if beta else 0
        return out
    if out.data.device_id != cupy.cuda.get_device_id():
        with cupy.cuda.Device(out.data.device_id):
            return gemm(a, b, out, alpha, beta, tf32)
    form = _form(a.itemsize, out.itemsize, a.shape, a.strides, b.shape, b.strides, out.shape, out.strides)
    if form is None:
        return gemm(readable(a), readable(b), out, alpha, beta, tf32)
    kind, made = TYPES[a.dtype], TYPES[out.dtype]
    compute, math_mode = computing(kind, tf32)
    if compute == IN_16F and made is not kind:
        compute = IN_32F
    use = handle()
    use.compute(math_mode)
    one, other = factor(alpha, kind, compute), factor(beta, kind, compute)

    def about():
        return f"{kind.name} matrices {a.shape} @ {b.shape}, strides {a.strides} and {b.strides} bytes"

    first, (right, left, pitch), several, count, steps, places = form
    read, write, how = kind.in_c, made.in_c, _COMPUTE[compute]
    for at_b, at_a, at_out in places:
        at_b, at_a, at_out = b.data.ptr + at_b, a.data.ptr + at_a, out.data.ptr + at_out
        if several:
            LIBRARY.cublasGemmStridedBatchedEx_64(
                use.in_c, *first, one, at_b, read, right, steps[0], at_a, read, left, steps[1], other, at_out, write,
                pitch, steps[2], count, how, _ALGORITHM, about=about,
            )  # fmt: skip
        else:
            LIBRARY.cublasGemmEx_64(
                use.in_c, *first, one, at_b, read, right, at_a, read, left, other, at_out, write, pitch, how,
                _ALGORITHM, about=about,
            )  # fmt: skip
    return out


def stacked(shape, *strides):
    """Groups leading dimensions into evenly spaced runs of matrices, as long as possible.

    Returns `(count, steps, places)`: `count` matrices that are `steps` (bytes, one per array) apart, and each run's
    offsets (one per array).

    >>> stacked((2, 3), (60, 20), (0, 0))
    (6, (20, 0), [(0, 0)])
    >>> stacked((2, 3), (20, 40), (0, 8))
    (3, (40, 8), [(0, 0), (20, 0)])
    """
    if not shape:
        return 1, (0,) * len(strides), [(0,) * len(strides)]
    rows: list = []  # dimensions, adjacent ones merged where they are evenly spaced: [length, steps]
    for length, *steps in zip(shape, *strides, strict=True):
        if length == 1:
            continue
        if rows and all(big == small * length for big, small in zip(rows[-1][1], steps, strict=True)):
            rows[-1] = [rows[-1][0] * length, steps]
        else:
            rows.append([length, steps])
    if not rows:
        return 1, (0,) * len(strides), [(0,) * len(strides)]
    longest = max(range(len(rows)), key=lambda i: rows[i][0])
    count, steps = rows.pop(longest)
    places = [(0,) * len(strides)]
    for length, step in rows:
        places = [tuple(p + i * s for p, s in zip(place, step)) for place in places for i in range(length)]
    return count, tuple(steps), places


def calls(shape, *strides) -> int:
    """Returns how many calls a stack of products takes."""
    return math.prod(shape) // max(stacked(shape, *strides)[0], 1)


def dot(a, b, out, conjugated=False):
    """Computes `out = Σ a · b` of two vectors of one dtype of TYPES, with `out` () on the device.

    `conjugated`: computes Σ conj(a) · b.
    """
    n, size = a.shape[0], a.itemsize
    if not n:
        out.fill(0)
        return out
    if out.data.device_id != cupy.cuda.get_device_id():
        with cupy.cuda.Device(out.data.device_id):
            return dot(a, b, out, conjugated)
    a, b = (x if n == 1 or x.strides[0] >= size else cupy.ascontiguousarray(x) for x in (a, b))
    kind = TYPES[a.dtype]
    use = handle()
    use.compute(0)
    product = LIBRARY.cublasDotcEx_64 if conjugated else LIBRARY.cublasDotEx_64
    steps = [1 if n == 1 else x.strides[0] // size for x in (a, b)]
    # The sum stays on the device: copying it would make the host wait.
    LIBRARY.cublasSetPointerMode_v2(use.address, ON_DEVICE)
    try:
        product(
            use.address, n, a.data.ptr, kind.code, steps[0], b.data.ptr, kind.code, steps[1], out.data.ptr, kind.code,
            kind.sums, about=lambda: f"{kind.name} vectors {a.shape} and {b.shape}",
        )  # fmt: skip
    finally:
        LIBRARY.cublasSetPointerMode_v2(use.address, ON_HOST)
    return out
