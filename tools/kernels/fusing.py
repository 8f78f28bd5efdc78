"""Products are added in one instruction where the source says so, and not where LLVM chooses to.

A function compiled with fastmath={"contract"} may round a b + c once. LLVM decides that when it makes machine code, by
what a processor does well, and so differently for two of them. Here it is decided before, on the function as Numba
writes it: a product that only one sum or difference uses becomes part of it (`llvm.fma`, one instruction at every
level). Nothing is left for LLVM to decide: no instruction that it gets has a flag that lets it change a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from tools.kernels import internals

_NAMES = {"float": "f32", "double": "f64"}


def _used(instruction: Any) -> Iterator[Any]:
    if isinstance(instruction, ir.PhiInstr):
        return (value for value, _ in instruction.incomings)
    return iter(instruction.operands)


def _name(kind: Any) -> str | None:
    """Returns what LLVM's names of functions say of a type of numbers, or of vectors of them; None of another type."""
    if isinstance(kind, ir.VectorType):
        name = _NAMES.get(str(kind.element))
        return name and f"v{kind.count}{name}"
    return _NAMES.get(str(kind))


def fused(module: Any, options: Any) -> None:
    """Does what `fastmath` asks for: in the place of Numba's function, which passes flags on to LLVM."""
    if options.flags != {"contract"}:
        raise NotImplementedError(f"sums are taken in one order on all processors: {options.flags} lets LLVM choose")
    for function in module.functions:
        uses = Counter(id(value) for block in function.blocks for one in block.instructions for value in _used(one))
        for block in function.blocks:
            block.instructions[:] = [each for one in block.instructions for each in _in_one(block, one, uses)]


def _in_one(block: Any, one: Any, uses: Counter) -> list[Any]:
    """Returns the instructions that compute what `one` does: if it adds a product, the call that does both."""
    name = _name(one.type) if one.opname in ("fadd", "fsub") else None
    which = [n for n, value in enumerate(one.operands) if name and _is_product(value) and uses[id(value)] == 1]
    if not which:
        return [one]
    (a, b), other = one.operands[which[0]].operands, one.operands[1 - which[0]]
    before = []
    if one.opname == "fsub":
        known = [n for n, factor in enumerate((a, b)) if which[0] and isinstance(getattr(factor, "constant", 0), float)]
        if known:
            a, b = (b, a) if known[0] == 0 else (a, b)
            b = ir.Constant(one.type, -b.constant)
        else:
            before = [ir.Instruction(block, one.type, "fneg", [a if which[0] else other])]
            a, other = (before[0], other) if which[0] else (a, before[0])
    kind = ir.FunctionType(one.type, [one.type] * 3)
    call = ir.CallInstr(block, internals.declared(block.module, kind, f"llvm.fma.{name}"), [a, b, other])
    call._name = one._name  # by which others refer to it
    return [*before, call]


def _is_product(value: Any) -> bool:
    return isinstance(value, ir.Instruction) and value.opname == "fmul"
