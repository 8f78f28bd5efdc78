"""Matrix products. The products in a layer and in its gradients are the same three ops.

`matmul` multiplies operands of any ranks. PyTorch's other products are rows with checks and names of their own, whose
gradients and rules for batches come down to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad import dtypes
from tensorgrad.dispatch import generate, inplace
from tensorgrad.dispatch.kinds import TensorFunction, alias, composite, export, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.kernels.array import matmul as kernels
from tensorgrad.ops.pointwise import conj
from tensorgrad.rows.signature import parse, with_names
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

    Args:
        input: (*, n, k) or (k,).
        other: (*, k, m) or (k,), of the same dtype.

    Raises:
        RuntimeError: For shapes that cannot be multiplied, for different dtypes and for 0-dimensional operands.

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

    Args:
        input: (*, in).
        weight: (out, in), for a result (*, out), or (in,), for a result (*).
        bias: (out,), or None.

    Raises:
        RuntimeError: For shapes that do not fit and for different dtypes.

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


class _Kind(NamedTuple):
    """What the products of operands of some ranks have in common: all of it comes down to `matmul`."""

    by_first: Callable  # the gradient, from that of the result and the other operand
    by_second: Callable
    of_batch: Callable  # the product of values with a batch, and which of the two have one: "input", "other"


_MATRICES = _Kind(  # or stacks of them
    lambda g, other: nt(g, conj(other)), lambda g, input: tn(conj(input), g), lambda a, b, mapped: matmul(a, b)
)
_MATRIX_BY_VECTOR = _Kind(
    lambda g, other: outer(g, conj(other)), lambda g, input: matmul(g, conj(input)), _matmul_of_batch
)
_VECTORS = _Kind(lambda g, other: g * conj(other), lambda g, input: g * conj(input), _matmul_of_batch)
_VECTORS_FIRST_CONJUGATED = _Kind(
    lambda g, other: conj(g) * other,
    lambda g, input: g * input,
    lambda a, b, mapped: _matmul_of_batch(conj(a), b, mapped),
)
_COLUMN_BY_ROW = _Kind(
    lambda g, other: matmul(g, conj(other)),
    lambda g, input: matmul(conj(input), g),
    lambda a, b, mapped: a.unsqueeze(-1) * b.unsqueeze(-2),
)


def _product(
    signature: str, kind: _Kind, shape: str, doc: str, operands: tuple[str, str], **row: Any
) -> TensorFunction:  # fmt: skip
    """Declares a product of operands of given shapes, with PyTorch's name for its node and messages of its own."""
    name, params = parse(signature)
    first, second = params[0].name, params[1].name
    doc += f"\n\n    Args:\n        {first}: {operands[0]}.\n        {second}: {operands[1]}.\n"
    doc += "\n    Raises:\n        RuntimeError: If shapes or dtypes do not fit.\n    "

    def of_batch(a, b, mapped):
        return kind.of_batch(a, b, _operands(mapped, first, second))

    return op(
        signature, f"matmul.{name}", shape=f"matmul.{shape}", doc=doc, linear=f"{first} * {second}",
        batch=with_names(of_batch, first, second), **row,
        **{first: with_names(kind.by_first, "g", second), second: with_names(kind.by_second, "g", first)},
    )  # fmt: skip


def _operands(mapped, first: str, second: str) -> set[str]:
    """Which of the operands of `matmul` have a batch, from the names that they have in another op."""
    return {name for given, name in ((first, "input"), (second, "other")) if given in mapped}


mm = _product(
    "mm(input, mat2)", _MATRICES, "mm_shape",
    "The product (n, m) of two matrices.", ("(n, k)", "(k, m)"),
)  # fmt: skip
bmm = _product(
    "bmm(input, mat2)", _MATRICES, "bmm_shape",
    "The products (b, n, m) of the matrices in two stacks.", ("(b, n, k)", "(b, k, m)"),
)  # fmt: skip
mv = _product(
    "mv(input, vec)", _MATRIX_BY_VECTOR, "mv_shape",
    "The product (n,) of a matrix and a vector.", ("(n, m)", "(m,)"),
)  # fmt: skip
dot = _product(
    "dot(input, tensor)", _VECTORS, "dot_shape",
    "The inner product Σ input · tensor of two vectors, a scalar.", ("(n,)", "(n,)"),
)  # fmt: skip
vdot = _product(
    "vdot(input, other)", _VECTORS_FIRST_CONJUGATED, "dot_shape",
    "The inner product Σ conj(input) · other of two vectors, a scalar.", ("(n,)", "(n,)"),
)  # fmt: skip


def _outer_prepare(a, b):
    for array, name in ((a, "self"), (b, "vec2")):
        if array.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {array.ndim}-D")
    dtype = dtypes.promote_types(dtypes.from_numpy_dtype(a.dtype), dtypes.from_numpy_dtype(b.dtype)).numpy
    return (a if a.dtype == dtype else a.astype(dtype)), (b if b.dtype == dtype else b.astype(dtype))


outer = _product(
    "outer(input, vec2)", _COLUMN_BY_ROW, "outer_shape",
    "The outer product (n, m) of two vectors.", ("(n,)", "(m,)"),
    prepare=_outer_prepare, backward_name="MulBackward0",
)  # fmt: skip
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


def _added(name: str, first: str, second: str, kind: _Kind, doc: str, prepare=_check_factors, **row) -> TensorFunction:
    """Declares `beta · input + alpha · (a product of that kind)`; also in place."""

    def of_batch(input, a, b, beta, alpha, mapped):
        return _sum_of_batch(input, kind.of_batch(a, b, _operands(mapped, first, second)), beta, alpha, mapped)

    def by_first(g, b, alpha):
        return _times(kind.by_first(g, b), alpha)

    def by_second(g, a, alpha):
        return _times(kind.by_second(g, a), alpha)

    function = op(
        f"{name}(input, {first}, {second}, *, beta: number = 1, alpha: number = 1)", f"matmul.{name}",
        shape=f"matmul.{name}_shape", prepare=prepare, linear=f"input + {first} * {second}",
        batch=with_names(of_batch, "input", first, second),
        doc=f"`beta · input + alpha · {doc}, and is ignored if `beta` is 0. Raises RuntimeError for other shapes"
        f"{' or different dtypes' if prepare is _check_factors else ''}.", **row,
        **{"input": lambda g, beta: _times(g, beta), first: with_names(by_first, "g", second),
           second: with_names(by_second, "g", first)},
    )  # fmt: skip
    setattr(Tensor, f"{name}_", inplace.make(function.op))
    return function


addmm = _added(
    "addmm", "mat1", "mat2", _MATRICES,
    "(mat1 @ mat2)` for matrices (n, k) and (k, m). `input` broadcasts to the result's shape (n, m)",
)  # fmt: skip
addmv = _added(
    "addmv", "mat", "vec", _MATRIX_BY_VECTOR,
    "(mat @ vec)` for a matrix (n, m) and a vector (m,). `input` broadcasts to the result's shape (n,)",
)  # fmt: skip
export("addmv_", Tensor.addmv_, "function")
baddbmm = _added(
    "baddbmm", "batch1", "batch2", _MATRICES,
    "(batch1 @ batch2)` for stacks of matrices, (b, n, k) and (b, k, m). `input` broadcasts to the result's shape "
    "(b, n, m)",
)  # fmt: skip
addbmm = _added(
    "addbmm", "batch1", "batch2", _MATRICES._replace(of_batch=lambda a, b, mapped: matmul(a, b).sum(-3)),
    "Σᵢ batch1[i] @ batch2[i]` for stacks of matrices, (b, n, k) and (b, k, m). `input` broadcasts to the result's "
    "shape (n, m)",
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


def _addr_laid_out(c, a, b, *rest):
    """The dimensions, outermost first: those of a sum of the matrix and a column times a row."""
    column = ((a.size, 1), (*a.strides, 0), a.itemsize)
    return order_of_operands(
        (a.size, b.size), c.itemsize, (c.shape, c.strides, c.itemsize), column, (b.shape, b.strides, b.itemsize)
    )


addr = _added(
    "addr", "vec1", "vec2", _COLUMN_BY_ROW,
    "vec1 vec2ᵀ`: the outer product of two vectors, (n,) and (m,), added to a matrix. `input` broadcasts to the "
    "result's shape (n, m)",
    prepare=_addr_prepare, strides=_addr_laid_out,
)  # fmt: skip
