"""The rows to measure, as data, with one file per theme.

A row's `build(torch, **sizes)` gets the library as `torch` (PyTorch, or tensorgrad under that name) and returns two
functions without arguments: the step to time, and one that returns a list of tensors to compare between the libraries
before anything is timed. Each row is written once and runs in both libraries, on the device in `Place`.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

THEMES = {  # file in this directory -> title of its table
    "modules": "Modules",
    "layers": "Layers and losses",
    "pointwise": "Pointwise ops",
    "reductions": "Reductions, scans, sorting",
    "training": "Training steps",
    "inference": "Inference, one example",
    "data": "Loading data",
    "programs": "Programs of small tensors",
}


CUDA_THEMES = {  # the same for the tables of `benchmarks.cuda`
    "modules": "Modules",
    "training_large": "Training steps at the sizes of a GPU",
    "graphs": "Training steps of small models with a CUDA graph, torch without",
    "graphs_both": "Training steps of small models with a CUDA graph in both libraries",
    "bandwidth": "Kernels that memory bounds",
}

ECOSYSTEM_THEMES = {"libraries": "Through libraries' code"}  # the same for `--ecosystem`


class Row(NamedTuple):
    """One line of the table."""

    name: str
    build: Callable[..., tuple[Callable[[], Any], Callable[[], list]]]
    sizes: Mapping[str, Any] = MappingProxyType({})
    small: Mapping[str, Any] | None = None  # the sizes for tests, if the real ones take too long
    tolerance: float = 1e-4  # how far results may differ, relative to the largest element
    heavy: bool = False  # needs gigabytes: never in more than two processes at the same time
    is_small_model: bool = False  # its time is dominated by call overhead rather than arithmetic
    theme: str = ""
    moved: Callable[..., int] | None = None  # computes the bytes that must cross the memory bus from the sizes


def all_rows(themes: Mapping[str, str] = MappingProxyType(THEMES)) -> list[Row]:
    """Returns the rows of all themes, in the order of the report."""
    rows: list[Row] = []
    for theme in themes:
        rows += [row._replace(theme=theme) for row in importlib.import_module(f"benchmarks.rows.{theme}").ROWS]
    return rows


def named(name: str) -> Row:
    """Returns the row with a name such as "inference: MNIST ConvNet"."""
    return next(row for row in all_rows({name.partition(": ")[0]: ""}) if f"{row.theme}: {row.name}" == name)


def plain(text: str) -> str:
    """Converts a name to characters on a keyboard: `32×64→128` becomes `32x64>128`."""
    return text.lower().replace("×", "x").replace("→", ">").replace("²", "^2").replace("–", "-")


def matching(rows: list[Row], patterns: list[str]) -> list[Row]:
    """Returns the rows whose theme or name contains one of the patterns (`*` matches anything)."""
    wanted = [f"*{plain(pattern)}*" for pattern in patterns]
    return [row for row in rows if any(fnmatch.fnmatchcase(plain(f"{row.theme}: {row.name}"), each) for each in wanted)]


class Place:
    """The device of the rows' tensors and modules."""

    device = "cpu"


def placed(thing):
    """Moves a tensor or module to the current device. Modules are made on the CPU, for the same random numbers."""
    return thing.to(Place.device)


def drawn(torch, *shape: int, seed: int = 0, requires_grad: bool = False, dtype: str = "float32"):
    """Returns a tensor of normally distributed values, the same in both libraries."""
    import numpy as np

    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    made = torch.tensor(values, dtype=getattr(torch, dtype), device=Place.device)
    return made.requires_grad_() if requires_grad else made


def whole(torch, high: int, *shape: int, seed: int = 0):
    """Returns an int64 tensor of random values in [0, high), the same in both libraries."""
    import numpy as np

    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape), device=Place.device)


def forward(make: Callable) -> Callable:
    """Returns the build function of a row that calls the function of `make(torch, **sizes)` -> (function, leaves)."""

    def build(torch, **sizes):
        torch.manual_seed(0)
        function, _ = make(torch, **sizes)
        return function, lambda: [function()]

    return build


def forward_backward(make: Callable) -> Callable:
    """Like `forward`, and also computes the gradients of the leaves from a fixed gradient of the output."""

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
    """Returns two rows for `make(torch, **sizes)` -> (function, leaves): forward, and forward and backward."""
    return [
        Row(f"{name}, forward", forward(make), sizes, small, **more),
        Row(f"{name}, forward and backward", forward_backward(make), sizes, small, **more),
    ]
