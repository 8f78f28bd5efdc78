"""The rows of `benchmarks.cuda` run on the device and compute what torch computes, so that none is broken when a GPU is
at hand. No test looks at a time."""

from importlib.util import find_spec

import numpy as np
import pytest

import tensorgrad
from benchmarks import cuda, gpu_worker, measure
from benchmarks.rows import CUDA_THEMES, Place, all_rows, matching
from benchmarks.rows.bandwidth import COPY

ROWS = all_rows(CUDA_THEMES)
NAMES = [f"{row.theme}: {row.name}" for row in ROWS]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is what the rows are compared with")


@pytest.fixture(autouse=True)
def precision():
    """The switches are put back: the benchmarks set them alike in both libraries."""
    places = tensorgrad.backends.cuda.matmul, tensorgrad.backends.cudnn
    before = [place.allow_tf32 for place in places]
    yield
    for place, allowed in zip(places, before):
        place.allow_tf32 = allowed


@needs_torch
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_computes_what_torch_computes(row, device):
    import torch

    assert cuda.rehearsed(row, {tensorgrad: device, torch: "cpu"}) == ""
    assert Place.device == "cpu"


def test_a_rehearsal_names_what_is_wrong(device, capsys, monkeypatch):
    (row,) = matching(ROWS, ["bandwidth: exp 64 M"])
    assert cuda.rehearse([row], device) == 0
    assert capsys.readouterr().out == "bandwidth: exp 64 M: runs\n"
    if find_spec("torch") is not None:
        add = next(row for row in ROWS if row.name == "add 64 M")
        wrong = row._replace(
            build=lambda library, **sizes: (row if library is tensorgrad else add).build(library, **sizes)
        )
        assert cuda.rehearse([wrong], device) == 1
        assert "result 0: differs by" in capsys.readouterr().out
    broken = row._replace(build=lambda library, **sizes: 1 / 0)
    assert cuda.rehearse([broken], device) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_names_are_unique_and_nothing_is_left_out():
    assert len(set(NAMES)) == len(NAMES)
    assert {row.theme for row in ROWS} == set(CUDA_THEMES) == set(cuda.AIMS)
    assert all((row.moved is not None) == (row.theme == "bandwidth") for row in ROWS)
    for wanted in ("Linear 128", "Conv2d 8×64", "MultiheadAttention 32×128", "Softmax 1024", "batch 256", "GPT-2 124M"):
        assert any(wanted in row.name for row in ROWS), wanted


def test_what_a_row_moves_is_counted_in_bytes():
    found = {row.name: row.moved(**row.sizes) for row in ROWS if row.moved is not None}
    assert found[COPY] == 2 * 4 * 2**26
    assert found["add 64 M, bfloat16"] == 3 * 2 * 2**26
    assert found["CrossEntropy 4096×50257, forward"] == 4 * 4096 * 50257
    assert found["AdamW, 64 M"] == 7 * 4 * 16 * 2**22


def test_a_worker_times_by_the_devices_events(device, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHMARK_DEVICE", device)
    threads = tensorgrad.get_num_threads()
    try:
        worker = gpu_worker.Worker("tensorgrad", 1, "wall")
        assert worker.facts()["GPU"] == tensorgrad.cuda.get_device_name(0)
        assert not tensorgrad.backends.cuda.matmul.allow_tf32 and not tensorgrad.backends.cudnn.allow_tf32
        worker.prepare("modules: Softmax 128×64, forward and backward", str(tmp_path / "found.npz"))
        assert [array.shape for array in np.load(tmp_path / "found.npz").values()] == [(128, 64), (128, 64)]
        assert worker.warm(0.0)["seconds"] > 0
        assert worker.time(2)["seconds"] >= 0
    finally:
        Place.device = "cpu"
        tensorgrad.set_num_threads(threads)


def figures(theme, name, **seconds):
    """The figures of a row, as measure.together returns them."""
    return {
        "theme": theme, "name": name, "wrong": {},
        **measure.summary({column: [value] for column, value in seconds.items()}, cuda.PAIRS),
    }  # fmt: skip


def test_the_tables_hold_kernels_against_the_copy():
    rows = matching(ROWS, [f"bandwidth: {COPY}", "bandwidth: exp 64 M"])
    found = [figures("bandwidth", rows[0].name, ours=0.5e-3, torch=0.25e-3, host=0.1)]
    found.append(figures("bandwidth", rows[1].name, ours=0.5e-3, torch=0.4e-3))
    cuda.with_bandwidth(found, rows)
    assert found[1]["of copy"] == 0.5  # of the better of the two copies
    text = cuda.tables(found)
    assert "| exp 64 M | 500 µs | 400 µs | **1.25 (1.25–1.25)** | – | – | 1074 | 1342 | **50%** |" in text
    assert f"| {COPY} | 500 µs | 250 µs | **2.00 (2.00–2.00)** | 100 ms | 200 |" in text
    assert "2 rows miss it" in cuda.means(found)
    assert "1 of 1 rows miss it" in cuda.means(found)  # the copy itself is not held against itself
    wrong = {**figures("modules", "Softmax 128×64, forward", torch=1e-5), "wrong": {"ours": "differs"}}
    assert "**ours: differs** | – | 10 µs | – |" in cuda.line(wrong)
    assert "computed something else, or not at all: modules: Softmax 128×64, forward" in cuda.means([wrong])
