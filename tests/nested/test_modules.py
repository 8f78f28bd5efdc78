"""Modules given nested tensors, and attention that skips padding, compared with torch."""

import warnings

import numpy as np
import pytest

import tensorgrad
from tests.nested.cases import arrays, compare, nested
from tests.support.alike import alike, error

pytest.importorskip("torch")


def encoder(torch, enable):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=enable).eval()


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("lengths", [(3, 5, 1), (5, 5, 5), None])
def test_an_encoder_that_may_skip_padding(enable, recorded, lengths):
    def call(torch):
        x = torch.tensor(arrays([(3, 5, 16)], dtype="float32")[0])
        places = torch.arange(5)
        # None: padding in the middle, which is not skipped
        padding = (
            torch.tensor([[0, 0, 1, 0, 1]] * 3).bool() if lengths is None else places >= torch.tensor(lengths)[:, None]
        )
        with torch.set_grad_enabled(recorded):
            return encoder(torch, enable)(x, src_key_padding_mask=padding).detach()

    compare(call, tolerance=1e-5)


@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_layers_of_nested_tensors(layout):
    """PyTorch's kernel takes the strided layout alone: those of the other are the same numbers."""
    found = {}
    for name in ("strided", layout):
        for library in (tensorgrad, __import__("torch")) if name == "strided" else (tensorgrad,):
            x = nested(library, [(2, 16), (4, 16)], name, requires_grad=False, dtype="float32")
            with library.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = encoder(library, True)
                attention = model.layers[0].self_attn
                results = model(x), model.layers[0](x), attention(x, x, x, need_weights=False)[0]
            assert all(result.is_nested and str(result.layout) == f"torch.{name}" for result in results)
            found[library.__name__, name] = [np.concatenate([p.numpy() for p in result.unbind()]) for result in results]
    first = found["torch", "strided"]
    for results in found.values():
        for a, b in zip(results, first, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["strided", "jagged"])
@pytest.mark.parametrize("average", [True, False])
def test_the_weights_of_attention(layout, average):
    """Of the jagged layout, which PyTorch refuses, they are those of the strided one."""

    def call(torch):
        kind = "strided" if torch is not tensorgrad else layout
        x = nested(torch, [(2, 16), (4, 16)], kind, requires_grad=False, dtype="float32")
        torch.manual_seed(0)
        attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
        with torch.no_grad():
            made, weights = attention(x, x, x, average_attn_weights=average)
        return made.unbind(), weights

    compare(call, tolerance=1e-5)


@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_attention_refuses_what_torch_refuses(layout):
    def call(torch, recorded=False, training=False, other=False, masked=False, batch_first=True, **options):
        x = nested(torch, [(2, 16), (4, 16)], layout, requires_grad=False, dtype="float32")
        attention = torch.nn.MultiheadAttention(16, 2, batch_first=batch_first).train(training)
        options |= {"attn_mask": torch.zeros(4, 4)} if masked else {}
        with torch.set_grad_enabled(recorded):
            return attention(x, x + 1 if other else x, x, **{"need_weights": False, **options})[0].is_nested

    for options in (
        {"recorded": True}, {"training": True, "recorded": True}, {"other": True}, {"masked": True},
        {"batch_first": False}, {"batch_first": False, "need_weights": True},
    ):  # fmt: skip
        assert compare(lambda torch, options=options: call(torch, **options))[0] is AssertionError


def test_modules_of_jagged_tensors():
    def call(torch):
        torch.manual_seed(0)
        nn = torch.nn
        words = torch.nested.nested_tensor([torch.tensor([0, 3]), torch.tensor([1, 2, 2])], layout=torch.jagged)
        model = nn.Sequential(
            nn.Embedding(4, 8), nn.Linear(8, 6), nn.LayerNorm(6), nn.GELU(), nn.Dropout(0.5).eval(), nn.RMSNorm(6),
            nn.Linear(6, 2, bias=False), nn.Softmax(-1),
        )  # fmt: skip
        found = model(words)
        found.values()[:, 0].sum().backward()
        return found, [p.grad for p in model.parameters()]

    compare(call, tolerance=1e-5)


@alike
def test_dropout_draws_what_pytorch_draws(torch):
    told = []
    for layout in (torch.jagged, torch.strided):
        for p in (0.0, 0.5, 1.0):
            for training in (True, False):
                x = torch.nested.nested_tensor([torch.ones(n, 4) for n in (2, 3)], layout=layout)
                torch.manual_seed(0)
                made = torch.nn.functional.dropout(x, p, training=training)
                told.append(([t.tolist() for t in made.unbind()], torch.rand(1).item()))
    return told


@alike
def test_native_dropout_draws_for_every_probability(torch):
    told = []
    for p in (0.0, 0.3, 1.0):
        for train in (True, False, None):
            torch.manual_seed(0)
            told.append((*torch.native_dropout(torch.arange(1.0, 7.0), p, train), torch.rand(1).item()))
    return *told, error(torch.native_dropout, torch.ones(3), 1.5, True)
