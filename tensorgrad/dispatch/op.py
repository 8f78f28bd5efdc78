"""An op is one row: its signature, its kernel, and one derivative formula per differentiable input.

    mul = pointwise("mul(input, other)", "multiply",
                    input=lambda g, other: g * other.conj(), other=lambda g, input: g * input.conj())

A formula is an ordinary function over tensors. Its own parameter names say what the graph saves: `g` is the gradient
of the output, `out` the output, any other name a parameter of the op; `input_shape` (`tensors_shape`, ...) saves only
a shape, `input_dtype` only a dtype. Nothing else is kept.

In a signature a parameter without an annotation is a tensor (optional if its default is None), `tensors` marks a list
of tensors, and every other annotation is a plain value, passed to the kernel as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.dispatch.kernel_tables import OPS, KernelTable

# Variables of the generated functions.
RESERVED = re.compile(r"made|arrays?|steps|node|saved|storage|view|error|[xre]\d+")

TENSOR, OPTIONAL, LIST, PLAIN_VALUE = "tensor", "optional tensor", "list of tensors", "plain value"


class Param(NamedTuple):
    """One parameter of an op."""

    name: str
    kind: str
    annotation: str  # as written; "" for tensors
    default: str  # as written; "" if it is required
    keyword: bool  # only by keyword

    @property
    def is_tensor(self) -> bool:
        return self.kind is not PLAIN_VALUE


def parse(signature: str) -> tuple[str, tuple[Param, ...]]:
    """The name and parameters of `"name(a, b=None, dim: int = 0, *, flag: bool = False)"`."""
    name, _, inside = signature[:-1].partition("(")
    params, keyword = [], False
    for part in split_outside_brackets(inside):
        if part == "*":
            keyword = True
            continue
        left, _, default = part.partition("=")
        param, _, annotation = (s.strip() for s in left.partition(":"))
        kind = PLAIN_VALUE if annotation else OPTIONAL if default.strip() == "None" else TENSOR
        if annotation == "tensors":
            kind = LIST
        params.append(Param(param, kind, annotation, default.strip(), keyword))
    return name, tuple(params)


def split_outside_brackets(text: str) -> list[str]:
    """`"a, b=(1, 2)"` as `["a", "b=(1, 2)"]`."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text else []


class Op:
    """A row of the op table. Made by the kinds (`dispatch/kinds.py`), never changed afterwards."""

    def __init__(
        self,
        signature: str,
        kernel: str | Callable | None,
        *,
        kind: str,
        formulas: dict[str, Callable] | None = None,
        backward: Callable | None = None,
        wrt: tuple[str, ...] = (),
        twin: Callable | None = None,
        prepare: Callable | None = None,
        shape: Callable | None = None,
        rule: str = "same",
        numbers: tuple[str, ...] | str | None = None,
        outputs: tuple[str, ...] = ("out",),
        differentiable_outputs: int = 1,
        cache: str = "",
        on_arrays: bool = False,
        backward_kernel: str | Callable = "",
        backward_name: str = "",
        format_of: tuple[str, ...] = (),
        format_ranks: tuple[int, ...] = (),
        doc: str = "",
    ):
        self.signature, self.kind, self.rule = signature, kind, rule
        self.name, self.params = parse(signature)
        self.kernel, self.twin, self.prepare, self.shape = kernel, twin, prepare, shape
        self.formulas, self.all_at_once, self.outputs = formulas or {}, backward, outputs
        if any(p.name == "out" for p in self.params):  # a derivative that takes an op's output: it has no `out=`
            self.outputs = tuple("result" if name == "out" else name for name in outputs)
        self.differentiable_outputs = differentiable_outputs
        self.cache = cache  # what the kernel returns beside its output: an array for the formulas, seen by nobody else
        self.takes_number = self._takes_number(numbers)
        camel = "".join(word.title() for word in self.name.strip("_").split("_"))
        self.backward_name = backward_name or f"{camel}Backward0"
        self.format_of = format_of  # the results lie in channels_last if one of these inputs does
        self.format_ranks = format_ranks  # (only if the first has one of these numbers of dimensions)
        self.doc = doc
        self.wrt = tuple(p.name for p in self.params if p.name in self.formulas or p.name in wrt)
        self._read_formulas()
        self.kernels = KernelTable(self)
        self.large = KernelTable(self, large=True)  # those for arrays of `few` elements and more (kernels/numba/)
        self.few = sys.maxsize
        self.on_arrays = on_arrays  # the formulas are plain arithmetic, which arrays understand as well as tensors
        self.backward_kernel = backward_kernel  # all gradients in one go, on arrays; the formulas are its twin
        self.array_backwards: Any = None  # array class -> backward on arrays (dispatch/generate.py)
        self.backward: Any = None  # (node, grads) -> gradients, generated by dispatch/generate.py
        self.call: Any = None  # what users call
        self.operator: Any = None  # what `a + b` calls
        self._plain: Any = None
        if self.name in OPS:
            raise ValueError(f"op {self.name!r} is declared twice")
        taken = [p.name for p in self.params if RESERVED.fullmatch(p.name)]
        if taken:
            raise NameError(f"op {self.name}: a parameter cannot be called {taken[0]!r}, as the generated code uses it")
        OPS[self.name] = self

    def _takes_number(self, numbers) -> tuple[bool, ...]:
        """For each tensor parameter, whether a Python number may stand for it: in pointwise ops all but the first,
        unless the row names them (or says "all")."""
        tensors = [p.name for p in self.params if p.is_tensor]
        if numbers is None:
            numbers = tensors[1:] if self.kind == "pointwise" else ()
        return tuple(numbers == "all" or name in numbers for name in tensors)

    def _read_formulas(self) -> None:
        """From the formulas' parameter names: what is saved, and for the sake of which inputs."""
        tensors = {p.name for p in self.params if p.is_tensor}
        plain = {p.name for p in self.params if not p.is_tensor}
        self.saved: dict[str, set[str]] = {}  # tensor parameter or output -> the inputs whose gradient needs it
        self.kept: list[str] = []  # plain values
        users = {name: (formula,) for name, formula in self.formulas.items()}
        if self.all_at_once is not None:
            users = {name: (self.all_at_once,) for name in self.wrt}
        for name, (formula,) in users.items():
            for wanted in arguments_of(formula):
                if wanted in ("g", "grads", "needs"):
                    continue
                if wanted in tensors or wanted in self.outputs or wanted == self.cache:
                    self.saved.setdefault(wanted, set()).add(name)
                elif wanted in plain or wanted.rpartition("_")[0] in tensors:
                    if wanted not in self.kept:
                        self.kept.append(wanted)
                else:
                    raise NameError(f"op {self.name}: the formula for {name} asks for {wanted!r}, which the op has not")

    @property
    def plain(self):
        """The op without the test for rare things: what the slow path runs in the end."""
        if self._plain is None:
            from tensorgrad.dispatch import generate

            self._plain = generate.build(self, "plain")
        return self._plain

    def __repr__(self) -> str:
        return f"<op {self.signature}>"


def arguments_of(function: Callable) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
