"""The functions of a program. Within it they are run; from Python they are called, which checks the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.jit.errors import Failure, outside
from tensorgrad.jit.types import Mismatch, Type


class Unset:
    """What a variable or parameter holds that has no value."""

    def __repr__(self) -> str:
        return "<no value>"


UNSET = Unset()


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str
    type: Type
    default: Any = UNSET


class Function:
    """A function of a program: `__torch__.package.name`, or a method of a class.

    Attributes:
        parameters: its parameters.
        returns: the type of its result, as the file writes it.
        text: its lines in the file.
        body: runs it on its variables, the first of which are the parameters; returns a tuple of the result, or None.
        variables: their number.
    """

    def __init__(self, name: str, parameters: list[Parameter], returns: str, text: str, method: bool = False) -> None:
        self.name, self.parameters, self.returns, self.text = name, parameters, returns, text
        self.method = method
        self.body: Callable[[list], Any] = lambda f: None
        self.variables = len(parameters)
        self.places = {p.name: i for i, p in enumerate(parameters)}

    def run(self, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        """Runs the function within a program: the types of its arguments are the writer's business."""
        parameters = self.parameters
        frame = [*args]
        if len(args) > len(parameters):
            raise TypeError(f"{self.name}() takes {len(parameters)} arguments, but {len(args)} were given")
        frame += [p.default for p in parameters[len(args) :]]
        if kwargs:
            for name, value in kwargs.items():
                if self.places.get(name, -1) < len(args):
                    raise TypeError(f"{self.name}() got an unexpected argument '{name}'")
                frame[self.places[name]] = value
        for value, parameter in zip(frame[len(args) :], parameters[len(args) :], strict=True):
            if value is UNSET:
                raise TypeError(f"{self.name}() is missing value for argument '{parameter.name}'")
        frame += [UNSET] * (self.variables - len(parameters))
        done = self.body(frame)
        return None if done is None else done[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function from Python."""
        checked = self._checked(args, kwargs)
        try:
            return self.run(checked)
        except Failure as failure:
            raise outside(failure) from failure.cause

    def bound(self, owner: Any) -> ScriptMethod:
        """Returns the function as a method of an object."""
        return ScriptMethod(self, owner)

    def _checked(self, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """The arguments as the program's values. Raises: RuntimeError."""
        name, parameters = self.name, self.parameters
        if len(args) > len(parameters):
            raise RuntimeError(
                f"{name}() expected at most {len(parameters)} argument(s) but received {len(args)} argument(s). "
                f"Declaration: {self.declaration}"
            )
        given = dict(zip((p.name for p in parameters), args, strict=False))
        for key, value in kwargs.items():
            if key not in self.places or key in given:
                raise RuntimeError(f"Unknown keyword argument '{key}' for operator '{name}'. {self.declaration}")
            given[key] = value
        checked = []
        for place, (key, kind, default) in enumerate(parameters):
            if key not in given:
                if default is UNSET:
                    raise RuntimeError(
                        f"{name}() is missing value for argument '{key}'. Declaration: {self.declaration}"
                    )
                checked.append(default)
                continue
            try:
                checked.append(kind.accept(given[key]))
            except Mismatch:
                raise RuntimeError(
                    f"{name}() Expected a value of type '{kind}' for argument '{key}' but instead found type "
                    f"'{type(given[key]).__name__}'.\nPosition: {place}\nValue: {given[key]!r:.300}\n"
                    f"Declaration: {self.declaration}"
                ) from None
        return tuple(checked)

    @property
    def declaration(self) -> str:
        """The name, parameters and result, in one line."""
        listed = ", ".join(
            f"{kind} {name}" + ("" if default is UNSET else f"={default!r:.50}")
            for name, kind, default in self.parameters
        )
        return f"{self.name}({listed}) -> {self.returns}"


class ScriptMethod:
    """A function of a program with the module that it belongs to: `loaded.forward`."""

    def __init__(self, function: Function, owner: Any) -> None:
        self.function, self.owner = function, owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(self.owner, *args, **kwargs)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    @property
    def code(self) -> str:
        """The function's text."""
        return self.function.text

    def __repr__(self) -> str:
        return f"<ScriptMethod {self.function.declaration}>"
