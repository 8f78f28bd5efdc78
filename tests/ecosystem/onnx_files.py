"""ONNX files that both libraries write of the same models: their sizes, and how long onnxruntime takes for an answer.

python -m tests.ecosystem onnx                   all architectures of `leaving`, in an environment made for it
python -m tests.ecosystem onnx --only resnet18   some

Each library exports each model with random weights by `torch.onnx.export`, PyTorch with `dynamo=True`. Then a process
has onnxruntime run both files in turns, on one thread, after it has compared each one's results with those of the model
that it was made of. This file runs in that environment, under each library in turn.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.ecosystem import leaving, torchvision_operators

REQUIREMENTS = (*leaving.REQUIREMENTS, "onnxscript")  # which PyTorch's exporter needs
SIDES = ("tensorgrad", "torch")
ROUNDS, SECONDS = 9, 0.2  # how long onnxruntime runs a file in each round
OUTCOME = "outcome: "
TOGETHER = 4  # models whose files lie on the disk at the same time


class Measured(NamedTuple):
    """Of one model: the sizes of both files in bytes, seconds per answer of ours, and ratios to PyTorch's by round."""

    name: str
    sizes: tuple[int, int]
    seconds: float
    ratios: list[float]


def write(folder: Path, side: str, models: list[tuple[str, str]]) -> Iterator[tuple[str, float | str]]:
    """Writes the files of models. Yields (model, seconds or what went wrong)."""
    import numpy as np
    import torch

    more: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    for library, name in models:
        model, (given, *_) = leaving.arguments(library, name)
        with torch.no_grad():
            _trained(model)
            expected = leaving.flat(model(*given))
            start, file = time.perf_counter(), folder / f"{name}.{side}.onnx"
            try:
                torch.onnx.export(model, given, str(file), **more)
                yield name, time.perf_counter() - start
            except Exception as error:  # all the rest is still to be written
                file.unlink(missing_ok=True)
                yield name, f"{type(error).__name__}: {error}"[:300]
        inputs = {f"input {i:02}": array for i, array in enumerate(leaving.flat(given))}
        np.savez(folder / f"{name}.{side}.npz", **inputs, **{f"result {i:02}": a for i, a in enumerate(expected)})


def _trained(model: Any) -> None:
    """Gives a new model's norms and biases numbers of their own, as training does.

    They are all ones and zeros before, and PyTorch stores equal weights once, as if a file were not trained again.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.ndim == 1 and tensor.is_floating_point():
            tensor.mul_(1 + 0.1 * tensor.new_empty(tensor.shape).uniform_()).add_(
                0.1 * tensor.new_empty(tensor.shape).uniform_()
            )


def compare(folder: Path, names: list[str], rounds: int, seconds: float) -> Iterator[Measured | tuple[str, str]]:
    """Runs both files of each model. Yields what was measured, or (model, what is wrong)."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    for name in names:
        files = {side: folder / f"{name}.{side}.onnx" for side in SIDES}
        if not all(file.exists() for file in files.values()):
            continue
        steps, wrong = {}, ""
        for side, file in files.items():
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            stored = np.load(folder / f"{name}.{side}.npz")
            given = [stored[key] for key in stored.files if key.startswith("input")]
            inputs = {i.name: array for i, array in zip(session.get_inputs(), given, strict=True)}
            expected = [stored[key] for key in stored.files if key.startswith("result")]
            pairs = list(zip(session.run(None, inputs), expected, strict=True))
            error = max(float(np.abs(a - b).max() / max(1e-30, np.abs(b).max())) for a, b in pairs)
            wrong = wrong or (f"the file of {side} differs by {error:.1e}" if error > leaving.TOLERANCE else "")
            steps[side] = session, inputs
        if wrong:
            yield name, wrong
            continue
        times = {side: list[float]() for side in SIDES}
        for _ in range(rounds + 1):
            for side, (session, inputs) in steps.items():
                start, count = time.perf_counter(), 0
                while (passed := time.perf_counter() - start) < seconds or not count:
                    session.run(None, inputs)
                    count += 1
                times[side].append(passed / count)
        ours, theirs = (times[side][1:] for side in SIDES)  # the first round is for getting ready
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        sizes = files["tensorgrad"].stat().st_size, files["torch"].stat().st_size
        yield Measured(name, sizes, statistics.median(ours), ratios)


def line(found: Measured) -> str:
    """One model: time and its ratio with quartiles, size and its ratio."""
    low, middle, high = statistics.quantiles(found.ratios, n=4)
    ours, theirs = found.sizes
    return (
        f"{found.name}: {found.seconds * 1e3:.2f} ms, {middle:.2f} ({low:.2f}–{high:.2f}) of torch's; "
        f"{ours / 1e6:.2f} MB, {ours / theirs:.4f}"
    )


def summary(found: list[Measured]) -> str:
    """Of all models: how many files are larger than PyTorch's, and slower in at least three quarters of the rounds."""
    if not found:
        return "no model was measured"
    middles = [statistics.median(each.ratios) for each in found]
    larger = [each.name for each in found if each.sizes[0] > each.sizes[1]]
    slower = [each.name for each in found if statistics.quantiles(each.ratios, n=4)[0] > 1]
    return (
        f"{len(found)} models; time: {statistics.geometric_mean(middles):.2f} of torch's (geometric mean), "
        f"{min(middles):.2f} to {max(middles):.2f}; larger: {', '.join(larger) or 'none'}; "
        f"slower in three quarters of the rounds: {', '.join(slower) or 'none'}"
    )


def run(only: list[str]) -> int:
    """Runs this file in an environment with these libraries, under both. Returns 0 if all is well."""
    from tests.ecosystem.environments import environment, real_torch
    from tests.ecosystem.libraries import Library
    from tests.support.processes import ROOT

    python = environment(Library("onnx-files", requirements=REQUIREMENTS, imports=()))
    folders = {"tensorgrad": None, "torch": real_torch()}
    chosen = [name for names in leaving.ARCHITECTURES.values() for name in names if not only or name in only]
    found: list[Measured] = []
    problems = []
    for first in range(0, len(chosen), TOGETHER):
        names = chosen[first : first + TOGETHER]
        with tempfile.TemporaryDirectory() as folder:
            for step in (*SIDES, "compare"):
                arguments = ["-m", "tests.ecosystem.onnx_files", step, folder, *names]
                done = python.run(arguments, torch=folders.get(step), cwd=ROOT, timeout=3600)
                for text in done.stdout.splitlines():
                    if not text.startswith(OUTCOME):  # of the libraries
                        continue
                    outcome = json.loads(text.removeprefix(OUTCOME))
                    if len(outcome) == len(Measured._fields):
                        found.append(Measured(*outcome))
                        print(line(found[-1]), flush=True)
                    elif isinstance(outcome[1], str):
                        told = f"{outcome[0]}: {step}: {outcome[1]}"
                        print(told, flush=True)
                        problems += [told] if step != "torch" else []  # what torch does not write is no fault
                if done.returncode:
                    problems.append(f"{step}: {done.stderr.strip()[-600:]}")
    print(*problems, summary(found), sep="\n")
    return 1 if problems else 0


def main(arguments: list[str]) -> int:
    """Writes files of some models into a folder, or compares them, and prints an outcome a line."""
    warnings.simplefilter("ignore")
    step, folder, *names = arguments
    if step != "compare":  # which needs no library but onnxruntime
        torchvision_operators.prepare()
    models = [(library, n) for library, all_names in leaving.ARCHITECTURES.items() for n in all_names if n in names]
    for outcome in (
        compare(Path(folder), names, ROUNDS, SECONDS) if step == "compare" else write(Path(folder), step, models)
    ):
        print(f"{OUTCOME}{json.dumps(outcome)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
