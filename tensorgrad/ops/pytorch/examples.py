"""Completes the docstrings that `help(torch.exp)` shows for ops: adds the rule of the row's kind, and an example.

A function whose `doc` or docstring has an example needs nothing more. The examples of the others, which are made from
rows and in loops, are collected here; each belongs to the function that its last line calls.
"""

from __future__ import annotations

import re

from tensorgrad.dispatch.kinds import FUNCTIONS
from tensorgrad.ops.special.special import SPECIAL
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.op import Op

EXAMPLES = """
# arithmetic

>>> torch.mul(torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]]))
tensor([[3., 6.],
        [4., 8.]])

>>> torch.floor_divide(torch.tensor([7, -7]), 2)
tensor([ 3, -4])

>>> torch.remainder(torch.tensor([-3.0, 3.0]), 2)
tensor([1., 1.])

>>> torch.fmod(torch.tensor([-3.0, 3.0]), 2)
tensor([-1.,  1.])

>>> torch.neg(torch.tensor([1, -2]))
tensor([-1,  2])

>>> torch.reciprocal(torch.tensor([4, 0]))
tensor([0.2500,    inf])

>>> torch.addcmul(torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), value=0.5)
tensor([1.5000, 4.0000])

>>> torch.addcdiv(torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tensor([4.0, 4.0]), value=2)
tensor([0.5000, 1.0000])

>>> torch.gcd(torch.tensor([12, 7]), torch.tensor([18, 0]))
tensor([6, 7])

>>> torch.lcm(torch.tensor([4, 7]), torch.tensor([6, 0]))
tensor([12,  0])

>>> torch.square(torch.tensor([-3, 2]))
tensor([9, 4])

>>> torch.sqrt(torch.tensor([9.0, 2.0, -1.0]))
tensor([3.0000, 1.4142,    nan])

>>> torch.rsqrt(torch.tensor([4.0, 0.0]))
tensor([0.5000,    inf])

# powers and logarithms

>>> torch.exp(torch.tensor([0.0, 1.0]))
tensor([1.0000, 2.7183])

>>> torch.exp2(torch.tensor([3, -1]))
tensor([8.0000, 0.5000])

>>> torch.expm1(torch.tensor([1e-8, 1.0]))
tensor([1.0000e-08, 1.7183e+00])

>>> torch.log(torch.tensor([1.0, 10.0, 0.0]))
tensor([0.0000, 2.3026,   -inf])

>>> torch.log2(torch.tensor([8.0, 10.0]))
tensor([3.0000, 3.3219])

>>> torch.log10(torch.tensor([1000.0, 2.0]))
tensor([3.0000, 0.3010])

>>> torch.log1p(torch.tensor([1e-8, 1.0]))
tensor([1.0000e-08, 6.9315e-01])

>>> torch.logaddexp(torch.tensor([0.0, 100.0]), torch.tensor([0.0, 100.0]))
tensor([  0.6931, 100.6931])

>>> torch.logaddexp2(torch.tensor([0.0, 500.0]), torch.tensor([1.0, 500.0]))
tensor([  1.5850, 501.0000])

# trigonometry

>>> torch.sin(torch.tensor([0.0, torch.pi / 6, torch.pi / 2]))
tensor([0.0000, 0.5000, 1.0000])

>>> torch.cos(torch.tensor([0.0, torch.pi / 3, torch.pi]))
tensor([ 1.0000,  0.5000, -1.0000])

>>> torch.tan(torch.tensor([0.0, 1.0]))
tensor([0.0000, 1.5574])

>>> torch.asin(torch.tensor([1.0, 0.5, 2.0]))
tensor([1.5708, 0.5236,    nan])

>>> torch.acos(torch.tensor([1.0, 0.0, -1.0]))
tensor([0.0000, 1.5708, 3.1416])

>>> torch.atan(torch.tensor([1.0, torch.inf]))
tensor([0.7854, 1.5708])

>>> torch.atan2(torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0]))
tensor([0.7854, 2.3562])

>>> torch.sinh(torch.tensor([0.0, 1.0]))
tensor([0.0000, 1.1752])

>>> torch.cosh(torch.tensor([0.0, 1.0]))
tensor([1.0000, 1.5431])

>>> torch.tanh(torch.tensor([0.0, 1.0, 10.0]))
tensor([0.0000, 0.7616, 1.0000])

>>> torch.asinh(torch.tensor([0.0, 1.0]))
tensor([0.0000, 0.8814])

>>> torch.acosh(torch.tensor([1.0, 2.0, 0.5]))
tensor([0.0000, 1.3170,    nan])

>>> torch.atanh(torch.tensor([0.0, 0.5, 1.0]))
tensor([0.0000, 0.5493,    inf])

>>> torch.hypot(torch.tensor([3.0, 3e30]), torch.tensor([4.0, 4e30]))
tensor([5.0000e+00, 5.0000e+30])

>>> torch.deg2rad(torch.tensor([90.0, 180.0]))
tensor([1.5708, 3.1416])

>>> torch.rad2deg(torch.tensor([torch.pi, 1.0]))
tensor([180.0000,  57.2958])

# sign and rounding

>>> torch.abs(torch.tensor([3 + 4j, -1 + 1j]))
tensor([5.0000, 1.4142])

>>> torch.sign(torch.tensor([-0.5, 0.0, 7.0]))
tensor([-1.,  0.,  1.])

>>> torch.sgn(torch.tensor([3 + 4j, 0]))
tensor([0.6000+0.8000j, 0.0000+0.0000j])

>>> torch.copysign(torch.tensor([1.0, 2.0]), torch.tensor([-0.0, 5.0]))
tensor([-1.,  2.])

>>> torch.nextafter(torch.tensor([1.0]), torch.tensor([2.0])) - 1
tensor([1.1921e-07])

>>> torch.floor(torch.tensor([-1.5, 1.5]))
tensor([-2.,  1.])

>>> torch.ceil(torch.tensor([-1.5, 1.5]))
tensor([-1.,  2.])

>>> torch.trunc(torch.tensor([-1.5, 1.5]))
tensor([-1.,  1.])

>>> torch.round(torch.tensor([0.5, 1.5, -2.4]))
tensor([ 0.,  2., -2.])
>>> torch.round(torch.tensor([1234.567]), decimals=-2)
tensor([1200.])

>>> torch.frac(torch.tensor([1.25, -1.25]))
tensor([ 0.2500, -0.2500])

>>> torch.angle(torch.tensor([1j, -1 + 0j]))
tensor([1.5708, 3.1416])

# comparisons, logic and bits

>>> torch.maximum(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, 0.0]))
tensor([2., nan])

>>> torch.minimum(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, 0.0]))
tensor([1., nan])

>>> torch.fmax(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, 0.0]))
tensor([2., 0.])

>>> torch.fmin(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, 0.0]))
tensor([1., 0.])

>>> torch.clamp_min(torch.tensor([-1.0, 2.0]), 0)
tensor([0., 2.])

>>> torch.clamp_max(torch.tensor([-1.0, 2.0]), torch.tensor([0.0, 1.0]))
tensor([-1.,  1.])

>>> torch.nan_to_num(torch.tensor([torch.nan, torch.inf, -torch.inf]), nan=-1.0, posinf=99.0)
tensor([-1.0000e+00,  9.9000e+01, -3.4028e+38])

>>> torch.eq(torch.tensor([1.0, 2.0]), torch.tensor([1, 3]))
tensor([ True, False])

>>> torch.ne(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]))
tensor([False,  True])

>>> torch.lt(torch.tensor([1, 2, 3]), 2)
tensor([ True, False, False])

>>> torch.le(torch.tensor([1, 2, 3]), 2)
tensor([ True,  True, False])

>>> torch.gt(torch.tensor([1, 2, 3]), 2)
tensor([False, False,  True])

>>> torch.ge(torch.tensor([1, 2, 3]), 2)
tensor([False,  True,  True])

>>> torch.isnan(torch.tensor([0.0, torch.nan, torch.inf]))
tensor([False,  True, False])

>>> torch.isinf(torch.tensor([0.0, torch.nan, -torch.inf]))
tensor([False, False,  True])

>>> torch.isfinite(torch.tensor([0.0, torch.nan, torch.inf]))
tensor([ True, False, False])

>>> torch.signbit(torch.tensor([-1.0, -0.0, 0.0]))
tensor([ True,  True, False])

>>> torch.logical_and(torch.tensor([True, True, False]), torch.tensor([2, 0, 1]))
tensor([ True, False, False])

>>> torch.logical_or(torch.tensor([True, False, False]), torch.tensor([2, 0, 1]))
tensor([ True, False,  True])

>>> torch.logical_xor(torch.tensor([True, False, False]), torch.tensor([2, 0, 1]))
tensor([False, False,  True])

>>> torch.logical_not(torch.tensor([0.0, -0.5, 2.0]))
tensor([ True, False, False])

>>> torch.bitwise_and(torch.tensor([0b1100, 0b0110]), 0b1010)
tensor([8, 2])

>>> torch.bitwise_or(torch.tensor([0b1100, 0b0110]), 0b1010)
tensor([14, 14])

>>> torch.bitwise_xor(torch.tensor([0b1100, 0b0110]), 0b1010)
tensor([ 6, 12])

>>> torch.bitwise_not(torch.tensor([0, 5, -1]))
tensor([-1, -6,  0])

>>> torch.bitwise_left_shift(torch.tensor([1, 3]), 2)
tensor([ 4, 12])

>>> torch.bitwise_right_shift(torch.tensor([12, -5]), 1)
tensor([ 6, -3])

# reductions

>>> torch.sum(torch.tensor([[1, 2], [3, 4]]), dim=0)
tensor([4, 6])

>>> torch.mean(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1, keepdim=True)
tensor([[1.5000],
        [3.5000]])

>>> torch.amax(torch.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=1)
tensor([4., 3.])

>>> torch.amin(torch.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=(0, 1))
tensor(1.)

# activations

>>> torch.sigmoid(torch.tensor([-1.0, 0.0, 100.0]))
tensor([0.2689, 0.5000, 1.0000])

>>> torch.relu(torch.tensor([-1.0, 0.0, 2.0]))
tensor([0., 0., 2.])

# special functions

>>> torch.logit(torch.tensor([0.5, 0.9, 1.0]))
tensor([0.0000, 2.1972,    inf])

>>> torch.sinc(torch.tensor([0.0, 0.5]))
tensor([1.0000, 0.6366])

>>> torch.erf(torch.tensor([0.0, 0.5, 3.0]))
tensor([0.0000, 0.5205, 1.0000])

>>> torch.erfc(torch.tensor([0.0, 3.0]))
tensor([1.0000e+00, 2.2090e-05])

>>> torch.erfinv(torch.tensor([0.0, 0.5, 1.0]))
tensor([0.0000, 0.4769,    inf])

>>> torch.special.erfcx(torch.tensor([0.0, 10.0]))
tensor([1.0000, 0.0561])

>>> torch.special.ndtr(torch.tensor([-1.96, 0.0, 1.96]))
tensor([0.0250, 0.5000, 0.9750])

>>> torch.special.ndtri(torch.tensor([0.025, 0.5, 1.0]))
tensor([-1.9600,  0.0000,     inf])

>>> torch.special.log_ndtr(torch.tensor([0.0, -10.0]))
tensor([ -0.6931, -53.2313])

>>> torch.special.entr(torch.tensor([0.0, 0.5, -1.0]))
tensor([0.0000, 0.3466,   -inf])

>>> torch.lgamma(torch.tensor([1.0, 5.0, 0.5]))
tensor([0.0000, 3.1781, 0.5724])

>>> torch.digamma(torch.tensor([1.0, 2.0]))
tensor([-0.5772,  0.4228])

>>> torch.xlogy(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 10.0]))
tensor([0.0000, 4.6052])

>>> torch.special.xlog1py(torch.tensor([0.0, 2.0]), torch.tensor([-1.0, 1e-8]))
tensor([0.0000e+00, 2.0000e-08])

>>> torch.i0(torch.tensor([0.0, 1.0]))
tensor([1.0000, 1.2661])

>>> torch.special.i0e(torch.tensor([1.0, 100.0]))
tensor([0.4658, 0.0399])

>>> torch.special.i1(torch.tensor([0.0, 1.0]))
tensor([0.0000, 0.5652])

>>> torch.special.i1e(torch.tensor([1.0, 100.0]))
tensor([0.2079, 0.0397])

# cumulative sums and products

>>> torch.cumsum(torch.tensor([[1, 2, 3], [4, 5, 6]]), dim=1)
tensor([[ 1,  3,  6],
        [ 4,  9, 15]])

>>> torch.cumprod(torch.tensor([1, 2, 3, 4]), dim=0)
tensor([ 1,  2,  6, 24])

>>> torch.logcumsumexp(torch.zeros(3), dim=0)
tensor([0.0000, 0.6931, 1.0986])

# views and gathering

>>> torch.unsqueeze(torch.tensor([1, 2]), -1)
tensor([[1],
        [2]])

>>> torch.transpose(torch.tensor([[1, 2, 3], [4, 5, 6]]), 0, 1)
tensor([[1, 4],
        [2, 5],
        [3, 6]])

>>> torch.t(torch.tensor([[1, 2, 3]]))
tensor([[1],
        [2],
        [3]])

>>> torch.index_select(torch.tensor([[1, 2], [3, 4], [5, 6]]), 0, torch.tensor([2, 0, 2]))
tensor([[5, 6],
        [1, 2],
        [5, 6]])

# products

>>> torch.mm(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0], [1.0]]))
tensor([[2.],
        [4.]])

>>> torch.bmm(torch.ones(2, 1, 3), torch.arange(6.0).reshape(2, 3, 1)).shape
torch.Size([2, 1, 1])

>>> torch.mv(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, -1.0]))
tensor([-1., -1.])

>>> torch.dot(torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]))
tensor(32)

>>> torch.vdot(torch.tensor([1j, 1]), torch.tensor([1j, 2]))
tensor(3.+0.j)

>>> torch.outer(torch.tensor([1, 2]), torch.tensor([3, 4, 5]))
tensor([[ 3,  4,  5],
        [ 6,  8, 10]])

>>> torch.addmm(torch.ones(2), torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), beta=10, alpha=2)
tensor([[12., 14.],
        [16., 18.]])

>>> torch.addmv(torch.tensor([10.0, 20.0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2))
tensor([13., 27.])

>>> torch.baddbmm(torch.zeros(2, 1, 1), torch.ones(2, 1, 3), torch.ones(2, 3, 1), alpha=0.5).flatten()
tensor([1.5000, 1.5000])

>>> torch.addbmm(torch.zeros(1, 1), torch.ones(2, 1, 3), torch.ones(2, 3, 1))
tensor([[6.]])

>>> torch.addr(torch.zeros(2, 2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
tensor([[3., 4.],
        [6., 8.]])

# sampling an image at the points of a grid

>>> torch.grid_sampler_2d(torch.tensor([[[[1.0, 3.0]]]]), torch.zeros(1, 1, 1, 2), 0, 0, False).item()
2.0

>>> torch.grid_sampler_3d(torch.tensor([[[[[1.0, 3.0]]]]]), torch.zeros(1, 1, 1, 1, 3), 0, 0, False).item()
2.0

# tensors like others, and scalars

>>> torch.zeros_like(torch.tensor([[1, 2, 3]]))
tensor([[0, 0, 0]])

>>> torch.ones_like(torch.tensor([1, 2]), dtype=torch.float64)
tensor([1., 1.], dtype=torch.float64)

>>> torch.empty_like(torch.zeros(2, 3, dtype=torch.int64)).dtype
torch.int64

>>> torch.full_like(torch.zeros(2), 7)
tensor([7., 7.])

# minimum number of dimensions, and parts

>>> torch.atleast_1d(torch.tensor(5))
tensor([5])

>>> torch.atleast_2d(torch.tensor([1, 2]), torch.tensor(3))
(tensor([[1, 2]]), tensor([[3]]))

>>> torch.atleast_3d(torch.tensor([1, 2])).shape
torch.Size([1, 2, 1])

# triangles

>>> torch.tril_indices(2, 3)
tensor([[0, 1, 1],
        [0, 0, 1]])

>>> torch.triu_indices(2, 3, offset=1)
tensor([[0, 0, 1],
        [1, 2, 2]])

# dropout with three arguments

>>> _ = torch.manual_seed(0)
>>> torch.dropout(torch.ones(4), 0.5, True)
tensor([0., 0., 2., 0.])

>>> _ = torch.manual_seed(0)
>>> torch.feature_dropout(torch.ones(1, 3, 2), 0.5, True)
tensor([[[0., 0.],
         [0., 0.],
         [2., 2.]]])

>>> _ = torch.manual_seed(0)
>>> torch.alpha_dropout(torch.zeros(4), 0.5, True)
tensor([-0.7792, -0.7792,  0.7792, -0.7792])

>>> _ = torch.manual_seed(0)
>>> torch.feature_alpha_dropout(torch.zeros(1, 3, 2), 0.5, True)
tensor([[[-0.7792, -0.7792],
         [-0.7792, -0.7792],
         [ 0.7792,  0.7792]]])

# copies of views

>>> torch.alias_copy(torch.tensor([1, 2]))
tensor([1, 2])

>>> torch.as_strided_copy(torch.arange(4), (2, 2), (1, 1))
tensor([[0, 1],
        [1, 2]])

>>> torch.detach_copy(torch.ones(2, requires_grad=True))
tensor([1., 1.])

>>> torch.diagonal_copy(torch.tensor([[1, 2], [3, 4]]))
tensor([1, 4])

>>> torch.expand_copy(torch.tensor([[1], [2]]), (2, 2)).stride()
(2, 1)

>>> torch.narrow_copy(torch.arange(5), 0, 1, 3)
tensor([1, 2, 3])

>>> torch.permute_copy(torch.zeros(2, 3, 4), (2, 0, 1)).shape
torch.Size([4, 2, 3])

>>> torch.select_copy(torch.tensor([[1, 2], [3, 4]]), 1, 0)
tensor([1, 3])

>>> torch.slice_copy(torch.arange(5), 0, 1, 5, 2)
tensor([1, 3])

>>> torch.split_copy(torch.arange(3), 2)
(tensor([0, 1]), tensor([2]))

>>> torch.split_with_sizes_copy(torch.arange(3), (1, 2))
(tensor([0]), tensor([1, 2]))

>>> torch.squeeze_copy(torch.zeros(1, 3)).shape
torch.Size([3])

>>> torch.t_copy(torch.tensor([[1, 2], [3, 4]]))
tensor([[1, 3],
        [2, 4]])

>>> torch.transpose_copy(torch.zeros(2, 3), 0, 1).shape
torch.Size([3, 2])

>>> torch.unbind_copy(torch.tensor([[1, 2], [3, 4]]))
(tensor([1, 2]), tensor([3, 4]))

>>> torch.unfold_copy(torch.arange(4), 0, 2, 1)
tensor([[0, 1],
        [1, 2],
        [2, 3]])

>>> torch.unsqueeze_copy(torch.tensor([1, 2]), 1)
tensor([[1],
        [2]])

>>> torch.view_copy(torch.arange(4), (2, 2))
tensor([[0, 1],
        [2, 3]])

>>> torch.view_as_complex_copy(torch.tensor([[1.0, 2.0]]))
tensor([1.+2.j])

>>> torch.view_as_real_copy(torch.tensor([1 + 2j]))
tensor([[1., 2.]])
"""


OUT_OF_RANGE = "Raises:\n    IndexError: If a dimension is out of range."


def rule(op: Op) -> str:
    """Returns what holds for all ops of a kind: a sentence or two, and sections."""
    if op.kind == "pointwise":
        sections = ""
        if sum(p.is_tensor for p in op.params) == 1:
            text = f"Elementwise: the result has the shape of `{op.params[0].name}`."
        else:
            text = "Elementwise: the arguments broadcast to one shape and one dtype."
            names = ", ".join(p.name for p in op.params if p.is_tensor)
            sections = (
                f"\n\nArgs:\n    {names}: of shapes that broadcast.\n\nRaises:\n    RuntimeError: If they do not."
            )
        return f"{text} Integers are converted to floating point.{sections}" if op.rule == "float" else text + sections
    if op.kind == "reduction":
        meant = "dim: one dimension, several, or None for all.", "keepdim: whether they are kept, with size 1."
        return f"Args:\n    {meant[0]}\n    {meant[1]}\n\n{OUT_OF_RANGE}"
    return OUT_OF_RANGE if "dim" in op.signature else ""


def complete() -> None:
    """Adds the rules and examples to the docstrings of the functions."""
    for op in OPS.values():
        function = op.compiled.call
        if "\n    " in op.doc:
            function.__doc__ = function.__doc__.replace("\n    ", "\n")  # dedent as help() does with other docstrings
        elif op.doc and ">>>" not in op.doc:
            text, _, error = function.__doc__.removeprefix("special_").partition(" Raises ")
            text = f"{text}\n\n{rule(op)}".rstrip()
            if error:  # a sentence of the row becomes a line of the section
                kind, _, when = error.strip().partition(" ")
                text += ("" if "Raises:" in text else "\n\nRaises:") + f"\n    {kind}: {when[0].upper()}{when[1:]}"
            function.__doc__ = text
    for example in EXAMPLES.strip().split("\n\n"):
        called = re.match(r" torch\.(special\.)?(\w+)", example.rpartition(">>>")[2])
        if called:  # otherwise it is a heading
            function = (SPECIAL if called[1] else FUNCTIONS)[called[2]]
            function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{example}"


complete()
