"""What is measured: rows as data, one file a theme.

A row's `build(torch, **sizes)` gets the library as `torch` (PyTorch, or tensorgrad under that name) and returns two
functions without arguments: the step to time, and one that gives a list of tensors by which the libraries are compared
before anything is timed. It is written once and runs in both, on the device that `Place` names.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

THEMES = {  # file of this folder -> title of its table
    "modules": "Modules",
    "layers": "Layers and losses",
    "pointwise": "Pointwise ops",
    "reductions": "Reductions, scans, sorting",
    "training": "Training steps",
    "inference": "Inference, one example",
    "data": "Loading data",
}


CUDA_THEMES = {  # the same for the tables of `benchmarks.cuda`
    "modules": "Modules",
    "training_large": "Training steps at the sizes of a GPU",
    "bandwidth": "Kernels that memory bounds",
}


class Row(NamedTuple):
    """One line of the table."""

    name: str
    build: Callable[..., tuple[Callable[[], Any], Callable[[], list]]]
    sizes: Mapping[str, Any] = MappingProxyType({})
    small: Mapping[str, Any] | None = None  # the sizes that tests use, where the real ones take too long
    tolerance: float = 1e-4  # how far results may differ, relative to the largest element
    heavy: bool = False  # takes gigabytes: never in more than two processes at once
    is_small_model: bool = False  # its time is the call path's, not the arithmetic's
    theme: str = ""
    moved: Callable[..., int] | None = None  # the bytes that must cross the memory's bus, from the sizes


def all_rows(themes: Mapping[str, str] = MappingProxyType(THEMES)) -> list[Row]:
    """The rows of every theme, in the order of the report."""
    rows: list[Row] = []
    for theme in themes:
        rows += [row._replace(theme=theme) for row in importlib.import_module(f"benchmarks.rows.{theme}").ROWS]
    return rows


def plain(text: str) -> str:
    """A name as a keyboard writes it: `32×64→128` becomes `32x64>128`."""
    return text.lower().replace("×", "x").replace("→", ">").replace("²", "^2").replace("–", "-")


def matching(rows: list[Row], patterns: list[str]) -> list[Row]:
    """The rows whose theme or name contains one of the patterns (`*` stands for anything)."""
    wanted = [f"*{plain(pattern)}*" for pattern in patterns]
    return [row for row in rows if any(fnmatch.fnmatchcase(plain(f"{row.theme}: {row.name}"), each) for each in wanted)]


class Place:
    """Where the rows' tensors and modules are."""

    device = "cpu"


def placed(thing):
    """A tensor or a module on the device at hand. Modules are made on the CPU, whose random numbers both share."""
    return thing.to(Place.device)


def drawn(torch, *shape: int, seed: int = 0, requires_grad: bool = False, dtype: str = "float32"):
    """A tensor of normal numbers, the same in both libraries."""
    import numpy as np

    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    made = torch.tensor(values, dtype=getattr(torch, dtype), device=Place.device)
    return made.requires_grad_() if requires_grad else made


def whole(torch, high: int, *shape: int, seed: int = 0):
    """An int64 tensor of numbers from 0 below `high`, the same in both libraries."""
    import numpy as np

    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape), device=Place.device)


def forward(make: Callable) -> Callable:
    """The build function of a row that computes the output of `make(torch, **sizes)` -> (function, leaves)."""

    def build(torch, **sizes):
        torch.manual_seed(0)
        function, _ = make(torch, **sizes)
        return function, lambda: [function()]

    return build


def forward_backward(make: Callable) -> Callable:
    """Likewise, and the gradients of the leaves from a fixed gradient of the output."""

    def build(torch, **sizes):
        torch.manual_seed(0)
        function, leaves = make(torch, **sizes)
        output = function()
        gradient = drawn(torch, *output.shape, seed=1).to(output.dtype)
        del output

        def step():
            for leaf in leaves:
                leaf.grad = None
            output = function()
            output.backward(gradient)
            return output

        def results():
            output = step()
            return [output, *(leaf.grad for leaf in leaves)]

        return step, results

    return build


def both(name: str, make: Callable, sizes: dict, small: dict | None = None, **more) -> list[Row]:
    """Two rows, forward, and forward and backward, of `make(torch, **sizes)` -> (function, leaves)."""
    return [
        Row(f"{name}, forward", forward(make), sizes, small, **more),
        Row(f"{name}, forward and backward", forward_backward(make), sizes, small, **more),
    ]
