"""`torch.jit.trace`: records which operators a module calls on an example, as a program of TorchScript.

The operators are those that a `TorchDispatchMode` sees. Each becomes a line of a `forward`; sizes and other numbers are
those of the example. The traced module calls the module that was traced; the program is for files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tensorgrad._ops import OpOverload, OpOverloadPacket, ops
from tensorgrad.export.operators import form_of
from tensorgrad.jit.modules import TopLevelTracedModule, TracedModule
from tensorgrad.jit.objects import Class
from tensorgrad.jit.program import Program
from tensorgrad.jit.text import Untraceable, identifier, literal, type_of
from tensorgrad.library.dispatch_classes import call, dispatch
from tensorgrad.nn.module import Module
from tensorgrad.ops.nn.interpolate import NAMES
from tensorgrad.rows.switches import DISPATCH, LOCAL, observe, unobserve
from tensorgrad.system.exporting import exporting
from tensorgrad.tensor import Tensor, tensors_in
from tensorgrad.utils._python_dispatch import TorchDispatchMode

VERSION = 10  # of the operators: PyTorch reads archives up to this one, and upgrades none of them


def traced(function: Any, args: tuple, kwargs: dict[str, Any]) -> TopLevelTracedModule:
    """Runs a module or function once on an example, and returns it as a traced module.

    Raises: What it raises. If it runs, and only its program cannot be written, saving tells the reason.
    """
    tree = Tree(function if isinstance(function, Module) else None, _name_of(function))
    program, reason = None, ""
    try:
        program = _program(tree, function, args, kwargs)
    except Exception as error:
        function(*args, **kwargs)  # an error of the module's own is raised here
        reason = f"{type(error).__name__}: {error}"
    return tree.module(program, function, reason)


def _program(tree: Tree, function: Any, args: tuple, kwargs: dict[str, Any]) -> Program:
    """Runs what is traced, and returns its program."""
    tape, inputs = Tape(tree.places), {}
    bound = inspect.signature(function.forward if isinstance(function, Module) else function).bind(*args, **kwargs)

    def take(name: str, value: Any) -> Any:
        name = tape.unique(name)
        inputs[name] = value
        return tape.input(name, value)

    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(take(f"{name}_{i}", v) for i, v in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: take(key, v) for key, v in value.items()}
        else:
            bound.arguments[name] = take(name, value)
    with exporting("trace"), tape:
        result = function(*bound.args, **bound.kwargs)
    tree.forward(tape, inputs, result)
    program = Program(tree.sources(), VERSION)
    program.compile(tuple(tape.constants))
    return program


def _name_of(function: Any) -> str:
    if isinstance(function, Module):
        return identifier(type(function).__name__)
    return identifier(getattr(function, "__name__", type(function).__name__))


class Tape(TorchDispatchMode):
    """Notes the operators that are called, as lines of a program."""

    def __init__(self, places: dict[int, str]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []  # whose ids are in `names`
        self.places = places  # of parameters and buffers
        self.used: dict[str, str] = {}  # variables for these
        self.constants: list[Tensor] = []
        self.taken: set[str] = set()
        self.inside = 0  # operators that are being run
        self.computed: dict[int, tuple[Tensor, str]] = {}  # results of ops, and their names

    def __enter__(self) -> Tape:
        observe(self._observe, "torch.jit.trace")
        super().__enter__()
        DISPATCH.insert(0, self._seen)
        return self

    def __exit__(self, *exception: Any) -> None:
        DISPATCH.remove(self._seen)
        super().__exit__(*exception)
        unobserve(self._observe, "torch.jit.trace")

    def _seen(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Called in place of each function: recurrent layers stay one operator, which takes sequences of any length."""
        modes = LOCAL.dispatch_modes
        if isinstance(function, OpOverload) and function.overloadpacket.__name__ in WHOLE and modes:
            return call(function, args, kwargs)
        if modes and modes[-1] is self and not isinstance(function, OpOverload | OpOverloadPacket):
            row = getattr(function, "op", None)
            name = function.__name__ if row is None else row.name
            form = form_of(function, name, row) if name in WHOLE else None
            made = NotImplemented if form is None else form(*args, **kwargs)
            if made is not NotImplemented:
                return made
        return dispatch(function, args, kwargs)

    def _observe(self, op: Any, args: tuple, result: Any, start: float, seconds: float) -> None:
        """Notes the results of an op of tensors; and the call of one that is an operator, and is not seen as such."""
        if op.name in UNSEEN and not self.inside:
            name = self.fresh()
            self.lines.append(f"{name} = {UNSEEN[op.name](op.name, self.text(args[0]), *args[1:])}")
            self.keep(result, name)
        if next(tensors_in(args), None) is not None:
            for tensor in tensors_in(result if isinstance(result, tuple) else (result,)):
                self.computed[id(tensor)] = tensor, op.name

    def input(self, name: str, value: Any) -> Any:
        """Names an argument, and returns a copy: what is traced may write to it."""
        if isinstance(value, Tensor):
            copy = value.detach().clone()
            self.keep(copy, name)
            return copy
        if isinstance(value, list | tuple):
            names = [self.unique(f"{name}_{i}") for i in range(len(value))]
            if names:
                self.lines.append(f"{', '.join(names)}, = {name}")
            made = [self.input(n, v) for n, v in zip(names, value, strict=True)]
            return made if isinstance(value, list) else tuple(made)
        if isinstance(value, dict):
            names = [self.unique(f"{name}_{i}") for i in range(len(value))]
            self.lines += [f"{n} = {name}[{literal(key)}]" for n, key in zip(names, value, strict=True)]
            return {key: self.input(n, v) for n, (key, v) in zip(names, value.items(), strict=True)}
        return value

    def unique(self, name: str) -> str:
        """A name for a variable that no other has."""
        name = identifier(name)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def keep(self, tensor: Tensor, name: str) -> None:
        """Names a tensor."""
        self.names[id(tensor)] = name
        self.kept.append(tensor)

    def fresh(self) -> str:
        """A name for a variable."""
        return self.unique(f"_{len(self.lines)}")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        parts = [self.text(arg, _optional(func, i)) for i, arg in enumerate(args)]
        parts += [f"{name}={self.text(value)}" for name, value in given.items() if value is not None]
        self.inside += 1
        try:
            result = func(*args, **given)
        finally:
            self.inside -= 1
        if func.namespace != "aten":
            path = f"ops.{func.namespace}.{func.overloadpacket.__name__}"
        elif func is ops.aten.view.default:  # PyTorch's results may have other strides, as those of its LSTM
            path = "torch.reshape"
        else:
            path = f"torch.{func.overloadpacket.__name__}"
        call, name = f"{path}({', '.join(parts)})", self.fresh()
        if isinstance(result, Tensor):
            self.lines.append(f"{name} = {call}")
            self.keep(result, name)
        elif isinstance(result, list | tuple) and result and all(isinstance(r, Tensor | None) for r in result):
            names = [self.unique(f"{name}_{i}") for i in range(len(result))]
            if func.overloadpacket.__name__ in OF_LISTS:
                self.lines += [f"{name} = {call}", f"{', '.join(names)}, = {name}"]
            else:
                self.lines.append(f"{', '.join(names)} = {call}")
            for tensor, part in zip(result, names, strict=True):
                if tensor is not None:
                    self.keep(tensor, part)
        return result  # a number: from here on it is one of the program

    def text(self, value: Any, optional: bool = False) -> str:
        """The text of an argument."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, list | tuple):
            inside = ", ".join(self.text(v) for v in value)
            if optional:
                return f"annotate(List[Optional[Tensor]], [{inside}])"
            return f"[{inside}]" if inside else "annotate(List[int], [])"
        return literal(value)

    def tensor(self, tensor: Tensor) -> str:
        """The variable of a tensor. Raises: Untraceable if it was computed by something that was not seen."""
        if id(tensor) in self.names:
            return self.names[id(tensor)]
        place = self.places.get(id(tensor))
        if place is not None:
            if place not in self.used:
                self.used[place] = self.unique(f"p{len(self.used)}")
            return self.used[place]
        if id(tensor) in self.computed:
            what = self.computed[id(tensor)][1]
            raise Untraceable(f"a tensor was computed by what is not an operator of torch.ops.aten ({what})")
        self.constants.append(tensor.detach())
        self.keep(tensor, f"CONSTANTS.c{len(self.constants) - 1}")
        return self.names[id(tensor)]

    def result(self, value: Any) -> str:
        """The text of what is returned."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.result, value))}]"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.result, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{literal(k)}: {self.result(v)}" for k, v in value.items()) + "}"
        return literal(value)


# Functions that stay one operator.
WHOLE = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))

# The rows behind `interpolate`: the operator of each.
RESIZES = {row: ("_" if "exact" in row or row.endswith("_aa") else "") + row for row, _ in NAMES.values()}


def _resize(row: str, input: str, size: tuple, corners: bool, factors: tuple | None) -> str:
    """The call of an operator that resizes. With factors, the program does so for images of any size."""
    parts = [input, "None" if factors is not None else f"[{', '.join(map(literal, size))}]"]
    if "nearest" not in row:
        parts.append(literal(corners))
    parts.append("None" if factors is None else f"[{', '.join(map(literal, factors))}]")
    return f"torch.{RESIZES[row]}({', '.join(parts)})"


def _pad(row: str, input: str, pads: tuple, mode: str) -> str:
    """The call of `pad` with numbers for the last dimensions, as many as it allows."""
    dims = max(len(pads) - 2, 1)
    dims += any(pads[-dims - 1]) if len(pads) > dims else 0
    numbers = [n for pair in reversed(pads[-dims:]) for n in pair]
    return f"torch.pad({input}, [{', '.join(map(literal, numbers))}], {literal(mode)})"


# Rows that are operators, and are not seen as such: what writes their call.
UNSEEN: dict[str, Callable[..., str]] = {**dict.fromkeys(RESIZES, _resize), "pad_around": _pad}

OF_LISTS = frozenset(
    ("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "tensor_split", "meshgrid",
     "broadcast_tensors", "hsplit", "vsplit", "dsplit", "unsafe_split_with_sizes")
)  # fmt: skip


def _optional(func: Any, place: int) -> bool:
    """Whether an argument is a list of tensors that may be None."""
    return place == 1 and func.overloadpacket.__name__ in ("index", "index_put", "index_put_", "_index_put_impl_")


class Tree:
    """The classes of a module and of those inside of it, each with its parameters and buffers."""

    def __init__(self, module: Module | None, name: str) -> None:
        self.root, self.name = module, name
        self.classes: dict[int, str] = {}
        self.places: dict[int, str] = {}
        self.text = ""
        counts: dict[str, int] = {}
        for path, inner in () if module is None else module.named_modules():
            short = name if inner is module else identifier(type(inner).__name__)
            number = counts[short] = counts.get(short, -1) + 1
            self.classes[id(inner)] = (
                f"__torch__.___torch_mangle_{number - 1}.{short}" if number else f"__torch__.{short}"
            )
            for key, tensor in (*inner._parameters.items(), *inner._buffers.items()):
                if tensor is not None:
                    self.places.setdefault(id(tensor), f"{path}.{key}".lstrip("."))

    def forward(self, tape: Tape, inputs: dict[str, Any], result: Any) -> None:
        """Makes the text of the function."""
        returned, returns = tape.result(result), type_of(result)
        names = [f"{identifier(name)}: {type_of(value)}" for name, value in inputs.items()]
        lines = [f"def forward({', '.join([f'self: {self._top}', *names])}) -> {returns}:"]
        for place, variable in tape.used.items():
            *path, last = place.split(".")
            owner = "self"
            for part in path:
                inner = tape.unique(f"{variable}_in")
                lines.append(f"  {inner} = {_member(owner, part)}")
                owner = inner
            lines.append(f"  {variable} = {_member(owner, last)}")
        lines += [f"  {line}" for line in tape.lines]
        lines.append(f"  return {returned}")
        self.text = "\n".join(f"  {line}" for line in lines)

    @property
    def _top(self) -> str:
        return f"__torch__.{self.name}"

    def sources(self) -> dict[str, bytes]:
        """The files of the program."""
        files: dict[str, str] = {}
        modules: list[Module | None] = [None] if self.root is None else [m for _, m in self.root.named_modules()]
        for module in modules:
            full = self._top if module is None else self.classes[id(module)]
            prefix, _, short = full.rpartition(".")
            file = f"code/{prefix.replace('.', '/')}.py"
            files[file] = files.get(file, "") + self._class(short, module, module is self.root)
        return {name: text.encode() for name, text in files.items()}

    def _class(self, short: str, module: Module | None, first: bool) -> str:
        tables: Any = ({}, {}, {}) if module is None else (module._parameters, module._buffers, module._modules)
        parameters, buffers, children = ({k: v for k, v in table.items() if v is not None} for table in tables)
        lines = [f"class {short}(Module):"]
        for kind, members in (("parameters", parameters), ("buffers", buffers)):
            lines.append(f"  __{kind}__ = [{''.join(f'{literal(name)}, ' for name in members)}]")
        lines += [_declared(name, "Tensor") for name in (*parameters, *buffers)]
        lines.append("  training : bool")
        lines += [_declared(name, self.classes[id(child)]) for name, child in children.items()]
        return "\n".join([*lines, *([self.text] if first else [])]) + "\n"

    def module(self, program: Program | None, function: Any, reason: str) -> TopLevelTracedModule:
        """The modules, which share their parameters with those that were traced."""
        made: dict[int, Any] = {}

        def build(module: Module | None, cls: Any) -> Any:
            if id(module) not in made:
                full = self._top if module is None else self.classes[id(module)]
                found = program.find(full) if program is not None else Class(full, "Module")
                made[id(module)] = copy = cls(program, found)
                if module is not None:
                    copy._share(
                        module, {n: build(m, TracedModule) for n, m in module._modules.items() if m is not None}
                    )
            return made[id(module)]

        top = build(self.root, TopLevelTracedModule)
        object.__setattr__(top, "_traced", (function, reason))
        return top


def _member(owner: str, name: str) -> str:
    return f"{owner}.{name}" if identifier(name) == name else f"getattr({owner}, {literal(name)})"


def _declared(name: str, kind: str) -> str:
    return f"  {name} : {kind}" if identifier(name) == name else f"  __annotations__[{literal(name)}] = {kind}"
