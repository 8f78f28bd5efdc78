"""`torch.TensorType`, `torch.ListType` and the like: classes of the types of programs, as PyTorch's core has them.

Programs compare the types that schemas and graphs name with these.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tensorgrad.jit.functions import ScriptMethod
from tensorgrad.jit.objects import Instance as ScriptObject

__all__ = [
    "AnyType", "BoolType", "ComplexType", "DeviceObjType", "DictType", "FloatType", "IntType", "JitType", "ListType",
    "NoneType", "NumberType", "OptionalType", "ScriptMethod", "ScriptObject", "StreamObjType", "StringType",
    "TensorType", "TupleType",
]  # fmt: skip


class JitType:
    """A type. Types are equal if they are written alike.

    Attributes:
        annotation_str: the type as an annotation of Python.
    """

    annotation_str: str
    _written: str

    def kind(self) -> str:
        """The name of its class."""
        return type(self).__name__

    def str(self) -> str:
        """The type as schemas write it."""
        return self._written

    def isSubtypeOf(self, other: JitType) -> bool:
        """Whether all values of this type are of another one, too."""
        if isinstance(other, AnyType):
            return True
        if isinstance(other, OptionalType):
            inner = other.getElementType()
            return isinstance(self, NoneType) or self == other or self.isSubtypeOf(inner)
        if isinstance(other, NumberType):
            return isinstance(self, NumberType | IntType | FloatType | ComplexType)
        return self == other

    def containedTypes(self) -> list[JitType]:
        """The types that it is made of."""
        return []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JitType) and self.annotation_str == other.annotation_str

    def __hash__(self) -> int:
        return hash(self.annotation_str)

    def __str__(self) -> str:  # type: ignore[valid-type]
        return self.annotation_str

    __repr__ = __str__


class _Plain(JitType):
    """A type that is not made of others: `get` returns it."""

    _only: ClassVar[Any] = None

    @classmethod
    def get(cls) -> Any:
        """Returns the type."""
        if "_only" not in vars(cls):
            cls._only = cls()
        return cls._only


class AnyType(_Plain):
    """Any value.

    >>> torch._C.IntType.get().isSubtypeOf(torch._C.AnyType.get())
    True
    """

    annotation_str = _written = "Any"


class BoolType(_Plain):
    """`bool`."""

    annotation_str = _written = "bool"


class ComplexType(_Plain):
    """`complex`."""

    annotation_str = _written = "complex"


class DeviceObjType(_Plain):
    """`torch.device`.

    >>> torch.DeviceObjType.get()
    Device
    """

    annotation_str = _written = "Device"


class FloatType(_Plain):
    """`float`.

    >>> torch._C.FloatType.get(), torch._C.FloatType.get().kind()
    (float, 'FloatType')
    """

    annotation_str = _written = "float"


class IntType(_Plain):
    """`int`."""

    annotation_str = _written = "int"


class NoneType(_Plain):
    """`None`."""

    annotation_str = _written = "NoneType"


class NumberType(_Plain):
    """A number: `int`, `float` or `complex`."""

    annotation_str, _written = "number", "Scalar"


class StreamObjType(_Plain):
    """`torch.Stream`."""

    annotation_str = _written = "Stream"


class StringType(_Plain):
    """`str`."""

    annotation_str = _written = "str"


class TensorType(_Plain):
    """`Tensor`.

    >>> torch._C.TensorType.get() == torch._C.ListType.ofTensors().getElementType()
    True
    """

    annotation_str = _written = "Tensor"

    @classmethod
    def getInferred(cls) -> TensorType:
        """Returns the type."""
        return cls.get()


class _Nested(JitType):
    """A type that is made of others: `_name` is that of its annotations, `_form` what schemas write."""

    _name: ClassVar[Any]
    _form: ClassVar[Any]

    def __init__(self, *parts: JitType) -> None:
        self._parts = parts

    @property
    def annotation_str(self) -> str:  # type: ignore[override]
        """The type as an annotation of Python."""
        return f"{self._name}[{', '.join(t.annotation_str for t in self._parts) or '()'}]"

    @property
    def _written(self) -> str:  # type: ignore[override]
        return self._form.format(", ".join(t._written for t in self._parts))

    def containedTypes(self) -> list[JitType]:
        """The types that it is made of."""
        return list(self._parts)


class _OfOne(_Nested):
    """A type that is made of another one."""

    def __init__(self, a: JitType) -> None:
        super().__init__(a)

    def getElementType(self) -> JitType:
        """The type that it is made of."""
        return self._parts[0]


class ListType(_OfOne):
    """A list.

    >>> torch._C.ListType.ofInts(), torch._C.ListType.ofInts().annotation_str
    (List[int], 'List[int]')
    """

    _name, _form = "List", "{}[]"

    @staticmethod
    def ofInts() -> ListType:
        """A list of integers."""
        return ListType(IntType.get())

    @staticmethod
    def ofTensors() -> ListType:
        """A list of tensors."""
        return ListType(TensorType.get())

    @staticmethod
    def ofFloats() -> ListType:
        """A list of floats."""
        return ListType(FloatType.get())

    @staticmethod
    def ofComplexDoubles() -> ListType:
        """A list of complex numbers."""
        return ListType(ComplexType.get())

    @staticmethod
    def ofBools() -> ListType:
        """A list of bools."""
        return ListType(BoolType.get())

    @staticmethod
    def ofStrings() -> ListType:
        """A list of strings."""
        return ListType(StringType.get())


class OptionalType(_OfOne):
    """A value or `None`."""

    _name, _form = "Optional", "{}?"

    @staticmethod
    def ofTensor() -> OptionalType:
        """A tensor or `None`."""
        return OptionalType(TensorType.get())


class TupleType(_Nested):
    """A tuple of values of certain types.

    >>> torch._C.TupleType([torch._C.IntType.get(), torch._C.TensorType.get()])
    Tuple[int, Tensor]
    """

    _name, _form = "Tuple", "({})"

    def __init__(self, a: list[JitType]) -> None:
        super().__init__(*a)

    def elements(self) -> list[JitType]:
        """The types of its elements."""
        return list(self._parts)


class DictType(_Nested):
    """A dictionary."""

    _name, _form = "Dict", "Dict({})"

    def __init__(self, key: JitType, value: JitType) -> None:
        super().__init__(key, value)

    def getKeyType(self) -> JitType:
        """The type of the keys."""
        return self._parts[0]

    def getValueType(self) -> JitType:
        """The type of the values."""
        return self._parts[1]
