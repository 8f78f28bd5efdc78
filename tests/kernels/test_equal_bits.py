"""Kernels of all levels give results that are equal to the last bit: their sums and products are taken in one order."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library, target
from tests.support import kernels
from tests.support.processes import environment, run_python

ROOT = Path(tensorgrad.__file__).parent.parent
# Families that sum, which take a few seconds to compile each, and their programs.
SUMMING = {
    "softmax": ("softmax",),
    "norm": ("norm",),
    "norm_of_rows": ("norm_of_rows",),
    "reduce": ("reduce",),
    "optim": ("optim.squares", "optim.adam"),
}


def digests(file: Path, *programs: str) -> list[str]:
    """Returns the lines that tests/support/bits.py prints of some programs."""
    done = run_python(None, "-m", "tests.support.bits", str(file), *programs, env=environment("TENSORGRAD"))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files of all levels that this processor has."""
    pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
    if len(target.here()) < 2:
        pytest.skip("this processor has one level, or none")
    folder = tmp_path_factory.mktemp("levels")
    for level in target.here():
        if os.path.isfile(target.file_of(level)):
            shutil.copy(target.file_of(level), folder)
        done = run_python(
            None, "-m", "tools.kernels", "--into", str(folder), "--level", level,
            env=environment() | {"PYTHONPATH": str(ROOT)}, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    return [folder / f"{level}.kernels" for level in target.here()]


@pytest.mark.slow
@pytest.mark.parametrize("programs", [(), ("drawn:0", "drawn:1")], ids=["verify", "drawn"])
def test_levels_of_this_processor_give_equal_bits(files, programs):
    first, *others = [digests(file, *programs) for file in files]
    assert len(first) > 400
    for other in others:
        assert [a for a, b in zip(first, other, strict=True) if a != b] == []


@pytest.mark.slow
def test_networks_are_trained_alike_at_all_levels(files):
    first, *others = [digests(file, "training") for file in files]
    losses = [float(line.split()[-1]) for line in first]
    assert len(losses) == 4 * 8 and all(losses[n] > losses[n + 7] for n in range(0, 32, 8))
    assert all(other == first for other in others)


@pytest.mark.slow
@pytest.mark.skipif(bool(kernels.absent()), reason=kernels.absent())
def test_another_processor_gives_equal_bits(tmp_path):
    """`python -m tests.support.bits FILE` compares all kernels: that takes two minutes."""
    pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
    pytest.importorskip("unicorn", reason="Unicorn emulates the processor")
    given = environment("TENSORGRAD") | {"PYTHONPATH": str(ROOT)}
    file, families = tmp_path / "file", ("runtime.spin", *SUMMING)
    done = run_python(None, "-m", "tests.support.compiling", "aarch64", str(file), *families, env=given, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    programs = [program for family in SUMMING.values() for program in family]
    assert digests(file, *programs) == digests(Path(library.image().file), *programs)


def test_no_kernel_asks_for_another_order():
    """(Of what LLVM makes of them, the compiler looks at each function: tools/kernels/internals.py.)"""
    asked = set()
    for file in (ROOT / "tensorgrad" / "kernels" / "compiled").rglob("*.py"):
        asked |= set(re.findall(r"fastmath=[^,)]*|flags=[^,)]*|llvm\.fmuladd|reassoc", file.read_text()))
    assert asked == {'fastmath={"contract"}'}


# --- the order that is promised --------------------------------------------------------------------------------------


def by_parts(numbers: np.ndarray, blocks: int, start: float = 0.0) -> np.float32:
    """Sums as simd/totals.py says."""
    parts, at = np.full((blocks, 16), start, np.float32), 0
    while at + 16 * blocks <= numbers.size:
        parts += numbers[at : at + 16 * blocks].reshape(blocks, 16)
        at += 16 * blocks
    while len(parts) > 1:
        parts = parts[::2] + parts[1::2]
    part = parts[0]
    for k in range(at, numbers.size, 16):
        part[: min(16, numbers.size - k)] += numbers[k : k + 16]
    while part.size > 1:
        part = part[: part.size // 2] + part[part.size // 2 :]
    return part[0]


@pytest.mark.skipif(bool(kernels.absent()), reason=kernels.absent())
def test_a_row_is_summed_by_sixteen_partial_sums():
    """The gradient of log_softmax is g - softmax · Σ g: where softmax is 1 and g is 0 it is -Σ g."""
    rows = [row for row in table.ROWS if row.op.startswith("log_softmax")]
    with kernels.used_for_any_size(rows):
        for width in (2, 15, 16, 17, 63, 64, 65, 100, 127, 1000, 4099):
            g = np.random.default_rng(width).standard_normal((3, width)).astype(np.float32)
            g[:, 0] = 0
            x = np.full((3, width), -200, np.float32)
            x[:, 0] = 0
            t = tensorgrad.from_numpy(x).requires_grad_()
            t.log_softmax(-1).backward(tensorgrad.from_numpy(g))
            assert [float(-v) for v in t.grad[:, 0]] == [float(by_parts(row, 4)) for row in g], width


# --- products that are added in one instruction ----------------------------------------------------------------------


def fused(emit, contract=True) -> str:
    """Returns the LLVM IR of a function of a, b and c whose result `emit(builder, a, b, c)` is, as it is compiled."""
    pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
    from llvmlite import binding, ir

    from tools.kernels import fusing

    module, number = ir.Module(), ir.FloatType()
    function = ir.Function(module, ir.FunctionType(number, [number] * 3), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(emit(builder, *function.args))
    fusing.fused(module, type("Options", (), {"flags": {"contract"} if contract else {"reassoc"}}))
    binding.initialize_native_target()
    binding.parse_assembly(str(module)).verify()
    lines = [line.strip() for line in str(module).splitlines()]
    return "\n".join(line for line in lines if re.match(r"%.* = (?!fmul)|ret", line))


def test_a_product_that_is_added_is_one_instruction():
    def once(b, x, y, z):
        return b.fadd(z, b.fmul(x, y))

    assert re.fullmatch(r"(%\S+) = call float @\"llvm.fma.f32\"\(float %\".1\", .*%\".2\", .*%\".3\"\)\nret float \1",
                        fused(once))  # fmt: skip


@pytest.mark.parametrize(
    ("emit", "calls", "signs"),
    [
        (lambda b, x, y, z: b.fsub(b.fmul(x, y), z), 1, 1),
        (lambda b, x, y, z: b.fsub(z, b.fmul(x, y)), 1, 1),
        (lambda b, x, y, z: b.fsub(z, b.fmul(x.type(2.0), y)), 1, 0),  # a constant has a sign
        (lambda b, x, y, z: b.fadd(b.fmul(x, y), b.fmul(y, z)), 1, 0),
        (lambda b, x, y, z: b.fadd(b.fmul(b.fadd(b.fmul(x, y), z), y), z), 2, 0),  # a polynomial
        (lambda b, x, y, z: (lambda p: b.fadd(b.fadd(p, y), p))(b.fmul(x, y)), 0, 0),  # a product that is used twice
        (lambda b, x, y, z: b.fadd(x, b.fadd(y, z)), 0, 0),
    ],
)
def test_what_is_one_instruction(emit, calls, signs):
    made = fused(emit)
    assert (made.count("llvm.fma.f32"), made.count("fneg")) == (calls, signs)


def test_a_flag_that_leaves_the_order_to_the_compiler_is_refused():
    with pytest.raises(NotImplementedError, match="reassoc"):
        fused(lambda b, x, y, z: b.fadd(x, y), contract=False)
