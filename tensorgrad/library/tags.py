"""`torch.Tag`: what an operator's author says about it, for compilers. The tags are kept with the operator."""

from __future__ import annotations

import enum

__all__ = ["Tag"]


class Tag(enum.IntEnum):
    """A property of an operator, such as `Tag.pointwise`.

    >>> torch.Tag.pointwise
    <Tag.pointwise: 16>
    """

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    __str__ = enum.Enum.__str__
