"""A case: a call of a public function as text, its arrays, and how it is run. Its repr recreates it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import inf, nan, prod

import numpy as np

import tensorgrad as torch

GUARD = 16  # NaN elements around each array (and in its gaps), so that reading them shows in the results
LAYOUTS = ("plain", "odd", "read-only", "transposed", "channels last", "sliced", "spaced", "expanded", "all expanded")
SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1e-45, -1e-38, 88.7, -103.9, 3e38, -3e38, 1.0, -0.5, 20.0, 0.5, -1.0)
FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True)
class Array:
    """How an array is made; integers are in [`low`, `high`)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "plain"
    values: str = "normal"
    seed: int = 0
    grad: bool = True
    low: int = 0
    high: int = 2

    def numbers(self) -> np.ndarray:
        """Returns its values."""
        rng = np.random.default_rng(self.seed)
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.5
        if self.dtype not in FLOATS:
            if self.values == "sorted":
                return np.sort(rng.integers(self.low, self.high, self.shape, np.int64)).astype(self.dtype)
            return rng.integers(self.low, self.high, self.shape, np.int64).astype(self.dtype)
        if self.values == "ones":
            made = np.ones(self.shape)
        elif self.values == "whole":
            made = rng.integers(-3, 4, self.shape).astype(float)
        elif self.values == "special":
            made = rng.standard_normal(self.shape)
            made[rng.random(self.shape) < 0.3] = SPECIAL[int(rng.integers(len(SPECIAL)))]
            made[rng.random(self.shape) < 0.1] = SPECIAL[int(rng.integers(len(SPECIAL)))]
        elif self.values == "infinite":
            made = rng.standard_normal(self.shape)
            made[rng.random(self.shape) < 0.1] = SPECIAL[int(rng.integers(3))]
        elif self.values == "positive":
            made = rng.random(self.shape) + 0.1
        elif self.values == "small":
            made = 0.3 * rng.standard_normal(self.shape)
        elif self.values == "far":
            made = 100 + rng.standard_normal(self.shape)
        else:
            made = rng.standard_normal(self.shape)
        with np.errstate(over="ignore"):
            return np.asarray(made, "float16" if self.dtype == "float16" else "float32")

    def strides(self) -> tuple[int, ...]:
        """Returns the strides, in elements."""
        order = list(range(len(self.shape)))
        if self.layout == "transposed":
            order.reverse()
        elif self.layout == "channels last" and len(order) > 2:
            order = [0, *order[2:], 1]
        step, found = (2 if self.layout == "sliced" else 1), [0] * len(order)
        for d in reversed(order):
            found[d] = step
            step *= max(self.shape[d], 1) + (3 if self.layout == "spaced" else 0)
        if self.layout == "all expanded":
            return (0,) * len(order)
        if self.layout == "expanded" and order:
            found[self.seed % len(order)] = 0
        return tuple(found)

    def make(self, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the tensor, and the memory around it."""
        numbers, strides = self.numbers(), self.strides()
        last = sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True)) if 0 not in self.shape else 0
        start = GUARD + (self.layout == "odd")
        floating = numbers.dtype.kind == "f"
        memory = np.full(start + last + 1 + GUARD, nan if floating else 0, numbers.dtype)
        if 0 not in self.shape:
            steps = [s * numbers.itemsize for s in strides]
            place = np.lib.stride_tricks.as_strided(memory[start:], self.shape, steps)
            if 0 in strides:
                index = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
                place[index] = numbers[index]
            else:
                place[...] = numbers
        wanted = getattr(torch, self.dtype)
        if self.layout == "read-only" and wanted is not torch.bfloat16:
            memory = memory.astype(self.dtype)
            memory.flags.writeable = False
        whole = torch.from_numpy(memory).to(wanted).to(device)
        tensor = whole.as_strided(self.shape, strides, start).detach()
        return (tensor.requires_grad_() if self.leaf else tensor), whole

    @property
    def leaf(self) -> bool:
        return self.grad and self.dtype in FLOATS


@dataclass(frozen=True)
class Case:
    """A call, its arrays by name, and the settings it is run with."""

    call: str
    arrays: dict[str, Array]
    gradient: str = "plain"  # the layout of the result's gradient; "" for no gradients
    backward: str = ""  # "recorded" (with a graph) or "hooked" (with hooks on saved tensors), which use other kernels
    threads: int = 1
    ways: dict[str, float] = field(default_factory=dict)  # kernel settings, as "file.name"
    seed: int = 0

    def size(self) -> int:
        """Returns the size by which cases are compared when shrinking."""
        return sum(prod(a.shape) + len(a.shape) for a in self.arrays.values()) + len(self.call)


class Draw:
    """The random choices from which families make their cases."""

    def __init__(self, seed: int, limit: int = 40, device: str = "cpu", special: tuple[str, ...] = ()):
        self.random, self.limit, self.device, self.special = random.Random(seed), limit, device, special
        self.arrays: dict[str, Array] = {}
        self.ways: dict[str, float] = {}
        self.dtype = "float32" if device == "cpu" or self.chance(0.5) else self.one(*FLOATS)
        if device == "cpu" and self.chance(0.2):
            self.dtype = self.one("float64", "float16", "float16", "bfloat16", "bfloat16")

    def one(self, *values):
        """Returns one of the values."""
        return self.random.choice(values)

    def chance(self, p: float) -> bool:
        """Returns True with this probability."""
        return self.random.random() < p

    def size(self, low: int = 1, most: int | None = None) -> int:
        """Returns the size of a dimension: mostly small, sometimes close to a multiple of the vector length."""
        most = max(low, min(self.limit, self.limit if most is None else most))
        drawn = self.random.choice((low, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, self.random.randint(0, most)))
        return max(low, min(drawn, most))

    def shape(self, dims: int, low: int = 0, most: int = 6000) -> tuple[int, ...]:
        """Returns a shape with `dims` dimensions and not too many elements."""
        low = low if self.chance(0.1) else max(low, 1)
        found: list[int] = []
        for _ in range(dims):
            found.append(self.size(low, most // max(1, prod(found))))
        self.random.shuffle(found)
        return tuple(found)

    def any_shape(self) -> tuple[int, ...]:
        """Returns a shape with any number of dimensions; occasionally a long row."""
        if self.limit >= 40 and self.chance(0.08):
            return (self.random.randint(1000, 20000),)
        return self.shape(self.one(0, 1, 1, 2, 2, 3, 4, 5))

    def like(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns a shape that broadcasts to the given one."""
        made = tuple(1 if self.chance(0.3) else n for n in shape)
        return made[self.one(0, 0, 1, 2) :] if made else made

    def array(
        self, shape, dtype: str | None = None, *, values: str | None = None, layouts: tuple[str, ...] = LAYOUTS, **more
    ) -> str:
        """Adds an array to the case and returns its name.

        Options are those of `Array`; with `written`, the call writes to it. `layouts` are those that it may have.
        """
        grad, written = more.pop("grad", True), more.pop("written", False)
        layout = "plain" if self.chance(0.55) else self.one(*layouts)
        if written and layout in ("read-only", "expanded", "all expanded"):
            layout = "plain"
        dtype = dtype or self.dtype
        if values is None:
            values = "normal" if self.chance(0.6) else self.one("normal", "whole", "ones", "far", *self.special)
        name = "abcdefghijklmnopqrstuvwxyz"[len(self.arrays)]
        seed, grad = self.random.randrange(1 << 30), grad and self.chance(0.85)
        self.arrays[name] = Array(tuple(shape), dtype, layout, values, seed, grad, **more)
        return name

    def maybe(self, shape, p: float = 0.5, **more) -> str:
        """Returns an array's name, or None."""
        return self.array(shape, **more) if self.chance(p) else "None"

    def indices(self, shape, high: int, low: int = 0, **more) -> str:
        """Adds an array of int64 values in [`low`, `high`), which must not be empty."""
        return self.array(shape, self.one("int64", "int64", "int64"), low=low, high=high, **more)

    def dim(self, shape) -> int:
        """Returns one of the dimensions."""
        return self.random.randint(-len(shape), len(shape) - 1) if shape else self.one(-1, 0)

    def dims(self, shape) -> str:
        """Returns dimensions as an argument: all, one or several."""
        if not shape or self.chance(0.2):
            return "None"
        if self.chance(0.5):
            return str(self.dim(shape))
        return str(tuple(self.random.sample(range(len(shape)), self.random.randint(1, len(shape)))))
