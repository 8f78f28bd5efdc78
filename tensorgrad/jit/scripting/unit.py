"""What one call of `torch.jit.script` compiles: functions, classes, modules, and the constants that they use."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Callable
from typing import Any

from tensorgrad import nn
from tensorgrad.jit import overloads
from tensorgrad.jit.declared import INTERFACES
from tensorgrad.jit.program import Program
from tensorgrad.jit.scripting import functional
from tensorgrad.jit.scripting.calls import listed, several
from tensorgrad.jit.scripting.emitter import Emitter
from tensorgrad.jit.scripting.errors import FrontendError, NotInTorchScript, NotWritable, refused
from tensorgrad.jit.scripting.nn_modules import FORWARDS, REFUSED
from tensorgrad.jit.scripting.source import ClassSource, Source
from tensorgrad.jit.scripting.types import (
    BOOL,
    NONE,
    TENSOR,
    Type,
    fits,
    list_of,
    of_annotation,
    of_node,
    of_value,
    repeats,
)
from tensorgrad.jit.scripting.values import Items, Method, Modules, Object, Typed
from tensorgrad.jit.text import identifier, literal
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor

VERSION = 10  # of the operators
PLAIN = bool | int | float | str | None


class Signature:
    """A function of the program: its name, parameters (name, type, default as text or None) and result."""

    def __init__(self, name: str, parameters: list[tuple[str, Type, str | None]], returns: Type | None) -> None:
        self.name, self.parameters, self.returns = name, parameters, returns
        self.text: list[str] = []
        self.repeats: dict[str, int] = {}  # parameters that are lists, for which a number may be given


class ClassInfo:
    """A class of the program."""

    def __init__(self, name: str, base: str, python: Any = None) -> None:
        self.name, self.base, self.python = name, base, python
        self.attributes: dict[str, Type] = {}
        self.children: dict[str, ClassInfo] = {}
        self.methods: dict[str, Signature] = {}
        self.members: dict[str, str] = {}
        self.module: Any = None
        self.value: Type = NONE
        self.open = False  # whether its attributes are being found
        self.interfaces: dict[str, Type] = {}  # of modules inside, which are declared as such
        self.hooks: dict[str, list[str]] = {"forward_pre_hooks": [], "forward_hooks": []}
        self.has: Callable[[ClassInfo, Signature], bool] = lambda cls, method: False  # whether a class has a method

    @property
    def is_interface(self) -> bool:
        """Whether it is an interface."""
        return self.base.endswith("Interface")

    def is_interface_of(self, cls: ClassInfo) -> bool:
        """Whether objects of another class may be used as of this one."""
        return self.is_interface and all(self.has(cls, method) for method in self.methods.values())

    def lines(self) -> list[str]:
        """Its text."""
        short = self.name.rpartition(".")[2]
        made = [f"class {short}({self.base}):" if self.base else f"class {short}:"]
        if self.base == "Module":
            parameters = [n for n, p in self.module._parameters.items() if p is not None]
            buffers = [n for n, b in self.module._buffers.items() if b is not None]
            for kind, names in (("parameters", parameters), ("buffers", buffers)):
                made.append(f"  __{kind}__ = [{''.join(f'{literal(n)}, ' for n in names)}]")
            made += [
                f"  __{kind}__ = [{''.join(f'{literal(n)}, ' for n in ns)}]" for kind, ns in self.hooks.items() if ns
            ]
            made += [_declared(n, "Tensor") for n in (*parameters, *buffers)]
            made.append("  training : bool")
            made += [_declared(n, str(self.interfaces[n]) if n in self.interfaces else c.name)
                     for n, c in self.children.items()]  # fmt: skip
        made += [_declared(n, str(kind)) for n, kind in self.attributes.items()]
        made += [f"  {n} = {text}" for n, text in self.members.items()]
        for method in self.methods.values():
            made += [f"  {line}" for line in method.text]
        return made if len(made) > 1 else [*made, "  pass"]


def _declared(name: str, kind: str) -> str:
    return f"  {name} : {kind}" if identifier(name) == name else f"  __annotations__[{literal(name)}] = {kind}"


class Unit:
    """Compiles functions and modules, each once."""

    def __init__(self) -> None:
        self.constants: list[Tensor] = []
        self.functions: dict[Any, Signature] = {}
        self.classes: dict[Any, ClassInfo] = {}
        self.keys: dict[Any, ClassInfo] = {}
        self.taken: set[str] = set()
        self.root = ""  # the package of what is scripted

    def name(self, what: Any, short: str) -> str:
        """A full name for a function or class."""
        module = getattr(what, "__module__", "") or ""
        for written in ("functional", "losses", "nn_modules", "nn_recurrent", "nn_transformers", "pooling"):
            if module == f"tensorgrad.jit.scripting.{written}":
                module = "torch.nn.functional"
        if module.startswith("tensorgrad.nn."):
            module = module.replace("tensorgrad.nn.", "torch.nn.modules.")
        parts = [p if p.isidentifier() else identifier(p) for p in module.split(".") if p and p != "__main__"]
        prefix, number = ".".join(["__torch__", *parts]), 0
        full = f"{prefix}.{identifier(short)}"
        while full in self.taken:
            full = f"{prefix}.___torch_mangle_{number}.{identifier(short)}"
            number += 1
        self.taken.add(full)
        return full

    def constant(self, tensor: Tensor) -> str:
        """The text of a tensor that is part of the program."""
        self.constants.append(tensor.detach())
        return f"CONSTANTS.c{len(self.constants) - 1}"

    # --- functions ---------------------------------------------------------------------------------------------------

    def function(self, function: Any) -> Signature:
        """Compiles a function."""
        function = inspect.unwrap(function)
        if function not in self.functions:
            top = function.__module__.partition(".")[0]
            self.root = self.root or top
            if top != self.root:
                try:
                    return self._compiled(function)
                except (RuntimeError, FrontendError) as error:  # another library's, written without TorchScript in mind
                    raise NotWritable(str(error)) from error
            return self._compiled(function)
        return self.functions[function]

    def _compiled(self, function: Any) -> Signature:
        if function not in self.functions:
            source = Source(function)
            name = self.name(function, function.__name__)
            signature, emitter = self._signature(source, name, None)
            self.functions[function] = signature
            self._body(signature, emitter, source, name.rpartition(".")[2], "")
        return self.functions[function]

    def _signature(self, source: Source, name: str, owner: Any) -> tuple[Signature, Emitter]:
        """The parameters of a function, and what writes its body. `owner`: what its first parameter stands for."""
        tree, given = source.tree, source.tree.args
        emitter = Emitter(self, source, tree)
        if given.vararg or given.kwarg or given.posonlyargs:
            raise emitter.refused(
                "Compiled functions can't take variable number of arguments or use keyword-only arguments with "
                "defaults",
                tree,
            )
        names = [*given.args, *given.kwonlyargs]
        comment: Any = None
        repeated: dict[str, int] = {}
        if getattr(tree, "type_comment", None):
            comment = ast.parse(tree.type_comment, mode="func_type")
        each = comment is not None and [ast.unparse(a) for a in comment.argtypes] != ["..."]
        plain, keyed = source.function.__defaults__ or (), source.function.__kwdefaults__ or {}
        defaults = dict(zip([a.arg for a in given.args][len(given.args) - len(plain) :], plain, strict=True)) | keyed
        parameters: list[tuple[str, Type, str | None]] = []
        for i, argument in enumerate(names):
            if owner is not None and i == 0:
                emitter.variables[argument.arg] = owner
                continue
            kind = TENSOR
            if argument.annotation is not None:
                kind = self._annotated(emitter, source, argument.arg, argument.annotation)
            elif argument.type_comment:
                kind = of_node(ast.parse(argument.type_comment, mode="eval").body, self.type_of_class, source)
            elif each:
                kind = of_node(comment.argtypes[i - (owner is not None)], self.type_of_class, source)
            default = None
            count = repeats(getattr(source.function, "__annotations__", {}).get(argument.arg), source)
            if argument.arg in defaults:
                value = emitter.constant(defaults[argument.arg], tree)
                if kind.name == "float" and value.type.name == "int":
                    value = Typed(str(float(defaults[argument.arg])), kind)
                elif kind.name == "List" and value.type.name == "Tuple":
                    value = listed(emitter, value)
                elif count:
                    value = several(emitter, value, count)
                default = (
                    emitter.as_type(value, kind, tree).text.removeprefix(f"annotate({kind}, ").removesuffix(")")
                    if value.type == NONE
                    else value.text
                )
            here = emitter.name_of(argument.arg)
            if count:
                repeated[here] = count
            parameters.append((here, kind, default))
            emitter.variables[argument.arg] = Typed(here, kind)
        returns = None
        if tree.returns is not None:
            returns = self._annotated(emitter, source, "return", tree.returns)
        elif comment is not None:
            returns = of_node(comment.returns, self.type_of_class, source)
        emitter.declared = emitter.returns = returns
        made = Signature(name, parameters, returns)
        made.repeats = repeated
        return made, emitter

    def _annotated(self, emitter: Emitter, source: Source, name: str, node: ast.expr) -> Type:
        """The type of an annotation of a function: what Python made of it, or its text."""
        found = getattr(source.function, "__annotations__", {}).get(name, "")
        return emitter.annotation(node) if isinstance(found, str) else of_annotation(found, self.type_of_class, source)

    def _body(self, signature: Signature, emitter: Emitter, source: Source, short: str, first: str) -> None:
        """Writes a function."""
        if modifier(source.function) == "unused":
            emitter.write(f'ops.prim.RaiseException("{source.function.__name__} is not part of this program")')
            emitter.returns = emitter.returns or TENSOR
            if emitter.returns != NONE:
                emitter.write(f"return uninitialized({emitter.returns})")
        else:
            emitter.body(source.tree.body)
        signature.returns = emitter.returns
        signature.text = [_head(signature, short, first), *emitter.lines]

    def function_call(self, e: Any, function: Any, node: ast.Call) -> Typed:
        """A call of a function of Python's source."""
        signature = self.function(function)
        return self._called(e, signature, signature.name, node)

    def _called(self, e: Any, signature: Signature, text: str, node: ast.Call) -> Typed:
        """A call, with its arguments as the parameters want them."""
        if len(node.args) > len(signature.parameters):
            raise e.refused(
                f"{signature.name}() takes {len(signature.parameters)} arguments, but {len(node.args)} were given", node
            )
        kinds = {n: kind for n, kind, _ in signature.parameters}
        library = signature.name.startswith("__torch__.torch.")
        parts = []
        for argument, (name, kind, _) in zip(node.args, signature.parameters, strict=False):
            parts.append(self._argument(e, argument, kind, library, signature.repeats.get(name, 0)).text)
        for keyword in node.keywords:
            name = e.name_of(keyword.arg) if keyword.arg not in kinds else keyword.arg
            if name not in kinds:
                if library:
                    raise NotWritable(f"{signature.name} with {keyword.arg}")
                raise e.refused(f"Unknown keyword argument '{keyword.arg}'", node)
            made = self._argument(e, keyword.value, kinds[name], library, signature.repeats.get(name, 0))
            parts.append(f"{name}={made.text}")
        given = {n for n, _, _ in signature.parameters[: len(node.args)]} | {str(k.arg) for k in node.keywords}
        missing = [n for n, _, default in signature.parameters if default is None and n not in given]
        if missing:
            raise e.refused(f"{signature.name}() is missing value for argument '{missing[0]}'", node)
        if signature.returns is None:
            raise NotWritable(f"{signature.name} calls itself and has no annotation of its result")
        return Typed(f"{text}({', '.join(parts)})", signature.returns)

    def _argument(self, e: Any, node: ast.expr, kind: Type, library: bool, count: int) -> Typed:
        value = e.typed(node, kind)
        if count:
            value = several(e, value, count)
        wanted = kind.parts[0] if kind.name == "Optional" else kind
        if wanted.name == "List" and value.type.name == "Tuple":
            value = listed(e, value)
        if wanted.name == "List" and library:
            value = e.several(value, wanted)
        return e.as_type(value, kind, node)

    # --- classes -----------------------------------------------------------------------------------------------------

    def type_of_class(self, cls: type) -> Type | None:
        """The type of a class of Python, or None if it has none in TorchScript."""
        if cls in self.classes:
            return Type("class", (), self.classes[cls])
        if cls in INTERFACES:
            self._interface(cls)
        elif issubclass(cls, enum.Enum):
            info = self.classes[cls] = ClassInfo(self.name(cls, cls.__name__), "Enum", cls)
            info.value = of_value(next(iter(cls)).value, self.type_of_class)
            info.members = {m.name: literal(m.value) for m in cls}
        elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
            info = self.classes[cls] = ClassInfo(self.name(cls, cls.__name__), "NamedTuple", cls)
            kinds = getattr(cls, "__annotations__", {})
            for field in cls._fields:
                info.attributes[field] = (
                    of_annotation(kinds[field], self.type_of_class, ClassSource(cls)) if field in kinds else TENSOR
                )
        elif cls is functional.no_grad or cls is functional.enable_grad:
            self._script_class(cls)
        elif issubclass(cls, Module) or cls.__module__.partition(".")[0] in (
            "tensorgrad",
            "builtins",
            "typing",
            "numpy",
        ):
            return None
        else:
            self._script_class(cls)
        return Type("class", (), self.classes[cls])

    def _interface(self, cls: type) -> None:
        """Reads an interface: methods without lines."""
        base = "ModuleInterface" if issubclass(cls, Module) else "Interface"
        info = self.classes[cls] = ClassInfo(self.name(cls, cls.__name__), base, cls)
        info.has = self._has
        for name, function in vars(cls).items():
            if not inspect.isfunction(function):
                continue
            source = Source(function)
            signature, emitter = self._signature(source, name, Typed("self", Type("class", (), info)))
            if signature.returns is None:
                raise emitter.refused("interface declarations must have a return type annotated.", source.tree)
            if [type(line) for line in source.tree.body] != [ast.Pass]:
                raise emitter.refused(
                    "interface declarations should only contain a single 'pass' statement.", source.tree
                )
            info.methods[name] = signature
            signature.text = [_head(signature, name, f"self: {info.name}"), "  pass"]

    def _has(self, cls: ClassInfo, wanted: Signature) -> bool:
        """Whether a class has the method of an interface."""
        if cls.is_interface:
            found = cls.methods.get(wanted.name)
        elif not cls.base and wanted.name in vars(cls.python):
            found = self._instance_method(cls, Type("class", (), cls), wanted.name)
        elif cls.base == "Module" and hasattr(type(cls.module), wanted.name):
            found = self.method(Modules("self", cls.module, cls), wanted.name)
        else:
            return False
        if found is None or found.returns is None or wanted.returns is None:
            return False
        same = [p[:2] for p in found.parameters] == [p[:2] for p in wanted.parameters]
        return same and fits(found.returns, wanted.returns)

    def _script_class(self, cls: type) -> None:
        """Compiles a class that is not a module."""
        if cls.__bases__ != (object,):
            raise NotWritable(f"the class {cls.__name__} derives from another")
        info = self.classes[cls] = ClassInfo(self.name(cls, cls.__name__), "", cls)
        methods = {n: m for n, m in vars(cls).items() if inspect.isfunction(m)}
        kind = Type("class", (), info)
        try:
            for name in sorted(methods, key=lambda name: name != "__init__"):
                if name not in info.methods and modifier(methods[name]) != "ignore":
                    info.open = name == "__init__"
                    self._instance_method(info, kind, name)
        except (RuntimeError, FrontendError, NotWritable) as error:
            del self.classes[cls]
            if not isinstance(error, NotWritable) and self.root not in ("", cls.__module__.partition(".")[0]):
                raise NotWritable(str(error)) from error  # another library's, written without TorchScript in mind
            raise
        info.open = False

    def _instance_method(self, info: ClassInfo, kind: Type, name: str) -> Signature:
        if name not in info.methods:
            function = getattr(info.python, name, None)
            if not inspect.isfunction(function):
                raise NotWritable(f"{info.python.__name__} has no method {name}")
            source = Source(function)
            signature, emitter = self._signature(source, name, Typed("self", kind))
            info.methods[name] = signature
            self._body(signature, emitter, source, name, f"self: {info.name}")
        return info.methods[name]

    def instance_call(self, e: Any, owner: Typed, name: str, node: ast.Call) -> Typed:
        """A call of a method of an instance."""
        info = owner.type.cls
        if info.is_interface:
            name = "forward" if name == "__call__" and info.base == "ModuleInterface" else name
            if name not in info.methods:
                raise e.refused(f"'{info.name}' object has no attribute or method '{name}'", node)
            return self._called(e, info.methods[name], f"({owner.text}).{name}", node)
        if info.base:
            raise NotWritable(f"a method of {info.name}")
        return self._called(e, self._instance_method(info, owner.type, name), f"({owner.text}).{name}", node)

    def new(self, e: Any, kind: Type, node: ast.Call) -> Typed:
        """A new instance of a class."""
        if "__init__" not in kind.cls.methods:
            raise e.refused(f"Class {kind.cls.python.__name__} does not have an __init__ function defined", node)
        name = e.fresh()
        e.write(f"{name} = {kind}.__new__({kind})")
        made = self._called(e, kind.cls.methods["__init__"], f"({name}).__init__", node)
        e.write(f"{e.fresh()} = {made.text}")
        return Typed(name, kind)

    # --- modules -----------------------------------------------------------------------------------------------------

    def module(self, module: Module) -> ClassInfo:
        """The class of a module: one for all modules of the same class and constants."""
        if id(module) in self.classes:
            return self.classes[id(module)]
        children = {n: self.module(m) for n, m in module._modules.items() if m is not None}
        key = self._key(module, children)
        if key in self.keys:
            self.classes[id(module)] = self.keys[key]
            return self.keys[key]
        python = type(module)
        self.root = self.root or python.__module__.partition(".")[0]
        info = ClassInfo(self.name(python, getattr(module, "original_name", None) or python.__name__), "Module", python)
        info.module, info.children = module, children
        self.classes[id(module)] = self.keys[key] = info
        for name in children:
            kind = self._declared_type(module, name)
            if kind is not None and kind.cls is not None and kind.cls.is_interface:
                if not kind.cls.is_interface_of(children[name]):
                    raise RuntimeError(
                        f"the module '{name}' of {type(module).__name__} is a {type(module._modules[name]).__name__}, "
                        f"which does not have all methods of {kind.cls.python.__name__}"
                    )
                info.interfaces[name] = kind
        if not _of_library(module):
            for name in vars(module):
                self._attribute_type(info, module, name, quietly=True)
        return info

    @staticmethod
    def _key(module: Module, children: dict[str, ClassInfo]) -> Any:
        parts: list[Any] = [type(module), tuple((n, c.name) for n, c in children.items()), *_hooks(module)]
        for table in (module._parameters, module._buffers):
            parts.append(tuple((n, v is None) for n, v in table.items()))
        for name, value in vars(module).items():
            if name in INTERNAL:
                continue
            if not isinstance(value, PLAIN | tuple):
                return id(module)
            parts.append((name, repr(value)))
        return tuple(parts)

    def _attribute_type(self, info: ClassInfo, module: Module, name: str, quietly: bool = False) -> Type | None:
        """The type of a plain attribute, which the class then has."""
        if name in info.attributes:
            return info.attributes[name]
        if name in INTERNAL or name in _constants(module):
            return None
        if any(name in table for table in (module._parameters, module._buffers, module._modules)):
            return None
        try:
            kind = self._declared_type(module, name, False) or of_value(vars(module)[name], self.type_of_class)
            if kind.cls is not None and kind.cls.is_interface:
                found = self.type_of_class(type(vars(module)[name]))
                if found is None or not fits(found, kind):
                    raise NotWritable(f"the attribute {name} is not a {kind}")
        except NotWritable:
            if quietly:
                return None
            raise
        if kind == NONE or (quietly and kind.cls is not None and kind.cls.base == ""):
            return None
        info.attributes[name] = kind
        return kind

    def _declared_type(self, module: Module, name: str, quietly: bool = True) -> Type | None:
        """The type that the class of a module declares for an attribute, or None."""
        for cls in type(module).__mro__:
            declared = vars(cls).get("__annotations__", {})
            if name in declared:
                try:
                    return of_annotation(declared[name], self.type_of_class, ClassSource(cls))
                except NotWritable:
                    if quietly:
                        return None
                    raise
        return None

    def attribute(self, e: Any, owner: Modules, name: str, node: ast.AST) -> Any:
        """`module.name`."""
        module, cls = owner.module, owner.cls
        if name in cls.interfaces:
            return Typed(f"{owner.text}.{name}", cls.interfaces[name])
        if name in cls.children:
            return owner.child(name)
        if name in module._modules:
            return Object(None)
        for table in (module._parameters, module._buffers):
            if name in table:
                return Object(None) if table[name] is None else Typed(f"{owner.text}.{name}", TENSOR)
        if name == "training":
            return Typed(f"{owner.text}.training", BOOL)
        if name == "_flat_weights" and isinstance(module, nn.RNNBase):
            inside = ", ".join(f"{owner.text}.{n}" for n in module._parameters)
            return Typed(f"[{inside}]", list_of(TENSOR))
        if name in vars(module):
            value = vars(module)[name]
            if inspect.isfunction(value) or inspect.isclass(value):
                return Object(value)
            if _of_library(module) or name in _constants(module):
                return Object(value)
            kind = self._attribute_type(cls, module, name)
            return Object(value) if kind is None else Typed(f"{owner.text}.{name}", kind)
        found = inspect.getattr_static(type(module), name, MISSING)
        if found is MISSING:
            raise e.refused(f"Module '{type(module).__name__}' has no attribute '{name}'", node)
        if isinstance(found, staticmethod):
            return Object(found.__func__)
        if inspect.isfunction(found):
            return Method(owner, name)
        if isinstance(found, property):
            signature = self._compiled_method(owner, f"__{name}_getter", found.fget)
            return Typed(f"{owner.text}.{signature.name}()", signature.returns or TENSOR)
        return Object(found)

    def method(self, owner: Modules, name: str) -> Signature:
        """Compiles a method of a module."""
        module, cls = owner.module, owner.cls
        if name in cls.methods:
            return cls.methods[name]
        function: Any = getattr(type(module), name, None)
        if name == "forward":
            if type(module) in REFUSED:
                kind = type(module).__name__
                raise NotInTorchScript(f"{kind} is not in TorchScript, in PyTorch neither: {REFUSED[type(module)]}")
            own = next(
                (
                    FORWARDS[c]
                    for c in type(module).__mro__
                    if c in FORWARDS and getattr(c, "forward", None) is function
                ),
                None,
            )
            function = own or function
        if name in vars(module) or not callable(function):
            raise NotWritable(f"{type(module).__name__} has no method {name} of its class")
        return self._compiled_method(owner, name, function)

    def _compiled_method(self, owner: Modules, name: str, function: Any, declared: Any = None) -> Signature:
        """Compiles a function as a method of a module. `declared`: the function that has its annotations."""
        module, cls = owner.module, owner.cls
        if name in cls.methods:
            return cls.methods[name]
        if modifier(function) == "ignore":
            raise NotWritable(f"{type(module).__name__}.{name} is ignored: it runs as Python")
        source = Source(function)
        signature, emitter = self._signature(Source(declared or function), name, Modules("self", module, cls))
        emitter.source, emitter.tree = source, source.tree
        cls.methods[name] = signature
        try:
            self._body(signature, emitter, source, name, f"self: {cls.name}")
        except (RuntimeError, FrontendError) as error:
            if _of_library(module) and not isinstance(error, NotInTorchScript):
                raise NotWritable(str(error)) from error
            raise
        return signature

    def hooks(self, owner: Modules) -> tuple[list[Signature], list[Signature]]:
        """Compiles the hooks of a module: those before `forward`, and those after."""
        module, cls = owner.module, owner.cls
        found: dict[str, Any] = {}
        made: list[list[Signature]] = []
        for count, (kind, names), functions in zip((1, 2), cls.hooks.items(), _hooks(module), strict=True):
            for function in functions:
                name = getattr(function, "__name__", "")
                if not name.isidentifier():
                    raise NotWritable(f"a hook of {type(module).__name__} is not a function of Python")
                if found.setdefault(name, function) is not function:
                    what = "Pre-hook" if kind == "forward_pre_hooks" else "Hook"
                    raise RuntimeError(
                        f"{what} '{name}' on {type(module).__name__} has at least two different python definitions. "
                        "Please use unique names for all hooks."
                    )
                if hasattr(type(module), name):
                    raise NotWritable(f"a hook of {type(module).__name__} has the name of a method: {name}")
            made.append([self._hook(owner, function, count) for function in functions])
            names[:] = [function.__name__ for function in functions]
        return made[0], made[1]

    def _hook(self, owner: Modules, function: Any, count: int) -> Signature:
        """Compiles a hook, which gets the tuple of arguments, and after `forward` its result."""
        signature = self._compiled_method(owner, function.__name__, function)
        if len(signature.parameters) != count:
            source = Source(function)
            problem = f"the hook '{function.__name__}' of {type(owner.module).__name__} should take the module and "
            problem += "the tuple of its arguments" if count == 1 else "the tuple of its arguments, and its result"
            raise refused(source.place, problem, source.tree)
        return signature

    def module_call(self, e: Any, owner: Modules, node: ast.Call) -> Any:
        """`module(...)`: its `forward`, and its hooks."""
        if not any(_hooks(owner.module)):
            return self.method_call(e, owner, "forward", node)
        before, after = self.hooks(owner)
        forward = self.method(owner, "forward")
        if node.keywords:  # PyTorch gives them to the hooks, too
            raise e.refused(f"Unknown keyword argument '{node.keywords[0].arg}' of a hook", node)
        if overloads.of(getattr(type(owner.module), "forward", None)):
            raise NotWritable("a call of a module with hooks, and with several forms")
        values = [
            self._argument(e, argument, kind, False, 0)
            for argument, (_, kind, _) in zip(node.args, forward.parameters, strict=False)
        ]
        given = _tuple(e, values)
        for hook in before:
            result = self._hooked(e, owner, hook, [given], node)
            if result.type.name == "Tuple":
                given = result
            elif result.type != NONE:
                given = _tuple(e, [result])
        parts = ", ".join(f"{given.text}[{i}]" for i in range(len(given.type.parts)))
        if forward.returns is None:
            raise NotWritable(f"{forward.name} calls itself and has no annotation of its result")
        out = e.kept(Typed(f"{owner.text}.forward({parts})", forward.returns))
        for hook in after:
            result = self._hooked(e, owner, hook, [given, out], node)
            out = out if result.type == NONE else result
        return out

    def _hooked(self, e: Any, owner: Modules, hook: Signature, given: list[Typed], node: ast.Call) -> Typed:
        """What a hook returns."""
        texts = [e.as_type(v, kind, node).text for v, (_, kind, _) in zip(given, hook.parameters, strict=True)]
        function = Signature(f"{owner.cls.name}.{hook.name}", hook.parameters, hook.returns)
        function.text = hook.text  # PyTorch calls hooks as functions, with the module
        self.functions[function.name] = function
        value = Typed(f"{function.name}({', '.join([owner.text, *texts])})", hook.returns or NONE)
        if value.type == NONE:
            e.write(value.text)
            return value
        return e.kept(value)

    def method_call(self, e: Any, owner: Modules, name: str, node: ast.Call) -> Any:
        """A call of a method of a module."""
        if name in ("values", "keys", "items", "children") and name not in vars(type(owner.module)).get(
            "__annotations__", {}
        ):
            keys = Object(tuple(owner.module._modules))
            return (
                owner if name in ("values", "children") else keys if name == "keys" else Items([_Names(owner), owner])
            )
        function = getattr(type(owner.module), name, None)
        forms = overloads.of(function) if inspect.isfunction(function) else ()
        if forms:
            number = self._overload(e, forms, node)
            signature = self._compiled_method(owner, f"{name}__{number}", function, forms[number])
            return self._called(e, signature, f"{owner.text}.{signature.name}", node)
        return self._called(e, self.method(owner, name), f"{owner.text}.{name}", node)

    def _overload(self, e: Any, forms: tuple[Any, ...], node: ast.Call) -> int:
        """Which of several declarations of a method takes the arguments of a call."""
        lines = len(e.lines)
        given = [e.typed(a).type for a in node.args]
        del e.lines[lines:]
        for number, form in enumerate(forms):
            signature, _ = self._signature(Source(form), "", Object(None))
            wanted = [kind for _, kind, _ in signature.parameters[: len(given)]]
            if len(wanted) == len(given) and all(map(fits, given, wanted)):
                return number
        raise e.refused("the arguments fit none of the overloads", node)

    # --- the program -------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """All that was compiled."""
        files: dict[str, list[str]] = {}
        for info in {id(c): c for c in self.classes.values()}.values():
            files.setdefault(info.name.rpartition(".")[0], []).extend(info.lines())
        for signature in self.functions.values():
            files.setdefault(signature.name.rpartition(".")[0], []).extend(signature.text)
        sources = {
            f"code/{prefix.replace('.', '/')}.py": ("\n".join(lines) + "\n").encode() for prefix, lines in files.items()
        }
        made = Program(sources, VERSION)
        made.compile(tuple(self.constants))
        return made


MISSING = object()
INTERNAL = frozenset(vars(Module())) | {"training"}


class _Names(Modules):
    """The names of the modules inside of one, for a loop over `items()`."""

    def __init__(self, owner: Modules) -> None:
        super().__init__(owner.text, owner.module, owner.cls)

    def listed(self) -> list[Any]:
        """The names."""
        return [Object(name) for name in self.module._modules]


def _head(signature: Signature, name: str, first: str) -> str:
    """The line that begins a function. `first`: its first parameter, if it is a method."""
    parameters = [
        f"{n}: {kind}" + ("" if default is None else f"={default}") for n, kind, default in signature.parameters
    ]
    return f"def {name}({', '.join([first, *parameters] if first else parameters)}) -> {signature.returns}:"


def _hooks(module: Module) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The hooks of a module that run before `forward`, and after it."""
    before, after = (getattr(module, f"_forward{kind}_hooks", None) or {} for kind in ("_pre", ""))
    return tuple(before.values()), tuple(after.values())


def _tuple(e: Any, values: list[Typed]) -> Typed:
    """Values as a tuple that has a name."""
    inside = ", ".join(v.text for v in values)
    return e.kept(Typed(f"({inside}{',' if len(values) == 1 else ''})", Type("Tuple", tuple(v.type for v in values))))


def modifier(function: Any) -> str:
    """What `torch.jit.ignore`, `unused` or `export` said of a function."""
    return getattr(function, "_torchscript_modifier", "")


def _of_library(module: Module) -> bool:
    return type(module).__module__.startswith("tensorgrad.")


def _constants(module: Module) -> set[str]:
    """The names of attributes that are part of the program."""
    found = set(getattr(module, "__constants__", ()))
    for cls in type(module).__mro__:
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if "Final" in (annotation if isinstance(annotation, str) else str(annotation)).partition("[")[0]:
                found.add(name)
    return found
