"""The GPU's generators: PyTorch's CUDA stream of random bits, which needs no state but two numbers.

Philox 4x32-10 is a function, not a machine: it scrambles a 128-bit counter under a 64-bit key, so that every thread of
a GPU computes its own numbers without asking anybody. PyTorch's use of it, as that of cuRAND: the key is the seed, the
upper half of the counter is the thread's number, the lower half says how many blocks of four words that thread has
had. A generator therefore is a seed and an *offset*: the number of words (a multiple of 4) that each thread of the next
kernel has to pass over. `kernels/cuda/random.py` launches the kernels; a saved state can be exchanged with PyTorch.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.random.generator import CLASSES, DEFAULT_SEED, Generator, check_seed, entropy
from tensorgrad.storage.stubs import storage_class
from tensorgrad.system import forks

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
STATE_BYTES = 16


def philox(counter, subsequence, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four words (uint32) of each place: `counter` and `subsequence` are the 64-bit halves of Philox's counter.

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


class PhiloxGenerator(Generator):
    """What `torch.Generator(device="cuda")` is: a seed, and an offset that every kernel moves on.

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
        self._seed, self._offset = seed, 0

    def take(self, count: int) -> tuple[int, int]:
        """The seed and the offset for a kernel whose threads need up to `count` words each; the next one gets others.

        Counts are rounded up to fours.
        """
        with self.lock:
            offset = self._offset
            self._offset = (offset + (count + 3) // 4 * 4) % 2**64
        return self._seed, offset

    def host(self) -> Generator:
        """A generator for samples that have no kernel: drawn on the host, by a stream that this one chooses."""
        seed, offset = self.take(4)
        low, high, _, _ = philox(offset // 4, 0, seed)
        return Generator().manual_seed(int(high) << 32 | int(low))

    def state_bytes(self) -> np.ndarray:
        """The state as PyTorch writes it: 16 bytes, the seed and the offset."""
        with self.lock:
            return np.array([self._seed, self._offset], "<u8").view(np.uint8)

    def set_state_bytes(self, state: np.ndarray) -> None:
        """Continue from a state that `state_bytes`, or PyTorch's `Generator.get_state`, returned.

        The seed alone (8 bytes) stands for the beginning of its stream.

        Raises: TypeError if `state` is not an array of uint8; RuntimeError if it cannot be a state.
        """
        if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size not in (STATE_BYTES, STATE_BYTES // 2):
            raise RuntimeError("RNG state is wrong size")
        seed, *offset = np.ascontiguousarray(state).reshape(-1).view("<u8").tolist()
        with self.lock:
            if offset:
                self.set_offset(offset[0])
            else:
                self._offset = 0
            self._seed = seed

    def get_offset(self) -> int:
        """How many words each thread has had: what the next kernel passes over."""
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Go to another place of the stream. Raises: RuntimeError unless `offset` is a multiple of 4."""
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        with self.lock:
            self._offset = int(offset)

    def _no_words(self, *args):
        raise RuntimeError("a CUDA generator has no stream of words on the host: its kernels compute their own")

    words = random32 = random64 = skip = mark = rewind = _no_words


CLASSES["cuda"] = PhiloxGenerator

# --- the default generators, one for each GPU; made when first asked for ---------------------------------------------

_defaults: dict[int, PhiloxGenerator] = {}
_lock = forks.lock()
_chance = entropy()
_seed: int | None = None  # what default generators were last seeded with, all together; None: by chance


def _first_seed(index: int) -> int:
    """What the default generator of a GPU begins with."""
    return (_chance + index * 0x9E3779B97F4A7C15) % 2**64 if _seed is None else _seed


def default(index: int) -> PhiloxGenerator:
    """The default generator of a GPU.

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
    """The number of a GPU: that of the current one where `device` names none."""
    return int(storage_class(device).xp.cuda.Device().id) if device.index is None else device.index


def seed_all(seed: int) -> None:
    """Seeds the default generators of all GPUs, those too that nobody has asked for yet.

    Raises: RuntimeError or ValueError for what is no seed.
    """
    global _seed
    with _lock:
        _seed = check_seed(seed)
        for generator in _defaults.values():
            generator.manual_seed(seed)


class Places(NamedTuple):
    """Where default generators of GPUs stand; `seed` is what others would begin with."""

    states: dict[int, np.ndarray]
    all_gpus: bool
    seed: int | None


def places(gpus=None) -> Places:
    """Where the default generators of some GPUs (their numbers; None: all) stand, for `go_to`.

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
    """Puts the default generators back where they were."""
    global _seed
    _seed = taken.seed
    for index, state in taken.states.items():
        default(index).set_state_bytes(state)
    if taken.all_gpus:
        for index in set(_defaults) - set(taken.states):  # they were made since
            _defaults[index]._reseed(_first_seed(index))


def standing_at(taken: Places) -> bool:
    """Whether none of them has moved since."""
    now = places(None if taken.all_gpus else taken.states)
    return all(
        np.array_equal(state, taken.states[index]) if index in taken.states else default(index).get_offset() == 0
        for index, state in now.states.items()
    )
