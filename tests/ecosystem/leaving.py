"""Exports architectures of timm, torchvision and transformers, and compares what comes back with the models themselves.

python -m tests.ecosystem leaving                   all, in an environment made for it (and kept)
python -m tests.ecosystem leaving --only resnet18   some

Each model, with random weights and a small image, is exported by `torch.export` (and saved as a .pt2 file, and loaded),
by `torch.onnx.export` (and run by onnxruntime, and read by `torch.onnx.load`), and traced by `torch.jit.trace` (and
saved, and loaded). This file runs in that environment, where `import torch` means tensorgrad.
"""

from __future__ import annotations

import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

REQUIREMENTS = ("timm", "torchvision", "transformers", "onnx", "onnxruntime")
TOLERANCE = 2e-5  # of the largest result

# library -> architecture -> the side of the image, if it is for images
ARCHITECTURES: dict[str, dict[str, int]] = {
    "timm": {
        "cait_xxs24_224": 224, "convnext_atto": 64, "deit_tiny_patch16_224": 224, "edgenext_xx_small": 64,
        "efficientnet_b0": 64, "ghostnet_050": 64, "lcnet_035": 64, "levit_128s": 224, "mixer_s32_224": 224,
        "mobilenetv3_small_050": 64, "mobilevit_xxs": 64, "pvt_v2_b0": 64, "regnety_002": 64, "repvgg_a0": 64,
        "resnet10t": 64, "swin_tiny_patch4_window7_224": 224, "test_mambaout": 64, "test_nfnet": 64, "tinynet_e": 64,
        "vit_tiny_patch16_224": 224, "xcit_nano_12_p16_224": 224,
    },
    "torchvision": {
        "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_v2_s": 64, "googlenet": 64,
        "inception_v3": 96, "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64, "regnet_y_400mf": 64, "resnet18": 64,
        "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_v2_t": 64, "vgg11": 64, "vit_b_16": 224,
        "segmentation.lraspp_mobilenet_v3_large": 64, "segmentation.deeplabv3_mobilenet_v3_large": 64,
    },
    "transformers": dict.fromkeys(("bert", "gpt2", "llama", "qwen2", "t5", "vit", "whisper"), 0),
}  # fmt: skip


class Found(NamedTuple):
    """What the export of one model gave: the largest error (of the largest result), seconds, and bytes."""

    error: float
    seconds: float
    size: int


def model(library: str, name: str) -> Any:
    """An architecture with random weights, in evaluation mode."""
    import torch

    torch.manual_seed(0)
    if library == "timm":
        import timm

        return timm.create_model(name).eval()
    import torchvision

    given: dict[str, Any] = {"weights": None}
    if name.startswith("segmentation."):
        given["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        given["init_weights"] = False
    return torchvision.models.get_model(name.rpartition(".")[2], **given).eval()


def arguments(library: str, name: str) -> tuple[Any, list[tuple]]:
    """An architecture with random weights, in evaluation mode, the arguments with which it is exported, and others."""
    import torch

    if library == "transformers":
        from tests.ecosystem import tiny_transformers

        torch.manual_seed(0)
        return tiny_transformers.made(name)
    side = ARCHITECTURES[library][name]
    return model(library, name), [(torch.randn(2, 3, side, side),)]


def flat(value: Any) -> list[Any]:
    """The arrays of a result."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in flat(part)]
    return [value.detach().numpy()]


def difference(found: Any, expected: Any) -> float:
    """The largest difference, of the largest element. Raises: ValueError if there are other results."""
    import numpy as np

    pairs = list(zip(flat(found), flat(expected), strict=True))
    for a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
    return max(float(np.abs(a - b).max() / max(1e-30, np.abs(b).max())) for a, b in pairs)


def largest(programs: list[Any], cases: list[tuple], expected: list[Any]) -> float:
    """The largest difference of what programs return for each of several arguments."""
    return max(
        difference(run(*given), result) for run in programs for given, result in zip(cases, expected, strict=True)
    )


def exported(model: Any, cases: list[tuple], expected: list[Any]) -> Found:
    """By `torch.export`, as a .pt2 file that is loaded again."""
    import torch

    start = time.perf_counter()
    program = torch.export.export(model, cases[0])
    seconds = time.perf_counter() - start
    file = io.BytesIO()
    torch.export.save(program, file)
    size = file.tell()
    file.seek(0)
    loaded = torch.export.load(file).module()
    return Found(largest([program.module(), loaded], cases, expected), seconds, size)


def onnx(model: Any, cases: list[tuple], expected: list[Any]) -> Found:
    """By `torch.onnx.export`, run by onnxruntime, and read again."""
    import torch

    start = time.perf_counter()
    program = torch.onnx.export(model, cases[0])
    seconds = time.perf_counter() - start
    data = bytes(program)
    loaded = torch.onnx.load(io.BytesIO(data))
    return Found(largest([program, loaded], cases, expected), seconds, len(data))


def traced(model: Any, cases: list[tuple], expected: list[Any]) -> Found:
    """By `torch.jit.trace`, as an archive that is loaded again."""
    import torch

    start = time.perf_counter()
    program = torch.jit.trace(model, cases[0], strict=False)
    seconds = time.perf_counter() - start
    file = io.BytesIO()
    torch.jit.save(program, file)
    size = file.tell()
    file.seek(0)
    return Found(largest([torch.jit.load(file)], cases, expected), seconds, size)


WAYS: dict[str, Callable] = {"torch.export": exported, "torch.onnx.export": onnx, "torch.jit.trace": traced}


def measured(library: str, name: str) -> Iterator[tuple[str, Found | str]]:
    """What each way gave for an architecture, or why it failed."""
    import torch

    made, cases = arguments(library, name)
    with torch.no_grad():
        expected = [made(*given) for given in cases]
        for way, function in WAYS.items():
            try:
                found = function(made, cases, expected)
                yield way, found if found.error <= TOLERANCE else f"differs by {found.error:.1e}"
            except Exception as error:  # all the rest is still to be measured
                yield way, f"{type(error).__name__}: {error}"


def run(only: list[str]) -> int:
    """Runs this file in the environment of these libraries, made now if it does not exist. Returns its exit code."""
    from tests.ecosystem.environments import environment
    from tests.ecosystem.libraries import Library
    from tests.support.processes import ROOT

    python = environment(Library("leaving", requirements=REQUIREMENTS, imports=()))
    done = python.run(["-m", "tests.ecosystem.leaving", *only], cwd=ROOT, timeout=3600)
    print(done.stdout + done.stderr, end="")
    return done.returncode


def main(only: list[str]) -> int:
    """Prints a line for each architecture, and a sum. Returns how many failed."""
    warnings.simplefilter("ignore")
    failed, done = 0, 0
    for library, names in ARCHITECTURES.items():
        for name in names:
            if only and name not in only:
                continue
            told = []
            for way, found in measured(library, name):
                if isinstance(found, str):
                    failed += 1
                    told.append(f"{way}: {found}")
                else:
                    told.append(f"{way}: {found.error:.0e}, {found.seconds:.2f} s, {found.size / 1e6:.2f} MB")
            done += 1
            print(f"{library} {name}: {'; '.join(told)}", flush=True)
    print(f"{done} architectures, {failed} failures")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
