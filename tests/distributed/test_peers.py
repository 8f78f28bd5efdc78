"""accelerate, Lightning, Ray Train, nanoGPT and PyTorch's examples, unmodified, on tensorgrad.

For libraries there are small programs that use their main functions; the losses are those that the same programs print
with PyTorch. Where a library is not installed, or the source of a program is not named, its tests are skipped.
"""

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tensorgrad.distributed.mpi.library import installed
from tests.distributed.jobs import job
from tests.distributed.launch import HERE, needs_mpi, run


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}")


def results(name, *arguments, ranks=1):
    """The lines with results that a program prints, on its own or as a job of several ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks] if ranks > 1 else []
    command = ["-m", "tensorgrad.run", *launcher, HERE / name, *arguments]
    [(_, output, _)] = run(1, command)
    return [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]


@needs("accelerate")
def test_accelerate_in_one_process():
    assert results("peer_accelerate.py") == ["tensorgrad [25.889, 9.004, 5.198] [3, 1] ['bias', 'weight']"]


@needs("accelerate")
def test_accelerate_launch():
    """(With `--cpu`, it starts one process, whatever `--num_processes` says.)"""
    launch = ["-m", "tensorgrad.run", "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    [(_, output, _)] = run(1, [*launch, HERE / "peer_accelerate.py"])
    assert "RESULT tensorgrad [25.889, 9.004, 5.198] [3, 1]" in output


@needs_mpi
@needs("accelerate")
def test_accelerate_in_two_processes():
    found = results("peer_accelerate.py", ranks=2)
    assert found == ["tensorgrad [15.188, 11.459, 10.124] [6, 1] ['bias', 'weight']"]


@needs("lightning")
def test_lightning_in_one_process():
    assert results("peer_lightning.py", 1) == ["tensorgrad 1 [3.2917, 2.0547, 1.3743]", "[0.7969]"]


@needs_mpi
@needs("lightning")
def test_lightning_in_two_processes():
    assert results("peer_lightning.py", 2, ranks=2) == ["tensorgrad 2 [3.7366, 2.5712, 1.6415]"]


@needs_mpi
@needs("lightning")
def test_lightning_starts_its_own_processes():
    assert results("peer_lightning.py", 2) == ["tensorgrad 2 [3.7366, 2.5712, 1.6415]"]


@needs_mpi
def test_to_ask_mpi4py_for_the_number_of_processes_does_not_initialize_mpi():
    """Lightning asks it, and could not start its own processes otherwise."""
    asks = (
        "from tensorgrad import compat; compat.install(); from mpi4py import MPI; world = MPI.COMM_WORLD\n"
        "assert isinstance(world, MPI.Comm) and (world.Get_size(), world.rank) == (1, 0) and not MPI.Is_initialized()\n"
        "assert world.bcast(3) == 3 and MPI.Is_initialized() and MPI.COMM_WORLD.size == 1"
    )
    run(1, ["-c", asks], MPI4PY_LIBMPI=installed())


@needs_mpi
@needs("ray")
@pytest.mark.slow
def test_ray_train(tmp_path):
    try:
        run(1, ["-m", "tensorgrad.run", HERE / "peer_ray.py", tmp_path / "losses"])
    except subprocess.TimeoutExpired:
        pytest.fail("Ray Train has not ended")
    name, ranks, losses = json.loads((tmp_path / "losses").read_text())
    assert (name, ranks) == ("tensorgrad", 2) and losses == pytest.approx([13.2722, 3.1438, 0.8018], abs=1e-3)


# --- programs that need GPUs, on emulated ones -----------------------------------------------------------------------


def source(name):
    """The folder of a program's source that a variable names, and the mark that skips a test if there is none."""
    folder = os.environ.get(name)
    skip = pytest.mark.skipif(folder is None, reason=f"{name} must name a folder with the program's source")
    return Path(folder or "."), skip


NANOGPT, needs_nanogpt = source("NANOGPT")
EXAMPLES, needs_examples = source("PYTORCH_EXAMPLES")
SMALL = {
    "compile": False, "dtype": "float32", "eval_iters": 2, "eval_interval": 5, "log_interval": 1, "block_size": 32,
    "batch_size": 4, "n_layer": 2, "n_head": 2, "n_embd": 32, "max_iters": 6, "dropout": 0.0,
    "gradient_accumulation_steps": 4,
}  # fmt: skip


def on_gpus(program, *arguments, ranks, folder):
    """What the ranks of a program print."""
    wrapped = [HERE / "on_gpus.py", program, *arguments]
    code, output, errors = job("--standalone", "--nproc-per-node", ranks, *wrapped, cwd=folder, EMULATED_GPUS=ranks)
    assert code == 0, errors
    return output + errors


@needs_mpi
@needs_nanogpt
@pytest.mark.slow
def test_nanogpt_in_ddp_mode(tmp_path):
    """The losses are PyTorch's, on the CPU with gloo. (data/shakespeare_char/prepare.py must have been run.)"""
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    options += [f"--out_dir={tmp_path}", "--backend=nccl"]
    printed = on_gpus("train.py", "config/train_shakespeare_char.py", *options, ranks=2, folder=NANOGPT)
    losses = [float(loss) for loss in re.findall(r"iter \d: loss ([\d.]+)", printed)]
    assert losses == pytest.approx([4.1721, 4.1728, 4.1826, 4.1571, 4.1766, 4.1583, 4.1561], abs=2e-4)


@needs_mpi
@needs_examples
@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "program", "ranks", "told", "times"),
    [
        ("ddp", "example.py", 4, "training completed in rank", 4),
        ("tensor_parallelism", "tensor_parallel_example.py", 4, "Tensor Parallel training completed!", 1),
        ("tensor_parallelism", "sequence_parallel_example.py", 4, "Sequence Parallel training completed!", 1),
    ],
)
def test_examples_of_pytorch(folder, program, ranks, told, times):
    printed = on_gpus(program, ranks=ranks, folder=EXAMPLES / "distributed" / folder)
    assert printed.count(told) == times, printed


@needs_mpi
@needs_examples
@pytest.mark.slow
def test_fsdp2_example_of_pytorch(tmp_path):
    """On the CPU, without its demand for two GPUs: emulated ones take an hour. It resumes when it runs again."""
    for file in (EXAMPLES / "distributed" / "FSDP2").glob("*.py"):
        text = file.read_text().replace("return has_gpu and gpu_count >= min_gpus", "return True")
        (tmp_path / file.name).write_text(text)
    for number in (1, 2):
        code, _, errors = job("--standalone", "--nproc-per-node", 2, tmp_path / "example.py", "--dcp-api", cwd=tmp_path)
        assert code == 0, errors
        assert len(list(tmp_path.glob("checkpoints/dcp_api/*/model_state_dict.pt"))) == number
