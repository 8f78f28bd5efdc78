"""Recurrent layers: the kernels for sequences of one length, and what is left to the general kernel."""

import pytest

import tensorgrad
from tests.support.compare import assert_close

torch = pytest.importorskip("torch", reason="compared with torch")


def run(library, kind, place, dtype, hidden, batch, steps, **options):
    """Trains one step from the same numbers; returns outputs and gradients."""
    generator = torch.Generator().manual_seed(0)
    reference = getattr(torch.nn, kind)(5, hidden, **options).to(getattr(torch, dtype))
    numbers = [torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.3 for p in reference.parameters()]
    model = getattr(library.nn, kind)(5, hidden, **options).to(place, getattr(library, dtype))
    with library.no_grad():
        for p, values in zip(model.parameters(), numbers):
            p.copy_(library.tensor(values.tolist(), dtype=p.dtype, device=place))
    x = torch.randn(steps, batch, 5, generator=generator, dtype=torch.float64)
    x = library.tensor(x.tolist(), dtype=getattr(library, dtype), device=place, requires_grad=True)
    out, state = model(x)
    states = list(state) if isinstance(state, tuple) else [state]
    weight = library.arange(out.numel(), dtype=out.dtype, device=place).reshape(out.shape).sin()
    ((out * weight).sum() + sum(s.cos().sum() for s in states)).backward()
    return [out, *states, x.grad, *(p.grad for p in model.parameters())]


CASES = [
    ("LSTM", {}), ("GRU", {}), ("LSTM", {"bidirectional": True}), ("GRU", {"bidirectional": True, "num_layers": 2}),
    ("LSTM", {"bias": False}), ("GRU", {"bias": False}), ("LSTM", {"proj_size": 3}), ("RNN", {}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=[f"{kind} {options}" for kind, options in CASES])
def test_a_layer(kind, options, dtype, device):
    if dtype == "float16" and (options or kind == "RNN"):
        pytest.skip("one case of two bytes per kind")
    ours = run(tensorgrad, kind, device, dtype, 7, 3, 4, **options)
    theirs = run(torch, kind, "cpu", dtype, 7, 3, 4, **options)
    tolerance = {"float32": 1e-5, "float64": 1e-11, "float16": 3e-2}[dtype]
    for a, b in zip(ours, theirs, strict=True):
        assert a.device.type == device
        assert_close(a.detach(), b.detach(), tolerance)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("hidden", "batch"), [(33, 1), (16, 133), (5, 270)], ids=["one", "two to a block", "four"])
def test_how_sequences_are_divided_among_blocks(kind, hidden, batch, device):
    for a, b in zip(
        run(tensorgrad, kind, device, "float64", hidden, batch, 2), run(torch, kind, "cpu", "float64", hidden, batch, 2)
    ):
        assert_close(a.detach(), b.detach(), 1e-10)


def test_sequences_of_different_lengths(device):
    """They have the general kernel, with the same results."""
    found = []
    for library, place in ((tensorgrad, device), (torch, "cpu")):
        model = library.nn.LSTM(3, 4).to(place, library.float64)
        with library.no_grad():
            for k, p in enumerate(model.parameters()):
                p.copy_((library.arange(p.numel(), dtype=library.float64, device=place).reshape(p.shape) + k).sin())
        x = library.arange(5 * 2 * 3, dtype=library.float64, device=place).reshape(5, 2, 3).cos()
        packed = library.nn.utils.rnn.pack_padded_sequence(x, [5, 2])
        out, _ = library.nn.utils.rnn.pad_packed_sequence(model(packed)[0])
        out.sum().backward()
        found.append([out.detach(), *(p.grad for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        assert_close(a, b, 1e-11)
