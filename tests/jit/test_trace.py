"""`torch.jit.trace` records programs that PyTorch loads and that compute the same, here and there."""

import copy
import io

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import nn
from tensorgrad.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch, that its formats are old


class Mixed(nn.Module):
    """Nested arguments and results, writes in place, a constant, a module that is used twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.again = nn.Linear(4, 4), nn.ModuleDict()
        self.again["a"] = self.layer
        self.scale = tg.tensor([2.0])

    def forward(self, x, pair, options=None):
        y = self.layer(x) + pair[0] * self.scale
        y[:, 0] = 1.0
        y += self.again["a"](x)
        if options is not None:
            y = y * options["factor"]
        left, right = y.chunk(2, -1)
        top = x[x[:, 0] > 0]
        return {"left": left, "right": right.sum(0)}, [y.max(1)[0], pair[1]], (top.float().mean(), y.size(0), None)


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(10, 8), nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.gru, self.layer = nn.GRU(12, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        x, (h, c) = self.lstm(self.embedding(tokens))
        x, _ = self.gru(x)
        mask = tokens.eq(0)
        return self.layer(x, src_key_padding_mask=mask), h, c


def convnet():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1),
        nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose2d(4, 2, 2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2, 3), nn.Dropout(0.0), nn.GELU(), nn.LayerNorm(3), nn.Softmax(-1),
    )  # fmt: skip


PROGRAMS = {
    "convnet": (convnet, lambda: (tg.randn(2, 2, 8, 8),)),
    "mixed": (Mixed, lambda: (tg.randn(3, 4), [tg.ones(4), tg.zeros(2)], {"factor": tg.tensor(0.5)})),
    "sentences": (Sentences, lambda: (tg.tensor([[1, 2, 3], [4, 5, 0]]),)),
    "images": (
        lambda: (
            lambda x: (
                F.interpolate(x, scale_factor=1.5), F.interpolate(x, (5, 4), mode="bilinear", align_corners=False),
                F.interpolate(x, (2, 2), mode="bicubic", antialias=True), F.pad(x, (1, 1, 1, 1), "reflect"),
                F.interpolate(x, scale_factor=2.0, mode="nearest-exact"), F.grid_sample(x, x.permute(0, 2, 3, 1)),
            )
        ),
        lambda: (tg.randn(1, 2, 3, 2),),
    ),
    "function": (
        lambda: lambda x, y: (x @ y.T).softmax(-1).cumsum(0) + tg.arange(3), lambda: (tg.randn(3, 2), tg.randn(3, 2))
    ),
}  # fmt: skip


def flat(value):
    """All tensors and numbers of a result, as arrays."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [part for v in value for part in flat(v)]
    return [] if value is None else [np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)]


def assert_close(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def written(name):
    tg.manual_seed(0)
    make, inputs = PROGRAMS[name]
    module, given = make(), inputs()
    if isinstance(module, nn.Module):
        module.eval()
    traced = tg.jit.trace(module, given)
    file = io.BytesIO()
    tg.jit.save(traced, file)
    file.seek(0)
    return module, traced, file, given


def copied(value):
    """The same values in other tensors: programs may write to what they are given."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return type(value)(map(copied, value)) if isinstance(value, list | tuple) else value.clone()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_traced_is_loaded_here(name):
    module, traced, file, given = written(name)
    assert isinstance(traced, tg.jit.ScriptModule) and "def forward" in traced.code
    expected = flat(module(*copied(given)))
    assert_close(flat(traced(*copied(given))), expected)
    loaded = tg.jit.load(file)
    assert_close(flat(loaded(*copied(given))), expected)
    if isinstance(module, nn.Module):
        for other in (traced, loaded):
            assert [n for n, _ in other.named_modules()] == [n for n, _ in module.named_modules()]
            assert list(other.state_dict()) == list(module.state_dict())
            assert [n for n, _ in other.named_parameters()] == [n for n, _ in module.named_parameters()]
        assert all(a is b for a, b in zip(traced.parameters(), module.parameters(), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_traced_is_loaded_by_pytorch(name):
    torch = pytest.importorskip("torch", reason="torch loads the archives")
    module, _, file, given = written(name)

    def there(value):
        if isinstance(value, dict):
            return {k: there(v) for k, v in value.items()}
        return type(value)(map(there, value)) if isinstance(value, list | tuple) else torch.from_numpy(value.numpy())

    theirs = torch.jit.load(file)
    expected = flat(module(*copied(given)))
    assert_close(flat(theirs(*there(copied(given)))), expected)
    if isinstance(module, nn.Module):
        assert [n for n, _ in theirs.named_parameters()] == [n for n, _ in module.named_parameters()]
        again = io.BytesIO()
        torch.jit.save(theirs, again)
        again.seek(0)
        assert_close(flat(tg.jit.load(again)(*copied(given))), expected)


def test_programs_train():
    module, _, file, given = written("convnet")
    loaded = tg.jit.load(file)
    for program in (module, loaded):
        program(*given)[:, 0].sum().backward()
    for (name, a), b in zip(module.named_parameters(), loaded.parameters(), strict=True):
        np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_calls_are_those_of_the_module():
    module = convnet().eval()
    traced = tg.jit.trace(module, tg.randn(2, 2, 8, 8))
    assert traced(tg.randn(5, 2, 8, 8)).shape == (5, 3)
    traced.double()
    assert module[0].weight.dtype == tg.float64 and traced[1].running_mean.dtype == tg.float64
    other = copy.deepcopy(traced)
    with tg.no_grad():
        other[0].weight.zero_()
    assert not tg.equal(other[0].weight, module[0].weight) and other(tg.ones(3, 2, 8, 8).double()).shape == (3, 3)
    assert tg.jit.trace(traced, tg.randn(2, 2, 8, 8)) is traced
    named = tg.jit.trace(Mixed(), example_kwarg_inputs={"x": tg.randn(3, 4), "pair": [tg.ones(4), tg.zeros(2)]})
    assert "pair_0, pair_1, = pair" in named.code


REASONS = {
    "no operators": (lambda x: tg.linalg.matrix_exp(x) + 1, lambda: tg.ones(2, 2), "not an operator"),
    "no operators, without gradients": (
        lambda x: tg.no_grad()(tg.linalg.matrix_exp)(x) + 1,
        lambda: tg.ones(2, 2),
        "not an operator",
    ),
    "results of several types": (lambda x: {"a": x, "b": (x, x)}, lambda: tg.ones(2), "several types"),
    "results without a type": (lambda x: (x, object()), lambda: tg.ones(2), "object"),
}


@pytest.mark.parametrize("why", REASONS)
def test_what_cannot_be_written_says_why(why, tmp_path):
    function, example, reason = REASONS[why]
    traced = tg.jit.trace(function, example())
    traced(example())
    with pytest.raises(NotImplementedError, match=reason):
        traced.save(tmp_path / "file.pt")
    assert not list(tmp_path.iterdir())


def test_errors_of_the_module_are_its_own():
    with pytest.raises(RuntimeError, match=r"size|shape|mat1"):
        tg.jit.trace(nn.Linear(2, 2), tg.ones(3, 5))
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.script\(module\) makes one"):
        tg.jit.save(nn.ReLU(), "file")


def test_arguments_of_all_kinds():
    def function(x, *rest, p0, **more):
        return x + p0 * rest[0] - more["_1"], rest[1] @ more["x_0"][0], rest[1].add_(1)

    args = tg.ones(2), tg.full((2,), 2.0), tg.eye(2)
    named = {"p0": tg.tensor([3.0]), "_1": tg.tensor(0.5), "x_0": [tg.ones(2, 2)], "rest_0": tg.ones(1)}
    traced = tg.jit.trace(function, args, example_kwarg_inputs=named)
    assert args[2].tolist() == [[1, 0], [0, 1]]  # what a trace writes to is a copy
    file = io.BytesIO(traced.save_to_buffer())
    assert_close(flat(tg.jit.load(file)(*copied(args), *copied(list(named.values())))), flat(function(*args, **named)))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_take_sequences_of_other_lengths(name):
    tg.manual_seed(0)
    module = getattr(tg.nn, name)(3, 4, 2, bidirectional=True).eval()
    traced = tg.jit.trace(module, tg.randn(5, 2, 3))
    assert f"torch.{'rnn_tanh' if name == 'RNN' else name.lower()}(" in traced.code
    file, x = io.BytesIO(), tg.randn(9, 2, 3)
    tg.jit.save(traced, file)
    file.seek(0)
    assert tg.equal(tg.jit.load(file)(x)[0], module(x)[0])
