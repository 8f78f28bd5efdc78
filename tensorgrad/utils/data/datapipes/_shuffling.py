"""What datapipes that shuffle have in common: they are switched on and off, and seeded."""

from __future__ import annotations

import random
from typing import Any

from tensorgrad.utils.data.sampler import draw_seed


class Shuffles:
    """A datapipe whose order is random."""

    _enabled = True
    _seed: int | None = None
    _rng: random.Random

    def set_shuffle(self, shuffle: bool = True) -> Any:
        """Switches shuffling on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Any:
        """Sets the seed for the next time that it is read; later ones are drawn from torch's generator."""
        self._seed = seed
        return self

    def _begin_order(self) -> None:
        """Takes the next seed."""
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None
