"""`torch.profiler`: what is counted, how it nests, which steps, tables and traces."""

import gzip
import json
import threading

import pytest

import tensorgrad as tg
from tensorgrad.autograd import profiler as legacy
from tensorgrad.ops import callpath, slowpath
from tensorgrad.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler
from tests.conftest import HAS_TORCH


def recorded():
    """A profile of a forward and a backward pass."""
    x, layer = tg.ones(2, 3), tg.nn.Linear(3, 4)
    with profile(record_shapes=True, profile_memory=True) as prof:
        with record_function("forward"):
            y = layer(x).relu().sum()
        y.backward()
    return prof


def test_ops_nodes_and_regions_are_counted():
    prof = recorded()
    names = [event.name for event in prof.events()]
    assert names[:4] == ["forward", "linear", "relu", "sum"] and {"SumBackward0", "ReluBackward0"} <= set(names)
    forward = prof.events()[0]
    assert [child.name for child in forward.cpu_children] == ["linear", "relu", "sum"]
    assert forward.cpu_children[0].cpu_parent is forward and forward.is_user_annotation
    assert forward.cpu_children[0].input_shapes == [[2, 3], [4, 3], [4]]
    assert forward.cpu_time_total > sum(child.cpu_time_total for child in forward.cpu_children) > 0
    assert forward.cpu_memory_usage == (8 + 8 + 1) * 4 and forward.self_cpu_memory_usage == 0
    nested = forward.self_cpu_time_total + sum(child.cpu_time_total for child in forward.cpu_children)
    assert nested == pytest.approx(forward.cpu_time_total)


def test_outside_of_a_profile_nothing_is_slower():
    before = callpath.RARE, list(slowpath.OBSERVERS)
    recorded()
    assert before == (callpath.RARE, slowpath.OBSERVERS)
    with pytest.raises(ZeroDivisionError), profile():
        1 / 0
    assert before == (callpath.RARE, slowpath.OBSERVERS)


def test_averages():
    x, y = tg.ones(2), tg.ones(3)
    with profile(record_shapes=True) as prof:
        for tensor in (x, x, y):
            tensor.exp()
    (average,) = prof.key_averages()
    assert average.key == "exp" and average.count == 3
    assert average.cpu_time == average.cpu_time_total / 3 == average.self_cpu_time_total / 3
    assert [(a.count, a.input_shapes) for a in prof.key_averages(group_by_input_shape=True)] == [(2, [[2]]), (1, [[3]])]
    assert prof.key_averages().total_average().count == 3
    with pytest.raises(RuntimeError, match="didn't finish"):
        profile().events()


def test_table():
    prof = recorded()
    averages = prof.key_averages()
    lines = averages.table(sort_by="self_cpu_time_total", row_limit=3, header="Title", time_unit="ms").splitlines()
    assert lines[1] == "Title" and lines[3].split()[0] == "Name" and "Self CPU Mem" in lines[3]
    assert len(lines) == 10 and lines[-1].startswith("Self CPU time total:")
    slowest = max(averages, key=lambda a: a.self_cpu_time_total)
    assert lines[5].split()[0] == slowest.key and "ms" in lines[5] and "us" not in lines[5]
    assert "Input Shapes" in prof.key_averages(group_by_input_shape=True).table()
    assert averages.table(max_name_column_width=6).splitlines()[3].split()[0].endswith("...")
    with pytest.raises(AttributeError):
        averages.table(sort_by="nonsense")


@pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")
def test_the_same_columns_as_torch():
    import torch

    def titles(lib):
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU]) as prof:
            lib.ones(3).exp()
        return prof.key_averages().table(sort_by="cpu_time_total", row_limit=5).splitlines()[1].split("  ")

    assert [t.strip() for t in titles(tg) if t.strip()] == [t.strip() for t in titles(torch) if t.strip()]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")
@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 0, "active": 1, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 1, "repeat": 1, "skip_first": 3},
        {"wait": 2, "warmup": 1, "active": 2, "skip_first": 1, "skip_first_wait": 1},
    ],
)
def test_schedules_are_those_of_torch(options):
    import torch

    ours, theirs = schedule(**options), torch.profiler.schedule(**options)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]


def test_chosen_steps():
    traces = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda prof: traces.append((prof.step_num, [event.name for event in prof.events()])),
    ) as prof:
        for _ in range(10):
            tg.ones(2).exp()
            prof.step()
    steps = [[f"ProfilerStep#{i}", "exp", f"ProfilerStep#{i + 1}", "exp"] for i in (2, 6)]
    assert traces == [(4, steps[0]), (8, steps[1])] and prof.action is ProfilerAction.NONE
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=0, warmup=0, active=0)


def test_traces(tmp_path):
    prof = recorded()
    prof.add_metadata("note", "text")
    prof.add_metadata_json("numbers", "[1, 2]")
    for name, opened in (("trace.json", open), ("trace.json.gz", gzip.open)):
        prof.export_chrome_trace(tmp_path / name)
        with opened(tmp_path / name, "rt") as file:
            trace = json.load(file)
        spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        assert trace["note"] == "text" and trace["numbers"] == [1, 2] and len(spans) == len(prof.events())
        assert {e["cat"] for e in spans} == {"cpu_op", "user_annotation", "backward"}
        assert all(e["dur"] > 0 and e["ts"] >= 0 for e in spans)
        assert spans[1]["args"]["Input Dims"] == [[2, 3], [4, 3], [4]]
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "new"), "worker", use_gzip=True)):
        tg.ones(1).exp()
    assert [p.name.startswith("worker.") and p.suffix for p in (tmp_path / "new").iterdir()] == [".gz"]


def test_threads_are_told_apart():
    with profile() as prof:
        thread = threading.Thread(target=lambda: tg.ones(2).exp())
        with record_function("here"):
            thread.start()
            thread.join()
    here, there = sorted(prof.events(), key=lambda event: event.name != "here")
    assert here.cpu_children == [] and here.thread != there.thread


def test_regions_as_decorators_and_inside_themselves():
    @record_function("f")
    def f(n):
        return f(n - 1) if n else tg.ones(1).exp()

    with legacy.profile() as prof:
        f(2)
    assert [e.name for e in prof.function_events] == ["f", "f", "f", "exp"]
    outer, middle, inner, _ = prof.function_events
    assert outer.cpu_children == [middle] and middle.cpu_children == [inner]


def test_the_older_profile():
    with legacy.profile(record_shapes=True) as prof:
        assert str(prof).startswith("<")
        tg.ones(2).exp()
    assert prof.self_cpu_time_total > 0 and "exp" in prof.table() and "exp" in str(prof)
    assert prof.key_averages()[0].count == prof.total_average().count == 1
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    with legacy.profile(enabled=False) as prof:
        assert prof is None
    with legacy.emit_nvtx(enabled=False):
        pass
    with pytest.raises(NotImplementedError, match="emit_itt"), legacy.emit_itt():
        pass
