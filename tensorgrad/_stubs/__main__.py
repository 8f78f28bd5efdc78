"""Generates type stubs for the ops, for editors and type checkers, from the op table.

    python -m tensorgrad._stubs          writes the files below (and reports which changed)
    python -m tensorgrad._stubs --check  only reports whether they are up to date; exit status 1 if not

- `methods.pyi`, `functions.pyi`, `functional.pyi`, `special.pyi`: the methods of Tensor, and the functions of
  `torch`, `torch.nn.functional` and `torch.special`. They exist for type checkers only and are never imported.
- `return_types.pyi`: the named results.
- the `__init__.pyi` of `tensorgrad`, `tensorgrad.nn`, ...: what these packages have (exports.py).
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from pathlib import Path

from tensorgrad._stubs.exports import layer_files, moved_files, package, return_types
from tensorgrad._stubs.forms import forms
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.tensor import Tensor

HERE = Path(__file__).parent.parent
WIDTH = 120

OPERAND = "Tensor | _Number"
# Parameters that have the same type everywhere, for composites that do not annotate them.
NAMES = {
    "other": OPERAND, "exponent": OPERAND, "dtype": "_dtype | None", "device": "_device | _str | _int | None",
    "requires_grad": "_bool", "generator": "_Generator | None", "out": "Tensor | None",
}  # fmt: skip

# The names that a stub may use. Stubs define functions such as `float` and `sum`, so Python's types get aliases.
BUILTINS = ("bool", "complex", "float", "int", "str")
VOCABULARY = {name: f"_{name}" for name in BUILTINS} | {
    "Any": "Any", "Callable": "Callable", "Number": "_Number", "RemovableHandle": "_RemovableHandle",
    "Sequence": "Sequence",
    "Size": "_Size", "Tensor": "Tensor", "list": "builtins.list", "tuple": "builtins.tuple",
    "devices.device": "_device", "dtype": "_dtype",
    "dtypes.dtype": "_dtype",
}  # fmt: skip
IMPORTS = {
    "_device": ("tensorgrad.devices", "device as _device"),
    "_dtype": ("tensorgrad.dtypes", "dtype as _dtype"),
    "_Size": ("tensorgrad.size", "Size as _Size"),
    "Tensor": ("tensorgrad.tensor", "Tensor"),
    "_Generator": ("tensorgrad.random", "Generator as _Generator"),
    "_layout": ("tensorgrad.layouts", "layout as _layout"),
    "_memory_format": ("tensorgrad.layouts", "memory_format as _memory_format"),
    "_return_types": ("tensorgrad", "return_types as _return_types"),
    "_RemovableHandle": ("tensorgrad.utils.hooks", "RemovableHandle as _RemovableHandle"),
}


# --- one function ------------------------------------------------------------------------------------------------


def of_function(function, name: str, method: bool, result: str, out: bool) -> str:
    """The stub of a function: uses its annotations if they are types that the stub can name."""
    parts, star, previous = [], False, None
    signature = inspect.signature(function)
    for i, p in enumerate(signature.parameters.values()):
        if previous is p.POSITIONAL_ONLY is not p.kind:
            parts.append("/")
        previous = p.kind
        if p.name == "out" and not out:
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or p.kind is p.VAR_POSITIONAL
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        if i == 0 and method and not prefix:
            parts.append("self")
        elif prefix:
            parts.append(f"{prefix}{p.name}: {known(p.annotation)}")
        else:
            parts.append(f"{p.name}: {type_of(p)}" + ("" if p.default is p.empty else " = ..."))
    if previous is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return define(name, parts, result or known(signature.return_annotation))


def type_of(p: inspect.Parameter) -> str:
    """The type of a composite's parameter."""
    if p.annotation is p.empty:
        text = NAMES.get(p.name, "Any")
        return f"{text} | None" if p.default is None and text != "Any" and "None" not in text else text
    return known(p.annotation)


def known(annotation) -> str:
    """Translates an annotation to the stub's names; `Any` if it contains other names."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))

    def translate(match: re.Match) -> str:
        if match[0].startswith("return_types."):
            return f"_{match[0]}"
        return VOCABULARY.get(match[0], match[0] if match[0] == "None" else "?")

    translated = re.sub(r"[A-Za-z_][\w.]*", translate, text.strip("'\""))
    return "Any" if "?" in translated else translated


def define(name: str, parts: list[str], result: str) -> str:
    """A definition, wrapped like the formatter would if it is too long (callers indent methods)."""
    line = f"def {name}({', '.join(parts)}) -> {result}: ..."
    indent = 4 if parts and parts[0] == "self" else 0
    if len(line) + indent <= WIDTH:
        return line
    inside = ", ".join(parts)
    if len(inside) + indent + 4 <= WIDTH:
        return f"def {name}(\n    {inside}\n) -> {result}: ..."
    return f"def {name}(\n    " + ",\n    ".join(parts) + f",\n) -> {result}: ..."


def in_place_of(name: str):
    """The function of which `name_` or `__iname__` is the in-place form, used if that has no annotations."""
    if name.startswith("__i") and name.endswith("__"):
        return vars(Tensor).get(f"__{name[3:]}")
    if name.endswith("_") and not name.endswith("__"):
        return vars(Tensor).get(name[:-1]) or FUNCTIONS.get(name[:-1]) or FUNCTIONAL.get(name[:-1])
    return None


def signature_of(function, name: str, method: bool) -> str:
    """The stub of a function: its forms, if it has several; from its out-of-place form; or from itself."""
    several = forms(name, method)
    if several:
        mark = "@overload\n" if len(several) > 1 else ""
        return "\n".join(mark + define(name, *form) for form in several)
    out, result = not name.startswith("__"), ""
    if inspect.signature(function).return_annotation is inspect.Signature.empty:
        base = in_place_of(name)
        if base is not None:
            function, out, result = base, False, "Tensor"
        elif name.startswith("__"):
            result = "None" if name in ("__setitem__", "__delitem__") else "Tensor"
    return of_function(function, name, method, result, out)


# --- the files ---------------------------------------------------------------------------------------------------


def stub(lines: list[str]) -> str:
    """A stub file: the imports and aliases needed by these lines, followed by the lines."""
    body = "\n".join(lines) + "\n"
    used = set(re.findall(r"\w+", body))
    numbers = [name for name in BUILTINS if name != "str"]
    aliases = {f"_{name}": f"builtins.{name}" for name in BUILTINS if f"_{name}" in used}
    if "_Number" in used:
        aliases |= {f"_{name}": f"builtins.{name}" for name in numbers}
        aliases["_Number"] = " | ".join(f"_{name}" for name in numbers)
    abstract = [name for name in ("Callable", "Sequence") if name in used]
    head = ['"""Generated by `python -m tensorgrad._stubs` from the op table: do not edit."""', "", "import builtins"]
    head += [f"from collections.abc import {', '.join(abstract)}"] if abstract else []
    typed = [name for name in ("Any", "Literal", "TypeAlias", "overload") if name in used or name == "TypeAlias"]
    head += [f"from typing import {', '.join(typed)}", ""]
    head += [f"from {module} import {name}" for used_as, (module, name) in IMPORTS.items() if used_as in used] + [""]
    head += [f"{name}: TypeAlias = {meaning}" for name, meaning in aliases.items()] + [""]
    return "\n".join(head) + "\n" + body


def methods_stub() -> str:
    """`methods.pyi`: the methods that ops attach to Tensor."""
    lines = ["class TensorMethods:"]
    own = _methods_written_in_the_class()
    for name, value in sorted(vars(Tensor).items()):
        if name in own or keyword.iskeyword(name):
            continue
        if isinstance(value, property):
            result = known(inspect.signature(value.fget).return_annotation) if value.fget else "Any"
            lines += ["@property", f"def {name}(self) -> {result}: ..."]
            if value.fset:
                lines += [f"@{name}.setter", f"def {name}(self, value: {OPERAND}) -> None: ..."]
        elif callable(value) and not isinstance(value, type | classmethod):
            first, newline, rest = signature_of(value, name, True).partition("\n")
            # `object.__eq__` returns a bool, that of tensors one value per element.
            ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
            lines.append(first + ignore + newline + rest)
    return stub([lines[0], *("    " + line.replace("\n", "\n    ") for line in lines[1:])])


def _methods_written_in_the_class() -> set:
    tree = ast.parse((HERE / "tensor.py").read_text())
    cls = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    names = {"__module__", "__doc__", "__dict__", "__weakref__", "__slots__", "__hash__"}
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def functions_stub(table: dict) -> str:
    """The stub file of a table of functions."""
    return stub([signature_of(f, name, False) for name, f in sorted(table.items()) if not keyword.iskeyword(name)])


def main(arguments: list[str]) -> int:
    """Writes or checks all files; returns the exit status."""
    check = "--check" in arguments
    from tensorgrad.nn import functional
    from tensorgrad.ops.special.special import SPECIAL

    public = {name: value for name, value in vars(functional).items() if name in FUNCTIONAL or name in FUNCTIONS}
    wanted = {
        "_stubs/methods.pyi": methods_stub(),
        "_stubs/functions.pyi": functions_stub(FUNCTIONS),
        "_stubs/functional.pyi": functions_stub(public),
        "_stubs/special.pyi": functions_stub(SPECIAL),
        "return_types.pyi": return_types(),
        "__init__.pyi": package("tensorgrad", ("tensorgrad._stubs.functions",), {n for n in FUNCTIONS if n[0] != "_"}),
        **{f"{name}/__init__.pyi": package(f"tensorgrad.{name}") for name in ("nn", "optim", "utils")},
        **{f"nn/modules/{file}.pyi": text for file, text in layer_files().items()},
        **{f"{file}.pyi": text for file, text in moved_files().items()},
    }
    stale = [name for name, text in wanted.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    for name in stale:
        if not check:
            (HERE / name).write_text(wanted[name])
        print(f"{'out of date' if check else 'written'}: tensorgrad/{name}")
    if not stale:
        print("stubs are current")
    return int(check and bool(stale))


if __name__ == "__main__":
    import tensorgrad  # noqa: F401
    from tensorgrad.system.command import run

    run(main)
