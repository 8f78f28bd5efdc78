"""Kernels are compiled alike on every machine, for processors that the machine is not of, too."""

import os
import sys
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library, target
from tests.support.kernels import absent
from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")

from tools.kernels import compile, internals, link, verify

ROOT = Path(tensorgrad.__file__).parent.parent
FAMILIES = ("runtime.spin", "softmax")


def compiled(level: str, file: Path, *families: str, **variables: str) -> bytes:
    """Returns a file of some families."""
    given = environment("TENSORGRAD", "NUMBA", **variables) | {"PYTHONPATH": str(ROOT)}
    done = run_python(None, "-m", "tests.support.compiling", level, str(file), *families, env=given, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return file.read_bytes()


@pytest.fixture(scope="module", params=["x86-64-v3", "aarch64"])
def built(request, tmp_path_factory):
    """A level, and a file of some families for it."""
    file = tmp_path_factory.mktemp("kernels") / "file"
    compiled(request.param, file, *FAMILIES, PYTHONHASHSEED="1")
    return request.param, file


@pytest.mark.slow
def test_every_level_is_compiled_on_this_machine(built):
    level, file = built
    image = library.Image(str(file))
    assert image.head["level"] == level and set(image.families) == set(FAMILIES)
    assert set(image.families["softmax"]["imports"]) <= {
        "memcpy", "memmove", "memset", "tensorgrad_PyMem_RawMalloc", "tensorgrad_PyMem_RawFree"
    }  # fmt: skip
    data = file.read_bytes()
    for word in (str(ROOT), os.path.expanduser("~"), sys.prefix, "site-packages"):
        assert word.encode() not in data or word in ("/", ""), f"{word} is in it"


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(built, tmp_path):
    level, file = built
    if level != "x86-64-v3":
        pytest.skip("one level is enough")
    assert compiled(level, tmp_path / "file", *FAMILIES, PYTHONHASHSEED="2") == file.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(bool(absent()), reason=absent())
def test_a_family_compiled_alone_has_the_bytes_of_the_file(tmp_path):
    """When the file was made, other families were compiled before it, by the same process.

    `python -m tools.kernels --into FOLDER` and `cmp` compare all families, in half a minute.
    """
    ours = library.image()
    compiled(ours.head["level"], tmp_path / "file", "softmax", "join", PYTHONHASHSEED="3")
    alone = library.Image(str(tmp_path / "file"))
    assert alone.head["compiler"] == ours.head["compiler"], "`make kernels` brings the file up to date"
    for family, told in alone.families.items():
        assert told | {"at": 0} == ours.families[family] | {"at": 0} and alone.blob(family) == ours.blob(family)


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_families_make_the_same_file_in_any_order(tmp_path):
    ours = library.image()
    made = compile.kept(Path(ours.file), ours.head["level"])
    assert made, "`make kernels` brings the file up to date"
    compile.write(tmp_path / "file", ours.head["level"], dict(reversed(made.items())))
    assert (tmp_path / "file").read_bytes() == Path(ours.file).read_bytes()


@pytest.mark.slow
def test_kernels_for_another_processor_give_numpys_numbers(built):
    """`python -m tests.support.emulated tensorgrad/kernels/images/aarch64.kernels` runs all of them."""
    level, file = built
    if level != "aarch64":
        pytest.skip("all other tests run kernels for this processor")
    pytest.importorskip("unicorn", reason="Unicorn emulates the processor")
    kernels = [f"softmax.{name}" for name in compile.families()["softmax"]]
    done = run_python(None, "-m", "tests.support.emulated", str(file), *kernels, env=environment("TENSORGRAD"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == len(kernels) and all(int(launches) > 0 for *_, launches, _ in lines)


def test_what_has_not_changed_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(compile, "compiler_digest", lambda: "this compiler")
    names = compile.families()
    made = {
        name: compile.packed(link.Linked(b"code", [0], 0, [], [], {name: 0}), library.source_digest(name))
        for name in names
    }
    file = tmp_path / "file"
    compile.write(file, "x86-64-v3", made)
    assert compile.kept(file, "x86-64-v3") == made and compile.kept(file, "aarch64") == {}
    digest = library.source_digest
    monkeypatch.setattr(library, "source_digest", lambda name: "new" if name == "sort" else digest(name))
    assert set(compile.kept(file, "x86-64-v3")) == set(names) - {"sort"}
    monkeypatch.setattr(compile, "families", lambda: names | {"pool": [*names["pool"], "another"]})
    assert set(compile.kept(file, "x86-64-v3")) == set(names) - {"sort", "pool"}
    monkeypatch.setattr(compile, "compiler_digest", lambda: "another compiler")
    assert compile.kept(file, "x86-64-v3") == {}
    file.write_bytes(file.read_bytes()[:-5000])
    assert compile.kept(file, "x86-64-v3") == compile.kept(tmp_path / "none", "x86-64-v3") == {}


def test_functions_that_are_missing_have_their_family_compiled():
    made = {"a": ({"entries": {"f": 0}}, b""), "b": ({"entries": {}}, b"")}
    assert compile.lacking(made, {"f": "a", "g": "a", "h": "b"}) == {"a", "b"}
    assert compile.lacking(made, {"f": "a"}) == set()


def test_each_family_is_compiled_by_one_process(tmp_path, capsys):
    claims = [compile.claims(tmp_path, ["a", "b"]) for _ in range(2)]
    assert [claims[0]("a"), claims[1]("a"), claims[1]("b"), claims[0]("b"), claims[0]("c")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert capsys.readouterr().out.split() == ["a", "b"]


ASKED = """
    from tools.kernels import compile
    asked = []
    made, owners = compile.compiled("x86-64-v3", lambda family: asked.append(family))
    assert made == {} and sorted(asked) == list(compile.families())
    assert set(owners.values()) <= set(asked)
    print(asked.index("norm") < asked.index("softmax") < asked.index("join"))
"""


def test_families_that_take_long_are_compiled_first():
    done = run_python(ASKED, env=environment("NUMBA", TENSORGRAD_FAST="0") | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr[-3000:]


def test_sources_are_found_by_what_a_family_imports():
    found = library.sources("softmax")
    assert {"softmax", "functions", "simd.vectors", "runtime.target", "runtime.native"} <= set(found)
    assert not {"runtime.thread_pool", "runtime.row", "table", "conv"} & set(found)
    for family in compile.families():
        assert family in library.sources(family)


def test_the_tested_versions_of_the_compiler_are_those_of_the_extra():
    first, beyond = internals.TESTED["numba"]
    assert (ROOT / "pyproject.toml").read_text().count(f'"numba>={first},<{beyond}') == 2 and not internals.untried()


def test_a_level_that_is_not_known_is_refused():
    done = run_python(None, "-m", "tools.kernels", "--level", "pentium", env=environment() | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1 and "pentium is none of x86-64-v4" in done.stdout


def test_every_kernel_has_a_program_that_compares_it():
    for row in table.ROWS:
        assert row.kernel in verify.PROGRAMS or row.kernel.rpartition(".")[0] in verify.PROGRAMS
    assert set(target.LEVELS) == set(internals.TARGETS)
