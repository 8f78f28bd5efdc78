"""Mixed precision on the GPU: which op runs in which dtype, and the scaling of losses, beside PyTorch."""

import contextlib
import os
import warnings

import numpy as np
import pytest

import tensorgrad
from tensorgrad.rows import switches
from tests.cuda.test_optim import launched  # noqa: F401 (a fixture)
from tests.nn.test_amp import story
from tests.support.versions import since

emulated = pytest.mark.skipif(os.environ.get("DEVICE") != "emulator", reason="counts what the emulator launches")

# Calls in either library `l`, with `f` for nn.functional. a, b, c, e and v are float32, h and hc float16, d float64,
# t, t4, z and i whole numbers, s all ones, u below 1.
CASES = """
a @ a; l.mm(a, a); l.bmm(b, b); l.mv(a, v); l.addmm(a, a, a); l.addmv(v, a, v); l.addr(a, v, v); l.baddbmm(b, b, b)
l.addbmm(a, b, b); l.chain_matmul(a, a, a); l.linalg.multi_dot([a, a, a]); l.einsum('ij,jk->ik', a, a)
l.linalg.vecdot(a, a); f.linear(a, a, v); f.conv1d(b, b); f.conv2d(c, c); f.conv3d(e, e); f.conv_transpose1d(b, b)
f.conv_transpose2d(c, c); f.conv_transpose3d(e, e); l.matmul(b, a); f.scaled_dot_product_attention(c, c, c)
l.inner(a, a); l.outer(v, v); l.tensordot(a, a, 1); l.kron(a, a); f.bilinear(a, a, b, v)
h.pow(2); h ** 2.5; 2.0 ** h; 1.0 / h; 1 / h; h.acos(); h.asin(); h.cosh(); h.erfinv(); h.exp(); h.expm1(); h.log()
h.log10(); h.log2(); h.log1p(); h.reciprocal(); h.rsqrt(); h.sinh(); h.tan(); f.softplus(h); f.layer_norm(h, (4,))
f.group_norm(h, 2); h.logsumexp(-1); h.sum(); h.sum(0); h.prod(); h.prod(0); h.cumsum(0); h.cumprod(0); h.softmax(-1)
h.log_softmax(-1); f.softmin(h, -1); h.norm(); h.norm(1, 0); l.linalg.vector_norm(h); l.linalg.matrix_norm(h)
l.linalg.norm(h); h.dist(h); f.pdist(h); l.cdist(h, h); l.renorm(h, 2, 0, 1.0); f.normalize(h)
f.cosine_similarity(h, h); h.mean(); h.mean(0); h.std(); h.var(0); h.sqrt(); h.sin(); h.cos(); h.tanh(); h.sigmoid()
h.abs(); h.neg(); h.erf(); h.exp2(); h.atan(); h.acosh(); h.asinh(); h.atanh(); h.square(); h.clamp(0, 1); h.max()
h.amax(0); h.sort(0)[0]; h.cummax(0)[0]; h.logcumsumexp(0); f.relu(h); f.gelu(h); f.silu(h); f.elu(h); f.selu(h)
f.mish(h); f.hardswish(h); f.leaky_relu(h); f.logsigmoid(h); f.glu(h); f.softsign(h); f.tanhshrink(h)
f.dropout(h, 0.5); f.rms_norm(h, (4,)); f.batch_norm(hc, None, None, training=True); f.instance_norm(hc)
f.local_response_norm(hc, 2); f.max_pool2d(hc, 2); f.avg_pool2d(hc, 2); f.adaptive_avg_pool2d(hc, 1)
f.interpolate(hc, scale_factor=2); f.interpolate(hc, scale_factor=2, mode='bilinear'); f.pixel_shuffle(hc, 2)
f.interpolate(hc, scale_factor=2, mode='bicubic'); f.pad(h, (1, 1)); f.cross_entropy(h, t); f.nll_loss(h, t)
f.mse_loss(h, h); f.l1_loss(h, h); f.smooth_l1_loss(h, h); f.huber_loss(h, h); f.kl_div(h, h)
f.binary_cross_entropy_with_logits(h, h); f.poisson_nll_loss(h, h); f.hinge_embedding_loss(h, s)
f.soft_margin_loss(h, s); f.margin_ranking_loss(h, h, s); f.triplet_margin_loss(h, h, h); f.multi_margin_loss(h, t)
f.multilabel_margin_loss(h, t4); f.multilabel_soft_margin_loss(h, u); f.embedding(t, h); l.addcdiv(a, h, h)
l.addcmul(a, h, h); l.addcmul(h, h, h); l.atan2(a, h); l.dot(v, v.half()); l.vdot(v, v.half()); l.cat([a, h])
l.stack([a, h]); l.scatter_add(a, 0, z, h); h + a; h * a; h + h; h - 1; h / h; h / 2; l.where(u > 0, a, h); h > a
h.lerp(h, 0.5); l.cosine_similarity(a, h); d @ d; d + h; d.exp(); l.mm(a, h); f.linear(h, a); i + h; i.sum(); a.sum()
a.exp(); d.sum(); l.logaddexp(h, h); h.diff(); h.flip(0); h.float() @ a; h.trace(); h.tril(); h.masked_fill(u > 0, 1.0)
h.gather(0, z); h.index_select(0, t); h.addmm(h, h); h.fmod(2); h.remainder(2); h.floor(); h.sign(); h.nan_to_num()
h.maximum(h); h.nansum(); h.median(); h.log_softmax(-1, dtype=l.float16); h.softmax(-1, dtype=l.float32)
h.sum(dtype=l.float16); h.cumsum(0, dtype=l.float16); h.prod(dtype=l.float64); l.trapezoid(h)
l.nn.LayerNorm(4, device=a.device)(h); l.nn.Embedding(4, 4, device=a.device)(t)
"""
CASES = [case.strip() for line in CASES.splitlines() for case in line.split(";") if case.strip()]
# What the pretended GPU of PyTorch's cannot run; by the documentation's lists, and by cuDNN's dtypes for RNNs.
BY_DOCUMENTATION = {
    "f.prelu(a, v[:1])": "float16", "f.grid_sample(hc, g)": "float32", "l.cross(a[:, :3], h[:, :3])": "float32",
    "f.cosine_embedding_loss(h, h, s[:, 0])": "float32", "f.unfold(hc, 2)": "float16", "h.t().contiguous()": "float16",
    "l.index_put(a, (t,), h[0])": "float32", "l.nn.LSTM(4, 5, device=a.device)(b)[0]": "float16",
    "l.nn.GRU(4, 5, device=a.device)(b)[0]": "float16", "l.nn.RNN(4, 5, device=a.device)(b)[0]": "float16",
    "l.nn.LSTMCell(4, 5, device=a.device)(a)[0]": "float16", "l.nn.GRUCell(4, 5, device=a.device)(a)": "float16",
    "l.nn.RNNCell(4, 5, device=a.device)(a)": "float16", "l.nn.BatchNorm2d(4, device=a.device)(hc)": "float16",
    "l.nn.MultiheadAttention(4, 2, device=a.device)(b, b, b)[0]": "float16",
    "l.nn.TransformerEncoderLayer(4, 2, 8, device=a.device)(b)": "float32",
}  # fmt: skip


def inputs(l):
    """The names that the cases use, on a GPU."""

    def drawn(*shape):
        return l.rand(*shape, dtype=l.float32, device="cuda")

    t = l.arange(4, device="cuda")
    zeros = l.zeros(4, 4, dtype=l.int64, device="cuda")
    return {
        "l": l, "f": l.nn.functional, "a": drawn(4, 4) + l.eye(4, device="cuda"), "b": drawn(4, 4, 4),
        "c": drawn(4, 4, 4, 4), "e": drawn(4, 4, 4, 4, 4), "v": drawn(4), "h": (drawn(4, 4) * 0.8 + 0.1).half(),
        "hc": drawn(2, 4, 4, 4).half(), "g": drawn(2, 4, 4, 2), "d": drawn(4, 4).double(), "u": drawn(4, 4), "t": t,
        "t4": t.repeat(4, 1), "z": zeros, "i": zeros + 1, "s": l.ones(4, 4, device="cuda"),
    }  # fmt: skip


def told(case, names):
    """The dtype of a case's result, or the kind of its exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(eval(case, names).dtype)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            return type(error).__name__


@pytest.fixture(scope="module")
def by_pytorch():
    """The dtype of every case in PyTorch, whose tensors pretend to be on a GPU."""
    torch = pytest.importorskip("torch")
    fakes = pytest.importorskip("torch._subclasses.fake_tensor")
    before = torch.get_autocast_dtype("cuda")
    with fakes.FakeTensorMode(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = inputs(torch)
        torch.set_autocast_dtype("cuda", torch.float16)
        torch.set_autocast_enabled("cuda", True)
        try:
            return {case: told(case, names) for case in CASES}
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)
            torch.clear_autocast_cache()


@pytest.fixture(scope="module")
def names():
    return inputs(tensorgrad)


RMS_NORM = "f.rms_norm(h, (4,))"


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=since("2.13", "rms_norm ran in float16") if c == RMS_NORM else ()) for c in CASES],
)
def test_each_op_runs_in_pytorchs_dtype(case, names, by_pytorch):
    with tensorgrad.autocast("cuda", dtype=tensorgrad.float16):
        assert told(case, names) == by_pytorch[case]


@pytest.mark.parametrize("case", BY_DOCUMENTATION)
def test_each_op_runs_in_the_documented_dtype(case, names):
    with tensorgrad.autocast("cuda", dtype=tensorgrad.float16):
        assert told(case, names) == f"torch.{BY_DOCUMENTATION[case]}"


def test_what_is_unsafe_is_refused(names):
    with tensorgrad.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        tensorgrad.nn.functional.binary_cross_entropy(names["u"], names["u"])
    assert tensorgrad.nn.functional.binary_cross_entropy(names["u"], names["u"]).item() > 0


def test_autocast_is_of_one_device_and_one_thread_of_calls(names):
    l, here, there = tensorgrad, names["a"], names["a"].cpu()
    assert l.get_autocast_dtype("cuda") is l.float16 and not l.is_autocast_enabled("cuda")
    with l.autocast("cuda", dtype=l.bfloat16):
        assert l.is_autocast_enabled("cuda") and l.get_autocast_dtype("cuda") is l.bfloat16
        assert (here @ here).dtype is l.bfloat16 and (there @ there).dtype is l.float32
        with l.autocast("cpu", dtype=l.float16):  # both are on
            assert (here @ here).dtype is l.bfloat16 and (there @ there).dtype is l.float16
            with l.autocast("cuda", enabled=False):
                assert (here @ here).dtype is l.float32 and (there @ there).dtype is l.float16
        with l.autocast("cuda"):  # the dtype of the outer one
            assert (here @ here).dtype is l.bfloat16
    assert (here @ here).dtype is l.float32


def test_the_older_names_are_the_same(names):
    l = tensorgrad
    with l.cuda.amp.autocast():
        assert (names["a"] @ names["a"]).dtype is l.float16
    assert l.cuda.amp.GradScaler().scale(names["v"].sum()).item() == pytest.approx(2.0**16 * names["v"].sum().item())


def test_a_function_of_ones_own_says_its_dtype(names):
    l = tensorgrad

    class Full(l.autograd.Function):
        @staticmethod
        @l.amp.custom_fwd(device_type="cuda", cast_inputs=l.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @l.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            assert not l.is_autocast_enabled("cuda")
            return grad @ x.T + x.T @ grad

    h = names["h"].clone().requires_grad_()
    with l.autocast("cuda"):
        out = Full.apply(h)
    out.sum().backward()
    assert out.dtype is l.float32 and h.grad.dtype is l.float16


def test_a_parameter_is_cast_once(names):
    l = tensorgrad
    weight, x = l.nn.Parameter(names["a"].clone()), names["a"]
    state = lambda: switches.LOCAL.autocast
    with l.autocast("cuda"):
        first, second = x @ weight, x @ weight
        assert len(state().casts) == 1
        with l.autocast("cuda", enabled=False):
            pass
        with l.no_grad():
            x @ weight
        assert len(state().casts) == 2  # that one has no gradient
        first.sum().backward()
        second.sum().backward()  # through the same cast
        with l.no_grad():
            weight.zero_()
        assert (x @ weight).abs().max().item() == 0  # nobody sees the old copy
    assert weight.grad.dtype is l.float32
    expected = 2 * x.half().sum(0)[:, None].expand(4, 4)
    np.testing.assert_allclose(weight.grad.cpu().numpy(), expected.cpu().float().numpy(), 1e-2)
    with l.autocast("cuda", cache_enabled=False):
        x @ weight
        assert not state().casts


def test_a_step_in_half_precision_follows_one_in_full(names):
    def losses(context, scaler=None):
        l = tensorgrad
        l.manual_seed(0)
        model = l.nn.Sequential(
            l.nn.Linear(8, 16), l.nn.LayerNorm(16), l.nn.GELU(), l.nn.Linear(16, 3)
        ).to("cuda")  # fmt: skip
        optimizer = l.optim.AdamW(model.parameters(), lr=1e-2)
        x = l.tensor(np.random.default_rng(0).standard_normal((32, 8), np.float32), device="cuda")
        y = l.tensor(np.random.default_rng(1).integers(0, 3, 32), device="cuda")
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            with context():
                loss = l.nn.functional.cross_entropy(model(x), y)
            assert loss.dtype is l.float32
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                l.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
                scaler.step(optimizer)
                scaler.update()
            found.append(loss.item())
        return found

    full = losses(contextlib.nullcontext)
    short = losses(lambda: tensorgrad.autocast("cuda", dtype=tensorgrad.bfloat16))
    scaled = losses(lambda: tensorgrad.autocast("cuda"), tensorgrad.amp.GradScaler("cuda", init_scale=2.0**10))
    np.testing.assert_allclose(short, full, 2e-2)
    np.testing.assert_allclose(scaled, full, 2e-3)
    assert short != full and scaled != full


# --- the scaler ------------------------------------------------------------------------------------------------------


def test_the_scaler_does_what_pytorchs_does():
    torch = pytest.importorskip("torch")
    ours, theirs = story(tensorgrad, "cuda"), story(torch, "cpu")
    assert [str(each).replace("tensorgrad", "torch") for each in ours] == [str(each) for each in theirs]


def test_gradients_of_several_dtypes_and_equal_sizes_are_unscaled():
    """Each dtype is a launch, with a table of its own."""
    l = tensorgrad
    dtypes = (l.float32, l.bfloat16, l.float64)
    for _ in range(2):
        parameters = [l.nn.Parameter(l.ones(5, 2, device="cuda", dtype=dtype)) for dtype in dtypes]
        scaler, optimizer = l.amp.GradScaler("cuda", init_scale=4.0), l.optim.SGD(parameters, lr=1.0)
        scaler.scale(l.zeros((), device="cuda"))
        for p in parameters:
            p.grad = l.full_like(p, 8.0)
        scaler.unscale_(optimizer)
        assert all((p.grad.cpu() == 2).all() for p in parameters)


def test_half_gradients_are_refused():
    l = tensorgrad
    w = l.nn.Parameter(l.ones(2, dtype=l.float16, device="cuda"))
    scaler, optimizer = l.amp.GradScaler("cuda"), l.optim.SGD([w], lr=1.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)


@emulated
def test_only_the_step_waits(launched):  # noqa: F811
    import cupyx

    l = tensorgrad
    parameters = [l.nn.Parameter(l.ones(n, device="cuda")) for n in (3, 20000)]
    optimizer, scaler = l.optim.Adam(parameters), l.amp.GradScaler("cuda")
    loss = parameters[0].sum() + parameters[1].sum()
    with cupyx.allow_synchronize(False):
        scaled = scaler.scale(loss)
        scaled.backward()
        launched.clear()
        scaler.unscale_(optimizer)
        l.nn.utils.clip_grad_norm_(parameters, 1.0)
    assert launched == ["optim.unscale", "optim.total_norm", "optim.clip"]
    scaler.step(optimizer)
    launched.clear()
    with cupyx.allow_synchronize(False):
        scaler.update()
    assert launched == ["optim.rescale"]


def test_in_place_ops_ignore_autocast(device, monkeypatch):
    """They write straight into their tensor; an observer, or a mode that sees ops, still gets to see them."""
    import tensorgrad as torch
    from tensorgrad.dispatch import inplace

    seen = []
    replace = inplace.replace
    monkeypatch.setattr(inplace, "replace", lambda self, *rest: seen.append(self) or replace(self, *rest))
    counter, x = torch.zeros((), dtype=torch.int64, device=device), torch.ones(3, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        counter.add_(1)
        x.mul_(2.0).add_(x)
        assert not seen
        with torch.profiler.profile():
            counter.add_(1)
        assert len(seen) == 1
    assert counter.item() == 2 and x.dtype == torch.float32 and x.tolist() == [4.0] * 3
