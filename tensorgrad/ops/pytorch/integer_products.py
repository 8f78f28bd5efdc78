"""Products of matrices of 8-bit integers, which PyTorch has for quantized networks."""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.ops.linalg.matmul import matmul
from tensorgrad.tensor import Tensor


def _of_batch(input, weight, zero_point, mapped):
    exact = dtypes.float64
    return matmul(input.to(exact) - zero_point, weight.to(exact).mT).to(dtypes.int32)


integer_sums = op(
    "integer_sums(input, weight, zero_point: int)",
    "integer_products.sums",
    shape="integer_products.sums_shape",
    batch=_of_batch,
    where=(),
    doc="""Computes `(input - zero_point) @ weightᵀ` of integers of 8 bits, exact, in int32.

    `input` is (n, k), `weight` is int8, (m, k).
    """,
)


def _through(g, weight, scales, zero_points):
    numbers = (weight.to(g.dtype) - zero_points.unsqueeze(1)) * scales.unsqueeze(1)
    return matmul(g, numbers.to(g.dtype))


dynamic_linear = op(
    "dynamic_linear(input, weight, scales, zero_points, bias=None, highest: int=255)",
    "integer_products.dynamic_linear",
    input=_through,
    shape="integer_products.dynamic_shape",
    where=(),
    doc="""Computes `input @ ((weight - zero_points) * scales)ᵀ + bias`, with an input that is quantized first.

    It becomes integers from 0 to `highest`, with the range that it has. `scales` and `zero_points` have one element, or
    one for each row of the int8 weights. The gradient of the input is that of the product without rounding.
    """,
)


@composite("function")
def _int_mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the matrix product of 8-bit integers, in int32 and exact.

    Args:
        input: int8 or uint8, (n, k).
        mat2: int8, (k, m).
        out: int32, (n, m): the result is written to it.

    Raises:
        RuntimeError: For other dtypes, or sizes that do not fit.

    >>> a = torch.tensor([[100, -100]], dtype=torch.int8)
    >>> torch._int_mm(a, a.t())
    tensor([[20000]], dtype=torch.int32)
    """
    for name, tensor, allowed in (("self", input, (dtypes.int8, dtypes.uint8)), ("mat2", mat2, (dtypes.int8,))):
        if tensor.ndim != 2:
            raise RuntimeError(f"int_mm: Expected {name} to be of dimension 2 but got {tensor.ndim}")
        if tensor.dtype not in allowed:
            raise RuntimeError(f"int_mm: Expected {name} dtype to be int8 (of self, or uint8) but got {tensor.dtype}")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"int_mm: self.size(1) needs to match mat2.size(0) but got {input.shape[1]} and {mat2.shape[0]}"
        )
    result = integer_sums(input, mat2.t(), 0)
    if out is None:
        return result
    if out.dtype is not dtypes.int32 or out.shape != result.shape:
        raise RuntimeError(
            f"int_mm: Expected result of dtype torch.int32 and shape {tuple(result.shape)}, got {out.dtype} and "
            f"{tuple(out.shape)}"
        )
    return out.copy_(result)
