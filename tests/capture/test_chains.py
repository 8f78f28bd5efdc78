"""Chains: parts of a plan that machine code runs as one list (capture/chains.py). They change no bit."""

import itertools
import math
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.links import TAKEN
from tensorgrad.capture.region import Region
from tensorgrad.kernels.array import activation, loss, pointwise
from tensorgrad.kernels.compiled.runtime import launch, library, thread_pool
from tensorgrad.rows.kernel_tables import COMPILED, OPS
from tensorgrad.settings import SETTINGS
from tensorgrad.tensor import share
from tests.capture.compare import bits
from tests.support.threads import threads

F = nn.functional


def usable():
    try:
        library.image()
    except library.Unusable:
        return False
    return "linear" in COMPILED and COMPILED["linear"].available()


pytestmark = pytest.mark.skipif(not usable(), reason="needs the compiled kernels")


def settled(function, *args, calls=6):
    """A region with a plan."""
    region = Region(function)
    for _ in range(calls):
        region(*args)
    assert region.plans, region.explain()
    return region


def plan_of(region):
    (*_, (_, plan)) = [p for kind in region.kinds.values() for p in kind.plans]
    return plan


class Training:
    """A small classifier, what trains it, and a batch."""

    def __init__(self, sizes=(2, 8, 2), batch=4, act=nn.ReLU, optimizer=torch.optim.SGD, seed=0, **settings):
        torch.manual_seed(seed)
        layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), act())][:-1]
        self.model = nn.Sequential(*layers)
        self.optimizer = optimizer(self.model.parameters(), lr=0.1, **settings)
        self.x, self.y = torch.randn(batch, sizes[0]), torch.randint(0, sizes[-1], (batch,))

    def step(self):
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def after(self):
        return [(bits(p), None if p.grad is None else bits(p.grad), p._version) for p in self.model.parameters()]


# --- what becomes a chain --------------------------------------------------------------------------------------------


def test_a_small_training_step_is_two_chains_and_the_step_of_the_optimizer():
    one = Training()
    source = plan_of(settled(one.step)).source
    assert source.count("replay(") == 2, source
    assert "on_arrays" not in source and not [line for line in source.splitlines() if line.lstrip().startswith("v1 =")]


def test_the_inference_of_a_small_model_is_one_chain():
    model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(1, 16)
    with torch.inference_mode():
        assert plan_of(settled(lambda: model(x))).source.count("replay(") == 1


def test_direct_convolutions_are_in_chains(monkeypatch):
    monkeypatch.setattr(SETTINGS, "threads", 1)  # (what threads share is launched from Python)
    layers = [m for i, o in ((1, 32), (32, 64)) for m in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]
    model, x = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 49, 10)), torch.randn(1, 1, 28, 28)
    with torch.inference_mode():
        region = settled(lambda: model(x))
        assert "on_arrays" not in plan_of(region).source and " = f" not in plan_of(region).source
        assert bits(region()) == bits(model(x))


def test_arrays_on_both_sides_of_an_op_that_is_no_kernel_are_those_of_the_program():
    """tanh of a few numbers is NumPy's: it stands between two chains."""
    one, same = Training(act=nn.Tanh), Training(act=nn.Tanh)
    region = settled(one.step)
    assert plan_of(region).source.count("replay(") >= 3
    for _ in range(6):
        same.step()
    assert [bits(region()), one.after()] == [bits(same.step()), same.after()]


# --- no bit changes --------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 8, 17, 64, 130, 300]), min_size=2, max_size=4),
    batch=st.sampled_from([1, 2, 5, 32, 70]),
    act=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid]),
    seed=st.integers(0, 99),
    momentum=st.sampled_from([0.0, 0.9]),
)
def test_training_gives_the_bits_of_the_program(sizes, batch, act, seed, momentum):
    one, same = (Training((*sizes, max(2, sizes[-1])), batch, act, seed=seed, momentum=momentum) for _ in range(2))
    region = Region(one.step)
    for _ in range(7):
        assert bits(region()) == bits(same.step())
        assert one.after() == same.after()


@settings(max_examples=25, deadline=None)
@given(
    channels=st.tuples(st.sampled_from([1, 3, 8, 16, 20]), st.sampled_from([2, 5, 8, 16, 24, 64])),
    size=st.tuples(st.integers(1, 12), st.integers(1, 30)),
    kernel=st.sampled_from([1, 2, 3, 5]),
    stride=st.sampled_from([1, 2]),
    batch=st.sampled_from([1, 2, 5, 16]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_convolutions_give_the_bits_of_the_program(channels, size, kernel, stride, batch, bias, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(*channels, kernel, stride, kernel // 2, bias=bias), nn.ReLU())
    with torch.inference_mode():
        region = Region(lambda x: model(x))
        for _ in range(7):
            x = torch.randn(batch, channels[0], *size)
            assert bits(region(x)) == bits(model(x))
        x = x * math.inf
        assert bits(region(x)) == bits(model(x))


ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3e38], np.float32)
SHAPES = [(4, 2), (8, 1), (1, 8), (3, 17), (64, 32)]  # rows of fewer than eight numbers are left to NumPy


def odd_numbers(random, shape):
    made = random.standard_normal(shape).astype(np.float32)
    made.reshape(-1)[:8] = random.permutation(ODD)
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_for_few_numbers_give_the_bits_of_numpy(shape):
    random = np.random.RandomState(0)
    x, g = odd_numbers(random, shape), odd_numbers(random, shape)
    kernels = {of: COMPILED[taken.same] for of, taken in TAKEN.items() if taken.same}
    assert all(row.available() for row in kernels.values())
    for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.true_divide)):
        with np.errstate(all="ignore"):
            made = kernels[name].ready(x, g)
            assert made is NotImplemented or made.tobytes() == function(x, g).tobytes(), name
    assert kernels["relu"].ready(x).tobytes() == pointwise.relu(np, x).tobytes()
    assert kernels["relu.backward"].ready(g, x).tobytes() == activation.relu_backward(np, g, x).tobytes()
    for slope, reduction in [(1.0, "mean"), (-0.3, "mean"), (np.nan, "mean"), (0.7, "sum"), (np.inf, "sum")]:
        arguments = (np.array(slope, np.float32), x, g, np.zeros(len(x), np.int64), None, -100, 0.0, reduction)
        with np.errstate(all="ignore"):
            expected = loss.cross_entropy_backward(np, *arguments)
        assert kernels["cross_entropy.backward"].ready(*arguments).tobytes() == expected.tobytes()


def test_every_op_of_a_chain_exists():
    assert {name.partition(".")[0] for name in TAKEN} <= OPS.keys() | COMPILED.keys()
    assert {taken.same for taken in TAKEN.values() if taken.same} <= COMPILED.keys()


def rows(*shape):
    return lambda: nn.Parameter(torch.randn(*shape))


# What is computed of which parameters, and the ops that have to be in chains.
COMPUTED = {
    "gelu": (F.gelu, [rows(64, 64)], "gelu gelu.backward"),
    "gelu, by tanh": (lambda x: F.gelu(x, approximate="tanh"), [rows(64, 64)], "gelu gelu.backward"),
    "silu": (F.silu, [rows(64, 64)], "silu silu.backward"),
    "sigmoid": (torch.sigmoid, [rows(128, 130)], "sigmoid sigmoid.backward"),
    "tanh": (torch.tanh, [rows(128, 130)], "tanh.backward"),
    "exp": (torch.exp, [rows(128, 130)], "exp"),
    "softmax": (lambda x: x.softmax(-1), [rows(64, 80)], "softmax softmax.backward"),
    "log_softmax": (lambda x: x.log_softmax(-1), [rows(64, 80)], "log_softmax log_softmax.backward"),
    "sums": (lambda x, y: x + y - 2 * x * y, [rows(40, 50), rows(40, 50)], "add sub"),
    "products": (lambda x, y: x * y / (y * y), [rows(80, 50), rows(80, 50)], "mul div"),
    "a bias": (lambda x, y: x + y, [rows(300, 200), rows(200)], "add"),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (96,), w, b), [rows(40, 96), rows(96), rows(96)],
                   "layer_norm layer_norm.backward"),
    "layer_norm, alone": (lambda x: F.layer_norm(x, (96,)), [rows(40, 96)], "layer_norm layer_norm.backward"),
    "rms_norm": (lambda x, w: F.rms_norm(x, (96,), w), [rows(40, 96), rows(96)], "rms_norm rms_norm.backward"),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [rows(3, 8, 11, 11), rows(8), rows(8)],
                   "group_norm group_norm.backward"),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [rows(6, 8, 11, 11), rows(8), rows(8)],
                   "batch_norm batch_norm.backward"),
    "batch_norm, of small images": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [rows(6, 16, 5, 5), rows(16), rows(16)],
        "batch_norm batch_norm.backward"),
    "attention": (
        lambda *given: F.scaled_dot_product_attention(*[x.transpose(1, 2) for x in given], is_causal=True),
        [rows(2, 20, 3, 16)] * 3, "attention attention.backward"),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [rows(4, 8, 18, 19)], "max_pool max_pool_grad"),
    "max_pool, of windows that overlap": (lambda x: F.max_pool2d(x, 3, 2, 1), [rows(4, 8, 18, 19)],
                                          "max_pool max_pool_grad"),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), [rows(4, 8, 18, 18)], "avg_pool avg_pool_grad"),
    "a copy": (lambda x: x.transpose(0, 1).contiguous(), [rows(80, 96)], "clone_copy"),
}  # fmt: skip


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", COMPUTED)
def test_ops_are_parts_of_chains_and_give_the_bits_of_the_program(name):
    compute, made, ops = COMPUTED[name]
    torch.manual_seed(0)
    given = [make() for make in made]

    def step():
        for p in given:
            p.grad = None
        # (An op before and one after it: what it reads and writes is the chain's.)
        result = compute(*[p * 1.5 for p in given])
        result.backward(result.detach())
        return result.detach()

    region = settled(step)
    plan = plan_of(region)
    launches = {launch.name: launch.of for launch in plan.launches.launches}
    assert set(ops.split()) <= {launches[name] for name in plan._chains.numbers}, plan.explain()
    for scale in (1.0, -3.0, 1e-30, np.nan):
        for p in given:
            p.detach().mul_(scale)
        found = [bits(region()), [bits(p.grad) for p in given]]
        assert found == [bits(step()), [bits(p.grad) for p in given]]
    assert region.plans == 1


@pytest.mark.usefixtures("one_thread")
def test_what_a_kernel_computes_in_python_is_no_part_of_a_chain():
    """A mask of truths becomes numbers by NumPy."""
    q = torch.randn(2, 3, 20, 16)
    mask = torch.ones(20, 20, dtype=torch.bool).tril()

    def forward(mask):
        with torch.no_grad():
            return F.scaled_dot_product_attention(q, q, q, mask) + 0.0

    region = settled(forward, mask)
    for other in (mask, mask.flip(0).contiguous(), mask.t().contiguous()):
        assert bits(region(other)) == bits(forward(other))
    assert region.plans == 1


@pytest.mark.usefixtures("one_thread")
def test_gradients_of_parts_of_one_array_are_not_copied():
    """As without a plan: the kernel of attention has made them side by side."""
    weight = nn.Parameter(torch.randn(3 * 32, 32))
    x = torch.randn(2, 20, 32)

    def step():
        weight.grad = None
        q, k, v = (p.view(2, 20, 2, 16).transpose(1, 2) for p in F.linear(x, weight).split(32, 2))
        seen = F.scaled_dot_product_attention(q, k, v)
        seen.sum().backward()
        return seen.detach()

    region = settled(step)
    (join,) = [launch for launch in plan_of(region).launches.launches if launch.of == "cat"]
    parts = np.zeros((2, 20, 96), np.float32)
    assert join.function([parts[..., :32], parts[..., 32:]], 2).base is parts
    assert [bits(region()), bits(weight.grad)] == [bits(step()), bits(weight.grad)]


# --- what chains must not do ------------------------------------------------------------------------------------------


def test_what_a_call_returned_and_its_gradients_stay_as_they_were():
    one = Training()
    region = settled(one.step)
    held = []
    for _ in range(4):
        loss = region()
        grads = [p.grad for p in one.model.parameters()]
        held.append((loss, grads, bits(loss), [bits(g) for g in grads]))
    for loss, grads, first, others in held:
        assert bits(loss) == first and [bits(g) for g in grads] == others


@pytest.mark.usefixtures("one_thread")
def test_chains_are_given_what_is_there_by_then_of_several_views_of_one_memory():
    tokens, x = torch.arange(32) % 3, torch.randn(1, 32, 4, 64).transpose(1, 2)

    def forward(x, tokens):
        mask = torch.zeros(32).masked_fill(tokens == 0, -math.inf)  # not an op of chains, nor are views of its result
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask.expand(1, 4, 1, 32))
        return x

    region = settled(forward, x, tokens)
    assert plan_of(region).source.count("replay(") == 2, region.explain()
    for other in (tokens, tokens.flip(0)):
        assert bits(region(x, other)) == bits(forward(x, other))


def test_threads_run_the_same_plan_at_a_time():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    inputs = [torch.randn(3, 16) for _ in range(4)]
    expected = [bits(model(x).detach()) for x in inputs]

    def forward(x):
        with torch.no_grad():
            return model(x)

    region = settled(forward, inputs[0])
    wrong = []

    def work(k):
        for _ in range(300):
            if bits(region(inputs[k])) != expected[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and region.plans == 1


def lets_another_run(call, times):
    """Whether a thread that waits for the GIL, and for nothing else, gets it within some calls."""
    gate, ran, before = threading.Lock(), [], sys.getswitchinterval()
    gate.acquire()

    def wait():
        gate.acquire()
        ran.append(True)

    thread = threading.Thread(target=wait)
    sys.setswitchinterval(1000)  # seconds: nobody is asked to release the GIL
    try:
        thread.start()
        gate.release()
        for _ in range(times):
            call()
            if ran:
                return True
        return False
    finally:
        sys.setswitchinterval(before)
        thread.join()


@pytest.mark.usefixtures("one_thread")
def test_kernels_and_chains_keep_the_gil_if_they_are_short():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).requires_grad_(False)
    small, large = torch.randn(8, 64), torch.randn(1000, 1000)
    inputs = torch.randn(3, 16), torch.randn(20000, 16)
    brief, long = settled(model.forward, inputs[0]), settled(model.forward, inputs[1])
    for few in (lambda: F.gelu(small), lambda: brief(inputs[0])):
        assert not lets_another_run(few, 3_000)
    for many in (lambda: F.gelu(large), lambda: long(inputs[1])):
        assert lets_another_run(many, 10_000)


@pytest.mark.parametrize("target", [[0, 1, 1, 5], [0, -3, 1, 0]])
def test_a_wrong_target_is_the_error_of_the_program_and_changes_nothing(target):
    one, same = Training(), Training()
    region = settled(one.step)
    for _ in range(6):
        same.step()
    for t in (one, same):
        t.y.copy_(torch.tensor(target))
    with pytest.raises(IndexError) as theirs:
        same.step()
    with pytest.raises(IndexError) as ours:
        region()
    assert str(ours.value) == str(theirs.value) and one.after() == same.after()
    for t in (one, same):
        t.y.copy_(torch.tensor([0, 1, 1, 0]))
    assert [bits(region()), one.after()] == [bits(same.step()), same.after()]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_a_loss_that_is_not_finite_is_that_of_the_program(value):
    one, same = Training(), Training()
    region = settled(one.step)
    for _ in range(6):
        same.step()
    for t in (one, same):
        t.x[0, 0] = value
    for _ in range(2):
        assert [bits(region()), one.after()] == [bits(same.step()), same.after()]


def test_an_input_that_kernels_do_not_take_is_computed_as_the_program_does():
    """A read-only array: kernels refuse it, and NumPy serves. The guards do not look at that."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(x):
        with torch.no_grad():
            return model(x)

    x = torch.randn(3, 16)
    region = settled(forward, x)
    array = x.numpy().copy()
    array.flags.writeable = False
    other = share(array, None)
    with torch.no_grad():
        expected = bits(model(other))
    assert bits(region(other)) == expected and region.plans == 1


def test_an_input_that_shares_memory_with_a_parameter_once_does_not_later():
    layer = nn.Linear(4, 4)

    def forward(x):
        with torch.no_grad():
            return layer(x)

    region = Region(forward)
    for x in [layer.weight.detach()] * 6 + [torch.randn(4, 4), layer.weight.detach()]:
        with torch.no_grad():
            expected = bits(layer(x))
        assert bits(region(x)) == expected


def test_gradients_that_a_step_adds_to_are_its_own_each_time():
    """The `.grad` that a plan reads is another tensor in each call."""
    one, same = Training(), Training()

    def accumulating(t):
        def step():
            loss = F.cross_entropy(t.model(t.x), t.y)
            loss.backward()
            return loss

        return step

    ours, theirs = settled(accumulating(one)), accumulating(same)
    for _ in range(6):
        theirs()
    for scale in (1.0, 0.5, 2.0):
        for t in (one, same):
            for p in t.model.parameters():
                p.grad = p.grad * scale
        assert [bits(ours()), one.after()] == [bits(theirs()), same.after()]


@pytest.fixture
def one_thread():
    with threads(torch, 1):
        yield


def test_what_several_threads_may_share_is_no_part_of_a_chain():
    """Whether they were free when the plan was made must not matter."""
    before = torch.get_num_threads()
    model, x = nn.Linear(512, 512), torch.randn(512, 512)

    def forward():
        with torch.no_grad():
            return model(x)

    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert plan_of(settled(forward)).source.count("replay(") == (threads == 1)
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")  # each thread has memory of its own within a kernel
def test_a_step_needs_no_more_memory_than_the_program():
    def peak(step):
        tracemalloc.start()
        try:
            step()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            step()
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    one, same = (Training((784, 256, 64, 10), 64, optimizer=torch.optim.Adam) for _ in range(2))
    region = settled(one.step)
    for _ in range(6):
        same.step()
    assert peak(region) <= 1.1 * peak(same.step)


# --- lists of launches ------------------------------------------------------------------------------------------------


def listed(x, w, out):
    kernel = COMPILED["linear"].ready.__globals__["tiny_layer"]()
    bias = np.zeros(len(w), np.float32)
    numbers = launch.numbers_of(kernel, (x, w, bias, out))
    arrays = [x, w, out]
    places = [(next(i for i, a in enumerate(arrays) if a is n), 0) if n is not bias and n.__class__ is np.ndarray
              else n.ctypes.data if n is bias else n for n in numbers]  # fmt: skip
    table = launch.listed(arrays, [(kernel, 1, places)])
    return table, bias


def test_a_list_runs_on_arrays_like_those_it_was_made_of_and_on_no_others():
    random = np.random.RandomState(1)
    x, w, out = (random.standard_normal(s).astype(np.float32) for s in ((3, 4), (5, 4), (3, 5)))
    table, bias = listed(x, w, out)
    at, replay = table.ctypes.data, launch.replay()
    y, v = random.standard_normal((3, 4)).astype(np.float32), random.standard_normal((5, 4)).astype(np.float32)
    made = np.empty((3, 5), np.float32)
    assert replay(at, y, v, made) is True
    np.testing.assert_allclose(made, y @ v.T, rtol=1e-5, atol=1e-6)
    read_only = np.array(y)
    read_only.flags.writeable = False
    unlike = [
        y.astype(np.float64), y[:2], y[:, ::-1], np.asfortranarray(y), y.reshape(4, 3), y.reshape(12), read_only, None,
        3.0, y.tolist(), np.float32(1), np.ma.array(y), y.view(np.int32),
        np.frombuffer(b"\0" * 49, np.uint8)[1:].view(np.float32).reshape(3, 4),
    ]  # fmt: skip
    for other in unlike:
        made[:] = 7
        assert replay(at, other, v, made) is False
        assert (made == 7).all()
    assert replay(at, y, v) is False and replay(at, y, v, made, made) is False
    del bias


def test_a_thread_hears_only_its_own_launches():
    x, w = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    kernel = COMPILED["linear"].ready
    with thread_pool.listening() as heard:
        other = threading.Thread(target=kernel, args=(x, w, None))
        other.start()
        other.join()
        assert not heard
        with thread_pool.listening() as inside:
            kernel(x, w, None)
        assert len(inside) == 1 and not heard
        kernel(x, w, None)
    kernel(x, w, None)
    assert len(heard) == 1 and not thread_pool._LISTENERS
