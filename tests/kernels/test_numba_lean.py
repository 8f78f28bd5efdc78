"""Functions compiled with the replacements of lean.py and shortcuts.py return what Python returns."""

import pytest

from tests.support.kernels import absent
from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
pytestmark = pytest.mark.skipif(bool(absent()), reason=absent())

# Run with Numba in this process.
BEGIN = """
    from functools import partial
    import numpy as np
    from tensorgrad.kernels.compiled.runtime import launch, target
    from tools.kernels import dialect, internals
    dialect.use(target.chosen())
    from tensorgrad.kernels.compiled.runtime.language import inner, njit
    from tests.support import compiling

    def compiled(signature, function, **options):
        return partial(launch._launcher()[1], compiling.compiled(function, signature, "plain", **options))
"""

CONTROL = """
    def walk(x, first, last, step):
        total, best, seen = 0, -1, 0
        for i in range(first, last, step):
            if x[i] > best:
                best, seen = x[i], i
            elif x[i] == 0:
                continue
            for j in range(i % 3):
                total += j * x[i] + seen
                if total > 10_000:
                    return total
        n = first
        while n < last:
            n += 7
            total += n // 3 - (-n) % 5
        return total + 31 * best + seen

    made = compiled("int64(int64[::1], int64, int64, int64)", walk)
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.integers(0, 50, 40)
        first, last = sorted(rng.integers(0, 40, 2).tolist())
        step = int(rng.integers(1, 6))
        assert made(x, first, last, step) == walk(x, first, last, step)
        assert made(x, last, first - 1, -step) == walk(x, last, first - 1, -step)
    try:
        made(x, 0, 5, 0)
    except ValueError as error:
        print(error)
"""

ARRAYS = """
    @inner
    def halves(x):
        return x[: x.size // 2], x[x.size // 2 :]

    @inner
    def positive(number):
        if number < 0:
            raise ArithmeticError("below")
        return number

    @inner
    def largest(x):
        most = x[0]
        for i in range(1, x.size):
            most = max(most, x[i])
        return most

    def mixed(x, y, order):
        held = np.empty(x.size, np.float32)
        left, right = halves(x)
        held[: left.size] = left
        held[left.size :] = 2.0
        rows = held.reshape(2, x.size // 2)
        rows[1] += rows[0]
        for n in order:
            a, b = (left, right) if n > 1 else (right, left)
            y[n, :] = a[n] * b[0] + positive(n)
        y[0, 1:3] = largest(held)
        return y.shape[0] * 10 + y[0].size

    made = compiled("int64(float32[::1], float32[:,::1], UniTuple(int64, 3))", mixed)
    halves, positive, largest = halves.py_func, positive.py_func, largest.py_func  # what `mixed` calls in Python
    rng = np.random.default_rng(1)
    for order in ((0, 1, 2), (2, 2, 0)):
        x, y = rng.standard_normal(8).astype(np.float32), rng.standard_normal((3, 4)).astype(np.float32)
        other = y.copy()
        assert made(x, y, order) == mixed(x, other, order) == 34
        assert np.array_equal(y, other)
    try:
        made(x, y, (0, -1, 0))
    except ArithmeticError as error:
        print(error)
"""

LESS = """
    import numba
    from numba.core import codegen

    def scaled(x, out, first, last):
        for i in range(first, last):
            row, to = x[i], out[i]
            for j in range(row.size):
                to[j] = row[j] * np.float32(2) + x[i, 0]

    written = []
    parse = codegen.ll.parse_assembly
    codegen.ll.parse_assembly = lambda text: (written.append(text.count(chr(10))), parse(text))[1]
    signature = "void(float32[:,::1], float32[:,::1], int64, int64)"
    internals.Compiled(scaled, signature, {"error_model": "numpy"})
    lean = max(written)
    written.clear()
    numba.njit(signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(scaled)
    print(lean < max(written) / 2)
"""

REFUSED = """
    def catching(x):
        try:
            return 1 // x
        except Exception:
            return 0

    @njit
    def numbers(x):
        yield x

    def yielding(x):
        total = 0
        for i in numbers(x):
            total += i
        return total

    for function in (catching, yielding):
        try:
            compiled("int64(int64)", function)
        except Exception as error:
            print("cannot" in str(error) or error)
"""


ALIKE = """
    import struct
    from tools.kernels import entries

    found, like_before = [], internals._like_before
    internals._like_before = lambda *given: found.append(like_before(*given)) or found[-1]

    def folding(function, start):
        def fold(x):
            total = start
            for i in range(x.size):
                total = function(total, x[i])
            return total

        return fold

    SIGNATURE = "int64(int64[::1])"

    def shared(function, start=0):
        '''Returns a loop over a function, and whether it was made of an earlier one.'''
        return compiled(SIGNATURE, folding(function, start), calls=(function,)), found[-1] is not None

    def machine_code(calls):
        data = entries.built(folding(larger, 0), SIGNATURE, "plain", "entry", calls=calls)
        (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
        listed = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]
        return [data[s[4] : s[4] + s[5]] for s in listed if s[1] == 1 and s[2] & 4], data[:4]  # what is executed

    @inner
    def added(a, b):
        return a + b

    @inner
    def larger(a, b):
        return max(a, b)

    @inner
    def halved(a, b):
        return a + b * 0.5

    @inner
    def careful(a, b):
        if b == 13:
            raise ValueError("thirteen")
        return a - b

    x = np.array([5, 12, -3])
    for function, start, expected, alike in (
        (added, 0, 14, False), (larger, 0, 12, True), (added, 1, 15, False), (larger, 1, 12, True),
        (halved, 0, 7, False), (careful, 0, -14, False), (careful, 1, -13, False),
    ):
        made, was_alike = shared(function, start)
        assert (made(x), was_alike) == (expected, alike), (function, start, made(x), was_alike)
    try:
        made(np.array([1, 13, 2]))
    except ValueError as error:
        print(error)
    anew, before = machine_code(()), machine_code((larger,))
    assert found[-1] is not None and anew[0] and (anew == before or anew[1] != b"\\x7fELF")
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (CONTROL, "range() arg 3 must not be zero"), (ARRAYS, "below"), (LESS, "True"), (REFUSED, "True\nTrue"),
        (ALIKE, "thirteen"),
    ],
    ids=["control", "arrays", "less", "refused", "alike"],
)  # fmt: skip
def test_compiled_functions_are_python_s(program, expected):
    done = run_python(BEGIN + program, env=environment())
    assert done.stdout.strip() == expected, done.stderr
