"""What the harness itself promises: rows that fit their files, differences that are seen, outcomes that are kept."""

import argparse
import ast
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.ecosystem import environments, files, onnx_files, own, results, running, table
from tests.ecosystem.__main__ import main
from tests.ecosystem.environments import Environment
from tests.ecosystem.libraries import BY_NAME, LIBRARIES, Library, OwnTests
from tests.support.processes import ROOT


def test_rows_are_in_order_and_have_their_files():
    names = [library.name for library in LIBRARIES]
    assert names == sorted(names, key=str.lower) and len(BY_NAME) == len(names)
    programs = [name for library in LIBRARIES for name in library.programs]
    assert sorted(programs) == sorted({p.stem for p in running.PROGRAMS.glob("*.py")})
    assert {p.stem for p in running.EXPECTED.glob("*.json")} == set(programs)
    assert all(library.programs for library in LIBRARIES if library.quick)


def test_programs_know_nothing_of_tensorgrad():
    for program in running.PROGRAMS.glob("*.py"):
        assert "tensorgrad" not in program.read_text(), program.name


@pytest.mark.parametrize("found, differs", [
    ([1.0, 2.0], None), ([1.0, 2.0001], None), ([1.0, 2.001], "number 1"), ([1.0], "1 numbers"),
    ([1.0, float("nan")], "number 1"), ([[1.0], [2.0]], None), ([1.0, "two"], "number 1"),
])  # fmt: skip
def test_differences_are_seen(found, differs):
    told = running._difference([1.0, 2.0], found)
    assert told is None if differs is None else told.startswith(differs)


def test_infinities_and_words_are_compared():
    assert running._difference([float("inf"), float("nan"), "a"], [float("inf"), float("nan"), "a"]) is None
    assert running._difference([float("inf"), 1.0], [float("-inf"), 1.0])


def test_a_program_without_numbers_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PROGRAMS", tmp_path)
    here = Environment(Path(sys.executable))
    for code, told in (("print('hello')", "its last line"), ("raise ValueError('no')", "ValueError: no")):
        (tmp_path / "program.py").write_text(code)
        with pytest.raises(running.Failed, match=told):
            running.run_program(here, "program")


def test_how_processes_end_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PROGRAMS", tmp_path)
    here, counted = Environment(Path(sys.executable)), tmp_path / "count"
    counting = (
        f"import pathlib; p = pathlib.Path({str(counted)!r}); p.write_text((p.read_text() if p.exists() else '') + '.')"
    )
    for code, told in {
        "print(1)": "yes",
        f"{counting}; raise SystemExit(7 if len(p.read_text()) == 3 else 0)": "run 3 of 3: exit status 7: ",
        "import os; os.abort()": "run 1 of 3: exit status -6: ",
        "class A:\n def __del__(self): raise ValueError\na = A()": "run 1 of 3: exit status 0: Exception ignored",
    }.items():
        (tmp_path / "program.py").write_text(code)
        found = running.endings(here, "program", 3)
        assert found == told if told == "yes" else found.startswith(told), (code, found)


def test_a_run_looks_how_programs_end(tmp_path, monkeypatch):
    """In the environment that it has made; what the program printed is compared first."""
    from tests.ecosystem import __main__ as command

    @contextmanager
    def here(library):
        yield Environment(Path(sys.executable))

    (tmp_path / "program.py").write_text('print(\'{"losses": [1.0], "numbers": {}}\')')
    (tmp_path / "program.json").write_text('{"losses": [1.0], "numbers": {}}')
    kept = {}
    monkeypatch.setattr(running, "PROGRAMS", tmp_path)
    monkeypatch.setattr(running, "EXPECTED", tmp_path)
    monkeypatch.setattr(command, "alone", here)
    monkeypatch.setattr(running, "endings", lambda python, name: f"run 2 of 10: {name} aborted")
    monkeypatch.setattr(results, "keep", lambda library, changed: kept.update(changed))
    library = Library("numpy", ("numpy",), ("numpy",), ("program",))
    for exits, told in ((False, []), (True, ["numpy: program ends: run 2 of 10: program aborted"])):
        asked = argparse.Namespace(only=["numpy"], again=False, exits=exits)
        assert command._run(library, library.programs, asked) == told
        assert kept["trains"] == {"program": "yes"} and ("exits" in kept) == exits
    assert kept["exits"] == {"program": "run 2 of 10: program aborted"}


def test_own_tests_are_resumed_and_summed_up(tmp_path):
    """A test that ends the process is counted, the others run; what has an outcome does not run again."""
    checkout = tmp_path / "library" / "tests"
    checkout.mkdir(parents=True)
    (checkout / "test_it.py").write_text("""
import os, sys, torch
import pytest

OURS = "tensorgrad" in sys.modules

def test_a(): pass
def test_b(): os.kill(os.getpid(), 9) if OURS else None
def test_c(): assert not OURS, "not here"
def test_d(): pass
def test_e(): pytest.skip("why not")
@pytest.mark.xfail
def test_f(): assert False
def test_slow(): assert False
""")
    rules = OwnTests("owner/library", ("tests",), left_out={"*slow*": "takes long"})
    few = replace(rules, one_in=1000)
    here, file = Environment(Path(sys.executable)), tmp_path / "ours.jsonl"
    assert list(own.run(few, here, tmp_path, [(file, None)])) == ["tests"]
    assert own.read(file) == {} and own.sample(few, file) == "1000"
    assert list(own.run(rules, here, tmp_path, [(file, None)])) == ["tests"]  # a larger sample runs the rest
    ours = own.read(file)
    assert own.sample(rules, file) == "1"
    file.write_text(file.read_text() + '["others", "ran", "4"]\n')
    assert own.sample(replace(rules, tests=("tests", "others")), file) == "4 or fewer"
    assert {test[-1]: outcome for test, (outcome, _) in ours.items()} == {
        "a": "passed", "b": "crashed", "c": "failed", "d": "passed", "e": "skipped", "f": "xfailed",
    }  # fmt: skip
    theirs = {test: ("passed", "") for test in ours if test[-1] in "abcd"}
    told = own.summary(ours, theirs, ("tests/test_it.py", "tests/test_other.py"))
    assert told["by part"] == {"it": [2, 4]} and own.done(("tests/test_it.py", "tests/test_other.py"), file) == 1
    assert (told["passed"], told["passed under torch"]) == (2, 4)
    assert sorted(told["reasons"]) == [["crashed: the process ended", 1], ["failed: AssertionError: not here", 1]]
    written = file.read_text()
    assert list(own.run(rules, here, tmp_path, [(file, None)])) and file.read_text() == written
    own.forget_failures(file)
    assert {test[-1] for test in own.read(file)} == set("ade")
    with pytest.raises(FileNotFoundError, match="no_such"):
        list(own.run(OwnTests("owner/library", ("no_such",)), here, tmp_path, [(file, None)]))


def test_results_written_at_the_same_time_are_all_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(results, "cache", lambda: tmp_path)
    table.PAGE.write_text(f"{table.BEGIN}\n{table.END}")
    with ThreadPoolExecutor(8) as threads:
        # Each call opens the lock's file by itself: it holds between threads as between processes.
        for changed in ({"version": "1", "imports": "yes"}, {"packages": "numpy"}):
            list(threads.map(lambda library, changed=changed: results.keep(library, changed), LIBRARIES))
    expected = {"version": "1", "imports": "yes", "packages": "numpy"}
    assert results.read() == {library.name: expected for library in LIBRARIES}
    assert table.table(results.read()) in table.PAGE.read_text()


def test_programs_that_are_not_named_keep_their_outcome(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(table, "write", lambda results: None)
    monkeypatch.setattr(results, "cache", lambda: tmp_path)
    lightning = BY_NAME["lightning"]
    results.keep(lightning, {"trains": {"lightning_trainer": "yes", "lightning_fabric_loop": "no", "gone": "yes"}})
    results.keep(lightning, {"trains": {"lightning_fabric_loop": "yes"}, "version": "2"})
    assert results.read()["lightning"] == {
        "trains": {"lightning_trainer": "yes", "lightning_fabric_loop": "yes"}, "version": "2",
    }  # fmt: skip


def test_the_table():
    known = {"einops": {"version": "1.0", "imports": "yes", "trains": {"a": "yes", "b": "Error: x | y"}}}
    known["einops"]["packages"] = "einops 1.0, numpy 2.0, tensorgrad 0.1"
    known["einops"]["own"] = {"passed": 9, "passed under torch": 10, "reasons": []}
    text = table.table(known)
    assert "| einops | 1.0 | 3 | yes | 1 of 2 programs | – | 9 / 10 (90.0 %) |" in text
    known["einops"]["exits"] = {"a": "yes", "b": "run 2 of 10: exit status 1: no"}
    text = table.table(known)
    assert "2 programs ran ten times each; 1 always ended as under torch." in text
    assert "- einops: b: ended otherwise: run 2 of 10: exit status 1: no" in text
    assert "- einops: b: Error: x \\| y" in text


def test_the_page_has_the_results_table():
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.table(results.read()) in page


def test_the_front_page_counts_the_libraries():
    known = results.read()
    rows = [known[library.name] for library in LIBRARIES if library.name in known]
    trained = sum(bool(row.get("trains")) and {row["imports"], *row["trains"].values()} == {"yes"} for row in rows)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"transformers, Lightning, timm, torchvision and (\d+) others train", text)
    assert said and int(said[1]) == trained - 4


def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_ECOSYSTEM", str(tmp_path))
    monkeypatch.setattr(environments.venv, "create", lambda folder, with_pip: folder.mkdir())

    def fail(python, arguments, **variables):
        raise environments.Unavailable("pip: no space left on device")

    monkeypatch.setattr(environments, "_pip", fail)
    for make in (environments.quick_environment, environments.real_torch):
        with pytest.raises(environments.Unavailable, match="no space left"):
            make()
    assert not [*tmp_path.iterdir()]


def test_environments_are_counted_and_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TENSORGRAD_ECOSYSTEM", str(tmp_path))
    for name in ("timm-1", "timm-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 100_000)
    assert environments.kept() == (2, 512 * sum(file.stat().st_blocks for file in tmp_path.glob("*/file")))
    monkeypatch.setattr(environments, "kept", lambda: (2, 120_000_000))
    assert main(["delete"]) == 0
    assert capsys.readouterr().out == f"deleting: 2 environments in {tmp_path} take 0.1 GB\n"
    assert not [*tmp_path.iterdir()]


def test_files_cross_between_processes(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="writes and loads the files here: two libraries do so in `files`")
    torch.manual_seed(0)
    module, given = torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),)
    known = {"broken": (module, ()), "linear": (module, given)}
    monkeypatch.setattr(files, "made", lambda library, name: known[name])
    monkeypatch.setattr(files, "WAYS", {"script": files.scripted, "trace": files.traced})
    models = [("own", name) for name in ("unknown", "broken", "linear")]
    written = list(files.write(tmp_path, models))
    failed, good, ways = written[:4], written[4:], ("script", "trace")
    assert [o[:2] for o in failed] == [(name, way) for name in ("unknown", "broken") for way in ways]
    assert [o[3].partition(":")[0] for o in failed] == ["KeyError", "KeyError", "TypeError", "TypeError"]
    assert [(o[:3], o[3]) for o in good] == [(("linear", way, "written"), 0.0) for way in ways]
    (tmp_path / "linear.trace").write_bytes(b"no archive")
    (_, _, _, script, _), (_, _, _, trace, _) = files.read(tmp_path, models)
    assert script == 0.0 and "Error" in trace
    assert not list(tmp_path.glob("linear.[st]*"))
    assert files.differing(given, [np.zeros((2, 3), "float32")]).startswith("differs by")
    assert files.differing(given, []) == "1 results instead of 0"


def test_what_torch_does_not_write_is_no_failure():
    found = {
        ("tensorgrad", "a", "script", "written"): "Error: no", ("torch", "a", "script", "written"): "Error: neither",
        ("tensorgrad", "b", "script", "written"): "Error: no", ("torch", "b", "script", "written"): 0.0,
        ("torch", "b", "script", "loaded"): "differs by 1e-3", ("tensorgrad", "c", "export", "loaded"): 1e-7,
    }  # fmt: skip
    assert files.failures(found) == [
        "b: script written, by tensorgrad: Error: no", "b: script loaded, by tensorgrad, of torch: differs by 1e-3",
    ]  # fmt: skip


def test_onnx_files_of_two_libraries_are_compared(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="runs exported models (extra test-tools)")
    import tensorgrad

    class Eigenvalues(tensorgrad.nn.Module):
        def forward(self, x):
            return tensorgrad.linalg.eigvals(x)

    monkeypatch.setitem(sys.modules, "torch", tensorgrad)
    tensorgrad.manual_seed(0)
    made = {
        "linear": (tensorgrad.nn.Linear(3, 2).eval(), [(tensorgrad.ones(2, 3),)]),
        "wrong": (tensorgrad.nn.Linear(3, 2).eval(), [(tensorgrad.ones(2, 3),)]),
        "none": (Eigenvalues(), [(tensorgrad.eye(2),)]),
    }
    monkeypatch.setattr(onnx_files.leaving, "arguments", lambda library, name: made[name])
    models = [("own", name) for name in made]
    for side in onnx_files.SIDES:
        written = dict(onnx_files.write(tmp_path, side, models))
        assert isinstance(written["linear"], float) and "UnsupportedOperatorError" in written["none"]
    file = tmp_path / "wrong.torch.npz"
    stored = dict(np.load(file))
    np.savez(file, **stored | {"result 00": stored["result 00"] + 1})
    measured, wrong = onnx_files.compare(tmp_path, list(made), rounds=3, seconds=0)
    assert measured.name == "linear" and measured.sizes[0] == measured.sizes[1] and len(measured.ratios) == 3
    assert wrong[0] == "wrong" and wrong[1].startswith("the file of torch differs by")
    assert onnx_files.line(measured).startswith("linear: ") and "larger: none" in onnx_files.summary([measured])
    assert "larger: linear" in onnx_files.summary([measured._replace(sizes=(2, 1))])


def test_temporary_files_of_programs_are_deleted():
    here = Environment(Path(sys.executable))
    done = here.run(["-c", "import tempfile; print(tempfile.mkdtemp())"])
    assert done.returncode == 0 and not Path(done.stdout.strip()).exists()


# --- packages --------------------------------------------------------------------------------------------------------

DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "ignite": "pytorch-ignite", "pyro": "pyro-ppl",
    "laplace": "laplace-torch", "open_clip": "open-clip-torch", "torchcrf": "pytorch-crf", "whisper": "openai-whisper",
    "esm": "fair-esm", "ot": "pot", "thop": "ultralytics-thop", "mace": "mace-torch", "doctr": "python-doctr",
}  # fmt: skip
# The packages with which another comes.
BROUGHT = {
    "numpy": {"tensorgrad"}, "gymnasium": {"tianshou"},
    "tokenizers": {"transformers", "sentence-transformers", "setfit", "transformer-lens", "trl"},
    "gpytorch": {"botorch"}, "pillow": {"lightly", "open-clip-torch"}, "ase": {"mace-torch"}, "e3nn": {"mace-torch"},
    "transformers": {"sentence-transformers", "peft", "setfit", "transformer-lens"},
    "scikit-learn": {"skorch", "setfit"}, "tensordict": {"torchrl"},
    "lightning": {"chemprop", "gluonts", "pytorch-forecasting"}, "pandas": {"neuralforecast", "pytorch-forecasting"},
    "datasets": {"setfit", "trl"}, "sentence-transformers": {"setfit"},
}  # fmt: skip
# What a library uses but does not ask for, by what a program says to make it do so.
UNASKED = {r"transformers\.Trainer\b": "accelerate", r"\bTensorBoardLogger\b": "tensorboard"}


def needed(program: Path) -> set[str]:
    """The packages that a program imports, names in its message, or makes a library use."""
    text = program.read_text(encoding="utf-8")
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    beside = {path.stem for path in program.parent.rglob("*")}
    found = {DISTRIBUTIONS.get(name, name) for name in found - set(sys.stdlib_module_names) - {"torch"} - beside}
    told = re.search(r"this example needs ([\w, -]+)", text)
    found |= set(re.split(r", | and ", told[1])) if told else set()
    found |= {package for pattern, package in UNASKED.items() if re.search(pattern, text)}
    return {name.replace("_", "-").strip() for name in found}


def missing(program: Path, installed: set[str]) -> set[str]:
    """Of the packages that a program needs, those that are neither installed nor come with what is."""
    return {name for name in needed(program) - installed if not BROUGHT.get(name, set()) & {*installed, "tensorgrad"}}


def test_the_page_says_what_each_example_needs():
    page = table.PAGE.read_text(encoding="utf-8")
    lines = dict(re.findall(r"^\| `(libraries/\w+\.py)` \|.*`pip install ([^`]+)` \|$", page, re.MULTILINE))
    examples = ROOT / "examples"
    assert set(lines) == {f"libraries/{path.name}" for path in (examples / "libraries").glob("*.py")}
    lacking = {name: missing(examples / name, set(line.split())) for name, line in lines.items()}
    assert not any(lacking.values()), lacking


def test_a_row_installs_what_its_programs_use():
    for library in LIBRARIES:
        for name in library.programs:
            installed = {re.split(r"[\[<>=]", one)[0] for one in library.requirements}
            lacking = missing(running.PROGRAMS / f"{name}.py", installed)
            assert not lacking, (library.name, name, lacking)


def test_a_package_that_is_used_but_not_imported_is_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import transformers\nfrom tokenizers import models\ntransformers.Trainer(1)\n")
    assert missing(program, {"transformers"}) == {"accelerate"}
    assert missing(program, {"transformers", "accelerate"}) == set()
    assert missing(program, {"accelerate"}) == {"transformers", "tokenizers"}
