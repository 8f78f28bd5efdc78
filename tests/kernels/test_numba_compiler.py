"""The process that compiles kernels, and its cache: found again, never believed when damaged or foreign."""

import importlib.metadata
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from tests.support.processes import ROOT, environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad.kernels.numba.runtime import background, cache, internals, loading, native
from tensorgrad.kernels.numba.runtime.compiler import Compiler, Failed

RELU = "pointwise.relu"


def run(code, folder, cwd=ROOT, **variables):
    given = environment(**{"TENSORGRAD_CACHE": str(folder), "TENSORGRAD_FAST": "1", **variables})
    return run_python(code, cwd=cwd, env=given, timeout=500)


# What relu gives, and how much was compiled for it: an object that is loaded was compiled by somebody.
USE = """
import json, sys, warnings
import numpy as np
import tensorgrad as torch
from tensorgrad.kernels.numba.runtime import compiler, background
asked, real = [], compiler.Compiler.compile
compiler.Compiler.compile = lambda self, kernel, where: (asked.append(kernel), real(self, kernel, where))
x = np.linspace(-1, 1, 6000, dtype=np.float32)
made = background.compiled("pointwise.relu")
assert (made(x) == np.maximum(x, 0)).all()
print(json.dumps({"asked": asked, "numba": "numba" in sys.modules, "file": torch.__file__}))
"""


def used(folder, **options):
    done = run(USE, folder, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that holds one kernel."""
    folder = tmp_path_factory.mktemp("cache")
    assert used(folder)["asked"] == [RELU]
    return folder


@pytest.fixture
def copy(filled, tmp_path, monkeypatch):
    """A copy of it to do harm to."""
    folder = tmp_path / "cache"
    shutil.copytree(filled, folder)
    monkeypatch.setenv("TENSORGRAD_CACHE", str(folder))
    return folder


def proven():
    return cache.read("pointwise").proven


def test_a_second_process_compiles_nothing(filled):
    before = {f.name: f.stat().st_mtime_ns for f in filled.iterdir()}
    found = used(filled)
    assert found["asked"] == [] and found["numba"] is False
    assert {f.name: f.stat().st_mtime_ns for f in filled.iterdir()} == before, "it grows, or is written anew"


def test_information_says_what_compilation_took(filled, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(filled))
    assert set(cache.read("pointwise").seconds) == {"types and IR", "optimization", "machine code", "comparison"}
    told = run("from tensorgrad import info; print(*info.kernels(), sep='\\n')", filled).stdout.splitlines()
    lines = [line for line in told if line.startswith(("pointwise: 1 of", "all families"))]
    assert len(lines) == 2 and all("s of processor time (types and IR" in line for line in lines)


def test_another_checkout_with_the_same_text_finds_it(filled, tmp_path):
    shutil.copytree(ROOT / "tensorgrad", tmp_path / "tensorgrad", ignore=shutil.ignore_patterns("__pycache__"))
    found = used(filled, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert found["file"].startswith(str(tmp_path)) and found["asked"] == []


def test_another_text_is_another_key(filled, tmp_path):
    shutil.copytree(ROOT / "tensorgrad", tmp_path / "tensorgrad", ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / "tensorgrad" / "kernels" / "numba" / "functions.py", "a") as file:
        file.write("# a helper of the family\n")
    code = "from tensorgrad.kernels.numba.runtime import loading; print(loading.in_cache('pointwise.relu'))"
    assert run(code, filled, cwd=tmp_path, PYTHONPATH=str(tmp_path)).stdout.strip() == "False"


@pytest.mark.parametrize("variable", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"])
def test_another_processor_is_another_key(filled, variable):
    code = "from tensorgrad.kernels.numba.runtime import loading; print(loading.in_cache('pointwise.relu'))"
    assert run(code, filled).stdout.strip() == "True"
    assert (
        run(code, filled, **{variable: "generic" if variable.endswith("NAME") else "+sse2"}).stdout.strip() == "False"
    )


@pytest.mark.parametrize(
    "features, added",
    [("+avx,+avx2", ""), ("+avx,+avx512f,+avx512vl", ",-prefer-256-bit"), ("+neon", ""), ("", "")],
    ids=["AVX2", "AVX-512", "NEON", "none known"],
)
def test_loops_fill_the_widest_registers(features, added, monkeypatch):
    """On many processors with AVX-512, LLVM vectorizes loops for half a register unless it is told not to."""
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "TENSORGRAD_CPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(native.internals, "host_cpu", lambda: ("some", features))
    assert native.cpu() == ("some", features + added)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+given")
    assert native.cpu() == ("some", "+given")


@pytest.mark.skipif(not native.has("avx512f"), reason="the processor must have AVX-512")
def test_the_compiler_process_fills_them_too(filled):
    code = (
        "from tensorgrad.kernels.numba.runtime import cache\n"
        "parts = cache.read('pointwise').parts\n"
        "[data] = [part.data for name, part in parts.items() if 'relu' in name and 'relu_grad' not in name]\n"
        "print(data.hex())"
    )
    machine_code = bytes.fromhex(run(code, filled).stdout.strip())
    # EVEX prefix 62, then three bytes, the last with the register's length in bits 5 and 6: 10 for 512 bits.
    prefixes = [machine_code[at + 3] >> 5 & 3 for at in range(len(machine_code) - 3) if machine_code[at] == 0x62]
    assert prefixes.count(2) > 8


@pytest.mark.skipif(not native.has("avx2"), reason="the processor must be of the level")
def test_kernels_for_a_level_of_processors_are_found_on_each_of_them(filled, tmp_path):
    level = {"TENSORGRAD_CPU": "x86-64-v3"}
    assert used(tmp_path, **level)["asked"] == [RELU] and used(tmp_path, **level)["asked"] == []
    other = USE.replace("import numpy", SKYLAKE + "import numpy", 1)
    done = run(other, tmp_path, **level)
    assert json.loads(done.stdout)["asked"] == [], done.stderr
    assert used(tmp_path)["asked"] == [RELU]  # this processor's own are others


# A program that runs on another processor of the same level.
SKYLAKE = """
from tensorgrad.kernels.numba.runtime import internals
features = internals.host_cpu()[1]
internals.host_cpu = lambda: ("skylake", features + ",+another")
"""


@pytest.mark.parametrize(
    "level, features, why", [("x86-64-v9", None, "is none of x86-64-v2"), ("x86-64-v4", "+avx,+fma", "it lacks")]
)
def test_beside_a_level_that_the_processor_lacks_numpy_serves(level, features, why, tmp_path):
    code = f"""
    import warnings
    import tensorgrad as torch
    from tensorgrad.kernels.numba.runtime import background, internals, native
    if {features!r}:
        native._described = lambda: ""
        internals.host_cpu = lambda: ("some", {features!r})
    x = torch.full((9000,), 2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.relu(x).sum() == 18000
        background.wait()
        assert torch.relu(x).sum() == 18000
    print([str(w.message) for w in caught])
    """
    done = run(code, tmp_path, TENSORGRAD_CPU=level)
    assert done.returncode == 0 and why in done.stdout and done.stdout.count("tensorgrad:") == 1, done.stderr


def test_all_kernels_have_names_that_last(tmp_path):
    """Closures over what has no lasting name would miss the cache for ever; making every kernel finds them."""
    code = """
    from tensorgrad.kernels.numba.runtime import launch
    from tensorgrad.kernels.numba import table
    import importlib
    names = []
    def address(function, signature, kind, **options):
        names.append(launch.identity(function) + signature)
        return 0
    launch._address, launch._launcher = address, lambda: (print, print)
    for kernel in dict.fromkeys(row.kernel for row in table.ALL):
        family, _, name = kernel.rpartition(".")
        importlib.import_module("tensorgrad.kernels.numba." + family).KERNELS[name]()
    assert not any(" at 0x" in name for name in names)
    print(len(names), len(set(names)), hash(tuple(sorted(set(names)))))
    """
    found = {run(code, tmp_path, PYTHONHASHSEED="1").stdout for _ in range(2)}
    assert len(found) == 1 and int(found.pop().split()[1]) > 60


def test_two_processes_compile_once(tmp_path):
    """On an empty cache: the second waits for the first one's lock, and finds the kernel."""
    code = """
    import sys
    from pathlib import Path
    from tensorgrad.kernels.numba.runtime import compiler
    compiler.serving = True
    from tensorgrad.kernels.numba import compiling
    from tensorgrad.kernels.numba.runtime import launch
    compiling.compile_into("pointwise.relu", Path(sys.argv[1]))
    print(len(launch.COMPILED))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    environment = os.environ | {"TENSORGRAD_CACHE": str(tmp_path)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    assert sorted(int(p.communicate(timeout=500)[0]) for p in both) == [0, 1]
    assert used(tmp_path)["asked"] == []


def damaged(data, number):
    """Some way in which a file may be damaged."""
    size = len(data)
    at = size * (number % 16) // 16
    return [
        data[:at], bytes(size), data[:at] + bytes(size - at),
        data[:at] + bytes([data[at] ^ 1 << number % 8]) + data[at + 1 :],
        data + b"more", data[: size // 2] + data[size // 2 + 1 :],
    ][number // 16]  # fmt: skip


@pytest.mark.parametrize("number", range(96))
def test_a_damaged_file_is_as_good_as_absent(number, copy):
    file = cache.path(copy, "pointwise")
    assert proven() == {"relu"}
    file.write_bytes(damaged(file.read_bytes(), number))
    assert not proven() and not cache.read("pointwise").parts


def test_every_byte_of_the_head_counts(copy):
    file = cache.path(copy, "pointwise")
    whole = file.read_bytes()
    for at in range(0, 600):
        with pytest.raises(ValueError):
            wrong = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
            cache.Library.decoded(wrong, "pointwise", cache.key("pointwise"))


def test_a_damaged_file_heals(copy):
    file = cache.path(copy, "pointwise")
    file.write_bytes(file.read_bytes()[:-5])
    assert used(copy)["asked"] == [RELU]
    assert used(copy)["asked"] == []


def test_exchanged_files_are_refused(copy):
    """Two writers once exchanged two kernels: a file says whose it is."""
    shutil.copy(cache.path(copy, "pointwise"), cache.path(copy, "softmax"))
    assert not cache.read("softmax").parts


@pytest.mark.skipif(os.name != "posix", reason="owners and permissions are POSIX's")
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_not_believed(mode, copy):
    cache.path(copy, "pointwise").chmod(mode)
    assert not proven()


@pytest.mark.skipif(os.name != "posix", reason="owners and permissions are POSIX's")
def test_another_users_file_is_not_believed(copy, monkeypatch):
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    found = cache.path(copy, "pointwise").stat().st_uid
    assert bool(proven()) is (found == 0)  # the system's own are


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_a_strangers_file_is_made_anew(copy):
    os.chown(cache.path(copy, "pointwise"), 12345, 12345)
    assert not proven()
    assert used(copy)["asked"] == [RELU] and proven()


@pytest.mark.skipif(os.name != "posix", reason="links and pipes are POSIX's")
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_ordinary_file_is_not_read(kind, copy, tmp_path):
    file = cache.path(copy, "pointwise")
    shutil.move(file, tmp_path / "elsewhere")
    {
        "link": lambda: file.symlink_to(tmp_path / "elsewhere"),
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
    }[kind]()
    assert not proven()


def test_files_are_for_their_owner_to_write(filled):
    for file in filled.glob(f"*{cache.SUFFIX}"):
        assert os.name != "posix" or stat.S_IMODE(file.stat().st_mode) == 0o644


def test_old_files_and_too_many_go(tmp_path):
    now = time.time()
    for n in range(12):
        file = tmp_path / f"softmax-{n:020d}{cache.SUFFIX}"
        file.write_bytes(b"x" * 1000)
        os.utime(file, (now - n, now - n))
    old = tmp_path / f"conv-{0:020d}{cache.SUFFIX}"
    old.write_bytes(b"x")
    os.utime(old, (0, 0))
    former = tmp_path / "python3.11-numba0.61.0-llvmlite0.44-numpy2.1-znver3-rows-abc"
    former.mkdir()
    os.utime(former, (0, 0))
    others = tmp_path / "mine.txt"
    others.write_text("not ours")
    cache.prune(tmp_path)
    assert not old.exists() and not former.exists() and others.exists()
    assert len(cache.files(tmp_path)) == 8 and (tmp_path / f"softmax-{0:020d}{cache.SUFFIX}").exists()
    cache.prune(tmp_path, most=3500)
    assert sum(size for _, size, _ in cache.files(tmp_path)) <= 3500


# --- the process ---


def test_the_process_goes_on_after_a_failure_and_ends_when_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path))
    compiler = Compiler()
    try:
        with pytest.raises(Failed, match="no_such_kernel") as failed:
            compiler.compile("pointwise.no_such_kernel", tmp_path)
        assert failed.value.tried and not failed.value.crash
        with pytest.raises(Failed, match="no_such_family") as failed:  # as if its file had just been renamed
            compiler.compile("no_such_family.relu", tmp_path)
        assert not failed.value.tried
        compiler.compile(RELU, tmp_path)
        assert loading.in_cache(RELU)
    finally:
        process = compiler.process
        compiler.close()
    assert process.poll() is not None
    compiler.close()  # once more does nothing


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="this system's processes have no niceness")
@pytest.mark.parametrize("aside", [True, False])
def test_the_process_has_low_priority_unless_it_is_waited_for(aside, tmp_path):
    compiler, own = Compiler(aside), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        with pytest.raises(Failed, match="no_such_family"):
            compiler.compile("no_such_family.relu", tmp_path)
        assert os.getpriority(os.PRIO_PROCESS, compiler.process.pid) == min(own + 10 * aside, 19)
    finally:
        compiler.close()


@pytest.mark.parametrize("executable", ["/no/such/python"])
def test_no_process_no_harm(executable, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", executable)
    compiler = Compiler()
    for _ in range(2):
        with pytest.raises(Failed, match="could not be started"):
            compiler.compile(RELU, tmp_path)


CRASH = """
import os, signal, warnings
import numpy as np
import tensorgrad as torch
from tensorgrad.kernels.numba.runtime import compiler, background
compiler._PROGRAM = {program!r}
started, real = [], compiler.Compiler._start
compiler.Compiler._start = lambda self: (started.append(1), real(self))
for kernel in ("pointwise.relu", "pointwise.exp", "pointwise.relu"):
    try:
        background.compiled(kernel)
        print("compiled")
    except compiler.Failed as failed:
        print(failed)
print(len(started), float(torch.nn.functional.relu(torch.full((9000,), 2.0)).sum()))
"""
ENDS = {
    "LLVM aborts": "import os; input(); os.abort()",
    "killed": "import os, signal; input(); os.kill(os.getpid(), signal.SIGKILL)",
    "out of memory": "import os; input(); os._exit(137)",
    "LLVM exits": "print('ready', flush=True); input(); raise SystemExit(1)",
}


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("end", ENDS)
def test_a_crash_of_the_process_is_remembered_and_not_repeated(end, tmp_path):
    first = run(CRASH.format(program=ENDS[end]), tmp_path)
    lines = first.stdout.splitlines()
    assert "ended with status" in lines[0] and all("failed before" in line for line in lines[1:3]), first.stderr
    assert lines[3] == "1 18000.0"  # one process was started, and NumPy serves
    again = run(CRASH.format(program=ENDS[end]), tmp_path)  # another process, another day
    assert again.stdout.splitlines()[-1] == "0 18000.0", again.stderr


STARTS = {"a module is missing": "import no_such_module", "a file is half written": "def f(:", "status 3": "exit(3)"}


@pytest.mark.parametrize("start", STARTS)
def test_a_process_that_cannot_begin_is_not_remembered(start, tmp_path):
    for _ in range(2):
        done = run(CRASH.format(program=STARTS[start]), tmp_path)
        lines = done.stdout.splitlines()
        assert all("before it could compile" in line for line in lines[:3]), done.stderr
        assert "no_such_module" in lines[0] or "SyntaxError" in lines[0] or "status 3" in lines[0]
        assert lines[3] == "1 18000.0"  # one attempt in each process
        assert not list(tmp_path.glob("*.failed"))
    assert used(tmp_path)["asked"] == [RELU]  # once it can begin


def test_after_a_while_a_failure_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path))
    cache.remember("softmax", "softmax.softmax", "a crash", crash=True)
    assert cache.refused("softmax", "softmax.layer_norm") == "a crash" and cache.refused("conv", "conv.conv") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1.5 * 86400)
    assert cache.refused("softmax", "softmax.softmax") is None
    cache.remember("softmax", "softmax.softmax", "the second", crash=True)
    monkeypatch.setattr(time, "time", lambda: now + 3 * 86400)
    assert cache.refused("softmax", "softmax.softmax") == "the second"


def test_a_failure_of_one_kernel_is_not_that_of_its_family(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path))
    cache.remember("softmax", "softmax.softmax", "a wrong result", crash=False)
    assert cache.refused("softmax", "softmax.softmax") and cache.refused("softmax", "softmax.layer_norm") is None


def test_where_no_process_can_be_started_the_program_compiles(tmp_path):
    code = """
    from tensorgrad.kernels.numba.runtime import compiler
    compiler.serving = True
    compiler.Compiler.compile = None
    import numpy as np
    from tensorgrad.kernels.numba.runtime import background, loading
    x = np.linspace(-1, 1, 6000, dtype=np.float32)
    assert (background.compiled("pointwise.relu")(x) == np.maximum(x, 0)).all()
    print(loading.in_cache("pointwise.relu"))
    """
    done = run(code, tmp_path)
    assert done.stdout.strip() == "True", done.stderr


def test_a_kernel_whose_results_are_wrong_is_never_used(tmp_path):
    code = """
    from pathlib import Path
    import sys
    from tensorgrad.kernels.numba.runtime import compiler
    compiler.serving = True
    from tensorgrad.kernels.numba import compiling, pointwise
    from tensorgrad.kernels.numba.runtime import loading
    from tensorgrad.kernels.numba import functions
    pointwise.KERNELS["relu"] = pointwise.partial(pointwise._elementwise, functions.exp, 1, 0.5)
    try:
        compiling.compile_into("pointwise.relu", Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    except ArithmeticError as error:
        print(error)
    print(loading.in_cache("pointwise.relu"))
    """
    code = code.replace('sys.argv[1] if len(sys.argv) > 1 else "."', f"{str(tmp_path)!r}")
    done = run(code, tmp_path)
    assert "differs from NumPy's on this machine" in done.stdout and done.stdout.strip().endswith("False"), done.stderr


def test_where_nothing_can_be_kept_kernels_are_compiled_for_the_process(tmp_path):
    place = tmp_path / "cache"
    place.write_text("a file where the folder should be")
    found = used(place, TMPDIR=str(tmp_path))
    assert found["asked"] == [RELU] and place.read_text() == "a file where the folder should be"
    assert [p.name for p in tmp_path.iterdir()] == ["cache"], "the process's own folder is still there"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_what_a_read_only_cache_holds_is_used(copy):
    for path in (*copy.iterdir(), copy):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert used(copy)["asked"] == []
    finally:
        copy.chmod(0o755)


@pytest.mark.parametrize("folder", ["usable", "not usable"])
def test_the_program_ends_without_waiting_and_leaves_no_process(folder, tmp_path):
    place = tmp_path / "cache"
    if folder == "not usable":
        place.write_text("a file where the folder should be")
    code = """
    import time
    import tensorgrad as torch
    x = torch.randn(1000, 100)
    x.exp(), x.softmax(-1), torch.nn.functional.gelu(x)
    time.sleep(1.0)
    print(torch.allclose(x.exp(), x.double().exp().float()))
    """
    done = run(code, place)
    assert done.stdout.strip() == "True", done.stderr  # returns only when nobody holds the pipes any more
    assert done.stderr == ""  # neither that kernels are compiled, which terminals are told, nor that one was not


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("TENSORGRAD_FAST") == "0", reason="no kernel is used with TENSORGRAD_FAST=0")
def test_every_kernel_is_proven_by_a_program_that_uses_it():
    from tensorgrad.kernels.numba import table, verify

    unused = set()
    for kernel in dict.fromkeys(row.kernel for row in table.ALL if row is not table.WAITING):
        made = background.compiled(kernel)
        beside = verify._AFTER.get(kernel)
        if beside:
            background.compiled(beside)
        if not verify.uses(kernel, made):
            unused.add(kernel)
    assert not unused


# --- versions of Numba ---


def test_versions_are_those_that_the_package_asks_for():
    text = (ROOT / "pyproject.toml").read_text()
    first, beyond = internals.TESTED["numba"]
    assert f'"numba>={first},<{beyond}"' in text and not internals.untried()


@pytest.mark.parametrize("name", ["numba", "llvmlite", "numpy"])
def test_versions_are_found_without_the_slow_module(name, monkeypatch):
    expected = importlib.metadata.version(name)
    asked = []
    monkeypatch.setattr(importlib.metadata, "version", lambda name: asked.append(name) or "1.2.3")
    assert internals._installed.__wrapped__(name) == expected and not asked
    monkeypatch.setattr(os, "listdir", lambda folder: [])  # installed in another way
    assert internals._installed.__wrapped__(name) == "1.2.3" and asked == [name]


@pytest.mark.parametrize(
    "numba, llvmlite, fits",
    [
        ("0.61.0", "0.44.0", True), ("0.68.1", "0.50.0", True), ("0.60.0", "0.44.0", False),
        ("0.69.0rc1", "0.50.0", False), ("1.0", "0.50.0", False), ("0.61.2", "0.43.0", False),
    ],
)  # fmt: skip
def test_versions_outside_the_bounds_are_named(numba, llvmlite, fits, monkeypatch):
    monkeypatch.setattr(internals, "version", {"numba": numba, "llvmlite": llvmlite}.get)
    assert (internals.untried() == "") is fits
    assert fits or "is installed; they were tested with versions from" in internals.untried()


def test_beside_an_untried_numba_numpy_serves_with_one_warning(tmp_path):
    code = """
    import warnings
    import tensorgrad as torch
    from tensorgrad.kernels.numba.runtime import background, internals
    known = internals.version
    internals.version = lambda name: "0.99.1" if name == "numba" else known(name)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = torch.ones(400, 400)
        made = x.exp() @ x.softmax(-1)
        background.wait()
        made = x.exp() @ x.softmax(-1)
        background.wait()
    print(len(seen), seen[0].message, round(float(made.sum()) / 400**2, 3))
    """
    done = run(code, tmp_path)
    assert done.stdout.startswith("1 tensorgrad: compiled kernels are not used: numba 0.99.1 is installed"), done.stderr
    assert done.stdout.strip().endswith("2.718") and list(tmp_path.iterdir()) == []


def test_only_three_files_use_what_numba_and_llvmlite_do_not_document():
    folder = ROOT / "tensorgrad" / "kernels" / "numba"
    inside = re.compile(
        r"numba\.(core|np|targets|typed)\b|llvmlite\.binding|cgutils|sigutils|call_conv|populate_array|make_array|"
        r"get_dummy_value|get_data_type|target_context|overloads|_defn|create_mcjit|create_target_machine"
    )
    found = {p.name for p in folder.rglob("*.py") if inside.search(p.read_text())}
    assert found == {"internals.py", "lean.py", "shortcuts.py"}
