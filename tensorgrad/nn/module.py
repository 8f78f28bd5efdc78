"""The module: a tree of named parameters, buffers and submodules, and a function on tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from copy import copy
from types import FunctionType
from typing import Any, TypeVar

from tensorgrad.nn import module_hooks as hooks
from tensorgrad.nn.members import Members
from tensorgrad.nn.module_convert import Convertible, typename
from tensorgrad.nn.module_hooks import Hooked
from tensorgrad.nn.module_state import Stateful
from tensorgrad.nn.parameter import Buffer, Parameter
from tensorgrad.rows.switches import SLOW
from tensorgrad.system.registered import COMPILE_MODULE
from tensorgrad.tensor import Tensor

_TABLES = ("_parameters", "_buffers", "_modules")
# The entries of a PyTorch module's `__dict__`, in PyTorch's order, each with a function that makes it.
PYTORCHS_STATE: dict[str, Callable[[], Any]] = {
    "training": lambda: True, "_parameters": dict, "_buffers": dict, "_non_persistent_buffers_set": set,
    "_backward_pre_hooks": OrderedDict, "_backward_hooks": OrderedDict, "_is_full_backward_hook": lambda: None,
    "_forward_hooks": OrderedDict, "_forward_hooks_with_kwargs": OrderedDict,
    "_forward_hooks_always_called": OrderedDict, "_forward_pre_hooks": OrderedDict,
    "_forward_pre_hooks_with_kwargs": OrderedDict, "_state_dict_hooks": OrderedDict,
    "_state_dict_pre_hooks": OrderedDict, "_load_state_dict_pre_hooks": OrderedDict,
    "_load_state_dict_post_hooks": OrderedDict, "_modules": dict,
}  # fmt: skip
_Destination = TypeVar("_Destination", bound=dict[str, Any])


class Module(Hooked, Stateful, Convertible):
    """Base class of everything that has parameters: layers, losses, whole models.

    A subclass calls `super().__init__()`, assigns its parameters (`tensorgrad.nn.Parameter`) and submodules
    as attributes, which registers them, and defines `forward`. Call the instance, `model(x)`, rather than its
    `forward`, so that hooks run.

    >>> from tensorgrad import nn
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = nn.Linear(2, 8)
    ...         self.out = nn.Linear(8, 1)
    ...
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> model = Model()
    >>> model(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    >>> [name for name, _ in model.named_parameters()]
    ['hidden.weight', 'hidden.bias', 'out.weight', 'out.bias']
    """

    call_super_init = False
    dump_patches = False
    T_destination = _Destination
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    def __init_subclass__(cls, **options: Any) -> None:
        """A layer of this library may share its `__init__` with others, through a private base class. It gets a copy
        under its own name: Python tells that name if an argument is missing or unknown."""
        super().__init_subclass__(**options)
        init: Any = cls.__init__
        if cls.__module__.startswith("tensorgrad.nn.") and init.__qualname__[0] == "_" and "__init__" not in vars(cls):
            own = FunctionType(init.__code__, init.__globals__, "__init__", init.__defaults__, init.__closure__)
            own.__kwdefaults__, own.__annotations__ = init.__kwdefaults__, init.__annotations__
            own.__qualname__ = f"{cls.__qualname__}.__init__"
            cls.__init__ = own

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                name = next(iter(kwargs))
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{name}'")
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        put = object.__setattr__
        put(self, "training", True)
        put(self, "_parameters", Members.of(self))
        put(self, "_buffers", Members.of(self))
        put(self, "_non_persistent_buffers_set", set())
        put(self, "_modules", Members.of(self))
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # --- the call ---

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:
            return self._call_impl(*args, **kwargs)
        if kwargs:
            return self.forward(*args, **kwargs)
        if len(args) == 1:  # the usual case: Python calls a function with a fixed number of arguments for less
            return self.forward(args[0])
        return self.forward(*args)

    def compile(self, *args: Any, **options: Any) -> None:
        """Has calls of this module run by plans where possible: see `torch.compile`, whose options it takes."""
        COMPILE_MODULE[0](self, *args, **options)

    def _call_eagerly(self, *args: Any, **kwargs: Any) -> Any:
        """The call, without plans of this module."""
        return hooks.call(self, args, kwargs)

    def _forward_unimplemented(self, *input: Any) -> Any:
        """Computes the module's result. Every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    forward: Callable[..., Any] = _forward_unimplemented

    # --- members ---

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, as assigning it to `self.<name>` does; `None` reserves the name without a parameter.

        Raises:
            KeyError: the name is empty, contains a dot, or is taken by something that is not a parameter.
            TypeError: `param` is not a `Parameter`.
            ValueError: the parameter was computed from other tensors.
        """
        self._check_name("parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    f"explicitly. To express '{name}' as a function of another Tensor, compute the value in the "
                    "forward() method."
                )
            param = hooks.registered(hooks.on_parameter, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer: state that is not learned. `to` moves it; it is saved if `persistent`.

        Args:
            name: the attribute's name, without a dot.
            tensor: its value, of any shape; None if there is none yet.
            persistent: whether it is part of `state_dict`.

        Raises:
            KeyError: the name is empty, contains a dot, or is taken by something that is not a buffer.
            TypeError: `tensor` is not a tensor.
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = hooks.registered(hooks.on_buffer, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule, as assigning it to `self.<name>` does; here the name may be any string without dots.

        Raises:
            TypeError: `module` is not a module.
            KeyError: the name is empty, contains a dot, or is taken by something that is not a module.
        """
        if not isinstance(module, Module) and module is not None:
            if isinstance(module, type) and issubclass(module, Module):
                raise TypeError(
                    f"{module.__module__}.{module.__name__} is not a Module subclass, but a class of modules: it is "
                    f"called with its arguments, such as {module.__name__}()"
                )
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, "_modules")
        self._modules[name] = hooks.registered(hooks.on_module, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    def _check_name(self, kind: str, name: str, table: str) -> None:
        if table not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if isinstance(value, Tensor):
            if isinstance(value, Parameter):
                if parameters is None:
                    raise AttributeError("cannot assign parameters before Module.__init__() call")
                if name not in parameters:
                    self._forget(name)
                self.register_parameter(name, value)
                return
        elif isinstance(value, Module) and (parameters is None or name not in parameters):
            if parameters is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name not in self._modules:
                self._forget(name)
            self._modules[name] = hooks.registered(hooks.on_module, self, name, value)
            return
        if parameters is None:
            if isinstance(value, Buffer):
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            object.__setattr__(self, name, value)
            if name == "__dict__":  # user code that clones a module
                Members.adopt(self, _TABLES)
        elif name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif name in self._modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            self._modules[name] = hooks.registered(hooks.on_module, self, name, None)
        elif name in self._buffers or isinstance(value, Buffer):
            self._set_buffer(name, value)
        elif name in _TABLES:
            self._replace_table(name, value)
        elif name == "__class__":
            object.__setattr__(self, name, value)
            for table in _TABLES:  # another class may read, or hide, other members
                self._replace_table(table, own[table])
        else:
            object.__setattr__(self, name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            persistent = value.persistent
        else:
            persistent = name not in self._non_persistent_buffers_set
        self.register_buffer(name, value, persistent)

    def _replace_table(self, table: str, members: dict) -> None:
        """Handles `module._parameters = {...}`: updates the mirrored attributes too."""
        old = self.__dict__[table]
        for name, value in old.items():
            if self.__dict__.get(name, self) is value:
                del self.__dict__[name]
        object.__setattr__(self, table, Members.of(self, members))

    def _forget(self, name: str) -> None:
        """Removes any member called `name`, so that a member of another kind can take the name."""
        for table in _TABLES:
            members = self.__dict__[table]
            if name in members:
                del members[name]
        self._non_persistent_buffers_set.discard(name)
        self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        # Reached only if the attribute is missing. The tables may still have it if only the mirror was removed.
        own = self.__dict__
        if type(own.get("_parameters")) is dict:  # from a pickle or a copy, by a class with its own __setstate__
            self._settle()
        for table in _TABLES:
            members = own.get(table)
            if members is not None and name in members:
                return members[name]
        hint = ""
        if name in ("save", "save_to_buffer"):  # methods of what torch.jit.script returns in PyTorch
            hint = " (torch.jit.trace(module, example) has it; or use torch.save(module.state_dict(), file))"
        # With `name` and `obj`, Python suggests similar attribute names.
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        for table in _TABLES:
            members = self.__dict__.get(table)
            if members is not None and name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> dict:
        return self.__dict__.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reduces as usual, but without the attributes that only mirror the tables' members."""
        made: Any = super().__reduce_ex__(protocol)
        if not isinstance(made, tuple) or len(made) < 3 or not isinstance(made[2], dict):
            return made
        state = made[2]
        state.pop("_compiled_call_impl", None)  # a copy is compiled anew, if at all
        tables = {table: dict(state[table]) for table in _TABLES if isinstance(state.get(table), Members)}
        mirrored = {name for table in tables.values() for name, v in table.items() if state.get(name, tables) is v}
        kept = {name: tables.get(name, value) for name, value in state.items() if name not in mirrored}
        return *made[:2], kept, *made[3:]

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._settle()

    def _replicate_for_data_parallel(self) -> Any:
        """Returns a copy that shares buffers and inner modules and has no parameters, as PyTorch does for each device.

        Modules override it to keep their caches apart.
        """
        replica = copy(self)
        for name in list(replica._parameters):
            delattr(replica, name)
        replica._is_replica = True
        return replica

    def _settle(self) -> None:
        """Adapts a `__dict__` that came from elsewhere, possibly from PyTorch, to this module."""
        own = self.__dict__
        for table in (*hooks.CALL_TABLES, *hooks.STATE_TABLES):
            if table in own and not own[table]:
                del own[table]  # __getattr__ makes it again when needed
        if any(table in own for table in hooks.CALL_TABLES):
            own["_hooked"] = True
        Members.adopt(self, _TABLES)

    # --- looking members up ---

    def get_submodule(self, target: str) -> Module:
        """Returns the submodule at a dotted path such as `"net.conv"`; the module itself for `""`.

        Raises:
            AttributeError: the path leads to nothing, or to something that is not a module.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at a dotted path. With `strict`, only an existing submodule can be replaced.

        Raises:
            ValueError: the path is empty, or `module` is not a module.
            AttributeError: the path leads through, or to, something that is not a module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        elif strict:
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Returns the parameter at a dotted path such as `"net.conv.weight"`.

        Raises:
            AttributeError: there is none.
        """
        owner, name = self._owner_of(target)
        parameter = getattr(owner, name)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        owner, name = self._owner_of(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return getattr(owner, name)

    def _owner_of(self, target: str) -> tuple[Module, str]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, name

    def _named_members(
        self, get_members_fn: Callable, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yields `(dotted name, parameter)` of this module and, if `recurse`, of its descendants.

        Shared parameters come once, unless `remove_duplicate` is False.

        Args:
            prefix: what the names begin with.
            recurse: whether parameters of descendants come, too.
            remove_duplicate: whether a shared parameter comes once, or under each of its names.
        """
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yields the parameters, each once.

        Args:
            recurse: whether those of all descendants come, too, or only the module's own.
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields `(dotted name, buffer)` of this module and, if `recurse`, of its descendants.

        Shared buffers come once, unless `remove_duplicate` is False.
        """
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields `(name, submodule)` for each direct submodule, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yields the direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields `(dotted name, module)` of this module, named `prefix`, and its descendants, parents first.

        Args:
            memo: modules that are left out; those that came are added.
            prefix: the name of this module, and what the others begin with.
            remove_duplicate: whether a shared module comes once, or under each of its names.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yields this module and its descendants, parents first, each once.

        Args:
            remove_duplicate: whether a shared module comes once, or in each of its places.
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    # --- changing the whole tree ---

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """Calls `fn` on every module of the tree, children first; returns `self`.

        Args:
            fn: a function of a module; its result is ignored.
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Any:
        """Switches the tree to training mode (dropout drops, batch norm uses the batch's statistics) or out of it.

        Args:
            mode: True for training, False for evaluation.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """The same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Sets `requires_grad` of all parameters: freezes or unfreezes the tree."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros.

        Args:
            set_to_none: whether `.grad` becomes None; if False, it is filled with zeros.
        """
        cls = type(self)
        if cls.parameters is Module.parameters and cls.named_parameters is Module.named_parameters:
            _zero_grad(self, set_to_none)  # faster, and most training loops run it in every step
        else:
            for parameter in self.parameters():
                clear_grad(parameter, set_to_none)

    # --- printing ---

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Returns the text between the parentheses of the module's `repr`; layers override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        if len(lines) == 1 and not self._modules:
            return f"{self._get_name()}({extra})"
        lines += [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        return f"{self._get_name()}(" + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")


Members.reader = Module.__getattr__


def indented(text: str) -> str:
    """Indents every line of `text` but the first by two spaces."""
    return text.replace("\n", "\n  ")


def _zero_grad(module: Module, set_to_none: bool) -> None:
    for parameter in module._parameters.values():
        if parameter is not None and (parameter._grad is not None or SLOW):
            clear_grad(parameter, set_to_none)
    for child in module._modules.values():
        if child is not None:
            _zero_grad(child, set_to_none)


def clear_grad(parameter: Tensor, set_to_none: bool) -> None:
    """Drops a tensor's gradient, or fills it with zeros outside of any graph."""
    if set_to_none:
        parameter.grad = None
        return
    grad = parameter._grad
    if grad is None:
        return
    if grad.grad_fn is not None:
        grad.detach_()
    else:
        grad.requires_grad_(False)
    grad.zero_()
