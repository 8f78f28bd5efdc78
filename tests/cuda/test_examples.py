"""The examples with `--device cuda`, at the sizes of tests/docs/test_examples.py or smaller."""

import re
import runpy
import sys

import pytest

import tensorgrad
from tests.cuda.conftest import MODE
from tests.docs.test_example_files import SCRIPTS
from tests.docs.test_examples import CLASSIC, EXAMPLES, OF_DIGITS, SMALL, needs_sklearn

LOSSES = re.compile(r"loss (-?\d+\.\d+)")

# Those whose random numbers all come from the CPU learn the same on both.
SAME = {
    "xor.py": "--steps 5",
    "gpt.py": "--steps 2 --batch_size 2 --context 8 --width 16 --heads 2 --layers 1 --characters 5",
    "lstm.py": "--steps 2 --width 16 --samples 2",
    "mnist/cnn.py": "--epochs 1 --batch_size 16 --truncate_train 32 --truncate_test 8",
}
# Those that draw on the GPU only have to run.
OTHER = {
    "vae.py": "--epochs 1 --truncate_train 64",
    "gan.py": "--steps 2 --hidden 8 --batch_size 8",
    "diffusion.py": "--epochs 1 --truncate_train 32 --hidden 16 --noise_steps 2",
    "mnist/vit.py": (
        "--epochs 1 --batch_size 16 --truncate_train 16 --truncate_test 8 --patch_size 4 --embed 8 --num_heads 2 "
        "--num_layers 1"
    ),
    "rl.py": "--rounds 1 --carts 2",
    "maml.py": "--steps 1 --tasks 1",
    "neural_ode.py": "--steps 1 --moments 50",
}
QUICK = ("classic/sequential.py", "classic/module_parameters.py")  # on the emulator
REST = {name: options for name, (options, _) in SMALL.items() if name not in {**SAME, **OTHER}}


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs an example in this process (a process of its own would have no emulated GPU); returns what it printed."""

    def run(name, *options):
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *options])
        capsys.readouterr()
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        finally:
            tensorgrad.set_default_device(None)
        return capsys.readouterr().out

    def at_size(name, options, device, out="--out"):
        return run(name, *options.split(), "--device", device, *((out, str(tmp_path)) if out else ()))

    return at_size


def marked(names):
    return [pytest.param(name, marks=needs_sklearn if name in OF_DIGITS else ()) for name in names]


@pytest.mark.parametrize("name", marked(SAME))
def test_an_example_learns_the_same_on_the_gpu(name, run):
    here, there = (LOSSES.findall(run(name, SAME[name], device)) for device in ("cuda", "cpu"))
    assert len(here) == len(there) > 0
    assert [float(loss) for loss in here] == pytest.approx([float(loss) for loss in there], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", marked(OTHER))
def test_an_example_runs_on_the_gpu(name, run):
    assert re.search(r"\d", run(name, OTHER[name], "cuda"))


@pytest.mark.parametrize("name", marked(REST))
def test_every_other_example_runs_on_the_gpu(name, run):
    assert re.search(r"\d", run(name, REST[name], "cuda"))


@needs_sklearn
def test_digits_are_learned_on_the_gpu(run, tmp_path):
    printed = run("train_digits.py", f"--epochs 1 --save {tmp_path / 'digits.npz'}", "cuda", out="")
    assert float(re.findall(r"(\d+\.\d+) ?%", printed)[-1]) > 50


@needs_sklearn
def test_a_server_answers_from_the_gpu(run):
    assert re.search(r"\d", run("inference.py", "--answer", "cuda", out=""))


@pytest.mark.parametrize("name", CLASSIC if MODE == "cuda" else QUICK)
def test_a_classic_runs_on_the_gpu(name, run):
    losses = [float(loss) for loss in LOSSES.findall(run(name, "", "cuda"))]
    assert losses[-1] < 0.5 * losses[0]


def test_every_example_takes_a_device():
    for name in {*SCRIPTS, *SMALL, *CLASSIC}:
        text = (EXAMPLES / name).read_text()
        assert "--device" in text or "make_parser(" in text, name
