"""Agents that programs make by themselves, beside PyTorch's: what processes are told, restarts, late machines."""

import json
import logging
import os
import signal
import threading
import time
from importlib import import_module

import pytest

from tensorgrad.distributed.elastic.agent.server import WorkerSpec, WorkerState
from tensorgrad.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from tensorgrad.distributed.elastic.multiprocessing import LogsSpecs
from tests.distributed import agents
from tests.distributed.launch import free_port

LIBRARIES = ("tensorgrad", "torch")
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT


@pytest.fixture(autouse=True)
def signals_as_before():
    """PyTorch's agent leaves its handlers of signals behind."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def agent_of(library, entrypoint, args, processes=2, nodes=(1, 1), endpoint=None, **more):
    """An agent of one of the libraries, and its handler."""
    pytest.importorskip(library, reason="torch is not installed: nothing to compare with")
    package = f"{library}.distributed.elastic"
    meeting, registry = import_module(f"{package}.rendezvous"), import_module(f"{package}.rendezvous.registry")
    parameters = meeting.RendezvousParameters(
        "c10d", endpoint or f"127.0.0.1:{free_port()}", "job", *nodes, local_addr="127.0.0.1", last_call_timeout=1
    )
    handler = registry.get_rendezvous_handler(parameters)
    server, local = (import_module(f"{package}.agent.server{name}") for name in ("", ".local_elastic_agent"))
    spec = server.WorkerSpec(
        "trainer", processes, handler, entrypoint=entrypoint, args=args, monitor_interval=0.02, **more
    )
    specs = import_module(f"{package}.multiprocessing").DefaultLogsSpecs()
    return local.LocalElasticAgent(spec, specs, exit_barrier_timeout=20), handler


def events_of(library, run):
    """What `run` records."""
    lines, handlers = [], import_module(f"{library}.distributed.elastic.events.handlers")

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(record.getMessage()))

    handlers._log_handlers["told"] = Handler()
    logging.getLogger("torchelastic-events-told").handlers.clear()
    if library == "torch":
        import_module("torch.distributed.elastic.events")._events_loggers.pop("told", None)
    result = run()
    kept = ("run_id", "global_rank", "group_rank", "role", "state", "rdzv_backend", "agent_restarts")
    found = []
    for line in lines:
        if "metadata" in line and line["metadata"].get("state"):
            about = json.loads(line["metadata"]["metadata"])
            about.pop("worker_pid", None)
            found.append((line["name"], line["source"], *(line["metadata"][name] for name in kept), about))
    return result, found


def test_what_processes_are_told_and_what_is_recorded_is_that_of_pytorch():
    found = []
    for library in LIBRARIES:
        args = ("rank ${local_rank}", "7")
        agent, handler = agent_of(library, agents.variables, args, event_log_handler="told")
        result, events = events_of(library, agent.run)
        assert not result.is_failed() and agent.get_worker_group().state.value == "SUCCEEDED"
        found.append((result.return_values, events))
        assert handler.shutdown()
    assert found[0] == found[1]
    assert found[0][0][1][1:] == ("rank 1", "7") and [event[0].rpartition(".")[2] for event in found[0][1]] == [
        "RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "SUCCEEDED", "SUCCEEDED",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("times", "restarts"), [(1, 2), (2, 1)])
def test_restarts_are_those_of_pytorch(times, restarts, tmp_path):
    found = []
    for library in LIBRARIES:
        folder = tmp_path / library
        folder.mkdir()
        agent, handler = agent_of(
            library, agents.fails, (str(folder), times), max_restarts=restarts, event_log_handler="told"
        )
        result, events = events_of(library, agent.run)
        failures = [(rank, failure.exitcode, failure.local_rank) for rank, failure in result.failures.items()]
        found.append((result.state.value, result.return_values, failures, agent._remaining_restarts, events))
        handler.shutdown()
    assert found[0] == found[1]
    assert found[0][0] == ("SUCCEEDED" if times <= restarts else "FAILED")


class Run(threading.Thread):
    """An agent that runs."""

    def __init__(self, made):
        super().__init__(daemon=True)
        (self.agent, self.handler), self.result = made, None
        self.start()

    def run(self):
        self.result = self.agent.run()


def values(*runs):
    """What the processes of all agents returned."""
    for run in runs:
        run.join(60)
        assert not run.is_alive()
    for run in runs:
        run.handler.shutdown()
    assert [failure.message for run in runs for failure in run.result.failures.values()] == []
    return {rank: value for run in runs for rank, value in run.result.return_values.items()}


@pytest.mark.slow
def test_two_machines_of_which_one_fails(tmp_path):
    endpoint, args = f"127.0.0.1:{free_port()}", (str(tmp_path), 2, 1)
    made = [agent_of("tensorgrad", agents.together, args, 1, (2, 2), endpoint) for _ in range(2)]
    assert values(*map(Run, made)) == {0: 2.0, 1: 2.0}
    assert min(agent._remaining_restarts for agent, _ in made) == 2 and (tmp_path / "failed").exists()


def test_machines_with_different_numbers_of_processes():
    endpoint = f"127.0.0.1:{free_port()}"
    made = [agent_of("tensorgrad", agents.variables, ("", 0), number, (2, 2), endpoint) for number in (1, 2)]
    told = {rank: given for rank, (given, *_) in values(*map(Run, made)).items()}
    for rank, given in told.items():
        assert (given["RANK"], given["WORLD_SIZE"], given["ROLE_RANK"]) == (str(rank), "3", str(rank))
    machines = [(int(given["GROUP_RANK"]), int(given["LOCAL_RANK"])) for _, given in sorted(told.items())]
    assert machines in ([(0, 0), (1, 0), (1, 1)], [(0, 0), (0, 1), (1, 0)])


def test_a_machine_that_comes_late(tmp_path):
    endpoint = f"127.0.0.1:{free_port()}"
    given = "tensorgrad", agents.together, (str(tmp_path), 2), 1, (1, 2), endpoint
    first, end = Run(agent_of(*given, max_restarts=0)), time.monotonic() + 60
    while not list(tmp_path.glob("1 *")) and time.monotonic() < end:
        time.sleep(0.05)
    assert values(first, Run(agent_of(*given, max_restarts=0))) == {0: 2.0, 1: 2.0}


def test_specifications(monkeypatch):
    _, handler = agent_of("tensorgrad", abs, (-1,))
    with pytest.raises(AssertionError, match="entrypoint"):
        WorkerSpec("trainer", 1, handler)
    with pytest.raises(AssertionError, match="local_world_size"):
        WorkerSpec("trainer", 0, handler, entrypoint=abs)
    with pytest.warns(DeprecationWarning, match="entrypoint"):
        assert WorkerSpec("trainer", 1, handler, fn=abs).get_entrypoint_name() == "abs"
    with pytest.raises(ValueError, match="virtual_local_rank is not included"):
        WorkerSpec("trainer", 1, handler, entrypoint=abs, virtual_local_rank=True)
    spec = WorkerSpec("trainer", 1, handler, entrypoint="/bin/echo", args=("a",), monitor_interval=0.01)
    assert spec.get_entrypoint_name() == "echo"
    with pytest.raises(ValueError, match="health_check_server is not included"):
        LocalElasticAgent(spec, LogsSpecs(), health_check_server=1)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="use a timer"):
        patch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
        LocalElasticAgent(spec, LogsSpecs())
    if os.path.exists("/bin/echo"):
        assert LocalElasticAgent(spec, LogsSpecs()).run().state == WorkerState.SUCCEEDED
    handler.shutdown()
