"""The elementwise part of a step of an LSTM or GRU, and of its gradient, written for vector registers.

Each reads and writes a dozen rows of numbers. A compiler divides that into several loops, and checks before each of
them that no two rows overlap. Here everything stays in registers from the first load to the last store. The functions
are those of `functions.py`.
"""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.runtime.language import counted, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    MANY,
    VECTOR,
    load_vector,
    multiply_add,
    pointer_at,
    pointer_of,
    store_vector,
)  # fmt: skip

_I32S = ir.VectorType(ir.IntType(32), LANES)
_SIGN = -(1 << 31)  # the bit of a number's sign


class _Vectors:
    """Emits arithmetic on lists of vectors; a plain number stands for itself everywhere.

    What is done to one vector of a list is emitted beside what is done to the others: a processor waits several cycles
    for a result, and looks only so far ahead for something else to do.
    """

    def __init__(self, builder):
        self.builder, self.fused = builder, multiply_add(builder)

    def each(self, emit, *operands):
        """Returns [emit(a, b, ...)] for the vectors a, b, ... of the operands."""
        several = max(len(given) for given in operands if isinstance(given, list))
        spread = [
            given if isinstance(given, list) else [ir.Constant(VECTOR, [float(np.float32(given))] * LANES)] * several
            for given in operands
        ]
        return [emit(*vectors) for vectors in zip(*spread, strict=True)]

    def fma(self, a, b, c):
        """a b + c"""
        return self.each(lambda *given: self.builder.call(self.fused, given), a, b, c)

    def mul(self, a, b):
        return self.each(self.builder.fmul, a, b)

    def add(self, a, b):
        return self.each(self.builder.fadd, a, b)

    def sub(self, a, b):
        return self.each(self.builder.fsub, a, b)

    def where(self, relation, a, b, yes, no):
        """`yes` where a is in that relation to b, `no` elsewhere and where one of them is nan."""
        builder = self.builder
        return self.each(lambda a, b, y, n: builder.select(builder.fcmp_ordered(relation, a, b), y, n), a, b, yes, no)

    def bits(self, emit, *operands):
        """Returns the numbers whose bits `emit` makes of those of the operands, each as a whole number."""

        def made(*given):
            return self.builder.bitcast(emit(*[self.builder.bitcast(x, _I32S) for x in given]), VECTOR)

        return self.each(made, *operands)

    def exp_and_one(self, x):
        """eˣ + 1, as `functions.exp_and_one` computes it."""
        y = self.where(">", x, 89.0, 89.0, x)
        y = self.where("<", y, -87.0, -87.0, y)
        p, z = functions.exp_factor(self.fma, self.sub, y, functions.TO_POWER)
        return self.fma(p, self.bits(lambda z: self.builder.shl(z, _repeated(23)), z), 1.0)

    def sigmoids_and_tanh(self, xs, y):
        """σ of some lists and tanh of another one, all at the same time."""
        count = len(y)
        sign = self.bits(lambda y: self.builder.and_(y, _repeated(_SIGN)), y)
        a = self.bits(self.builder.xor, y, sign)
        exponents = [x for given in xs for x in self.sub(-0.0, given)] + self.add(a, a)
        shares = self.each(self.builder.fdiv, 1.0, self.exp_and_one(exponents))
        s = self.mul(y, y)
        p = functions.polynomial(self.fma, functions.TANH, s)
        near = self.fma(self.mul(y, s), p, y)
        far = self.bits(self.builder.or_, self.fma(shares[-count:], -2.0, 1.0), sign)
        sigmoids = [shares[n * count : (n + 1) * count] for n in range(len(xs))]
        return *sigmoids, self.where("<", a, 0.625, near, far)

    def sigmoids(self, *xs):
        """σ of some lists, all at the same time."""
        count = len(xs[0])
        exponents = [x for given in xs for x in self.sub(-0.0, given)]
        shares = self.each(self.builder.fdiv, 1.0, self.exp_and_one(exponents))
        return [shares[n * count : (n + 1) * count] for n in range(len(xs))]

    def tanh(self, x):
        return self.sigmoids_and_tanh([], x)[0]


def _repeated(value):
    return ir.Constant(_I32S, [value] * LANES)


def _rows(names: str, *passes):
    """Makes the code of an intrinsic of rows, each given as an array and where it begins, then `hidden` and `count`.

    A pass is the vectors to do at a time, and emit(vectors, load, store), which emits what is done at each of `count`
    LANES places of the rows. `load(name, part)` loads from a row, `part` times `hidden` further. Nothing checks bounds.
    """
    listed = names.split()

    def code(context, builder, signature, given):
        kinds = signature.args
        pointers = {
            name: pointer_of(context, builder, kinds[2 * n], given[2 * n], given[2 * n + 1])
            for n, name in enumerate(listed)
        }
        hidden, count, vectors = given[-2], given[-1], _Vectors(builder)
        parts = [builder.mul(hidden, ir.Constant(I64, part)) for part in range(4)]
        starts = {
            (name, n): pointer_at(builder, p, part) for name, p in pointers.items() for n, part in enumerate(parts)
        }

        def over(first, last, several, emit):
            with counted(builder, builder.sdiv(builder.sub(last, first), ir.Constant(I64, several))) as n:
                n = builder.add(first, builder.mul(n, ir.Constant(I64, several)))
                first_of_them = builder.mul(n, ir.Constant(I64, LANES))
                places = [builder.add(first_of_them, ir.Constant(I64, i * LANES)) for i in range(several)]

                def load(name, part=0):
                    return [load_vector(builder, starts[name, part], place) for place in places]

                def store(held, name, part=0):
                    for vector, place in zip(held, places, strict=True):
                        store_vector(builder, vector, starts[name, part], place)

                emit(vectors, load, store)

        for several, emit in passes:
            whole = builder.sub(count, builder.srem(count, ir.Constant(I64, several)))
            over(ir.Constant(I64, 0), whole, several, emit)
            if several > 1:
                over(whole, count, 1, emit)
        return nothing(context)

    return code


def _gates(v, load, store):
    before = [v.add(load("inside", n), load("bias", n)) for n in range(4)]
    inputs, forget, output, new = v.sigmoids_and_tanh([before[0], before[1], before[3]], before[2])
    state = v.fma(forget, load("state"), v.mul(inputs, new))
    for n, gate in enumerate((inputs, forget, new, output)):
        store(gate, "acts", n)
    for name in ("state", "cell"):
        store(state, name)


def _results(v, load, store):
    result = v.mul(load("acts", 3), v.tanh(load("cell")))
    for name in ("out", "h"):
        store(result, name)


_lstm_step = _rows("inside bias state acts cell out h", (2 if MANY else 1, _gates), (4, _results))


@intrinsic
def lstm_step(typing, inside, i, bias, b, state, s, acts, a, cell, c, out, o, h, n, hidden, count):
    """Computes a step of one sequence, whose gates before the biases and activations are at inside[i].

    Gates (input, forget, cell, output) are `hidden` apart. The cell state at state[s] is replaced and also written to
    cell[c], the gates are written to acts[a], the hidden state to out[o] and h[n].
    """
    at = types.int64
    return types.void(inside, at, bias, at, state, at, acts, at, cell, at, out, at, h, at, at, at), _lstm_step


def _slopes(v, load, store):
    inputs, forget, new, output = (load("acts", n) for n in range(4))
    to_h, t = v.add(load("above"), load("back")), v.tanh(load("cell"))
    through = v.mul(to_h, output)
    to_c = v.fma(through, v.sub(1.0, v.mul(t, t)), load("carried"))
    slopes = (
        v.mul(v.mul(to_c, new), v.mul(inputs, v.sub(1.0, inputs))),
        v.mul(v.mul(to_c, load("old")), v.mul(forget, v.sub(1.0, forget))),
        v.mul(v.mul(to_c, inputs), v.sub(1.0, v.mul(new, new))),
        v.mul(v.mul(through, t), v.sub(1.0, output)),
    )
    store(v.mul(to_c, forget), "carried")
    for n, slope in enumerate(slopes):
        store(slope, "slopes", n)
        store(v.add(load("sums", n), slope), "sums", n)


_lstm_slopes = _rows("above back carried acts cell old slopes sums", (2, _slopes))


@intrinsic
def lstm_slopes(typing, above, g, back, d, carried, e, acts, a, cell, c, old, o, slopes, s, sums, m, hidden, count):
    """Computes the gradients of a step's gates before their activations at slopes[s], and adds them to sums[m].

    The gradient of the hidden state is the sum of those at above[g] and back[d], that of the cell state is at
    carried[e] and replaced by that of the step before. The cell state is at cell[c], that before the step at old[o].
    """
    at = types.int64
    kind = types.void(
        above, at, back, at, carried, at, acts, at, cell, at, old, at, slopes, at, sums, at, at, at
    )  # fmt: skip
    return kind, _lstm_slopes


def _gru_gates(v, load, store):
    reset, update = v.sigmoids(*[v.add(load("inside", n), load("bias", n)) for n in range(2)])
    inner = v.add(load("more"), load("bias", 3))
    new = v.tanh(v.fma(reset, inner, v.add(load("fresh"), load("bias", 2))))
    result = v.fma(update, v.sub(load("state"), new), new)
    for n, kept in enumerate((reset, update, new, inner)):
        store(kept, "acts", n)
    for name in ("state", "out"):
        store(result, name)


_gru_step = _rows("inside more fresh bias state acts out", (2 if MANY else 1, _gru_gates))


@intrinsic
def gru_step(typing, inside, i, more, m, fresh, f, bias, b, state, s, acts, a, out, o, hidden, count):
    """Computes a step of one sequence. The reset and update gates before bias and activation are at inside[i].

    What the hidden state contributes to the new gate is at more[m], and x at fresh[f]. `bias` has those of the reset
    and update gates, of x for the new gate, and of the hidden state for it. The hidden state at state[s] is replaced
    and also written to out[o]; the gates, and the hidden state's contribution to the new one, are written to acts[a].
    """
    at = types.int64
    return types.void(inside, at, more, at, fresh, at, bias, at, state, at, acts, at, out, at, at, at), _gru_step


def _gru_slopes_of(v, load, store):
    reset, update, new, inner = (load("acts", n) for n in range(4))
    to_h = v.add(load("above"), load("back"))
    to_new = v.mul(v.mul(to_h, v.sub(1.0, update)), v.sub(1.0, v.mul(new, new)))
    to_update = v.mul(v.mul(to_h, v.sub(load("old"), new)), v.mul(update, v.sub(1.0, update)))
    to_reset = v.mul(v.mul(to_new, inner), v.mul(reset, v.sub(1.0, reset)))
    within = v.mul(to_new, reset)
    store(v.mul(to_h, update), "back")
    for n, slope in enumerate((to_new, to_reset, to_update)):
        store(slope, "slopes", n)
    for n, slope in enumerate((to_reset, to_update, within)):
        store(slope, "inside", n)
    for n, slope in enumerate((to_reset, to_update, to_new, within)):
        store(v.add(load("sums", n), slope), "sums", n)


_gru_slopes = _rows("above back acts old slopes inside sums", (2, _gru_slopes_of))


@intrinsic
def gru_slopes(typing, above, g, back, d, acts, a, old, o, slopes, s, inside, i, sums, m, hidden, count):
    """Computes the gradients of a step's gates before their activations.

    Those that x sees are written to slopes[s] (new, reset, update), those that the hidden state sees to inside[i]
    (reset, update, new), and all are added to sums[m] (reset, update, new of x, new of the hidden state). The gradient
    of the hidden state is the sum of those at above[g] and back[d]; the latter is replaced by what does not pass the
    gates. The hidden state before the step is at old[o].
    """
    at = types.int64
    return types.void(above, at, back, at, acts, at, old, at, slopes, at, inside, at, sums, at, at, at), _gru_slopes
