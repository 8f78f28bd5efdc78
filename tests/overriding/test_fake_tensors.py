"""Fake tensors: shapes, strides, dtypes and devices are PyTorch's; nothing is computed, and reading a value raises."""

import copy
import functools
import importlib

import pytest

import tensorgrad
from tests.support.alike import alike
from tests.support.processes import run_python


def fakes(torch):
    return importlib.import_module(f"{torch.__name__}._subclasses.fake_tensor")


def in_order(scenario):
    """A scenario that returns what a generator yields."""

    @functools.wraps(scenario)
    def run(torch):
        return list(scenario(torch))

    return run


def told(value):
    """What is known of a result without values."""
    if isinstance(value, list | tuple):
        return [told(v) for v in value]
    if hasattr(value, "stride"):
        return (
            type(value).__name__, list(value.shape), list(value.stride()), str(value.dtype), str(value.device),
            value.requires_grad, value.is_leaf, value.storage_offset(),
        )  # fmt: skip
    return value


CALLS = """
x + y | x * 2 | x / 3 | x > 0 | x @ w | x.t() | x[0] | x[:, 1:] | x[None] | x.sum() | x.sum(0) | x.mean(1, True)
x.exp() | x.to(torch.float64) | x.half() | x.int() | x.reshape(-1) | x.reshape(2, 2, 3).permute(2, 0, 1)
x.expand(2, 4, 3) | torch.cat([x, y]) | torch.stack([x, y], 1) | x.split(2) | x.chunk(3) | x.unbind(0)
torch.where(x > 0, x, y) | x.max() | x.max(1) | x.topk(2) | x.sort(0) | x.argmax() | x.cumsum(0) | x.std() | x.var(0)
x.norm() | x.softmax(-1) | f.relu(x) | f.linear(x, w.t()) | f.layer_norm(x, (3,)) | f.gelu(x) | f.dropout(x, 0.5)
f.cross_entropy(x, i) | f.conv2d(z, k) | f.conv2d(z, k, stride=2, padding=1) | f.max_pool2d(z, 2) | f.avg_pool2d(z, 2)
f.interpolate(z, scale_factor=2) | f.batch_norm(z, m, m, training=True) | f.group_norm(z, 1) | f.pad(z, (1, 1))
f.embedding(i, w) | f.one_hot(i, 5) | f.scaled_dot_product_attention(z, z, z) | torch.einsum('ij,jk->ik', x, w)
torch.linalg.svd(x) | torch.linalg.inv(w[:, :3]) | torch.linalg.qr(x) | torch.linalg.eigh(w[:, :3])
torch.linalg.solve(w[:, :3], w) | torch.linalg.norm(x) | torch.fft.rfft(x) | x.gather(0, i[None, :3])
x.index_select(0, i) | x[i] | x.scatter(0, i[None, :3], y) | x.tril() | x.diagonal() | x.flip(0) | x.roll(1, 0)
x.repeat(2, 1) | x.repeat_interleave(2, 0) | x.clone() | x.contiguous() | x.detach() | x.new_zeros(2)
x.new_full((2,), 1, dtype=torch.int64) | torch.zeros_like(x) | torch.rand_like(x) | torch.ones(2) | torch.arange(5)
torch.eye(3) | torch.randn(2, 3) | torch.linspace(0, 1, 4) | torch.full((2,), 3) | torch.empty_strided((2, 3), (1, 2))
torch.randperm(4) | torch.bmm(z[0], z[0]) | x.add_(1) | x.mul_(y) | x.clamp(0, 1) | x.unsqueeze(0).squeeze()
x.view(torch.int32) | x.T | torch.ones(2, device='cuda') + 1 | torch.zeros(2, 3, device='cuda').cpu()
torch.ones(2, device='cuda').half() | torch.ones(2, device='cuda') * torch.tensor(2.0)
torch.ones(2, device='cuda').to(x) | x.to('meta') | x.type(torch.float64) | x.is_cuda
torch.ones(2, device='cuda').is_cuda | x.is_cpu | x.is_meta | torch.ones(2, device='cuda').get_device() | x.numel()
x.element_size() | torch.meshgrid(i, i, indexing='ij') | torch.tensor([1, 2]) | torch.tensor(3).item()
(torch.tensor(3) + 1).item() | len(x) | torch.lerp(x, y, 0.5) | torch.addmm(w, x[:3], w) | x.masked_fill(x > 0, 0.0)
torch.bernoulli(x) | torch.multinomial(x, 2) | x.pow(2) | x ** 0.5 | -x | abs(x) | x.bool() | x.any() | x.all(0)
x.isnan() | x.log_softmax(1) | x.logsumexp(0) | f.nll_loss(x, i) | f.mse_loss(x, y)
f.binary_cross_entropy_with_logits(x, y) | f.unfold(z, 2) | f.grid_sample(z, g)
"""


def inputs(torch):
    return {
        "torch": torch, "f": torch.nn.functional, "x": torch.ones(4, 3), "y": torch.ones(4, 3), "w": torch.ones(3, 5),
        "i": torch.tensor([0, 2, 1, 0]), "z": torch.ones(2, 3, 6, 6), "k": torch.ones(4, 3, 3, 3), "m": torch.ones(3),
        "g": torch.ones(2, 4, 4, 2),
    }  # fmt: skip


@pytest.mark.parametrize("call", [call.strip() for line in CALLS.strip().split("\n") for call in line.split(" | ")])
def test_results_are_those_of_pytorchs_fake_tensors(call):
    torch = pytest.importorskip("torch")

    def run(lib):
        with fakes(lib).FakeTensorMode():
            return told(eval(call, inputs(lib)))

    assert run(tensorgrad) == run(torch)


@alike
@in_order
def test_real_tensors_become_fake_ones(torch):
    mode = fakes(torch).FakeTensorMode()
    base = torch.ones(4, 6)
    weight = torch.nn.Parameter(torch.ones(2, 3))
    given = [base, base[1:3, ::2], base.t(), weight, (weight * 2), torch.ones(2, dtype=torch.int8), torch.ones(())]
    made = [mode.from_tensor(t) for t in given]
    yield told(made)
    yield [isinstance(t, torch.nn.Parameter) for t in made], [t.requires_grad for t in made]
    yield [mode.from_tensor(a) is b for a, b in zip(given, made)]
    yield made[0].untyped_storage()._cdata == made[1].untyped_storage()._cdata if torch.__name__ == "torch" else True
    yield mode.is_our_fake(made[0]), fakes(torch).is_fake(made[0]), fakes(torch).is_fake(base)
    yield [repr(t) for t in made if t.is_leaf]


def test_views_of_one_tensor_share_memory():
    mode = fakes(tensorgrad).FakeTensorMode()
    base = tensorgrad.ones(4, 6)
    a, b = mode.from_tensor(base), mode.from_tensor(base[1:])
    assert a._storage is b._storage and b.storage_offset() == 6


@alike
@in_order
def test_texts(torch):
    with fakes(torch).FakeTensorMode():
        layer = torch.nn.Linear(3, 2)
        yield repr(layer.weight), repr(layer(torch.ones(4, 3))), repr(torch.ones(2, dtype=torch.float64))
        yield repr(torch.ones(2)), repr(torch.ones(2, device="meta")), repr(torch.arange(3))
        yield repr(torch.ones(2, device="cuda")), repr(torch.ones(2, device="cuda:1", dtype=torch.int64))


def test_a_model_on_a_gpu_that_is_not_there():
    """PyTorch built for the CPU fails here."""
    with fakes(tensorgrad).FakeTensorMode():
        x = tensorgrad.ones(4, 3, requires_grad=True)
        model = tensorgrad.nn.Linear(3, 2)
        other = copy.deepcopy(model)
        model.to("cuda")
        y = model(x.cuda())
        assert repr(y) == "FakeTensor(..., device='cuda:0', size=(4, 2), grad_fn=<AddmmBackward0>)"
        assert [str(p.device) for p in model.parameters()] == ["cuda:0"] * 2
        assert [str(p.device) for p in other.parameters()] == ["cpu"] * 2
        y.sum().backward()
        assert str(model.weight.grad.device) == "cuda:0" and str(x.grad.device) == "cpu"
        for moved in (x.to("cuda"), x.to("cuda", tensorgrad.float16), x.cuda(), x.to(y), x.cuda().new_ones(2)):
            assert str(moved.device) == "cuda:0" and moved.is_cuda and not moved.is_meta
        assert x.cuda().cpu().is_cpu and x.cuda(1).get_device() == 1 and x.to("cpu") is x


@alike
@in_order
def test_a_model_is_trained_without_memory(torch):
    with fakes(torch).FakeTensorMode():
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                    torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10))  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 3, 8, 8)), torch.zeros(5, dtype=torch.int64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield told(loss), [told(p) for p in model.parameters()], [told(p.grad) for p in model.parameters()]
        yield sorted((k, told(v)) for k, v in model.state_dict().items())


@alike
@in_order
def test_recurrent_and_attention_layers(torch):
    with fakes(torch).FakeTensorMode():
        x = torch.ones(2, 5, 8)
        yield list(torch.nn.LSTM(8, 4, 2, batch_first=True)(x)[0].shape)
        yield list(torch.nn.GRU(8, 4, bidirectional=True)(x)[1].shape)
        yield told(torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)(x))
        yield told(torch.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x))


@alike
@in_order
def test_outside_the_mode_its_tensors_stay_fake(torch):
    with fakes(torch).FakeTensorMode() as mode:
        x = torch.ones(2, 3, requires_grad=True)
    y = (x * 2).sum()
    (g,) = torch.autograd.grad(y, x)
    yield told(y), told(g), y.fake_mode is mode, str(y.fake_device)


@alike
@in_order
def test_what_needs_values_raises(torch):
    names = fakes(torch)
    calls = [
        lambda x: x.sum().item(), lambda x: bool(x.sum()), lambda x: int(x.sum()), lambda x: x.nonzero(),
        lambda x: x[x > 0], lambda x: torch.masked_select(x, x > 0), lambda x: torch.unique(x),
        lambda x: torch.equal(x, x), lambda x: x.tolist(), lambda x: torch.allclose(x, x), lambda x: torch.argwhere(x),
        lambda x: x[0].int().repeat_interleave(x[0].int()), lambda x: x.sum().cos().item(),
    ]  # fmt: skip
    with names.FakeTensorMode():
        x = torch.ones(2, 3)
        for call in calls:
            try:
                call(x)
                yield "no error"
            except RuntimeError as error:
                yield type(error).__name__, str(getattr(error, "func", error))


@alike
@in_order
def test_real_and_fake_tensors_do_not_mix(torch):
    names = fakes(torch)
    real, mode = torch.ones(2), names.FakeTensorMode()
    for call in (lambda: real + 1, lambda: torch.ones(2) + real, lambda: real.sum()):
        with mode, pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
            call()
    other = names.FakeTensorMode()
    yield other.from_tensor(mode.from_tensor(real)).fake_mode is other
    with other, pytest.raises(AssertionError, match="Mixing fake modes"):
        mode.from_tensor(real) + 1
    with names.FakeTensorMode(allow_non_fake_inputs=True):
        yield told(torch.ones(2) + real)
    with names.FakeTensorMode(), pytest.raises(RuntimeError, match="to be on the same device, but found at least two"):
        torch.ones(2, device="cuda") + torch.ones(2)


@alike
@in_order
def test_values_that_the_program_writes_down_are_known(torch):
    with fakes(torch).FakeTensorMode():
        n = torch.tensor(3)
        yield n.item(), (n * 2 + 1).item(), bool(n > 2), int(n), n.add_(1).item(), n.item()
        computed = torch.ones((), dtype=torch.int64).sum()
        n.add_(computed)
        try:
            yield n.item()
        except RuntimeError as error:
            yield type(error).__name__


@alike
@in_order
def test_copies_and_devices_of_modules(torch):
    with fakes(torch).FakeTensorMode():
        model = torch.nn.Linear(3, 2)
        other = copy.deepcopy(model)
        yield told(other.weight), other.weight is model.weight
        yield told(other.weight), told(model.weight)
        model.load_state_dict({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)})


@alike
@in_order
def test_the_mode_is_found(torch):
    names, guards = fakes(torch), importlib.import_module("torch._guards") if torch.__name__ == "torch" else None
    detect = guards.detect_fake_mode if guards else names.detect_fake_mode
    mode = names.FakeTensorMode()
    x = mode.from_tensor(torch.ones(2))
    yield detect([x, {"a": 1}]) is mode, detect() is None, names.maybe_get_fake_mode(x) is mode
    with mode:
        yield detect() is mode
        with names.unset_fake_temporarily():
            yield detect() is None, type(torch.ones(2)).__name__
        yield type(torch.ones(2)).__name__


@alike
@in_order
def test_a_graph_is_run_without_memory(torch):
    prop = importlib.import_module(f"{torch.__name__}.fx.passes.fake_tensor_prop").FakeTensorProp
    traced = torch.fx.symbolic_trace(lambda x, y: (x @ y).relu().sum(0))
    result = prop(traced).propagate(torch.ones(2, 3), torch.ones(3, 4))
    yield told(result), [told(node.meta["val"]) for node in traced.graph.nodes]


def test_make_fx_traces_without_values():
    make_fx = importlib.import_module("tensorgrad.fx.experimental.proxy_tensor").make_fx
    x, y = tensorgrad.ones(2, 3), tensorgrad.ones(3, 4)
    real, fake = (make_fx(lambda a, b: (a @ b).relu() + 1, tracing_mode=mode)(x, y) for mode in ("real", "fake"))
    assert fake.code == real.code and fake(x, y).tolist() == real(x, y).tolist()
    with pytest.raises(RuntimeError, match="is read as a Python number"):
        make_fx(lambda a: a * a.sum().item(), tracing_mode="fake")(x)
    with pytest.raises(NotImplementedError, match="symbolic"):
        make_fx(lambda a: a, tracing_mode="symbolic")


def test_devices_are_kept_beside_distributed_tensors():
    program = """
import tensorgrad as torch
from tensorgrad._subclasses.fake_tensor import FakeTensorMode
before = dict(vars(torch.Tensor))
import tensorgrad.distributed.tensor
assert all(before[name] is method for name, method in vars(torch.Tensor).items())
with FakeTensorMode():
    x = torch.ones(2, 3)
    moved = x.to("cuda"), x.cuda(), x.to(device="cuda"), x.to(x.cuda()), x.cuda().cpu(), x.to("meta")
print(*(y.device for y in moved))
"""
    done = run_python(program)
    assert done.stdout.split() == ["cuda:0"] * 4 + ["cpu", "meta"], done.stderr


def test_floating_point_operations_are_counted():
    counter = importlib.import_module("tensorgrad.utils.flop_counter").FlopCounterMode
    with fakes(tensorgrad).FakeTensorMode(), counter(display=False) as counted:
        tensorgrad.nn.Linear(1000, 2000)(tensorgrad.ones(3, 1000))
    assert counted.get_total_flops() == 2 * 3 * 1000 * 2000


def test_sparse_and_quantized_tensors_are_refused():
    mode = fakes(tensorgrad).FakeTensorMode()
    for tensor in (
        tensorgrad.eye(2).to_sparse(),
        tensorgrad.quantize_per_tensor(tensorgrad.ones(2), 1.0, 0, tensorgrad.qint8),
    ):
        with pytest.raises(fakes(tensorgrad).UnsupportedFakeTensorException):
            mode.from_tensor(tensor)


def test_a_huge_model_takes_no_memory():
    with fakes(tensorgrad).FakeTensorMode():
        model = tensorgrad.nn.Linear(10**6, 10**6, device="cuda")
        out = model(tensorgrad.ones(2, 10**6, device="cuda"))
        out.sum().backward()
    assert model.weight.grad.shape == (10**6, 10**6) and str(model.weight.grad.device) == "cuda:0"
