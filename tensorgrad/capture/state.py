"""The state of the program that a region may have read: everything its code can reach by the names in it.

A walk starts at the function, its arguments, and the globals and closures of the code that ran (capture/watch.py), and
follows attributes that this code names, containers, modules and optimizers. It ends at values that cannot change, and
at what it does not know, which refuses the plan. `State.same()` says whether all of it is as it was found.
"""

from __future__ import annotations

import builtins
import enum
import functools
import gc
import sys
import types
from collections import deque
from collections.abc import Iterable
from dis import get_instructions
from operator import is_
from typing import Any

import numpy as np

from tensorgrad.capture.guards import ABSENT, state_check
from tensorgrad.capture.history import Refused
from tensorgrad.capture.running import modes_of_process
from tensorgrad.capture.watch import Watch
from tensorgrad.devices import device as Device
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.layouts import layout, memory_format
from tensorgrad.nn import Module
from tensorgrad.nn.module_hooks import CALL_TABLES, hooked
from tensorgrad.optim.elementwise import Elementwise
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.random.generator import Generator
from tensorgrad.tensor import PLAIN, Tensor

LIMIT = 20_000  # objects that a walk may reach

_SCALARS = (int, float, complex, bool, str, bytes, type(None))
_LEAVES = (
    *_SCALARS, Dtype, Device, layout, memory_format, type(...), type(NotImplemented), range, np.dtype, np.generic,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, Generator, enum.Enum,
    np.ufunc, types.GenericAlias, types.UnionType, types.CodeType, slice,
)  # fmt: skip
# What classes have in their dictionaries that runs code.
_CODE = (
    types.FunctionType, staticmethod, classmethod, property, functools.partial, functools.partialmethod,
    functools.cached_property,
)  # fmt: skip
_OF_EVERY_CLASS = frozenset(
    ("__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__orig_bases__", "__parameters__",
     "__abstractmethods__", "__slots__", "__qualname__", "__match_args__", "__dataclass_fields__",
     "__dataclass_params__", "__static_attributes__", "__firstlineno__", "__type_params__", "__annotate_func__")
)  # fmt: skip
_OF_MODULES = ("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *CALL_TABLES)
_OF_STEPS = ("_settings", "_scratch", "_opt_called", "_step_count")  # what an optimizer keeps for itself
_OF_CLASSES = (
    "forward",
    "__call__",
    "step",
    "zero_grad",
    "_hooked",
)  # what plans do not notice but here, of this library
_HEAP_TYPE = 1 << 9  # the flag of classes whose attributes, and whose objects' classes, can be set
_HOOK_TABLES = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class _Plain:
    pass


class Region:
    """What calls a function by plans: a walk looks at the function."""

    function: Any


class State:
    """What was found, and how to find out whether it still is so.

    Attributes:
        tensors: the tensors that were reached, by id.
        optimizers, generators: likewise.
    """

    gradients_count = True  # whether it matters which tensors have a gradient

    def __init__(self, roots: Iterable[Any], watch: Watch) -> None:
        """Raises: Refused if something is reached whose state is not understood."""
        self.tensors: dict[int, Tensor] = {}
        self.optimizers: list[Any] = []
        self.generators: list[Any] = []
        self.functions: set[types.CodeType] = set()
        self._classes: set[type] = set()
        # (dictionary or class, its keys or None, names, values found by these names, what it is)
        self._dicts: list[tuple[Any, Any, tuple, tuple, str]] = []
        self._orders: list[tuple[dict, tuple]] = []  # dictionaries whose order the program may see, and their keys
        self._lists: list[tuple[Any, tuple, str]] = []
        self._sets: list[tuple[Any, tuple, str]] = []
        self._cells: list[tuple[Any, Any, str]] = []
        self._functions: list[tuple[Any, Any, Any, Any, str]] = []
        # (object, name, what it has by this name, what it is): what an object can be given another of, beside items
        self._references: list[tuple[Any, str, Any, str]] = []
        self._held: list[tuple[Tensor, Any, Any, bool, str]] = []
        self._seen: dict[int, Any] = {}
        self._waiting: deque[tuple[Any, str]] = deque()
        self._codes = watch.codes
        self._any_name = watch.any_name
        self._hooks_count = watch.differentiates  # hooks of leaves run in backward passes
        self._names = _names_in(self._codes)
        self._misses = watch.any_name or any(map(_handles_errors, self._codes))  # may a name that is missing count?
        for i, root in enumerate(roots):
            self._reach(root, "the function" if i == 0 else "an argument")
        self._reach(Tensor, "Tensor")
        self._walk()
        for code, scope in self._codes.items():
            self._globals(code, scope)
        self._walk()
        self._remaining()
        self._merge()
        self._quick: Any = None
        del self._seen, self._codes

    # --- the walk ---

    def _reach(self, value: Any, where: str) -> None:
        if value.__class__ in _SCALARS or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if len(self._seen) > LIMIT:
            raise Refused(f"more than {LIMIT} objects can be reached from it")
        self._waiting.append((value, where))

    def _walk(self) -> None:
        while self._waiting:
            value, where = self._waiting.popleft()
            self._visit(value, where)

    def _remaining(self) -> None:
        """Reaches functions that ran and were not found: they came from somewhere else, and may be anywhere."""
        inner = {c for code in self._codes for c in code.co_consts if isinstance(c, types.CodeType)}
        while True:
            left = [c for c in self._codes if c not in self.functions and c not in inner and c.co_name != "<module>"]
            if not left:
                return
            for code in left:
                found = [f for f in gc.get_referrers(code) if isinstance(f, types.FunctionType)]
                self.functions.add(code)
                if not found and code.co_freevars:
                    raise Refused(f"the function {code.co_name}, which ran, is not found any more")
                for function in found:
                    self._reach(function, code.co_name)
            self._walk()

    def _globals(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        """The globals that code names; and modules that it imports itself."""
        self._by_name(scope, code.co_names, f"the global variables of {code.co_name}", keys=False)
        for name in code.co_names:
            if name not in scope and name in builtins.__dict__:
                self._by_name(builtins.__dict__, [name], "the builtins", keys=False)
        self._by_name(sys.modules, _imported(code, scope), "the imported modules", keys=False)

    def _by_name(self, scope: Any, names: Iterable[str], where: str, keys: bool) -> None:
        """What a dictionary has by these names, and (`keys`) that it has no other keys than now."""
        names = tuple(names)
        values = tuple([scope.get(n, ABSENT) for n in names])
        self._dicts.append((scope, tuple(scope) if keys else None, names, values, where))
        for name, value in zip(names, values, strict=True):
            self._reach(value, f"'{name}' of {where}")

    def _relevant(self, scope: Any) -> list[str]:
        """What the program's code names; and what it ran without a name, as `forward`, which a module's call names."""
        return list(scope) if self._any_name else [n for n, v in scope.items() if n in self._names or self._ran(v)]

    def _ran(self, value: Any) -> bool:
        cls = type(value)
        if cls is types.FunctionType:
            return value.__code__ in self._codes
        if cls in (types.MethodType, staticmethod, classmethod):
            return self._ran(value.__func__)
        return cls is property and any(map(self._ran, (value.fget, value.fset, value.fdel)))

    def _visit(self, value: Any, where: str) -> None:
        if isinstance(value, types.ModuleType):
            vars(value)  # one that has not run yet runs now, and has another class then
        cls = value.__class__
        if value is ABSENT or isinstance(value, _LEAVES):
            return
        if type(value).__flags__ & _HEAP_TYPE and not (isinstance(value, types.ModuleType) and not _of_program(value)):
            self._references.append((value, "__class__", type(value), f"the class of {where}"))
        if isinstance(value, Tensor):
            self._tensor(value, where)
        elif isinstance(value, types.FunctionType):
            self._function(value, where)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, types.MethodType):
            self._reach(value.__func__, where)
            self._reach(value.__self__, where)
        elif isinstance(value, staticmethod | classmethod):
            self._reach(value.__func__, where)
        elif isinstance(value, property):
            for function in (value.fget, value.fset, value.fdel):
                self._reach(function, where)
        elif isinstance(value, functools.cached_property | functools.partialmethod):
            self._by_name(value.__dict__, ("func", "args", "keywords", "attrname"), where, keys=False)
        elif isinstance(value, functools.partial):
            self._reach(value.func, where)
            self._reach(value.args, where)
            self._reach(value.keywords, where)
        elif isinstance(value, Module):
            self._of_module(value, where)
        elif isinstance(value, Optimizer):
            self._optimizer(value, where)
        elif isinstance(value, dict):
            self._dict(value, where)
        elif isinstance(value, list | tuple):
            if isinstance(value, list):
                if cls is not list:
                    raise Refused(f"{where} is a {_name(cls)}, whose state is not understood")
                self._lists.append((value, tuple(value), where))
            for item in value:
                self._reach(item, f"an element of {where}")
            self._attributes(value, where, optional=True)
        elif isinstance(value, set | frozenset):
            self._sets.append((value, tuple(value), where))
            for item in value:
                self._reach(item, f"an element of {where}")
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            if not isinstance(value.__self__, types.ModuleType):
                self._reach(value.__self__, where)
        elif isinstance(value, Region):
            self._reach(value.function, where)
        else:
            self._attributes(value, where)

    def _attributes(self, value: Any, where: str, optional: bool = False) -> None:
        cls = type(value)
        own = getattr(value, "__dict__", None)
        slots = [k for k in cls.__mro__ if k.__dict__.get("__slots__")]
        if optional and own is None and not slots:
            return
        if own is None or slots or (not optional and cls.__basicsize__ != _Plain.__basicsize__):  # made in C
            raise Refused(f"{where} is a {_name(cls)}, whose state is not understood")
        named = self._relevant(own) if all(map(_of_program, cls.__mro__[:-1])) else list(own)
        if self._any_name:
            self._orders.append((own, tuple(own)))
        self._by_name(own, named, f"{where} ({_name(cls)})", keys=True)
        self._references.append((value, "__dict__", own, f"the attributes of {where}"))
        self._reach(cls, _name(cls))

    def _class(self, cls: type) -> None:
        """What a class has, by its bases too: every attribute of the program's classes, and what code may run by it.

        Of this library's classes that is what the program's code names. Others stay as they are.
        """
        if type(cls) is not type:
            self._reach(type(cls), f"the class of {_name(cls)}")
        if cls.__flags__ & _HEAP_TYPE:
            self._references.append((cls, "__mro__", cls.__mro__, f"the bases of {_name(cls)}"))
        called = {name for k in cls.__mro__ if not _of_program(k) for name in k.__dict__}  # what bases may call
        for k in cls.__mro__:
            if not k.__flags__ & _HEAP_TYPE:
                continue
            where = f"the class {_name(k)}"
            if k.__module__.partition(".")[0] == "tensorgrad":
                if k not in self._classes:
                    names = [n for n in k.__dict__ if n in self._names or n in _OF_CLASSES]
                    self._dicts.append((k.__dict__, None, tuple(names), tuple([k.__dict__[n] for n in names]), where))
            elif _of_program(k):
                if k not in self._classes:
                    own = dict(k.__dict__)
                    self._dicts.append((k.__dict__, tuple(own), tuple(own), tuple(own.values()), where))
                for name, value in k.__dict__.items():
                    named = self._any_name or name[:2] == "__" or name in self._names or name in called
                    if (named or isinstance(value, _CODE)) and name not in _OF_EVERY_CLASS:
                        self._reach(value, f"'{name}' of {where}")
            self._classes.add(k)

    def _module(self, module: types.ModuleType) -> None:
        """What a module has by names of the program's code. Into this library's and Python's, it does not look."""
        top = module.__name__.partition(".")[0]
        own = module.__dict__
        inside = top == "tensorgrad" or top in sys.stdlib_module_names or top == "numpy"
        misses = not inside and (self._misses or "__getattr__" in own)
        names = [n for n in (*self._names, "__getattr__") if misses or n in own]
        self._by_module(own, names, f"the module {module.__name__}", top)

    def _by_module(self, own: dict[str, Any], names: list[str], where: str, top: str) -> None:
        values = tuple([own.get(n, ABSENT) for n in names])
        self._dicts.append((own, None, tuple(names), values, where))
        inside = top == "tensorgrad" or top in sys.stdlib_module_names or top == "numpy"
        for name, value in zip(names, values, strict=True):
            if not inside or isinstance(value, types.ModuleType | list | dict | set):
                if inside and isinstance(value, types.ModuleType):
                    if value.__name__.partition(".")[0] != top:
                        continue
                elif inside and top == "tensorgrad":
                    continue
                self._reach(value, f"'{name}' of {where}")

    def _function(self, function: types.FunctionType, where: str) -> None:
        code = function.__code__
        self._functions.append((function, code, function.__defaults__, function.__kwdefaults__, where))
        self.functions.add(code)
        if code not in self._codes:
            return  # it did not run; should another value make it run, that value has changed
        self._reach(function.__defaults__, f"a default argument of {code.co_name}")
        if function.__kwdefaults__:
            self._reach(function.__kwdefaults__, f"a default argument of {code.co_name}")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                value = ABSENT
            self._cells.append((cell, value, f"'{name}' of {code.co_name}"))
            self._reach(value, f"'{name}' of {code.co_name}")
        if function.__dict__:
            self._by_name(function.__dict__, self._relevant(function.__dict__), code.co_name, keys=True)
            self._references.append((function, "__dict__", function.__dict__, f"the attributes of {code.co_name}"))

    def _tensor(self, tensor: Tensor, where: str) -> None:
        if tensor.__class__ not in PLAIN:
            raise Refused(f"{where} is a {_name(type(tensor))}, a class that overrides ops")
        if tensor._hooks is not None and self._hooks_count:
            raise Refused(f"{where} has a hook")
        if tensor._edge is not None and tensor._requires_grad:
            raise Refused(f"{where} is part of a graph of its own")
        self.tensors[id(tensor)] = tensor
        self._held.append((tensor, tensor._array, tensor._requires_grad, tensor._grad is None, where))
        if tensor.__dict__ or self._misses:
            self._by_name(tensor.__dict__, self._relevant(tensor.__dict__), where, keys=True)

    def _of_module(self, module: Module, where: str) -> None:
        if module._hooked and hooked(module):
            raise Refused(f"{where} ({type(module).__name__}) has a hook")
        own, cls = module.__dict__, type(module)
        where = f"{where} ({cls.__name__})" if len(where) < 100 else cls.__name__
        layer = any(k.__module__.startswith("tensorgrad") for k in cls.__mro__ if k not in Module.__mro__)
        named = own if layer else dict.fromkeys((*(n for n in _OF_MODULES if n in own), *self._relevant(own)))
        self._by_name(own, named, where, keys=True)
        self._references.append((module, "__dict__", own, f"the attributes of {where}"))
        self._reach(type(module), type(module).__name__)

    def _optimizer(self, optimizer: Any, where: str) -> None:
        """An optimizer's step is part of a plan as it is, so its settings may change: but not what it moves."""
        if not isinstance(optimizer, Elementwise):
            raise Refused(f"{where} is a {type(optimizer).__name__}, whose steps are not part of plans")
        if any(group.get("differentiable") for group in optimizer.param_groups):
            raise Refused(f"{where} is differentiable")
        own = optimizer.__dict__
        for name in _HOOK_TABLES:
            if own.get(name):
                raise Refused(f"{where} has a hook")
            self._lists.append((own.get(name), (), f"the hooks of {where}"))
        self.optimizers.append(optimizer)
        names = [n for n in own if n not in _OF_STEPS and "_dict_" not in n]
        self._by_name(own, dict.fromkeys((*names, "step", "zero_grad")), where, keys=False)
        self._references.append((optimizer, "__dict__", own, f"the attributes of {where}"))
        for group in optimizer.param_groups:
            if "param_groups" not in self._names:
                self._by_name(group, ["params", "differentiable"], f"a group of {where}", keys=False)
        self._reach(type(optimizer), type(optimizer).__name__)

    def _dict(self, value: dict, where: str) -> None:
        if any(value is o.state for o in self.optimizers):
            if "state" in self._names or "state_dict" in self._names:
                raise Refused(f"it reads the state of an optimizer ({where})")
            return
        settings = any(value is o.defaults or value is g for o in self.optimizers for g in o.param_groups)
        if settings and "param_groups" not in self._names and "defaults" not in self._names:
            return
        self._by_name(value, tuple(value), where, keys=True)
        if len(value) > 1:
            self._orders.append((value, tuple(value)))
        for key in value:
            self._reach(key, f"a key of {where}")
        if type(value) is not dict and type(value).__module__.partition(".")[0] not in ("tensorgrad", "collections"):
            self._attributes(value, where, optional=True)

    def _merge(self) -> None:
        """Makes one entry of all entries of a dictionary."""
        found: dict[int, tuple] = {}
        for scope, keys, names, values, where in self._dicts:
            known = found.get(id(scope))
            if known is not None:
                merged = dict(zip((*known[2], *names), (*known[3], *values), strict=True))
                keys, where = keys if known[1] is None else known[1], known[4]
                names, values = tuple(merged), tuple(merged.values())
            if names or keys is not None:
                found[id(scope)] = scope, keys, names, values, where
        self._dicts = list(found.values())

    # --- the comparison ---

    def same(self) -> bool:
        """Whether everything is as it was found."""
        try:
            if self.quick():
                return True
        except (KeyError, IndexError, ValueError):
            pass
        return self._same()

    @property
    def quick(self) -> Any:
        """The written-out comparison (`state_check`), which may say no, or raise, where `same` says yes.

        It also compares what is set in this process: `kind_of` in capture/region.py does so in general.
        """
        if self._quick is None:
            self._quick = state_check(
                [*self._dicts, *modes_of_process()], self._orders, self._lists, self._sets, self._cells,
                self._functions, self._references, self._held, self.gradients_count, self._hooks_count,
            )  # fmt: skip
        return self._quick

    def _same(self) -> bool:
        """The same, also for numbers and strings that are equal and not the same objects."""
        gradients_count = self.gradients_count
        for tensor, array, requires_grad, no_grad, _ in self._held:
            if (
                tensor._array is not array or tensor._requires_grad is not requires_grad
                or (self._hooks_count and tensor._hooks is not None)
                or (gradients_count and (tensor._grad is None) is not no_grad)
            ):  # fmt: skip
                return False
        for scope, keys, names, values, _ in self._dicts:
            if (
                keys is not None
                and (len(scope) != len(keys) or not all(map(is_, scope, keys)))
                and tuple(scope) != keys
            ):
                return False
            get = scope.get
            for name, value in zip(names, values, strict=True):
                now = get(name, ABSENT)
                if now is not value and not _equal(now, value):
                    return False
        for owner, items, _ in self._lists:
            now = owner or ()
            if len(now) != len(items) or not all(a is b or _equal(a, b) for a, b in zip(now, items, strict=True)):
                return False
        for cell, value, _ in self._cells:
            now = _content(cell)
            if now is not value and not _equal(now, value):
                return False
        for function, code, defaults, keywords, _ in self._functions:
            if (
                function.__code__ is not code or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keywords
            ):  # fmt: skip
                return False
        if any(_reference(owner, name) is not value for owner, name, value, _ in self._references):
            return False
        return all(tuple(found) == items for found, items, _ in self._sets)

    def guards(self) -> list[str]:
        """What is compared before each run, in words."""
        counts = {
            "tensors": len(self._held), "dictionaries, modules and classes": len(self._dicts),
            "lists": len(self._lists), "sets": len(self._sets), "variables of enclosing functions": len(self._cells),
            "functions": len(self._functions),
        }  # fmt: skip
        return ["guards: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n)]

    def changed(self) -> str:
        """What is not as it was found, in words; "" if nothing. Whether tensors have a gradient does not count."""
        for tensor, array, requires_grad, _, where in self._held:
            if tensor._array is not array or tensor._requires_grad is not requires_grad:
                return where
        for scope, keys, names, values, where in self._dicts:
            for name, value in zip(names, values, strict=True):
                now = scope.get(name, ABSENT)
                if now is not value and not _equal(now, value):
                    return f"'{name}' of {where}"
            if keys is not None and tuple(scope) != keys:
                return f"the keys of {where}"
        for owner, items, where in self._lists:
            if len(owner or ()) != len(items) or not all(
                a is b or _equal(a, b) for a, b in zip(owner or (), items, strict=True)
            ):
                return where
        for cell, value, where in self._cells:
            now = _content(cell)
            if now is not value and not _equal(now, value):
                return where
        for owner, found, where in self._sets:
            if tuple(owner) != found:
                return where
        for owner, name, value, where in self._references:
            if _reference(owner, name) is not value:
                return where
        return ""


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _of_program(value: Any) -> bool:
    """Whether a class or module is neither of this library, whose modules change when they are first used, nor of
    Python or NumPy."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    top = name.partition(".")[0]
    return top not in ("tensorgrad", "numpy") and top not in sys.stdlib_module_names


def _reference(owner: Any, name: str) -> Any:
    return type(owner) if name == "__class__" else getattr(owner, name)


def _imported(code: types.CodeType, scope: dict[str, Any]) -> list[str]:
    """The modules that code imports when it runs, by their full names."""
    names = [str(i.argval) for i in get_instructions(code) if i.opname == "IMPORT_NAME"]
    if not names:
        return []
    package = str(scope.get("__package__") or scope.get("__name__"))
    around = [package.rsplit(".", level)[0] for level in range(package.count(".") + 1)]
    full = [f"{a}.{name}" if name else a for name in names for a in around]  # `from .. import` something
    full += [name.rsplit(".", level)[0] for name in names for level in range(name.count(".") + 1)]
    return [name for name in full if name in sys.modules]


def _handles_errors(code: types.CodeType) -> bool:
    """Whether code may go on after an attribute was not found."""
    return any(i.opname == "POP_EXCEPT" for i in get_instructions(code))


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are equal scalars of one type."""
    return a.__class__ is b.__class__ and a.__class__ in _SCALARS and repr(a) == repr(b)


def _names_in(codes: Iterable[types.CodeType]) -> set[str]:
    """The names that code may read: those in it, and strings that look like names."""
    names: set[str] = set()
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        values = list(code.co_consts)
        while values:
            value = values.pop()
            if isinstance(value, types.CodeType):
                waiting.append(value)
            elif isinstance(value, str):
                names.update(filter(str.isidentifier, value.split(".")))
            elif isinstance(value, tuple | frozenset):
                values += value
    return names


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if cls.__module__ != "builtins" else cls.__qualname__
