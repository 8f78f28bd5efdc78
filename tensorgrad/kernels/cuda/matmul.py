"""Matrix products on cuBLAS: the counterpart of `kernels/array/matmul.py`, which integers use, as cuBLAS lacks them.

A product reads each factor and writes the result once. A vector added to all rows is added in the same launch;
otherwise the result is first filled with the term to add (one more write and read), and cuBLAS adds to that before it
rounds.
"""

from __future__ import annotations

import math

import cupy

from tensorgrad.kernels.array import matmul as shapes
from tensorgrad.kernels.cuda import reduce
from tensorgrad.kernels.cuda.runtime import cublas, cublaslt, program
from tensorgrad.kernels.cuda.runtime.cublas import TYPES

MANY = 8  # number of calls for one stack from which on its factors are copied to be evenly spaced


def product(a, b, tf32=None, out=None):
    """Computes `a @ b` by NumPy's rules, for arrays of one dtype of TYPES; copies factors only if needed.

    `tf32`: whether float32 may be rounded to TF32 first (None follows the matmul settings). `out`, contiguous along its
    rows, receives the result of matrices or stacks.
    """
    if a.ndim == 1:
        return product(a[None], b, tf32)[..., 0, :] if b.ndim > 1 else product(a[None], b[:, None], tf32)[0, 0]
    if b.ndim == 1:
        return product(a, b[:, None], tf32)[..., 0]
    if b.ndim == 2 and a.ndim > 2 and out is None:
        rows = folded(a)
        if rows is not None:
            return product(rows, b, tf32).reshape(*a.shape[:-1], b.shape[1])
    lead = a.shape[:-2]
    if lead != b.shape[:-2]:
        lead = shapes.broadcast_lead(lead, b.shape[:-2])
        a, b = (cupy.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    if out is None:
        out = cupy.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    if len(lead) > 1:
        a, b = _evened(a, b, out)
    return cublas.gemm(a, b, out, tf32=tf32)


def _evened(a, b, out):
    """Returns two stacks, copied if they would take many calls."""
    lead, steps = out.shape[:-2], out.strides[:-2]
    if out.size and cublas.calls(lead, a.strides[:-2], b.strides[:-2], steps) > MANY:
        for_one = [cublas.calls(lead, x.strides[:-2]) for x in (a, b)]
        a, b = (cupy.ascontiguousarray(x) if calls > 1 else x for x, calls in zip((a, b), for_one, strict=True))
        if cublas.calls(lead, a.strides[:-2], b.strides[:-2], steps) > MANY:
            a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    return a, b


def folded(x):
    """Views a stack of matrices as one tall matrix; None if that needs a copy."""
    if not x.flags.c_contiguous:
        for d in range(x.ndim - 2):
            if x.shape[d] != 1 and x.strides[d] != x.strides[d + 1] * x.shape[d + 1]:
                return None
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def tall(x):
    """Returns a stack of matrices as one tall matrix, copied if needed."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def served(*arrays) -> bool:
    """Returns whether cuBLAS supports the dtype of the first array; the shape rules check the others."""
    return arrays[0].dtype in TYPES


def numpys(a, b, out=None):
    """`numpy.matmul` for the general kernels: by cuBLAS, or for integers by CuPy.

    CuPy's own would widen float16, and sends stacks of bfloat16 to its loop for integers.
    """
    if a.dtype not in TYPES or b.dtype != a.dtype:
        return cupy.matmul(a, b, out=out)
    made = product(a, b)
    if out is None:
        return made
    out[...] = made
    return out


def matmul(a, b):
    """Computes `a @ b` for vectors, matrices, and stacks that broadcast. Raises: RuntimeError if shapes do not fit."""
    if not served(a):
        return NotImplemented
    shapes.matmul_shape(a, b)
    if a.ndim == b.ndim == 1:
        return cublas.dot(a, b, cupy.empty((), a.dtype))
    return product(a, b)


def nt(a, b):
    """Computes `a @ bᵀ` for matrices or stacks of them."""
    return matmul(a, b.swapaxes(-1, -2)) if served(a) else NotImplemented


def tn(a, b):
    """Computes `aᵀ @ b` for matrices or stacks of them."""
    return matmul(a.swapaxes(-1, -2), b) if served(a) else NotImplemented


def mm(a, b):
    """Computes `a @ b` of two matrices."""
    if not served(a):
        return NotImplemented
    shapes.mm_shape(a, b)
    return product(a, b)


def bmm(a, b):
    """Computes `a @ b` of two stacks of matrices."""
    if not served(a):
        return NotImplemented
    shapes.bmm_shape(a, b)
    return product(a, b)


def mv(a, v):
    """Computes `a @ v` of a matrix and a vector."""
    if not served(a):
        return NotImplemented
    shapes.mv_shape(a, v)
    return product(a, v)


def dot(a, b):
    """Computes `Σ a b` of two vectors."""
    if not served(a):
        return NotImplemented
    shapes.dot_shape(a, b)
    return cublas.dot(a, b, cupy.empty((), a.dtype))


def vdot(a, b):
    """Computes `Σ conj(a) b` of two vectors."""
    if not served(a):
        return NotImplemented
    shapes.dot_shape(a, b)
    return cublas.dot(a, b, cupy.empty((), a.dtype), conjugated=True)


def _added(c, a, b, shape, beta, alpha):
    """Computes `beta · c + alpha · (a @ b)`, of `shape`, to which `c` is broadcast."""
    out = cupy.empty(shape, a.dtype)
    if beta:
        out[...] = c
    a, b = _evened(a, b, out) if out.ndim > 3 else (a, b)
    return cublas.gemm(a, b, out, alpha, beta)


def addmm(c, a, b, beta, alpha):
    """Computes `beta · c + alpha · (a @ b)` for matrices."""
    if not served(a):
        return NotImplemented
    shape = shapes.addmm_shape(c, a, b)
    if beta == alpha == 1 and c.ndim == 1:
        out = cupy.empty(shape, a.dtype)
        if _with_vector(a, b, c, out):
            return out
    return _added(c, a, b, shape, beta, alpha)


def baddbmm(c, a, b, beta, alpha):
    """Computes `beta · c + alpha · (a @ b)` for stacks of matrices."""
    if not served(a):
        return NotImplemented
    shape = shapes.bmm_shape(a, b, c)
    shapes.check_expands(c.shape, shape)
    return _added(c, a, b, shape, beta, alpha)


def addbmm(c, a, b, beta, alpha):
    """Computes `beta · c + alpha · Σₙ (aₙ @ bₙ)`: the sum over the stack is part of the product."""
    if not served(a):
        return NotImplemented
    n, rows, columns = shapes.bmm_shape(a, b, c)
    shapes.check_expands(c.shape, (rows, columns))
    wide, high = a.swapaxes(0, 1).reshape(rows, n * a.shape[2]), b.reshape(n * b.shape[1], columns)
    return _added(c, wide, high, (rows, columns), beta, alpha)


def addmv(c, a, v, beta, alpha):
    """Computes `beta · c + alpha · (a @ v)` for a matrix and a vector."""
    if not served(a):
        return NotImplemented
    (rows,) = shapes.mv_shape(a, v, c)
    return _added(c.reshape(-1, 1), a, v[:, None], (rows, 1), beta, alpha)[:, 0]


def _with_vector(a, b, vector, out) -> bool:
    """Fills `out` with `a @ b + vector` in one launch. Returns False if that is not possible."""
    if vector is None or vector.ndim != 1 or vector.shape[0] != out.shape[1] or not out.size or not a.shape[1]:
        return False
    if vector.dtype != a.dtype or not vector.flags.c_contiguous or out.data.device_id != cupy.cuda.get_device_id():
        return False
    return cublaslt.biased(a, b, vector, out)


def linear(x, w, bias):
    """Computes `x @ wᵀ + bias` for `x` (*, in), `w` (out, in) or (in,), and `bias` (out,) or None."""
    if not served(x):
        return NotImplemented
    shape = shapes.linear_shape(x, w, bias)
    if w.ndim == 1 and x.ndim == 1:
        out = cublas.dot(x, w, cupy.empty((), x.dtype))
        return out if bias is None else out + bias
    w = w[:, None] if w.ndim == 1 else w.T
    rows = tall(x)
    out = cupy.empty((rows.shape[0], w.shape[1]), x.dtype)
    if _with_vector(rows, w, bias, out):
        return out if x.ndim == 2 else out.reshape(shape)
    if bias is not None:  # has more than one dimension if it is given for every row
        out.reshape(shape)[...] = bias
    return cublas.gemm(rows, w, out, 1, int(bias is not None)).reshape(shape)


def linear_backward(g, input, weight, bias_shape, needs):
    """Computes the gradients of `linear` for a matrix of weights: g·w, gᵀ·x and the column sums of g.

    Declines other shapes.
    """
    if not served(g) or g.dtype.kind == "c" or g.ndim < 2 or (needs[2] and len(bias_shape) != 1):
        return NotImplemented
    if any(x is not None and (x.ndim < 2 or x.dtype != g.dtype) for x in (input, weight)):
        return NotImplemented
    by_weight = by_bias = None
    if needs[1]:
        slopes, rows = tall(g), tall(input)
        by_weight = cupy.empty((slopes.shape[1], rows.shape[1]), g.dtype)
        if needs[2] and slopes.size and rows.size and g.data.device_id == cupy.cuda.get_device_id():
            sums = cupy.empty(slopes.shape[1], g.dtype)
            if cublaslt.summed(slopes.T, rows, sums, by_weight):
                by_bias = sums
        if by_bias is None:
            cublas.gemm(slopes.T, rows, by_weight)
    if needs[2] and by_bias is None:
        by_bias = column_sum(g)
        if by_bias is NotImplemented:
            return NotImplemented
    return product(g, weight) if needs[0] else None, by_weight, by_bias


def column_sum(x):
    """Sums over all dimensions but the last: the gradient of a bias."""
    if x.ndim < 2 or program.NAME[x.dtype] not in program.NUMBER:
        return NotImplemented
    if not x.size:
        return cupy.zeros(x.shape[-1:], x.dtype)
    return reduce.sum_(x, tuple(range(x.ndim - 1)), False, None)
