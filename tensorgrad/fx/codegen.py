"""Turns a graph into Python code: `GraphModule.code`."""

from __future__ import annotations

import builtins
import keyword
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorgrad
from tensorgrad.fx import _pytree as fx_pytree
from tensorgrad.fx.node import Node, _get_qualified_name, _type_repr, is_enum
from tensorgrad.fx.torch_functions import public_name
from tensorgrad.utils import _pytree

__all__ = ["CodeGen", "PythonCode"]

magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}",
    "truediv": "{} / {}", "floordiv": "{} // {}", "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}",
    "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}  # fmt: skip
reflectable_magic_methods = {
    name: magic_methods[name]
    for name in (
        "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul",
    )
}  # fmt: skip
inplace_methods = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}",
    "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}",
    "isub": "{} -= {}", "itruediv": "{} /= {}", "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip
# Names that generated code may use without an import.
_PREDEFINED = {
    "inf": float("inf"), "nan": float("nan"), "NoneType": type(None), "torch": tensorgrad,
    "device": tensorgrad.device, "pytree": _pytree, "fx_pytree": fx_pytree,
}  # fmt: skip


class Namespace:
    """The names in use in a graph or its code. Gives new ones: `add`, `add_1`, ..."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}  # what a name stands for, by identity or node -> the name
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """Returns a name that is not in use, made of a suggestion; the name of `obj` (if not None) from now on."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = re.fullmatch(r"(.*)_(\d+)", candidate)
        base, number = (numbered.group(1), int(numbered.group(2))) if numbered else (candidate, None)
        if number is None:
            number = self._last.get(base, 0)
        elif candidate not in self._used and not self._is_taken(candidate, obj):
            pass
        while candidate in self._used or self._is_taken(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def _is_taken(self, name: str, obj: Any) -> bool:
        """Whether a name means something else in Python, or in generated code."""
        if name in keyword.kwlist:
            return True
        if hasattr(builtins, name):
            return obj is not getattr(builtins, name)
        return name in _PREDEFINED and obj is not _PREDEFINED[name]

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Says that a name that is in use stands for an object."""
        self._names[obj] = name

    def copy(self) -> Namespace:
        """Returns one with the same names in use, for other objects."""
        made = Namespace()
        made._used, made._last = set(self._used), dict(self._last)
        return made


@dataclass
class PythonCode:
    """The code of a graph: its text, the values of the names in it that are not local, and line -> node."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int] | None = None


class CodeGen:
    """How a graph becomes a function. A subclass may change its head and its `return` line.

    >>> print(torch.fx.symbolic_trace(lambda x: x + 1).code.strip())
    def forward(self, x):
        add = x + 1;  x = None
        return add
    """

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Returns the head of the function: what it is called, and its parameters."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """Returns the line that returns the result."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """Turns the arguments of a call into values of the placeholders."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Turns the value of the output node into the result of the call."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Returns names, and their values, that the code uses besides those of the nodes."""
        return []

    def _gen_python_code(self, nodes: Any, root_module: str, namespace: Namespace) -> PythonCode:
        return _Writer(self, nodes, root_module, namespace).code()


class _Writer:
    """Writes the code of one graph."""

    def __init__(self, codegen: CodeGen, nodes: Any, root: str, namespace: Namespace):
        self.codegen, self.nodes, self.root, self.namespace = codegen, list(nodes), root, namespace
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.returns = ""
        for name, value in _PREDEFINED.items():
            self.globals[name] = value
        for name, value in codegen.additional_globals():
            self.add_global(name, value)

    def code(self) -> PythonCode:
        last_uses = self.last_uses()
        lines: list[tuple[int, str]] = []
        for i, node in enumerate(self.nodes):
            self.body = []
            self.emit(node)
            if node.op not in ("placeholder", "output"):
                done = [*last_uses.get(node, ()), *([] if node.users else [node])]
                if done:
                    self.body.append(f";  {' = '.join([*map(repr, done), 'None'])}")
            text = "".join(self.body)
            if text or node.op not in ("placeholder", "output"):
                lines += [(i, line) for line in text.split("\n")]
        texts = [line for _, line in lines] or ["pass"]
        if self.codegen._body_transformer:
            texts = "".join(self.codegen._body_transformer([f"{line}\n" for line in texts])).rstrip("\n").split("\n")
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        head = self.codegen.gen_fn_def(self.parameters, self.returns)
        src = "\n" + wraps + "\n\n" + head + "\n" + "".join(f"    {line}\n" for line in texts) + "    "
        first = src[: src.index(head)].count("\n") + 2
        return PythonCode(src, self.globals, {first + at: i for at, (i, _) in enumerate(lines)})

    def last_uses(self) -> dict[Node, list[Node]]:
        """Node -> the nodes that are not needed after it, so that their memory can be freed."""
        seen: set[Node] = set()
        found: dict[Node, list[Node]] = {}
        for user in reversed(self.nodes):
            for node in user._input_nodes:
                if node not in seen:
                    seen.add(node)
                    found.setdefault(user, []).append(node)
        return found

    def add_global(self, hint: str, value: Any) -> str:
        """Returns a name for a value that is not local."""
        module = getattr(value, "__module__", None) or ""
        ours = public_name(value) is not None or (
            hasattr(value, "__name__") and _get_qualified_name(value).startswith("torch.ops.")
            if not isinstance(value, type)
            else module.split(".")[0] in ("tensorgrad", "torch") and hasattr(value, "__name__")
        )
        if ours and value is not tensorgrad.device:
            name = _get_qualified_name(value)
            found = _resolved(name)
            if found is value or (public_name(value) and callable(found)):  # PyTorch has aliases of the same function
                return name
        name = self.namespace.create_name(hint.replace(".", "_"), _Identity(value) if not _is_builtin(value) else value)
        self.globals[name] = value
        return name

    def value(self, arg: Any) -> str:
        """An argument as code."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple):
            if hasattr(arg, "_fields"):
                return (
                    f"{self.add_global(_get_qualified_name(type(arg)), type(arg))}({', '.join(map(self.value, arg))})"
                )
            return f"({', '.join(map(self.value, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{self.value(key)}: {self.value(value)}" for key, value in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({self.value(arg.start)}, {self.value(arg.stop)}, {self.value(arg.step)})"
        if is_enum(arg):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, type) or (callable(arg) and hasattr(arg, "__name__")):
            return self.add_global(_get_qualified_name(arg), arg)
        return repr(arg)

    def arguments(self, args: Any, kwargs: dict[str, Any]) -> str:
        named = (
            f"{name} = {self.value(value)}" if _is_name(name) else f"**{{{_quoted(name)}: {self.value(value)}}}"
            for name, value in kwargs.items()
        )
        return ", ".join([*map(self.value, args), *named])

    def annotation(self, node: Node) -> str:
        return "" if node.type is None else f" : {self.type_name(node.type)}"

    def type_name(self, kind: Any) -> str:
        """A type as code; of `int | str`, each part by itself."""
        if isinstance(kind, types.UnionType):
            return "|".join(map(self.type_name, kind.__args__))
        plain = isinstance(kind, type) and not hasattr(kind, "__origin__")
        return _type_repr(kind) if plain and _known_type(kind) else self.add_global(_type_repr(kind), kind)

    def emit(self, node: Node) -> None:
        """Appends the code of one node to the body."""
        name, add = _checked(repr(node), "a node"), self.body.append
        left = f"{name}{self.annotation(node)} = "
        if node.op == "placeholder":
            target = str(node.target)
            default = f" = {self.value(node.args[0])}" if node.args else ""
            self.parameters.append(f"{target}{self.annotation(node)}{default}")
            raw = _checked(target.replace("*", ""), "an input")
            if raw != name:
                add(f"{name} = {raw}")
        elif node.op == "call_method":
            method = _attribute(self.value(node.args[0]), str(node.target))
            add(f"{left}{method}({self.arguments(node.args[1:], node.kwargs)})")
        elif node.op == "call_module":
            add(f"{left}{_attribute(self.root, str(node.target))}({self.arguments(node.args, node.kwargs)})")
        elif node.op == "get_attr":
            add(f"{left}{_attribute(self.root, str(node.target))}")
        elif node.op == "call_function":
            self.emit_call(node, left)
        elif node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.annotation(node).removeprefix(' : ')}"
            add(self.codegen.generate_output(node.args[0], repr_fn=self.value))
        else:
            raise NotImplementedError(f"node: {node.op} {node.target}")

    def emit_call(self, node: Node, left: str) -> None:
        target: Any = node.target
        if getattr(target, "__module__", None) == "_operator" and not node.kwargs:
            operator = target.__name__
            if operator in magic_methods:
                values = [self.value(arg) for arg in node.args]
                if operator == "pow" and values[0].startswith("-"):  # `-2 ** x` would be -(2 ** x)
                    values[0] = f"({values[0]})"
                self.body.append(left + magic_methods[operator].format(*values))
                return
            if operator in inplace_methods:
                values = [self.value(arg) for arg in node.args]
                self.body.append(f"{inplace_methods[operator].format(*values)};  {left}{values[0]}")
                return
        name = self.add_global(_get_qualified_name(target), target)
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            self.body.append(f"{left}{_attribute(self.value(node.args[0]), node.args[1])}")
            return
        self.body.append(f"{left}{name}({self.arguments(node.args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped[name] = None


class _Identity:
    """A value as the key of a dict, whether it can be hashed or not."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value


def _is_builtin(value: Any) -> bool:
    return getattr(builtins, getattr(value, "__name__", ""), None) is value


def _known_type(kind: type) -> bool:
    """Whether code can write the name of a class as it is."""
    return kind.__module__ == "builtins" or (
        kind.__module__.split(".")[0] in ("tensorgrad", "torch") and _resolved(_type_repr(kind)) is kind
    )


def _resolved(name: str) -> Any:
    """What a name that begins with `torch.` leads to; None if nothing."""
    found: Any = tensorgrad
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _attribute(base: str, target: str) -> str:
    """`base.a.b`; parts that are not identifiers by `getattr`, as PyTorch writes it."""
    for part in target.split("."):
        base = f"{base}.{part}" if _is_name(part) else f"getattr({base}, {_quoted(part)})"
    return base


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _quoted(text: str) -> str:
    """A string as code, in double quotes, as PyTorch writes it, unless it has characters that need care."""
    return f'"{text}"' if text.isprintable() and not {*text} & {'"', "\\"} else repr(text)


def _checked(name: str, what: str) -> str:
    """The name. Raises: RuntimeError if it is not one: it would be code."""
    if not _is_name(name):
        raise RuntimeError(f"the name of {what} must be an identifier of Python, but got {name!r:.200}")
    return name
