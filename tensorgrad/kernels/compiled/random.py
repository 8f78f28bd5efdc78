"""Uniform numbers and dropout masks, drawn from PyTorch's stream of random bits.

The stream is that of the Mersenne Twister (`random/generator.py`). NumPy returns its words one by one; here a block of
them is generated and used with vector instructions. The results and the generator's final state are the same.

Source: M. Matsumoto and T. Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.runtime.language import inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import plain
from tensorgrad.random.generator import WORDS

_LAG = 397
_U = np.uint32
_UPPER, _LOWER, MATRIX = _U(0x80000000), _U(0x7FFFFFFF), _U(0x9908B0DF)
_B, _C = _U(0x9D2C5680), _U(0xEFC60000)
_ONE, _S7, _S11, _S15, _S18 = _U(1), _U(7), _U(11), _U(15), _U(18)
_TOP, _HALF = np.uint64(0x1FFFFF), np.uint64(32)  # 53 of 64 bits count, the first word's on top
_LOW_24 = _U(0xFFFFFF)
_BLOCK = 2048  # draws at a time


@inlined
def _twisted(here, after, far):
    y = _U(_U(here & _UPPER) | _U(after & _LOWER))
    return _U(far ^ _U(y >> _ONE) ^ _U(_U(_U(0) - _U(y & _ONE)) & MATRIX))


@inner
def _twist(key):
    """Computes the next 624 words of the state."""
    for i in range(WORDS - _LAG):
        key[i] = _twisted(key[i], key[i + 1], key[i + _LAG])
    for i in range(WORDS - _LAG, WORDS - 1):
        key[i] = _twisted(key[i], key[i + 1], key[i + _LAG - WORDS])
    key[WORDS - 1] = _twisted(key[WORDS - 1], key[0], key[_LAG - 1])


@inner
def _temper(words, out):
    for i in range(out.size):
        y = words[i]
        y = _U(y ^ _U(y >> _S11))
        y = _U(y ^ _U(_U(y << _S7) & _B))
        y = _U(y ^ _U(_U(y << _S15) & _C))
        out[i] = _U(y ^ _U(y >> _S18))


@inner
def _draw(state, words):
    """Fills an array with the next words of the stream."""
    key, at, have = state[:WORDS], int(state[WORDS]), 0
    while have < words.size:
        if at == WORDS:
            _twist(key)
            at = 0
        n = min(WORDS - at, words.size - have)
        _temper(key[at : at + n], words[have : have + n])
        at += n
        have += n
    state[WORDS] = np.uint32(at)


@inner
def _compare(pairs, limit, value, out):
    for i in range(out.size):
        pair = pairs[i]
        number = np.uint64(np.uint64(np.uint64(pair & _TOP) << _HALF) | np.uint64(pair >> _HALF))
        out[i] = value if number < limit else F(0.0)


@inner
def _scale(words, factor, term, out):
    for i in range(out.size):
        out[i] = F(np.float64(np.int32(words[i] & _LOW_24)) * factor + term)


def _uniform() -> Callable:
    @plain("void(uint32[::1], float64, float64, float32[::1])")
    def spread(state, factor, term, out):
        words = np.empty(_BLOCK, np.uint32)
        for start in range(0, out.size, _BLOCK):
            end = min(start + _BLOCK, out.size)
            _draw(state, words[: end - start])
            _scale(words, factor, term, out[start:end])

    def kernel(gen, factor, term, out):
        """Fills `out` with the low 24 bits of a word each, times `factor`, plus `term`, in float64, rounded once."""
        with gen.lock:
            state = gen.memory()
            if state is None:
                return NotImplemented
            gen._untouched = gen._untouched and not out.size
            spread(state, factor, term, out)
        return out

    return kernel


def _mask() -> Callable:
    @plain("void(uint32[::1], uint64, float32, float32[::1])")
    def toss(state, limit, value, out):
        words = np.empty(2 * _BLOCK, np.uint32)
        for start in range(0, out.size, _BLOCK):
            end = min(start + _BLOCK, out.size)
            drawn = words[: 2 * (end - start)]
            _draw(state, drawn)
            _compare(drawn.view(np.uint64), limit, value, out[start:end])

    def kernel(gen, limit, value, out):
        """Fills `out` with `value` where a number of 53 random bits is below `limit`, with 0 elsewhere."""
        if out.dtype is not F32 or not out.flags.c_contiguous:
            return NotImplemented
        with gen.lock:
            state = gen.memory()
            if state is None:
                return NotImplemented
            gen._untouched = gen._untouched and not out.size
            toss(state, limit, value, out.reshape(-1))
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"uniform": _uniform, "mask": _mask}
