"""What a name or expression of a source stands for while it is written as a program."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.jit.scripting.types import Type


class Typed(NamedTuple):
    """A value of the program: its text, and its type."""

    text: str
    type: Type


class Object(NamedTuple):
    """A thing of Python that is known when the program is written: a function, a module of Python, a constant."""

    value: Any


class Operator(NamedTuple):
    """An operator of programs that `torch.ops` does not have here."""

    name: str


class Method(NamedTuple):
    """A method of a value or module, which is called next."""

    owner: Any
    name: str


class Ranged(NamedTuple):
    """A `range`: the text of its arguments, and of its start and step."""

    text: str
    start: str
    step: str


class Items(NamedTuple):
    """What a loop goes over: several things side by side. A number counts."""

    parts: list[Any]


class Modules:
    """A module of the program, `self` or one inside of it.

    Attributes:
        text: how the program reaches it.
        module: the module. cls: its class in the program.
    """

    def __init__(self, text: str, module: Any, cls: Any) -> None:
        self.text, self.module, self.cls = text, module, cls

    @property
    def type(self) -> Type:
        """Its class as a type."""
        return Type("class", (), self.cls)

    def child(self, name: str) -> Modules:
        """A module inside of it."""
        text = f"{self.text}.{name}" if name.isidentifier() else f'getattr({self.text}, "{name}")'
        return Modules(text, self.module._modules[name], self.cls.children[name])

    def listed(self) -> list[Modules]:
        """The modules inside of it."""
        return [self.child(name) for name in self.module._modules]


class Test(NamedTuple):
    """A condition: its text, its value if it is known, and what it says of variables if it holds or does not.

    Its text is a variable (`named`) where it takes several lines: a reader does not see there what it says of others.
    """

    text: str
    static: bool | None = None
    if_true: tuple[tuple[str, Type], ...] = ()
    if_false: tuple[tuple[str, Type], ...] = ()
    named: bool = False
