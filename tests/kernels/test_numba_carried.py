"""Folders of kernels that an image or a wheel carries: found by level, believed like the cache, never written."""

import json
import os
import shutil
import subprocess

import pytest

from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad import warmup
from tensorgrad.kernels.numba.runtime import cache, carried, internals, native, objects

LEVELS = [level for level in reversed(native.LEVELS) if not native.lacking(level)]  # the highest first
LEVEL = LEVELS[-1]
KERNELS = ("runtime.spin.wait", "pointwise.relu")
pytestmark = pytest.mark.skipif(not LEVELS, reason="this processor is of none of the levels")

WRITE = """
import sys
import tensorgrad
from tensorgrad import warmup
from tensorgrad.kernels.numba import table
table.ALL = [row for row in table.ALL if row.kernel in {kernels}]
sys.exit(warmup.main(["--into", {folder!r}, "--cpu", {level!r}]))
"""
USE = """
import json, sys
import numpy as np
import tensorgrad as torch
from tensorgrad.kernels.numba import table
from tensorgrad.kernels.numba.runtime import background, native
from tensorgrad.kernels.numba.simd import vectors
assert table.wanted()
x = np.linspace(-1, 1, 60_000, dtype=np.float32)
for _ in range(2):
    found = torch.relu(torch.from_numpy(x)).numpy()
    background.wait()
    assert (found == np.maximum(x, 0)).all()
row = next(row for row in table.ROWS if row.kernel == "pointwise.relu")
imported = [name for name in ("numba", "llvmlite") if name in sys.modules]
used = row.ready is not None
print(json.dumps([native.level(), vectors.LANES, used, background._compiler.process is not None, imported]))
"""
WITHOUT = """
import importlib.machinery, sys
from importlib import metadata
finder = importlib.machinery.PathFinder
class Hiding:
    @staticmethod
    def find_spec(name, *given):
        return None if name.partition(".")[0] in ("numba", "llvmlite") else finder.find_spec(name, *given)
sys.meta_path[sys.meta_path.index(finder)] = Hiding
"""


def run(code, cached, **variables):
    names = ("TENSORGRAD_CPU", "TENSORGRAD_KERNELS", "NUMBA_CPU")
    given = environment(*names, **{"TENSORGRAD_CACHE": str(cached), "TENSORGRAD_FAST": "1", **variables})
    done = run_python(code, env=given, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two kernels for the lowest level."""
    made = tmp_path_factory.mktemp("carried")
    unused = made / "cache"
    run(WRITE.format(kernels=KERNELS, folder=str(made / "kernels"), level=LEVEL), unused)
    assert not unused.exists()
    return made / "kernels"


def listed(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def lanes():
    return 8 if "+avx" in native.LEVELS[LEVEL][1] else 4


@pytest.mark.parametrize("without", ["", WITHOUT], ids=["with Numba", "without Numba"])
def test_a_process_with_an_empty_cache_compiles_nothing(folder, without, tmp_path):
    if without and not objects.USABLE:
        pytest.skip("LLVM, which belongs to Numba, loads kernels on this system")
    for file in folder.rglob("*"):  # long unused, which the cache would note
        os.utime(file, (1e9, 1e9))
    before = listed(folder)
    said = json.loads(run(without + USE, tmp_path / "cache", TENSORGRAD_KERNELS=str(folder)))
    assert said == [LEVEL, lanes(), True, False, [] if objects.USABLE else ["llvmlite"]]
    assert listed(folder) == before and not (tmp_path / "cache").exists()


@pytest.mark.skipif(not objects.USABLE, reason="LLVM, which belongs to Numba, loads kernels on this system")
def test_without_numba_there_must_be_kernels_for_this_process(folder, tmp_path):
    code = WITHOUT + "from tensorgrad.kernels.numba import table; print(table.wanted())"
    other = next(level for level in native.LEVELS if level != LEVEL)
    for variables in ({"TENSORGRAD_KERNELS": ""}, {"TENSORGRAD_KERNELS": str(folder), "TENSORGRAD_CPU": other}):
        assert run(code, tmp_path, **variables).strip() == "False"


def test_the_folder_has_nothing_but_kernels_and_versions(folder):
    assert [place.name for place in folder.iterdir()] == [LEVEL]
    names = sorted(file.name.rpartition("-")[0] or file.name for file in (folder / LEVEL).iterdir())
    assert names == ["pointwise", "runtime.spin", "versions.json"]


@pytest.fixture
def copy(folder, tmp_path, monkeypatch):
    """A copy of that folder to do harm to. Nothing has been looked for in it."""
    made = tmp_path / "kernels"
    shutil.copytree(folder, made)
    for name in (*native.GIVEN, "TENSORGRAD_CPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TENSORGRAD_KERNELS", str(made))
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path / "cache"))
    for holder, name, value in ((native, "LEVEL", ""), (cache, "CARRIED", []), (internals, "MADE_WITH", {})):
        monkeypatch.setattr(holder, name, value)
    return made


def pretend(folder, name):
    """Writes an empty file where kernels of a level would be."""
    file = cache.path(folder / name, "runtime.spin", native.processor(name))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")


def test_the_best_level_of_the_processor_is_taken(copy, monkeypatch):
    assert carried.use()
    assert native.level() == LEVEL and cache.places()[0] == copy / LEVEL
    assert cache.read("pointwise").proven == {"relu"}
    for level in reversed(LEVELS):
        pretend(copy, level)
        assert carried.use()
        assert native.level() == level and native.cpu()[0] == native.LEVELS[level][0]
    lacking = native.lacking
    monkeypatch.setattr(native, "lacking", lambda level: lacking(level) if level == LEVEL else ["something"])
    assert carried.use() and native.level() == LEVEL
    pretend(copy, "")
    assert carried.use()
    assert native.level() == "" and cache.places()[0] == copy, "kernels for this very processor are better"


def test_a_level_that_is_named_is_taken(copy, monkeypatch):
    for level in LEVELS:
        pretend(copy, level)
    monkeypatch.setenv("TENSORGRAD_CPU", LEVEL)
    assert carried.use() and native.level() == LEVEL and cache.places()[0] == copy / LEVEL


@pytest.mark.parametrize("variable", native.GIVEN)
def test_another_processor_has_no_level(variable, copy, monkeypatch):
    monkeypatch.setenv(variable, "generic")
    assert not carried.use() and native.level() == "" and cache.CARRIED == []


def test_kernels_of_other_versions_are_not_found(copy):
    for file in (copy / LEVEL).glob("*.kernels"):
        file.rename(file.with_name(file.name[:-12] + "0000.kernels"))
    assert not carried.use() and native.level() == ""


@pytest.mark.skipif(os.name != "posix", reason="owners, permissions and links are POSIX's")
@pytest.mark.parametrize("harm", ["writable", "a link", "damaged", "another family's"])
def test_what_may_be_foreign_or_damaged_is_not_believed(harm, copy, tmp_path):
    assert carried.use()
    file = cache.path(copy / LEVEL, "pointwise")
    assert cache.read("pointwise").proven == {"relu"}
    if harm == "writable":
        file.chmod(0o664)
    elif harm == "a link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif harm == "damaged":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    else:
        cache.path(copy / LEVEL, "runtime.spin").rename(file)
    assert cache.read("pointwise").proven == set()


@pytest.mark.skipif(not objects.USABLE, reason="LLVM, which belongs to Numba, loads kernels on this system")
@pytest.mark.parametrize("harm", ["none", "writable", "a list", "a number", "no JSON", "others"])
def test_versions_that_may_be_foreign_or_damaged_are_not_believed(harm, copy, monkeypatch):
    monkeypatch.setattr(carried, "find_spec", lambda name: None)
    file = copy / LEVEL / carried.VERSIONS
    made = json.loads(file.read_text())
    if harm == "writable":
        file.chmod(0o664)
    elif harm != "none":
        texts = {"a list": "[1]", "a number": '{"numba": 1, "llvmlite": 1}', "no JSON": "{"}
        file.write_text(texts.get(harm) or json.dumps({name: "0.1" for name in made}))
    assert carried.use() is (harm == "none")
    assert (made if harm == "none" else {}) == internals.MADE_WITH


def test_the_package_has_a_folder_of_its_own(copy, monkeypatch):
    monkeypatch.setattr(carried, "PACKAGE", str(copy))
    monkeypatch.setenv("TENSORGRAD_KERNELS", "")
    assert not carried.use(), "an empty variable means none"
    monkeypatch.delenv("TENSORGRAD_KERNELS")
    assert carried.use() and native.level() == LEVEL and cache.places()[0] == copy / LEVEL


def test_each_level_is_written_by_a_process(monkeypatch, tmp_path, capsys):
    commands = []
    monkeypatch.setattr(subprocess, "call", lambda command: commands.append(command[-4:]) or len(commands) - 1)
    assert warmup.main(["--into", str(tmp_path), "--cpu", "x86-64-v3", "--cpu", "x86-64-v4"]) == 1
    assert commands == [["--into", str(tmp_path), "--cpu", level] for level in ("x86-64-v3", "x86-64-v4")]
    with pytest.raises(SystemExit):
        warmup.main(["--cpu", "x86-64-v3"])
    assert "--cpu needs --into" in capsys.readouterr().err


def test_a_level_that_the_processor_lacks_cannot_be_written(tmp_path):
    other = next(level for level in native.LEVELS if native.lacking(level))
    code = f"from tensorgrad import warmup; print(warmup.main(['--into', {str(tmp_path / 'k')!r}, '--cpu', {other!r}]))"
    assert run(code, tmp_path).strip() == "1" and not (tmp_path / "k").exists()


def test_no_family_imports_llvm():
    code = """
import importlib, sys
import tensorgrad
from tensorgrad.kernels.numba import table
for row in table.ALL:
    importlib.import_module("tensorgrad.kernels.numba." + row.kernel.rpartition(".")[0])
print([name for name in ("numba", "llvmlite") if name in sys.modules])
"""
    assert run(code, "").strip() == "[]"
