"""Random numbers on arrays: PyTorch's CPU samples, number for number, from the same state of a `Generator`.

Every function takes the generator, then (usually) a shape and a NumPy dtype, and returns a new C-contiguous array.
Arguments are not checked unless the docstring lists an error. Each holds the generator's lock while it draws and
consumes exactly the words PyTorch consumes, so that a sequence of calls stays in step.

How close: uniforms, integers, permutations, Bernoulli masks and multinomial draws are equal. Samples that involve a
logarithm, a sine or a tangent agree to a few units in the last place: PyTorch compiles its own vectorized functions,
NumPy has others, and both are rounded. Measured against torch 2.13 on 4 million numbers: float32 normals differ by 5
ulp at most (86 in 100 are equal), float64 ones by 3, exponentials and log-normals by 2, before a mean is added; runs of
fewer than 16 normals are equal.

PyTorch multiplies and adds in one rounding (fma) wherever it scales a sample, on any processor with AVX2; `_scale` and
`_fma` do the same everywhere. No sampler of its 2.13 wheel uses Intel's MKL streams, which older versions did.

Permutations are in `permutation.py`; rejection samplers, which need a loop over elements, in `rejection.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad.dtypes import C_TYPES, COMPLEX_KINDS, from_numpy_dtype
from tensorgrad.random.generator import Generator
from tensorgrad.rows.kernel_tables import run_compiled

F32, F64, I64, U32, U64, B1 = (np.dtype(n) for n in ("float32", "float64", "int64", "uint32", "uint64", "bool"))

# Words are converted to samples a block at a time, so that the temporaries stay in the cache. A multiple of 16; half or
# twice as many was slower (1 M float32 uniforms: 2.9 and 2.7 ms against 2.1).
BLOCK = 16384
# As 0-dim arrays, which NumPy takes faster than numbers.
LOW_24, LOW_53 = np.array(2**24 - 1, np.uint64), np.array(2**53 - 1, np.uint64)
_UNIT_24, _ONE, _MINUS_2 = (np.array(v, np.float32) for v in (2.0**-24, 1.0, -2.0))
_TURN_24 = np.array(np.float32(2 * math.pi) * np.float32(2.0**-24))  # scaled by a power of two: the same rounding
_LOW_53 = 2**53 - 1
FEW = 4096  # numbers up to which one pass over all is faster than blocks
# Number of explicit mantissa bits plus one, for the floating types: the range that PyTorch's random_ fills.
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _work(dtype: np.dtype) -> np.dtype:
    """Returns the precision in which PyTorch computes a sample of `dtype`: 16-bit types are drawn in float32."""
    return F64 if dtype == F64 else F32


def to_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` as `dtype`. 16-bit floats are rounded to float32 first, as PyTorch's conversions are."""
    if values.dtype is dtype:
        return values
    with np.errstate(all="ignore"):
        if dtype.itemsize == 2 and dtype.name in DIGITS and values.dtype != F32:
            values = values.astype(F32)
        return values.astype(dtype, copy=False)


def _blocks(n: int):
    for start in range(0, n, BLOCK):
        yield slice(start, min(start + BLOCK, n))


# --- filling strided arrays ------------------------------------------------------------------------------------------


def memory_order(array: np.ndarray) -> tuple[int, ...]:
    """Returns the permutation of `array`'s dimensions in which PyTorch visits its elements: largest stride first."""
    dims = range(array.ndim)
    return tuple(sorted(dims, key=lambda d: (-abs(array.strides[d]), array.shape[d] == 1)))


def lying_as(array: np.ndarray) -> np.ndarray:
    """Returns new memory into which `fill` draws as into `array`: dimensions in the same order, gaps if it has gaps."""
    order = memory_order(array)
    there = array.transpose(order)
    made = np.empty(there.shape, there.dtype) if there.flags.c_contiguous else np.empty((*there.shape, 2), there.dtype)
    return (made if made.ndim == array.ndim else made[..., 0]).transpose(np.argsort(order))


def fill(array: np.ndarray, sampler, gen: Generator, *args) -> np.ndarray:
    """Writes `sampler(gen, shape, dtype, *args)` to a strided array in PyTorch's order, in place, and returns it.

    PyTorch's in-place samplers (`x.uniform_()`, ...) go through memory and not through indices: `x.t().uniform_()`
    writes the same memory as `x.uniform_()`. For normals it also matters whether the array is contiguous: if it is not,
    PyTorch draws them in pairs, whatever their number (see `normal`). The random values of `dropout(x)` and
    `randn_like(x)` have the layout of `x`; call `fill(np.empty_like(x), ...)` for them.

    >>> from tensorgrad.random.generator import Generator
    >>> a = fill(np.empty((2, 3), np.float32).T, uniform, Generator().manual_seed(0))
    >>> bool((a.T == uniform(Generator().manual_seed(0), (2, 3), np.dtype("float32"))).all())
    True
    """
    if array.flags.c_contiguous:
        if sampler is normal and args == (0.0, 1.0) and _is_few(array.dtype, array.size):
            _box_muller_few(gen, array.reshape(-1))
        elif sampler in (uniform, normal) and array.dtype.kind not in COMPLEX_KINDS:
            sampler(gen, array.shape, array.dtype, *args, out=array)
        else:
            array[...] = sampler(gen, array.shape, array.dtype, *args)
        return array
    view = array.transpose(memory_order(array))
    if sampler is normal:
        view[...] = normal(gen, view.shape, array.dtype, *args, contiguous=False)
    else:
        view[...] = sampler(gen, view.shape, array.dtype, *args)
    return array


# --- uniforms --------------------------------------------------------------------------------------------------------


def unit32(gen: Generator, n: int, out: np.ndarray | None = None) -> np.ndarray:
    """`n` float32 uniforms in [0, 1): the low 24 bits of a word each. Written to `out` if given."""
    if n > FEW:
        out = np.empty(n, F32) if out is None else out
        if run_compiled("uniform_numbers", n, gen, 2.0**-24, 0.0, out) is not NotImplemented:
            return out
    words = gen.words(n)
    words &= LOW_24
    numbers = words.view(I64)  # signed integers convert faster; the value is below 2**24, so exactly
    if out is None:
        out = numbers.astype(F32)
    else:
        out[...] = numbers
    out *= _UNIT_24
    return out


def _scaled32(gen: Generator, out: np.ndarray, extent: float, term: float) -> None:
    """Writes `u * extent + term` to `out`, rounded once, for the uniforms u of `unit32`; `extent` is a float32."""
    if extent == 1.0:
        unit32(gen, out.size, out)
        if term:
            out += F32.type(term)
        return
    factor = extent * 2.0**-24
    if out.size > FEW and run_compiled("uniform_numbers", out.size, gen, factor, term, out) is not NotImplemented:
        return
    words = gen.words(out.size)
    words &= LOW_24
    wide = words.view(I64) * np.float64(factor)  # exact, like any product of numbers of 24 bits in float64
    wide += term
    out[...] = wide


def mantissas(gen: Generator, n: int) -> np.ndarray:
    """`n` integers below 2**53 (uint64): the low 53 bits of two words each."""
    pairs = gen.words(2 * n)
    numbers = (pairs << np.uint64(32))[0::2] | pairs[1::2]  # shifting all of them in a row is faster than every other
    numbers &= LOW_53
    return numbers


def unit64(gen: Generator, n: int, out: np.ndarray | None = None) -> np.ndarray:
    """`n` float64 uniforms in [0, 1). Written to `out` if given."""
    out = np.empty(n, F64) if out is None else out
    out[...] = mantissas(gen, n).view(I64)
    out *= 2.0**-53
    return out


def _fma(x: np.ndarray, factor: float, term: float) -> np.ndarray:
    """`x * factor + term` for float64, rounded once.

    Source: T. J. Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18 (1971):
    the errors of the product and of the sum are computed exactly and added at the end.
    """
    product = x * factor
    if (
        term == 0.0
        or math.frexp(factor)[0] in (0.5, -0.5, 0.0)
        or not (1e-200 < abs(factor) < 1e200 and abs(term) < 1e200)
    ):
        return product + term  # nothing was rounded (or it is beyond the technique's range)
    factor_high = factor * 134217729.0 - (factor * 134217729.0 - factor)  # 2**27 + 1 splits 53 bits in two
    factor_low = factor - factor_high
    high = x * 134217729.0
    high -= high - x
    low = x - high
    error = high * factor_high - product + high * factor_low + low * factor_high + low * factor_low
    total = product + term
    of_product = total - term
    error += (product - of_product) + (term - (total - of_product))
    return total + error


def _scale(x: np.ndarray, factor: float, term: float) -> np.ndarray:
    """`x * factor + term` rounded once, in x's own precision (float32 or float64)."""
    if factor == 1.0:
        return x if term == 0.0 else x + x.dtype.type(term)
    if term == 0.0:
        return x * x.dtype.type(factor)
    if x.dtype == F64:
        return _fma(x, factor, term)
    # The product of two float32 is exact in float64.
    wide = x * np.float64(factor)
    wide += term
    return wide.astype(F32)


def uniform(
    gen: Generator, shape, dtype: np.dtype, low: float = 0.0, high: float = 1.0, out: np.ndarray | None = None
) -> np.ndarray:
    """Uniform samples in [low, high): `rand`, `uniform_`. Complex dtypes get real and imaginary parts in turn.

    `out` is a C-contiguous array of real numbers to write to.

    Source: u * (high - low) + low with u = the low 24 (float64: 53) bits of a word (two words), as a fraction.
    """
    if dtype.kind in COMPLEX_KINDS:
        return _complex(uniform, gen, shape, dtype, low, high)
    if out is None and dtype is F32 and low == 0 and high == 1 and (n := math.prod(shape)) <= FEW:
        return unit32(gen, n).reshape(shape)
    work = _work(dtype)
    out = np.empty(shape, dtype) if out is None else out
    flat = out.reshape(-1)
    if low == 0 and high == 1 and dtype == work:
        draw = unit64 if work == F64 else unit32
        with gen.lock:
            for block in _blocks(flat.size):
                draw(gen, block.stop - block.start, flat[block])
        return out
    with gen.lock, np.errstate(all="ignore"):
        least, most = work.type(low), work.type(high)
        extent, term = float(most - least), float(least)
        first, last = least.astype(dtype), most.astype(dtype)
        for block in _blocks(flat.size):
            values = flat[block]
            if dtype == F32:
                _scaled32(gen, values, extent, term)
            elif dtype == F64:
                values[...] = _scale(unit64(gen, values.size), extent, term)
            else:
                values[...] = _scale(unit32(gen, values.size), extent, term)
            if values.max() == last:  # rounding may reach `high`, which is not in the interval
                values[values == last] = first
    return out


def _complex(sampler, gen: Generator, shape, dtype: np.dtype, *args) -> np.ndarray:
    real = from_numpy_dtype(dtype).to_real().numpy
    return sampler(gen, (*shape, 2), real, *args).view(dtype).reshape(shape)


# --- normals ---------------------------------------------------------------------------------------------------------


def normal(
    gen: Generator, shape, dtype: np.dtype, mean: float = 0.0, std: float = 1.0, contiguous: bool = True,
    out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Normal samples: `randn`, `normal_`. Complex dtypes split the variance between real and imaginary part.

    16 numbers or more come in blocks of 16: eight uniforms for the radii, eight for the angles. A remainder at the end
    is covered by a new block over the last 16. Fewer than 16 (or `contiguous=False`: the destination has gaps or is
    transposed) come in pairs in double precision, and half a pair may be kept in the generator for the next call.
    `out` is a C-contiguous array of real numbers to write to.

    Source: G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", 1958.
    """
    if dtype.kind in COMPLEX_KINDS:
        real = from_numpy_dtype(dtype).to_real().numpy
        return normal(gen, (*shape, 2), real, mean, std / math.sqrt(2), contiguous).view(dtype).reshape(shape)
    out = np.empty(shape, dtype) if out is None else out
    flat = out.reshape(-1)
    n = flat.size
    if contiguous and _is_few(dtype, n):
        _box_muller_few(gen, flat)
        if std != 1 or mean != 0:
            out[...] = _scale(out, float(F32.type(std)), float(F32.type(mean)))
        return out
    if n < 16 or not contiguous:
        if n:
            flat[...] = to_dtype(_scale(normal_pairs(gen, n), std, mean), dtype)
        return out
    work = _work(dtype)
    mean, std = float(work.type(mean)), float(work.type(std))
    whole, rest = n - n % 16, n % 16
    with gen.lock, np.errstate(all="ignore"):
        for block in _blocks(whole):
            flat[block] = _scale(_box_muller(gen, block.stop - block.start, work), std, mean)
        if rest:
            if dtype == work:  # 16-bit types never draw for the remainder
                gen.skip(rest if work == F32 else 2 * rest)
            flat[n - 16 :] = _scale(_box_muller(gen, 16, work), std, mean)
    return out


def _box_muller(gen: Generator, n: int, work: np.dtype) -> np.ndarray:
    """`n` (a multiple of 16) standard normals in PyTorch's blocks of 16."""
    u = unit64(gen, n) if work == F64 else unit32(gen, n)
    # Eight numbers at a time as one opaque item: copying a few long rows is much faster than many short ones.
    eight = np.dtype(("V", 8 * work.itemsize))
    halves = u.view(eight).reshape(-1, 2)
    radius, angle = halves[:, 0].copy().view(work), halves[:, 1].copy().view(work)
    np.subtract(1, radius, out=radius)  # [0, 1) -> (0, 1], for the logarithm
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle *= work.type(2 * math.pi)
    part = np.cos(angle)
    part *= radius
    halves[:, 0] = part.view(eight)
    np.sin(angle, out=part)
    part *= radius
    halves[:, 1] = part.view(eight)
    return u


def _is_few(dtype: np.dtype, n: int) -> bool:
    return dtype is F32 and 16 <= n <= FEW and not n % 16


def _box_muller_few(gen: Generator, out: np.ndarray) -> None:
    """Runs `_box_muller` in float32 into `out` for few numbers (see `_is_few`), where the calls dominate."""
    words = gen.words(out.size)
    words &= LOW_24
    radius, angle = words.view(I64).reshape(-1, 2, 8).swapaxes(0, 1).astype(F32, order="C")
    out = out.reshape(-1, 2, 8)
    radius *= _UNIT_24
    np.subtract(_ONE, radius, radius)  # [0, 1) -> (0, 1], for the logarithm
    np.log(radius, radius)
    radius *= _MINUS_2
    np.sqrt(radius, radius)
    angle *= _TURN_24
    np.multiply(radius, np.cos(angle), out[:, 0])
    np.multiply(radius, np.sin(angle, angle), out[:, 1])


def normal_pairs(gen: Generator, n: int) -> np.ndarray:
    """`n` standard normals in double precision, in pairs, beginning with the one the last call left over."""
    out = np.empty(n, F64)
    with gen.lock:
        have = 0
        if gen.next_normal is not None and n:
            out[0], gen.next_normal, have = gen.next_normal, None, 1
        wanted = n - have
        pairs = (wanted + 1) // 2
        if not pairs:
            return out
        if pairs <= 32:  # the C library's functions, like PyTorch; also faster than NumPy for so few
            both: Any = []
            words = iter(gen.words(4 * pairs).tolist())
            for a, b, c, d in zip(words, words, words, words, strict=True):
                angle = 2.0 * math.pi * (((a << 32 | b) & _LOW_53) * 2.0**-53)
                radius = math.sqrt(-2.0 * math.log1p(-((c << 32 | d) & _LOW_53) * 2.0**-53))
                both += (radius * math.cos(angle), radius * math.sin(angle))
        else:
            u = unit64(gen, 2 * pairs)
            angle, radius = 2.0 * math.pi * u[0::2], np.sqrt(-2.0 * np.log1p(-u[1::2]))
            both = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).reshape(-1)
        out[have:] = both[:wanted]
        if wanted % 2:
            gen.next_normal = float(both[wanted])
    return out


def normal_tensor(gen: Generator, mean, std) -> np.ndarray:
    """Normal samples with arrays that broadcast for the mean and the standard deviation; one may be a scalar.

    The result has the dtype of `mean`, or of `std` if `mean` is a scalar.

    Raises: RuntimeError if a standard deviation is negative.
    """
    if isinstance(std, np.ndarray):
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.size and not std.min() >= 0:
            raise RuntimeError("normal expects all elements of std >= 0.0")
        dtype = mean.dtype if isinstance(mean, np.ndarray) else std.dtype
        shape = np.broadcast_shapes(getattr(mean, "shape", ()), std.shape)
        out = normal(gen, shape, dtype)
        out *= std.astype(dtype, copy=False)
    else:
        if not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        dtype = mean.dtype
        out = normal(gen, mean.shape, dtype, 0.0, std)
    out += np.asarray(mean).astype(dtype, copy=False)
    return out


def log_normal(gen: Generator, shape, dtype: np.dtype, mean: float = 1.0, std: float = 2.0) -> np.ndarray:
    """exp of normals: `log_normal_`. Drawn in pairs, like the short runs of `normal`."""
    n = math.prod(shape)
    with np.errstate(all="ignore"):
        return to_dtype(np.exp(_scale(normal_pairs(gen, n), std, mean)), dtype).reshape(shape)


# --- integers --------------------------------------------------------------------------------------------------------


def random(gen: Generator, shape, dtype: np.dtype) -> np.ndarray:
    """Integers over the whole range of `dtype`: `random_()` without bounds.

    That is 0 to the type's maximum for integers, False and True, and for floating types 0 to 2**(mantissa bits), the
    largest range without gaps.
    """
    if dtype.name in DIGITS:
        span = 2 ** DIGITS[dtype.name] + 1
    else:
        span = 2 if dtype.kind == "b" else int(np.iinfo(dtype).max) + 1
    return _below(gen, shape, dtype, span, 0, wide=dtype in (F64, I64))


def randint(gen: Generator, shape, dtype: np.dtype, low: int, high: int | None) -> np.ndarray:
    """Integers in [low, high): `randint`, `random_(low, high)`; up to the type's maximum if `high` is None.

    Source: word % (high - low) + low, with a 64-bit word where the range has 2**28 values or more.

    Raises: RuntimeError if the range is empty or does not fit the dtype.
    """
    if dtype is I64 and high is not None and 0 < high - low < 2**28 and low >= -(2**63) and high <= 2**63:
        n = math.prod(shape)
        if n <= FEW:
            numbers = gen.words(n)
            numbers %= np.uint64(high - low)
            signed = numbers.view(I64)
            return (signed + low if low else signed).reshape(shape)
    low, span = integer_range(shape, dtype, low, high)
    if span == 2**64:
        return to_dtype(gen.random64(math.prod(shape)).view(I64), dtype).reshape(shape)
    return _below(gen, shape, dtype, span, low, wide=span >= 2**28)


def integer_range(shape, dtype: np.dtype, low: int, high: int | None) -> tuple[int, int]:
    """Returns the least integer of `randint`, and the number of different ones.

    Raises: RuntimeError if the range is empty or does not fit the dtype.
    """
    floating = dtype.name in DIGITS
    if high is None:
        if low == -(2**63):  # the one range that 64 bits cannot count
            n = math.prod(shape)
            kernel = "random_full_64_bits_range_kernel_cpu"
            if n and (dtype == B1 or dtype.name == "float16"):
                raise NotImplementedError(f"\"{kernel}\" not implemented for '{'Bool' if dtype == B1 else 'Half'}'")
            if n and dtype != I64 and not floating:
                raise RuntimeError(f"{kernel} handles only int64, double, float and bfloat16")
            return low, 2**64
        last = 2 ** DIGITS[dtype.name] if floating else 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
        low = _representable(low, dtype, +1) if floating else low
        if floating and low >= last:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but got "
                f"from={low} > to_inc={last}"
            )
    else:
        if low >= high:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        if floating:
            low, high = _representable(low, dtype, +1), _representable(high, dtype, -1)
            if low >= high:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got "
                    f"from={low} >= to={high}"
                )
        last = high - 1
    _check_range(low, last, dtype)
    return low, last - low + 1


def _check_range(low: int, last: int, dtype: np.dtype) -> None:
    if dtype.kind == "b":
        least, most = 0, 1
    elif dtype.kind in "iu":
        least, most = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), 2**63 - 1)
    elif dtype.name == "float16":
        least, most = -65504, 65504
    else:
        least, most = -(2**63), 2**63 - 1  # the range of every other floating type exceeds that of the arguments
    for value, name in ((low, "from"), (last, "to - 1")):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {C_TYPES.get(dtype.name, dtype.name)}")


def _representable(bound: int, dtype: np.dtype, direction: int) -> int:
    """Moves a bound inwards (+1: up, -1: down) so far that no sample, rounded to `dtype`, can fall outside it."""
    beside = bound + direction
    rounded = float(to_dtype(np.array(beside, I64), dtype))
    if not -(2.0**63) <= rounded < 2.0**63:
        return bound  # no int64: PyTorch's comparison then fails, and the range check raises if necessary
    if rounded < bound if direction > 0 else rounded >= bound:
        return int(rounded) + direction * (1 << max(abs(beside).bit_length() - DIGITS[dtype.name], 0))
    return bound


def _below(gen: Generator, shape, dtype: np.dtype, span: int, low: int, wide: bool) -> np.ndarray:
    """(word % span) + low in `dtype`, from one word each, or from two if `wide`."""
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    with gen.lock:
        for block in _blocks(flat.size):
            n = block.stop - block.start
            numbers = gen.random64(n) if wide else gen.random32(n)
            kind = numbers.dtype.type
            if span & (span - 1) == 0:
                numbers &= kind(span - 1)
            else:
                # NumPy divides by a constant with multiplications; its remainder does not.
                quotient = numbers // kind(span)
                quotient *= kind(span)
                numbers -= quotient
            if low:
                numbers = numbers.astype(U64, copy=False)
                numbers += np.uint64(low % 2**64)
            elif not wide:
                flat[block] = numbers if dtype.name not in DIGITS else to_dtype(numbers, dtype)
                continue
            flat[block] = to_dtype(numbers.view(I64), dtype)
    return out


# --- Bernoulli -------------------------------------------------------------------------------------------------------


def bernoulli(gen: Generator, shape, dtype: np.dtype, p: float) -> np.ndarray:
    """1 with probability `p`, else 0: `bernoulli_(p)`. Takes two words for each, whatever the dtype."""
    return _bernoulli_mask(gen, shape, dtype, p, 1)


def dropout_mask(gen: Generator, shape, dtype: np.dtype, p: float) -> np.ndarray:
    """The factors of `dropout(x, p)` in training: 0 with probability `p`, else 1 / (1 - p); 0 < p < 1.

    PyTorch draws nothing for p = 0, p = 1 or an empty input.
    """
    keep = 1 - p
    with np.errstate(all="ignore"):
        scale = (_work(dtype).type(1) / _work(dtype).type(keep)).astype(dtype)
    return _bernoulli_mask(gen, shape, dtype, keep, scale)


def _bernoulli_mask(gen: Generator, shape, dtype: np.dtype, p: float, value) -> np.ndarray:
    """`value` with probability `p`, else 0."""
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    # u < p for u = k / 2**53 is k < p * 2**53, and scaling by a power of two is exact.
    limit = np.uint64(math.ceil(p * 2.0**53))
    if dtype == np.float32 and run_compiled("bernoulli_mask", flat.size, gen, limit, value, out) is not NotImplemented:
        return out
    plain = dtype == B1 or value == 1
    with gen.lock:
        for block in _blocks(flat.size):
            successes = mantissas(gen, block.stop - block.start) < limit
            flat[block] = successes if plain else successes * value
    return out


def bernoulli_tensor(gen: Generator, p: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """1 with the probability in `p`, elementwise, else 0: `bernoulli(p)`, `bernoulli_(p)` (p already expanded).

    A float64 `p` takes two words for each element, any other one word. The dtype is that of `p` unless given.

    Raises: RuntimeError if a probability is outside [0, 1].
    """
    flat = np.ascontiguousarray(p).reshape(-1)
    if flat.size and not ((flat >= 0) & (flat <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    draw = unit64 if p.dtype == F64 else unit32
    out = np.empty(p.shape, p.dtype if dtype is None else dtype)
    result = out.reshape(-1)
    with gen.lock:
        for block in _blocks(flat.size):
            result[block] = draw(gen, block.stop - block.start) < flat[block].astype(_work(p.dtype), copy=False)
    return out


def bernoulli_over(gen: Generator, array: np.ndarray, p: np.ndarray) -> np.ndarray:
    """What `x.bernoulli_(p)` writes to `array`, in its order; `p` broadcasts to it. Raises: as `bernoulli_tensor`."""
    made = lying_as(array)
    order = memory_order(array)
    made.transpose(order)[...] = bernoulli_tensor(gen, np.broadcast_to(p, array.shape).transpose(order), array.dtype)
    return made


# --- other continuous and discrete distributions ---------------------------------------------------------------------


def _from_uniform(gen: Generator, shape, dtype: np.dtype, transform) -> np.ndarray:
    """`transform` of double-precision uniforms, as `dtype`."""
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    with gen.lock, np.errstate(all="ignore"):
        for block in _blocks(flat.size):
            flat[block] = to_dtype(transform(unit64(gen, block.stop - block.start)), dtype)
    return out


def exponential(gen: Generator, shape, dtype: np.dtype, lambd: float = 1.0) -> np.ndarray:
    """Exponential samples with rate `lambd`: -log(1 - u) / lambd."""
    factor = -1.0 / lambd
    return _from_uniform(gen, shape, dtype, lambda u: factor * np.log1p(-u))


def cauchy(gen: Generator, shape, dtype: np.dtype, median: float = 0.0, sigma: float = 1.0) -> np.ndarray:
    """Cauchy samples: median + sigma * tan(pi * (u - 1/2))."""
    return _from_uniform(gen, shape, dtype, lambda u: _scale(np.tan(math.pi * (u - 0.5)), sigma, median))


def geometric(gen: Generator, shape, dtype: np.dtype, p: float) -> np.ndarray:
    """The number of trials up to the first success, which has probability `p`: ceil(log u / log(1 - p))."""
    divisor = math.log1p(-p)
    return _from_uniform(gen, shape, dtype, lambda u: np.ceil(np.log(u) / divisor))


def rrelu_noise(gen: Generator, x: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """The slopes of `rrelu(x, training=True)`: uniform in [lower, upper) where x <= 0, else 1.

    Nothing is drawn for positive elements.
    """
    out = np.ones(x.shape, x.dtype)
    flat = out.reshape(-1)
    negative = np.flatnonzero(np.ascontiguousarray(x).reshape(-1) <= 0)
    flat[negative] = to_dtype(unit64(gen, negative.size) * (upper - lower) + lower, x.dtype)
    return out


def multinomial(gen: Generator, weights: np.ndarray, num_samples: int, replacement: bool = False) -> np.ndarray:
    """Indices (int64) drawn by `weights`, a vector or a matrix of one distribution per row; rows need not sum to 1.

    With replacement: each sample is looked up in the cumulative sum. Without, and for a single sample: the largest of
    weight / e, where every e is exponential, which is equivalent to drawing one after the other (P. Efraimidis and P.
    Spirakis, 2006). If equal quotients compete (zero weights have to be drawn) PyTorch's order is that of its partial
    sort; here the lower index comes first.

    Raises: RuntimeError if a weight is negative, infinite or nan, or a row sums to zero.
    """
    rows = np.ascontiguousarray(weights).reshape(-1, weights.shape[-1])
    work = _work(weights.dtype)
    precise = rows.astype(work, copy=False)
    look_up = replacement and num_samples > 1
    if look_up:
        if (precise < 0).any() or np.isnan(precise).any():
            raise RuntimeError("invalid multinomial distribution (encountering probability entry < 0)")
        if not np.isfinite(precise).all():
            raise RuntimeError("invalid multinomial distribution (encountering probability entry = infinity or NaN)")
    elif not ((precise >= 0) & (precise < np.inf)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if rows.shape[1] == 0 or not precise.any(axis=1).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if look_up:
        chosen = _with_replacement(gen, precise, num_samples)
    else:
        with np.errstate(all="ignore"):
            quotients = rows / exponential(gen, rows.shape, rows.dtype)
        chosen = _largest(quotients, num_samples)
    return chosen.reshape(*weights.shape[:-1], num_samples)


def _with_replacement(gen: Generator, rows: np.ndarray, num_samples: int) -> np.ndarray:
    cumulative = np.cumsum(rows, axis=1, dtype=rows.dtype)
    cumulative /= cumulative[:, -1:].copy()
    cumulative[:, -1] = 1
    cumulative = cumulative.astype(F64, copy=False)
    u = unit64(gen, rows.shape[0] * num_samples).reshape(-1, num_samples)
    chosen = np.empty(u.shape, I64)
    if rows.shape[0] <= num_samples:
        for row, sums in enumerate(cumulative):
            chosen[row] = sums.searchsorted(u[row])
    else:  # many rows: the number of sums below u is the index that searchsorted would find
        for sample in range(num_samples):
            chosen[:, sample] = (cumulative < u[:, sample : sample + 1]).sum(axis=1)
    return chosen


def _largest(quotients: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the `count` largest per row, largest first; nan counts as largest."""
    if count == 1:
        return quotients.argmax(axis=1)[:, None]
    keys = np.where(np.isnan(quotients), -np.inf, -quotients)
    if count < quotients.shape[1] // 4:
        some = np.sort(np.argpartition(keys, count - 1, axis=1)[:, :count], axis=1)
        return np.take_along_axis(some, np.take_along_axis(keys, some, 1).argsort(axis=1, kind="stable"), 1)
    return np.ascontiguousarray(keys.argsort(axis=1, kind="stable")[:, :count])
