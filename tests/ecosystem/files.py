"""Files of models of timm, torchvision and transformers cross between the libraries: one writes, the other loads.

python -m tests.ecosystem files                   all, in the environment of `leaving`, with tensorgrad and real torch
python -m tests.ecosystem files --only resnet18   some

Each library makes each model with random weights and writes it as a .pt2 file (`torch.export`), as a scripted and as a
traced archive (`torch.jit`), with an image and the model's results; the other library loads the files, and compares
what they compute with these (of detectors: with its own model that has the weights of the file). This file runs in that
environment, under each library in turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.ecosystem import leaving, torchvision_operators

TOGETHER = 8  # models whose files lie on the disk at the same time: to import the libraries takes long
SIDES = ("tensorgrad", "torch")
OTHERS: dict[str, int] = {
    "segmentation.fcn_resnet50": 64, "video.mc3_18": 64, "video.mvit_v1_b": 224, "video.r3d_18": 64, "video.s3d": 224,
}  # fmt: skip
# architecture -> the shorter side to which it resizes images
DETECTORS: dict[str, int] = {
    "detection.fasterrcnn_mobilenet_v3_large_320_fpn": 64, "detection.fasterrcnn_resnet50_fpn": 64,
    "detection.fcos_resnet50_fpn": 64, "detection.keypointrcnn_resnet50_fpn": 64, "detection.maskrcnn_resnet50_fpn": 64,
    "detection.retinanet_resnet50_fpn": 64, "detection.ssd300_vgg16": 300,
    "detection.ssdlite320_mobilenet_v3_large": 320,
}  # fmt: skip
MODELS: list[tuple[str, str]] = [
    *((library, name) for library, names in leaving.ARCHITECTURES.items() for name in names),
    *(("torchvision", name) for name in (*OTHERS, *DETECTORS)),
]


def made(library: str, name: str) -> tuple[Any, tuple]:
    """A model with random weights in evaluation mode, and its arguments."""
    import torch

    torch.manual_seed(0)
    if name in DETECTORS:
        import torchvision

        side = DETECTORS[name]
        more: dict[str, Any] = {} if "ssd" in name else {"min_size": side, "max_size": 2 * side}
        more["box_score_thresh" if "rcnn" in name else "score_thresh"] = 0.001  # with random weights nothing is certain
        if "rcnn" in name:  # torchvision's operators in Python take long
            more |= {"rpn_post_nms_top_n_test": 200, "box_detections_per_img": 20}
        model = torchvision.models.get_model(
            name.rpartition(".")[2], weights=None, weights_backbone=None, num_classes=5, **more
        )
        images = [torch.rand(3, side, side + 16), torch.rand(3, side + 8, side)]
        return model.eval().double(), ([image.double() for image in images],)
    if name.startswith("video."):
        import torchvision

        model = torchvision.models.get_model(name.rpartition(".")[2], weights=None)
        return model.eval(), (torch.randn(1, 3, 16, OTHERS[name], OTHERS[name]),)
    if name in OTHERS:
        return leaving.model(library, name), (torch.randn(2, 3, OTHERS[name], OTHERS[name]),)
    model, cases = leaving.arguments(library, name)
    return model, cases[0]


def exported(model: Any, given: tuple, file: str) -> Any:
    """Writes a .pt2 file. Returns the program."""
    import torch

    program = torch.export.export(model, given)
    torch.export.save(program, file)
    return program.module()


def scripted(model: Any, given: tuple, file: str) -> Any:
    """Writes a scripted archive. Returns the program."""
    import torch

    program = torch.jit.script(model)
    torch.jit.save(program, file)
    return program


def traced(model: Any, given: tuple, file: str) -> Any:
    """Writes a traced archive. Returns the program."""
    import torch

    program = torch.jit.trace(model, given, strict=False, check_trace=False)
    torch.jit.save(program, file)
    return program


def load(way: str, file: str) -> Any:
    """A program that a file has."""
    import torch

    return torch.export.load(file).module() if way == "export" else torch.jit.load(file)


def with_weights(library: str, name: str, program: Any) -> Any:
    """The model that a program was made of, with the program's weights, as the library that loaded it has it.

    With random weights many boxes have the same score, to the bit: which comes first is each library's sort's choice.
    """
    model, _ = made(library, name)
    model.load_state_dict(program.state_dict())
    return model


WAYS: dict[str, Callable] = {"export": exported, "script": scripted, "trace": traced}


def ways(name: str) -> list[str]:
    """The ways in which a model is written: what detectors return depends on what they find, and transformers'
    models have no scripts.
    """
    if name in leaving.ARCHITECTURES["transformers"]:
        return ["export", "trace"]
    return ["script"] if name in DETECTORS else list(WAYS)


def differing(found: Any, expected: list[Any]) -> float | str:
    """The largest difference, of the largest element of an array, or what is wrong."""
    import numpy as np

    arrays, largest = leaving.flat(found), 0.0
    if len(arrays) != len(expected):
        return f"{len(arrays)} results instead of {len(expected)}"
    for a, b in zip(arrays, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if b.size:
            largest = max(largest, float(np.abs(a - b).max() / max(1e-30, np.abs(b).max())))
    return largest if largest <= leaving.TOLERANCE else f"differs by {largest:.1e}"


def write(folder: Path, models: list[tuple[str, str]]) -> Iterator[tuple[str, str, str, float | str, float]]:
    """Writes the files of models. Yields (model, way, "written", difference or problem, seconds)."""
    import numpy as np
    import torch

    for library, name in models:
        with torch.no_grad():
            try:
                model, given = made(library, name)
                expected = leaving.flat(model(*given))
            except Exception as error:  # the other models are still to be written
                yield from ((name, way, "written", _told(error), 0.0) for way in ways(name))
                continue
            images = leaving.flat(given)
            np.savez(folder / f"{name}.npz", *images, *expected)
            (folder / f"{name}.json").write_text(json.dumps(len(images)))
            for way in ways(name):
                start, file = time.perf_counter(), folder / f"{name}.{way}"
                try:
                    program = WAYS[way](model, given, str(file))
                    seconds = time.perf_counter() - start
                    yield name, way, "written", differing(program(*given), expected), seconds
                except Exception as error:  # all the rest is still to be written
                    file.unlink(missing_ok=True)
                    yield name, way, "written", _told(error), 0.0


def read(folder: Path, models: list[tuple[str, str]]) -> Iterator[tuple[str, str, str, float | str, float]]:
    """Loads the files of models. Yields (model, way, "loaded", difference or problem, seconds)."""
    import numpy as np
    import torch

    for library, name in models:
        if not (folder / f"{name}.json").exists():
            continue
        count = json.loads((folder / f"{name}.json").read_text())
        stored = np.load(folder / f"{name}.npz")
        arrays = [stored[f"arr_{i}"] for i in range(len(stored.files))]
        images = [torch.from_numpy(array) for array in arrays[:count]]
        given = (images,) if name in DETECTORS else tuple(images)
        for way in ways(name):
            file = folder / f"{name}.{way}"
            if not file.exists():
                continue
            try:
                start = time.perf_counter()
                program = load(way, str(file))
                seconds = time.perf_counter() - start
                with torch.no_grad():
                    expected = arrays[count:]
                    if name in DETECTORS:
                        expected = leaving.flat(with_weights(library, name, program)(*given))
                    yield name, way, "loaded", differing(program(*given), expected), seconds
            except Exception as error:  # all the rest is still to be loaded
                yield name, way, "loaded", _told(error), 0.0
            file.unlink()


def _told(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines)}"[:600]


def failures(found: dict[tuple[str, str, str, str], float | str]) -> list[str]:
    """What is wrong: a file that only torch writes, one that the other library does not load, or another result.

    Args:
        found: (library that wrote, model, way, "written" or "loaded") -> difference, or what went wrong.
    """
    told = []
    for (writer, name, way, step), outcome in found.items():
        if not isinstance(outcome, str):
            continue
        if step == "written" and (
            writer == "torch" or isinstance(found.get(("torch", name, way, "written"), 0.0), str)
        ):
            continue  # torch does not write it either
        told.append(f"{name}: {way} {step}, {_way(writer, step)}: {outcome}")
    return told


def _way(writer: str, step: str) -> str:
    reader = SIDES[1 - SIDES.index(writer)]
    return f"by {writer}" if step == "written" else f"by {reader}, of {writer}"


def run(only: list[str]) -> int:
    """Runs this file in the environment of these libraries, under both. Returns 0 if all is well."""
    from tests.ecosystem.environments import environment, real_torch
    from tests.ecosystem.libraries import Library
    from tests.support.processes import ROOT

    python = environment(Library("leaving", requirements=leaving.REQUIREMENTS, imports=()))
    folders = {"tensorgrad": None, "torch": real_torch()}
    chosen = [model for model in MODELS if not only or model[1] in only or model[1].rpartition(".")[2] in only]
    found: dict[tuple[str, str, str, str], float | str] = {}
    seconds: dict[tuple[str, str, str, str], float] = {}
    broken = []
    for first in range(0, len(chosen), TOGETHER):
        names = [name for _, name in chosen[first : first + TOGETHER]]
        for writer in SIDES:
            with tempfile.TemporaryDirectory() as folder:
                for step, side in (("write", writer), ("read", SIDES[1 - SIDES.index(writer)])):
                    arguments = ["-m", "tests.ecosystem.files", step, folder, *names]
                    done = python.run(arguments, torch=folders[side], cwd=ROOT, timeout=3600)
                    for line in done.stdout.splitlines():
                        if line.startswith("["):
                            name, way, told, outcome, took = json.loads(line)
                            found[writer, name, way, told] = outcome
                            seconds[writer, name, way, told] = took
                    if done.returncode:
                        broken.append(f"{step} under {side}: {done.stderr.strip()[-600:]}")
        for name in names:
            print(_line(name, found, seconds), flush=True)
    wrong = [*failures(found), *broken]
    print(*wrong, sep="\n")
    print(_summary(found), f"{len(chosen)} models, {len(wrong)} failures", sep="\n")
    return 1 if wrong else 0


def _line(name: str, found: dict[tuple[str, str, str, str], float | str], seconds: dict) -> str:
    """One model's outcomes."""
    told = []
    for way in ways(name):
        parts = []
        for writer in SIDES:
            for step in ("written", "loaded"):
                key = (writer, name, way, step)
                if key in found:
                    outcome = found[key]
                    took = f"{seconds[key]:.2f} s"
                    shown = f"no ({outcome[:100]})" if isinstance(outcome, str) else f"{outcome:.0e} in {took}"
                    parts.append(f"{step} {_way(writer, step)} {shown}")
        told.append(f"{way}: {', '.join(parts)}")
    return f"{name}: {'; '.join(told)}"


def _summary(found: dict[tuple[str, str, str, str], float | str]) -> str:
    """How many files of each kind crossed, and the largest difference."""
    lines = []
    for way in WAYS:
        for writer in SIDES:
            crossed = [v for (w, _, y, s), v in found.items() if (w, y, s) == (writer, way, "loaded")]
            good = [v for v in crossed if not isinstance(v, str)]
            largest = max(good, default=0.0)
            lines.append(f"{way}: {len(good)} of {len(crossed)} files of {writer} are read, differing by {largest:.1e}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Writes or reads the files of some models in a folder, and prints an outcome a line."""
    warnings.simplefilter("ignore")
    torchvision_operators.prepare()
    step, folder, *names = arguments
    models = [model for model in MODELS if model[1] in names]
    for outcome in (write if step == "write" else read)(Path(folder), models):
        print(json.dumps(outcome), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
