"""Recurrent networks against torch: all kinds, layers, directions, packed or not; single steps; packing and padding."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

import tensorgrad as tg  # noqa: E402
from tensorgrad.nn.utils import rnn as ours  # noqa: E402
from tests.conformance.opdb_bridge import differences, to_tg  # noqa: E402
from tests.support.alike import alike, last_bit  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
theirs = torch.nn.utils.rnn

KINDS = [
    ("LSTM", {}), ("LSTM", {"proj_size": 3}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"}),
]  # fmt: skip


def tensors_of(value) -> list:
    """Returns all tensors of a result, including that of a packed batch."""
    if hasattr(value, "batch_sizes"):
        return [value.data]
    return [t for v in value for t in tensors_of(v)] if isinstance(value, tuple) else [value]


def module_pair(name, *args, dtype=torch.float32, **options):
    """The same module in both libraries, from one seed."""
    torch.manual_seed(0)
    tg.manual_seed(0)
    expected = getattr(torch.nn, name)(*args, dtype=dtype, **options)
    actual = getattr(tg.nn, name)(*args, dtype=getattr(tg, str(dtype)[6:]), **options)
    assert repr(actual) == repr(expected)
    assert list(actual.state_dict()) == list(expected.state_dict())
    for e, a in zip(expected.parameters(), actual.parameters(), strict=True):
        assert np.allclose(e.detach().numpy(), a.detach().numpy(), rtol=last_bit(), atol=last_bit())
    return expected, actual


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_networks(kind, more, packed):
    cases = itertools.product([1, 2], [False, True], [True, False], [False, True], [torch.float32, torch.float64])
    for layers, bidirectional, bias, batch_first, dtype in cases:
        options = {
            "num_layers": layers, "bidirectional": bidirectional, "bias": bias, "batch_first": batch_first, **more,
        }  # fmt: skip
        expected, actual = module_pair(kind, 4, 5, dtype=dtype, **options)
        x = torch.randn((3, 6, 4) if batch_first else (6, 3, 4), dtype=dtype, requires_grad=True)
        y = to_tg(x)
        inputs = [x, y]
        if packed:
            inputs = [
                library.pack_padded_sequence(t, [3, 6, 2], batch_first=batch_first, enforce_sorted=False)
                for library, t in ((theirs, x), (ours, y))
            ]
        results = [tensors_of(m(i)) for m, i in zip((expected, actual), inputs)]
        assert not [d for e, a in zip(*results, strict=True) for d in differences(e, a, "result")]
        totals = [sum((t * t.sin()).sum() for t in found) for found in results]
        first = torch.autograd.grad(totals[0], [x, *expected.parameters()])
        for create_graph in (False, True):  # by the kernel, and through the twin
            mine = tg.autograd.grad(totals[1], [y, *actual.parameters()], retain_graph=True, create_graph=create_graph)
            assert not [d for e, a in zip(first, mine, strict=True) for d in differences(e, a, "gradient")]


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_second_derivatives(kind, more):
    _, network = module_pair(kind, 2, 3, dtype=torch.float64, **({"proj_size": 2} if more.get("proj_size") else more))
    x = tg.randn(3, 2, 2, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradgradcheck(lambda x: network(x)[0], (x,))


def test_dropout_between_layers():
    expected, actual = module_pair("LSTM", 3, 4, 3, dropout=0.5)
    x = torch.randn(5, 2, 3)
    torch.manual_seed(1)
    tg.manual_seed(1)
    assert not differences(expected(x)[0], actual(to_tg(x))[0], "output")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_states_and_unbatched(kind):
    expected, actual = module_pair(kind, 3, 4, 2)
    for shape, state in (((5, 2, 3), (2, 2, 4)), ((5, 3), (2, 4))):
        x, h, c = torch.randn(shape), torch.randn(state), torch.randn(state)
        hx = (h, c) if kind == "LSTM" else h
        for e, a in zip(tensors_of(expected(x, hx)), tensors_of(actual(to_tg(x), to_tg(hx))), strict=True):
            assert not differences(e, a, "result")


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    expected, actual = module_pair(kind, 3, 4, bias=bias)
    for shape in ((3,), (2, 3)):
        x = torch.randn(shape)
        for e, a in zip(tensors_of(expected(x)), tensors_of(actual(to_tg(x))), strict=True):
            assert not differences(e, a, "result")


def test_other_devices_and_dtypes():
    network = tg.nn.LSTM(3, 4, device="meta")
    assert network(tg.empty(5, 2, 3, device="meta"))[0].shape == (5, 2, 4)
    assert tg.nn.GRU(3, 4, dtype=tg.float16)(tg.randn(5, 2, 3).half())[0].dtype is tg.float16


@pytest.mark.parametrize("lib", [torch, tg], ids=["torch", "tensorgrad"])
def test_lengths_stay_on_the_cpu(lib):
    """Also where new tensors are made on another device by default."""
    rnn, x = lib.nn.utils.rnn, lib.ones(4, 2, 3, device="cpu")
    with lib.device("meta"):
        packed = rnn.pack_padded_sequence(x, [4, 2])
        _, lengths = rnn.pad_packed_sequence(packed)
    assert packed.batch_sizes.device.type == "cpu" and packed.batch_sizes.tolist() == [2, 2, 1, 1]
    assert packed.data.device.type == "cpu" and lengths.tolist() == [4, 2]


CALLS = """
l.nn.LSTM(3, 4)(l.ones(5, 2, 4)); l.nn.LSTM(3, 4)(l.ones(5)); l.nn.LSTM(3, 4)(l.ones(5, 2, 3, 1))
l.nn.LSTM(3, 4)(l.ones(5, 2, 3), (l.ones(1, 3, 4), l.ones(1, 2, 4))); l.nn.GRU(3, 4)(l.ones(5, 2, 3), l.ones(1, 3, 4))
l.nn.LSTM(3, 4)(l.ones(5, 2, 3), l.ones(1, 2, 4)); l.nn.LSTM(3, 4)(l.ones(5, 3), (l.ones(1, 2, 4), l.ones(1, 2, 4)))
l.nn.GRU(3, 4)(l.ones(5, 3), l.ones(1, 1, 4)); l.nn.LSTM(3, 4)(l.ones(5, 2, 3).double()); l.nn.LSTM(3, 4, dropout=2)
l.nn.LSTM(3, 4, proj_size=4); l.nn.GRU(3, 4, proj_size=2); l.nn.RNN(3, 4, nonlinearity='x'); l.nn.LSTM(3, 0)
l.nn.LSTM(3, 4, 0); l.nn.LSTM(3, 4, proj_size=-1); l.nn.LSTM(3, 'a'); l.nn.LSTMCell(3, 4)(l.ones(2, 2))
l.nn.LSTMCell(3, 4)(l.ones(2, 2, 2)); l.nn.LSTMCell(3, 4)(l.ones(2, 3), (l.ones(1, 4), l.ones(2, 4)))
l.nn.LSTMCell(3, 4)(l.ones(2, 3), (l.ones(2, 5), l.ones(2, 4))); r.pack_padded_sequence(l.ones(4, 2, 3), [2, 4])
r.pack_padded_sequence(l.ones(4, 2, 3), [2, 0], enforce_sorted=False); r.pack_padded_sequence(l.ones(4, 2, 3), [4])
r.pad_sequence([]); r.pad_packed_sequence(r.pack_padded_sequence(l.ones(4, 2, 3), [4, 2]), total_length=2)
r.pad_sequence(3); r.pad_sequence([l.ones(2), l.ones(3)], padding_side='up')
""".replace("\n", ";").split(";")


@pytest.mark.parametrize("call", [c.strip() for c in CALLS if c.strip()])
def test_errors_are_pytorchs(call):
    messages = []
    for library, functions in ((torch, theirs), (tg, ours)):
        with pytest.raises(Exception) as caught:
            eval(call, {"l": library, "r": functions})
        messages.append((caught.type.__name__, str(caught.value)))
    assert messages[0] == messages[1]


PACKINGS = """
r.pack_padded_sequence(x, [4, 3, 1]); r.pack_padded_sequence(x, l.tensor([1, 4, 2]), enforce_sorted=False)
r.pad_packed_sequence(r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False), padding_value=-1.0, total_length=6)
r.pad_packed_sequence(r.pack_padded_sequence(x.transpose(0, 1), [4, 4, 2], True), batch_first=True)
r.pad_sequence([x[:2, 0], x[:4, 1], x[:1, 2]]); r.pad_sequence([x[:2, 0], x[:4, 1]], True, 2.0, 'left')
r.pad_sequence(x); r.pack_sequence([x[:3, 0], x[:1, 1]]); r.pack_sequence([x[:1, 0], x[:3, 1]], enforce_sorted=False)
r.unpack_sequence(r.pack_sequence([x[:1, 0], x[:3, 1]], enforce_sorted=False)); r.unpad_sequence(x, l.tensor([4, 2, 1]))
r.invert_permutation(l.tensor([2, 0, 1])); r.pack_sequence([x[:3, 0]]).to(l.float64); r.pack_sequence([x[:3, 0]]).double()
""".replace("\n", ";").split(";")


@pytest.mark.parametrize("call", [c.strip() for c in PACKINGS if c.strip()])
def test_packing(call):
    x = torch.randn(4, 3, 2)
    expected = eval(call, {"l": torch, "r": theirs, "x": x.clone()})  # unpad_sequence transposes it in place
    actual = eval(call, {"l": tg, "r": ours, "x": to_tg(x)})
    assert repr(actual) == repr(expected)


@alike
def test_flat_weights_can_be_set(torch):
    """As programs do that drop or share weights: what was set is used until a weight is exchanged."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(2, 3, bidirectional=True)
    with torch.no_grad():
        for k, weight in enumerate(layer.parameters()):
            weight.copy_(torch.arange(weight.numel()).reshape(weight.shape) * 0.01 * (k + 1))
    x = torch.ones(4, 1, 2)
    seen = [layer(x)[0].sum().detach(), len(layer._flat_weights), layer._flat_weights_names[:2], layer._all_weights[1]]
    halves = [weight.detach() / 2 for weight in layer._flat_weights]
    layer._flat_weights = halves
    seen += [
        layer(x)[0].sum().detach(),
        layer._flat_weights[0] is halves[0],
        [n for n, _ in layer.named_parameters()][:2],
    ]
    layer.weight_ih_l0 = torch.nn.Parameter(torch.zeros(12, 2))
    seen += [layer(x)[0].sum().detach(), layer._flat_weights[0] is layer.weight_ih_l0]
    layer._flat_weights = [w * 2 for w in layer._flat_weights]
    (layer(x)[0].sum()).backward()
    return [*seen, layer.weight_hh_l0.grad is not None, layer.weight_hh_l0.grad.sum()]
