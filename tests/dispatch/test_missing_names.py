"""A name that is not there: what was meant, what only PyTorch has; and hints that lead somewhere, also from a wheel."""

import ast
import importlib
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import traceback
import types
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad import coverage
from tensorgrad.system import absent_names, missing_names
from tests.support.processes import run_python

ROOT = Path(tensorgrad.__file__).parent
ROOMS = (  # those that answer for names themselves
    "", "autograd", "autograd.graph", "cuda", "jit", "nn", "nn.functional", "nn.modules", "nn.parameter", "nn.utils",
    "optim", "utils", "viz",
)  # fmt: skip


def room_of(name):
    return importlib.import_module(f"tensorgrad.{name}".rstrip("."))


def error(room, name) -> str:
    with pytest.raises(AttributeError) as caught:
        getattr(room_of(room), name)
    assert caught.value.name == name
    return str(caught.value)


def misspelt(name):
    """A name with two letters exchanged, with one less, and in capitals."""
    at = len(name) // 2
    return {name[:at] + name[at + 1] + name[at] + name[at + 2 :], name[:at] + name[at + 1 :], name.upper() + "_"}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room or "torch")
def test_a_misspelt_name_gets_the_one_that_was_meant(room):
    module = room_of(room)
    public = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    public = sorted(n for n in public if len(n) > 5 and not isinstance(getattr(module, n), types.ModuleType))
    some = public[:: len(public) // 40 + 1]
    tried = [(n, wrong) for n in some for wrong in misspelt(n) if not hasattr(module, wrong)]
    assert len(tried) > 2
    advice = re.compile(r"; did you mean '(?:torch\.[\w.]+\.)?(\w+)'\?$")
    asked = [(n, wrong, advice.search(error(room, wrong))) for n, wrong in tried]
    assert not [(n, wrong) for n, wrong, found in asked if found is None]
    right = sum(found[1] == n for n, _, found in asked)
    assert right > 0.8 * len(asked), [(n, wrong, found[1]) for n, wrong, found in asked if found[1] != n]


def test_a_name_of_another_room_is_led_there():
    for room, name, where in (("", "Linear", "nn"), ("nn", "cross_entropy", "nn.functional"), ("nn", "Adam", "optim")):
        room_of(where)
        assert error(room, name).endswith(f"; did you mean 'torch.{where}.{name}'?")


def test_unknown_names_get_no_suggestion():
    for room in ROOMS:
        for name in ("zzqqxx_zzqqxx", "_private", "__dunder__", ""):
            module = room_of(room).__name__
            assert error(room, name) == f"module {module!r} has no attribute {name!r}"


@pytest.mark.parametrize("room", absent_names.MISSING, ids=lambda room: room or "torch")
def test_only_what_pytorch_has_is_said_to_be_missing(room):
    torch = pytest.importorskip("torch", reason="says which names PyTorch has")
    theirs, ours = importlib.import_module(f"torch.{room}".rstrip(".")), room_of(room)
    listed = missing_names.only_in_torch(room)
    assert not [name for name in listed if not hasattr(theirs, name)]
    for name in listed:
        if not hasattr(ours, name):
            assert "PyTorch has it" in error(room, name) or room not in ROOMS
    public = {n for n in getattr(theirs, "__all__", ()) if not n.startswith("_")} or {
        n for n, v in vars(theirs).items() if n[0] != "_" and isinstance(v, torch.dtype | torch.layout)
    }
    assert not {name for name in public if not hasattr(ours, name)} - listed, "add these to absent_names.MISSING"


@pytest.mark.parametrize(
    "code, name",
    [("torch.ones(2).sgmoid()", "sigmoid"), ("torch.nn.Linear(2, 2).wieght", "weight"),
     ("torch.nn.Sequential().appendd", "append"), ("torch.optim.SGD([torch.ones(1)], 0.1).stepp()", "step")],
)  # fmt: skip
def test_python_says_which_attribute_of_an_object_was_meant(code, name):
    done = run_python(f"import tensorgrad as torch\n{code}")
    assert f"Did you mean: '{name}'?" in done.stderr, done.stderr
    # Python looks no further than 750 names.
    assert len(dir(tensorgrad.Tensor)) < 750


# --- hints -----------------------------------------------------------------------------------------------------------

PLACES = re.compile(
    r"(?<![\w/.])(?:docs|examples|tests|tools|benchmarks)/[\w./]+|(?<![\w/])[\w/]+\.md\b"
    r"|python -m ([\w.]+)|`make [a-z]+`"
)


def hints():
    """Files and commands that are named in messages and docstrings: (place, what, the text around)."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in PLACES.finditer(node.value):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", found, node.value


def test_what_messages_name_can_be_opened_by_who_has_only_the_wheel():
    """A command is a module of the package; a file is in it, or the text says that it is in the repository."""
    lost, seen = [], 0
    for place, found, text in hints():
        seen += 1
        if found[1]:
            good = found[1].split(".")[0] == "tensorgrad" and importlib.util.find_spec(found[1].rstrip(".")) is not None
        else:
            good = "repository" in text or found[0] == "coverage.md"  # which wheels have: see below
        if not good:
            lost.append((place, found[0]))
    assert seen > 20 and not lost


def test_the_report_is_in_the_wheel():
    text = (ROOT.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '"docs/coverage.md" = "tensorgrad/coverage.md"' in text and '"/docs"' in text
    assert coverage.report().startswith("# What of PyTorch is here")
    for words, status in (([], 0), (["cholesky"], 0), (["zzqqxx"], 1)):
        assert coverage.main(words) == status


@pytest.mark.skipif(os.name != "posix", reason="pipes that end a writer are POSIX's")
@pytest.mark.parametrize("command", ["tensorgrad.dispatch.show --list", "tensorgrad.coverage"])
def test_a_reader_may_stop_reading(command):
    """Like `| head -1`, on a pipe that is closed before anything is read."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", *command.split()], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == "" and done.returncode == 141


def test_advice_is_for_people_and_loads_nothing():
    """The package's own imports (`from tensorgrad.viz import svg`) and `hasattr` ask for none; it loads a table."""
    program = """
import sys
import tensorgrad.system.missing_names as names
asked, advice = [], names.advice
names.advice = lambda *name: asked.append(name) or advice(*name)
import tensorgrad as torch
import tensorgrad.optim.lr_scheduler, tensorgrad.nn.utils.rnn, tensorgrad.utils.data, tensorgrad.viz.charts
import tensorgrad.viz.explorer, tensorgrad.profiler, tensorgrad.distributions, tensorgrad.func, tensorgrad.cuda
from tensorgrad import hub, jit, serialization, signal
assert not asked and "difflib" not in sys.modules, asked
modules = torch, torch.nn, torch.optim, torch.viz, torch.utils, torch.nn.utils
before = set(sys.modules)
for module in modules:
    assert not hasattr(module, "colours")
assert not asked, asked
for module in modules:
    try:
        module.colours
    except AttributeError as error:
        assert type(error) is AttributeError and "has no attribute 'colours'" in str(error)
print(len(asked), *(name for name in set(sys.modules) - before if name.startswith("tensorgrad")))
"""
    done = run_python(program)
    assert done.stdout.split() == ["6", "tensorgrad.system.absent_names"], done.stdout + done.stderr


def test_the_advice_is_the_same_however_the_error_is_read():
    with pytest.raises(AttributeError, match="did you mean 'Linear'") as caught:
        tensorgrad.nn.Lineer
    error = caught.value
    expected = "module 'tensorgrad.nn' has no attribute 'Lineer'; did you mean 'Linear'?"
    assert f"{error}" == str(error) == expected and repr(error) == f"AttributeError({expected!r})"
    assert error.name == "Lineer" and "has no attribute 'Lineer'" in error.args[0]
    assert traceback.format_exception_only(error)[-1].strip() == f"AttributeError: {expected}"
    copied = pickle.loads(pickle.dumps(error))
    assert copied.args == (expected,) and type(copied.args[0]) is str
