"""Agents that programs make by themselves, beside PyTorch's: what processes are told, restarts, late machines."""

import json
import logging
import os
import signal
import sys
import threading
from importlib import import_module

import pytest

from tensorgrad.distributed.elastic.agent.server import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
from tensorgrad.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from tensorgrad.distributed.elastic.multiprocessing import LogsSpecs
from tensorgrad.distributed.elastic.rendezvous import RendezvousTimeoutError
from tests.distributed import agents
from tests.distributed.jobs import eventually
from tests.distributed.launch import HANG, HERE
from tests.distributed.virtual_time import Machines

LIBRARIES = ("tensorgrad", "torch")
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT


@pytest.fixture(autouse=True)
def signals_as_before():
    """PyTorch's agent leaves its handlers of signals behind."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def agent_of(library, entrypoint, args, processes=2, nodes=(1, 1), port=0, **more):
    """An agent of one of the libraries, and its handler."""
    pytest.importorskip(library, reason="torch is not installed: nothing to compare with")
    package = f"{library}.distributed.elastic"
    meeting, registry = import_module(f"{package}.rendezvous"), import_module(f"{package}.rendezvous.registry")
    parameters = meeting.RendezvousParameters(
        "c10d", f"127.0.0.1:{port}", "job", *nodes, local_addr="127.0.0.1", last_call_timeout=1
    )
    handler = registry.get_rendezvous_handler(parameters)
    server, local = (import_module(f"{package}.agent.server{name}") for name in ("", ".local_elastic_agent"))
    spec = server.WorkerSpec(
        "trainer", processes, handler, entrypoint=entrypoint, args=args, monitor_interval=0.02, **more
    )
    specs = import_module(f"{package}.multiprocessing").DefaultLogsSpecs()
    return local.LocalElasticAgent(spec, specs, exit_barrier_timeout=HANG), handler


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


@pytest.mark.parametrize(("times", "restarts"), [(1, 2), (2, 1)])
def test_restarts_are_those_of_pytorch(times, restarts):
    found = []
    for library in LIBRARIES:
        program = "-S", HERE / "agents.py", times
        agent, handler = agent_of(library, sys.executable, program, max_restarts=restarts, event_log_handler="told")
        result, events = events_of(library, agent.run)
        # PyTorch counts programs that the agent itself has ended as failures, too, but not functions.
        failures = [(rank, f.exitcode, f.local_rank) for rank, f in result.failures.items() if f.exitcode > 0]
        events = [event for event in events if event[-1].get("exit_code") != [-15]]
        events = [event for event in events if "TERMINATED" not in event[0]]
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
        run.join(HANG)
        assert not run.is_alive(), "the job does not end"
    for run in runs:
        run.handler.shutdown()
    assert [failure.message for run in runs for failure in run.result.failures.values()] == []
    return {rank: value for run in runs for rank, value in run.result.return_values.items()}


@pytest.mark.slow
def test_two_machines_of_which_one_fails(tmp_path, port):
    args = str(tmp_path), 2, 1
    made = [agent_of("tensorgrad", agents.together, args, 1, (2, 2), port) for _ in range(2)]
    assert values(*map(Run, made)) == {0: 2.0, 1: 2.0}
    assert min(agent._remaining_restarts for agent, _ in made) == 2 and (tmp_path / "failed").exists()


def test_machines_with_different_numbers_of_processes(port):
    made = [agent_of("tensorgrad", agents.variables, ("", 0), number, (2, 2), port) for number in (1, 2)]
    told = {rank: given for rank, (given, *_) in values(*map(Run, made)).items()}
    for rank, given in told.items():
        assert (given["RANK"], given["WORLD_SIZE"], given["ROLE_RANK"]) == (str(rank), "3", str(rank))
    machines = [(int(given["GROUP_RANK"]), int(given["LOCAL_RANK"])) for _, given in sorted(told.items())]
    assert machines in ([(0, 0), (1, 0), (1, 1)], [(0, 0), (0, 1), (1, 0)])


def test_a_machine_that_comes_late(tmp_path, port):
    given = "tensorgrad", agents.together, (str(tmp_path), 2), 1, (1, 2), port
    first = Run(agent_of(*given, max_restarts=0))
    assert eventually(lambda: list(tmp_path.glob("1 *")))
    assert values(first, Run(agent_of(*given, max_restarts=0))) == {0: 2.0, 1: 2.0}


# --- by a clock that only the test moves -----------------------------------------------------------------------------


class Played(SimpleElasticAgent):
    """An agent whose processes are played: `how(agent, seconds since they began)` says how they are."""

    def __init__(self, machines, how, processes=1, role="trainer", exit_barrier_timeout=300, **more):
        spec = WorkerSpec(role, processes, machines.handler(), entrypoint=abs, monitor_interval=0.1, **more)
        super().__init__(spec, exit_barrier_timeout, clock=machines.clock)
        self.machines, self.how, self.running, self.groups, self.result = machines, how, False, [], None

    def _start_workers(self, group):
        assert not self.running
        self.running, self.began = True, self.machines.time
        ranks = [(worker.global_rank, worker.role_rank, worker.role_world_size) for worker in group.workers]
        self.groups.append((group.group_rank, group.group_world_size, ranks))
        return {local: local for local in range(len(ranks))}

    def _monitor_workers(self, group):
        assert self.running
        handler = group.spec.rdzv_handler
        handler._change(handler._beat)  # its thread waits by the machine's clock
        return RunResult(self.how(self, self.machines.time - self.began))

    def _stop_workers(self, group):
        self.running = False

    def _shutdown(self, death_sig=signal.SIGTERM, timeout=30):
        self.running = False

    def __call__(self):
        self.result = self.run()
        self.ended = self.machines.time
        return self.result.state


HEALTHY, SUCCEEDED, FAILED = WorkerState.HEALTHY, WorkerState.SUCCEEDED, WorkerState.FAILED


def works(seconds):
    return lambda agent, time: SUCCEEDED if time >= seconds else HEALTHY


def fails(times, after, seconds):
    """Its processes fail some times, and then work."""
    return lambda agent, time: (
        (FAILED if time >= after else HEALTHY) if len(agent.groups) <= times else works(seconds)(agent, time)
    )


@pytest.mark.parametrize(("times", "restarts"), [(0, 0), (1, 0), (1, 1), (3, 3), (4, 3)])
def test_processes_are_started_again_until_no_restarts_are_left(times, restarts):
    machines = Machines(1, 1, last_call_timeout=1)
    agent = Played(machines, fails(times, 50, 100), max_restarts=restarts)
    enough = times <= restarts
    assert machines.run(agent) == [SUCCEEDED if enough else FAILED]
    assert len(agent.groups) == min(times, restarts) + 1 and agent._remaining_restarts == max(0, restarts - times)
    assert agent._total_execution_time == pytest.approx(50 * min(times, restarts + 1) + 100 * enough, abs=5)
    assert not agent.running


def test_a_machine_that_fails_restarts_all_and_pays_alone():
    machines = Machines(3, 3)
    failing, *others = (Played(machines, how, max_restarts=2) for how in (fails(1, 50, 100), works(100), works(100)))
    assert machines.run(failing, *others) == [SUCCEEDED] * 3
    for agent in (failing, *others):
        assert [size for _, size, _ in agent.groups] == [3, 3] and agent.ended == pytest.approx(150, abs=3)
    assert [agent._remaining_restarts for agent in (failing, *others)] == [1, 2, 2]


def test_a_machine_that_gives_up_leaves_the_others_waiting_for_another():
    machines = Machines(2, 2, join_timeout=600)
    gives_up, other = Played(machines, fails(1, 50, 100), max_restarts=0), Played(machines, works(100))
    third = Played(machines, works(100))

    def follows(agent, time):  # its processes fail when those of the other have gone
        return works(100)(agent, time) if gives_up.result is None or len(agent.groups) > 1 else FAILED

    other.how = follows

    def comes_later():
        machines.sleep(300)
        return third()

    assert machines.run(gives_up, other, comes_later) == [FAILED, SUCCEEDED, SUCCEEDED]
    assert [size for _, size, _ in other.groups] == [2, 2] and len(third.groups) == 1 and third.ended > 400


@pytest.mark.parametrize("comes", [5, 12, 80])
def test_late_machines_cost_no_restart(comes):
    machines = Machines(1, 3, last_call_timeout=10)
    first, second, third = (Played(machines, works(100), max_restarts=0) for _ in range(3))

    def late(agent):
        machines.sleep(comes)
        return agent()

    assert machines.run(first, lambda: late(second), lambda: late(third)) == [SUCCEEDED] * 3
    for agent in (first, second, third):
        assert agent.groups[-1][1] == 3 and agent.ended >= comes + 100
    assert len(first.groups) == 1 if comes == 5 else len(first.groups) > 1


def test_ranks_follow_from_roles_and_numbers_of_processes():
    machines = Machines(3, 3)
    given = (1, "trainer"), (2, "reader"), (3, "trainer")
    agents_ = [Played(machines, works(1), processes, role) for processes, role in given]
    assert machines.run(*agents_) == [SUCCEEDED] * 3
    found = sorted((agent.groups[0][0], spec, agent.groups[0][2]) for agent, spec in zip(agents_, given))
    first, told = 0, {"trainer": 0, "reader": 0}
    for _, (processes, role), ranks in found:
        size = {"trainer": 4, "reader": 2}[role]
        assert ranks == [(first + i, told[role] + i, size) for i in range(processes)]
        first, told[role] = first + processes, told[role] + processes


@pytest.mark.parametrize(("patience", "ends"), [(300, 200), (50, 150)])
def test_machines_that_are_ready_wait_for_the_others(patience, ends):
    """What a machine serves may still be needed; but not for ever."""
    machines = Machines(2, 2)
    quick = Played(machines, works(100), exit_barrier_timeout=patience)
    slow = Played(machines, works(200), exit_barrier_timeout=patience)
    assert machines.run(quick, slow) == [SUCCEEDED, SUCCEEDED]
    assert quick.ended == pytest.approx(ends, abs=2) and slow.ended >= 200


def test_a_machine_that_nobody_joins():
    machines = Machines(2, 2, join_timeout=600)
    [error] = machines.run(Played(machines, works(1)))
    assert isinstance(error, RendezvousTimeoutError) and 600 <= machines.time < 601


# --- parts -----------------------------------------------------------------------------------------------------------


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
