"""Measures models with weights of 8 and 4 bits beside float32, bfloat16 and PyTorch's dynamic quantization.

python -m benchmarks.small_numbers             prints the table
python -m benchmarks.small_numbers --write     also writes it to docs/benchmarks/small_numbers.md

A decoder like Llama's (random weights) computes one token after a cache of 128; a perceptron and an LSTM run on one
example. One thread, processor time; all candidates of a row alternate in one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import torch
import torch.ao.quantization

import tensorgrad
from benchmarks.overhead import facts
from benchmarks.report import store
from benchmarks.worker import settle

ROUNDS, SECONDS, CACHED = 5, 0.1, 128
DECODERS = {
    "Llama-like, 15 M": (288, 6, 6, 768),
    "Llama-like, 110 M": (768, 12, 12, 2048),
}  # width, layers, heads, hidden
VOCABULARY = 32000


def decoder(lib: Any, width: int, layers: int, heads: int, hidden: int) -> tuple[Any, tuple]:
    """A decoder of one token, and the token."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(hidden, width, bias=False)
            for name in ("keys", "values"):
                self.register_buffer(name, lib.randn(1, heads, CACHED, width // heads))

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            q, k, v = (f(y).reshape(1, heads, 1, width // heads) for f in (self.q, self.k, self.v))
            self.keys[:, :, -1:], self.values[:, :, -1:] = k, v
            seen = nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
            x = x + self.o(seen.reshape(1, 1, width))
            y = self.between(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)

        def forward(self, token: Any) -> Any:
            return self.head(self.norm(self.blocks(self.embedding(token))))

    return Decoder(), (lib.tensor([[7]]),)


def perceptron(lib: Any) -> tuple[Any, tuple]:
    """Three layers of 1024, and one example."""
    nn = lib.nn
    layers = nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    return nn.Sequential(*layers), (lib.randn(1, 784),)


def recurrent(lib: Any) -> tuple[Any, tuple]:
    """An LSTM, and 32 steps of one example."""
    return lib.nn.Sequential(lib.nn.LSTM(128, 256)), (lib.randn(32, 1, 128),)


MODELS: dict[str, Callable[[Any], tuple[Any, tuple]]] = {
    **{name: (lambda lib, sizes=sizes: decoder(lib, *sizes)) for name, sizes in DECODERS.items()},
    "perceptron, batch 1": perceptron,
    "LSTM, 32 steps, batch 1": recurrent,
}
COLUMNS = ("float32", "int8", "int4", "dynamic int8", "torch", "torch bfloat16", "torch dynamic int8")


def candidate(name: str, make: Callable[[Any], tuple[Any, tuple]]) -> Callable[[], Any] | None:
    """A function that runs the model in this way; None where there is nothing to be quantized."""
    lib: Any = torch if name.startswith("torch") else tensorgrad
    lib.manual_seed(0)
    model, given = make(lib)
    model.eval()
    if name in ("int8", "int4"):
        if not any(isinstance(module, lib.nn.Linear) for module in model.modules()):
            return None
        lib.quantize(model, name, **({"group": 32} if name == "int4" else {}))
    elif name.endswith("dynamic int8"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lib.ao.quantization.quantize_dynamic(model)
    elif name == "torch bfloat16":
        model = model.bfloat16()
        given = tuple(x.bfloat16() if x.is_floating_point() else x for x in given)

    def step() -> Any:
        with lib.no_grad():
            return model(*given)

    return step


def measured(make: Callable[[Any], tuple[Any, tuple]]) -> dict[str, float | None]:
    """The median milliseconds of each candidate."""
    steps = {name: candidate(name, make) for name in COLUMNS}
    runs = {name: step for name, step in steps.items() if step is not None}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for step in runs.values():
        settle(step)
    for _ in range(ROUNDS):
        for name, step in runs.items():
            step()
            start, count = time.thread_time(), 0
            while time.thread_time() - start < SECONDS:
                step()
                count += 1
            times[name].append((time.thread_time() - start) / count * 1e3)
    return {name: statistics.median(times[name]) if name in times else None for name in COLUMNS}


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/small_numbers.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    lines = [facts(ROUNDS, SECONDS) + "; processor time", ""]
    lines += [
        f"| ms | {' | '.join(COLUMNS)} | float32 ÷ int8 | float32 ÷ int4 |",
        "|---|" + "---:|" * (len(COLUMNS) + 2),
    ]
    for name, make in MODELS.items():
        found = measured(make)
        cells = [name, *("–" if ms is None else f"{ms:.2f}" for ms in found.values())]
        base = found["float32"] or 0.0
        cells += ["–" if ms is None else f"{base / ms:.2f}" for ms in (found["int8"], found["int4"])]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if arguments.write:
        store("small_numbers", "\n".join(lines), "## Weights of 8 and 4 bits: `python -m benchmarks.small_numbers`")


if __name__ == "__main__":
    main()
