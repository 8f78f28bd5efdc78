"""The random streams are PyTorch's: same seed, same numbers, same state afterwards."""

import copy
import pickle
import threading

import numpy as np
import pytest

from tensorgrad import random as G
from tensorgrad.kernels.array import permutation, rejection, sample
from tensorgrad.random.generator import Generator
from tests.support.alike import last_bit

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")
if not hasattr(torch, "_C"):
    pytest.skip("the module named torch is not PyTorch, the oracle of these tests", allow_module_level=True)

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

SEEDS = (0, 1, 12345, 2**40 + 3, -7)
SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 100, 1000, 4097)
F32, F64, I64 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")
# Units in the last place by which a logarithm, cosine, ... of NumPy may differ from PyTorch's, after a multiplication.
ULPS = 6


def dtypes(names):
    """The NumPy dtypes as test parameters; bfloat16 is skipped where NumPy has no such type."""
    missing = pytest.mark.skipif(bfloat16 is None, reason="ml_dtypes is not installed: no bfloat16 in NumPy")
    return [
        pytest.param(np.dtype(bfloat16 or "float32"), id=name, marks=missing)
        if name == "bfloat16"
        else pytest.param(np.dtype(name), id=name)
        for name in names.split()
    ]


FLOATS = dtypes("float32 float64 float16 bfloat16")
COMPLEX = dtypes("complex64 complex128")
INTEGERS = dtypes("int64 int32 int16 int8 uint8 bool")


def twins(seed):
    return Generator().manual_seed(seed), torch.Generator().manual_seed(seed)


def torch_dtype(dtype):
    return getattr(torch, dtype.name)


def array_of(t):
    """Returns a tensor of torch as an array, of bfloat16 if that is its dtype."""
    return t.view(torch.int16).numpy().view(bfloat16) if t.dtype == torch.bfloat16 else t.numpy()


def assert_same_draws(ours, theirs, gen, oracle, scale=None):
    """Equal values, or within ULPS of `scale` (the size of the numbers that were added up) if it is given."""
    theirs = array_of(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.flags.c_contiguous
    exact = scale is None
    if last_bit() and ours.size:  # torch rounds otherwise on this machine: then nothing is equal to the bit
        scale = (scale or 0.0) + float(np.abs(ours).max())
    if scale is None or ours.dtype.kind in "iub":
        assert ours.tobytes() == theirs.tobytes()
    elif ours.dtype.kind == "c":
        real = ours.real.dtype
        assert_within_ulps(ours.reshape(-1).view(real), theirs.reshape(-1).view(real), scale)
    else:
        assert_within_ulps(ours, theirs, scale)
    assert_same_state(gen, oracle, exact)


def assert_within_ulps(ours, theirs, scale):
    unit = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}[theirs.dtype.name]
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    allowed = ULPS * (16 if last_bit() else 1) * unit * (np.abs(theirs) + scale)
    different = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    assert (np.abs(ours - theirs)[different] <= allowed[different]).all()


def assert_same_state(gen, oracle, exact=True):
    ours, theirs = gen.state_bytes(), oracle.get_state().numpy()
    if not exact:  # the half pair of normals that is kept may differ as other normals do
        kept = slice(5024, 5032)
        assert abs(ours[kept].view(F64)[0] - theirs[kept].view(F64)[0]) < 1e-14
        ours[kept] = theirs[kept]
    assert ours.tobytes() == theirs.tobytes()


# --- the generator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, -1, 2**32, 2**63, -(2**63), 2**64 - 1])
def test_seeds(seed):
    ours, theirs = twins(seed)
    assert ours.initial_seed() == theirs.initial_seed()
    assert_same_state(ours, theirs)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5, True, "a"])
def test_bad_seeds_raise_what_pytorch_raises(seed):
    with pytest.raises(Exception) as theirs:
        torch.Generator().manual_seed(seed)
    with pytest.raises(type(theirs.value)) as ours:
        Generator().manual_seed(seed)
    assert str(ours.value) == str(theirs.value)


def test_a_new_generator_starts_as_pytorchs():
    assert_same_state(Generator(), torch.Generator())
    assert str(Generator().device) == "cpu"


@pytest.mark.parametrize("drawn", [0, 1, 5, 623, 624, 625, 1248, 2000])
def test_states_interchange(drawn):
    ours, theirs = twins(3)
    ours.words(drawn)
    torch.empty(drawn).uniform_(generator=theirs)
    assert_same_state(ours, theirs)
    taken, given = Generator(), torch.Generator()
    taken.set_state_bytes(theirs.get_state().numpy())
    given.set_state(torch.from_numpy(ours.state_bytes()))
    assert_same_state(taken, theirs)
    assert_same_state(ours, given)
    assert_same_draws(sample.uniform(taken, (700,), F32), torch.rand(700, generator=given), taken, given)


def test_the_kept_half_pair_is_part_of_the_state():
    ours, theirs = twins(3)
    assert_same_draws(sample.normal(ours, (3,), F32), torch.randn(3, generator=theirs), ours, theirs)
    assert ours.next_normal is not None
    again = Generator()
    again.set_state_bytes(theirs.get_state().numpy())
    assert again.next_normal == ours.next_normal
    assert_same_draws(sample.normal(again, (2,), F32), torch.randn(2, generator=theirs), again, theirs)
    again.manual_seed(3)
    assert again.next_normal is None


@pytest.mark.parametrize("state", [np.zeros(10, np.uint8), np.zeros(5056, np.uint8), np.zeros(5056, np.float32)])
def test_bad_states_raise_what_pytorch_raises(state):
    with pytest.raises(Exception) as theirs:
        torch.Generator().set_state(torch.from_numpy(state))
    ours = Generator()
    before = ours.state_bytes()
    with pytest.raises(type(theirs.value), match=str(theirs.value).splitlines()[0]):
        ours.set_state_bytes(state)
    assert (ours.state_bytes() == before).all()


def test_copies_continue_on_their_own():
    ours = Generator().manual_seed(9)
    sample.normal(ours, (5,), F32)
    expected = ours.clone_state().random32(10)
    for twin in (ours.clone_state(), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert (twin.state_bytes() == ours.state_bytes()).all()
        assert (twin.random32(10) == expected).all()
    assert (ours.random32(10) == expected).all()


def test_the_default_generator():
    assert G.manual_seed(5) is G.default_generator and G.initial_seed() == 5
    torch.manual_seed(5)
    assert_same_state(G.default_generator, torch.default_generator)
    assert G.manual_seed(1.5).initial_seed() == 1
    assert G.seed() == G.initial_seed() and 0 <= G.initial_seed() < 2**64


def test_fork_rng_restores_also_after_an_error():
    G.manual_seed(5)
    before = G.default_generator.state_bytes()
    with pytest.raises(KeyError), G.fork_rng():
        G.default_generator.random32(3)
        raise KeyError
    assert (G.default_generator.state_bytes() == before).all()
    with G.fork_rng(enabled=False):
        G.default_generator.random32(3)
    assert (G.default_generator.state_bytes() != before).any()


def test_words_make_64_bits_in_pytorchs_order():
    ours, theirs = twins(4)
    expected = torch.empty(50, dtype=torch.int64).random_(-(2**63), None, generator=theirs)
    assert (ours.random64(50).view(np.int64) == expected.numpy()).all()


def test_threads_share_a_stream_without_losing_or_repeating_words():
    gen, seen = Generator().manual_seed(0), []
    threads = [threading.Thread(target=lambda: [seen.append(gen.random32(100)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = Generator().manual_seed(0).random32(4 * 50 * 100)
    assert (np.sort(np.concatenate(seen)) == np.sort(expected)).all()


def test_a_sampler_draws_in_one_piece():
    gen, seen, n = Generator().manual_seed(0), [], 10 * sample.BLOCK
    threads = [threading.Thread(target=lambda: seen.append(sample.uniform(gen, (n,), F32))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pieces = sample.uniform(Generator().manual_seed(0), (4, n), F32)
    assert sorted(a.tobytes() for a in seen) == sorted(a.tobytes() for a in pieces)


# --- uniforms and normals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("low, high", [(0, 1), (-1 / 3, 1 / 3), (0.1, 0.9), (5, 5), (1000, 1001)])
def test_uniform(dtype, low, high):
    for seed in SEEDS:
        ours, theirs = twins(seed)
        for n in (*SIZES, 40001):
            expected = torch.empty(n, dtype=torch_dtype(dtype)).uniform_(low, high, generator=theirs)
            assert_same_draws(sample.uniform(ours, (n,), dtype, low, high), expected, ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("mean, std", [(0, 1), (0, 0.02), (0.3, 1.7), (2, 1), (1, 0)])
def test_normal(dtype, mean, std):
    for seed in SEEDS:
        for n in (*SIZES, 40001):
            ours, theirs = twins(seed)
            for _ in range(2):
                expected = torch.empty(n, dtype=torch_dtype(dtype)).normal_(mean, std, generator=theirs)
                small = n * (2 if dtype.kind == "c" else 1) < 16
                got = sample.normal(ours, (n,), dtype, mean, std)
                assert_same_draws(got, expected, ours, theirs, None if small else mean)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_tensor(dtype):
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal((4, 1)).astype(dtype), rng.random((1, 9)).astype(dtype)
    for a, b in ((mean, std), (mean, 2.5), (1.5, std), (mean[:2], std[:, :3])):
        ours, theirs = twins(1)
        as_torch = [
            torch.from_numpy(v.astype(F64)).to(torch_dtype(dtype)) if isinstance(v, np.ndarray) else v for v in (a, b)
        ]
        expected = torch.normal(*as_torch, generator=theirs)
        assert_same_draws(sample.normal_tensor(ours, a, b), expected, ours, theirs, 3.0)
    with pytest.raises(RuntimeError, match=r"normal expects all elements of std >= 0\.0"):
        sample.normal_tensor(Generator(), mean, -std)


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "every other column": lambda a: a[:, ::2],
    "a corner, transposed": lambda a: a[1:, 3:].T,
    "three dimensions": lambda a: a.reshape(3, 4, 5).transpose(2, 0, 1),
    "one row": lambda a: a[1:2].T,
    "few": lambda a: a[:2, ::4],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("float32 float64 complex64"))
def test_strided_arrays_are_filled_in_pytorchs_order(layout, dtype):
    samplers = [
        (sample.uniform, "uniform_", (0.3, 1.7)),
        (sample.normal, "normal_", (0.3, 1.7)),
    ]
    if dtype.kind == "f":
        samplers += [(sample.bernoulli, "bernoulli_", (0.3,)), (sample.randint, "random_", (0, 50))]
    for sampler, method, args in samplers:
        memory, oracle = np.zeros((3, 20), dtype), torch.zeros(3, 20, dtype=torch_dtype(dtype))
        view = LAYOUTS[layout](memory)
        start = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        strides = [s // dtype.itemsize for s in view.strides]
        ours, theirs = twins(8)
        assert sample.fill(view, sampler, ours, *args) is view
        getattr(torch.as_strided(oracle, view.shape, strides, start // dtype.itemsize), method)(*args, generator=theirs)
        assert_same_draws(memory, oracle, ours, theirs, 0.3 if sampler is sample.normal else None)


# --- integers, permutations, coins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_random_over_the_whole_type(dtype):
    for seed in SEEDS:
        ours, theirs = twins(seed)
        for n in SIZES:
            expected = torch.empty(n, dtype=torch_dtype(dtype)).random_(generator=theirs)
            assert_same_draws(sample.random(ours, (n,), dtype), expected, ours, theirs)


RANGES = [
    *((0, 2), (0, 10), (-5, 100), (0, 64), (-1000, 30000), (0, 65504), (257, 900), (2049, 5000), (-70000, 70000)),
    *((0, 2**24 + 2), (0, 2**27), (0, 2**28), (5, 2**28 + 99), (-(2**31), 2**31 - 1), (-(2**31), 2**31), (0, 2**32)),
    *((0, 2**40), (-(2**62), 2**62 + 5), (-(2**63), 2**63 - 1), (3, None), (-(2**63), None), (7, 7), (9, 2)),
]


@pytest.mark.filterwarnings("ignore:.*out of bounds:UserWarning")  # ranges beyond a floating type's precision
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_randint(dtype):
    for low, high in RANGES:
        for n in (0, 1, 33, 4097):
            ours, theirs = twins(n)
            try:
                expected = torch.empty(n, dtype=torch_dtype(dtype)).random_(low, high, generator=theirs)
            except RuntimeError as error:
                with pytest.raises(type(error)) as raised:
                    sample.randint(ours, (n,), dtype, low, high)
                assert str(raised.value) == str(error).splitlines()[0]
            else:
                assert_same_draws(sample.randint(ours, (n,), dtype, low, high), expected, ours, theirs)


@pytest.mark.parametrize("n", [*SIZES, 384, 385, 50000])
def test_randperm(n):
    for seed in SEEDS:
        ours, theirs = twins(seed)
        assert_same_draws(permutation.randperm(ours, n), torch.randperm(n, generator=theirs), ours, theirs)
        if n < 2000:
            expected = torch.randperm(n, generator=theirs, dtype=torch.float16)
            assert_same_draws(permutation.randperm(ours, n, np.dtype("float16")), expected, ours, theirs)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 40])
def test_shuffles_are_found_without_taking_their_steps(n):
    rng = np.random.default_rng(n)
    for _ in range(200):
        targets = rng.integers(np.arange(n), n)
        stepwise = list(range(n))
        for i, j in enumerate(targets):
            stepwise[i], stepwise[j] = stepwise[j], stepwise[i]
        assert permutation._shuffle(targets).tolist() == stepwise
        # The shuffle of very long permutations: too long to compare with PyTorch here.
        targets = rng.integers(0, np.arange(1, n + 1))
        for i, j in enumerate(targets):
            stepwise[i] = i
            stepwise[i], stepwise[j] = stepwise[j], i
        assert permutation._inside_out(targets).tolist() == stepwise


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_bernoulli(dtype):
    for p in (0.0, 0.37, 0.5, 1e-3, 1.0):
        ours, theirs = twins(2)
        for n in (*SIZES, 40001):
            expected = torch.empty(n, dtype=torch_dtype(dtype)).bernoulli_(p, generator=theirs)
            assert_same_draws(sample.bernoulli(ours, (n,), dtype, p), expected, ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_tensor(dtype):
    for seed in SEEDS:
        ours, theirs = twins(seed)
        for n in SIZES:
            p = np.random.default_rng(n).random((n, 3)).astype(dtype)
            probabilities = torch.from_numpy(p.astype(F64)).to(torch_dtype(dtype))
            assert_same_draws(
                sample.bernoulli_tensor(ours, p), torch.bernoulli(probabilities, generator=theirs), ours, theirs
            )
            expected = torch.empty(n, 3, dtype=torch.int32).bernoulli_(probabilities, generator=theirs)
            assert_same_draws(sample.bernoulli_tensor(ours, p, np.dtype("int32")), expected, ours, theirs)
    with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1 to be true, but got false"):
        sample.bernoulli_tensor(Generator(), np.array([0.5, 1.5]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_mask(dtype):
    for p in (0.1, 0.5, 0.9):
        for n in SIZES[1:]:
            torch.manual_seed(n)
            ours = Generator().manual_seed(n)
            expected = torch.nn.functional.dropout(torch.ones(n, dtype=torch_dtype(dtype)), p)
            assert_same_draws(sample.dropout_mask(ours, (n,), dtype, p), expected, ours, torch.default_generator)


def test_dropout_of_a_transposed_input():
    torch.manual_seed(0)
    ours = Generator().manual_seed(0)
    mask = sample.fill(np.empty((4, 30), F32).T, sample.dropout_mask, ours, 0.4)
    assert (mask == torch.nn.functional.dropout(torch.ones(4, 30).t(), 0.4).numpy()).all()


# --- other distributions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous_distributions(dtype):
    for seed in SEEDS:
        ours, theirs = twins(seed)
        for n in SIZES:
            x = torch.empty(n, dtype=torch_dtype(dtype))
            assert_same_draws(
                sample.exponential(ours, (n,), dtype, 1.5), x.exponential_(1.5, generator=theirs), ours, theirs, 0
            )
            assert_same_draws(
                sample.cauchy(ours, (n,), dtype, 0.5, 1.5), x.cauchy_(0.5, 1.5, generator=theirs), ours, theirs, 1
            )
            expected = x.log_normal_(0.1, 0.5, generator=theirs)
            assert_same_draws(sample.log_normal(ours, (n,), dtype, 0.1, 0.5), expected, ours, theirs, 0)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS[:-1])
def test_geometric(dtype):
    for n in SIZES:
        ours, theirs = twins(n)
        expected = torch.empty(n, dtype=torch_dtype(dtype)).geometric_(0.2, generator=theirs)
        assert_same_draws(sample.geometric(ours, (n,), dtype, 0.2), expected, ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count, replacement", [(1, True), (1, False), (2, True), (9, False), (20, False), (50, True)])
def test_multinomial(dtype, count, replacement):
    weights = np.random.default_rng(1).random((40, 30))
    weights[weights < 0.1] = 0
    weights = weights.astype(dtype)
    for w in (weights, weights[0]):
        ours, theirs = twins(6)
        as_torch = torch.from_numpy(w.astype(F64)).to(torch_dtype(dtype))
        expected = torch.multinomial(as_torch, count, replacement, generator=theirs)
        got = sample.multinomial(ours, w, count, replacement)
        if dtype.itemsize == 2 and not replacement and count > 1:
            # Quotients of 16-bit numbers tie, and then PyTorch's order is arbitrary: compare what was chosen for.
            assert_same_state(ours, theirs)
            assert (got == expected.numpy()).mean() > 0.8
        else:
            assert_same_draws(got, expected, ours, theirs)


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_rejects_what_pytorch_rejects(bad, replacement):
    weights = np.array([bad, 0.0, 0.0]) if bad == 0 else np.array([1.0, bad, 2.0])
    with pytest.raises(RuntimeError) as theirs:
        torch.multinomial(torch.from_numpy(weights), 2, replacement)
    with pytest.raises(RuntimeError) as ours:
        sample.multinomial(Generator(), weights, 2, replacement)
    assert str(ours.value) == str(theirs.value).splitlines()[0]


@pytest.mark.parametrize("dtype", dtypes("float32 float64"))
def test_samplers_by_rejection(dtype):
    rng = np.random.default_rng(0)
    for seed in SEEDS:
        ours, theirs = twins(seed)
        for most in (0.0, 0.5, 5, 12, 300):
            rate = (rng.random(100) * most).astype(dtype)
            expected = torch.poisson(torch.from_numpy(rate), generator=theirs)
            assert_same_draws(rejection.poisson(ours, rate), expected, ours, theirs)
        for tosses in (3, 20, 1000):
            count, prob = np.full(150, tosses, dtype), rng.random(150).astype(dtype)
            prob[:2] = 0, 1
            expected = torch.binomial(torch.from_numpy(count), torch.from_numpy(prob), generator=theirs)
            assert_same_draws(rejection.binomial(ours, count, prob), expected, ours, theirs)
        alpha = (rng.random((40, 5)) * 3).astype(dtype)
        as_torch = torch.from_numpy(alpha)
        expected = torch._standard_gamma(as_torch, generator=theirs)
        assert_same_draws(rejection.standard_gamma(ours, alpha), expected, ours, theirs, 0)
        assert_same_draws(
            rejection.dirichlet(ours, alpha), torch._sample_dirichlet(as_torch, generator=theirs), ours, theirs, 0
        )
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        rejection.poisson(Generator(), np.array([-1.0]))


@pytest.mark.parametrize("dtype", dtypes("float32 float64 bfloat16"))
def test_rrelu_noise(dtype):
    x = np.random.default_rng(0).standard_normal((10, 10)).astype(dtype)
    torch.manual_seed(3)
    ours, expected = Generator().manual_seed(3), torch.empty(10, 10, dtype=torch_dtype(dtype))
    as_torch = torch.from_numpy(x.astype(F64)).to(torch_dtype(dtype))
    torch.ops.aten.rrelu_with_noise(as_torch, expected, 0.1, 0.3, True)
    assert_same_draws(sample.rrelu_noise(ours, x, 0.1, 0.3), expected, ours, torch.default_generator, 0)


# --- all together ----------------------------------------------------------------------------------------------------


def test_mixed_calls_keep_in_step():
    """What a training script does: initialise, shuffle, drop out, sample, again and again."""
    ours, theirs = twins(2024)
    for n in (1, 5, 15, 16, 33, 100, 4097):
        bound = n**-0.5
        expected = torch.empty(n, 3).uniform_(-bound, bound, generator=theirs)
        assert_same_draws(sample.uniform(ours, (n, 3), F32, -bound, bound), expected, ours, theirs)
        assert_same_draws(
            sample.normal(ours, (n,), F64), torch.randn(n, generator=theirs, dtype=torch.float64), ours, theirs, 0
        )
        assert_same_draws(permutation.randperm(ours, n), torch.randperm(n, generator=theirs), ours, theirs, 0)
        expected = torch.randint(-3, 12, (n, 2), generator=theirs)
        assert_same_draws(sample.randint(ours, (n, 2), I64, -3, 12), expected, ours, theirs, 0)
        assert_same_draws(sample.normal(ours, (3,), F32), torch.randn(3, generator=theirs), ours, theirs, 0)
        expected = torch.empty(n, dtype=torch.bool).bernoulli_(0.3, generator=theirs)
        assert_same_draws(sample.bernoulli(ours, (n,), np.dtype("bool"), 0.3), expected, ours, theirs, 0)


def test_the_state_is_the_same_where_numpys_memory_is_not_known():
    """A generator's state is read from NumPy's memory; with another layout of that, from its `state`."""
    known, unknown = Generator().manual_seed(3), Generator().manual_seed(3)
    unknown._memory = None
    for count in (0, 5, 700):
        assert (known.random32(count) == unknown.random32(count)).all()
        assert (known.state_bytes() == unknown.state_bytes()).all()
    assert known.memory() is not None and unknown.memory() is None
