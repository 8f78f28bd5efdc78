"""The examples run as a user runs them: each in a process of its own, under tensorgrad and under torch.

What they say of themselves, refuse and read, which no kernel changes: test_example_files.py.
"""

import functools
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.launch import needs_mpi
from tests.support.processes import once_in_a_run, run_python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MNIST = ROOT.parent / "shared" / "data"
CLASSIC = [f"classic/{p.name}" for p in sorted((EXAMPLES / "classic").glob("*.py"))]
LOSS = re.compile(r"loss (\S+)$", re.MULTILINE)
PRECISE_LOSS = re.compile(
    r"loss (-?\d+\.\d{5,})\b"
)  # the examples print their first losses with at least five decimals

# Every example at a size that takes a second or two, and what it leaves behind.
SMALL = {
    "xor.py": ("", "xor.svg xor.pt"),
    "graph.py": ("", "graph.svg"),
    "mnist/cnn.py": ("--epochs 1 --truncate_train 256 --truncate_test 100", "cnn.svg cnn_wrong.png cnn.pt"),
    "mnist/vit.py": (
        "--epochs 1 --batch_size 32 --truncate_train 256 --truncate_test 100 --patch_size 2 --embed 32 --num_heads 4 "
        "--num_layers 2",
        "vit.svg vit_attention.png vit.pt",
    ),
    "gpt.py": ("--steps 3 --batch_size 4 --context 16 --width 32 --heads 2 --characters 40", "gpt.svg gpt.pt"),
    "lstm.py": ("--steps 3 --width 16", "lstm.svg lstm.pt"),
    "vae.py": ("--epochs 1 --truncate_train 256", "vae.svg vae_plane.png vae_again.png vae.pt"),
    "gan.py": ("--steps 3 --hidden 32", "gan.svg gan_digits.png gan.pt"),
    "diffusion.py": (
        "--epochs 1 --truncate_train 256 --hidden 32 --noise_steps 10",
        "diffusion.svg diffusion_digits.png diffusion_steps.png diffusion.pt",
    ),
    "rl.py": ("--rounds 3 --carts 4", "rl.svg rl_pole.svg rl.pt"),
    "neural_ode.py": ("--steps 3 --moments 50", "neural_ode.svg neural_ode.pt"),
    "maml.py": ("--steps 3 --tasks 4", "maml.svg maml.pt"),
    "private.py": ("--steps 3 --batch_size 16 --truncate_train 256 --hidden 16", "private.svg private.pt"),
    "quantize.py": ("--epochs 1 --truncate_train 256 --width 4", "quantize.svg quantize.pt"),
    "pinn.py": ("--steps 3 --batch_size 8 --width 8", "pinn.svg pinn.pt"),
    "laplace.py": ("--steps 30 --points 10 --width 4", "laplace.svg laplace.pt"),
}
OF_DIGITS = {"mnist/cnn.py", "mnist/vit.py", "vae.py", "gan.py", "diffusion.py", "private.py", "quantize.py"}

has_sklearn = importlib.util.find_spec("sklearn") is not None
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_sklearn = pytest.mark.skipif(not has_sklearn, reason="the examples extra (scikit-learn) is not installed")
needs_mnist = pytest.mark.skipif(not list(MNIST.glob("t10k-images-idx3-ubyte.gz")), reason=f"no MNIST files in {MNIST}")


def environment(**more):
    """Returns the environment of an example: one thread, and no settings of this process."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {k: v for k, v in os.environ.items() if k not in ("DATA", "DEBUG")} | one | more


def run(*command, cwd=ROOT, expect=0):
    """Returns the output of a Python program; `expect` is the exit status that it must have."""
    done = run_python(None, *command, cwd=cwd, env=environment())
    assert done.returncode == expect, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if expect == 0 else done.stderr


# Runs programs, each in a process of its own that has imported the packages already, which takes longer than most run.
FORKS = """
import contextlib, importlib, json, os, runpy, sys
import tensorgrad, numpy
for name in ("sklearn.datasets", "tqdm"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
for line in sys.stdin:
    output, folder, program, *arguments = json.loads(line)
    process = os.fork()
    if not process:
        number = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(number, 1)
        os.dup2(number, 2)
        os.chdir(folder)
        sys.argv, sys.path[0] = [program, *arguments], os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    print(os.waitpid(process, 0)[1], flush=True)
"""


@pytest.fixture(scope="session")
def run_forked(tmp_path_factory):
    """`run_forked(program, *arguments, cwd=folder)` returns what a program prints; it must end well."""
    if not hasattr(os, "fork"):
        yield run
        return
    printed = tmp_path_factory.mktemp("printed") / "output"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", FORKS], cwd=ROOT, env=environment(), **pipes)

    def of(program, *arguments, cwd=ROOT):
        process.stdin.write(json.dumps([str(printed), str(cwd), str(program), *map(str, arguments)]) + "\n")
        process.stdin.flush()
        status = process.stdout.readline()
        assert status == "0\n", f"status {status}\n{printed.read_text()}"
        return printed.read_text()

    yield of
    process.communicate()


@pytest.fixture(scope="session")
def output_of(run_forked):
    """What a classic program prints; several tests look at one run."""
    return functools.cache(lambda name: run_forked(EXAMPLES / name))


def losses(output, pattern=LOSS):
    return [float(text) for text in pattern.findall(output)]


def rest_of(output):
    """Everything but the losses: predictions, weights and accuracy as printed."""
    return LOSS.sub("loss", output)


def options_of(name):
    if name in OF_DIGITS and not has_sklearn:
        pytest.skip("the examples extra (scikit-learn) is not installed")
    return SMALL[name][0].split()


@pytest.fixture(scope="session")
def results(tmp_path_factory, run_forked):
    """`results(name)` is what an example prints at a small size and the folder with its files; each runs once."""
    done = {}

    def of(name):
        if name not in done:
            folder = tmp_path_factory.mktemp("out")
            done[name] = run_forked(EXAMPLES / name, *options_of(name), "--out", folder), folder
        return done[name]

    return of


# Runs programs one after the other, as PyTorch takes longer to start than they do.
WORKER = """
import contextlib, io, json, runpy, sys, traceback
import torch
for line in sys.stdin:
    sys.argv, output, error = json.loads(line), io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([output.getvalue(), error]), flush=True)
"""


@pytest.fixture(scope="session")
def under_torch(tmp_path_factory):
    """`under_torch(name, *arguments)` runs a copy of an example in which only the first line is changed."""
    folder = tmp_path_factory.mktemp("under_torch") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__", "libraries"))
    for program in folder.rglob("*.py"):
        first, newline, rest = program.read_text().partition("\n")
        assert not re.search(r"^\s*(import|from) +(tensorgrad|torch)\b", rest, re.MULTILINE), program
        replaced = {"import tensorgrad as torch": "import torch", "import tensorgrad": "import torch as tensorgrad"}
        program.write_text(replaced.get(first, first) + newline + rest)
    command = [sys.executable, "-c", WORKER]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def of(name, *arguments):
        process.stdin.write(json.dumps([str(folder / name), *map(str, arguments)]) + "\n")
        process.stdin.flush()
        output, error = json.loads(process.stdout.readline())
        assert not error, f"{output}\n{error}"
        return output

    yield of
    process.communicate()


# --- every example -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_example_runs_and_draws(name, results):
    output, folder = results(name)
    assert name == "graph.py" or losses(output, PRECISE_LOSS)
    for file in SMALL[name][1].split():
        content = (folder / file).read_bytes()
        beginning = {".svg": b"<", ".png": b"\x89PNG", ".pt": b"PK"}[Path(file).suffix]
        assert content.startswith(beginning) and len(content) > 200, file


@needs_mpi
@pytest.mark.parametrize("name", ["fsdp.py", "tensor_parallel.py"])
def test_example_starts_two_processes(name):
    output = run(EXAMPLES / name)
    found = [float(text) for text in re.findall(r"step \d+: loss (\S+)$", output, re.MULTILINE)]
    assert len(found) == 5 and found[-1] < found[0], output
    assert "rank 0 has" in output and "rank 1 has" in output


@needs_torch
@pytest.mark.parametrize("name", SMALL)
def test_example_is_the_same_under_torch(name, results, under_torch, tmp_path):
    def run_it():
        output = under_torch(name, *options_of(name), "--out", tmp_path)
        return output, [(tmp_path / file).stat().st_size for file in SMALL[name][1].split()]

    ours, _ = results(name)
    theirs, sizes = once_in_a_run(f"example {name} under torch", run_it)
    if name == "graph.py":
        assert ours.split("picture")[0] == theirs.split("picture")[0]
    assert losses(ours, PRECISE_LOSS) == pytest.approx(losses(theirs, PRECISE_LOSS), rel=1e-4, abs=2e-6)
    assert len(sizes) == len(SMALL[name][1].split()) and min(sizes) > 200


def test_xor_is_solved(results):
    answers = ["0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0"]
    output = results("xor.py")[0]
    assert [line for line in output.splitlines() if " = " in line] == answers
    assert losses(output, PRECISE_LOSS)[-1] < 1e-3 and "step 5000 " in output


def test_graph_gives_the_derivatives(results):
    rows = re.findall(r"^d\S+ +(\S+) +(\S+)$", results("graph.py")[0], re.MULTILINE)
    assert len(rows) == 3
    for exact, slope in rows:
        assert float(exact) == pytest.approx(float(slope), abs=1e-5)


@pytest.mark.slow
@needs_sklearn
def test_networks_learn_to_read(tmp_path, run_forked):
    cnn = run_forked(EXAMPLES / "mnist/cnn.py", "--epochs", "6", "--out", tmp_path)
    train, test = re.search(r"^train (\S+)%, test (\S+)% after", cnn, re.MULTILINE).groups()
    assert float(train) >= 99.5 and float(test) >= 98
    vit = run_forked(EXAMPLES / "mnist/vit.py", "--epochs", "5", "--out", tmp_path)
    assert float(re.search(r"test (\S+)% after", vit)[1]) >= 90


@pytest.mark.slow
def test_cart_pole_is_learned(tmp_path, run_forked):
    output = run_forked(EXAMPLES / "rl.py", "--rounds", "25", "--out", tmp_path)
    assert float(re.search(r"carts balance for (\S+) of", output)[1]) > 100  # chance manages about 20


# --- checkpoints ---------------------------------------------------------------------------------------------------


def run_stopping(name, arguments, monkeypatch, rounds):
    """Run an example in this process as if it were stopped after `rounds` rounds."""
    monkeypatch.syspath_prepend(EXAMPLES)
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "progress", lambda total, done=0, unit="": range(done, min(total, done + rounds)))
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_a_stopped_run_goes_on_as_if_it_had_not_been(results, tmp_path, monkeypatch, capsys):
    expected, _ = results("rl.py")
    arguments = [*options_of("rl.py"), "--out", str(tmp_path)]
    for resume in ([], ["--resume"], ["--resume"]):
        run_stopping("rl.py", [*arguments, *resume], monkeypatch, rounds=1)
    found = capsys.readouterr().out
    # What is printed after training draws random numbers, too, and only the checkpoint's may count.
    assert losses(found, PRECISE_LOSS) == losses(expected, PRECISE_LOSS)
    assert len(losses(found, PRECISE_LOSS)) == 3


@needs_sklearn
@needs_torch
def test_torch_reads_the_checkpoint(results, under_torch):
    output, folder = results("mnist/cnn.py")
    again = under_torch("mnist/cnn.py", *options_of("mnist/cnn.py"), "--out", folder, "--resume")
    accuracy = r"train \S+, test \S+ "
    assert re.search(accuracy, again)[0] == re.search(accuracy, output)[0]
    assert not losses(again, PRECISE_LOSS)


# --- inference -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where the example serves, in a process that has nothing but NumPy."""
    folder = tmp_path_factory.mktemp("packages")
    packages = Path(np.__file__).parent.parent
    for name in ("numpy", "numpy.libs"):
        if (packages / name).exists():
            (folder / name).symlink_to(packages / name)
    program = [EXAMPLES / "inference.py", "--port", "0", "--out", tmp_path_factory.mktemp("out")]
    process = subprocess.Popen(
        [sys.executable, "-S", *map(str, program)],  # -S: what is installed is not found, except in that folder
        cwd=ROOT, env=environment(PYTHONPATH=f"{folder}{os.pathsep}{ROOT}"), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield re.search(r"http://\S+/", process.stdout.readline())[0]
    finally:
        process.kill()
        process.communicate()


def ask(address, content):
    request = urllib.request.Request(address + "read", data=content.encode())
    with urllib.request.urlopen(request, timeout=200) as answer:
        return json.load(answer)


def test_inference_serves_the_page(address):
    with urllib.request.urlopen(address, timeout=200) as answer:
        assert "Draw a digit" in answer.read().decode()


@needs_sklearn
def test_inference_reads_digits(address, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    _, _, images, labels = importlib.import_module("data").load_digits()
    answers = [ask(address, json.dumps({"pixels": image[0].tolist()})) for image in images[:50]]
    assert np.mean([answer["digit"] for answer in answers] == labels[:50]) >= 0.95
    assert all(abs(sum(answer["probabilities"]) - 1) < 0.01 for answer in answers)


@needs_torch
def test_inference_agrees_with_torch(address):
    import torch

    def block(inputs, outputs):
        convolution = torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU(), torch.nn.MaxPool2d(2))

    model = torch.nn.Sequential(block(1, 8), block(8, 16), block(16, 32), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    model.load_state_dict(torch.load(EXAMPLES / "weights" / "digits.pt")["model"])
    image = np.random.default_rng(0).random((8, 8)).round(3)
    with torch.no_grad():
        expected = model.eval()(torch.tensor(image, dtype=torch.float32)[None, None]).softmax(dim=1)[0]
    answer = ask(address, json.dumps({"pixels": image.tolist()}))
    assert answer["probabilities"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert answer["digit"] == expected.argmax().item()


@pytest.mark.parametrize(
    "content", ["", "no JSON", "[]", '{"pixels": 1}', '{"pixels": [[1, 2], [3]]}', '{"pixels": [[9]]}']
)
def test_inference_refuses_what_is_not_an_image(address, content):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(address, content)
    assert caught.value.code in (400, 413)


@needs_torch
def test_inference_compares_with_torch(tmp_path):
    output = run(EXAMPLES / "inference.py", "--measure", "1", "--out", tmp_path)
    found = dict(re.findall(r"^(\w+) +first answer after \S+ s, (\d+) MB$", output, re.MULTILINE))
    assert 0 < int(found["tensorgrad"]) < int(found["torch"])
    assert (tmp_path / "inference.svg").exists()


def test_inference_refuses_another_network(tmp_path, results):
    _, folder = results("xor.py")
    error = run(EXAMPLES / "inference.py", "--checkpoint", folder / "xor.pt", "--out", tmp_path, expect=1)
    assert "does not contain a network" in error and error.count("\n") == 1


# --- the classic programs, which are nothing but PyTorch's names ------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIC)
def test_program_learns(name, output_of):
    values = losses(output_of(name))
    assert len(values) >= 10
    assert values[-1] < 0.3 * values[0]


@needs_torch
@pytest.mark.parametrize("name", CLASSIC)
def test_program_is_the_same_under_torch(name, output_of, under_torch):
    ours, theirs = output_of(name), once_in_a_run(f"example {name} under torch", lambda: under_torch(name))
    assert rest_of(ours) == rest_of(theirs)
    assert losses(ours) == pytest.approx(losses(theirs), rel=0, abs=1e-4)


def test_smoke_suite():
    assert re.search(r"^smoke: \d+ checks passed\n\Z", run(ROOT / "tests" / "smoke.py"), re.MULTILINE)


# --- what `make train` runs ----------------------------------------------------------------------------------------


def train_save_load(run_forked, folder, *options):
    """Train, check the accuracy that is printed, and evaluate the saved model by the command that is printed."""
    output = run_forked(EXAMPLES / "train_digits.py", *options, cwd=folder)
    accuracy = re.search(r"^held-out accuracy (\S+)% after \S+ s$", output, re.MULTILINE)[1]
    assert float(accuracy) >= 97
    command = re.search(r"^    (\S.* --load \S+)$", output, re.MULTILINE)[1].split()
    assert command[0] == sys.executable
    assert f"held-out accuracy {accuracy}%" in run(*command[1:], cwd=folder)
    assert (folder / "digits.svg").read_text().count("<svg") == 1


@pytest.mark.slow
@needs_sklearn
def test_train_on_the_embedded_digits(tmp_path, run_forked):
    train_save_load(run_forked, tmp_path)
    with np.load(tmp_path / "digits.npz") as archive:
        assert archive["0.weight"].shape == (16, 1, 3, 3)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes((tmp_path / "digits.npz").read_bytes()[:3000])
    message = run(EXAMPLES / "train_digits.py", "--load", damaged, cwd=tmp_path, expect=1)
    assert "damaged.npz does not hold this network" in message and message.count("\n") == 1


@pytest.mark.slow
@needs_sklearn
@needs_mnist
def test_train_on_mnist(tmp_path, run_forked):
    train_save_load(run_forked, tmp_path, "--data", MNIST, "--epochs", "3")


@needs_sklearn
@needs_torch
def test_training_is_the_same_under_torch(run_forked, under_torch, tmp_path):
    pattern = re.compile(r"first loss (\S+)$", re.MULTILINE)
    arguments = ["--epochs", "1", "--save", tmp_path / "digits.npz"]
    ours = run_forked(EXAMPLES / "train_digits.py", *arguments)
    theirs = once_in_a_run("train_digits.py under torch", lambda: under_torch("train_digits.py", *arguments))
    assert len(losses(ours, pattern)) == 1
    assert losses(ours, pattern) == pytest.approx(losses(theirs, pattern), rel=1e-4)


# --- training in several processes -----------------------------------------------------------------------------------


@needs_sklearn
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and an MPICH")
def test_ranks_train_as_one_process_does(tmp_path, run_forked):
    """With one rank and two, started by the program or by the launcher, under tensorgrad and torch."""
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for program in copy.glob("*.py"):
        program.write_text(program.read_text().replace("import tensorgrad as torch\n", "import torch\n", 1))
    launcher = ["-m", "tensorgrad.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ("--epochs", "1", "--out", tmp_path)
    outputs = [run_forked(EXAMPLES / "ddp.py", *ranks, *options) for ranks in (("--ranks", "1"), ())]
    outputs.append(run(*launcher, EXAMPLES / "ddp.py", *options))
    if importlib.util.find_spec("torch") is not None:
        outputs.append(once_in_a_run("ddp.py under torch", lambda: run(copy / "ddp.py", *options)))
    alone, *others = [losses(output, PRECISE_LOSS) for output in outputs]
    assert len(alone) == 5 and (tmp_path / "ddp.svg").exists()
    for values in others:
        assert values == pytest.approx(alone, rel=1e-4)
