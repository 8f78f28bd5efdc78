"""accelerate, Lightning and Ray Train, unmodified, on tensorgrad: small programs that use their main functions.

The losses are those that the same programs print with PyTorch. Where a library is not installed, its tests are skipped.
"""

import importlib.util
import json
import os
import subprocess

import pytest

from tests.distributed.launch import HERE, needs_mpi, run


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}")


def results(name, *arguments, ranks=1):
    """The lines with results that a program prints, on its own or as a job of several ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks] if ranks > 1 else []
    command = ["-m", "tensorgrad.run", *launcher, HERE / name, *arguments]
    [(_, output, _)] = run(1, command, timeout=120)
    return [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]


@needs("accelerate")
def test_accelerate_in_one_process():
    assert results("peer_accelerate.py") == ["tensorgrad [25.889, 9.004, 5.198] [3, 1] ['bias', 'weight']"]


@needs("accelerate")
def test_accelerate_launch():
    """(With `--cpu`, it starts one process, whatever `--num_processes` says.)"""
    launch = ["-m", "tensorgrad.run", "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    [(_, output, _)] = run(1, [*launch, HERE / "peer_accelerate.py"], timeout=120)
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
@needs("ray")
@pytest.mark.skipif(
    "TENSORGRAD_TEST_RAY" not in os.environ, reason="takes minutes, with PyTorch too: TENSORGRAD_TEST_RAY=1"
)
def test_ray_train(tmp_path):
    try:
        run(1, ["-m", "tensorgrad.run", HERE / "peer_ray.py", tmp_path / "losses"], timeout=240)
    except subprocess.TimeoutExpired:
        pytest.fail("Ray Train has not ended")
    name, ranks, losses = json.loads((tmp_path / "losses").read_text())
    assert (name, ranks) == ("tensorgrad", 2) and losses == pytest.approx([13.2722, 3.1438, 0.8018], abs=1e-3)
