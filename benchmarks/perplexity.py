"""Trains a small GPT, and measures what each format of its weights costs in perplexity.

    python -m benchmarks.perplexity --data FOLDER             prints the table
    python -m benchmarks.perplexity --data FOLDER --write     also writes it to docs/benchmarks/small_numbers.md

The model is that of examples/gpt.py, trained on nine tenths of the characters of Shakespeare's plays
(`python examples/download.py FOLDER` fetches them). The perplexity is e to the mean loss of a character, over all of
the last tenth, in pieces of the model's context: what a model would have that chose evenly among so many characters.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import tensorgrad
from benchmarks.processes import ROOT

torch: Any = tensorgrad
TEXT = "tinyshakespeare.txt"
SIZES = {"context": 64, "width": 128, "heads": 4, "layers": 2}
STEPS, BATCH, RATE, AT_A_TIME = 1000, 16, 3e-3, 64

FORMATS: dict[str, Callable[[Any], Any]] = {
    "float32": lambda model: model,
    "bfloat16": lambda model: model.bfloat16(),
    "float16": lambda model: model.half(),
    "int8": lambda model: torch.quantize(model, "int8"),
    "dynamic int8": lambda model: torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}),
    "int4, groups of 32": lambda model: torch.quantize(model, "int4", group=32),
    "int4, groups of 32 with zeros": lambda model: torch.quantize(model, "int4", group=32, symmetric=False),
    "int4, groups of 128": lambda model: torch.quantize(model, "int4", group=128),
}


def example() -> Any:
    """examples/gpt.py."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import gpt
    finally:
        sys.path.remove(str(ROOT / "examples"))
    return gpt


def read(folder: Path) -> tuple[Any, int]:
    """The text as numbers, and how many different characters it has."""
    text = (folder / TEXT).read_text(encoding="utf-8")
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text]), len(number)


def trained(tokens: Any, characters: int, steps: int, sizes: dict[str, int]) -> Any:
    """A model that has seen some batches; the learning rate rises for a tenth of the steps, then falls."""
    gpt = example()
    torch.manual_seed(0)
    model = gpt.GPT(characters, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) * 10 / steps, 1 - step / steps)
        optimizer.zero_grad()
        gpt.loss_of(model, gpt.batch_of(tokens, BATCH, sizes["context"])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def perplexity(model: Any, tokens: Any) -> float:
    """e to the mean loss of a character, over all pieces of the model's context."""
    length, total, count = model.context, 0.0, 0
    pieces = tokens[: (len(tokens) - 1) // length * length + 1]
    inputs, targets = pieces[:-1].reshape(-1, length), pieces[1:].reshape(-1, length)
    with torch.inference_mode():
        for part, wanted in zip(inputs.split(AT_A_TIME), targets.split(AT_A_TIME), strict=True):
            scores = model(part).float().flatten(0, 1)
            total += torch.nn.functional.cross_entropy(scores, wanted.flatten(), reduction="sum").item()
            count += wanted.numel()
    return math.exp(total / count)


def rows(model: Any, tokens: Any) -> list[tuple[str, float, float]]:
    """For each format its name, the kB of the model's tensors, and the perplexity."""
    found = []
    for name, change in FORMATS.items():
        changed = change(copy.deepcopy(model))
        found.append((name, size(changed) / 1024, perplexity(changed, tokens)))
    return found


def size(model: Any) -> int:
    """The bytes of the model's tensors; one that two modules share counts once."""
    held: dict[int, int] = {}
    for value in model.state_dict(keep_vars=True).values():
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                held[tensor.data_ptr()] = tensor.nbytes
    return sum(held.values())


def table(found: list[tuple[str, float, float]]) -> str:
    """The rows in Markdown, with the difference to the first."""
    first = found[0][2]
    lines = ["| weights | kB | perplexity | difference |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {kilobytes:.0f} | {value:.3f} | {value - first:+.3f} |" for name, kilobytes, value in found]
    return "\n".join(lines)


def main() -> None:
    """Trains, prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="FOLDER", type=Path, default=os.environ.get("DATA"), help="with the text")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training (%(default)s)")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/small_numbers.md")
    arguments = parser.parse_args()
    if arguments.data is None or not (Path(arguments.data) / TEXT).exists():
        print(f"skipped: there is no {TEXT}; `python examples/download.py FOLDER` fetches it, --data FOLDER names it")
        return
    tokens, characters = read(Path(arguments.data))
    split = len(tokens) * 9 // 10
    model = trained(tokens[:split], characters, arguments.steps, SIZES)
    text = table(rows(model, tokens[split:]))
    print(text)
    if arguments.write:
        from benchmarks.report import store

        store("small_numbers_perplexity", text, "## Perplexity: `python -m benchmarks.perplexity`")


if __name__ == "__main__":
    main()
