"""Comparisons, logic, bitwise ops, and selection by condition: `eq`, `isnan`, `logical_and`, `where`, `masked_fill`."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kernel_errors import check_broadcastable
from tensorgrad.dispatch.kinds import alias, composite, op, pointwise
from tensorgrad.dispatch.out import is_expanded, store_out
from tensorgrad.dispatch.promotion import is_number, plain_number
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_is_number, check_number, of_64_bits, typename, warn
from tensorgrad.ops.create import tensor
from tensorgrad.ops.pointwise import reflected
from tensorgrad.rows.switches import SLOW
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor

# --- comparisons ---------------------------------------------------------------------------------------------------

eq = pointwise("eq(input, other)", "equal", operator="eq", doc="Whether input == other, elementwise.")
ne = pointwise("ne(input, other)", "not_equal", operator="ne", doc="Whether input != other, elementwise.")
lt = pointwise("lt(input, other)", "pointwise.lt", operator="lt", doc="Whether input < other, elementwise.")
le = pointwise("le(input, other)", "pointwise.le", operator="le", doc="Whether input <= other, elementwise.")
gt = pointwise("gt(input, other)", "pointwise.gt", operator="gt", doc="Whether input > other, elementwise.")
ge = pointwise("ge(input, other)", "pointwise.ge", operator="ge", doc="Whether input >= other, elementwise.")

isnan = pointwise("isnan(input)", "pointwise.isnan", in_place=False, doc="Whether each element is NaN.")
isinf = pointwise("isinf(input)", "pointwise.isinf", in_place=False, doc="Whether each element is infinite.")
isfinite = pointwise("isfinite(input)", "pointwise.isfinite", in_place=False,
                     doc="Whether each element is finite (neither infinite nor NaN).")  # fmt: skip
signbit = pointwise("signbit(input)", "pointwise.signbit", in_place=False,
                    doc="Whether each element's sign bit is set, including that of -0.")  # fmt: skip


@composite()
def isposinf(input: Tensor, *, out=None) -> Tensor:
    """Returns a boolean tensor: whether each element is +∞.

    Raises:
        RuntimeError: If the tensor is complex.

    >>> torch.isposinf(torch.tensor([torch.inf, -torch.inf, 0.0]))
    tensor([ True, False, False])
    """
    return store_out("isposinf", out, eq(_real_only("isposinf", input), math.inf), (input,))


@composite()
def isneginf(input: Tensor, *, out=None) -> Tensor:
    """Returns a boolean tensor: whether each element is -∞.

    Raises:
        RuntimeError: If the tensor is complex.

    >>> torch.isneginf(torch.tensor([torch.inf, -torch.inf, 0.0]))
    tensor([False,  True, False])
    """
    return store_out("isneginf", out, eq(_real_only("isneginf", input), -math.inf), (input,))


def _real_only(name: str, input: Tensor) -> Tensor:
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} does not support complex inputs.")
    return input


@composite()
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Returns a boolean tensor: whether |input - other| <= atol + rtol · |other|, elementwise.

    Raises:
        RuntimeError: If the dtypes differ or a tolerance is negative.

    >>> torch.isclose(torch.tensor([1.0, 2.0]), torch.tensor([1.0 + 1e-9, 2.1]))
    tensor([ True, False])
    """
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{scalar_type(input)} did not match {scalar_type(other)}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    input, other = input.detach(), other.detach()
    close = eq(input, other)
    if equal_nan:
        close = close | (isnan(input) & isnan(other))
    if rtol == 0 and atol == 0:
        return close
    if input.dtype is dtypes.bool:
        input, other = input.to(dtypes.get_default_dtype()), other.to(dtypes.get_default_dtype())
    distance = (input - other).abs()
    return close | (isfinite(distance) & (distance <= (other * rtol).abs() + atol))


@composite()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Returns whether `isclose` holds for all elements.

    Args:
        other: a tensor that broadcasts with `input`, of the same dtype.
        rtol, atol: the largest difference is `atol + rtol · |other|`, for each element.
        equal_nan: whether NaN is close to NaN.

    >>> torch.allclose(torch.zeros(2), torch.full((2,), 1e-9))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@composite()
def equal(input: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors have the same shape and equal elements.

    >>> torch.equal(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]))
    True
    """
    return input._array.shape == other._array.shape and bool(eq(input.detach(), other.detach()).all())


# --- logic and bits ------------------------------------------------------------------------------------------------

logical_and = pointwise("logical_and(input, other)", "logical_and", numbers=(),
                        doc="Whether both elements are nonzero.")  # fmt: skip
logical_or = pointwise("logical_or(input, other)", "logical_or", numbers=(),
                       doc="Whether at least one of the elements is nonzero.")  # fmt: skip
logical_xor = pointwise("logical_xor(input, other)", "logical_xor", numbers=(),
                        doc="Whether exactly one of the elements is nonzero.")  # fmt: skip
logical_not = pointwise("logical_not(input)", "logical_not", doc="Whether each element is 0.")
bitwise_and = pointwise("bitwise_and(input, other)", "bitwise_and", numbers="all", operator="and",
                        doc="Bitwise AND of integers; logical AND of booleans.")  # fmt: skip
bitwise_or = pointwise("bitwise_or(input, other)", "bitwise_or", numbers="all", operator="or",
                       doc="Bitwise OR of integers; logical OR of booleans.")  # fmt: skip
bitwise_xor = pointwise("bitwise_xor(input, other)", "bitwise_xor", numbers="all", operator="xor",
                        doc="Bitwise XOR of integers; logical XOR of booleans.")  # fmt: skip
bitwise_not = pointwise("bitwise_not(input)", "invert", doc="Bitwise NOT of integers; logical NOT of booleans.")
bitwise_left_shift = pointwise("bitwise_left_shift(input, other)", "pointwise.left_shift", numbers="all",
                               operator="lshift",
                               doc="input · 2 ** other for integers; bits shifted out are dropped.")  # fmt: skip
bitwise_right_shift = pointwise("bitwise_right_shift(input, other)", "pointwise.right_shift", numbers="all",
                                operator="rshift", doc="⌊input / 2 ** other⌋ for integers.")  # fmt: skip


def _invert(self):
    """`~tensor`. Raises: TypeError unless the dtype is integer or boolean."""
    if self._array.dtype.kind not in "iub":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


Tensor.__invert__ = _invert
Tensor.__rand__, Tensor.__ror__, Tensor.__rxor__ = Tensor.__and__, Tensor.__or__, Tensor.__xor__
reflected("rlshift", bitwise_left_shift)
reflected("rrshift", bitwise_right_shift)
for _name, _row in (("iand", bitwise_and), ("ior", bitwise_or), ("ixor", bitwise_xor),
                    ("ilshift", bitwise_left_shift), ("irshift", bitwise_right_shift)):  # fmt: skip
    setattr(Tensor, f"__{_name}__", inplace.make(_row.op, operator=True))
Tensor.__hash__ = object.__hash__  # type: ignore  # == compares elements, so hash by identity

for _new, _function, _old in (
    ("greater", gt, "gt"), ("greater_equal", ge, "ge"), ("less", lt, "lt"), ("less_equal", le, "le"),
    ("not_equal", ne, "ne"),
):  # fmt: skip
    alias(_new, _function, in_place_of=_old)


# --- selection -----------------------------------------------------------------------------------------------------


def _prepare_where(condition, x, y):
    if condition.dtype is not dtypes.B1:
        if condition.dtype.kind != "b" and condition.dtype != np.uint8:
            raise RuntimeError(
                "where expected condition to be a boolean tensor, but got a tensor with dtype "
                f"{scalar_type(dtypes.from_numpy_dtype(condition.dtype))}"
            )
        condition = condition.astype(bool)
    if x.dtype is not y.dtype:
        target = dtypes.result_type_of((x, y)).numpy
        x, y = (v if v.dtype == target else v.astype(target) for v in (x, y))
    return condition, x, y


_where = op("where(condition, input, other)", "pointwise.where", batch="broadcast", linear="input + other", where=(),
            strides="operands",
            prepare=_prepare_where,
            shape=lambda condition, x, y: (np.broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype),
            input=lambda g, condition: g.masked_fill(condition == 0, 0),
            other=lambda g, condition: g.masked_fill(condition != 0, 0))  # fmt: skip


@composite("function")
def where(condition: Tensor, input=None, other=None, *, out=None):
    """Returns `input` where `condition` (boolean) is true, else `other`: tensors or numbers, broadcast together.

    With `condition` alone, returns the indices where it is true, one tensor per dimension.

    Args:
        condition: boolean.
        input, other: tensors or numbers, of dtypes that promote to one.

    Raises:
        RuntimeError: If `condition` is not boolean.

    >>> torch.where(torch.tensor([True, False]), torch.zeros(2), 1)
    tensor([0., 1.])
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if input.__class__ not in PLAIN or other.__class__ not in PLAIN:
        for i, value in ((2, input), (3, other)):
            if not (isinstance(value, Tensor) or is_number(value)):
                name, found = ("input", "other")[i - 2], typename(value)
                raise TypeError(f"where(): argument '{name}' (position {i}) must be Tensor or Number, not {found}")
            if value.__class__ is int:
                check_is_number(value, ("input", "other")[i - 2])
        input, other = _as_tensor(input, other, condition), _as_tensor(other, input, condition)
    return _where(condition, input, other, out=out)


def _as_tensor(value, partner, condition: Tensor):
    """Converts a number to a 0-dimensional tensor of the dtype that it and its partner promote to."""
    if isinstance(value, Tensor):
        return value
    value, partner = plain_number(value), plain_number(partner)
    number = partner._array if isinstance(partner, Tensor) else partner
    return tensor(value, dtype=dtypes.result_type_of((number, value)), device=condition.device)


@composite("method", name="where")
def _where_method(self: Tensor, condition: Tensor, other) -> Tensor:
    """Returns this tensor's elements where `condition` is true, else those of `other`.

    >>> x = torch.tensor([-1.0, 2.0])
    >>> x.where(x > 0, 0.0)
    tensor([0., 2.])
    """
    return where(condition, self, other)


def _prepare_masked_fill(x, mask, value):
    _check_mask(mask)
    return x, mask, value


def _check_mask(mask) -> None:
    if mask.dtype.kind != "b":
        words = {"int64": "long int", "int32": "int", "float32": "float", "float64": "double", "uint8": "unsigned char"}
        name = dtypes.from_numpy_dtype(mask.dtype).name
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {words.get(name, name)}")


_masked_fill = op("masked_fill(input, mask, value: number)", "pointwise.masked_fill", batch="broadcast", where=(),
                  strides="rows",
                  prepare=_prepare_masked_fill,
                  shape=lambda x, mask, value: (np.broadcast_shapes(x.shape, mask.shape), x.dtype),
                  input=lambda g, mask: g.masked_fill(mask, 0), linear="input + value")  # fmt: skip


@composite()
def masked_fill(input: Tensor, mask: Tensor, value) -> Tensor:
    """Returns `input` with `value` (a number or 0-dimensional tensor) where `mask` (boolean, broadcast) is true.

    Args:
        mask: boolean, of a shape that broadcasts with that of `input`.
        value: what is put where it is true.

    Raises:
        RuntimeError: If `mask` is not boolean, `value` is not 0-dimensional, or its category is above that of `input`.

    >>> torch.zeros(2).masked_fill(torch.tensor([True, False]), -1)
    tensor([-1.,  0.])
    """
    if isinstance(value, Tensor):
        if value.is_complex() and not input.is_complex():
            _checked_number(input, value.item())
        return _where(mask, _fill_value(value).to(input.dtype), input)
    return _masked_fill(input, mask, _checked_number(input, value))


def _fill_value(value: Tensor) -> Tensor:
    if value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    return value


def _checked_number(input: Tensor, value):
    if value.__class__ is int and not of_64_bits(value):
        raise OverflowError("int too big to convert")
    if value.__class__ not in dtypes.NUMBERS:
        check_is_number(value, "value")
    if value.__class__ is complex and input._array.dtype.kind != "c":
        if input.dtype is dtypes.bool:
            return bool(value)
        check_number(value, input.dtype)
        value = value.real
    return value


@composite("method")
def masked_fill_(self: Tensor, mask: Tensor, value) -> Tensor:
    """Writes `value` (a number or 0-dimensional tensor) in place where `mask` (boolean, broadcast) is true.

    Args:
        mask: boolean, of a shape that broadcasts to that of this tensor.
        value: what is written where it is true.
    """
    array = self._array
    xp = STORAGES[array.__class__].xp
    if (
        xp is None or SLOW or self.__class__ not in PLAIN or mask.__class__ not in PLAIN
        or value.__class__ not in dtypes.NUMBERS
        or inplace._tracked(self, ()) or array.__class__ is not mask._array.__class__
    ):  # fmt: skip
        return inplace.replace(self, masked_fill, (mask, value), {}, apart=False)
    _check_mask(mask._array)
    if 0 in array.strides and is_expanded(array):
        warn(
            "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
            "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar"
        )
    if mask._array.shape != array.shape:
        check_broadcastable((mask._array, array))
        if np.broadcast_shapes(mask._array.shape, array.shape) != array.shape:
            inplace.check_result(self, masked_fill(self, mask, value))
    if value.__class__ is not float or array.dtype.kind != "f":
        value = np.asarray(_checked_number(self, value)).astype(array.dtype)
    self._storage.bump()
    self._storage.guard(xp.copyto)(array, value, where=mask._array)
    return self
