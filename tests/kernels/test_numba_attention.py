"""Attention by tiles against NumPy's kernel, which makes the whole matrix of scores, and against the twin."""

import sys

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent
from tests.support.processes import run_python

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tests.support.compare import assert_close, normal
from tests.support.kernels import fixtures, numpy_only, results_and_gradients

attention = tg.nn.functional.scaled_dot_product_attention
split = sys.modules["tensorgrad.ops.split"]
ROWS = [row for row in table.ROWS if row.kernel.startswith("attention.")]
compiled, used = fixtures(ROWS)


def attend(arrays, options):
    return results_and_gradients(lambda q, k, v: attention(q, k, v, **options), *arrays)


def by_numpy(arrays, options):
    with numpy_only():
        return attend(arrays, options)


def check(arrays, atol=2e-5, **options):
    assert_close(attend(arrays, options), by_numpy(arrays, options), 1e-4, atol=atol)


SIZES = [  # leading dimensions, queries, keys, features, features of the values
    ((), 5, 7, 4, 3), ((2,), 1, 9, 8, 8), ((1, 2), 64, 64, 32, 32), ((2, 3), 50, 50, 64, 64),
    ((2, 1), 300, 300, 16, 16), ((1, 1), 130, 500, 20, 33),
    ((3, 2), 1, 300, 48, 33), ((2,), 3, 70, 20, 64), ((1, 2), 500, 130, 16, 48),
    ((1, 1), 257, 257, 1, 1), ((1, 1), 70, 490, 96, 80),
]  # fmt: skip


@pytest.mark.parametrize(("lead", "queries", "keys", "features", "width"), SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_sizes(lead, queries, keys, features, width, causal, used):
    arrays = normal(*lead, queries, features), normal(*lead, keys, features, seed=1), normal(*lead, keys, width, seed=2)
    check(arrays, is_causal=causal)
    assert used == {"attention", "attention.backward"}


def test_heads_beside_one_another(used):
    """As layers call it: views of one projection, (batch, place, head, feature)."""
    x = tg.from_numpy(normal(2, 40, 3 * 4 * 16)).requires_grad_()

    def call():
        parts = [t.view(2, 40, 4, 16).transpose(1, 2) for t in x.split(64, 2)]
        out = attention(*parts, is_causal=True).transpose(1, 2).reshape(2, 40, 64)
        return out.detach().numpy(), tg.autograd.grad(out.square().sum(), x)[0].numpy()

    fast = call()
    assert used == {"attention", "attention.backward"}
    tg.use_deterministic_algorithms(True)
    slow = call()
    tg.use_deterministic_algorithms(False)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


PARTS = {
    "split": lambda x: [t.view(2, 40, 4, 16).transpose(1, 2) for t in x.split(64, 2)],
    "chunk": lambda x: [t.view(2, 40, 4, 16).permute(0, 2, 1, 3) for t in x.chunk(3, -1)],
    "unbind": lambda x: x.view(2, 40, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(),
    "three dimensions": lambda x: x.view(80, 3, 4, 16).permute(1, 2, 0, 3).unbind(),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("kept", [False, True])
def test_gradients_of_parts_of_one_array(name, kept, used, monkeypatch):
    """They are written where the parts' gradient belongs, and not copied, unless a hook has kept one of them."""
    numbers, seen, whole, joined, whole_of = normal(2, 40, 3 * 4 * 16), [], [], [], split._whole
    monkeypatch.setattr(split, "_whole", lambda *given: (joined.append(whole_of(*given)), joined[-1])[1])

    def call():
        seen.clear()
        whole.clear()
        x = tg.from_numpy(numbers).requires_grad_()
        y = x * 1
        y.register_hook(whole.append)
        q, k, v = PARTS[name](y)
        if kept:
            k.register_hook(seen.append)
        attention(q, k, v, is_causal=True).square().sum().backward()
        return x.grad.numpy()

    with numpy_only():
        slow = call()
    used.clear()
    np.testing.assert_allclose(call(), slow, rtol=1e-4, atol=2e-5)
    assert used == {"attention", "attention.backward"}
    assert [x is None for x in joined] == [True, kept]
    for gradient in seen:
        before = gradient.clone()
        whole[0].zero_()
        assert gradient.equal(before)


@pytest.mark.parametrize("name", ["split", "unbind"])
def test_the_gradient_of_a_leaf_is_its_own(name):
    x, seen = tg.from_numpy(normal(2, 40, 3 * 4 * 16)).requires_grad_(), []
    parts = PARTS[name](x)
    parts[0].register_hook(seen.append)
    attention(*parts).square().sum().backward()
    before = seen[0].clone()
    x.grad.zero_()
    assert seen[0].equal(before)
    assert x.grad.is_contiguous()


@pytest.mark.parametrize("same", [(0, 0, 0), (0, 1, 0), (1, 0, 2), (2, 1, 0)])
def test_parts_in_any_order_and_the_same_twice(same):
    """Their gradients must not share memory where the parts do, and come in the parts' order."""

    def call():
        x = tg.from_numpy(normal(2, 40, 3 * 4 * 16)).requires_grad_()
        parts = PARTS["split"](x)
        attention(*(parts[i] for i in same)).square().sum().backward()
        return x.grad.numpy()

    with numpy_only():
        slow = call()
    np.testing.assert_allclose(call(), slow, rtol=1e-4, atol=2e-5)


def test_windows_that_overlap():
    """Keys and values share half of their memory, so that their gradients must not."""

    def call():
        x = tg.from_numpy(normal(1, 2, 60, 16)).requires_grad_()
        attention(x[:, :, :20], x[:, :, 10:30], x[:, :, 20:40]).square().sum().backward()
        return x.grad.numpy()

    with numpy_only():
        slow = call()
    np.testing.assert_allclose(call(), slow, rtol=1e-4, atol=2e-5)


def test_gaps_between_features(used):
    arrays = [normal(2, 3, 9, 40, seed=s).transpose(0, 1, 3, 2) for s in range(3)]
    check(arrays)
    assert used == {"attention", "attention.backward"}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values(value):
    arrays = [normal(1, 2, 70, 16, seed=s) for s in range(3)]
    arrays[0][0, 0, 3, 2] = arrays[1][0, 1, 5, 1] = value
    check(arrays)
    arrays = [normal(1, 2, 70, 16, seed=s) for s in range(3)]
    arrays[2][0, 0, 3, 2] = value
    np.testing.assert_allclose(attend(arrays, {})[0], by_numpy(arrays, {})[0], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_special_values_that_only_later_queries_see(value):
    arrays = [normal(1, 2, 70, 16, seed=s) for s in range(3)]
    clean = attend(arrays, {"is_causal": True})[0]
    arrays[1][0, 1, 5, 1] = value
    found = attend(arrays, {"is_causal": True})[0]
    np.testing.assert_array_equal(found[0, 0], clean[0, 0])
    np.testing.assert_array_equal(found[0, 1, :5], clean[0, 1, :5])
    slow = by_numpy(arrays, {"is_causal": True})[0]
    np.testing.assert_allclose(found[0, 1, 5:], slow[0, 1, 5:], rtol=1e-4, atol=2e-5)


def test_scores_far_apart():
    """Weights beyond the range of exp: the largest score takes all."""
    check([30 * normal(1, 1, 300, 16, seed=s) for s in range(3)], atol=2e-2)


MASKS = {  # of 3 sequences, 2 heads, 70 queries and 90 keys
    "Boolean, of the keys": lambda: (tg.arange(90) < tg.tensor([[90], [61], [7]]))[:, None, None, :],
    "Boolean, expanded": lambda: (tg.arange(90) < tg.tensor([[90], [61], [7]]))[:, None, None, :].expand(3, 1, 70, 90),
    "Boolean, of queries and keys": lambda: tg.ones(70, 90).tril().bool(),
    "Boolean, a query without keys": lambda: tg.arange(90).expand(3, 2, 70, 90) < tg.arange(70)[:, None],
    "added": lambda: tg.from_numpy(normal(3, 2, 70, 90, seed=5)),
    "added, of the queries": lambda: tg.from_numpy(normal(3, 1, 70, 1, seed=5)),
    "added, transposed": lambda: tg.from_numpy(normal(90, 70, seed=5)).t(),
    "added, with minus infinity": lambda: tg.full((70, 90), -np.inf).triu(1),
    "added, with the least number": lambda: tg.full((70, 90), tg.finfo(tg.float32).min).triu(1),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name, used):
    arrays = normal(3, 2, 70, 16), normal(3, 2, 90, 16, seed=1), normal(3, 2, 90, 24, seed=2)
    check(arrays, attn_mask=MASKS[name]())
    assert used == {"attention", "attention.backward"}


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_few_queries(name, queries, used):
    arrays = normal(3, 2, queries, 16), normal(3, 2, 90, 16, seed=1), normal(3, 2, 90, 24, seed=2)
    mask = MASKS[name]()
    check(arrays, attn_mask=mask[..., 10 : 10 + queries, :] if mask.shape[-2] > 1 else mask)
    assert used == {"attention", "attention.backward"}


def test_special_values_of_few_queries():
    for value in (np.nan, np.inf, -np.inf):
        arrays = [normal(1, 2, n, 16, seed=s) for s, n in enumerate((2, 70, 70))]
        arrays[1][0, 1, 5, 1] = value
        check(arrays)


def test_masks_of_one_head(used):
    for lead in ((), (3,)):
        arrays = normal(*lead, 70, 16), normal(*lead, 90, 16, seed=1), normal(*lead, 90, 24, seed=2)
        check(arrays, attn_mask=tg.ones(*lead, 70, 90).tril().bool())
    assert used == {"attention", "attention.backward"}


def test_masks_are_as_in_torch():
    torch = pytest.importorskip("torch", reason="torch is what the masks are compared with")
    arrays = normal(3, 2, 70, 16), normal(3, 2, 90, 16, seed=1), normal(3, 2, 90, 24, seed=2)
    for name, make in MASKS.items():
        mask, found = make().numpy(), []
        for library in (tg, torch):
            q, k, v = (library.tensor(a, requires_grad=True) for a in arrays)
            out = library.nn.functional.scaled_dot_product_attention(q, k, v, library.tensor(mask))
            out.square().sum().backward()
            found.append([x.detach().numpy() for x in (out, q.grad, k.grad, v.grad)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=5e-5, err_msg=name)


def test_the_gradient_of_a_mask(used):
    """The compiled kernel keeps the logarithms of the sums, from which the general one goes on."""
    arrays = normal(3, 2, 70, 16), normal(3, 2, 90, 16, seed=1), normal(3, 2, 90, 24, seed=2), normal(2, 70, 90, seed=3)

    def call():
        return results_and_gradients(attention, *arrays)

    fast = call()
    assert used == {"attention"}
    with numpy_only():
        assert_close(fast, call(), 1e-4, atol=2e-5)


@pytest.mark.parametrize("mask", [np.ones((4, 2, 40, 40), bool), np.ones((40, 40))], ids=["more sequences", "float64"])
def test_masks_that_the_general_kernel_takes(mask, used):
    q, k, v = (tg.from_numpy(normal(1, 2, 40, 16, seed=s)) for s in range(3))
    if mask.dtype == bool:
        assert attention(q, k, v, tg.from_numpy(mask)).shape == (4, 2, 40, 16)
    else:
        with pytest.raises(RuntimeError, match="attn_mask dtype"):
            attention(q, k, v, tg.from_numpy(mask))
    assert used == set()


@pytest.mark.parametrize("options", [{"dropout_p": 0.5}])
def test_what_the_general_kernel_does(options, used):
    arrays = [normal(1, 2, 40, 16, seed=s) for s in range(3)]
    tg.manual_seed(0)
    fast = attend(arrays, options)
    tg.manual_seed(0)
    for a, b in zip(fast, by_numpy(arrays, options), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not used


def test_shared_heads(used):
    arrays = normal(2, 6, 30, 16), normal(2, 2, 30, 16, seed=1), normal(2, 3, 30, 16, seed=2)
    check(arrays, enable_gqa=True, is_causal=True)
    assert used == {"attention", "attention.backward"}


@pytest.mark.parametrize("mask", [None, (50,), (1, 50), (2, 1, 1, 50), (1, 1, 50), (2, 6, 1, 50), (6, 1, 50)])
@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16])
def test_a_query_of_shared_heads_does_not_repeat_keys(mask, dtype, monkeypatch):
    shapes = (2, 6, 1, 16), (2, 2, 50, 16), (2, 2, 50, 20)
    q, k, v = (tg.from_numpy(normal(*shape, seed=n)).to(dtype) for n, shape in enumerate(shapes))
    mask = None if mask is None else tg.from_numpy(normal(*mask, seed=3) > 0)
    repeated = []
    before = tg.Tensor.repeat_interleave
    monkeypatch.setattr(tg.Tensor, "repeat_interleave", lambda *given: (repeated.append(1), before(*given))[1])
    found = attention(q, k, v, mask, enable_gqa=True)
    assert bool(repeated) == (mask is not None and 6 in mask.shape)
    expected = attention(q, before(k, 3, -3), before(v, 3, -3), mask)
    assert found.stride() == expected.stride()
    assert_close(found.float().numpy(), expected.float().numpy(), 1e-2 if dtype is tg.bfloat16 else 1e-5)
    for n in range(3):  # a result with a history has PyTorch's
        given = [t.detach().requires_grad_(n == i) for i, t in enumerate((q, k, v))]
        made = attention(*given, mask, enable_gqa=True)
        assert made.grad_fn.name() == "ScaledDotProductFlashAttentionForCpuBackward0"


def test_forward_compiled_and_backward_not():
    """The logarithms that the compiled kernel keeps are enough for NumPy's."""
    arrays = [normal(2, 2, 33, 16, seed=s) for s in range(3)]
    q, k, v = (tg.from_numpy(a).requires_grad_() for a in arrays)
    for causal in (False, True):
        out = attention(q, k, v, is_causal=causal)
        tg.use_deterministic_algorithms(True)
        try:
            found = tg.autograd.grad(out.square().sum(), (q, k, v))
            expected = tg.autograd.grad(attention(q, k, v, is_causal=causal).square().sum(), (q, k, v))
        finally:
            tg.use_deterministic_algorithms(False)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=2e-5)


def test_second_derivatives():
    q, k, v = (tg.from_numpy(normal(1, 2, 20, 8, seed=s)).requires_grad_() for s in range(3))

    def penalty():
        grads = tg.autograd.grad(attention(q, k, v, is_causal=True).square().sum(), (q, k, v), create_graph=True)
        return tg.autograd.grad(sum(g.square().sum() for g in grads), (q, k, v))

    fast = penalty()
    tg.use_deterministic_algorithms(True)
    slow = penalty()
    tg.use_deterministic_algorithms(False)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)


def test_results_do_not_depend_on_threads():
    arrays = [normal(2, 3, 200, 32, seed=s) for s in range(3)]
    before, found = tg.get_num_threads(), []
    try:
        for threads in (1, 3):
            tg.set_num_threads(threads)
            found.append(attend(arrays, {"is_causal": True}))
    finally:
        tg.set_num_threads(before)
    assert all((a == b).all() for a, b in zip(*found, strict=True))


PRODUCTS = """
from functools import partial
import numpy as np
from tensorgrad.kernels.compiled.runtime import launch, target
from tools.kernels import dialect
dialect.use(target.chosen())
from tensorgrad.kernels.compiled.simd import panels
from tests.support.compiling import compiled

def calling(product):
    def call(a, stride, b, count, out, pitch, fresh, rows, width):
        product(a, 0, stride, b, 0, width, count, out, 0, pitch, fresh, rows, width)

    x = "float32[::1]"
    signature = f"void({x}, int64, {x}, int64, {x}, int64, boolean, int64, int64)"
    return partial(launch._launcher()[1], compiled(call, signature, "plain"))

across, along = calling(panels.across), calling(panels.along)
rng = np.random.default_rng(0)
for rows in (1, 7, 16, 50):
    for registers in (1, 2, 3, 4, 5, 7, 9):
        width, count = registers * panels.LANES, 13
        a = rng.standard_normal((rows, count)).astype(np.float32)
        b = rng.standard_normal((count, width)).astype(np.float32)
        turned = np.zeros(rows * count + panels.PAD, np.float32)
        turned[: rows * count] = a.T.reshape(-1)
        out = np.zeros((rows + panels.PAD, width), np.float32)
        across(a.reshape(-1), count, b.reshape(-1), count, out.reshape(-1), width, True, rows, width)
        np.testing.assert_allclose(out[:rows], a @ b, rtol=1e-4, atol=1e-5)
        along(turned, rows, b.reshape(-1), count, out.reshape(-1), width, False, rows, width)
        np.testing.assert_allclose(out[:rows], 2 * (a @ b), rtol=1e-4, atol=1e-5)
print("right")
"""


def test_products():
    pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
    done = run_python(PRODUCTS, timeout=500)
    assert done.stdout.strip() == "right", done.stderr[-2000:]
