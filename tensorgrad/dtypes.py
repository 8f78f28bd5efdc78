"""Element types: their names, limits and promotion rules.

A `dtype` is PyTorch's object (`torch.float32`); its `numpy` attribute is the dtype of the arrays.
Promotion is a lattice in three categories (integers < floating < complex), with two kinds of weak operands:
0-dimensional tensors and Python scalars change the result only when their *category* is higher.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np


class dtype:
    """An element type, such as `torch.float32`. There is exactly one object per type: compare with `is` or `==`.

    Attributes: `itemsize` (bytes), `is_floating_point`, `is_complex`, `is_signed`, `numpy` (the array's dtype).

    >>> torch.float16.itemsize, torch.float16.is_floating_point, torch.int64.is_signed
    (2, True, True)
    >>> torch.ones(1).dtype is torch.float32
    True
    """

    __slots__ = ("_numpy", "_signed", "category", "is_complex", "is_floating_point", "itemsize", "name")

    def __init__(self, name: str, itemsize: builtins.int, category: builtins.int):
        self.name, self.itemsize, self.category = name, itemsize, category
        self.is_floating_point = category == FLOATING or name.startswith("float4")
        self.is_complex = category == COMPLEX
        unsigned = name in ("bool", "float8_e8m0fnu") or name.startswith(("uint", "quint"))
        self._signed = None if name.startswith("bits") or "int4x2" in name or "int2x4" in name else not unsigned
        self._numpy = None if name in _OF_ML_DTYPES or name in _STORED or name in _BITS else np.dtype(name)

    @property
    def is_signed(self) -> builtins.bool:
        """Whether there are negative values. Raises: RuntimeError for types without a meaning, such as bits8."""
        if self._signed is None:
            quantized = self.name[0] == "q"
            raise RuntimeError(
                "isSignedType not supported for quantized types" if quantized else "Bits types are undefined"
            )
        return self._signed

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype.

        Raises:
            ImportError: For bfloat16, float8 types and complex32 if the package ml_dtypes does not have them.
        """
        if self._numpy is None:  # NumPy lacks it
            if self in QUANTIZED:
                raise RuntimeError(
                    f"{self}: integers that stand for other numbers have a scale and a zero point; such tensors are "
                    "made by quantize_per_tensor and quantize_per_channel"
                )
            if self in BITS:
                return _of_bits(self)
            try:
                import ml_dtypes

                made = getattr(ml_dtypes, self.name)
            except (ImportError, AttributeError) as error:
                newer = ", in a newer release than is installed" if isinstance(error, AttributeError) else ""
                raise ImportError(
                    f"{self} needs the package ml_dtypes{newer}: pip install '.[bfloat16]' (or ml_dtypes)"
                ) from None
            self._numpy = np.dtype(made)
            if self in FLOAT8 or self is complex32:
                for notice in ON_STORED:
                    notice()
            FROM_NUMPY[self._numpy] = self
        return self._numpy

    def to_real(self) -> dtype:
        """Returns the real type of a complex one, or the type itself."""
        return {"complex32": float16, "complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> dtype:
        """Returns the complex type whose parts can hold values of this type. Raises: RuntimeError if there is none."""
        if self in BITS:
            raise RuntimeError(f"Unknown Complex ScalarType for {SCALAR_TYPES[self.name]}")
        if self.name in ("float16", "complex32"):
            return complex32
        return complex128 if self.name in ("float64", "complex128") else complex64

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # in this module


BOOL, INTEGER, FLOATING, COMPLEX = range(4)
_FLOAT8_NAMES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_OF_ML_DTYPES = ("bfloat16", *_FLOAT8_NAMES, "complex32")
COMPLEX_KINDS = "cW"  # of arrays' dtypes: NumPy's complex numbers, and ml_dtypes' of half precision
_STORED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # the integers behind the quantized types
_BITS = {  # those that types of fewer than eight bits, or of bits without a meaning, are stored in
    **{f"{sign}int{n}": "uint8" for sign in ("u", "") for n in range(1, 8)},
    **dict.fromkeys(("bits1x8", "bits2x4", "bits4x2", "bits8", "float4_e2m1fn_x2", "quint4x2", "quint2x4"), "uint8"),
    "bits16": "uint16",
}

bool = dtype("bool", 1, BOOL)
uint8 = dtype("uint8", 1, INTEGER)
uint16 = dtype("uint16", 2, INTEGER)
uint32 = dtype("uint32", 4, INTEGER)
uint64 = dtype("uint64", 8, INTEGER)
int8 = dtype("int8", 1, INTEGER)
int16 = short = dtype("int16", 2, INTEGER)
int32 = int = dtype("int32", 4, INTEGER)
int64 = long = dtype("int64", 8, INTEGER)
float16 = half = dtype("float16", 2, FLOATING)
bfloat16 = dtype("bfloat16", 2, FLOATING)
float32 = float = dtype("float32", 4, FLOATING)
float64 = double = dtype("float64", 8, FLOATING)
complex32 = chalf = dtype("complex32", 4, COMPLEX)
complex64 = cfloat = dtype("complex64", 8, COMPLEX)
complex128 = cdouble = dtype("complex128", 16, COMPLEX)
HALF = (float16, bfloat16)  # of half precision

FLOAT8 = float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = tuple(
    dtype(name, 1, FLOATING) for name in _FLOAT8_NAMES
)  # to store values and convert them: they do not promote, and functions do not compute in them

QUANTIZED = qint8, quint8, qint32 = tuple(
    dtype(name, np.dtype(stored).itemsize, INTEGER) for name, stored in _STORED.items()
)  # integers that stand for other numbers (storage/quantized.py)

_IN_ORDER = (
    uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
    bits1x8, bits2x4, bits4x2, bits8, float4_e2m1fn_x2, quint4x2, quint2x4, bits16,
) = tuple(
    dtype(name, np.dtype(stored).itemsize, INTEGER) for name, stored in _BITS.items()
)  # fmt: skip
BITS = frozenset(_IN_ORDER)  # to store bytes that libraries interpret: they are viewed and moved, and not converted


def _of_bits(kind: dtype) -> np.dtype:
    """The dtype of arrays of such a type: a structure of one field, in which nothing computes."""
    made = kind._numpy = np.dtype([(kind.name, _BITS[kind.name])])
    FROM_NUMPY[made] = kind
    for notice in ON_STORED:
        notice()
    return made


def _refuse(cls, *args, **kwargs):
    raise TypeError("cannot create 'torch.dtype' instances")


dtype.__new__ = _refuse  # all of them exist now

ON_STORED: list = []  # called when a type that only stores values is used (dispatch/stored_types.py)

WIDE_UNSIGNED = (uint16, uint32, uint64)  # they do not promote with other integers
ALL = (
    bool, uint8, *WIDE_UNSIGNED, int8, int16, int32, int64, float16, bfloat16, float32, float64,
    complex32, complex64, complex128,
)  # fmt: skip
SCALAR_TYPES = {  # PyTorch's scalar type names, used in messages and in `FloatTensor`
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "float16": "Half", "bfloat16": "BFloat16",
    "float32": "Float", "float64": "Double",
    "complex32": "ComplexHalf", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
C_TYPES = {  # their C++ names, used in other messages
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int",
    "int64": "long int", "uint16": "short unsigned int", "uint32": "unsigned int", "uint64": "long unsigned int",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
SCALAR_TYPES |= {name: name.capitalize() for name in _FLOAT8_NAMES}
C_TYPES |= {name: f"c10::{name.capitalize()}" for name in _FLOAT8_NAMES}
SCALAR_TYPES |= {name: name.replace("quint", "QUInt").replace("qint", "QInt") for name in _STORED}
SCALAR_TYPES |= {
    name: name.replace("uint", "UInt").replace("q", "Q") if "uint" in name else name.capitalize() for name in _BITS
}
C_TYPES |= {name: f"c10::{name}" for name in (*_STORED, *_BITS)}
BY_NAME = {d.name: d for d in (*ALL, *FLOAT8, *QUANTIZED, *_IN_ORDER)}
FROM_NUMPY = {d._numpy: d for d in ALL if d._numpy is not None}
# The dtype of their arrays: NumPy's of a structure whose only field says which they are.
OF_QUANTIZED = {d: np.dtype([(d.name, _STORED[d.name])]) for d in QUANTIZED}
FROM_NUMPY |= {array_dtype: d for d, array_dtype in OF_QUANTIZED.items()}
# The Python scalar types; their exact dtype depends on the default dtype.
NUMBERS = frozenset({True.__class__, (1).__class__, (1.0).__class__, (1j).__class__})

F32, F64, I64, B1 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64"), np.dtype("bool")


def scalar_type(of: Any) -> str:
    """Returns PyTorch's scalar type name of a tensor, array or dtype, as its messages use it: `Float`, `Long`.

    >>> from tensorgrad import dtypes
    >>> dtypes.scalar_type(dtypes.int64)
    'Long'
    """
    return SCALAR_TYPES[getattr(of, "dtype", of).name]


def c_type(of: Any) -> str:
    """Returns the C++ name of the type, as other messages use it: `float`, `long int`.

    >>> from tensorgrad import dtypes
    >>> dtypes.c_type(dtypes.int64)
    'long int'
    """
    return C_TYPES[getattr(of, "dtype", of).name]


def _by_name(name: str) -> dtype:
    return BY_NAME[name]  # for pickles of earlier versions


def as_dtype(given, name: str = "") -> dtype:
    """Returns a dtype, also for Python's `float`, `int`, `bool` and `complex`.

    Raises: TypeError for anything else, naming the argument `dtype` of the function `name`.
    """
    if isinstance(given, dtype):
        return given
    if isinstance(given, type) and given in NUMBERS:
        return {"bool": bool, "int": int64, "float": float64, "complex": complex128}[given.__name__]
    raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(given).__name__}")


def from_numpy_dtype(np_dtype) -> dtype:
    """Returns the `dtype` of an array's element type.

    Raises: TypeError for types that tensors cannot hold (strings, objects, dates, ...).
    """
    found = FROM_NUMPY.get(np_dtype)
    if found is None:
        np_dtype = np.dtype(np_dtype)
        if np_dtype.name in _OF_ML_DTYPES:
            BY_NAME[np_dtype.name].numpy  # noqa: B018  registers itself
        found = FROM_NUMPY.get(np_dtype.newbyteorder("="))
        if found is None:
            raise TypeError(
                f"can't convert np.ndarray of type {np_dtype.type.__module__}.{np_dtype.type.__name__}. The only "
                "supported types are: float64, float32, float16, complex64, complex128, int64, int32, int16, int8, "
                "uint64, uint32, uint16, uint8, and bool."
            )
    return found


# --- the default dtype -------------------------------------------------------------------------------------------


class _Default:
    """The dtypes of Python scalars: set by `set_default_dtype`, once per process as in PyTorch."""

    def __init__(self) -> None:
        self.floating: dtype = float32
        self.complex: dtype = complex64


DEFAULT = _Default()


def get_default_dtype() -> dtype:
    """Returns the dtype of tensors created from Python floats; `torch.float32` unless changed.

    >>> torch.get_default_dtype()
    torch.float32
    """
    return DEFAULT.floating


def set_default_dtype(d: dtype) -> None:
    """Sets the dtype of tensors created from Python floats, and the matching complex dtype for complex scalars.

    Raises:
        TypeError: If `d` is not a floating-point dtype.

    >>> torch.set_default_dtype(torch.float64)
    >>> torch.tensor(1.5).dtype
    torch.float64
    >>> torch.set_default_dtype(torch.float32)
    """
    if d in FLOAT8 or d is float4_e2m1fn_x2:
        raise TypeError(f"couldn't find storage object {SCALAR_TYPES[d.name]}Storage")
    if d.__class__ is not dtype or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    DEFAULT.floating, DEFAULT.complex = d, d.to_complex()


def of_number(value) -> dtype:
    """Returns the dtype of a Python scalar."""
    if value.__class__ is True.__class__:
        return bool
    if isinstance(value, (1).__class__):
        return int64
    return DEFAULT.complex if isinstance(value, (1j).__class__) else DEFAULT.floating


# --- promotion ---------------------------------------------------------------------------------------------------


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a.category > b.category:
        a, b = b, a  # b has the higher category, or the same one
    if b.category == COMPLEX:
        return b if a.category < FLOATING else _promote(a.to_real(), b.to_real()).to_complex()
    if b.category > a.category:
        return b
    if b.category == FLOATING:
        if a.itemsize == b.itemsize:  # float16 with bfloat16: neither can represent the other
            return float32
        return a if a.itemsize > b.itemsize else b
    if uint8 in (a, b):  # an unsigned byte needs a signed type wider than itself
        other = b if a is uint8 else a
        return other if other.itemsize > 1 else int16
    return a if a.itemsize > b.itemsize else b


class _Promotion(dict):
    def __missing__(self, pair):
        meant = tuple(as_dtype(given, "promote_types") for given in pair)
        if meant in self:
            return self[meant]
        if any(d in FLOAT8 for d in meant):
            raise RuntimeError(
                "Promotion for Float8 Types is not supported, attempted to promote "
                f"{' and '.join(SCALAR_TYPES[d.name] for d in meant)}"
            )
        if any(d in BITS for d in meant):
            raise RuntimeError(f"Promotion from {' and '.join(SCALAR_TYPES[d.name] for d in meant)} is unsupported.")
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{' and '.join(SCALAR_TYPES[d.name] for d in meant)}"
        )


PROMOTION = _Promotion(
    ((a, b), _promote(a, b))
    for a in ALL
    for b in ALL
    if a is b or not any(x in WIDE_UNSIGNED and not y.is_floating_point for x, y in ((a, b), (b, a)))
)


PROMOTION.update(((d, d), d) for d in (*FLOAT8, *BITS))


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """Returns the smallest dtype to which both `type1` and `type2` can be converted.

    Args:
        type1, type2: two dtypes.

    Raises:
        RuntimeError: For uint16, uint32 or uint64 with anything but itself and floating-point types.

    >>> torch.promote_types(torch.uint8, torch.int8)
    torch.int16
    """
    return PROMOTION[type1, type2]


def can_cast(from_: dtype, to: dtype) -> builtins.bool:
    """Returns whether PyTorch's casting rules allow storing a result of type `from_` as `to`.

    The category may not decrease: complex to real, floating to integer and anything to bool are not allowed.

    >>> torch.can_cast(torch.double, torch.float), torch.can_cast(torch.float, torch.int)
    (True, False)
    """
    source, target = as_dtype(from_, "can_cast"), as_dtype(to, "can_cast")
    return source.category <= target.category or (target in BITS and not source.is_complex)


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """Promotes a stronger group of operands with a weaker one, which matters only if its category is higher."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    return lower if lower.category > higher.category else higher


def result_type_of(operands) -> dtype:
    """Returns the result dtype of `operands`: arrays (anything with `.dtype` and `.ndim`) and Python scalars."""
    strong = weak = number = None
    for x in operands:
        if x.__class__ in NUMBERS:
            d = of_number(x)
            number = d if number is None else PROMOTION[number, d]
        else:
            d = from_numpy_dtype(x.dtype)
            if x.ndim:
                strong = d if strong is None else PROMOTION[strong, d]
            else:
                weak = d if weak is None else PROMOTION[weak, d]
    return _combine(strong, _combine(weak, number))  # type: ignore[return-value]


def to_floating(d: dtype) -> dtype:
    """Returns the dtype in which a real-valued function (exp, sqrt, mean) of `d` is computed."""
    return d if d.category >= FLOATING or d in QUANTIZED else DEFAULT.floating


# --- limits ------------------------------------------------------------------------------------------------------

# Of the types that NumPy lacks, as PyTorch has them: eps, max, min, tiny, resolution. Programs ask for these without
# using the types.
_LIMITS = {
    "bfloat16": (2**-7, (2 - 2**-7) * 2**127, -(2 - 2**-7) * 2**127, 2**-126, 0.01),
    "float8_e4m3fn": (2**-3, 448, -448, 2**-6, 1),
    "float8_e4m3fnuz": (2**-3, 240, -240, 2**-7, 1),
    "float8_e5m2": (2**-2, 57344, -57344, 2**-14, 1),
    "float8_e5m2fnuz": (2**-3, 57344, -57344, 2**-15, 1),
    "float8_e8m0fnu": (1, 2**127, 2**-127, 2**-127, 1),
}


class finfo:
    """Numerical limits of a floating-point dtype: `bits eps max min tiny smallest_normal resolution`.

    For a complex dtype these are the limits of its real part.

    Raises:
        TypeError: For integer dtypes.

    >>> torch.finfo(torch.float32).eps
    1.1920928955078125e-07
    """

    def __init__(self, type: dtype | None = None):
        d = as_dtype(type or DEFAULT.floating, "finfo").to_real()
        if not d.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d!r}'")
        if d in BITS:
            raise NotImplementedError(f"\"max\" not implemented for '{SCALAR_TYPES[d.name]}'")
        if d.name in _LIMITS:
            limits = _LIMITS[d.name]
        else:
            info = np.finfo(d.numpy)
            limits = (info.eps, info.max, info.min, info.smallest_normal, 10.0**-info.precision)
        self.dtype, self.bits = d.name, d.itemsize * 8
        self.eps, self.max, self.min, self.tiny, self.resolution = map((1.0).__class__, limits)
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        fields = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{f}={getattr(self, f):g}' for f in fields)}, dtype={self.dtype})"


class iinfo:
    """Numerical limits of an integer dtype: `bits min max`.

    Raises:
        TypeError: For other dtypes.

    >>> torch.iinfo(torch.int8).max
    127
    """

    def __init__(self, type: dtype):
        type = as_dtype(type, "iinfo")
        if type.category != INTEGER or type in BITS:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type!r}'")
        info = np.iinfo(type.numpy)
        self.dtype, self.bits = type.name, type.itemsize * 8
        self.min, self.max = (1).__class__(info.min), (1).__class__(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
