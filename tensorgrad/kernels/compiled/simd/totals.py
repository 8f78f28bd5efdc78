"""Sums over rows, in the same order on every processor.

A compiler that may choose the order of a sum uses as many partial sums as its registers hold, and two processors give
two results. Here the order is stated: number i belongs to the partial sum i mod PARTS (of several blocks of these, that
take turns, since each addition waits for the one before it), and these are added by halves. A vector of PARTS numbers
is one register, two or four, as processors have them, and the bits of the sum are equal on all of them.

    row_dot = total(lambda a, b: a * b)

What is summed is a function of `Numbers`: PARTS numbers of each array, and other arguments PARTS times. It becomes a
function of arrays (all as long as the first) and float32 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.kernels.compiled.runtime.language import data_of, declared, intrinsic, ir, length_of, types
from tensorgrad.kernels.compiled.simd.vectors import PARTS, loop

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _WHOLE = ir.VectorType(_F32, PARTS), ir.VectorType(_I32, PARTS)
_LANES = ir.Constant(_WHOLE, list(range(PARTS)))


def _repeated(number: float) -> Any:
    return ir.Constant(_VECTOR, [float(number)] * PARTS)


class Numbers:
    """PARTS numbers. A sum or difference with a product is computed in one instruction."""

    def __init__(self, builder: Any, value: Any, factors: tuple[Any, Any] | None = None):
        self.builder, self._value, self._factors = builder, value, factors

    @property
    def value(self) -> Any:
        if self._value is None:
            assert self._factors is not None
            self._value = self.builder.fmul(*self._factors)
        return self._value

    def _other(self, other: Any) -> Numbers:
        return other if isinstance(other, Numbers) else Numbers(self.builder, _repeated(other))

    def __add__(self, other: Any) -> Numbers:
        other = self._other(other)
        product, more = (self, other) if self._factors else (other, self)
        if not product._factors:
            return Numbers(self.builder, self.builder.fadd(self.value, other.value))
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fused = declared(self.builder.module, kind, f"llvm.fma.v{PARTS}f32")
        return Numbers(self.builder, self.builder.call(fused, [*product._factors, more.value]))

    def __sub__(self, other: Any) -> Numbers:
        return Numbers(self.builder, self.builder.fsub(self.value, self._other(other).value))

    def __mul__(self, other: Any) -> Numbers:
        return Numbers(self.builder, None, (self.value, self._other(other).value))

    def same(self, number: Any) -> Numbers:
        """One number, PARTS times."""
        return self._other(number)

    def at_least(self, number: float) -> Numbers:
        """The larger of each number and another; nan stays nan."""
        less = self.builder.fcmp_ordered("<", self.value, _repeated(number))
        return Numbers(self.builder, self.builder.select(less, _repeated(number), self.value))

    def power(self) -> Numbers:
        """2ⁿ for n + TO_POWER (functions.py)."""
        bits = self.builder.shl(self.builder.bitcast(self.value, _WHOLE), ir.Constant(_WHOLE, [23] * PARTS))
        return Numbers(self.builder, self.builder.bitcast(bits, _VECTOR))


def _if(builder: Any, condition: Any, held: list[Any], more: Callable) -> list[Any]:
    """Returns the values that `more` makes of some, if a condition holds; else those."""
    before = builder.block
    with builder.if_then(condition):
        made, inside = more(held), builder.block
    ends = []
    for new, old in zip(made, held, strict=True):
        ends.append(builder.phi(old.type))
        ends[-1].add_incoming(old, before)
        ends[-1].add_incoming(new, inside)
    return ends


def _halved(builder: Any, vector: Any, combine: Callable) -> Any:
    """Combines the halves of a vector until one number is left."""
    part = PARTS
    while part > 1:
        part //= 2
        low, high = (
            builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, part), list(range(at, at + part))))
            for at in (0, part)
        )
        vector = combine(low, high)
    return builder.extract_element(vector, ir.Constant(_I32, 0))


def total(
    term: Callable, arrays: int = 1, numbers: int = 0, results: int = 1, blocks: int = 4, writes: bool = False,
    times: bool = False,
) -> Any:  # fmt: skip
    """Makes the function of so many arrays and numbers that sums `term`, or each of its `results`.

    `blocks`: of partial sums. `writes`: the last array is not read; the terms are written to it (it may be another of
    the arrays). `times`: the product instead of the sum.
    """
    first = _repeated(1.0 if times else 0.0)

    def typed(*kinds: Any) -> tuple[Any, Callable]:
        given = [kind if n < arrays else types.float32 for n, kind in enumerate(kinds)]
        return (types.float32 if results == 1 else types.UniTuple(types.float32, results))(*given), code

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointers = [data_of(context, builder, signature.args[n], given[n]) for n in range(arrays)]
        count = length_of(context, builder, signature.args[0], given[0])
        spread = []
        for number in given[arrays:]:
            one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_I32, 0))
            spread.append(Numbers(builder, builder.shuffle_vector(one, one, ir.Constant(_WHOLE, [0] * PARTS))))
        combine = builder.fmul if times else builder.fadd

        def place(pointer: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [at]), _VECTOR.as_pointer())

        def terms(at: Any, sums: list[Any], mask: Any = None) -> list[Any]:
            """Adds PARTS terms to their partial sums, or those under a mask."""
            loaded = []
            for pointer in pointers[: arrays - writes]:
                here = place(pointer, at)
                if mask is None:
                    loaded.append(Numbers(builder, builder.load(here, align=4)))
                else:
                    kind = ir.FunctionType(_VECTOR, [here.type, _I32, mask.type, _VECTOR])
                    load = declared(builder.module, kind, f"llvm.masked.load.v{PARTS}f32.p0")
                    given = [here, ir.Constant(_I32, 4), mask, _repeated(0.0)]
                    loaded.append(Numbers(builder, builder.call(load, given)))
            made = term(*loaded, *spread)
            made = made if isinstance(made, tuple) else (made,)
            if writes:
                here = place(pointers[-1], at)
                if mask is None:
                    builder.store(made[0].value, here, align=4)
                else:
                    kind = ir.FunctionType(ir.VoidType(), [_VECTOR, here.type, _I32, mask.type])
                    store = declared(builder.module, kind, f"llvm.masked.store.v{PARTS}f32.p0")
                    builder.call(store, [made[0].value, here, ir.Constant(_I32, 4), mask])
                made = (Numbers(builder, made[0].value), *made[1:])
            if times:
                found = [combine(so_far, each.value) for so_far, each in zip(sums, made, strict=True)]
            else:
                found = [(Numbers(builder, so_far) + each).value for so_far, each in zip(sums, made, strict=True)]
            if mask is None:
                return found
            return [builder.select(mask, new, old) for new, old in zip(found, sums, strict=True)]

        zero, many = ir.Constant(_I64, 0), PARTS * blocks

        def several(at: Any, sums: list[Any]) -> list[Any]:
            made = []
            for n in range(blocks):
                here = builder.add(at, ir.Constant(_I64, n * PARTS))
                made += terms(here, sums[n * results : (n + 1) * results])
            return made

        def in_blocks(held: list[Any]) -> list[Any]:
            """Sums as many numbers as fill all blocks. Returns how many, and one block."""
            end = builder.sub(count, ir.Constant(_I64, many - 1))
            k, sums = loop(builder, zero, end, many, [first] * (blocks * results), several)
            parts = [sums[n : n + results] for n in range(0, len(sums), results)]
            while len(parts) > 1:
                rest = parts[len(parts) // 2 * 2 :]
                parts = [list(map(combine, a, b)) for a, b in zip(parts[::2], parts[1::2])] + rest
            return [k, *parts[0]]

        def rest(held: list[Any]) -> list[Any]:
            """Adds the last numbers, fewer than PARTS."""
            left = builder.trunc(builder.sub(count, k), _I32)
            one = builder.insert_element(ir.Constant(_WHOLE, ir.Undefined), left, zero)
            limit = builder.shuffle_vector(one, one, ir.Constant(_WHOLE, [0] * PARTS))
            return terms(k, held, builder.icmp_signed("<", _LANES, limit))

        enough = builder.icmp_signed(">=", count, ir.Constant(_I64, many))
        k, *sums = _if(builder, enough, [zero, *[first] * results], in_blocks)
        k, sums = loop(builder, k, builder.sub(count, ir.Constant(_I64, PARTS - 1)), PARTS, sums, terms)
        sums = _if(builder, builder.icmp_signed("<", k, count), sums, rest)
        found = [_halved(builder, vector, combine) for vector in sums]
        return found[0] if results == 1 else context.make_tuple(builder, signature.return_type, found)

    return intrinsic(_OF_AS_MANY[arrays + numbers](typed))


# Numba asks a function how many arguments it has.
_OF_AS_MANY: dict[int, Callable] = {
    1: lambda typed: lambda typing, a: typed(a),
    2: lambda typed: lambda typing, a, b: typed(a, b),
    3: lambda typed: lambda typing, a, b, c: typed(a, b, c),
    4: lambda typed: lambda typing, a, b, c, d: typed(a, b, c, d),
    5: lambda typed: lambda typing, a, b, c, d, e: typed(a, b, c, d, e),
}
