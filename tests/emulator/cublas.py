"""A stand-in for libcublas: reads the memory that it is given, in columns, checks what cuBLAS checks, and more.

It returns cuBLAS's status codes. Beyond the real library it refuses matrices of a result that overlap, host numbers
while the pointer mode says "device", and a handle used on another device than it was made on.

Source: NVIDIA's header cublas_api.h (CUDA 13) and the cuBLAS documentation's table of types.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tests.emulator import graphs, runtime
from tests.emulator.library import BFLOAT16, Library, Refuse, as_tf32, memory, wide

NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, INTERNAL_ERROR, NOT_SUPPORTED = 1, 7, 13, 14, 15
LIBRARY = Library(INTERNAL_ERROR)

# cudaDataType_t
R_32F, R_64F, R_16F, C_32F, C_64F, R_16BF = 0, 1, 2, 4, 5, 14
DTYPES = {
    R_32F: np.float32, R_64F: np.float64, R_16F: np.float16, C_32F: np.complex64, C_64F: np.complex128,
    R_16BF: BFLOAT16,
}  # fmt: skip
# cublasComputeType_t -> (the type of alpha and beta for real matrices, the types of matrices that it takes)
COMPUTE = {
    64: (np.float16, {R_16F}),  # CUBLAS_COMPUTE_16F
    68: (np.float32, {R_32F, R_16F, R_16BF, C_32F}),  # CUBLAS_COMPUTE_32F
    70: (np.float64, {R_64F, C_64F}),  # CUBLAS_COMPUTE_64F
    77: (np.float32, {R_32F, C_32F}),  # CUBLAS_COMPUTE_32F_FAST_TF32
}
TF32 = 77
MATH_MODES = {0, 1, 2, 3, 16, 17, 18, 19}
ALGORITHMS = {-1, 99}


class Context:
    """What a handle stands for."""

    def __init__(self):
        self.device = runtime.CURRENT.device
        self.stream, self.workspace, self.math, self.on_device = 0, (0, 0), 0, 0


def context(handle) -> Context:
    found = LIBRARY.found(handle, Context, NOT_INITIALIZED)
    if found.device != runtime.CURRENT.device:
        raise Refuse(EXECUTION_FAILED)
    return found


@LIBRARY.function("p")
def cublasCreate_v2(handle):
    check(graphs.current() is None, EXECUTION_FAILED)
    LIBRARY.made(Context(), handle, INVALID_VALUE)


@LIBRARY.function("p")
def cublasDestroy_v2(handle):
    LIBRARY.found(handle, Context, NOT_INITIALIZED)
    del LIBRARY.objects[handle]


@LIBRARY.function("pp")
def cublasGetVersion_v2(handle, version):
    context(handle)
    ctypes.c_int.from_address(version).value = 130000


@LIBRARY.function("pp")
def cublasSetStream_v2(handle, stream):
    used = context(handle)
    used.stream, used.workspace = stream, (0, 0)


@LIBRARY.function("ppz")
def cublasSetWorkspace_v2(handle, workspace, size):
    if not workspace or workspace % 256:
        raise Refuse(INVALID_VALUE)
    memory(workspace, np.uint8, (size,), (1,))
    context(handle).workspace = (workspace, size)


@LIBRARY.function("pi")
def cublasSetMathMode(handle, mode):
    if mode not in MATH_MODES:
        raise Refuse(INVALID_VALUE)
    context(handle).math = mode


@LIBRARY.function("pi")
def cublasSetPointerMode_v2(handle, mode):
    if mode not in (0, 1):
        raise Refuse(INVALID_VALUE)
    context(handle).on_device = mode


# --- products ------------------------------------------------------------------------------------------------------


def check(good: bool, status: int = INVALID_VALUE) -> None:
    if not good:
        raise Refuse(status)


def number(address, kind, code):
    """alpha or beta, which for complex matrices has two parts."""
    check(bool(address))
    if code in (C_32F, C_64F):
        kind = np.complex64 if kind is np.float32 else np.complex128
    return memory(address, kind, (1,), (1,), host=True)[0]


def matrices(address, code, transposed, rows, columns, pitch, count, step):
    """A stack (count, rows, columns) of what lies in columns, transposed first if so asked."""
    stored = (columns, rows) if transposed else (rows, columns)
    check(pitch >= max(1, stored[0]))
    check(bool(address) or not rows * columns * count)
    check(address % np.dtype(DTYPES[code]).itemsize == 0, EXECUTION_FAILED)
    check(step >= 0)
    found = memory(address, DTYPES[code], (count, *stored), (step, 1, pitch))
    return (found.swapaxes(1, 2).conj() if transposed == 2 else found.swapaxes(1, 2)) if transposed else found


def multiply(handle, ops, sizes, alpha, a, b, beta, c, count, compute, algorithm):
    """`C = alpha · op(A) op(B) + beta · C`; `a`, `b`, `c` are (address, type, leading dimension, step)."""
    used = context(handle)
    m, n, k = sizes
    check(all(op in (0, 1, 2) for op in ops) and min(m, n, k, count) >= 0)
    check(compute in COMPUTE and algorithm in ALGORITHMS)
    kind, allowed = COMPUTE[compute]
    check(a[1] in DTYPES and b[1] in DTYPES and c[1] in DTYPES)
    check(a[1] == b[1] and a[1] in allowed, NOT_SUPPORTED)
    check(c[1] == a[1] or (c[1] == R_32F and a[1] in (R_16F, R_16BF) and compute == 68), NOT_SUPPORTED)
    check(not used.on_device, EXECUTION_FAILED)
    alpha, beta = number(alpha, kind, c[1]), number(beta, kind, c[1])
    if used.workspace[1]:
        memory(used.workspace[0], np.uint8, (used.workspace[1],), (1,))
    check(count < 2 or c[3] >= c[2] * (n - 1) + m)
    workspace = used.workspace
    graphs.launch(lambda: product(ops, sizes, alpha, a, b, beta, c, count, compute, workspace), used.stream)
    return {"ops": ops, "sizes": sizes, "count": count, "compute": compute, "math": used.math, "stream": used.stream,
            "workspace": used.workspace[1]}  # fmt: skip


def product(ops, sizes, alpha, a, b, beta, c, count, compute, workspace):
    """Computes what `multiply` checked, which a graph repeats."""
    m, n, k = sizes
    if workspace[1]:
        memory(workspace[0], np.uint8, (workspace[1],), (1,))
    left = matrices(a[0], a[1], ops[0], m, k, a[2], count, a[3])
    right = matrices(b[0], b[1], ops[1], k, n, b[2], count, b[3])
    result = matrices(c[0], c[1], 0, m, n, c[2], count, c[3])
    if result.size:
        dtype = result.dtype
        left, right = wide(left), wide(right)
        if compute == TF32:
            left, right = as_tf32(left), as_tf32(right)
        with np.errstate(all="ignore"):
            total = np.matmul(left, right) * left.dtype.type(alpha)
            if beta != 0:  # else nothing of C is read, not even a NaN
                total = total + wide(result) * left.dtype.type(beta)
        result[...] = total.astype(dtype)


@LIBRARY.function("piilllppilpilppilii")
def cublasGemmEx_64(handle, opa, opb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algo):
    return multiply(handle, (opa, opb), (m, n, k), alpha, (a, at, lda, 0), (b, bt, ldb, 0), beta, (c, ct, ldc, 0), 1,
                    compute, algo)  # fmt: skip


@LIBRARY.function("piilllppillpillppilllii")
def cublasGemmStridedBatchedEx_64(
    handle, opa, opb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count, compute, algo
):  # fmt: skip
    return multiply(handle, (opa, opb), (m, n, k), alpha, (a, at, lda, sa), (b, bt, ldb, sb), beta, (c, ct, ldc, sc),
                    count, compute, algo)  # fmt: skip


# type -> the type that sums are asked for in
SUMS = {R_32F: R_32F, R_64F: R_64F, R_16F: R_32F, R_16BF: R_32F, C_32F: C_32F, C_64F: C_64F}


def inner(handle, n, x, xt, incx, y, yt, incy, result, rt, sums, conjugated):
    used = context(handle)
    check(bool(result) and n >= 0 and incx > 0 and incy > 0)
    check(xt in DTYPES and xt == yt == rt and SUMS.get(xt) == sums, NOT_SUPPORTED)
    check(bool(used.on_device), EXECUTION_FAILED)  # our results always lie on the device

    def run():
        a, b = memory(x, DTYPES[xt], (n,), (incx,)), memory(y, DTYPES[yt], (n,), (incy,))
        check(all(p % a.dtype.itemsize == 0 for p in (x, y, result)), EXECUTION_FAILED)
        a, b = wide(a), wide(b)
        with np.errstate(all="ignore"):
            memory(result, DTYPES[rt], (1,), (1,))[0] = np.dot(a.conj() if conjugated else a, b)

    graphs.launch(run, used.stream)
    return {"n": n, "stream": used.stream}


@LIBRARY.function("plpilpilpii")
def cublasDotEx_64(*arguments):
    return inner(*arguments, False)


@LIBRARY.function("plpilpilpii")
def cublasDotcEx_64(*arguments):
    return inner(*arguments, True)
