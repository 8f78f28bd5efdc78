"""`torch.profiler`: what is counted, how it nests, which steps, tables and traces."""

import gzip
import json
import threading

import pytest

import tensorgrad as tg
from tensorgrad.autograd import profiler as legacy
from tensorgrad.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler
from tensorgrad.rows import switches
from tests.conftest import HAS_TORCH
from tests.support.alike import alike


def recorded():
    """Returns a profile of a forward and a backward pass."""
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
    before = list(switches.SLOW), list(switches.OBSERVERS)
    recorded()
    assert before == (switches.SLOW, switches.OBSERVERS)
    with pytest.raises(ZeroDivisionError), profile():
        1 / 0
    assert before == (switches.SLOW, switches.OBSERVERS)


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
    assert [(a.key, a.count) for a in prof.key_averages().key_averages()] == [("exp", 3)]
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
@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
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


def test_a_cold_start_warns():
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=1, warmup=0, active=1)


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


def model_and_input(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Linear(6, 5), lib.nn.ReLU(), lib.nn.Linear(5, 4)), lib.ones(3, 6)


def of_everything():
    """Returns a profile that records everything."""
    model, x = model_and_input(tg)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True) as prof:
        model(x).sum().backward()
    return prof


def titles(table):
    return [title.strip() for title in table.splitlines()[1].split("  ") if title.strip()]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")
@pytest.mark.parametrize("option", ["", "record_shapes", "profile_memory", "with_flops"])
def test_tables_are_laid_out_as_those_of_torch(option):
    """The columns are the same, and events with the same names have the same lines except for the numbers."""
    import torch

    tables = []
    for lib in (tg, torch):
        model, x = model_and_input(lib)
        with lib.profiler.profile(
            activities=[lib.profiler.ProfilerActivity.CPU], **({option: True} if option else {})
        ) as prof:
            model(x).sum().backward()
        tables.append(prof.key_averages(group_by_input_shape=option == "record_shapes").table())
    assert titles(tables[0]) == [t.replace("KFLOPs", "FLOPs") for t in titles(tables[1])]
    assert tables[0].splitlines()[-1].startswith("Self CPU time total: ")


@pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"header": "What ran"},
        {"row_limit": 1},
        {"top_level_events_only": True},
        {"max_name_column_width": 12},
        {"max_name_column_width": None},
        {"time_unit": "us"},
        {"time_unit": "s"},
    ],
)
def test_lines_of_a_table_are_as_wide_as_those_of_torch(options):
    import re

    import torch

    shapes = []
    for lib in (tg, torch):
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU]) as prof:
            for name in ("one of the regions", "two"):
                with lib.profiler.record_function(name):
                    pass
        text = prof.key_averages().table(**options)
        shapes.append([re.sub(r" *[\d.]+(us|ms|s|%)", " N", line) for line in text.splitlines()])
        widths = {len(line) for line in text.splitlines() if line.startswith("---")}
        shapes.append(widths)
    assert shapes[0] == shapes[2] and shapes[1] == shapes[3]


def test_an_empty_profile_has_an_empty_table():
    with profile() as prof:
        pass
    assert prof.key_averages().table() == "" and list(prof.events()) == []


def test_lines_of_the_program():
    prof = of_everything()
    linear = next(e for e in prof.events() if e.name == "linear")
    assert "test_profiler.py(" in linear.stack[0] and linear.stack[0].endswith(": of_everything")
    assert linear.stack[1].endswith(": test_lines_of_the_program")
    assert all("tensorgrad" + "/nn" not in line for line in linear.stack)
    step = next(e for e in prof.events() if e.name == "AddmmBackward0")
    assert step.stack == linear.stack and step.scope == 1 and linear.scope == 0

    def twice():
        x = tg.ones(2)
        x.exp()
        x.exp()

    with profile(with_stack=True) as prof:
        twice()
    assert len(prof.key_averages()) == 1
    averages = prof.key_averages(group_by_stack_n=1)
    assert [a.count for a in averages] == [1, 1] and all(len(a.stack) == 1 for a in averages)
    table = averages.table(max_src_column_width=20)
    assert titles(table)[-1] == "Source Location" and table.splitlines()[3].rstrip().endswith(": twice")


def test_stacks_for_flame_graphs(tmp_path):
    prof = of_everything()
    prof.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines
    for line in lines:
        frames, _, value = line.rpartition(" ")
        assert int(value) > 0 and " " not in frames and "of_everything" in frames.split(";")[-1]
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(tmp_path / "stacks.txt", "count")


def test_multiplications_are_counted():
    prof = of_everything()
    counted = {e.key: e.flops for e in prof.key_averages()}
    first, second = 2 * 3 * 6 * 5, 2 * 3 * 5 * 4
    assert counted["linear"] == first + second and counted["relu"] == 0
    assert counted["AddmmBackward0"] == first + 2 * second  # the input needs no gradient
    with profile(with_flops=True) as prof:
        x = tg.ones(3, 4, requires_grad=True)
        (x @ tg.ones(4, 2)).sum().backward()
    counted = {e.key: e.flops for e in prof.key_averages()}
    assert counted["matmul"] == counted["matmul_nt"] == 48 and counted["MmBackward0"] == 0


def test_time_by_module():
    prof = of_everything()
    entries = {e.key: e for e in prof.by_module()}
    forward = ["Sequential", "Sequential.0", "Sequential.1", "Sequential.2"]
    assert list(entries)[:4] == forward and {f"{name} (backward)" for name in forward} <= set(entries)
    assert all(e.count == 1 for name, e in entries.items() if name in forward)
    assert entries["Sequential (backward)"].count == 3
    whole = entries["Sequential"]
    assert whole.cpu_time_total >= sum(entries[name].cpu_time_total for name in forward[1:])
    assert whole.flops == entries["Sequential.0"].flops + entries["Sequential.2"].flops == 2 * 3 * (30 + 20)
    assert entries["Sequential (backward)"].flops == 2 * 3 * (30 + 40)
    own = sum(e.self_cpu_time_total for name, e in entries.items() if "backward" in name)
    assert own == pytest.approx(sum(e.self_cpu_time_total for e in prof.events() if e.scope == 1 and e.module))
    with pytest.raises(RuntimeError, match="with_modules=True"):
        recorded().by_module()


def test_modules_are_called_as_before_afterwards():
    before = tg.nn.Module.__call__
    with pytest.raises(ZeroDivisionError), profile(with_modules=True):
        assert tg.nn.Module.__call__ is not before
        1 / 0
    assert tg.nn.Module.__call__ is before


def test_arrows_lead_from_ops_to_their_backward(tmp_path):
    prof = of_everything()
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    starts, ends = ({e["id"]: e for e in trace if e["ph"] == kind} for kind in "sf")
    assert starts and starts.keys() == ends.keys() and all(e["bp"] == "e" for e in ends.values())
    assert all(starts[key]["ts"] <= ends[key]["ts"] for key in starts)
    spans = [e for e in trace if e["ph"] == "X"]
    details = next(e["args"] for e in spans if e["name"] == "linear")
    assert details["Module Hierarchy"] == "Sequential.0" and details["flops"] == 180 and details["Bytes"] == 60
    assert details["Call stack"].endswith(": of_everything")
    assert {e["ph"] for e in trace} == {"M", "X", "s", "f"}
    assert sum(e["cat"] == "python_function" for e in spans) == 4


def test_collection_can_pause():
    with profile() as prof:
        x = tg.ones(2)
        x.exp()
        prof.toggle_collection_dynamic(False, [tg.profiler.ProfilerActivity.CPU])
        x.sin()
        prof.toggle_collection_dynamic(True, [tg.profiler.ProfilerActivity.CPU])
        x.cos()
    assert [e.name for e in prof.events()] == ["exp", "cos"]


def test_cycles_add_up_if_asked_to():
    def run(**options):
        names = []
        with profile(
            schedule=schedule(wait=0, warmup=1, active=1, repeat=2),
            custom_trace_id_callback=lambda: f"trace {len(names)}",
            on_trace_ready=lambda prof: names.append(prof.get_trace_id()),
            **options,
        ) as prof:
            for _ in range(4):
                tg.ones(1).exp()
                prof.step()
        return names, [e.name for e in prof.events() if e.name == "exp"]

    assert run() == (["trace 0", "trace 1"], ["exp"]) and run(acc_events=True)[1] == ["exp", "exp"]


def test_a_recording_may_begin_and_end_by_hand():
    prof = profile(schedule=lambda step: ProfilerAction.NONE)
    prof.prepare_trace()
    prof.start_trace()
    tg.ones(1).exp()
    prof.stop_trace()
    assert [e.name for e in prof.events()] == ["exp"]


@alike
def test_profiles_that_lightning_begins_and_ends(torch):
    """Its callbacks replace the schedule while the profile runs, and end one that was left open."""
    told = [torch.profiler.kineto_available(), torch.autograd.kineto_available(), torch.autograd._profiler_enabled()]
    traced = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=3)
    with torch.profiler.profile(schedule=schedule, activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        told.append(torch.autograd._profiler_enabled())
        prof.schedule, prof.on_trace_ready = torch.profiler.profiler._default_schedule_fn, traced.append
        for _ in range(2):
            torch.ones(2).exp()
            prof.step()
        told.append(torch.autograd._profiler_enabled())
    told += [len(traced), torch.autograd._profiler_enabled(), str(torch.profiler.profiler._default_schedule_fn(7))]
    averages = prof.key_averages(group_by_overload_name=True), prof.events().key_averages(group_by_input_shapes=True)
    return told, [[(e.key, e.count) for e in each if e.key.startswith("ProfilerStep")] for each in averages]


def test_a_profile_that_was_left_open_is_ended():
    left = tg.profiler.profile()
    left.start()
    tg.ones(2).exp()
    tg.autograd._disable_profiler()
    assert not tg.autograd._profiler_enabled()
    tg.ones(2).log()
    left.stop()
    assert [e.name for e in left.events() if e.name in ("exp", "log")] == ["exp"]
    with pytest.raises(RuntimeError, match="when it's not running"):
        tg.autograd._disable_profiler()
