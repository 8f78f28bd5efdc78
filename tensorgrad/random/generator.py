"""Generators: PyTorch's CPU stream of random bits, number for number, on NumPy's Mersenne Twister.

Those of GPUs are in `random/philox.py`.

PyTorch's CPU generator is mt19937 seeded with Knuth's initialiser, which is NumPy's "legacy" seeding. So the same seed
gives the same 32-bit words here; `kernels/array/sample.py` turns them into the same samples. A state saved by PyTorch
(`torch.get_rng_state()`, checkpoints) can be loaded here and the other way round: the bytes are the same.

Source: M. Matsumoto and T. Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), with the 2002 initialisation.
"""

from __future__ import annotations

import os

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.storage.stubs import storage_class
from tensorgrad.system import forks

WORDS = 624  # of Mersenne Twister state
DEFAULT_SEED = 67280421310721  # what `Generator()` starts from in PyTorch

# The bytes of a saved CPU state, as PyTorch lays them out. The words of the state sit in 64-bit slots.
STATE = np.dtype(
    {
        "names": [
            "seed",
            "left",
            "seeded",
            "next",
            "words",
            "normal",
            "has_normal",
            "float_normal",
            "has_float_normal",
        ],
        "formats": ["<u8", "<i4", "<i4", "<u8", ("<u8", WORDS), "<f8", "<i4", "<f4", "u1"],
        "offsets": [0, 8, 12, 16, 24, 5024, 5040, 5048, 5052],
        "itemsize": 5056,
    }
)


def check_seed(seed) -> int:
    """A seed between 0 and 2**64 - 1. Raises: RuntimeError for what is no integer, ValueError if it is out of range."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError("Overflow when unpacking long long")
    return int(seed) % 2**64


def entropy() -> int:
    """A 64-bit seed that nobody can foretell."""
    return int.from_bytes(os.urandom(8), "little")


class Generator:
    """A stream of random bits with PyTorch's methods; the samplers take one as their first argument.

    `device` is where the samples are wanted. `Generator("cuda")` is a `PhiloxGenerator`; all others run on the host.
    `next_normal` is the second half of a Box–Muller pair that nobody has asked for yet (None: there is none); PyTorch
    keeps it in the state, so it is kept here. `next_float_normal` is its single-precision sibling: PyTorch 2.13 stores
    but never uses it.
    `lock` may be held around several draws that must not be separated; it is re-entrant.

    >>> from tensorgrad.random.generator import Generator
    >>> g = Generator().manual_seed(0)
    >>> g.random32(3).tolist()
    [2357136044, 2546248239, 3071714933]
    >>> g.initial_seed()
    0

    Raises: RuntimeError for a device that has no generator.
    """

    __slots__ = ("__weakref__", "_bits", "_seed", "_untouched", "device", "lock", "next_float_normal", "next_normal")

    def __new__(cls, device="cpu"):
        if cls is Generator and Device(device).type in CLASSES:
            storage_class(Device(device))  # raises without a GPU
            cls = CLASSES[Device(device).type]
        return object.__new__(cls)

    def __init__(self, device="cpu"):
        self.device = device if isinstance(device, Device) else Device(device)
        if self.device.type == "meta":
            raise RuntimeError("META device type not an accelerator.")
        self.lock = forks.lock(whole=True)
        self._bits = np.random.MT19937(0)
        forks.adopt(self._bits.lock)
        self._reseed(DEFAULT_SEED)

    # --- seeding -----------------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` and return the generator itself.

        Seeds run from -2**63 to 2**64 - 1; a negative one stands for `2**64 + seed`. Only its low 32 bits choose the
        stream, as in PyTorch.

        Raises: RuntimeError if `seed` is not an integer, ValueError if it is out of range.
        """
        seed = check_seed(seed)
        with self.lock:
            self._reseed(seed)
        return self

    def seed(self) -> int:
        """Start a stream that cannot be foretold and return its 64-bit seed."""
        seed = entropy()
        with self.lock:
            self._reseed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the stream was started from, between 0 and 2**64 - 1."""
        return self._seed

    def _reseed(self, seed: int) -> None:
        self._bits._legacy_seeding(seed & 0xFFFFFFFF)
        self._seed, self._untouched = seed, True
        self.next_normal: float | None = None
        self.next_float_normal: float | None = None

    # --- state -------------------------------------------------------------------------------------------------------

    def state_bytes(self) -> np.ndarray:
        """The state as PyTorch writes it: a fresh array of 5,056 bytes (uint8)."""
        record = np.zeros(1, STATE)
        with self.lock:
            state = self._bits.state["state"]
            position = int(state["pos"])
            record["seed"], record["seeded"], record["words"] = self._seed, 1, state["key"]
            # PyTorch tells "seeded, nothing drawn" (next = 0) from "all 624 words used" (next = 624); NumPy does not.
            record["left"] = WORDS + 1 - position
            record["next"] = 0 if self._untouched else position
            if self.next_normal is not None:
                record["normal"], record["has_normal"] = self.next_normal, 1
            if self.next_float_normal is not None:
                record["float_normal"], record["has_float_normal"] = self.next_float_normal, 1
        return record.view(np.uint8)

    def set_state_bytes(self, state: np.ndarray) -> None:
        """Continue from a state that `state_bytes`, or PyTorch's `Generator.get_state`, returned.

        Raises: TypeError if `state` is not an array of uint8; RuntimeError if its size or contents cannot be a state.
        """
        if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != STATE.itemsize:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {STATE.itemsize} but found the input RNG state size to be "
                f"{state.size}"
            )
        record = np.ascontiguousarray(state).reshape(-1).view(STATE)[0]
        left, following = int(record["left"]), int(record["next"])
        untouched = left == 1 and following == 0
        # `left` counts down as `next` counts up; a pair that does not belong together was not written by a generator.
        if record["seeded"] != 1 or not (untouched or (1 <= following <= WORDS and left == WORDS + 1 - following)):
            raise RuntimeError("Invalid mt19937 state")
        with self.lock:
            self._set_words(record["words"].astype(np.uint32), WORDS if untouched else following)
            self._seed, self._untouched = int(record["seed"]), untouched
            self.next_normal = float(record["normal"]) if record["has_normal"] else None
            self.next_float_normal = float(record["float_normal"]) if record["has_float_normal"] else None

    def _set_words(self, words: np.ndarray, position: int) -> None:
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}

    def clone_state(self) -> Generator:
        """A new generator that continues the stream from here on its own."""
        twin = type(self)(self.device)
        twin.set_state_bytes(self.state_bytes())
        return twin

    def get_offset(self) -> int:
        """Raises RuntimeError: only counter-based generators have an offset."""
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> None:
        """Raises RuntimeError: only counter-based generators have an offset."""
        raise RuntimeError("CPU Generator does not use offset")

    def __reduce__(self):
        return Generator, (self.device,), (self.initial_seed(), None, self.get_state())  # type: ignore[attr-defined]

    def __setstate__(self, state) -> None:
        self.set_state(state[2])  # type: ignore[attr-defined]

    # --- draws -------------------------------------------------------------------------------------------------------

    def words(self, n: int) -> np.ndarray:
        """The next `n` 32-bit words, each in the low half of a uint64: a fresh array that the caller may overwrite.

        The fastest form, since it is what NumPy hands out.
        """
        with self.lock:
            if n > 0:
                self._untouched = False
            return self._bits.random_raw(n)

    def random32(self, n: int) -> np.ndarray:
        """The next `n` words as uint32."""
        return self.words(n).astype(np.uint32)

    def random64(self, n: int) -> np.ndarray:
        """The next `n` 64-bit numbers (uint64), each from two words, the first word on top."""
        pairs = self.words(2 * n)
        numbers = pairs[0::2] << np.uint64(32)
        numbers |= pairs[1::2]
        return numbers

    def skip(self, n: int) -> None:
        """Pass over the next `n` words."""
        with self.lock:
            if n > 0:
                self._untouched = False
                self._bits.random_raw(n, output=False)

    def mark(self):
        """The place in the stream, for `rewind`. It leaves `next_normal` alone."""
        return self._bits.state, self._untouched

    def rewind(self, mark) -> None:
        """Go back to a place that `mark` returned."""
        with self.lock:
            self._bits.state, self._untouched = mark


CLASSES: dict[str, type[Generator]] = {}  # device type -> its generators; what is not in it draws on the host

default_generator = Generator()
default_generator.seed()
