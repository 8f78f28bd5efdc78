"""Random numbers on the GPU: PyTorch's CUDA samples, number for number, from the same state of a `PhiloxGenerator`.

The samplers have the names of those in `kernels/array/sample.py`: they take the generator, a shape and a NumPy dtype,
and return a new C-contiguous array; if `out` is given, a contiguous array of that shape and dtype, they fill it.

PyTorch launches threads in blocks of 256, as many as a GPU can run at the same time if there are enough elements, so
the numbers of a large tensor depend on the GPU's number of multiprocessors, there as here. Uniform and Bernoulli
samples, integers, dropout masks and permutations are equal. Samples that involve a logarithm, a sine, a tangent or an
exponential use the GPU's approximate functions where PyTorch does, and may differ as far as two compilers do. Not
matched: tensors of 2**29 elements and more, which PyTorch draws in pieces; draws by weights (`multinomial` with
replacement) so close to a boundary that the order of a sum decides; Poisson, binomial, gamma and Dirichlet samples
(`sources/rejection.cu`), which are drawn by other methods here.
"""

from __future__ import annotations

import math
from functools import cache

import cupy
import numpy as np

from tensorgrad.kernels.array.sample import DIGITS, integer_range
from tensorgrad.kernels.cuda.runtime import bounds, program
from tensorgrad.random.philox import Address

THREADS = 256
FILLED = program.FLOATING + program.WHOLE  # dtypes that kernels write; others are cast


@cache
def _most_blocks(device: int) -> int:
    """Returns how many blocks of 256 threads a GPU runs at the same time."""
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    return properties["multiProcessorCount"] * (properties["maxThreadsPerMultiProcessor"] // THREADS)


def policy(gen, n: int, each: int = 4) -> tuple[int, int]:
    """Returns how PyTorch draws n numbers, `each` of them from four words: (blocks, words each thread advances by)."""
    blocks = min(_most_blocks(gen.device.index), (n + THREADS - 1) // THREADS)
    return blocks, ((n - 1) // (THREADS * blocks * each) + 1) * 4


_CAPTURED: dict = {"CAPTURED": 1}
_PLAIN: dict = {}


def _settings(seed: int) -> dict:
    """Returns the settings of programs that draw: in a graph, seed and offset are read from memory."""
    return _CAPTURED if seed.__class__ is Address else _PLAIN


def begin(address: int, seed: int, offset: int) -> None:
    """Writes to the GPU's memory where the random numbers of a graph begin, before it is replayed."""
    program.function("random", "begin")((1,), (1,), (np.uint64(address), np.uint64(seed), np.uint64(offset)))


def _real(dtype: np.dtype) -> type:
    """Returns the C type in which samples of a dtype are computed."""
    return np.float64 if program.NAME[dtype] == "float64" else np.float32


def _fill(name: str, gen, shape, dtype: np.dtype, *params, each: int = 0, out=None):
    """Fills an array with a kernel: `each` numbers come from four words (0: two for double, four for all others)."""
    with cupy.cuda.Device(gen.device.index):
        out = cupy.empty(shape, dtype) if out is None else out
        n = out.size
        if n:
            blocks, count = policy(gen, n, each or (2 if program.NAME[dtype] == "float64" else 4))
            seed, offset = gen.take(count)
            launch = program.function("random", name, program.NAME[dtype], **_settings(seed))
            launch((blocks,), (THREADS,), (out, np.int64(n), np.uint64(seed), np.uint64(offset), *params))
    return out


def _stored(made, out):
    """Returns `made`, or `out` with its values."""
    if out is None:
        return made
    out[...] = made
    return out


def _complex(sampler, gen, shape, dtype: np.dtype, *args):
    parts = np.dtype("float32" if dtype.itemsize == 8 else "float64")
    return sampler(gen, (*shape, 2), parts, *args).view(dtype).reshape(shape)


def uniform(gen, shape, dtype: np.dtype, low: float = 0.0, high: float = 1.0, out=None):
    """Draws uniform samples in [low, high)."""
    if dtype.kind == "c":
        return _stored(_complex(uniform, gen, shape, dtype, low, high), out)
    real = _real(dtype)
    with np.errstate(all="ignore"):
        least, most = dtype.type(low), dtype.type(high)
        extent = dtype.type(most - least)
    return _fill("uniform", gen, shape, dtype, real(least), real(most), real(extent), out=out)


def normal(gen, shape, dtype: np.dtype, mean: float = 0.0, std: float = 1.0, out=None):
    """Draws normal samples. Complex dtypes split the variance between real and imaginary part."""
    if dtype.kind == "c":
        return _stored(_complex(normal, gen, shape, dtype, mean, std / math.sqrt(2)), out)
    real = _real(dtype)
    return _fill("normal", gen, shape, dtype, real(mean), real(std), out=out)


def log_normal(gen, shape, dtype: np.dtype, mean: float = 1.0, std: float = 2.0, out=None):
    """Draws exponentials of normal samples."""
    real = _real(dtype)
    return _fill("log_normal", gen, shape, dtype, real(mean), real(std), out=out)


def exponential(gen, shape, dtype: np.dtype, lambd: float = 1.0, out=None):
    """Draws exponential samples with rate `lambd`: -log(u) / lambd."""
    return _fill("exponential", gen, shape, dtype, _real(dtype)(lambd), out=out)


def cauchy(gen, shape, dtype: np.dtype, median: float = 0.0, sigma: float = 1.0, out=None):
    """Draws Cauchy samples: median + sigma * tan(pi * (u - 1/2))."""
    real = _real(dtype)
    return _fill("cauchy", gen, shape, dtype, real(median), real(sigma), out=out)


def geometric(gen, shape, dtype: np.dtype, p: float, out=None):
    """Draws the number of trials up to the first success: ceil(log u / log(1 - p))."""
    if program.NAME[dtype] not in FILLED:
        return NotImplemented
    return _fill("geometric", gen, shape, dtype, _real(dtype)(p), out=out)


def bernoulli(gen, shape, dtype: np.dtype, p: float, out=None):
    """Draws 1 with probability `p`, else 0."""
    if program.NAME[dtype] not in FILLED:
        return NotImplemented
    return _fill("bernoulli", gen, shape, dtype, _real(dtype)(p), out=out)


# --- integers --------------------------------------------------------------------------------------------------------


def _below(gen, shape, dtype: np.dtype, span: int, low: int, wide: bool, out=None):
    """Computes (word % span) + low.

    `span` 2**64 stands for all 64-bit words. Unsigned types of 16 bits and more are cast.
    """
    if program.NAME[dtype] not in FILLED:
        return _stored(_below(gen, shape, np.dtype("int64"), span, low, wide).astype(dtype), out)
    signed = low % 2**64 - (2**64 if low % 2**64 >= 2**63 else 0)
    name, each = ("below_64", 2) if wide else ("below_32", 4)
    return _fill(name, gen, shape, dtype, np.uint64(span % 2**64), np.int64(signed), each=each, out=out)


def random(gen, shape, dtype: np.dtype, out=None):
    """Draws integers over the whole range of `dtype`: `random_()` without bounds."""
    if program.NAME[dtype] in DIGITS:
        span = 2 ** DIGITS[program.NAME[dtype]] + 1
    else:
        span = 2 if dtype.kind == "b" else int(np.iinfo(dtype).max) + 1
    return _below(gen, shape, dtype, span, 0, program.NAME[dtype] in ("float64", "int64"), out)


def randint(gen, shape, dtype: np.dtype, low: int, high: int | None, out=None):
    """Draws integers in [low, high): `randint`, `random_(low, high)`; up to the type's maximum if `high` is None.

    Raises: RuntimeError if the range is empty or does not fit the dtype.
    """
    low, span = integer_range(shape, dtype, low, high)
    return _below(gen, shape, dtype, span, low if span < 2**64 else 0, span >= 2**28, out)


def _bits_of_keys(n: int) -> int:
    """Returns how many bits keys need so that n of them are distinct nine times out of ten (the birthday problem)."""
    return min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9)))))


def randperm(gen, shape, dtype: np.dtype):
    """Permutes 0 .. n - 1: random keys are sorted, and entries with equal keys are shuffled again."""
    (n,) = shape
    with cupy.cuda.Device(gen.device.index):
        if n == 0:
            return cupy.empty(0, dtype)
        bits = _bits_of_keys(n)
        width, low = (32, -(2**31)) if bits <= 32 else (64, -(2**63))
        keys = _below(gen, shape, np.dtype("int64"), 2**width - 1, low, True).view(np.uint64)
        mask = np.uint64(2**bits - 1)
        if bits == width:  # signed keys are sorted by all their bits: from negative to positive
            keys = (keys ^ np.uint64(1 << width - 1)) & mask
        else:
            keys &= mask
        order = cupy.argsort(keys)
        values = order.astype(np.int64, copy=False)
        seed, offset = gen.take(n)
        launch = program.function("random", "shuffle_ties", "int64", **_settings(seed))
        args = (keys[order], values, np.int64(n), mask, np.uint64(seed), np.uint64(offset))
        launch(((n + 511) // 512,), (512,), args)
        return values.astype(dtype, copy=False)


# --- probabilities and parameters as arrays --------------------------------------------------------------------------


def bernoulli_each(p, gen, dtype: np.dtype | None = None):
    """Draws 1 with the probability in `p`, elementwise, else 0; in `p`'s dtype unless one is given.

    Probabilities outside [0, 1] are not checked, which would wait for the GPU. They count as 0 and 1.
    """
    dtype = p.dtype if dtype is None else dtype
    if program.NAME[dtype] not in FILLED:
        return NotImplemented
    with cupy.cuda.Device(gen.device.index):
        chances = cupy.ascontiguousarray(p, dtype=_real(dtype))
        out = cupy.empty(p.shape, dtype)
        seed, offset = gen.take(10)
        if out.size:
            launch = program.function("random", "bernoulli_each", program.NAME[dtype], **_settings(seed))
            args = (chances, out, np.int64(out.size), np.uint64(seed), np.uint64(offset))
            launch(((out.size + 2047) // 2048,), (512,), args)
        return out


def bernoulli_over(x, p, gen):
    """Runs `bernoulli_each` for probabilities that broadcast to x, in x's dtype."""
    return bernoulli_each(cupy.broadcast_to(p, x.shape), gen, x.dtype)


def normal_both(mean, std, gen):
    """Draws normal samples whose means and standard deviations are arrays that broadcast.

    Raises: RuntimeError if deviations are complex or negative (like PyTorch, it waits for the GPU to check them).
    """
    _check_deviations(std)
    drawn = normal(gen, np.broadcast_shapes(mean.shape, std.shape), mean.dtype)
    return _rounded(cupy.add, _rounded(cupy.multiply, drawn, std), mean)


def normal_mean(mean, std, gen):
    """Draws normal samples with an array of means."""
    return _rounded(cupy.add, normal(gen, mean.shape, mean.dtype, 0.0, std), mean)


def normal_std(std, mean, gen):
    """Draws normal samples with an array of standard deviations. Raises: RuntimeError as `normal_both`."""
    _check_deviations(std)
    return _rounded(cupy.add, _rounded(cupy.multiply, normal(gen, std.shape, std.dtype), std), mean)


def _check_deviations(std) -> None:
    if std.dtype.kind == "c":
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std.size and not bool((std >= 0).all()):
        raise RuntimeError("normal expects all elements of std >= 0.0")


def _rounded(function, x, other):
    """Computes a function of two operands in float32 if x is of 16 bits, rounded to x's dtype."""
    if x.dtype.itemsize > 2:
        return function(x, other if np.isscalar(other) else other.astype(x.dtype, copy=False))
    wide = other if np.isscalar(other) else other.astype(np.float32)
    return function(x.astype(np.float32), wide).astype(x.dtype)


def multinomial(gen, weights, num_samples: int, replacement: bool = False):
    """Draws indices (int64) by `weights`, a vector or a matrix of one distribution per row.

    With replacement a sample is looked up in the cumulative sums; without, and for a single one, the largest weight / e
    wins, where every e is exponential (P. Efraimidis and P. Spirakis, 2006).

    Raises: RuntimeError if weights are negative, infinite, NaN or all zero; late, as for invalid indices (see
    `bounds.py`).
    """
    with cupy.cuda.Device(gen.device.index):
        rows = cupy.ascontiguousarray(weights).reshape(-1, weights.shape[-1])
        _check_weights(rows)
        if replacement and num_samples > 1:
            chosen = _with_replacement(gen, rows, num_samples)
        else:
            quotients = _rounded(cupy.divide, rows, exponential(gen, rows.shape, rows.dtype))
            quotients = quotients.astype(_real(rows.dtype), copy=False)
            if num_samples == 1:
                chosen = quotients.argmax(axis=1)[:, None]
            else:
                chosen = cupy.argsort(-quotients, axis=1)[:, :num_samples]
        return cupy.ascontiguousarray(chosen, dtype=np.int64).reshape(*weights.shape[:-1], num_samples)


def _check_weights(rows) -> None:
    sums = rows.astype(_real(rows.dtype), copy=False).sum(axis=1)
    for values, least in ((rows, 0), (sums, 1)):
        launch = program.function("random", "check_weights", program.NAME[values.dtype])
        args = (values, np.int64(values.size), np.int32(least), bounds.note("weights"))
        launch((-(-values.size // THREADS),), (THREADS,), args)


def _with_replacement(gen, rows, num_samples: int):
    count, width = rows.shape
    real = rows.astype(_real(rows.dtype), copy=False)
    shares = (real / real.sum(axis=1, keepdims=True)).astype(rows.dtype, copy=False)
    sums = cupy.cumsum(shares.astype(real.dtype, copy=False), axis=1).astype(rows.dtype, copy=False)
    chosen = cupy.empty((count, num_samples), np.int64)
    across, down = (num_samples + 127) // 128, min(count, 65535)
    seed, offset = gen.take(((count - 1) // down + 1) * 4)
    launch = program.function("random", "multinomial", program.NAME[rows.dtype], **_settings(seed))
    sizes = (np.int64(count), np.int32(width), np.int32(num_samples))
    launch((across, down), (128,), (sums, shares, chosen, *sizes, np.uint64(seed), np.uint64(offset)))
    return chosen


# --- rejection sampling ----------------------------------------------------------------------------------------------

MOST_WORDS = 4096  # words per element: enough for every sampler, except once in 2**1000 times


def _rejected(name: str, gen, *parameters):
    """Draws samples with a kernel of `sources/rejection.cu`, from parameter arrays of one shape and dtype."""
    dtype = parameters[0].dtype
    wide = np.dtype("float64" if program.NAME[dtype] == "float64" else "float32")
    with cupy.cuda.Device(gen.device.index):
        arrays = [cupy.ascontiguousarray(p, dtype=wide) for p in parameters]
        out = cupy.empty(arrays[0].shape, wide)
        seed, offset = gen.take(MOST_WORDS)
        if out.size:
            launch = program.function("rejection", name, wide.name, **_settings(seed))
            numbers = (np.int64(out.size), np.uint64(seed), np.uint64(offset))
            launch((-(-out.size // THREADS),), (THREADS,), (*arrays, out, *numbers))
        return out.astype(dtype, copy=False)


def poisson(rate, gen):
    """Draws Poisson samples; NaN if the rate is negative, as a check would wait for the GPU."""
    return _rejected("poisson", gen, rate)


def binomial(count, prob, gen):
    """Draws the number of successes in `count` trials, elementwise with broadcasting."""
    shape = np.broadcast_shapes(count.shape, prob.shape)
    prob = prob.astype(count.dtype, copy=False)
    return _rejected("binomial", gen, cupy.broadcast_to(count, shape), cupy.broadcast_to(prob, shape))


def standard_gamma(alpha, gen):
    """Draws gamma samples of scale 1."""
    return _rejected("standard_gamma", gen, alpha)


def dirichlet(alpha, gen):
    """Draws points of the simplex: gamma samples divided by their sum."""
    drawn = standard_gamma(alpha, gen)
    return drawn / drawn.sum(axis=-1, keepdims=True)


# --- dropout ---------------------------------------------------------------------------------------------------------


def dropout(x, p: float, place: tuple):
    """Sets each element of x to 0 with probability `p`, else divides it by 1 - p; `place` locates its random words."""
    seed, offset, order, pack, blocks = place
    there = cupy.ascontiguousarray(x.transpose(order))
    if there.data.ptr % (pack * there.itemsize):
        there = there.copy()
    out = cupy.empty_like(there)
    launch = program.function("random", "dropout", program.NAME[x.dtype], PACK=pack, **_settings(seed))
    numbers = (np.int64(x.size), np.uint64(seed), np.uint64(offset), _real(x.dtype)(1 - p))
    launch((blocks,), (THREADS,), (there, out, *numbers))
    return out.transpose([order.index(d) for d in range(x.ndim)]) if x.ndim else out.reshape(())


def dropout_place(gen, x) -> tuple[int, int, tuple, int, int]:
    """Returns where the random words of `dropout(x)` begin and how they map to x.

    The result is (seed, offset, dimensions, pack, blocks).

    PyTorch has each thread take 16 adjacent bytes if the memory of x has no gaps and the count allows it; the words
    then follow the memory order, otherwise the indices.
    """
    blocks, count = policy(gen, x.size)
    order = tuple(sorted(range(x.ndim), key=lambda d: (-x.strides[d], x.shape[d] == 1)))
    pack = 1
    if x.transpose(order).flags.c_contiguous:
        pack = 16 // x.itemsize
        while pack > 1 and (x.size % pack or x.data.ptr % (pack * x.itemsize)):
            pack //= 2
    return *gen.take(count), order if pack > 1 else tuple(range(x.ndim)), pack, blocks


def dropout_mask(gen, shape, dtype: np.dtype, p: float, out=None):
    """Draws the factors of a dropout other than `dropout`: 0 with probability `p`, else 1 / (1 - p)."""
    with cupy.cuda.Device(gen.device.index):
        return _stored(_rounded(cupy.divide, bernoulli(gen, shape, dtype, 1 - p), 1 - p), out)
