"""Object files are loaded as LLVM loads them, and what is not known is left to LLVM."""

import ctypes
import struct
from collections import Counter
from random import Random

import pytest

from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

import llvmlite.binding as llvm

from tensorgrad.kernels.numba.runtime import internals, native, objects

pytestmark = pytest.mark.skipif(not objects.USABLE, reason="only on Linux with x86-64")

CODE = """
target triple = "{triple}"
@counter = internal global i64 5
@table = internal constant [4 x i64 ()*] [i64 ()* @zero, i64 ()* @one, i64 ()* @zero, i64 ()* @one]
@wide = internal constant [8 x i64] [i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8], align 64
declare i64 @labs(i64)
define internal i64 @zero() noinline {{ ret i64 0 }}
define internal i64 @one() noinline {{ ret i64 1 }}
define i64 @entry(i64 %n) {{
  %before = load i64, i64* @counter
  %after = add i64 %before, %n
  store i64 %after, i64* @counter
  %bits = and i64 %n, 3
  %place = getelementptr [4 x i64 ()*], [4 x i64 ()*]* @table, i64 0, i64 %bits
  %function = load i64 ()*, i64 ()** %place
  %odd = call i64 %function()
  %constant = getelementptr [8 x i64], [8 x i64]* @wide, i64 0, i64 %bits
  %number = load i64, i64* %constant
  %positive = call i64 @labs(i64 %after)
  %thousands = mul i64 %positive, 1000
  %tens = mul i64 %number, 10
  %sum = add i64 %thousands, %tens
  %all = add i64 %sum, %odd
  ret i64 %all
}}
"""


def compiled(text: str = CODE) -> bytes:
    """Returns an object as kernels are: functions, constants, what is written, and a function of the process."""
    module = llvm.parse_assembly(text.format(triple=internals.triple()))
    return internals.machine(*native.cpu()).emit_object(module)


@pytest.fixture(scope="module")
def data():
    return compiled()


def test_an_object_is_loaded(data):
    """Twice: each has its own memory."""
    for _ in range(2):
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
            objects.load(data, "entry", {"labs": objects.address_of("labs")})
        )
        assert [call(-7), call(1), call(2)] == [2021, 1021, 1030]


def test_code_cannot_be_written_and_data_cannot_be_run(data):
    address = objects.load(data, "entry", {"labs": objects.address_of("labs")})
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file]
    modes = {}
    for bounds, mode, *_ in lines:
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        modes |= {"code": mode} if first <= address < last else {}
        modes |= {"data": mode} if first == last_of_code(lines, address) else {}
    assert modes == {"code": "r-xp", "data": "rw-p"}


def last_of_code(lines, address):
    """Returns the end of the mapping that has the address."""
    bounds = [tuple(int(bound, 16) for bound in line[0].split("-")) for line in lines]
    return next(last for first, last in bounds if first <= address < last)


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def sections(data):
    """Returns the place of each section's header, its kind, and where it begins."""
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    for at in range(table, table + size * count, size):
        yield at, *struct.unpack_from("<I", data, at + 4), *struct.unpack_from("<Q", data, at + 24)


def test_what_is_not_known_is_refused(data):
    relocations = next(begins for _, kind, begins in sections(data) if kind == 4)
    wrong = {
        "another kind of relocation": changed(data, relocations + 8, b"\x02"),
        "per thread": changed(data, next(at for at, kind, _ in sections(data) if kind == 1) + 8, b"\x06\x04"),
    }
    for why, each in wrong.items():
        with pytest.raises(objects.Unknown):
            objects.load(each, "entry", {"labs": objects.address_of("labs")})
            pytest.fail(why)


def test_what_is_damaged_does_not_reach_llvm(data, monkeypatch):
    """It would crash there. Sizes and places that are too large for Python's functions count, too."""
    relocations = next(begins for _, kind, begins in sections(data) if kind == 4)
    header, symbols = next((header, begins) for header, kind, begins in sections(data) if kind == 2)
    (length,) = struct.unpack_from("<Q", data, header + 32)
    names = list(struct.iter_unpack("<IBBHQQ", data[symbols : symbols + length]))
    entry = next(n for n, (_, info, _, where, _, size) in enumerate(names) if info == 0x12 and where and size)
    damaged = {
        "another processor": changed(data, 18, b"\xb7"),
        "a program": changed(data, 16, b"\x02"),
        "outside its section": changed(data, relocations, b"\xff\xff\xff\x7f"),
        "a symbol that is not there": changed(data, relocations + 12, b"\xff\xff"),
        "an entry outside its section": changed(data, symbols + 24 * entry + 8, b"\xff\xff\xff\x7f"),
        "sections that are not there": changed(data, 40, b"\xff" * 8),
        "a section that is too large": changed(data, list(sections(data))[2][0] + 32, b"\xff" * 8),
        "cut off": data[:-100],
        "the beginning": data[:70],
        "nothing": b"",
    }
    monkeypatch.setattr(native, "_loader", lambda: pytest.fail("LLVM is asked"))
    monkeypatch.setattr(native, "_addresses", {})
    for why, each in damaged.items():
        with pytest.raises(RuntimeError, match="a compiled kernel is damaged: "):
            native.load(each, "entry", ["labs"])
            pytest.fail(why)
    for name, known in (("another", ["labs"]), ("entry", [])):
        with pytest.raises(RuntimeError, match="a compiled kernel is damaged: "):
            native.load(data, name, known)


def test_any_changed_byte_is_read_safely(data):
    """Of a copy with some bytes changed, cut off anywhere: it is loaded, or refused with one of the two errors."""
    random = Random(0)
    outcomes = Counter()
    for _ in range(2000):
        copy = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(copy) - 8)
            size = random.choice((1, 8))
            copy[at : at + size] = random.choice((b"\0", b"\xff", b"\x7f", random.randbytes(1))) * size
        try:
            objects.load(bytes(copy[: random.choice((len(copy), random.randrange(len(copy))))]), "entry", {"labs": 1})
            outcomes["loaded"] += 1
        except (objects.Unknown, objects.Damaged) as error:
            outcomes[type(error).__name__] += 1
    assert all(outcomes[kind] > 10 for kind in ("loaded", "Unknown", "Damaged")), outcomes


def test_llvm_loads_what_is_refused(data, monkeypatch):
    monkeypatch.setattr(objects, "_ADDRESS", 99)
    monkeypatch.setattr(native, "_addresses", {})
    name = "entry"
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.load(data, name, ["labs"]))
    assert call(-7) == 2021
    with pytest.raises(RuntimeError, match="names missing from this process: no_such_name"):
        native.load(data, "other", ["labs", "no_such_name"])


PROGRAM = """
import sys
import tensorgrad as torch
from tensorgrad.kernels.numba.runtime import background, objects
load, loaded = objects.load, []
objects.load = lambda *args: loaded.append(load(*args)) or loaded[-1]
x = torch.linspace(-1, 1, 200_000)
for _ in range(2):
    torch.relu(x)
    background.wait()
print(len(loaded) > 0, "llvmlite" in sys.modules, "numba" in sys.modules)
"""


def test_a_program_imports_no_llvm():
    done = run_python(PROGRAM, env=environment("TENSORGRAD_FAST", "NUMBA_CPU"), timeout=300)
    assert done.stdout.split() == ["True", "False", "False"], done.stdout + done.stderr[-2000:]


def test_the_processor_is_told_by_the_system_as_by_llvm(monkeypatch):
    for name in native.GIVEN:
        monkeypatch.delenv(name, raising=False)
    [described] = native.processor("")
    assert described.count("\n") == 4
    for feature in ("avx", "avx2", "fma", "avx512f"):
        assert native.has(feature) is (f"+{feature}" in native.cpu()[1].split(","))
    monkeypatch.setenv("TENSORGRAD_CPU", "x86-64-v2")
    assert native.processor("x86-64-v2") == native.cpu() and not native.has("avx")


@pytest.mark.parametrize("level", native.LEVELS)
def test_levels_are_told_by_the_system_as_by_llvm(level, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CPU", level)
    found = native.unusable()
    monkeypatch.setattr(native, "_described", lambda: "")
    assert native.unusable() == found and ("lacks" in found or level.startswith("x86-64"))
