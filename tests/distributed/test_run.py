"""The command that starts a job: its options, what it tells the ranks, their output, and how it reports failures."""

import json
import os
import re
import socket
import sys

import pytest

from tensorgrad.distributed import run
from tensorgrad.distributed.elastic.multiprocessing import Std
from tests.distributed.jobs import job
from tests.distributed.launch import (
    MPIEXEC,
    ROOT,
    environment,
    finished,
    needs_mpi,
    needs_mpiexec,
    start,
    start_command,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the agent's signals are POSIX's")

VARIABLES = """
import json, os, sys, torch
names = ("RANK", "LOCAL_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "OMP_NUM_THREADS")
print(json.dumps([torch.__package__, sys.argv[1:], {name: os.environ.get(name) for name in names}]))
"""
SUM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
assert x.tolist() == [3.0] * 3
import os
assert len(os.environ["TENSORGRAD_JOB_SECRET"]) == 32
dist.destroy_process_group()
"""


def program(folder, text):
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_the_options_and_their_defaults_are_those_of_torchrun():
    torch_run = pytest.importorskip("torch.distributed.run")
    theirs = {a.dest: a for a in torch_run.get_args_parser()._actions}
    ours = {a.dest: a for a in run.get_args_parser()._actions}
    assert set(ours) == set(theirs)
    for name, action in theirs.items():
        assert set(action.option_strings) <= set(ours[name].option_strings), name
        if "filters" not in name:
            assert ours[name].default == action.default, name


def test_variables_give_defaults(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_STANDALONE", "1")
    monkeypatch.setenv("PET_MAX_RESTARTS", "5")
    config, command, rest = run.config_from_args(run.parse_args(["train.py", "--lr", "1"]))
    assert (config.nproc_per_node, config.max_restarts, config.rdzv_backend) == (3, 5, "c10d")
    assert command == sys.executable and rest[-3:] == ["train.py", "--lr", "1"]


@pytest.mark.parametrize("value", ["0", "3", "0:1,1:2", "4", "x", "0:9", "1:"])
def test_destinations_of_output_are_read_as_in_torch(value):
    theirs = pytest.importorskip("torch.distributed.elastic.multiprocessing").Std

    def outcome(kind):
        try:
            found = kind.from_str(value)
        except ValueError:
            return "ValueError"
        return {k: int(v) for k, v in found.items()} if isinstance(found, dict) else int(found)

    assert outcome(Std) == outcome(theirs)


@pytest.mark.together
def test_what_the_ranks_are_told(tmp_path):
    path = program(tmp_path, VARIABLES)
    code, output, errors = job(
        "--standalone", "--nproc_per_node=2", "--role", "trainer", "--max-restarts", 4, path, "-x", "1",
        OMP_NUM_THREADS="",
    )  # fmt: skip
    assert code == 0, errors
    ranks = [json.loads(text) for text in re.findall(r"\[\"tensorgrad.*?\}\]", output)]
    ranks.sort(key=lambda found: found[2]["RANK"])
    for rank, (name, arguments, told) in enumerate(ranks):
        assert name == "tensorgrad" and arguments == ["-x", "1"]
        assert told["RANK"] == told["LOCAL_RANK"] == told["ROLE_RANK"] == str(rank)
        assert told["WORLD_SIZE"] == told["LOCAL_WORLD_SIZE"] == told["ROLE_WORLD_SIZE"] == "2"
        assert (told["GROUP_RANK"], told["GROUP_WORLD_SIZE"], told["ROLE_NAME"]) == ("0", "1", "trainer")
        assert told["MASTER_ADDR"] == "127.0.0.1" and int(told["MASTER_PORT"]) > 0
        assert (told["TORCHELASTIC_RESTART_COUNT"], told["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "4")
        assert told["TORCHELASTIC_USE_AGENT_STORE"] == "True" and told["TORCHELASTIC_RUN_ID"]
        assert int(told["OMP_NUM_THREADS"]) == max(1, len(os.sched_getaffinity(0)) // 2)
    assert len(ranks) == 2


@needs_mpi
@pytest.mark.together
def test_ranks_meet_by_the_agents_store_with_a_secret_of_their_own(tmp_path):
    code, _, errors = job("--standalone", "--nproc-per-node", 2, program(tmp_path, SUM))
    assert code == 0, errors


@pytest.mark.together
def test_modules(tmp_path):
    (tmp_path / "module_of_a_job.py").write_text("import sys, torch; print(torch.__package__, sys.argv[1:])")
    code, output, errors = job(
        "--standalone", "-m", "module_of_a_job", "-v", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}"
    )
    assert (code, output) == (0, "tensorgrad ['-v']\n"), errors


@pytest.mark.together
def test_commands():
    code, output, errors = job("--standalone", "--no-python", "sh", "-c", "echo rank $RANK")
    assert (code, output) == (0, "rank 0\n"), errors


@pytest.mark.together
@pytest.mark.parametrize(("option", "told"), [((), "['--local-rank=0', 'a']\n"), (("--use-env",), "['a']\n")])
def test_the_older_command_passes_the_local_rank(tmp_path, option, told):
    path = program(tmp_path, "import sys; print(sys.argv[1:])")
    _, output, errors = finished(start(["-m", "tensorgrad.distributed.launch", "--standalone", *option, path, "a"]))
    assert output == told, errors


@pytest.mark.together
def test_output_with_prefixes_and_in_files(tmp_path):
    path = program(
        tmp_path, "import os, sys; r = os.environ['RANK']; print('out', r); print('err', r, file=sys.stderr)"
    )
    logs = tmp_path / "logs"
    code, output, errors = job(
        "--standalone",
        "--nproc-per-node",
        2,
        "--tee",
        "0:3,1:1",
        "--redirects",
        "1:2",
        "--log-dir",
        logs,
        "--no-python",
        sys.executable,
        "-S",
        path,
    )
    assert code == 0, errors
    assert sorted(output.splitlines()) == ["[default0]:out 0", "[default1]:out 1"]
    assert errors == "[default0]:err 0\n"
    found = {p.relative_to(next(logs.iterdir())).as_posix(): p.read_text() for p in logs.rglob("*.log")}
    assert found == {
        "attempt_0/0/stdout.log": "out 0\n", "attempt_0/0/stderr.log": "err 0\n",
        "attempt_0/1/stdout.log": "out 1\n", "attempt_0/1/stderr.log": "err 1\n",
    }  # fmt: skip


@pytest.mark.together
def test_output_of_some_ranks(tmp_path):
    path = program(tmp_path, "import os; print('out', os.environ['RANK'])")
    code, output, errors = job(
        "--standalone", "--nproc-per-node", 2, "--local-ranks-filter", 1, "--no-python", sys.executable, path
    )
    assert (code, output) == (0, "out 1\n"), errors


@needs_mpi
@pytest.mark.together
def test_the_traceback_of_the_rank_that_failed_first_comes_last(tmp_path):
    path = program(
        tmp_path, SUM.replace("assert", "if dist.get_rank() == 1: raise KeyError('bad luck')\ndist.barrier()\nassert")
    )
    code, _, errors = job("--standalone", "--nproc-per-node", 2, path)
    assert code == 1
    summary = errors[errors.rindex("Root Cause (first observed failure):") :]
    assert re.search(r"rank      : 1 \(local_rank: 1\)\n  exitcode  : 1 \(pid: \d+\)", summary), errors
    assert "KeyError: 'bad luck'" in summary.splitlines()[-2] and "program.py" in summary
    assert "[rank1]: KeyError: 'bad luck'" in errors and "runpy" not in errors


@pytest.mark.together
@pytest.mark.parametrize(("text", "told"), [
    ("import os; os.kill(os.getpid(), 9)", "exitcode  : -9 (pid: {}) (SIGKILL)"),
    ("raise SystemExit(3)", "exitcode  : 3 (pid: {})"),
])  # fmt: skip
def test_ends_without_an_exception(tmp_path, text, told):
    code, _, errors = job("--standalone", program(tmp_path, text))
    assert code == 1 and re.search(re.escape(told).replace(r"\{\}", r"\d+"), errors), errors


@pytest.mark.parametrize(("options", "told"), [
    (["--nnodes", "x", "a.py"], 'nnodes=x is not in "MIN:MAX" format'),
    (["--nproc-per-node", "many", "a.py"], "Unsupported nproc_per_node value: many"),
    (["--nproc-per-node", "0", "a.py"], "nproc_per_node must be at least 1, got 0"),
    (["--nnodes", "1:2", "a.py"], "the static rendezvous needs a fixed number of nodes"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "x:1", "a.py"], "backend 'etcd' is not included"),
    (["--rdzv-conf", "x", "a.py"], "--rdzv-conf: expected key=value, got 'x'"),
    (["--numa-binding", "node", "a.py"], "--numa-binding is not included"),
])  # fmt: skip
def test_bad_options_cost_one_line(options, told, capsys):
    with pytest.raises(SystemExit) as ended:
        run.main(options)
    assert told in str(ended.value) and "\n" not in str(ended.value)


def test_a_port_in_use_costs_one_line():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port} of 127.0.0.1 is in use") as ended:
            run.main(["--master-port", str(port), "a.py"])
    assert "\n" not in str(ended.value)


@needs_mpi
@needs_mpiexec
@pytest.mark.together
def test_under_mpiexec_each_process_may_be_an_agent(tmp_path):
    """What mpiexec tells its own processes must not reach the ranks of an agent."""
    command = [MPIEXEC, "-n", "1", sys.executable, "-m", "tensorgrad.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(program(tmp_path, SUM))]
    code, _, errors = finished(start_command(command, env=environment()))
    assert code == 0, errors
