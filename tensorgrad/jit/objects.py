"""The values of a program that are not plain data: its classes, their instances, enumerations, and named tuples."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tensorgrad.jit.declared import SCRIPTED
from tensorgrad.jit.types import Mismatch, Type

if TYPE_CHECKING:
    from tensorgrad.jit.functions import Function


class Class:
    """A class of a program.

    Attributes:
        name: `__torch__.package.Name`.
        base: what it derives from: "Module", "NamedTuple", "Enum", "Interface", "ModuleInterface", or "".
        attributes: the types of its attributes, in order; `texts` are these as the file writes them.
        parameters, buffers: which of them are.
        forward_pre_hooks, forward_hooks: which of its functions run before and after `forward`.
        constants: values that all instances share; the members of an enumeration.
        methods: its functions, by name.
        tuple: the class of named tuples that it is.
        compiled: makes one of a class of Python; scripting sets it.
    """

    compiled: Callable[[type], Class] | None = None

    def __init__(self, name: str, base: str) -> None:
        self.name, self.base = name, base
        self.attributes: dict[str, Type] = {}
        self.texts: dict[str, str] = {}
        self.parameters: list[str] = []
        self.buffers: list[str] = []
        self.forward_pre_hooks: list[str] = []
        self.forward_hooks: list[str] = []
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, Function] = {}
        self.tuple: Any = None

    @property
    def short(self) -> str:
        """The name without the modules that it is in."""
        return self.name.rpartition(".")[2]

    def make_tuple(self) -> None:
        """Makes the class of named tuples. Raises: ValueError if a field has a name that Python does not allow."""
        made: Any = namedtuple(self.short, list(self.attributes))  # type: ignore[misc]
        self.tuple = made

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a named tuple of values."""
        if self.tuple is None:
            raise TypeError(f"{self.name} is not called: its instances are made by __new__")
        return self.tuple(*args, **kwargs)

    def member(self, value: Any) -> EnumMember:
        """Returns the member of an enumeration that has a value. Raises: ValueError."""
        for found in self.constants.values():
            if isinstance(found, EnumMember) and type(found.value) is type(value) and found.value == value:
                return found
        raise ValueError(f"{self.name} has no member {value!r:.100}")

    def accept(self, value: Any) -> Any:
        """A value from Python as one of this class. Raises: Mismatch."""
        if self.tuple is not None:
            if not isinstance(value, tuple) or len(value) != len(self.attributes):
                raise Mismatch
            return self.tuple(*(kind.accept(v) for kind, v in zip(self.attributes.values(), value, strict=True)))
        if self.base == "Enum":
            name = getattr(value, "name", None)
            found = self.constants.get(name) if isinstance(name, str) else None
            if found is None:
                raise Mismatch
            return found
        return value if self.holds(value) else self._copied(value)

    def _copied(self, value: Any) -> Instance:
        """An object of Python as an instance, if it has the attributes that the class declares. Raises: Mismatch."""
        if isinstance(value, Scripted):
            raise Mismatch
        if self.base == "Interface" and type(value) in SCRIPTED and Class.compiled is not None:
            made = Class.compiled(type(value))._copied(value)
            if self.holds(made):
                return made
        if self.base or not (self.attributes or type(value).__name__ == self.short):
            raise Mismatch
        made = Instance(self)
        for name, kind in self.attributes.items():
            try:
                part = getattr(value, name)
            except AttributeError:
                raise Mismatch from None
            made._values[name] = kind.accept(part)
        return made

    def holds(self, value: Any) -> bool:
        """Whether a value is of this class."""
        if self.tuple is not None:
            return isinstance(value, self.tuple)
        if isinstance(value, EnumMember):
            return value.cls is self
        if self.base in ("Interface", "ModuleInterface"):
            return isinstance(value, Scripted) and all(name in value._class.methods for name in self.methods)
        return isinstance(value, Scripted) and value._class is self


class EnumMember:
    """A member of an enumeration."""

    __slots__ = ("cls", "name", "value")

    def __init__(self, cls: Class, name: str, value: Any) -> None:
        self.cls, self.name, self.value = cls, name, value

    def __repr__(self) -> str:
        return f"<{self.cls.short}.{self.name}: {self.value!r}>"

    def __deepcopy__(self, memo: Any) -> EnumMember:
        return self


class Scripted:
    """What has attributes and methods within a program: an instance of one of its classes, or a module."""

    _class: Class

    def _get(self, name: str) -> Any:
        """Returns an attribute, or a constant of the class. Raises: AttributeError."""
        raise NotImplementedError

    def _set(self, name: str, value: Any) -> None:
        """Sets an attribute that the class declares. Raises: AttributeError."""
        raise NotImplementedError

    def _method(self, name: str) -> Function:
        """Returns a function of the class. Raises: AttributeError."""
        found = self._class.methods.get(name)
        if found is None:
            self._lacks(name)
        return found

    def _lacks(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._class.name} has no attribute {name!r:.100}")


class Instance(Scripted):
    """An instance of a class of a program that is not a module. Its methods can be called from Python."""

    def __init__(self, cls: Class) -> None:
        self._class, self._values = cls, {}  # type: ignore[var-annotated]

    def _get(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        if name not in self._class.constants:
            self._lacks(name)
        return self._class.constants[name]

    def _set(self, name: str, value: Any) -> None:
        if name not in self._class.attributes:
            self._lacks(name)
        self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_class", "_values"):
            raise AttributeError(name)
        if name in self._class.methods:
            return self._class.methods[name].bound(self)
        return self._get(name)

    def __repr__(self) -> str:
        return f"<{self._class.name} object>"


def get(value: Any, name: str) -> Any:
    """`value.name` in a program. Raises: AttributeError: Python's own attributes do not exist there."""
    if isinstance(value, Scripted):
        return value._get(name)
    if isinstance(value, EnumMember) and name in ("name", "value"):
        return value.name if name == "name" else value.value
    if isinstance(value, tuple) and name in getattr(type(value), "_fields", ()):
        return value[type(value)._fields.index(name)]  # type: ignore[attr-defined]
    raise AttributeError(f"{type(value).__name__} has no attribute {name!r:.100}")
