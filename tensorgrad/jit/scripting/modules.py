"""What `torch.jit.script` returns: modules and functions with a program."""

from __future__ import annotations

import functools
import inspect
from typing import Any
from weakref import WeakKeyDictionary

from tensorgrad.jit.errors import Failure, outside
from tensorgrad.jit.functions import Function
from tensorgrad.jit.modules import RecursiveScriptModule
from tensorgrad.jit.objects import Class
from tensorgrad.jit.program import Program
from tensorgrad.jit.scripting.errors import NotWritable
from tensorgrad.jit.scripting.unit import ClassInfo, Signature, Unit, modifier
from tensorgrad.jit.scripting.values import Modules
from tensorgrad.jit.types import Mismatch, Type
from tensorgrad.nn import Module


def script_module(module: Module) -> RecursiveScriptModule:
    """Compiles a module. Raises: NotWritable, or an error that names the line of what is not TorchScript."""
    unit = Unit()
    info = unit.module(module)
    owner = Modules("self", module, info)
    for name in dir(type(module)):
        function = inspect.getattr_static(type(module), name)
        if inspect.isfunction(function) and modifier(function) == "export":
            unit.method(owner, name)
    if type(module).forward is not Module.forward:
        unit.method(owner, "forward")
    unit.hooks(owner)
    return _built(unit, unit.program(), module, {})


def _built(unit: Unit, program: Program, module: Module, made: dict[int, Any]) -> RecursiveScriptModule:
    """The module with its program. It shares its parameters and buffers with what was scripted."""
    if id(module) not in made:
        info: ClassInfo = unit.classes[id(module)]
        copy = made[id(module)] = RecursiveScriptModule(program, program.find(info.name))
        copy._parameters.update({n: p for n, p in module._parameters.items() if p is not None})
        copy._buffers.update({n: b for n, b in module._buffers.items() if b is not None})
        copy._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
        object.__setattr__(copy, "training", module.training)
        for name in info.attributes:
            copy._values[name] = _value(unit, program, copy._class.attributes[name], getattr(module, name), name)
        for name, inner in module._modules.items():
            if inner is not None:
                copy._modules[name] = _built(unit, program, inner, made)
    return made[id(module)]


_COMPILED: WeakKeyDictionary[type, Class] = WeakKeyDictionary()


def _compiled(cls: type) -> Class:
    """A class of Python as one of a program of its own: its objects are given to programs that know its interface."""
    if cls not in _COMPILED:
        unit = Unit()
        unit.type_of_class(cls)
        _COMPILED[cls] = unit.program().find(unit.classes[cls].name)
    return _COMPILED[cls]


Class.compiled = _compiled


def _value(unit: Unit, program: Program, kind: Type, value: Any, name: str) -> Any:
    """The value of an attribute in the program. Raises: NotWritable if it is not what its module declares."""
    try:
        info = unit.classes.get(type(value))
        if info is not None and not info.base:  # an object, which the program may know as an interface only
            value = program.find(info.name).accept(value)
        return kind.accept(value)
    except Mismatch:
        raise NotWritable(f"the attribute {name} is not a {kind}: {value!r:.80}") from None


class ScriptFunction:
    """A function with a program: what `torch.jit.script` returns for one.

    >>> @torch.jit.script
    ... def twice(x, n: int = 2):
    ...     return x * n
    >>> twice(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, function: Any) -> None:
        unit = Unit()
        signature = unit.function(function)
        name = unit.name(function, f"{function.__name__}_")
        parts = [
            f"{n}: {kind}" + ("" if default is None else f"={default}") for n, kind, default in signature.parameters
        ]
        given = ", ".join(n for n, _, _ in signature.parameters)
        info = unit.classes[self] = ClassInfo(name, "Module", None)  # what is saved: a module that calls the function
        info.module = Module()
        forward = info.methods["forward"] = Signature("forward", signature.parameters, signature.returns)
        forward.text = [
            f"def forward({', '.join([f'self: {name}', *parts])}) -> {signature.returns}:",
            f"  return {signature.name}({given})",
        ]
        program = unit.program()
        self._function: Function = program.find(signature.name)
        self._module = RecursiveScriptModule(program, program.find(name))
        functools.update_wrapper(self, function)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Writes a module that calls the function: see `torch.jit.save`."""
        self._module.save(f, _extra_files)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._function.name

    @property
    def code(self) -> str:
        """The text of its program."""
        return self._function.text

    @property
    def graph(self) -> str:
        """The same text: the program has no other form."""
        return self.code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        except Failure as failure:
            raise outside(failure) from failure.cause

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {self._function.declaration}>"
