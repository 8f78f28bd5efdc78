"""The benchmarks measure what they say: both libraries compute the same in every row. No test looks at a time."""

import argparse
import json
import math
import os
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tensorgrad
from benchmarks import (
    busy,
    capture,
    clients,
    cores,
    cuda,
    ecosystem,
    fresh,
    measure,
    peers,
    perplexity,
    reasons,
    report,
    server,
    small_numbers,
    webassembly,
    worker,
    young,
)
from benchmarks.processes import COLUMNS, RAISED, ROOT, Column, Failure, Process, environment
from benchmarks.rows import ECOSYSTEM_THEMES, THEMES, Row, all_rows, matching, named
from benchmarks.worker import LARGEST_SAMPLE, fingerprint
from tests.support.kernels import absent
from tests.support.processes import output_of, run_python

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is what the rows are compared with")
NAMES = [f"{row.theme}: {row.name}" for row in all_rows()]


# --- rows ----------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("row", all_rows(), ids=NAMES)
def test_a_row_computes_the_same_in_both_libraries(row):
    import torch

    sizes = row.sizes if row.small is None else row.small
    made = []
    for library in (tensorgrad, torch):
        step, results = row.build(library, **sizes)
        made.append([part for tensor in results() for part in fingerprint(tensor)])
        step()
    ours, theirs = made
    assert len(ours) == len(theirs) > 0
    assert all(part.size for part in ours)
    assert [measure.difference(a, b, row.tolerance) for a, b in zip(ours, theirs)] == [""] * len(ours)


def test_names_are_unique_and_themes_known():
    assert len(set(NAMES)) == len(NAMES)
    assert {row.theme for row in all_rows()} == set(THEMES)
    libraries = [f"{row.theme}: {row.name}" for row in all_rows(ECOSYSTEM_THEMES)]
    assert set(reasons.REASONS) <= {*NAMES, *libraries}
    assert set(peers.ROWS) <= set(NAMES)
    assert fresh.FIRST in NAMES


def test_rows_are_found_by_what_a_keyboard_writes():
    assert [row.name for row in matching(all_rows(), ["conv2d 4x3*>16, forward"])] == [
        "Conv2d 4×3×32²→16, forward",
        "Conv2d 4×3×32²→16, forward and backward",
    ]
    assert {row.theme for row in matching(all_rows(), ["inference", "DATA"])} == {"inference", "data"}
    assert matching(all_rows(), ["no such row"]) == []


def test_rows_of_libraries_say_what_they_need(monkeypatch, capsys):
    rows = all_rows(ECOSYSTEM_THEMES)
    assert set(ecosystem.NEEDED) == {row.name for row in rows} and named(f"libraries: {rows[0].name}") == rows[0]
    monkeypatch.setattr(ecosystem, "find_spec", lambda name: None if name in ("timm", "peft") else name)
    assert {row.name for row in rows} - {row.name for row in ecosystem.available(rows)} == {
        "ViT-S/16, one image", "LoRA on a small GPT-2, 8×64, step",
    }  # fmt: skip
    assert capsys.readouterr().out.endswith("pip install timm peft\n")


def test_the_front_page_shows_what_was_measured():
    stored = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    assert {*report.SHOWN} <= {f"{row['theme']}: {row['name']}" for row in stored["rows"]}
    assert report.front(stored["facts"], stored["rows"]) in report.FRONT.read_text(encoding="utf-8")
    assert report.summary(stored["rows"]) in report.README.read_text(encoding="utf-8")


def test_a_page_that_is_missing_is_begun(page):
    report.store("other", "figures", "## Other things")
    assert (report.PAGES / "other.md").read_text() == "# Other things\n\n<!-- other -->\nfigures\n<!-- /other -->\n"


def test_the_page_has_the_table_of_libraries():
    stored = json.loads(ecosystem.RESULTS.read_text(encoding="utf-8"))
    assert ecosystem.table(stored["rows"]) in (report.PAGES / "ecosystem.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", all_rows(ECOSYSTEM_THEMES), ids=lambda row: row.name)
def test_a_row_of_a_library_computes_the_same(row, tmp_path):
    missing = [name for name in ("torch", *ecosystem.NEEDED[row.name]) if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    program = """
        import sys
        import numpy as np
        import torch
        from benchmarks.rows import named
        from benchmarks.worker import fingerprint

        row = named(sys.argv[1])
        step, results = row.build(torch, **row.small)
        np.savez(sys.argv[2], *(part for tensor in results() for part in fingerprint(tensor)))
        step()
    """
    files = {name: tmp_path / f"{name}.npz" for name in ("torch", "fast")}
    for name, file in files.items():
        given = environment(ecosystem.COLUMNS[name], 1, BENCHMARK_WEIGHTS=str(tmp_path))
        output_of(program, f"libraries: {row.name}", file, env=given, cwd=ROOT)
    assert measure.differences(files, row.tolerance) == {}


# --- comparing -----------------------------------------------------------------------------------------------------


def test_results_are_compared():
    x = np.array([1.0, 100.0, np.nan, np.inf], np.float32)
    assert measure.difference(x, x.copy(), 1e-4) == ""
    assert measure.difference(x + np.float32(0.005), x, 1e-4) == ""  # of the largest, not of each
    assert measure.difference(x + np.float32(0.05), x, 1e-4) != ""
    assert measure.difference(np.nan_to_num(x), x, 1e-4) != ""
    assert measure.difference(x[:3], x, 1e-4) == "shape (3,), not (4,)"
    assert measure.difference(np.array([1, 2]), np.array([1, 3]), 1e-4) == "50% of the elements differ"


def test_of_large_results_every_part_counts():
    x = np.zeros(3 * LARGEST_SAMPLE, np.float32)
    whole = fingerprint(x)
    assert sum(part.size for part in whole) < LARGEST_SAMPLE + 10
    for place in (0, 1, x.size // 2, x.size - 1):
        changed = x.copy()
        changed[place] = 1.0
        assert any(measure.difference(a, b, 1e-4) for a, b in zip(fingerprint(changed), whole)), place


def test_a_column_that_computes_something_else_is_named(tmp_path):
    files = {name: tmp_path / f"{name}.npz" for name in ("fast", "numpy", "torch")}
    np.savez(files["torch"], np.ones(3), np.zeros(2))
    np.savez(files["fast"], np.ones(3), np.zeros(2))
    np.savez(files["numpy"], np.ones(3), np.ones(2))
    assert measure.differences(files, 1e-4) == {"numpy": "result 1: differs by 1 where the largest is 0"}
    np.savez(files["fast"], np.ones(3))
    assert measure.differences(files, 1e-4)["fast"] == "1 results, not 2"


# --- processes -----------------------------------------------------------------------------------------------------


def test_columns_differ_in_what_they_say(monkeypatch):
    monkeypatch.setenv("TENSORGRAD_FAST", "0")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    found = {name: environment(column, 3) for name, column in COLUMNS.items()}
    assert all(each["OMP_NUM_THREADS"] == "3" and "OPENBLAS_CORETYPE" not in each for each in found.values())
    assert [name for name, each in found.items() if each.get("TENSORGRAD_FAST") == "0"] == ["numpy"]
    assert [name for name, each in found.items() if set(RAISED) & set(each)] == ["raised"]


def test_a_worker_measures_and_says_what_is_wrong(tmp_path):
    process = Process(COLUMNS["numpy"], 1)
    try:
        facts = process.ask(do="facts")
        assert facts["threads"] == 1 and facts["tensorgrad"] == tensorgrad.version.tensorgrad
        process.ask(do="prepare", row="pointwise: add 16", file=str(tmp_path / "found.npz"))
        assert [array.shape for array in np.load(tmp_path / "found.npz").values()] == [(16,)]
        assert process.ask(do="warm", seconds=0.01)["seconds"] > 0
        assert process.ask(do="time", count=3)["seconds"] > 0
        with pytest.raises(Failure, match="no such row"):
            process.ask(do="prepare", row="no such row", file="")
        with pytest.raises(Failure, match="unknown command exit"):
            process.ask(do="exit")
        assert process.ask(do="facts") == facts  # it goes on
        process.process.kill()
        with pytest.raises(Failure, match="the process died"):
            process.ask(do="facts")
    finally:
        process.kill()
    with pytest.raises(Failure, match="No module named 'no_such_library'"):
        Process(Column("none", "no_such_library", {}), 1).ask(do="facts")


class Told:
    """A process that answers without one."""

    def __init__(self, value, seconds):
        self.value, self.seconds, self.asked, self.open = value, seconds, [], False

    def ask(self, do, **given):
        self.asked.append(do)
        self.open = True
        if do == "prepare":
            np.savez(given["file"], np.full(3, self.value))
        return {"seconds": self.seconds}

    def close(self):
        self.open = False


def test_a_row_is_measured_unless_it_is_wrong():
    processes = {"fast": Told(1.0, 0.125), "numpy": Told(2.0, 0.5), "torch": Told(1.0, 0.25)}
    row = Row("name", lambda torch: None, theme="modules")
    found = measure.measured(row, processes, None, 0.75)
    assert list(found["wrong"]) == ["numpy"] and "time" not in processes["numpy"].asked
    assert found["rounds"] == 3 and processes["fast"].asked.count("time") == 3
    assert found["ratios"] == {"fast/torch": {"median": 0.5, "low": 0.5, "high": 0.5, "best": 0.5}}


def test_a_heavy_row_is_never_in_more_than_two_processes():
    most = 0

    class Counted(Told):
        def ask(self, do, **given):
            nonlocal most
            answer = super().ask(do, **given)
            most = max(most, sum(process.open for process in processes.values()))
            return answer

    seconds = {"fast": 0.125, "numpy": 0.5, "torch": 0.25, "raised": 0.25}
    processes = {name: Counted(1.0, each) for name, each in seconds.items()}
    found = measure.measured(Row("name", lambda torch: None, theme="modules", heavy=True), processes, 3, 0.75)
    assert most == 2 and not any(process.open for process in processes.values())
    assert found["seconds"] == seconds and found["wrong"] == {}
    assert {pair: ratio["median"] for pair, ratio in found["ratios"].items()} == {
        "fast/torch": 0.5, "fast/raised": 0.5, "numpy/torch": 2.0
    }  # fmt: skip


def test_the_time_decides_on_the_rounds():
    assert measure.plan({"a": 2**-20, "b": 0.125}, None, 0.75) == (6, {"a": 2**17, "b": 1})
    assert measure.plan({"a": 5.0}, None, 0.6) == (3, {"a": 1})
    assert measure.plan({"a": 0.01}, 2, 0.6) == (2, {"a": 30})


def test_a_kernel_that_cannot_be_loaded_is_named(monkeypatch):
    from tensorgrad.kernels.compiled import table
    from tensorgrad.kernels.compiled.runtime.row import Row

    row = Row("an_op", "no_such_family.kernel", 0)
    monkeypatch.setattr(table, "ROWS", (row,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not row.available()
    assert worker.compiled_kernels() == 1
    assert worker.without_kernel() == ["an_op"]
    assert "**not compiled: an_op**" in report.line({**FOUND[0], "without kernel": {"fast": "an_op"}})


@needs_torch
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read as Linux tells it")
def test_memory_and_the_first_step_come_from_processes_of_their_own():
    row = "training: MLP 784-128-10, batch 32, SGD"
    for name in ("numpy", "torch"):
        found = fresh.probe("memory", COLUMNS[name], 1, row)
        assert found["whole"] >= found["import"] > 10 and found["first steps"] >= 0
    first = fresh.probe("first-step", COLUMNS["numpy"], 1, row)
    assert first["import to first step"] == pytest.approx(first["import"] + first["set-up"] + first["first step"])
    with pytest.raises(Failure):
        fresh.probe("memory", COLUMNS["numpy"], 1, "no such row")


# --- reports -------------------------------------------------------------------------------------------------------

FACTS = {
    "date": "2030-01-02", "processor": "a processor", "cores": 2, "threads": 2, "clock": "wall", "quick": False,
    "versions": {"torch": "2.13.0"}, "load": 0.1, "others": 0.02,
}  # fmt: skip


def figures(name, theme, fast, numpy, wrong=None):
    """What `measured` gives for made-up times, relative to torch's of one millisecond."""
    times = {"fast": [fast * 1e-3] * 3, "numpy": [numpy * 1e-3] * 3, "torch": [1e-3] * 3, "raised": [0.5e-3] * 3}
    for column in wrong or {}:
        del times[column]
    return {
        "theme": theme,
        "name": name,
        "is_small_model": name == "Linear",
        "wrong": wrong or {},
        **measure.summary(times),
    }


FOUND = [
    figures("Linear", "modules", 0.5, 2.0),
    figures("Conv2d", "modules", 2.0, 8.0),
    figures("sort 1 M", "reductions", 1.02, 1.0, {"numpy": "result 0: differs"}),
]


def test_tables_show_figures_misses_and_reasons(monkeypatch):
    monkeypatch.setitem(report.REASONS, "modules: Conv2d", "a made-up reason")
    text = report.tables(FOUND)
    assert (
        "| Linear | 500 µs | 2 ms | 1 ms | 500 µs | 0.50 (0.50–0.50) | 1.00 (1.00–1.00) | 2.00 (2.00–2.00) |  |" in text
    )
    assert "**2.00 (2.00–2.00)** | 4.00 (4.00–4.00) | 8.00 (8.00–8.00) | a made-up reason |" in text
    assert "| sort 1 M | 1.02 ms | – | 1 ms | 500 µs | 1.02 (1.02–1.02) |" in text
    assert "**numpy: result 0: differs**" in text
    assert text.index("## Modules") < text.index("## Reductions")


def test_means_are_geometric():
    assert report.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert math.isnan(report.geometric_mean([]))
    assert report.means(FOUND).splitlines() == [
        "- fast/torch: geometric mean 1.01 over 3 rows (aim: 0.7); 1 rows above 1.0, the largest 2.00",
        "- fast/raised: geometric mean 2.01 over 3 rows (aim: 1.0)",
        "- numpy/torch: geometric mean 4.00 over 2 rows (aim: 2.0); 1 rows above 6.0, the largest 8.00",
        "- small models (aim: 0.6): Linear 0.50",
        "- computed something else, or not at all: reductions: sort 1 M",
    ]


def test_a_busy_machine_is_admitted():
    assert report.remark(FACTS) == ""
    assert "other programs used 50%" in report.remark({**FACTS, "others": 0.5})
    assert report.facts_text(FACTS).endswith(
        "load of the machine before: 0.1, used by other programs during the run: 2%"
    )


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A copy of a page, of the front page and of the figures."""
    monkeypatch.setattr(report, "PAGES", tmp_path)
    monkeypatch.setattr(report, "FRONT", tmp_path / "front.md")
    monkeypatch.setattr(report, "README", tmp_path / "front.md")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    report.FRONT.write_text("# Front\n\n<!-- front -->\nold\n<!-- /front -->\n")
    (tmp_path / "tables.md").write_text(
        "# A title\n\n<!-- else -->\nkept\n<!-- /else -->\n\n<!-- tables -->\nold\n<!-- /tables -->\n\nThe end.\n"
    )
    return tmp_path / "tables.md"


def test_the_report_is_written_between_its_marks(page):
    first = {COLUMNS["fast"].title: 0.5, COLUMNS["numpy"].title: 1.0}
    parts = {
        "import time": {"numpy": {"median": 0.1, "low": 0.09, "high": 0.11}},
        "first step of the MNIST ConvNet": {
            title: {"import": 0.2, "import to first step": 0.2 + value, "first step": value}
            for title, value in first.items()
        },
        "peak memory of training": {
            "XOR": {name: {"later steps": size, "first steps": 9.0, "whole": 99.0} for name, size in
                    (("fast", 6.0), ("numpy", 2.0), ("torch", 4.0))},
        },
    }  # fmt: skip
    report.write(FACTS, FOUND, parts)
    report.write(FACTS, FOUND, parts)  # again: nothing piles up
    text = page.read_text()
    front = report.FRONT.read_text()
    assert "old" not in front and front.count("geometric mean") >= 1 and front.count("<!-- front -->") == 1
    assert "kept" in text and "old" not in text and "The end." in text
    assert text.count("| Conv2d |") == 1 and text.count("<!-- tables -->") == text.count("<!-- memory -->") == 1
    assert "| `import numpy` | 0.100 | 0.090–0.110 |" in text
    assert "to the end of the first step: 0.50 s (aim: 0.3 s, **missed**)" in text
    assert "| XOR | 6.0 | 2.0 | 4.0 | 9.0 | 9.0 | 9.0 | 99.0 | 99.0 | 99.0 | **1.50** |" in text
    stored = json.loads(report.RESULTS.read_text())
    assert stored["facts"]["processor"] == "a processor" and len(stored["rows"]) == 3 and "import time" in stored


def test_other_libraries_have_a_table():
    row = {
        "name": "exp 1 M", "titles": {"torch": "torch", "jax": "JAX", "tinygrad": "tinygrad"},
        "seconds": {"torch": 1e-3, "jax": 5e-4}, "wrong": {"tinygrad": "no clang"},
    }  # fmt: skip
    assert report.peers_table([row]).splitlines() == [
        "| row | torch | JAX | tinygrad |",
        "|---|---:|---:|---:|",
        "| exp 1 M | 1 ms | 500 µs (0.50) | – |",
        "",
        "- tinygrad, exp 1 M: no clang",
    ]


def test_facts_are_those_of_the_workers():
    arguments = argparse.Namespace(threads=2, clock="cpu", quick=True)
    found = report.facts({"torch": {"torch": "2.13.0", "NumPy": "2", "threads": 2}}, arguments)
    assert found["versions"]["torch"] == "2.13.0" and "threads" not in found["versions"]
    assert "cpu time, not wall-clock time; quick" in report.facts_text(found)


@pytest.mark.parametrize("name", list(peers.BUILDS))
def test_other_libraries_compute_the_same(name, tmp_path):
    columns = peers.columns(1)
    if name not in columns:
        pytest.skip(f"{name} is not installed")
    process, ours = Process(columns[name], 1), Process(COLUMNS["numpy"], 1)
    files = {"torch": tmp_path / "ours.npz", name: tmp_path / "theirs.npz"}
    try:
        for row in peers.ROWS:
            ours.ask(do="prepare", row=row, file=str(files["torch"]))
            process.ask(do="prepare", row=row, file=str(files[name]))
            assert measure.differences(files, 1e-4) == {}, row
    finally:
        process.kill()
        ours.kill()


# --- the commands --------------------------------------------------------------------------------------------------


def run(*arguments, **more):
    """Returns what a command of this package prints."""
    return output_of(None, "-m", *arguments, cwd=ROOT, env=environment(COLUMNS["numpy"], 1, **more))


def test_the_rows_are_listed_and_one_is_measured():
    assert run("benchmarks", "--list").splitlines() == [*NAMES, *fresh.PARTS]
    told = run("benchmarks", "--only", "add 16", "--columns", "numpy", "--quick", "--rounds", "2", "--threads", "1")
    assert "\n| add 16 | – | " in told


@pytest.mark.parametrize("fast", ["0", "1"])
def test_training_in_threads_beside_numpys_products_ends_and_is_right(fast):
    if fast == "1" and absent():
        pytest.skip(absent())
    small = ["--threads", "2", "--steps", "2", "--batch", "8", "--products", "5", "--size", "256", "--repeats", "1"]
    told = run("benchmarks.stress", *small, TENSORGRAD_FAST=fast, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")
    assert told.startswith("tensorgrad on 2 threads, 4 Python threads of 2 ConvNet steps")
    assert float(told.rpartition("losses differ by ")[2].partition(";")[0]) < 1e-4
    assert float(told.rpartition("without any training: ")[2]) > 0


def test_the_first_seconds_of_processes_are_told_and_drawn(tmp_path):
    """Of runs that are made up: a step of 0.1 s at first, then of 0.01 s; and one twice as slow."""
    ends = [1.0]
    for number in range(600):
        ends.append(ends[-1] + (0.1 if number < 5 else 0.01))
    found = {"torch": [ends], "slow": [[2 * end for end in ends]]}
    first, second = young.table(found).splitlines()[2:]
    assert first.startswith("| torch | 1.10 s | 55.00 ms | 100.0 ms | 255 |") and first.endswith("| 10.00 s |")
    assert second.startswith("| slow | 2.20 s | 110.00 ms | 200.0 ms |") and second.endswith("| 20.00 s |")
    assert young.program(ends, 5) == ends[5] and young.program(ends, 700) == pytest.approx(ends[-1] + 1.0)
    young.draw("MLP", found, tmp_path)
    assert "first steps" in (tmp_path / "mlp.svg").read_text()
    assert set(young.MODELS.values()) <= {*NAMES}


def test_every_client_of_a_server_is_answered():
    made = clients.Worker("tensorgrad", 0, "wall")
    assert made.facts() == {"tensorgrad": tensorgrad.version.tensorgrad}
    for name in clients.SERVED:
        assert len(made.each(f"{name} 3", 0.0)["times"]) == 3


def test_a_plan_answers_the_clients_of_a_server():
    made = clients.Worker("tensorgrad", 0, "wall")  # raises if there is no plan
    for name in clients.SERVED:
        assert len(made.each(f"{name} 2 plan", 0.0)["times"]) == 2


def test_answers_of_a_server_are_compared_turn_by_turn():
    turns = {
        "tensorgrad": [[1e-3, 1e-3, 9e-3], [2e-3]],
        "tensorgrad, plan": [[1e-3], [1e-3]],
        "torch": [[2e-3, 2e-3, 3e-3], [1e-3]],
    }
    ours, plan, theirs = server.lines("mlp", 4, turns)
    assert ours == "| mlp | 4 | tensorgrad | 1.5 ms | 9 ms |  |  | 0.75 (0.50–1.00) | 0.31 (0.11–0.50) |"
    assert plan == "| mlp | 4 | tensorgrad, plan | 1 ms | 1 ms | 1.50 (1.00–2.00) | 5.50 (2.00–9.00) |  |  |"
    compared = "1.25 (0.50–2.00) | 2.50 (2.00–3.00) | 0.75 (0.50–1.00) | 0.67 (0.33–1.00) |"
    assert theirs == f"| mlp | 4 | torch | 2 ms | 3 ms | {compared}"


def test_what_is_installed_is_measured_with_what_it_needs():
    found = server.closure("Sphinx" if find_spec("sphinx") else "pytest")
    assert len(found) > 3 and server.closure("no-such-package") == {}
    (line,) = server.sizes(["tensorgrad"]).splitlines()[2:]
    assert line.startswith("| tensorgrad (with numpy) | ") and 20 < int(line.split()[-2]) < 500


# --- on a GPU (the rows: tests/cuda/test_benchmark.py) ---------------------------------------------------------------


@needs_torch
def test_the_libraries_take_turns_and_the_tables_are_stored(capsys, monkeypatch, tmp_path):
    """All of it, with the CPU in the GPU's place: the processes have no emulated one."""
    on_cpu = {"BENCHMARK_DEVICE": "cpu"}
    rows = {"ours": Column("tensorgrad", "tensorgrad", on_cpu), "torch": Column("torch", "torch", on_cpu)}
    monkeypatch.setattr(cuda, "columns", lambda arguments: {**rows, "host": rows["torch"]})
    monkeypatch.setattr(cuda, "all_rows", lambda themes: matching(all_rows(), ["modules: Softmax 128x64, forward"])[:1])
    monkeypatch.setattr(report, "PAGES", tmp_path)
    monkeypatch.setattr(cuda, "RESULTS", tmp_path / "results_cuda.json")
    (tmp_path / "cuda.md").write_text("# Page\n\n<!-- cuda -->\nNot measured.\n<!-- /cuda -->\nend\n")
    monkeypatch.setattr(sys, "argv", ["cuda", "--write", "--quick", "--rounds", "2", "--threads", "1"])
    cuda.main()
    page, told = (tmp_path / "cuda.md").read_text(), capsys.readouterr().out
    assert "TensorFloat-32 not allowed" in page and "Not measured" not in page and page.endswith("end\n")
    assert "## Modules, on a GPU" in page and "\n| Softmax 128×64, forward | " in page and "**ours" not in page
    assert "ours/torch" in told and "geometric mean of 1 rows" in told
    found = json.loads((tmp_path / "results_cuda.json").read_text())
    assert set(found["rows"][0]["ratios"]) == {"ours/torch", "ours/host"} and not found["rows"][0]["wrong"]


@pytest.mark.skipif(tensorgrad.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line():
    done = run_python(None, "-m", "benchmarks.cuda", "--only", "exp", cwd=ROOT)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip().count("\n") == 0 and "tensorgrad finds no GPU" in done.stderr


# --- other loads, and more processors --------------------------------------------------------------------------------


def test_a_process_may_choose_its_threads_itself(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert environment(COLUMNS["fast"], 5)["OMP_NUM_THREADS"] == "5"
    assert "OMP_NUM_THREADS" not in environment(COLUMNS["fast"], 0)


def test_percentiles_and_lines_of_the_busy_table():
    assert measure.percentile([float(n) for n in range(10)], 0.9) == 9.0 and measure.percentile([4.0], 0.9) == 4.0
    assert measure.percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    times = {"fast": [0.001, 0.002, 0.009], "torch": [0.004, 0.004, 0.003]}
    line = busy.line("alone", "MLP", times, {"fast": 2, "torch": 4})
    assert line == "| alone | MLP | 2 ms | 9 ms | 2 | 4 ms | 4 ms | 4 | 0.50 | 2.25 |"
    assert line.count("|") == busy.HEAD.splitlines()[0].count("|")
    assert set(busy.STEPS.values()) | {f"training: {name}" for name in cores.MODELS.values()} <= set(NAMES)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a process be pinned and stopped so")
@pytest.mark.machine("how promptly a busy machine stops a process")
def test_a_process_is_pinned_and_held_to_a_quota():
    process = Process(COLUMNS["numpy"], 1, before=(sys.executable, "-c", busy.START, busy.ONE, ""))
    row = "training: XOR 2-8-2, batch 4, SGD"
    try:
        assert busy.turn([process], row, 0.0, 0.0) == ([], 1)
        assert os.sched_getaffinity(process.process.pid) == {int(busy.ONE)}
        clock = (~process.process.pid << 3) | 2
        before, used = time.monotonic(), time.clock_gettime(clock)
        times, threads = busy.turn([process], row, 0.6, 0.3)
        assert times and threads == 1
        assert time.clock_gettime(clock) - used <= 0.6 * (time.monotonic() - before)
    finally:
        process.kill()


def test_competitors_end():
    with busy.competing(2, 19):
        pass  # they are killed and waited for


def test_the_model_of_more_processors(monkeypatch):
    if absent():
        pytest.skip(absent())
    from tensorgrad.kernels.compiled.runtime import thread_pool

    def work(seconds, first, last):
        time.sleep(seconds * (last - first))

    def step():
        time.sleep(0.01)
        thread_pool.run(work, 8, (0.005,), 10**9)

    found = cores.modelled(step, [1, 4], 2)
    (one, outside, spent), (four, *_) = found[1], found[4]
    assert 0.01 <= outside < one and sum(spent.values()) >= 0.04
    assert 0.02 <= four < one - 0.015
    assert thread_pool.run is not None and thread_pool.run.__module__ == thread_pool.__name__
    line = cores.line("GPT", {1: (one, outside, spent), 16: (one / 2, outside, spent)})
    assert "**2.0** (aim: 6)" in line and line.startswith("| GPT | ")


@pytest.mark.parametrize(
    ("row", "title", "limit", "aim", "inner"), capture.ROWS, ids=[compared.title for compared in capture.ROWS]
)
def test_compiled_programs_compute_the_same(row, title, limit, aim, inner):
    sizes = dict(row.sizes if row.small is None else row.small)
    found = capture.measured(row, sizes, 1, 0.0, with_torch=find_spec("torch") is not None, inner=inner)
    assert not found.why_eager, found.why_eager
    cells = capture.line(title, found, limit, aim).split(" | ")
    assert len(cells) == capture.HEAD.partition("\n")[0].count(" | ") + 1 and cells[0] == f"| {title}"


def test_compiled_programs_that_compute_something_else_are_refused():
    row = capture.SMALL
    made = {name: row.build(tensorgrad) for name in ("compiled", "eager")}
    with pytest.raises(AssertionError, match="other bits"):
        capture.same_results(row, made, lambda: made["compiled"][0]() + 1)


@pytest.mark.parametrize("make", [
    lambda lib: small_numbers.Decoder(32, 1, 2, 64, 50).build(lib, 1),
    lambda lib: small_numbers.Decoder(32, 1, 2, 64, 50).build(lib, 8),
    small_numbers.perceptron,
    small_numbers.recurrent,
], ids=["token", "prompt", "perceptron", "LSTM"])  # fmt: skip
def test_formats_of_small_numbers_are_near_float32(make):
    with_torch = find_spec("torch") is not None
    runs = small_numbers.candidates(make, with_torch)
    columns = small_numbers.FORMATS + small_numbers.THEIRS
    times = small_numbers.in_turns(runs, 1, 0.0)
    cells = small_numbers.line("it", times, columns).split(" | ")
    assert len(cells) == small_numbers.head("model", columns).partition("\n")[0].count(" | ") + 1
    assert {"float32", "dynamic int8", "bfloat16"} <= runs.keys() and ("torch float32" in runs) == with_torch


@pytest.mark.parametrize("make", [
    lambda lib: small_numbers.training_perceptron(lib, 4), lambda lib: small_numbers.training_convnet(lib, 4),
    lambda lib: small_numbers.training_gpt(lib, 2, width=16, context=8),
], ids=["perceptron", "convnet", "gpt"])  # fmt: skip
def test_training_under_autocast_is_near_float32(make):
    with_torch = find_spec("torch") is not None
    runs = small_numbers.trainings(make, with_torch)
    cells = small_numbers.line("it", small_numbers.in_turns(runs, 1, 0.0), small_numbers.TRAINED).split(" | ")
    assert len(cells) == 1 + len(small_numbers.TRAINED) and len(runs) == (4 if with_torch else 2)


def test_a_format_that_computes_something_else_is_refused(monkeypatch):
    monkeypatch.setitem(small_numbers.CLOSE, "bfloat16", 0.0)
    with pytest.raises(AssertionError, match=r"bfloat16 is 0\.00"):
        small_numbers.candidates(small_numbers.perceptron, with_torch=False)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the figures are those of /proc")
def test_the_table_of_memory(monkeypatch):
    monkeypatch.setattr(small_numbers, "DECODERS", {"134 M": small_numbers.Decoder(32, 1, 2, 64, 50)})
    told = small_numbers.memory(small_numbers.DECODERS["134 M"], "int8")
    assert 0 < told["weights"] < 1 and 0 < told["beyond"] < told["most"]
    asked, lines = [], []

    def answer(command, **options):
        asked.append(command[-2:])
        return argparse.Namespace(stdout=json.dumps(told))

    monkeypatch.setattr(small_numbers.subprocess, "run", answer)
    small_numbers.memories(lines.append)
    assert asked == [["134 M", format] for format in ("float32", "int8", "int4")]
    assert lines[1].startswith("| decoder of 134 M | 0 + ") and lines[1].count(" | ") == 3


def test_the_table_of_perplexities(monkeypatch, tmp_path, capsys):
    (tmp_path / perplexity.TEXT).write_text("to be, or not to be: that is the question. " * 20)
    sizes = {"context": 8, "width": 32, "heads": 2, "layers": 1}
    tokens, characters = perplexity.read(tmp_path)
    found = perplexity.rows(perplexity.trained(tokens, characters, 3, sizes), tokens)
    assert [name for name, *_ in found] == list(perplexity.FORMATS)
    values = [value for *_, value in found]
    assert all(1 < value < 2 * characters and abs(value / values[0] - 1) < 0.2 for value in values)
    assert perplexity.table(found).count("\n") == len(found) + 1
    monkeypatch.setattr(sys, "argv", ["", "--data", str(tmp_path / "absent")])
    perplexity.main()
    assert capsys.readouterr().out.startswith("skipped: there is no tinyshakespeare.txt")


def test_kernels_for_webassembly_are_a_module():
    pytest.importorskip("llvmlite", reason="llvmlite is not installed: pip install '.[kernels]'")
    made = webassembly.compiled()
    assert made.startswith(b"\0asm\1\0\0\0") and b"__linear_memory" in made and b"linking" not in made


def test_kernels_for_webassembly_compute_what_numpy_computes(monkeypatch):
    pytest.importorskip("llvmlite", reason="llvmlite is not installed: pip install '.[kernels]'")
    pytest.importorskip("wasmtime", reason="wasmtime is not installed: pip install '.[browser]'")
    monkeypatch.setattr(webassembly, "REPEATS", 1)
    assert webassembly.kernels(*webassembly.instance()).keys() == {"exp", "64", "256", "512"}
