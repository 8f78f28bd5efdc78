"""The classes of TorchScript modules: what `torch.jit.load` returns."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

from tensorgrad.jit.functions import Function
from tensorgrad.jit.objects import Class, Scripted
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor

if TYPE_CHECKING:
    from tensorgrad.jit.program import Program


class ScriptModule(Module):
    """A module of TorchScript. A class that derives from it is an ordinary module, until it is scripted.

    >>> class Double(torch.jit.ScriptModule):
    ...     @torch.jit.script_method
    ...     def forward(self, x):
    ...         return 2 * x
    >>> Double()(torch.ones(2)), isinstance(torch.nn.ReLU(), torch.jit.ScriptModule)
    (tensor([2., 2.]), False)
    """

    @property
    def original_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def save(self, f: Any, _extra_files: Any = None, **options: Any) -> None:
        """Writes the module as an archive of TorchScript: see `torch.jit.save`."""
        from tensorgrad.jit.write import write

        write(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """Returns the archive that `save` writes."""
        import io

        file = io.BytesIO()
        self.save(file, _extra_files)
        return file.getvalue()


class RecursiveScriptModule(Scripted, ScriptModule):
    """A module with a program: what `torch.jit.script` and `torch.jit.load` return, and all modules inside of it.

    It is used like the module that was saved: it is called, moved, trained, and its methods and attributes are those
    that were exported. `code` is the text of its `forward`.

    >>> isinstance(torch.jit.script(torch.nn.ReLU()), torch.jit.RecursiveScriptModule)
    True
    """

    _program: Program
    _values: dict[str, Any]

    def __init__(self, program: Program, cls: Class) -> None:
        super().__init__()
        put = object.__setattr__
        put(self, "_program", program)
        put(self, "_class", cls)
        put(self, "_values", {})
        for name in cls.forward_pre_hooks:
            self.register_forward_pre_hook(self._function(name))
        for name in cls.forward_hooks:
            self.register_forward_hook(self._function(name))

    # --- within the program ------------------------------------------------------------------------------------------

    def _get(self, name: str) -> Any:
        if name == "training":
            return self.training
        for table in (self._parameters, self._buffers, self._modules, self._values, self._class.constants):
            if name in table:
                return table[name]
        if name in self._class.methods:
            return self._class.methods[name].bound(self)
        self._lacks(name)

    def _set(self, name: str, value: Any) -> None:
        if name not in self._class.attributes:
            self._lacks(name)
        if name == "training":
            object.__setattr__(self, "training", bool(value))
        elif name in self._parameters:
            self._parameters[name] = value
        elif name in self._buffers:
            self._buffers[name] = value
        elif isinstance(value, Module):
            self._modules[name] = value
        else:
            self._values[name] = value

    def _fill(self, name: str, value: Any, parameters: dict[int, Parameter]) -> None:
        """Sets an attribute that an archive gives. `parameters`: those made so far, by the ids of their tensors."""
        if name in self._class.parameters and (value is None or isinstance(value, Tensor)):
            if value is not None:
                value = parameters.setdefault(id(value), Parameter(value.detach(), value.requires_grad))
            self._parameters[name] = value
        elif name in self._class.buffers and (value is None or isinstance(value, Tensor)):
            self._buffers[name] = value
        else:
            self._set(name, value)

    # --- from Python -------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program's `forward`."""
        return self._function("forward")(self, *args, **kwargs)

    def _function(self, name: str) -> Function:
        if name not in self._class.methods:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return self._class.methods[name]

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules", "_values"):
            if name in own.get(table, ()):
                return own[table][name]
        cls = own.get("_class")
        if cls is not None and not name.startswith("__"):
            if name in cls.constants:
                return cls.constants[name]
            if name in cls.methods:
                return cls.methods[name].bound(self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_values", ()):
            self._values[name] = self._class.attributes[name].accept(value)
        else:
            super().__setattr__(name, value)

    @property
    def original_name(self) -> str:
        """The name of the class that was saved."""
        return self._class.short

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return self._function("forward").text

    @property
    def graph(self) -> str:
        """The text of `forward`: there is no other form of the program."""
        return self.code

    inlined_graph = graph

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """The text of `forward`, and the constants that it refers to."""
        return self.code, {f"c{i}": value for i, value in enumerate(self._program.constants)}

    def _get_name(self) -> str:
        return "RecursiveScriptModule"

    def extra_repr(self) -> str:
        """The name of the class that was saved."""
        return f"original_name={self.original_name}"

    def __len__(self) -> int:
        if "__len__" not in self._class.methods:
            return len(self._modules)
        return self._function("__len__")(self)

    def __contains__(self, key: Any) -> bool:
        return self._function("__contains__")(self, key)

    def __getitem__(self, key: Any) -> Any:
        if "__getitem__" in self._class.methods:
            return self._function("__getitem__")(self, key)
        if isinstance(key, str):
            return self._modules[key]
        listed = list(self._modules.values())
        return listed[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values, *self._class.constants, *self._class.methods})

    def __deepcopy__(self, memo: dict[int, Any]) -> RecursiveScriptModule:
        made = type(self)(self._program, self._class)
        memo[id(self)] = made
        for table in ("_parameters", "_buffers", "_modules", "_values"):
            for name, value in getattr(self, table).items():
                getattr(made, table)[name] = deepcopy(value, memo)
        object.__setattr__(made, "training", self.training)
        return made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a module of TorchScript cannot be pickled: use torch.jit.save(module, file)")


class TracedModule(RecursiveScriptModule):
    """The type of submodules of traced modules. They have the state of what was traced, and no `forward`.

    >>> type(torch.jit.trace(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2))[0])
    <class 'tensorgrad.jit.modules.TracedModule'>
    """

    def _share(self, module: Module, children: dict[str, Any]) -> None:
        """Takes over the parameters and buffers of a module."""
        self._parameters.update(module._parameters)
        self._buffers.update(module._buffers)
        self._modules.update(children)
        self._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
        object.__setattr__(self, "training", module.training)

    def _get_name(self) -> str:
        return type(self).__name__


class TopLevelTracedModule(TracedModule):
    """What `torch.jit.trace` returns: it calls what was traced, and has its program, which `save` writes.

    It shares its parameters and buffers with the module that was traced.

    >>> traced = torch.jit.trace(torch.nn.ReLU(), torch.ones(2))
    >>> traced(torch.tensor([-1.0, 1.0, 2.0]))
    tensor([0., 1., 2.])
    >>> print(traced.code)
    def forward(self: __torch__.ReLU, input: Tensor) -> Tensor:
      _0 = torch.relu(input)
      return _0
    <BLANKLINE>
    """

    _traced: tuple[Any, str]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls what was traced."""
        return self._traced[0](*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = super().__deepcopy__(memo)
        object.__setattr__(made, "_traced", deepcopy(self._traced, memo))  # with the same copies of parameters
        return made

    def _apply(self, fn: Any, recurse: bool = True) -> TopLevelTracedModule:
        """Converts what was traced, and shares its parameters and buffers again."""
        if not isinstance(self._traced[0], Module):
            return self
        self._traced[0]._apply(fn, recurse)
        originals = dict(self._traced[0].named_modules())
        for path, module in self.named_modules():
            module._parameters.update(originals[path]._parameters)
            module._buffers.update(originals[path]._buffers)
        return self
