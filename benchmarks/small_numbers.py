"""Measures models whose weights have 8 or 4 bits, and training in bfloat16, beside float32 and PyTorch's formats.

    python -m benchmarks.small_numbers             prints the tables
    python -m benchmarks.small_numbers --write     also writes them to docs/benchmarks/small_numbers.md
    python -m benchmarks.small_numbers --memory    prints the memory of a process with each format, and can write it

All formats of a row run in one process, on one thread, and take turns by rounds. A ratio is the median of the rounds'
ratios to our float32, with the first and third quartile. Before that, results are compared with those of float32.

Decoders have the layers of Llama and random weights. One token is computed after 128 others, of which keys and values
are kept; a prompt is 128 tokens at once. A product is one row with a matrix: the bytes of weights that it reads in a
second, as a share of those that a copy of large arrays reads and writes.

A training step is forward, backward and optimizer. Under autocast, parameters stay float32 and products are computed
from bfloat16. Losses after a few steps are compared with those of float32.

For the memory, a process of its own builds a decoder in float32, quantizes it, and computes two tokens. The figures are
the bytes of the model's tensors, what the process has in memory beyond them (Python, NumPy and the package included),
and the most that it had since it started. The system must have /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

import tensorgrad
from benchmarks.measure import in_turns, spread
from benchmarks.probe import resident
from benchmarks.processes import ROOT
from benchmarks.rows.models import convnet, gpt

ROUNDS, SECONDS = 9, 0.2  # how long a format runs in each round
CACHED, PROMPT, VOCABULARY, GROUP = 128, 128, 32000, 32
FORMATS = ("float32", "int8", "int4", "dynamic int8", "bfloat16")
THEIRS = tuple(f"torch {name}" for name in ("float32", "dynamic int8", "bfloat16"))


class Decoder(NamedTuple):
    """The sizes of a decoder."""

    width: int
    layers: int
    heads: int
    hidden: int
    vocabulary: int = VOCABULARY

    def build(self, lib: Any, tokens: int) -> tuple[Any, tuple]:
        """The model, and its input."""
        nn, size = lib.nn, self.width // self.heads

        class Block(nn.Module):
            def __init__(block) -> None:
                super().__init__()
                block.before, block.between = nn.RMSNorm(self.width), nn.RMSNorm(self.width)
                block.q, block.k, block.v, block.o = (nn.Linear(self.width, self.width, bias=False) for _ in range(4))
                block.gate, block.up = (nn.Linear(self.width, self.hidden, bias=False) for _ in range(2))
                block.down = nn.Linear(self.hidden, self.width, bias=False)
                for name in ("keys", "values"):
                    block.register_buffer(name, lib.randn(1, self.heads, CACHED + tokens, size))

            def forward(block, x: Any) -> Any:
                y = block.before(x)
                parts = (f(y).reshape(1, tokens, self.heads, size).transpose(1, 2) for f in (block.q, block.k, block.v))
                q, block.keys[:, :, CACHED:], block.values[:, :, CACHED:] = parts
                seen = nn.functional.scaled_dot_product_attention(q, block.keys, block.values)
                x = x + block.o(seen.transpose(1, 2).reshape(1, tokens, self.width))
                y = block.between(x)
                return x + block.down(nn.functional.silu(block.gate(y)) * block.up(y))

        embedding, head = nn.Embedding(self.vocabulary, self.width), nn.Linear(self.width, self.vocabulary, bias=False)
        blocks = (Block() for _ in range(self.layers))
        model = nn.Sequential(embedding, *blocks, nn.RMSNorm(self.width), head)
        return model, (lib.arange(tokens).reshape(1, tokens) % self.vocabulary,)


def perceptron(lib: Any) -> tuple[Any, tuple]:
    """Three layers, and one example."""
    nn = lib.nn
    layers = nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    return nn.Sequential(*layers), (lib.randn(1, 784),)


def recurrent(lib: Any) -> tuple[Any, tuple]:
    """An LSTM, and 32 steps of one example."""
    return lib.nn.LSTM(128, 256), (lib.randn(32, 1, 128),)


SMALL, LARGE, HUGE = Decoder(288, 6, 6, 768), Decoder(768, 12, 12, 2048), Decoder(2048, 16, 16, 5632)
DECODERS = {"134 M": LARGE, "953 M": HUGE}
WEIGHT_ONLY: dict[str, dict[str, Any]] = {"float32": {}, "int8": {}, "int4": {"group": GROUP}}
MODELS: dict[str, Callable[[Any], tuple[Any, tuple]]] = {
    "decoder of 24 M, one token": lambda lib: SMALL.build(lib, 1),
    "decoder of 24 M, a prompt": lambda lib: SMALL.build(lib, PROMPT),
    "decoder of 134 M, one token": lambda lib: LARGE.build(lib, 1),
    "MLP 784-1024-1024-10, one example": perceptron,
    "LSTM 128-256, 32 steps, one example": recurrent,
}
PRODUCTS = ((2048, 2048), (4096, 4096), (11008, 4096))  # outputs, inputs


def candidate(name: str, make: Callable[[Any], tuple[Any, tuple]]) -> Callable[[], Any] | None:
    """A function that runs the model in this format; None where nothing in it has such weights."""
    if name.startswith("torch"):
        import torch as lib
    else:
        lib = tensorgrad
    format = name.removeprefix("torch ")
    lib.manual_seed(0)
    model, given = make(lib)
    model.eval()
    if format in ("int8", "int4"):
        if not any(isinstance(module, lib.nn.Linear) for module in model.modules()):
            return None
        lib.quantize(model, format, **({"group": GROUP} if format == "int4" else {}))
    elif format == "dynamic int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, that this way of quantizing is old
            model = lib.ao.quantization.quantize_dynamic(model)
    elif format == "bfloat16":
        model = model.bfloat16()
        given = tuple(x.bfloat16() if x.is_floating_point() else x for x in given)

    def run() -> Any:
        with lib.inference_mode():
            found = model(*given)
        return found[0] if isinstance(found, tuple) else found

    return run


# How far results may be from those of float32: the size of the difference, as a share of the size of the result.
CLOSE = {"int8": 0.05, "int4": 0.3, "dynamic int8": 0.1, "bfloat16": 0.1}


def candidates(make: Callable[[Any], tuple[Any, tuple]], with_torch: bool = True) -> dict[str, Callable[[], Any]]:
    """The function of each format. Raises: AssertionError if one computes something else than float32."""
    found = {name: candidate(name, make) for name in FORMATS + (THEIRS if with_torch else ())}
    runs = {name: run for name, run in found.items() if run is not None}
    for lib in ("", "torch "):
        expected = np.asarray(runs[f"{lib}float32"]().float()) if f"{lib}float32" in runs else None
        for format, share in CLOSE.items():
            if f"{lib}{format}" in runs:
                apart = np.asarray(runs[f"{lib}{format}"]().float()) - expected
                far = np.linalg.norm(apart) / np.linalg.norm(expected)
                assert far <= share, f"{lib}{format} is {far:.3f} of the result apart from float32, more than {share}"
    return runs


# --- training --------------------------------------------------------------------------------------------------------

STEPS = 5  # that are trained before losses are compared
TRAINED = ("float32", "autocast", "torch float32", "torch autocast")


def training_perceptron(lib: Any, batch: int = 64) -> tuple[Any, Any, Any]:
    """The model, a batch, and targets."""
    return perceptron(lib)[0], lib.randn(batch, 784), lib.arange(batch) % 10


def training_convnet(lib: Any, batch: int = 64) -> tuple[Any, Any, Any]:
    """The same for digits."""
    return convnet(lib), lib.randn(batch, 1, 28, 28), lib.arange(batch) % 10


def training_gpt(lib: Any, batch: int = 8, **sizes: Any) -> tuple[Any, Any, Any]:
    """The same for one block of a character model."""
    sizes = {"layers": 1, "width": 256, "context": 64, **sizes}
    numbers = lib.arange(batch * sizes["context"]).reshape(batch, -1) % 65
    return gpt(lib, **sizes), numbers, numbers


TRAININGS: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "MLP 784-1024-1024-10, 64 examples": training_perceptron,
    "MLP 784-1024-1024-10, 512 examples": lambda lib: training_perceptron(lib, 512),
    "ConvNet, 64 digits": training_convnet,
    "GPT block, width 256, 8 × 64 characters": training_gpt,
}


def training(name: str, make: Callable[[Any], tuple[Any, Any, Any]]) -> Callable[[], Any]:
    """A function that trains one step and returns the loss."""
    if name.startswith("torch"):
        import torch as lib
    else:
        lib = tensorgrad
    lib.manual_seed(0)
    model, given, targets = make(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> Any:
        with lib.autocast("cpu", lib.bfloat16, enabled=name.endswith("autocast")):
            found = model(given)
            loss = lib.nn.functional.cross_entropy(found.reshape(-1, found.shape[-1]), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def trainings(make: Callable[[Any], tuple[Any, Any, Any]], with_torch: bool = True) -> dict[str, Callable[[], Any]]:
    """The training step of each kind. Raises: AssertionError if a loss is far from that of float32."""
    runs = {name: training(name, make) for name in TRAINED if with_torch or not name.startswith("torch")}
    losses = {name: [float(run()) for _ in range(STEPS)][-1] for name, run in runs.items()}
    for name, loss in losses.items():
        expected = losses["float32"]
        assert abs(loss - expected) <= 0.05 * expected, (
            f"{name}: the loss is {loss:.3f}, that of float32 {expected:.3f}"
        )
    return runs


def products(outputs: int, inputs: int, with_torch: bool = True) -> tuple[dict[str, Callable], dict[str, int]]:
    """Products of one row with a matrix in each format, and the bytes of the matrix."""
    lib: Any = tensorgrad
    x = lib.randn(1, inputs)
    runs: dict[str, Callable] = {}
    sizes: dict[str, int] = {}
    for name in ("float32", "int8", "int4"):
        layer = lib.nn.Sequential(lib.nn.Linear(inputs, outputs, bias=False))
        if name != "float32":
            lib.quantize(layer, name, **({"group": GROUP} if name == "int4" else {}))
        sizes[name] = sum(t.nbytes for t in layer.state_dict().values())
        runs[name] = lambda layer=layer[0]: layer(x)
    if with_torch:
        import torch

        weight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
        row, scales, numbers = torch.randn(1, inputs), torch.rand(outputs), weight.float()
        runs["torch float32"] = lambda: torch.nn.functional.linear(row, numbers)
        runs["torch _weight_int8pack_mm"] = lambda: torch._weight_int8pack_mm(row, weight, scales)
        sizes |= {"torch float32": numbers.nbytes, "torch _weight_int8pack_mm": weight.nbytes + scales.nbytes}
    return runs, sizes


def bandwidth(rounds: int = ROUNDS, seconds: float = SECONDS) -> float:
    """The bytes that a copy between arrays of 256 MB reads and writes in a second."""
    source = np.ones(2**26, np.float32)
    target = np.empty_like(source)
    times = in_turns({"copy": lambda: np.copyto(target, source)}, rounds, seconds)["copy"]
    return 2 * source.nbytes / statistics.median(times)


def ratios(times: Mapping[str, list[float]]) -> dict[str, tuple[float, float, float]]:
    """The ratio of each format's time to our float32's: median and quartiles."""
    return {name: spread([a / b for a, b in zip(taken, times["float32"])]) for name, taken in times.items()}


def cell(times: Mapping[str, list[float]], name: str) -> str:
    """What a table says of a format."""
    if name not in times:
        return "–"
    time = statistics.median(times[name])
    shown = f"{time * 1e6:.0f} µs" if time < 1e-3 else f"{time * 1e3:.2f} ms"
    return shown if name == "float32" else "{}, {:.2f} ({:.2f}–{:.2f})".format(shown, *ratios(times)[name])


def line(title: str, times: Mapping[str, list[float]], columns: tuple[str, ...]) -> str:
    """A row of a table."""
    return "| " + " | ".join([title, *(cell(times, name) for name in columns)]) + " |"


def head(title: str, columns: tuple[str, ...]) -> str:
    """The first two lines of a table."""
    return f"| {title} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}"


def memory(decoder: Decoder, format: str) -> dict[str, float]:
    """The MB of a decoder's tensors, what this process has beyond them after two tokens, and the most it ever had."""
    lib: Any = tensorgrad
    model, given = decoder.build(lib, 1)
    if format != "float32":
        lib.quantize(model, format, **WEIGHT_ONLY[format])
    weights = sum(tensor.nbytes for tensor in model.state_dict().values()) / 2**20
    with lib.inference_mode():
        for _ in range(2):
            model(*given)
    return {"weights": weights, "beyond": resident("VmRSS") - weights, "most": resident("VmHWM")}


def memories(say: Callable[[str], None]) -> None:
    """Prints the table of memory: each figure is from a process of its own."""
    columns = tuple(WEIGHT_ONLY)
    say(head("MB of weights + beyond them (the most)", columns))
    for name in DECODERS:
        cells = []
        for format in columns:
            command = [sys.executable, "-m", "benchmarks.small_numbers", "--memory-of", name, format]
            told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            cells.append("{weights:.0f} + {beyond:.0f} ({most:.0f})".format(**told))
        say("| " + " | ".join([f"decoder of {name}", *cells]) + " |")


PRODUCT_COLUMNS = ("float32", "int8", "int4", "torch float32", "torch _weight_int8pack_mm")


def speeds(say: Callable[[str], None]) -> None:
    """Prints the tables of times."""
    say(head("model", FORMATS + THEIRS))
    for title, make in MODELS.items():
        say(line(title, in_turns(candidates(make), ROUNDS, SECONDS), FORMATS + THEIRS))
    say("\n" + head("training step", TRAINED))
    for title, learn in TRAININGS.items():
        say(line(title, in_turns(trainings(learn), ROUNDS, SECONDS), TRAINED))
    copy = bandwidth()
    say(f"\nA copy moves {copy / 1e9:.1f} GB/s.\n\n" + head("one row × weights", PRODUCT_COLUMNS))
    for outputs, inputs in PRODUCTS:
        runs, sizes = products(outputs, inputs)
        times = in_turns(runs, ROUNDS, SECONDS)
        say(line(f"{outputs} × {inputs}", times, PRODUCT_COLUMNS))
        shares = [f"{sizes[name] / statistics.median(times[name]) / copy:.2f}" for name in PRODUCT_COLUMNS]
        say(f"| bytes of weights a second ÷ a copy's | {' | '.join(shares)} |")


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks/small_numbers.md")
    parser.add_argument("--memory", action="store_true", help="measure the memory of processes, not times")
    parser.add_argument("--memory-of", nargs=2, metavar=("DECODER", "FORMAT"), help="measure that of this process")
    arguments = parser.parse_args()
    tensorgrad.set_num_threads(1)
    if arguments.memory_of:
        name, format = arguments.memory_of
        print(json.dumps(memory(DECODERS[name], format)))
        return
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    if arguments.memory:
        memories(say)
        name, title = "small_numbers_memory", "## Memory: `python -m benchmarks.small_numbers --memory`"
    else:
        import torch

        from benchmarks.overhead import facts

        torch.set_num_threads(1)
        say(facts(ROUNDS, SECONDS) + "\n")
        speeds(say)
        name, title = "small_numbers", "## Weights of 8 and 4 bits: `python -m benchmarks.small_numbers`"
    if arguments.write:
        from benchmarks.report import store

        store(name, "\n".join(lines), title)


if __name__ == "__main__":
    main()
