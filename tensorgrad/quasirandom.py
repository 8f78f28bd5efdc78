"""`torch.quasirandom`: points that fill a cube more evenly than random ones."""

from __future__ import annotations

import numpy as np

import tensorgrad as torch
from tensorgrad.tensor import Tensor

__all__ = ["SobolEngine"]


class SobolEngine:
    """The Sobol sequence in [0, 1)ⁿ, a low-discrepancy sequence with exactly PyTorch's points.

    Args:
        dimension: The dimension of the cube, from 1 to 21201.
        scramble: Shift and permute the points at random, which keeps them as even and takes them off the grid.
        seed: The seed of the scrambling; by default drawn from the default generator.

    Raises:
        ValueError: If the dimension is out of range.
        ImportError: Without SciPy, which provides the table of direction numbers (S. Joe and F. Y. Kuo, 2008).

    >>> points = torch.quasirandom.SobolEngine(2)  # needs the package scipy
    >>> points.draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], but got {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = torch.from_numpy(_directions(dimension, self.MAXBIT))
        self.shift = torch.zeros(dimension, dtype=torch.int64, device="cpu")
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Returns the next `n` points, of shape (n, dimension), in the default dtype unless another is given.

        Raises:
            NotImplementedError: Unless the dtype is float32 or float64.
        """
        dtype = dtype or torch.get_default_dtype()
        if dtype not in (torch.float32, torch.float64):
            raise NotImplementedError(f"SobolEngine.draw: points of float32 and float64 only, but got {dtype}")
        points = self._at(self.num_generated, n)
        made = points.to(dtype) * 2.0**-self.MAXBIT
        if self.num_generated == 0 and n:
            made[0] = points[0] / 2**self.MAXBIT  # PyTorch computes the first point in the default dtype, then casts
        if n:
            self.quasi = points[-1]
        self.num_generated += n
        return made if out is None else out.resize_as_(made).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Returns the next 2ᵐ points. The points are balanced only if the total is a power of 2.

        Raises:
            ValueError: If it is not a power of 2.
        """
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points "
                f"have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do "
                "this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Returns to the first point."""
        self.quasi, self.num_generated = self.shift.clone(), 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skips `n` points."""
        self.num_generated += n
        if self.num_generated:
            self.quasi = self._at(self.num_generated - 1, 1)[0]
        return self

    def _at(self, start: int, n: int) -> Tensor:
        """`n` consecutive points starting at index `start`, as integers: each is the XOR of the directions that the
        Gray code of its index selects."""
        number = np.arange(start, start + n)
        code = number ^ (number >> 1)
        points = np.repeat(self.shift.numpy()[None], n, 0)
        for bit, direction in enumerate(self.sobolstate.numpy().T):
            points ^= (code >> bit & 1)[:, None] * direction
        return torch.from_numpy(points)

    def _scramble(self) -> None:
        """Draws a random shift, and replaces the directions' bits by random sums with the bits above."""
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        bits = self.MAXBIT
        drawn = torch.randint(2, (self.dimension, bits), device="cpu", generator=generator)
        self.shift = (drawn << torch.arange(bits)).sum(1)
        mixing = torch.randint(2, (self.dimension, bits, bits), device="cpu", generator=generator).tril()
        mixing.diagonal(0, 1, 2).fill_(1)
        shift = torch.arange(bits - 1, -1, -1)
        high_first = (self.sobolstate[..., None] >> shift & 1).float()
        mixed = (high_first @ mixing.float().transpose(1, 2)).long() & 1
        self.sobolstate = (mixed << shift).sum(-1)

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        parts += ["scramble=True"] if self.scramble else []
        parts += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(parts)})"


def _directions(dimension: int, bits: int) -> np.ndarray:
    """The direction numbers, of shape (dimension, bits). Raises: ImportError without SciPy."""
    try:
        from scipy.stats import qmc
    except ImportError:
        raise ImportError("torch.quasirandom.SobolEngine needs the package scipy: pip install scipy") from None
    return qmc.Sobol(dimension, scramble=False, bits=bits)._sv.astype(np.int64)
