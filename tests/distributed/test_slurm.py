"""Under Slurm, of which `slurm/srun` and `slurm/scontrol` are simulations: programs and launchers find their ranks."""

import json
import os
import sys

import pytest

from tensorgrad.system.ports import ReservedPort
from tests.distributed.launch import HERE, environment, finished, needs_mpi, start_command
from tests.distributed.test_peers import needs

pytestmark = [
    needs_mpi,
    pytest.mark.skipif(sys.platform == "win32", reason="Slurm runs on Linux"),
    pytest.mark.together,
]

# What programs for PyTorch do, which has no function that reads Slurm's variables.
BY_HAND = """
import json, os, subprocess
import torch
import torch.distributed as dist
os.environ["MASTER_ADDR"] = subprocess.check_output(
    ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], text=True).split()[0]
rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=size)
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
print(json.dumps([torch.__package__, dist.get_rank(), dist.get_world_size(), x.item()]))
dist.destroy_process_group()
"""
UNDER_TORCHRUN = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print(json.dumps([dist.get_rank(), int(os.environ["LOCAL_RANK"]), int(os.environ["GROUP_RANK"]),
                  int(os.environ["SLURM_NODEID"]), x.item()]))
dist.destroy_process_group()
"""
FAILING = """
import os, sys, time
import torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", rank=rank, world_size=2)
if rank == 1:
    sys.exit(3)
dist.barrier()
"""


def srun(*arguments, **variables):
    """Runs srun, and returns its exit code, output and errors."""
    path = f"{HERE / 'slurm'}{os.pathsep}{os.environ['PATH']}"
    with ReservedPort() as port:
        there = environment(PATH=path, MASTER_PORT=port.number, **variables)
        return finished(start_command([HERE / "slurm" / "srun", *arguments], env=there))


def program(folder, text):
    path = folder / "program.py"
    path.write_text(text)
    return [sys.executable, "-m", "tensorgrad.run", path]


@pytest.mark.parametrize("options", [["-n", 3], ["-N", 2, "--ntasks-per-node", 1]])
def test_a_program_that_reads_slurms_variables(tmp_path, options):
    code, output, errors = srun(*options, *program(tmp_path, BY_HAND))
    assert code == 0, errors
    size = options[1]
    total = size * (size + 1) / 2
    assert sorted(map(json.loads, output.splitlines())) == [["tensorgrad", rank, size, total] for rank in range(size)]


def test_torchrun_on_two_nodes(tmp_path, port):
    """Each task is an agent for its node; the agents find each other at the first node."""
    [_, _, _, path] = program(tmp_path, UNDER_TORCHRUN)
    options = ["--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-id", 4711]
    agent = [sys.executable, "-m", "tensorgrad.distributed.run", *options]
    code, output, errors = srun(
        "-N", 2, "--ntasks-per-node", 1, *agent, "--rdzv-endpoint", f"127.0.0.1:{port}", path,
        TENSORGRAD_JOB_SECRET="s" * 32,
    )  # fmt: skip
    assert code == 0, errors
    found = sorted(map(json.loads, output.splitlines()))
    assert [(rank, local, group, total) for rank, local, group, _, total in found] == [
        (0, 0, 0, 10.0), (1, 1, 0, 10.0), (2, 0, 1, 10.0), (3, 1, 1, 10.0),
    ]  # fmt: skip
    assert len({(group, node) for _, _, group, node, _ in found}) == 2, "ranks of a node are on one node"


def test_torchrun_with_the_node_rank_that_slurm_gives(tmp_path):
    [_, _, _, path] = program(tmp_path, UNDER_TORCHRUN)
    agent = (
        f"exec {sys.executable} -m tensorgrad.distributed.run --nnodes $SLURM_NNODES --node-rank $SLURM_NODEID "
        f"--nproc-per-node 2 --master-addr $(scontrol show hostnames | head -n 1) --master-port $MASTER_PORT {path}"
    )
    code, output, errors = srun("-N", 2, "-n", 2, "sh", "-c", agent, TENSORGRAD_JOB_SECRET="s" * 32)
    assert code == 0, errors
    found = sorted(map(json.loads, output.splitlines()))
    assert found == [[0, 0, 0, 0, 10.0], [1, 1, 0, 0, 10.0], [2, 0, 1, 1, 10.0], [3, 1, 1, 1, 10.0]]


def test_a_task_that_fails_ends_the_job(tmp_path):
    code, _, errors = srun("-n", 2, *program(tmp_path, FAILING), MASTER_ADDR="127.0.0.1")
    assert code != 0 and "rank 1 has ended" in errors


@needs("lightning")
def test_lightning_finds_its_ranks_by_itself():
    """Its SLURMEnvironment reads the variables; srun has started the processes."""
    command = [sys.executable, "-m", "tensorgrad.run", HERE / "peer_lightning.py", 2]
    code, output, errors = srun("-N", 1, "--ntasks-per-node", 2, *command)
    assert code == 0, errors
    results = [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]
    assert results == ["tensorgrad 2 [3.7366, 2.5712, 1.6415]"]
