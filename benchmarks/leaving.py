"""Measures how programs leave and arrive: ONNX files, .pt2 files and TorchScript archives, beside torch's.

    python -m benchmarks.leaving            prints the table
    python -m benchmarks.leaving --write    also writes it to docs/benchmarks/leaving.md

Needs torch, onnx and onnxruntime; torch's exporter with dynamo=True is measured where onnxscript is installed, and
otherwise its older one. The two libraries make the same model from one seed, take turns in one process, on one thread,
and what onnxruntime and the loaded programs compute is compared first.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import logging
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

import tensorgrad
from benchmarks.measure import difference, in_turns, spread
from benchmarks.rows import models

ROUNDS, SECONDS = 7, 0.05  # how long a program runs in each round
TOLERANCE = 2e-5


def encoder(torch: Any) -> Any:
    """A transformer's encoder, as classifiers of text have it."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def lstm(torch: Any) -> Any:
    """An LSTM without its states."""

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(32, 64, batch_first=True), torch.nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Last()


# Title, what makes the model of a library, and the shape of its input.
ROWS: tuple[tuple[str, Callable[[Any], Any], tuple[int, ...]], ...] = (
    ("MLP 784-128-10", lambda torch: models.mlp(torch), (1, 784)),
    ("MNIST ConvNet", lambda torch: models.convnet(torch), (1, 1, 28, 28)),
    ("ResNet-18, width 16", lambda torch: models.resnet18(torch, 16), (1, 3, 64, 64)),
    ("encoder, 2 layers of 64, 32 tokens", encoder, (1, 32, 64)),
    ("LSTM 32-64, 20 steps", lstm, (1, 20, 32)),
)


class Measured(NamedTuple):
    """What one row gave: of what is done, seconds here and ratios to torch; of each file, its size here and there."""

    times: dict[str, tuple[float, tuple[float, float, float]]]
    sizes: dict[str, tuple[int, int]]


def _onnx(library: Any, model: Any, x: Any, newer: bool) -> bytes:
    """The bytes of the model as an ONNX file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        more = {} if newer else {"dynamo": False}
        if newer:
            more = {"external_data": False, "verbose": False}
        library.onnx.export(model, (x,), str(path), **more)
        return path.read_bytes()


def _saved(save: Callable, program: Any) -> bytes:
    file = io.BytesIO()
    save(program, file)
    return file.getvalue()


def measured(make: Callable, shape: tuple[int, ...], rounds: int, seconds: float) -> Measured:
    """Makes the files of one model with both libraries, compares what they compute, and measures."""
    import onnxruntime
    import torch

    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    libraries = {"here": tensorgrad, "torch": torch}
    newer = importlib.util.find_spec("onnxscript") is not None
    made, x, files, steps = {}, {}, {}, {}
    for name, library in libraries.items():
        library.manual_seed(0)
        made[name], x[name] = make(library).eval().requires_grad_(False), library.from_numpy(given)
    expected = made["torch"](x["torch"]).numpy()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for name, library in libraries.items():
        model, inputs = made[name], x[name]
        program = library.export.export(model, (inputs,))
        traced = library.jit.trace(model, inputs)
        files[name] = {
            ".onnx": _onnx(library, model, inputs, newer),
            ".pt2": _saved(library.export.save, program),
            "TorchScript": _saved(library.jit.save, traced),
        }
        session = onnxruntime.InferenceSession(files[name][".onnx"], options, providers=["CPUExecutionProvider"])
        steps[name] = {
            "write ONNX": lambda l=library, m=model, i=inputs: _onnx(l, m, i, newer),
            "export": lambda l=library, m=model, i=inputs: l.export.export(m, (i,)),
            "load .pt2": lambda l=library, n=name: l.export.load(io.BytesIO(files[n][".pt2"])),
            "trace": lambda l=library, m=model, i=inputs: l.jit.trace(m, i),
            "load TorchScript": lambda l=library, n=name: l.jit.load(io.BytesIO(files[n]["TorchScript"])),
            "onnxruntime": lambda s=session: s.run(None, {s.get_inputs()[0].name: given}),
        }
        results = {
            "onnxruntime": steps[name]["onnxruntime"]()[0],
            ".pt2": library.export.load(io.BytesIO(files[name][".pt2"])).module()(inputs).numpy(),
            "TorchScript": library.jit.load(io.BytesIO(files[name]["TorchScript"]))(inputs).numpy(),
        }
        for what, found in results.items():
            wrong = difference(found, expected, TOLERANCE)
            assert not wrong, f"{what} of the file written by {name}: {wrong}"
    times = {}
    for what in steps["here"]:
        taken = in_turns({name: steps[name][what] for name in steps}, rounds, seconds)
        ratios = [a / b for a, b in zip(taken["here"], taken["torch"], strict=True)]
        times[what] = statistics.median(taken["here"]), spread(ratios)
    sizes = {what: (len(files["here"][what]), len(files["torch"][what])) for what in files["here"]}
    return Measured(times, sizes)


DONE = ("write ONNX", "onnxruntime", "export", "load .pt2", "trace", "load TorchScript")
FILES = (".onnx", ".pt2", "TorchScript")
HEAD = (
    "| model | " + " | ".join(DONE) + " | " + " | ".join(f"size of {name}" for name in FILES) + " |\n"
    "|---|" + "---:|" * (len(DONE) + len(FILES))
)  # fmt: skip


def line(title: str, found: Measured) -> str:
    """A row of the table."""
    cells = [title]
    for what in DONE:
        seconds, ratio = found.times[what]
        cells.append(f"{seconds * 1e3:.2f} ms, {ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})")
    for name in FILES:
        here, there = found.sizes[name]
        cells.append(f"{here / 1e3:.0f} kB, {here / there:.3f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/leaving.md")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose title contains this")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write stores complete tables and cannot be combined with --only")
    for name in ("torch", "onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{name} is not installed; python -m benchmarks.leaving compares with it")
    import torch

    from benchmarks.overhead import facts
    from benchmarks.report import store

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # torch tells of packages that it does not find
    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    newer = importlib.util.find_spec("onnxscript") is not None
    lines = [facts(ROUNDS, SECONDS), "", f"torch's exporter to ONNX: dynamo={newer}", "", HEAD]
    print(*lines, sep="\n", flush=True)
    for title, make, shape in ROWS:
        if arguments.only in title:
            lines.append(line(title, measured(make, shape, ROUNDS, SECONDS)))
            print(lines[-1], flush=True)
    if arguments.write:
        store("leaving", "\n".join(lines), "## Files of programs: `python -m benchmarks.leaving`")


if __name__ == "__main__":
    main()
