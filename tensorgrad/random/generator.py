"""Generators: the same stream of random bits as PyTorch's CPU generator, on NumPy's Mersenne Twister.

Those of GPUs are in `random/philox.py`.

PyTorch's CPU generator is mt19937 seeded with Knuth's initializer, which is NumPy's "legacy" seeding. So the same seed
produces the same 32-bit words here; `kernels/array/sample.py` turns them into the same samples. A state saved by
PyTorch (`torch.get_rng_state()`, checkpoints) can be loaded here and vice versa: the bytes are the same.

Source: M. Matsumoto and T. Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), with the 2002 initialisation.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.storage.stubs import storage_class
from tensorgrad.system import forks

# Functions (generator, what, value) called when the program has seeded a generator ("seed"), set its state ("state")
# or read it ("read"), before it takes a seed from the system ("entropy"), and before it draws numbers ("draw"), while
# something wants to know.
WATCHERS: list = []

WORDS = 624  # words in a Mersenne Twister state
DEFAULT_SEED = 67280421310721  # the initial seed of `Generator()` in PyTorch

# The layout of a saved CPU state in PyTorch. The words of the state are stored as 64-bit integers.
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
    """A seed in [0, 2**64 - 1]. Raises: RuntimeError if it is not an integer, ValueError if it is out of range."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError("Overflow when unpacking long long")
    return int(seed) % 2**64


def entropy() -> int:
    """Returns an unpredictable 64-bit seed."""
    return int.from_bytes(os.urandom(8), "little")


class Generator:
    """A stream of random bits with PyTorch's methods; samplers take one as their first argument.

    `device` is the device of the samples. `Generator("cuda")` is a `PhiloxGenerator`; all others run on the host.
    `next_normal` is the unused second half of a Box–Muller pair, or None; PyTorch keeps it in the state, so it is kept
    here. `next_float_normal` is its single-precision counterpart: PyTorch 2.13 stores but never uses it.
    `lock` may be held during several draws that must not be separated; it is re-entrant.

    >>> from tensorgrad.random.generator import Generator
    >>> g = Generator().manual_seed(0)
    >>> g.random32(3).tolist()
    [2357136044, 2546248239, 3071714933]
    >>> g.initial_seed()
    0

    Raises:
        RuntimeError: If the device has no generator.
    """

    __slots__ = (
        "__weakref__", "_bits", "_memory", "_seed", "_untouched", "device", "lock", "next_float_normal", "next_normal",
    )  # fmt: skip

    def __new__(cls, device: Device | str = "cpu") -> Any:
        if cls is Generator and Device(device).type in CLASSES:
            storage_class(Device(device))  # raises an error without a GPU
            cls = CLASSES[Device(device).type]
        return object.__new__(cls)

    def __init__(self, device: Device | str = "cpu") -> None:
        self.device = device if isinstance(device, Device) else Device(device)
        if self.device.type == "meta":
            raise RuntimeError("META device type not an accelerator.")
        if self.device.type != "cpu":
            storage_class(self.device)  # raises an error if there is no such device
        self.lock = forks.lock(whole=True)
        self._bits: Any = None
        self._memory: Any = False
        self._reseed(DEFAULT_SEED)

    # --- seeding -----------------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed` and returns the generator itself.

        Seeds range from -2**63 to 2**64 - 1; a negative one means `2**64 + seed`. As in PyTorch, only the low 32 bits
        select the stream.

        Raises:
            RuntimeError: If `seed` is not an integer.
            ValueError: If it is out of range.
        """
        seed = check_seed(seed)
        with self.lock:
            self._reseed(seed)
        for watch in WATCHERS:
            watch(self, "seed", seed)
        return self

    def seed(self) -> int:
        """Starts an unpredictable stream and returns its 64-bit seed."""
        for watch in WATCHERS:
            watch(self, "entropy", None)
        seed = entropy()
        with self.lock:
            self._reseed(seed)
        return seed

    def initial_seed(self) -> int:
        """Returns the seed of the stream, between 0 and 2**64 - 1."""
        return self._seed

    def _twister(self) -> Any:
        """NumPy's generator, made when first needed: importing numpy.random would be a tenth of the whole import."""
        with self.lock:
            if self._bits is None:
                bits = np.random.MT19937(0)
                forks.adopt(bits.lock)
                bits._legacy_seeding(self._seed & 0xFFFFFFFF)
                self._bits = bits
            return self._bits

    def _reseed(self, seed: int) -> None:
        if self._bits is not None:
            self._bits._legacy_seeding(seed & 0xFFFFFFFF)
        self._seed, self._untouched = seed, True
        self.next_normal: float | None = None
        self.next_float_normal: float | None = None

    # --- state -------------------------------------------------------------------------------------------------------

    def state_bytes(self) -> np.ndarray:
        """Returns the state as PyTorch writes it: a new array of 5,056 bytes (uint8)."""
        record = np.zeros(1, STATE)
        with self.lock:
            memory = self._words_in_place()
            if memory is None:
                state = self._twister().state["state"]
                words, position = state["key"], int(state["pos"])
            else:
                words, position = memory[:WORDS], int(memory[WORDS])
            record["seed"], record["seeded"], record["words"] = self._seed, 1, words
            # Unlike NumPy, PyTorch distinguishes "nothing drawn yet" (next = 0) from "all 624 words used" (next = 624).
            record["left"] = WORDS + 1 - position
            record["next"] = 0 if self._untouched else position
            if self.next_normal is not None:
                record["normal"], record["has_normal"] = self.next_normal, 1
            if self.next_float_normal is not None:
                record["float_normal"], record["has_float_normal"] = self.next_float_normal, 1
        for watch in WATCHERS:
            watch(self, "read", record)
        return record.view(np.uint8)

    def memory(self) -> np.ndarray | None:
        """Returns the 624 words of the state and the position in them, in NumPy's own memory; None if not found.

        (NumPy's `state` takes 0.1 ms.)
        """
        for watch in WATCHERS:
            watch(self, "draw", None)
        return self._words_in_place()

    def _words_in_place(self) -> np.ndarray | None:
        if self._memory is False:
            bits = self._twister()
            try:
                import ctypes

                words: Any = (ctypes.c_uint32 * (WORDS + 1)).from_address(bits.ctypes.state_address)
            except (ImportError, AttributeError, OSError):  # as in WebAssembly
                self._memory = None
                return None
            memory, known = np.ctypeslib.as_array(words), bits.state["state"]
            found = (memory[:WORDS] == known["key"]).all() and int(memory[WORDS]) == known["pos"]
            self._memory = memory if found else None
        return self._memory

    def set_state_bytes(self, state: np.ndarray) -> None:
        """Continues from a state returned by `state_bytes`, or by PyTorch's `Generator.get_state`.

        Raises:
            TypeError: If `state` is not an array of uint8.
            RuntimeError: If it is not a valid state.
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
        # `left` counts down as `next` counts up; an inconsistent pair was not written by a generator.
        if record["seeded"] != 1 or not (untouched or (1 <= following <= WORDS and left == WORDS + 1 - following)):
            raise RuntimeError("Invalid mt19937 state")
        with self.lock:
            self._set_words(record["words"].astype(np.uint32), WORDS if untouched else following)
            self._seed, self._untouched = int(record["seed"]), untouched
            self.next_normal = float(record["normal"]) if record["has_normal"] else None
            self.next_float_normal = float(record["float_normal"]) if record["has_float_normal"] else None
        for watch in WATCHERS:
            watch(self, "state", state)

    def _set_words(self, words: np.ndarray, position: int) -> None:
        self._twister().state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}

    def clone_state(self) -> Generator:
        """Returns a new generator that continues the stream from here independently."""
        clone = type(self)(self.device)
        clone.set_state_bytes(self.state_bytes())
        return clone

    def get_offset(self) -> int:
        """Not supported: only counter-based generators have an offset.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> None:
        """Not supported: only counter-based generators have an offset.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("CPU Generator does not use offset")

    def __reduce__(self):
        return Generator, (self.device,), (self.initial_seed(), None, self.get_state())  # type: ignore[attr-defined]

    def __setstate__(self, state) -> None:
        self.set_state(state[2])  # type: ignore[attr-defined]

    # --- draws -------------------------------------------------------------------------------------------------------

    def words(self, n: int) -> np.ndarray:
        """Returns the next `n` 32-bit words, each in the low half of a uint64: a new array that the caller may modify.

        The fastest form, since it is what NumPy returns.
        """
        for watch in WATCHERS:
            watch(self, "draw", None)
        with self.lock:
            if n > 0:
                self._untouched = False
            return (self._bits or self._twister()).random_raw(n)

    def random32(self, n: int) -> np.ndarray:
        """Returns the next `n` words as uint32."""
        return self.words(n).astype(np.uint32)

    def random64(self, n: int) -> np.ndarray:
        """Returns the next `n` 64-bit integers (uint64), each from two words, the first as the upper half."""
        pairs = self.words(2 * n)
        numbers = pairs[0::2] << np.uint64(32)
        numbers |= pairs[1::2]
        return numbers

    def skip(self, n: int) -> None:
        """Skips the next `n` words."""
        with self.lock:
            if n > 0:
                self._untouched = False
                (self._bits or self._twister()).random_raw(n, output=False)

    def mark(self):
        """Returns the position in the stream, for `rewind`. Does not include `next_normal`."""
        return self._twister().state, self._untouched

    def rewind(self, mark) -> None:
        """Returns to a position that `mark` returned."""
        with self.lock:
            self._twister().state, self._untouched = mark


CLASSES: dict[str, type[Generator]] = {}  # device type -> its generator class; other devices use the host's

default_generator = Generator()
default_generator.seed()
