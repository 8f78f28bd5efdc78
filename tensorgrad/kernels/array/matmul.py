"""Matrix products over plain arrays.

One product in three forms, `a @ b`, `a @ bᵀ` and `aᵀ @ b`: the gradients of each are products in the other two, so none
ever needs a transposed copy. 16-bit floats are multiplied in float32; integers by NumPy's own loops.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import c_type, scalar_type
from tensorgrad.rows.kernel_tables import run_compiled, run_kernel
from tensorgrad.system.float_errors import ignored

BLAS_TYPES = frozenset("fdFD")


def matmul(xp, a, b):
    """`a @ b` by NumPy's rules: vectors, matrices, or stacks of matrices that broadcast.

    Raises: RuntimeError, with PyTorch's message, if shapes or dtypes do not fit.
    """
    if 0 < a.ndim < 3 > b.ndim > 0 and a.dtype is b.dtype and a.dtype.char in BLAS_TYPES:
        try:
            return a.dot(b)  # half the overhead of matmul
        except ValueError:
            if a.shape[-1] == b.shape[-2:][0]:
                raise  # not about the shapes: raised by a signal handler, which may run at any moment
    matmul_shape(a, b)
    if b.ndim == 2 and a.ndim > 2:  # one large product instead of many small ones
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return multiplied(xp, rows, b).reshape(*a.shape[:-1], b.shape[1])
    return multiplied(xp, a, b)


def nt(xp, a, b):
    """`a @ bᵀ` for matrices or stacks of them."""
    if a.ndim == 2 == b.ndim and a.dtype is b.dtype and a.dtype.char in BLAS_TYPES and a.shape[1] == b.shape[1]:
        return a.dot(b.T)
    return matmul(xp, a, b.swapaxes(-1, -2))


def tn(xp, a, b):
    """`aᵀ @ b` for matrices or stacks of them."""
    if a.ndim == 2 == b.ndim and a.dtype is b.dtype and a.dtype.char in BLAS_TYPES and a.shape[0] == b.shape[0]:
        return a.T.dot(b)
    return matmul(xp, a.swapaxes(-1, -2), b)


def multiplied(xp, a, b):
    """`xp.matmul` with 16-bit floats computed in float32; shapes and dtypes are known to fit."""
    dtype = a.dtype
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        return xp.asarray(multiplied(xp, a.astype(np.float32), b.astype(np.float32))).astype(dtype)
    if a.ndim < 3 > b.ndim and dtype is b.dtype and dtype.char in BLAS_TYPES:
        return a.dot(b)
    with ignored():
        if a.ndim > 2 < b.ndim and a.shape[-1] == 1 and xp is np and dtype.char in BLAS_TYPES:
            made = run_compiled("outer_products", a.size * b.shape[-1], a, b)
            if made is not NotImplemented:
                return made
            return np.einsum("...ij,...jk->...ik", a, b, order="C")  # columns by rows: the BLAS takes one at a time
        return xp.matmul(a, b)


def mm(xp, a, b):
    """The product of two matrices."""
    if a.ndim != 2 or b.ndim != 2:
        mm_shape(a, b)
    return matmul(xp, a, b)


def bmm(xp, a, b):
    """The products of the matrices in two stacks."""
    bmm_shape(a, b)
    return multiplied(xp, a, b)


def mv(xp, a, v):
    """The product of a matrix and a vector."""
    mv_shape(a, v)
    return multiplied(xp, a, v)


def dot(xp, a, b):
    """The inner product of two vectors."""
    dot_shape(a, b)
    return multiplied(xp, a, b)


def linear(xp, x, w, bias):
    """`x @ wᵀ + bias` for `x` (*, in), `w` (out, in) or (in,), and `bias` (out,) or None."""
    if w.ndim == 2 and x.ndim and x.dtype is w.dtype and x.dtype.char in BLAS_TYPES:
        try:
            lead = x.shape[:-1]
            out = (x if x.ndim < 3 else x.reshape(math.prod(lead), x.shape[-1])).dot(w.T)
            if bias is not None:
                if bias.dtype is not out.dtype or bias.ndim != 1:
                    linear_shape(x, w, bias)
                out += bias
            return out if x.ndim < 3 else out.reshape(*lead, w.shape[0])
        except ValueError:
            if x.shape[-1] == w.shape[1] and (bias is None or bias.shape == w.shape[:1]):
                raise
    shape = linear_shape(x, w, bias)
    dtype = x.dtype
    x, w, bias = widened(x), widened(w), widened(bias)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = xp.asarray(multiplied(xp, rows, w.T))
    if bias is not None:
        out = out.reshape(shape) + bias
    return out.reshape(shape).astype(dtype, copy=False)


def linear_backward(xp, g, input, weight, bias_shape, needs):
    """The gradients of `linear` for rows: g·w, gᵀ·x and the column sums of g; declines other shapes."""
    if g.ndim < 2 or g.dtype.char not in "fd":
        return NotImplemented
    lead = g.shape[:-1]
    if (input is not None and (input.shape[:-1] != lead or input.dtype is not g.dtype)) or (
        weight is not None and (weight.ndim != 2 or weight.dtype is not g.dtype)
    ):
        return NotImplemented
    rows = g if g.ndim == 2 else g.reshape(math.prod(lead), g.shape[-1])
    return (
        rows.dot(weight).reshape(*lead, weight.shape[1]) if needs[0] else None,
        rows.T.dot(input.reshape(len(rows), input.shape[-1])) if needs[1] else None,
        column_sum(xp, rows) if needs[2] and len(bias_shape) == 1 else g.copy() if needs[2] else None,
    )


def linear_of_batch(xp, whole, input, weight, bias, size, mapped):
    """`linear` of the inputs of all samples, if they have the weights in common."""
    if mapped != {"input"} or input.ndim < 2 or not input.flags.c_contiguous:
        return NotImplemented
    made = whole(input.reshape(math.prod(input.shape[:-1]), input.shape[-1]), weight, bias)
    return made.reshape(*input.shape[:-1], *made.shape[1:])


def linear_of_batch_backward(xp, g, input, weight, weight_shape, bias_shape, size, mapped, needs):
    """The gradients of `linear_of_batch`: those of the weights are a product for each sample."""
    if "g" not in mapped or "weight" in mapped or g.dtype.char not in "fd" or len(weight_shape) != 2 or not size:
        return NotImplemented
    if (needs[1] and "input" not in mapped) or (needs[2] and bias_shape != g.shape[-1:]):
        return NotImplemented
    rows = g.reshape(size, math.prod(g.shape[1:-1]), g.shape[-1])
    of_input = of_weight = of_bias = None
    if needs[0]:
        of_input = run_kernel("matmul", rows.reshape(size * rows.shape[1], g.shape[-1]), weight)
        of_input = of_input.reshape(*g.shape[:-1], weight_shape[1])
    if needs[1]:
        of_weight = run_kernel("matmul_tn", rows, input.reshape(size, rows.shape[1], weight_shape[1]))
    if needs[2]:
        of_bias = rows[:, 0] if rows.shape[1] == 1 else rows.sum(1)
    return of_input, of_weight, of_bias


def widened(array):
    """Returns 16-bit floats as float32, anything else unchanged."""
    if array is not None and array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        return array.astype(np.float32)
    return array


def column_sum(xp, x):
    """The sum over all dimensions but the last: the gradient of a bias."""
    if x.ndim != 2:
        x = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if xp is np and x.dtype.char in BLAS_TYPES:
        return _ones(x.shape[0], x.dtype).dot(x)  # BLAS sums in a third of the time of add.reduce
    return widened(x).sum(axis=0, dtype=None if x.dtype.kind not in "iu" else x.dtype).astype(x.dtype, copy=False)


@lru_cache(maxsize=32)
def _ones(n, dtype):
    ones = np.ones(n, dtype)
    ones.flags.writeable = False
    return ones


def added(xp, c, product, beta, alpha):
    """`beta · c + alpha · product`, broadcast to the shape of `product`, which may be overwritten.

    With `beta` 0, `c` is ignored, including any nan. Raises: RuntimeError if `c` does not broadcast.
    """
    check_expands(c.shape, product.shape)
    if product.dtype.kind in "iu":
        alpha, beta = int(alpha), int(beta)
    with ignored():
        if alpha != 1:
            product = product * product.dtype.type(alpha)
        if beta == 1:
            return xp.add(product, c, product)
        return xp.add(product, c * c.dtype.type(beta), product) if beta else product


def _unless_ignored(xp, a, b, alpha):
    """The product of matrices; zeros if `alpha` is 0, as in BLAS: then they are ignored, including any nan."""
    if alpha == 0:
        a = xp.zeros_like(a)
        b = xp.zeros_like(b)
    return multiplied(xp, a, b)


def addmm(xp, c, a, b, beta, alpha):
    """`beta · c + alpha · (a @ b)` for matrices."""
    if beta == 1 == alpha and a.ndim == 2 == b.ndim and a.dtype is b.dtype is c.dtype and a.dtype.char in BLAS_TYPES:
        shape = a.shape[0], b.shape[1]
        if a.shape[1] == b.shape[0] and c.shape in (shape, shape[1:]):  # the usual case, at half the overhead
            out = a.dot(b)
            out += c
            return out
    addmm_shape(c, a, b)
    product = _unless_ignored(xp, widened(a), widened(b), alpha)
    return added(xp, widened(c), product, beta, alpha).astype(c.dtype, copy=False)


def baddbmm(xp, c, a, b, beta, alpha):
    """`beta · c + alpha · (a @ b)` for stacks of matrices."""
    bmm_shape(a, b, c)
    return added(xp, widened(c), multiplied(xp, widened(a), widened(b)), beta, alpha).astype(c.dtype, copy=False)


def addbmm(xp, c, a, b, beta, alpha):
    """`beta · c + alpha · Σₙ (aₙ @ bₙ)`: the sum over the stack is part of the product."""
    bmm_shape(a, b, c)
    wide_a, wide_b = widened(a), widened(b)
    rows = wide_a.swapaxes(0, 1).reshape(a.shape[1], a.shape[0] * a.shape[2])
    product = _unless_ignored(xp, rows, wide_b.reshape(b.shape[0] * b.shape[1], b.shape[2]), alpha)
    return added(xp, widened(c), product, beta, alpha).astype(c.dtype, copy=False)


def addmv(xp, c, a, v, beta, alpha):
    """`beta · c + alpha · (a @ v)` for a matrix and a vector."""
    mv_shape(a, v, c)
    product = xp.asarray(_unless_ignored(xp, widened(a), widened(v), alpha))
    return added(xp, widened(c), product, beta, alpha).astype(c.dtype, copy=False)


def outer(xp, a, b):
    """All products of the elements of two vectors."""
    return xp.multiply(a[:, None], b[None, :])


def addr(xp, c, a, b, beta, alpha):
    """`beta · c + alpha · (a bᵀ)` for two vectors."""
    if c.dtype.kind == "b":
        product = (a[:, None] & b[None, :]) if alpha else xp.zeros((a.shape[0], b.shape[0]), bool)
        return product | c if beta else product
    return added(xp, c, outer(xp, a, b), beta, alpha)


def vdot(xp, a, b):
    """`Σ conj(a) b` of two vectors."""
    dot_shape(a, b)
    return multiplied(xp, a.conj() if a.dtype.kind == "c" else a, b)


# --- shapes, and PyTorch's messages if they do not fit --------------------------------------------------------------


def _differ(a, b):
    return a.dtype is not b.dtype and a.dtype != b.dtype


def _check_multiplied(a, b, added=False):
    """Raises: RuntimeError if the dtypes differ. `added`: something is added to the product."""
    if not _differ(a, b):
        return
    if added:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {scalar_type(a)} and {scalar_type(b)}")
    raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {c_type(a)} != {c_type(b)}")


def _no_bool(a, kernel):
    if a.dtype.kind == "b":
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


def matmul_shape(a, b):
    """Returns the shape of `a @ b`. Raises: RuntimeError if shapes or dtypes do not fit."""
    if not a.ndim or not b.ndim:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D")
    if b.ndim == 1:
        if a.ndim == 1:
            return dot_shape(a, b)
        mv_shape(_Rows(a), b)
        return a.shape[:-1]
    if b.ndim == 2:
        rows = 1 if a.ndim == 1 else math.prod(a.shape[:-1])
        return (*a.shape[:-1], *_mm_shape((rows, a.shape[-1]), b.shape, a, b)[1:])
    lead = broadcast_lead(a.shape[:-2], b.shape[:-2])
    left = a.shape if a.ndim > 1 else (1, a.shape[0])
    if left[-1] != b.shape[-2]:
        n = math.prod(lead)
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{n}, {left[-1]}] but got: "
            f"[{n}, {b.shape[-2]}]."
        )
    if _differ(a, b):
        raise RuntimeError(f"expected scalar type {scalar_type(a)} but found {scalar_type(b)}")
    _no_bool(a, "bmm")
    return (*lead, left[-2], b.shape[-1]) if a.ndim > 1 else (*lead, b.shape[-1])


class _Rows:
    """An array of any rank viewed as a matrix: its shape and dtype."""

    def __init__(self, a):
        self.shape, self.ndim, self.dtype = (math.prod(a.shape[:-1]), a.shape[-1]), 2, a.dtype


def broadcast_lead(first, second):
    """The common shape of two, such as of leading dimensions. Raises: RuntimeError if there is none."""
    if first == second or not first:
        return second
    ndim = max(len(first), len(second))
    a, b = (1,) * (ndim - len(first)) + first, (1,) * (ndim - len(second)) + second
    for d in range(ndim - 1, -1, -1):
        if a[d] != b[d] and 1 not in (a[d], b[d]):
            raise RuntimeError(
                f"The size of tensor a ({a[d]}) must match the size of tensor b ({b[d]}) at non-singleton dimension {d}"
            )
    return tuple([m if n == 1 else n for m, n in zip(a, b)])


def _mm_shape(left, right, a, b, added=False):
    if left[1] != right[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({left[0]}x{left[1]} and {right[0]}x{right[1]})")
    _check_multiplied(a, b, added)
    _no_bool(a, "addmm_impl_cpu_")
    return left[0], right[1]


def mm_shape(a, b):
    """The shape of a product of two matrices."""
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"{'self' if a.ndim != 2 else 'mat2'} must be a matrix")
    return _mm_shape(a.shape, b.shape, a, b)


def bmm_shape(a, b, c=None):
    """Returns the shape of a product of two stacks of matrices; `c` is the term added to it."""
    for array, name in ((a, "batch1"), (b, "batch2")):
        if array.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )
    if _differ(a, b):
        raise RuntimeError(f"expected scalar type {scalar_type(a)} but found {scalar_type(b)}")
    if c is not None and _differ(c, a):
        raise RuntimeError(
            f"Input dtypes must be the same, got: input {scalar_type(c)}, batch1: {scalar_type(a)}, batch2: "
            f"{scalar_type(b)}"
        )
    _no_bool(a, "bmm" if c is None else "baddbmm")
    return a.shape[0], a.shape[1], b.shape[2]


def mv_shape(a, v, c=None):
    """The shape of the product of a matrix and a vector."""
    if a.ndim != 2 or v.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {a.ndim}, {v.ndim}")
    if a.shape[1] != v.shape[0] or (c is not None and c.shape not in ((a.shape[0],), (1,), ())):
        size = a.shape[0] if c is None else c.shape[0] if c.ndim else 1
        raise RuntimeError(f"size mismatch, got input ({size}), mat ({a.shape[0]}x{a.shape[1]}), vec ({v.shape[0]})")
    first = v if c is None else c
    if not a.dtype == v.dtype == first.dtype:
        raise RuntimeError(
            f"addmv input tensors must have the same dtype, but got {scalar_type(first)}, {scalar_type(a)}, and "
            f"{scalar_type(v)}"
        )
    _no_bool(a, "addmv_impl_cpu")
    return (a.shape[0],)


def dot_shape(a, b):
    """The shape of the inner product of two vectors: ()."""
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if _differ(a, b):
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {scalar_type(a)} and {scalar_type(b)}"
        )
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to have the same "
            "number of "
            f"elements, but got {a.shape[0]} and {b.shape[0]} elements respectively"
        )
    _no_bool(a, "dot")
    return ()


def linear_shape(x, w, bias=None):
    """The shape of `linear`'s result."""
    if not x.ndim or not w.ndim:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.ndim}D and {w.ndim}D")
    if w.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {w.ndim}D")
    if w.ndim == 1:
        if bias is not None and x.ndim > 1:
            raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
        if x.ndim == 1:
            dot_shape(x, w)
        else:
            mv_shape(_Rows(x), w)
        return x.shape[:-1]
    rows = math.prod(x.shape[:-1])
    _mm_shape((rows, x.shape[-1]), w.shape[::-1], x, w, bias is not None)
    shape = (*x.shape[:-1], w.shape[0])
    if bias is not None:
        if bias.dtype != x.dtype:
            raise RuntimeError(
                f"self and mat2 must have the same dtype, but got {scalar_type(bias)} and {scalar_type(w)}"
            )
        check_expands(bias.shape, shape if len(shape) > 1 else (1, *shape))
    return shape


def outer_shape(a, b):
    """The shape of the outer product of two vectors."""
    return a.shape[0], b.shape[0]


def addr_shape(c, a, b, *factors):
    """The shape and dtype of `addr`'s result."""
    return outer_shape(a, b), c.dtype


def addmm_shape(c, a, b, *factors):
    """The shape of `addmm`'s result."""
    for array, name in ((a, "mat1"), (b, "mat2")):
        if array.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix, got {array.ndim}-D tensor")
    if a.shape[1] != b.shape[0]:
        _mm_shape(a.shape, b.shape, a, b)
    if not c.dtype == a.dtype == b.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {scalar_type(c)} and {scalar_type(b)}")
    shape = _mm_shape(a.shape, b.shape, a, b)
    check_expands(c.shape, shape)
    return shape


def addmv_shape(c, a, v, *factors):
    """The shape of `addmv`'s result."""
    return check_expands(c.shape, mv_shape(a, v, c))


def baddbmm_shape(c, a, b, *factors):
    """The shape of `baddbmm`'s result."""
    return check_expands(c.shape, bmm_shape(a, b, c))


def addbmm_shape(c, a, b, *factors):
    """The shape of `addbmm`'s result."""
    return check_expands(c.shape, bmm_shape(a, b, c)[1:])


def check_expands(shape, target):
    """Returns `target`. Raises: RuntimeError unless `shape` expands to it."""
    if len(shape) > len(target):
        raise RuntimeError(
            f"expand(size={list(target)}): the number of sizes provided ({len(target)}) must be greater or equal to "
            "the "
            f"number of dimensions in the tensor ({len(shape)}), whose shape is {list(shape)}"
        )
    for d in range(-1, -len(shape) - 1, -1):
        if shape[d] not in (1, target[d]):
            raise RuntimeError(
                f"The expanded size of the tensor ({target[d]}) must match the existing size ({shape[d]}) at "
                f"non-singleton dimension {len(target) + d}.  Target sizes: {list(target)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return target
