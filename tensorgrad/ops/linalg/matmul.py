"""Matrix products. The products in a layer and in its gradients are the same three ops."""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.dispatch import generate, inplace
from tensorgrad.dispatch.kinds import alias, composite, export, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.kernels.array import matmul as kernels
from tensorgrad.ops.pointwise import conj
from tensorgrad.rows.strides import order_of_operands
from tensorgrad.tensor import Tensor

# --- products with and without transposes --------------------------------------------------------------------------


def _folded(x: Tensor) -> Tensor:
    """Returns a stack of matrices as one tall matrix."""
    shape = x._array.shape
    return x if len(shape) == 2 else x.reshape((math.prod(shape[:-1]), shape[-1]))


def _left_gradient(g, other, input_shape):
    """The gradient of `input @ other` by `input`, for every combination of vectors, matrices and stacks."""
    other = conj(other)
    if len(input_shape) > 1 and other._array.ndim > 1:
        return nt(g, other)
    if len(input_shape) > 1:
        return g.unsqueeze(-1) * other
    if other._array.ndim == 1:
        return g * other
    return matmul(other, g.unsqueeze(-1)).squeeze(-1)


def _right_gradient(g, input, other_shape):
    """The gradient of `input @ other` by `other`."""
    input = conj(input)
    rank = input._array.ndim
    if len(other_shape) == 1:
        return g * input if rank == 1 else matmul(g.reshape(-1), _folded(input))
    if rank == 1:
        return input.unsqueeze(-1) * g.unsqueeze(-2)
    if len(other_shape) == 2:  # the right operand is shared by the stack: sum inside the product
        return tn(_folded(input), _folded(g))
    return tn(input, g)


def _matmul_of_batch(input, other, mapped):
    """The product on values with a batch: vectors become matrices where a stack of them would be read from a vector."""
    ranks = input._array.ndim - ("input" in mapped), other._array.ndim - ("other" in mapped)
    if "other" not in mapped and ranks[1] <= 2:
        return matmul(input, other)
    if "input" not in mapped and ranks == (2, 1):
        return nt(other, input)
    if ranks[0] == 1:
        input = input.unsqueeze(-2)
    if ranks[1] == 1:
        other = other.unsqueeze(-1)
    made = matmul(*_aligned(input, other, mapped))
    if ranks[0] == 1:
        made = made.squeeze(-2)
    return made.squeeze(-1) if ranks[1] == 1 else made


def _aligned(input, other, mapped):
    """Two stacks, with dimensions of size 1 after the batch of the one of lower rank."""
    ranks = input._array.ndim - ("input" in mapped), other._array.ndim - ("other" in mapped)
    for _ in range(ranks[1] - ranks[0] if "input" in mapped else 0):
        input = input.unsqueeze(1)
    for _ in range(ranks[0] - ranks[1] if "other" in mapped else 0):
        other = other.unsqueeze(1)
    return input, other


def _tn_of_batch(input, other, mapped):
    return tn(*_aligned(input, other, mapped))


def _linear_of_batch(input, weight, bias, mapped):
    if "weight" not in mapped and "bias" not in mapped:
        return linear(input, weight, bias)
    if mapped == {"bias"}:
        product = linear(input, weight)
    elif weight._array.ndim == 1 + ("weight" in mapped):
        product = _matmul_of_batch(input, weight, {"input", "other"} if "weight" in mapped else {"input"})
    elif "input" not in mapped:
        product = _by_all_weights(input, weight)
    else:
        product = _matmul_of_batch(input, weight.mT, {new for old, new in _SIDES if old in mapped})
    if bias is None:
        return product
    rank = product._array.ndim - (mapped != {"bias"})
    for _ in range(rank + 1 - bias._array.ndim if "bias" in mapped else 0):
        bias = bias.unsqueeze(1)
    return product + bias


def _by_all_weights(input, weight):
    """`linear` of one input with a stack of weights: one large product, which reads all of them where they are."""
    size, width, depth = weight._array.shape
    lead, weights = input._array.shape[:-1], weight.reshape(size * width, depth)
    if not lead:
        return matmul(weights, input).view(size, width)
    product = nt(weights, _folded(input)).view(size, width, math.prod(lead)).mT.contiguous()
    return product if len(lead) == 1 else product.view(size, *lead, width)


_SIDES = (("input", "input"), ("weight", "other"))


def _renamed(mapped, other, input="input"):
    """Which of the operands of `matmul` have a batch, from the names that they have in another op."""
    return {side for name, side in ((input, "input"), (other, "other")) if name in mapped}


def _sum_of_batch(input, product, beta, alpha, mapped):
    """`beta · input + alpha · product` on values with a batch."""
    rank = product._array.ndim - (mapped != {"input"})
    if "input" in mapped:
        for _ in range(rank + 1 - input._array.ndim):
            input = input.unsqueeze(1)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # the input is ignored, including any nan
        return product.expand(input._array.shape[0], *product._array.shape) if mapped == {"input"} else product
    return product + (input if beta == 1 else input * beta)


matmul = op(
    "matmul(input, other)",
    "matmul.matmul",
    linear="input * other",
    batch=_matmul_of_batch,
    input=_left_gradient,
    other=_right_gradient,
    shape="matmul.matmul_shape",
    backward_name="MmBackward0",
    doc="""Computes the matrix product `input @ other` of vectors, matrices, or stacks of matrices that broadcast.

    A vector counts as a row on the left and as a column on the right, and its dimension is dropped from the result.

    Raises RuntimeError for shapes that cannot be multiplied, for different dtypes and for 0-dimensional operands.

    >>> torch.matmul(torch.ones(3, 2, 4), torch.ones(4, 5)).shape
    torch.Size([3, 2, 5])
    """,
)
Tensor.__matmul__ = generate.promise(matmul.op, "operator")


def _rmatmul(self, other):
    """`other @ tensor`; for anything but a tensor Python reports the operand types."""
    return matmul(other, self) if isinstance(other, Tensor) else NotImplemented


Tensor.__rmatmul__ = _rmatmul

nt = op(
    "matmul_nt(input, other)",
    "matmul.nt",
    linear="input * other",
    batch="broadcast",
    input=lambda g, other: matmul(g, conj(other)),
    other=lambda g, input, other_shape: tn(*_paired(g, conj(input), other_shape)),
    shape=lambda a, b: kernels.matmul_shape(a, _Flipped(b)),
    where=(),
)
tn = op(
    "matmul_tn(input, other)",
    "matmul.tn",
    linear="input * other",
    batch=_tn_of_batch,
    input=lambda g, other, input_shape: nt(conj(other), g),
    other=lambda g, input: matmul(conj(input), g),
    shape=lambda a, b: kernels.matmul_shape(_Flipped(a), b),
    where=(),
)


def _paired(g, x, shape):
    """Returns two stacks, to be multiplied and summed to one matrix, as two tall matrices; others are unchanged."""
    return (_folded(g), _folded(x)) if len(shape) == 2 and g._array.ndim == x._array.ndim > 2 else (g, x)


class _Flipped:
    """The shape and dtype of a stack of transposed matrices."""

    def __init__(self, a):
        self.shape, self.ndim, self.dtype = (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.ndim, a.dtype


# --- linear --------------------------------------------------------------------------------------------------------


def _linear_input(g, weight):
    weight = conj(weight)
    return matmul(g, weight) if weight._array.ndim == 2 else g.unsqueeze(-1) * weight


def _linear_weight(g, input, weight_shape):
    input = conj(input)
    if len(weight_shape) == 1:
        return matmul(g.reshape(-1), _folded(input)) if input._array.ndim > 1 else g * input
    if input._array.ndim == 1:
        return g.unsqueeze(-1) * input
    return tn(_folded(g), _folded(input))


linear = op(
    "linear(input, weight, bias=None)",
    "matmul.linear",
    linear="input * weight + bias",
    batch=_linear_of_batch,
    batch_kernel="matmul.linear_of_batch",
    batch_backward="matmul.linear_of_batch_backward",
    input=_linear_input,
    weight=_linear_weight,
    bias=lambda g, bias_shape: column_sum(g) if len(bias_shape) == 1 else g,
    shape="matmul.linear_shape",
    backward_kernel="matmul.linear_backward",
    backward_name="AddmmBackward0",
    where=("functional",),
    doc="""Computes `input @ weightᵀ + bias`, like `nn.Linear`.

    Shapes: input (*, in), weight (out, in) or (in,), bias (out,) or None; the result is (*, out).

    Raises RuntimeError for shapes that do not fit and for different dtypes.

    >>> torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))[0]
    tensor([4., 4., 4., 4.])
    """,
)
column_sum = op(
    "column_sum(input)",
    "matmul.column_sum",
    linear="input",
    batch=lambda input: input if input._array.ndim == 2 else input.flatten(1, -2).sum(1),
    input=lambda g, input_shape: g.expand(input_shape),
    shape=lambda x: x.shape[-1:],
    where=(),
)

# --- products of given ranks ---------------------------------------------------------------------------------------


def _mm_kernel(xp, a, b):
    if a.ndim != 2 or b.ndim != 2:
        kernels.mm_shape(a, b)
    return kernels.matmul(xp, a, b)


mm = op(
    "mm(input, mat2)",
    _mm_kernel,
    batch=lambda input, mat2: matmul(input, mat2),
    linear="input * mat2",
    input=lambda g, mat2: nt(g, conj(mat2)),
    mat2=lambda g, input: tn(conj(input), g),
    shape="matmul.mm_shape",
    doc="The product (n, m) of two matrices, (n, k) and (k, m). Raises RuntimeError if shapes or dtypes do not fit.",
)


def _bmm_kernel(xp, a, b):
    kernels.bmm_shape(a, b)
    return kernels.multiplied(xp, a, b)


bmm = op(
    "bmm(input, mat2)",
    _bmm_kernel,
    batch=lambda input, mat2: matmul(input, mat2),
    linear="input * mat2",
    input=lambda g, mat2: nt(g, conj(mat2)),
    mat2=lambda g, input: tn(conj(input), g),
    shape="matmul.bmm_shape",
    doc="The products (b, n, m) of the matrices in two stacks, (b, n, k) and (b, k, m). Raises RuntimeError for other "
    "shapes or different dtypes.",
)


def _mv_kernel(xp, a, v):
    kernels.mv_shape(a, v)
    return kernels.multiplied(xp, a, v)


mv = op(
    "mv(input, vec)",
    _mv_kernel,
    batch=lambda input, vec, mapped: _matmul_of_batch(input, vec, _renamed(mapped, "vec")),
    linear="input * vec",
    input=lambda g, vec: outer(g, conj(vec)),
    vec=lambda g, input: matmul(g, conj(input)),
    shape="matmul.mv_shape",
    doc="The product (n,) of a matrix (n, m) and a vector (m,). Raises RuntimeError if shapes or dtypes do not fit.",
)


def _dot_kernel(xp, a, b):
    kernels.dot_shape(a, b)
    return kernels.multiplied(xp, a, b)


dot = op(
    "dot(input, tensor)",
    _dot_kernel,
    batch=lambda input, tensor, mapped: _matmul_of_batch(input, tensor, _renamed(mapped, "tensor")),
    linear="input * tensor",
    input=lambda g, tensor: g * conj(tensor),
    tensor=lambda g, input: g * conj(input),
    shape="matmul.dot_shape",
    doc="The inner product Σ input · tensor of two vectors (n,), a scalar. Raises RuntimeError for other shapes or "
    "different dtypes.",
)
vdot = op(
    "vdot(input, other)",
    "matmul.vdot",
    batch=lambda input, other, mapped: _matmul_of_batch(conj(input), other, mapped),
    linear="input * other",
    input=lambda g, other: conj(g) * other,
    other=lambda g, input: g * input,
    shape="matmul.dot_shape",
    doc="The inner product Σ conj(input) · other of two vectors (n,), a scalar. Raises RuntimeError for other "
    "shapes or different dtypes.",
)


def _outer_prepare(a, b):
    for array, name in ((a, "self"), (b, "vec2")):
        if array.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {array.ndim}-D")
    dtype = dtypes.promote_types(dtypes.from_numpy_dtype(a.dtype), dtypes.from_numpy_dtype(b.dtype)).numpy
    return (a if a.dtype == dtype else a.astype(dtype)), (b if b.dtype == dtype else b.astype(dtype))


outer = op(
    "outer(input, vec2)",
    "matmul.outer",
    batch=lambda input, vec2: input.unsqueeze(-1) * vec2.unsqueeze(-2),
    linear="input * vec2",
    prepare=_outer_prepare,
    input=lambda g, vec2: matmul(g, conj(vec2)),
    vec2=lambda g, input: matmul(conj(input), g),
    shape=lambda a, b: (a.shape[0], b.shape[0]),
    backward_name="MulBackward0",
    doc="The outer product (n, m) of two vectors, (n,) and (m,). Raises RuntimeError for other shapes.",
)
alias("ger", outer)


@composite()
def inner(input: Tensor, other: Tensor, *, out=None) -> Tensor:
    """Computes inner products over the last dimension of both: (*, k) and (+, k) give (*, +).

    If an operand is 0-dimensional, multiplies by it.

    Raises:
        RuntimeError: If the last dimensions or the dtypes differ.

    >>> torch.inner(torch.tensor([1., 2]), torch.tensor([[3., 4], [5, 6]]))
    tensor([11., 17.])
    """
    if not input.ndim or not other.ndim:
        return store_out("mul", out, input * other, pointwise=True)
    else:
        if input.dtype is not other.dtype:
            raise RuntimeError("both inputs should have same dtype")
        if input._array.shape[-1] != other._array.shape[-1]:
            raise RuntimeError(
                "inner() the last dimension must match on both input tensors but got shapes "
                f"{list(input.shape)} and {list(other.shape)}"
            )
        rows = nt(_folded(_at_least_2d(input)), _folded(_at_least_2d(other)))
        result = rows.reshape((*input._array.shape[:-1], *other._array.shape[:-1]))
    return store_out("inner", out, result)


def _at_least_2d(x: Tensor) -> Tensor:
    return x.unsqueeze(0) if x._array.ndim == 1 else x


# --- products added to something -----------------------------------------------------------------------------------


def _times(g: Tensor, factor):
    return g if factor == 1 else g * (factor.conjugate() if isinstance(factor, complex) else factor)


def _check_factors(c, a, b, beta, alpha):
    """Raises: RuntimeError for a complex factor of a real product."""
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, complex) and c.dtype.kind != "c":
            raise RuntimeError(f"For non-complex input tensors, argument {name} must not be a complex number.")
    return c, a, b, beta, alpha


def _added(name: str, first: str, second: str, kernel: str, shape, *, doc: str, by_first, by_second, batch):
    function = op(
        f"{name}(input, {first}, {second}, *, beta: number = 1, alpha: number = 1)",
        kernel,
        prepare=_check_factors,
        shape=lambda c, a, b, beta, alpha: shape(c, a, b),
        doc=doc,
        linear=f"input + {first} * {second}",
        batch=batch,
        **{"input": lambda g, beta: _times(g, beta), first: by_first, second: by_second},
    )
    setattr(Tensor, f"{name}_", inplace.make(function.op))
    return function


def _checked(shape: str):
    """Makes the shape rule of a product to which `c` is added."""

    def rule(c, a, b):
        made = getattr(kernels, shape)(a, b, c)
        kernels.check_expands(c.shape, made)
        return made

    return rule


addmm = _added(
    "addmm", "mat1", "mat2", "matmul.addmm", lambda c, a, b: kernels.addmm_shape(c, a, b),
    by_first=lambda g, mat2, alpha: nt(_times(g, alpha), conj(mat2)),
    by_second=lambda g, mat1, alpha: tn(conj(mat1), _times(g, alpha)),
    batch=lambda input, mat1, mat2, beta, alpha, mapped: _sum_of_batch(input, matmul(mat1, mat2), beta, alpha, mapped),
    doc="`beta · input + alpha · (mat1 @ mat2)` for matrices (n, k) and (k, m). `input` broadcasts to the result's "
    "shape (n, m), and is ignored if `beta` is 0. Raises RuntimeError for other shapes or different dtypes.",
)  # fmt: skip
addmv = _added(
    "addmv", "mat", "vec", "matmul.addmv", _checked("mv_shape"),
    by_first=lambda g, vec, alpha: outer(_times(g, alpha), conj(vec)),
    by_second=lambda g, mat, alpha: matmul(_times(g, alpha), conj(mat)),
    batch=lambda input, mat, vec, beta, alpha, mapped: _sum_of_batch(
        input, _matmul_of_batch(mat, vec, _renamed(mapped, "vec", "mat")), beta, alpha, mapped
    ),
    doc="`beta · input + alpha · (mat @ vec)` for a matrix (n, m) and a vector (m,). `input` broadcasts to the "
    "result's shape (n,), and is ignored if `beta` is 0. Raises RuntimeError for other shapes or different dtypes.",
)  # fmt: skip
export("addmv_", Tensor.addmv_, "function")
baddbmm = _added(
    "baddbmm", "batch1", "batch2", "matmul.baddbmm", _checked("bmm_shape"),
    by_first=lambda g, batch2, alpha: nt(_times(g, alpha), conj(batch2)),
    by_second=lambda g, batch1, alpha: tn(conj(batch1), _times(g, alpha)),
    batch=lambda input, batch1, batch2, beta, alpha, mapped: _sum_of_batch(
        input, matmul(batch1, batch2), beta, alpha, mapped
    ),
    doc="`beta · input + alpha · (batch1 @ batch2)` for stacks of matrices, (b, n, k) and (b, k, m). `input` "
    "broadcasts to the result's shape (b, n, m), and is ignored if `beta` is 0. Raises RuntimeError for other "
    "shapes or different dtypes.",
)  # fmt: skip


def _addbmm_shape(c, a, b):
    made = kernels.bmm_shape(a, b, c)[1:]
    kernels.check_expands(c.shape, made)
    return made


addbmm = _added(
    "addbmm", "batch1", "batch2", "matmul.addbmm", _addbmm_shape,
    by_first=lambda g, batch2, alpha: nt(_times(g, alpha), conj(batch2)),
    by_second=lambda g, batch1, alpha: tn(conj(batch1), _times(g, alpha)),
    batch=lambda input, batch1, batch2, beta, alpha, mapped: _sum_of_batch(
        input, matmul(batch1, batch2).sum(-3), beta, alpha, mapped
    ),
    doc="`beta · input + alpha · Σᵢ batch1[i] @ batch2[i]` for stacks of matrices, (b, n, k) and (b, k, m). `input` "
    "broadcasts to the result's shape (n, m), and is ignored if `beta` is 0. Raises RuntimeError for other "
    "shapes or different dtypes.",
)  # fmt: skip


def _addr_prepare(c, a, b, beta, alpha):
    for array, name in ((a, "vec1"), (b, "vec2")):
        if array.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {array.ndim}-D")
    kernels.check_expands(c.shape, (a.shape[0], b.shape[0]))
    if c.dtype.kind == "b" and (isinstance(beta, float) or isinstance(alpha, float)):
        raise RuntimeError("Boolean beta and alpha only supported for Boolean results.")
    found = [dtypes.from_numpy_dtype(x.dtype) for x in (c, a, b)]
    dtype = dtypes.promote_types(dtypes.promote_types(found[1], found[2]), found[0])
    if dtype.category < dtypes.FLOATING and (isinstance(beta, float) or isinstance(alpha, float)):
        raise RuntimeError("For integral input tensors, argument beta must not be a floating point number.")
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, bool) and dtype.category > dtypes.BOOL:
            raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    c, a, b = (x if x.dtype == dtype.numpy else x.astype(dtype.numpy) for x in (c, a, b))
    return _check_factors(c, a, b, beta, alpha)


def _addr_kernel(xp, c, a, b, beta, alpha):
    if c.dtype.kind == "b":
        product = (a[:, None] & b[None, :]) if alpha else xp.zeros((a.shape[0], b.shape[0]), bool)
        return product | c if beta else product
    return kernels.added(xp, c, kernels.outer(xp, a, b), beta, alpha)


def _addr_laid_out(c, a, b, *rest):
    """The dimensions, outermost first: those of a sum of the matrix and a column times a row."""
    column = ((a.size, 1), (*a.strides, 0), a.itemsize)
    return order_of_operands(
        (a.size, b.size), c.itemsize, (c.shape, c.strides, c.itemsize), column, (b.shape, b.strides, b.itemsize)
    )


addr = op(
    "addr(input, vec1, vec2, *, beta: number = 1, alpha: number = 1)",
    _addr_kernel,
    strides=_addr_laid_out,
    linear="input + vec1 * vec2",
    prepare=_addr_prepare,
    shape=lambda c, a, b, beta, alpha: ((a.shape[0], b.shape[0]), c.dtype),
    input=lambda g, beta: _times(g, beta),
    vec1=lambda g, vec2, alpha: matmul(_times(g, alpha), conj(vec2)),
    vec2=lambda g, vec1, alpha: matmul(conj(vec1), _times(g, alpha)),
    batch=lambda input, vec1, vec2, beta, alpha, mapped: _sum_of_batch(
        input, vec1.unsqueeze(-1) * vec2.unsqueeze(-2), beta, alpha, mapped
    ),
    doc="`beta · input + alpha · vec1 vec2ᵀ`: the outer product of two vectors, (n,) and (m,), added to a matrix. "
    "`input` broadcasts to the result's shape (n, m), and is ignored if `beta` is 0. Raises RuntimeError for "
    "other shapes.",
)
Tensor.addr_ = inplace.make(addr.op)
