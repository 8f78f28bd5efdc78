"""`torch.distributed.elastic` as a library, beside PyTorch's: events, metrics, timers, processes, rendezvous."""

import json
import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest

from tensorgrad.distributed.elastic import events, timer
from tensorgrad.distributed.elastic.events import handlers
from tensorgrad.distributed.elastic.multiprocessing import LogsSpecs, Std, start_processes
from tensorgrad.distributed.launcher import LaunchConfig, elastic_launch
from tests.distributed.jobs import eventually
from tests.distributed.launch import HANG

posix = pytest.mark.skipif(os.name != "posix", reason="kills processes by POSIX signals")


def both(name):
    """The module of this name of both libraries."""
    pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    return [import_module(f"{library}.distributed.elastic.{name}") for library in ("tensorgrad", "torch")]


def outcome(function):
    try:
        return str(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_events_are_those_of_pytorch():
    results = []
    for module in both("events"):
        event = module.Event("begin", module.EventSource.AGENT, 7, {"a": 1, "b": None})
        more = module.RdzvEvent("join", "job", "text", "host", 3, module.NodeState.FAILED, rank=2)
        results.append([str(event), event.serialize(), str(more), module.Event.deserialize(str(event)) == event,
                 module.RdzvEvent.deserialize(str(more)) == more, module.Event.deserialize(event) is event,
                 outcome(lambda m=module: m.get_logging_handler("none"))])  # fmt: skip
    assert results[0] == results[1]


def test_metrics_are_those_of_pytorch(capsys):
    printed = []
    for module in both("metrics"):

        class Handler(module.MetricHandler):
            def emit(self, data, kept=[]):  # noqa: B006
                printed[-1].append([data.group_name, data.name, data.value if "ms" not in data.name else "time"])

        printed.append([])
        module.configure(Handler(), "mine")

        @module.prof(group="mine")
        def work(x):
            return 1 / x

        assert work(1) == 1
        with pytest.raises(ZeroDivisionError):
            work(0)
        module.put_metric("steps", 3, "mine")
        module.put_metric("nowhere", 3)
        with pytest.warns(FutureWarning):
            module.publish_metric("mine", "old", 1)
        with pytest.warns(FutureWarning):
            assert module.profile("mine")(abs)(-1) == 1
        module.configure(module.ConsoleMetricHandler(), "console")
        module.put_metric("loss", 0.5, "console")
    lines = [line.partition("][")[2] for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == printed[1] and len(printed[0]) == 8
    assert lines == ["console]: loss=0.5"] * 2


def test_names_of_handlers_and_their_errors_are_those_of_pytorch():
    found = []
    for module in both("rendezvous"):
        make, registry = module.RendezvousParameters, module.RendezvousHandlerRegistry()
        given = make("static", "127.0.0.1:29500", "job", 1, 1, rank=0, a="yes", b=0, c="x", d="7")

        class Other(module.RendezvousHandler):
            get_backend = next_rendezvous = is_closed = set_closed = num_nodes_waiting = shutdown = lambda self: "other"
            get_run_id = get_backend

        registry.register("mine", Other)
        registry.register("other", abs)
        found.append([
            outcome(lambda: make("", "h", "j", 1, 1)), outcome(lambda: make("b", "h", "j", 0, 1)),
            outcome(lambda: make("b", "h", "j", 2, 1)), given.get("d"), given.get_as_bool("a"), given.get_as_bool("b"),
            outcome(lambda: given.get_as_bool("c")), given.get_as_int("d"), outcome(lambda: given.get_as_int("c")),
            given.get_as_int("none", 4), outcome(lambda: registry.create_handler(given)),
            outcome(lambda: registry.create_handler(make("mine", "h", "j", 1, 1))),
            outcome(lambda: registry.register("", abs)), outcome(lambda: registry.register("other", abs)),
            outcome(lambda: registry.register("other", len)).partition("<")[0],
            module.rendezvous_handler_registry.create_handler(given).get_run_id(),
        ])  # fmt: skip
    assert found[0] == found[1]


def test_a_static_rendezvous(port):
    from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry

    endpoint, found, done = f"127.0.0.1:{port}", {}, threading.Barrier(2)

    def machine(rank):
        parameters = RendezvousParameters("static", endpoint, "job", 2, 2, rank=rank, timeout=HANG)
        handler = rendezvous_handler_registry.create_handler(parameters)
        info = handler.next_rendezvous()
        info.store.set(f"from {rank}", str(rank))
        found[rank] = info.store.get(f"from {1 - rank}"), info.rank, info.world_size, info.bootstrap_store_info
        done.wait(HANG)  # rank 0 has the store

    threads = [threading.Thread(target=machine, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert [found[rank][:3] for rank in range(2)] == [(b"1", 0, 2), (b"0", 1, 2)]
    assert found[0][3] == found[1][3]
    with pytest.raises(NotImplementedError, match="use 'c10d'"):
        rendezvous_handler_registry.create_handler(RendezvousParameters("etcd", endpoint, "job", 1, 1))


def slow(requests, after, seconds):
    timer.configure(timer.LocalTimerClient(requests))
    with timer.expires(after=HANG):
        pass
    with timer.expires(after=after, scope="block"):
        time.sleep(seconds)


@posix
def test_a_process_that_takes_too_long_is_killed():
    context = multiprocessing.get_context("spawn")
    requests = context.Queue()
    server = timer.LocalTimerServer(requests, max_interval=0.05)
    server.start()
    cases = ((0.2, HANG), (HANG, 0))
    processes = [context.Process(target=slow, args=(requests, *case), daemon=True) for case in cases]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANG)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0]
    assert eventually(lambda: not server._timers)
    server.stop()


def test_when_timers_run_out(monkeypatch):
    """By the server's clock: of each process all blocks count, and one that has ended in time does not."""
    requests, ended, now = queue.Queue(), [], [1000.0]
    requests.qsize = lambda: 10  # as of a queue of processes; all are taken at once
    server = timer.LocalTimerServer(requests, max_interval=0, now=lambda: now[0])
    monkeypatch.setattr(server, "_reap_worker", lambda worker: ended.append(worker) or True)

    def expired(moment):
        now[0] = moment
        server._run_watchdog()
        return [ended.pop(0) for _ in range(len(ended))]

    for worker, scope, end in ((1, "a", 1010), (1, "b", 1005), (2, "a", 1020), (3, "a", 1030), (3, "b", 1007)):
        requests.put(timer.TimerRequest(worker, scope, end))
    assert expired(1004) == []
    requests.put(timer.TimerRequest(3, "b", -1))  # in time
    requests.put(timer.TimerRequest(2, "a", 1040))  # begun again
    assert expired(1008) == [1]
    assert expired(1029) == [] and expired(1035) == [3] and expired(1040) == [2] and server._timers == {}


def test_timers_need_a_client():
    from tensorgrad.distributed.elastic.timer import api

    with pytest.raises(NotImplementedError, match="use LocalTimerClient"):
        timer.FileTimerServer("path", "job")

    class Client(timer.TimerClient):
        requests = []  # noqa: RUF012

        def acquire(self, scope_id, expiration_time):
            self.requests.append(scope_id)

        def release(self, scope_id):
            self.requests.append(f"end {scope_id}")

    api._CLIENT.clear()
    with pytest.raises(RuntimeError, match="Configure timer client"), timer.expires(1):
        pass
    with timer.expires(1, client=Client()):
        pass
    [begin, end] = Client.requests
    assert begin.partition("#")[0] == __file__ and end == f"end {begin}"


def divide(x):
    print("dividing", os.environ["WHICH"], flush=True)
    return 6 // x


def test_processes(tmp_path):
    specs = LogsSpecs(log_dir=str(tmp_path), redirects=Std.OUT)
    ranks = start_processes("job", divide, {0: (1,), 1: (2,)}, {0: {"WHICH": "a"}, 1: {"WHICH": "b"}}, specs)
    assert set(ranks.pids()) == {0, 1}
    result = ranks.wait(HANG, period=0.02)
    assert not result.is_failed() and result.return_values == {0: 6, 1: 3}
    assert [Path(result.stdouts[rank]).read_text() for rank in range(2)] == ["dividing a\n", "dividing b\n"]
    ranks = start_processes("job", divide, {0: (0,)}, {0: {"WHICH": "a"}}, specs)
    result = ranks.wait(HANG, period=0.02)
    assert result.is_failed() and "ZeroDivisionError" in result.failures[0].message
    ranks = start_processes("job", sys.executable, {0: ("-c", "import time; time.sleep(600)")}, {0: {}}, LogsSpecs())
    assert ranks.wait(0) is None
    ranks.close()
    assert ranks.wait(1).is_failed()
    with pytest.raises(RuntimeError, match="envs, local rank mapping mismatch"):
        start_processes("job", abs, {0: (1,)}, {1: {}}, LogsSpecs())
    with pytest.raises(ValueError, match="numa_options is not included"):
        start_processes("job", abs, {0: (1,)}, {0: {}}, LogsSpecs(), numa_options=1)


def test_the_agent_records_events():
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(events.Event.deserialize(record.getMessage()))

    handlers._log_handlers["kept"] = Handler()
    config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", monitor_interval=0.01,
                          max_restarts=1, event_log_handler="kept")  # fmt: skip
    assert elastic_launch(config, abs)(-3) == {0: 3, 1: 3}
    with pytest.raises(Exception, match="ZeroDivisionError"):
        elastic_launch(config, divmod)(1, 0)
    states = [event.metadata["state"] for event in lines]
    assert states == ["RUNNING", "SUCCEEDED", "RUNNING", "RUNNING", "FAILED"]
    assert json.loads(str(lines[0]))["source"] == "AGENT" and lines[3].metadata["agent_restarts"] == 1
