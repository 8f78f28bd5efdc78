"""The examples run as a user runs them: each in a process of its own, under tensorgrad and, where it is said, torch."""

import functools
import gzip
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
MNIST = ROOT.parent / "shared" / "data"
TWIN_PROGRAMS = ["xor.py"] + [f"classic/{p.name}" for p in sorted((EXAMPLES / "classic").glob("*.py"))]
LOSS = re.compile(r"loss (\S+)$", re.MULTILINE)

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_sklearn = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("tqdm") is None,
    reason="the examples extra (scikit-learn, tqdm) is not installed",
)
needs_mnist = pytest.mark.skipif(not list(MNIST.glob("t10k-images-idx3-ubyte.gz")), reason=f"no MNIST files in {MNIST}")


def run(*command, cwd=ROOT, threads="1", expect=0):
    """The output of a Python program; `expect` is the exit status that it must have."""
    environment = {k: v for k, v in os.environ.items() if k not in ("DATA", "DEBUG")}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = threads
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == expect, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if expect == 0 else done.stderr


@functools.cache
def output_of(name):
    """What the example `name` prints; several tests look at one run."""
    return run(EXAMPLES / name)


def under_torch(program, folder):
    """A copy of `program` with its first line, and nothing else, changed."""
    first, rest = program.read_text().split("\n", 1)
    assert first == "import tensorgrad"
    assert not re.search(r"^\s*(import|from) .*(tensorgrad|torch)", rest, re.MULTILINE)
    copy = folder / program.name
    copy.write_text("import torch as tensorgrad\n" + rest)
    return copy


def losses(output):
    return [float(text) for text in LOSS.findall(output)]


def rest_of(output):
    """Everything but the losses: predictions, weights and accuracy as printed."""
    return LOSS.sub("loss", output)


@pytest.mark.parametrize("name", TWIN_PROGRAMS)
def test_program_learns(name):
    values = losses(output_of(name))
    assert len(values) >= 10
    assert values[-1] < 0.3 * values[0]


@needs_torch
@pytest.mark.parametrize("name", TWIN_PROGRAMS)
def test_program_is_the_same_under_torch(name, tmp_path):
    ours, theirs = output_of(name), run(under_torch(EXAMPLES / name, tmp_path))
    assert rest_of(ours) == rest_of(theirs)
    assert losses(ours) == pytest.approx(losses(theirs), rel=0, abs=1e-4)


def test_xor_is_solved():
    output = output_of("xor.py")
    assert output.splitlines()[-4:] == ["0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0"]
    assert losses(output)[-1] < 1e-3


def test_smoke_suite():
    assert re.fullmatch(r"smoke: \d+ checks passed\n", run(ROOT / "tests" / "smoke.py"))


def train_save_load(folder, *options):
    """Train, check the accuracy that is printed, and evaluate the saved model by the command that is printed."""
    output = run(EXAMPLES / "train_digits.py", *options, cwd=folder, threads="2")
    accuracy, seconds = re.search(r"^held-out accuracy (\S+)% after (\S+) s$", output, re.MULTILINE).groups()
    assert float(accuracy) >= 97
    assert float(seconds) < 60
    command = re.search(r"^    (\S.* --load \S+)$", output, re.MULTILINE)[1].split()
    assert command[0] == sys.executable
    assert f"held-out accuracy {accuracy}%" in run(*command[1:], cwd=folder)


@pytest.mark.slow
@needs_sklearn
def test_train_on_the_embedded_digits(tmp_path):
    train_save_load(tmp_path)
    with np.load(tmp_path / "digits.npz") as archive:
        assert archive["0.weight"].shape == (16, 1, 3, 3)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes((tmp_path / "digits.npz").read_bytes()[:3000])
    message = run(EXAMPLES / "train_digits.py", "--load", damaged, cwd=tmp_path, expect=1)
    assert "damaged.npz does not hold this network" in message and message.count("\n") == 1


@pytest.mark.slow
@needs_sklearn
@needs_mnist
def test_train_on_mnist(tmp_path):
    train_save_load(tmp_path, "--data", MNIST)


def write_idx(file, rank, shape, extra=0):
    """A gzipped idx file of zeros that says `rank` and `shape`, with `extra` bytes more than that."""
    header = bytes([0, 0, 8, rank]) + np.array(shape, ">i4").tobytes()
    file.write_bytes(gzip.compress(header + bytes(int(np.prod(shape)) + extra)))


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (None, None, "t10k-images-idx3-ubyte.gz is missing"),
        ((3, (2, 28, 28)), None, "t10k-labels-idx1-ubyte.gz is missing"),
        ((1, (2,)), None, "is no idx file of 3-dimensional bytes"),
        ((3, (2, 28, 28), -1), None, "promises (2, 28, 28) bytes, but holds 1567"),
        ((3, (2, 28, 28)), (1, (3,)), "holds 2 images, but"),
        ((3, (2, 8, 8)), (1, (2,)), "expected images of 28 x 28 pixels, got 8 x 8"),
        ((3, (2, 28, 28)), (1, (2,)), "expected 10,000 t10k digits"),
    ],
)
def test_bad_data_is_named(tmp_path, monkeypatch, images, labels, message):
    monkeypatch.syspath_prepend(EXAMPLES)
    data = importlib.import_module("data")
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        if content:
            write_idx(tmp_path / f"t10k-{name}-ubyte.gz", *content)
    with pytest.raises(ValueError, match=re.escape(message)):
        data.load_mnist(tmp_path)


def test_four_files_are_two_parts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    data = importlib.import_module("data")
    for part, count in (("train", 5), ("t10k", 3)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", 3, (count, 28, 28))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", 1, (count,))
    assert [a.shape for a in data.load_mnist(tmp_path)] == [(5, 1, 28, 28), (5,), (3, 1, 28, 28), (3,)]


def test_errors_of_the_training_program_are_one_line(tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"text")
    error = run(EXAMPLES / "train_digits.py", "--data", tmp_path, expect=1)
    assert "t10k-images-idx3-ubyte.gz cannot be read" in error and error.count("\n") == 1
    error = run(EXAMPLES / "train_digits.py", "--save", tmp_path / "absent" / "digits.npz", expect=1)
    assert "there is no such folder" in error and error.count("\n") == 1
