"""The GPU's generators: PyTorch's CUDA stream of random bits, whose state is just two integers.

Philox 4x32-10 is a pure function: it scrambles a 128-bit counter under a 64-bit key, so that every thread of
a GPU computes its own random values independently. PyTorch uses it like cuRAND: the key is the seed, the
upper half of the counter is the thread's index, and the lower half counts the blocks of four words that this thread
has used. A generator is therefore a seed and an *offset*: the number of words (a multiple of 4) that each thread of
the next kernel has to skip. `kernels/cuda/random.py` launches the kernels; a saved state can be exchanged with PyTorch.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.random.generator import CLASSES, DEFAULT_SEED, Generator, check_seed, entropy
from tensorgrad.storage.cuda.capture import RUNNING, current
from tensorgrad.storage.stubs import storage_class
from tensorgrad.system import forks

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
STATE_BYTES = 16


def philox(counter, subsequence, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the four words (uint32) for each counter: `counter` and `subsequence` are its lower and upper 64 bits.

    >>> from tensorgrad.random.philox import philox
    >>> [hex(word) for word in philox(0, 0, 0)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    counter, subsequence = np.broadcast_arrays(np.asarray(counter, np.uint64), np.asarray(subsequence, np.uint64))
    x, y, z, w = counter & LOW, counter >> np.uint64(32), subsequence & LOW, subsequence >> np.uint64(32)
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(ROUNDS):
        first, second = x * np.uint64(MULTIPLIERS[0]), z * np.uint64(MULTIPLIERS[1])
        x, z = (second >> np.uint64(32)) ^ y ^ np.uint64(keys[0]), (first >> np.uint64(32)) ^ w ^ np.uint64(keys[1])
        y, w = second & LOW, first & LOW
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, KEY_STEPS, strict=True)]
    return tuple(words.astype(np.uint32) for words in (x, y, z, w))


class Address(int):
    """The address of a seed and an offset in the GPU's memory, in the place of a seed: for kernels in a graph."""


class Draws:
    """The random numbers that one graph draws from one generator.

    While the graph is captured, its kernels count their offsets from 0. Before each replay, the generator's seed and
    offset are written to the GPU's memory, where the kernels read them, and the generator advances by `count`: so each
    replay draws the numbers that the same program would draw without a graph.

    Attributes:
        address: Where seed and offset are in the GPU's memory.
        count: How many words each thread needs in a replay.
    """

    def __init__(self, address: int):
        self.address, self.count = Address(address), 0

    def take(self, count: int) -> tuple[Address, int]:
        """Returns what stands for the seed, and the offset within the graph."""
        offset = self.count
        self.count += (count + 3) // 4 * 4
        return self.address, offset


class PhiloxGenerator(Generator):
    """The class of `torch.Generator(device="cuda")`: a seed, and an offset that every kernel advances.

    >>> from tensorgrad.random.philox import PhiloxGenerator
    >>> g = PhiloxGenerator("cuda:0").manual_seed(3)
    >>> g.take(6), g.get_offset()
    ((3, 0), 8)
    """

    __slots__ = ("_offset",)

    def __init__(self, device="cuda"):
        device = Device(device)
        if device.index is None:
            device = Device("cuda", index_of(device))
        self.device, self.lock = device, forks.lock(whole=True)
        self._reseed(DEFAULT_SEED)

    def _reseed(self, seed: int) -> None:
        self._check_not_captured("set_current_seed")
        self._seed, self._offset = seed, 0

    def take(self, count: int) -> tuple[int, int]:
        """Returns seed and offset for a kernel whose threads need up to `count` words each, and advances the offset.

        Counts are rounded up to multiples of four. In a graph that is being captured, the seed is an `Address`, and
        the offset counts from the graph's first draw.

        Raises: RuntimeError if a graph is captured and was not told about this generator.
        """
        if RUNNING:
            draws = self._draws()
            if draws is not None:
                return draws.take(count)
        with self.lock:
            offset = self._offset
            self._offset = (offset + (count + 3) // 4 * 4) % 2**64
        return self._seed, offset

    def _draws(self) -> Draws | None:
        """Returns the draws of the graph that the current stream is captured for. Raises: RuntimeError."""
        capture = current()
        if capture is None:
            if any(self in running.draws for running in RUNNING):
                raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
            return None
        draws = capture.draws.get(self)
        if draws is None:
            raise RuntimeError(
                "Attempt to increase offset for a CUDA generator not in capture mode. Before the capture, call "
                "CUDAGraph.register_generator_state with it."
            )
        return draws

    def _check_not_captured(self, what: str) -> None:
        if RUNNING and any(self in capture.draws for capture in RUNNING):
            raise RuntimeError(f"Cannot call CUDAGeneratorImpl::{what} during stream capture")

    def host(self) -> Generator:
        """Returns a generator for samples that have no kernel: they are drawn on the host, seeded by this stream."""
        self._check_not_captured("host")
        seed, offset = self.take(4)
        low, high, _, _ = philox(offset // 4, 0, seed)
        return Generator().manual_seed(int(high) << 32 | int(low))

    def state_bytes(self) -> np.ndarray:
        """Returns the state as PyTorch writes it: 16 bytes, the seed and the offset."""
        self._check_not_captured("get_state")
        with self.lock:
            return np.array([self._seed, self._offset], "<u8").view(np.uint8)

    def set_state_bytes(self, state: np.ndarray) -> None:
        """Continues from a state returned by `state_bytes`, or by PyTorch's `Generator.get_state`.

        The seed alone (8 bytes) means the beginning of its stream.

        Raises: TypeError if `state` is not an array of uint8; RuntimeError if it is not a valid state.
        """
        if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size not in (STATE_BYTES, STATE_BYTES // 2):
            raise RuntimeError("RNG state is wrong size")
        self._check_not_captured("set_state")
        seed, *offset = np.ascontiguousarray(state).reshape(-1).view("<u8").tolist()
        with self.lock:
            if offset:
                self.set_offset(offset[0])
            else:
                self._offset = 0
            self._seed = seed

    def get_offset(self) -> int:
        """Returns how many words each thread has used, which the next kernel skips."""
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Moves to another position in the stream. Raises: RuntimeError unless `offset` is a multiple of 4."""
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        with self.lock:
            self._offset = int(offset)

    def _no_words(self, *args):
        raise RuntimeError("a CUDA generator has no stream of words on the host: its kernels compute their own")

    words = random32 = random64 = skip = mark = rewind = _no_words


CLASSES["cuda"] = PhiloxGenerator

# --- the default generators, one for each GPU, created on first use --------------------------------------------------

_defaults: dict[int, PhiloxGenerator] = {}
_lock = forks.lock()
_entropy = entropy()
_seed: int | None = None  # the seed last set for all default generators; None: seeded from `_entropy`


def _first_seed(index: int) -> int:
    """The initial seed of a GPU's default generator."""
    return (_entropy + index * 0x9E3779B97F4A7C15) % 2**64 if _seed is None else _seed


def default(index: int) -> PhiloxGenerator:
    """Returns the default generator of a GPU.

    >>> from tensorgrad.random import philox
    >>> philox.default(0) is philox.default(0)
    True
    """
    found = _defaults.get(index)
    if found is None:
        with _lock:
            made = PhiloxGenerator(f"cuda:{index}")
            made._reseed(_first_seed(index))
            found = _defaults.setdefault(index, made)
    return found


def index_of(device: Device) -> int:
    """Returns the index of a GPU: that of the current one if `device` has none."""
    return int(storage_class(device).xp.cuda.Device().id) if device.index is None else device.index


def seed_all(seed: int) -> None:
    """Seeds the default generators of all GPUs, including those that have not been created yet.

    Raises: RuntimeError or ValueError if the seed is invalid.
    """
    global _seed
    with _lock:
        _seed = check_seed(seed)
        for generator in _defaults.values():
            generator.manual_seed(seed)


class Places(NamedTuple):
    """The states of the default generators of GPUs; `seed` is the initial one of the others."""

    states: dict[int, np.ndarray]
    all_gpus: bool
    seed: int | None


def places(gpus=None) -> Places:
    """Returns the states of the default generators of GPUs (by index; None: all), for `go_to`.

    >>> from tensorgrad.random import philox
    >>> before = philox.places([0])
    >>> _ = philox.default(0).take(4)
    >>> philox.standing_at(before)
    False
    >>> philox.go_to(before); philox.standing_at(before)
    True
    """
    states = {index: default(index).state_bytes() for index in (list(_defaults) if gpus is None else gpus)}
    return Places(states, gpus is None, _seed)


def go_to(taken: Places) -> None:
    """Restores the states of the default generators."""
    global _seed
    _seed = taken.seed
    for index, state in taken.states.items():
        default(index).set_state_bytes(state)
    if taken.all_gpus:
        for index in set(_defaults) - set(taken.states):  # created in between
            _defaults[index]._reseed(_first_seed(index))


def standing_at(taken: Places) -> bool:
    """Returns whether the generators are still in these states."""
    now = places(None if taken.all_gpus else taken.states)
    return all(
        np.array_equal(state, taken.states[index]) if index in taken.states else default(index).get_offset() == 0
        for index, state in now.states.items()
    )
