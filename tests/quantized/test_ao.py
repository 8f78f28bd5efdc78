"""torch.ao.quantization: observers, the workflow, and quantized modules, compared with PyTorch."""

import copy
import importlib
import io

import pytest

import tensorgrad
from tests.support.alike import alike, error


def ao(torch, name="quantization"):
    return importlib.import_module(f"{torch.__name__}.ao.{name}")


def numbers(torch, *shape, seed=1.0):
    """The same values under both libraries, to the last bit."""
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) * (61 + int(10 * seed))).remainder(1009).sub(504).reshape(shape).float() / 512


def filled(torch, model):
    with torch.no_grad():
        for n, p in enumerate(model.parameters()):
            p.copy_(numbers(torch, *p.shape, seed=1.0 + n) / 2)
    return model


@alike
def test_observers(torch):
    q, made = ao(torch), []
    for name in ("MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver",
                 "MovingAveragePerChannelMinMaxObserver", "HistogramObserver"):  # fmt: skip
        channels = "Channel" in name
        for options in (
            {}, {"dtype": torch.qint8}, {"reduce_range": True}, {"quant_min": 0, "quant_max": 127},
            {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric if channels else torch.per_tensor_symmetric},
            {"qscheme": torch.per_channel_symmetric if channels else torch.per_tensor_symmetric},
        ):  # fmt: skip
            observer = getattr(q, name)(**options)
            for n in range(3):
                x = numbers(torch, 6, 50, seed=1.0 + n) * (n + 1)
                made.append(observer(x) is x)
            made += [*observer.calculate_qparams(), list(observer.state_dict()), observer.min_val, observer.max_val]
            made += [observer.quant_min, observer.quant_max, repr(observer)[:40]]
    return made


@alike
def test_fake_quantization_modules(torch):
    q, made = ao(torch), []
    for make in (q.default_fake_quant, q.default_weight_fake_quant, q.default_per_channel_weight_fake_quant,
                 q.get_default_qat_qconfig("x86").activation, q.get_default_qat_qconfig("qnnpack").weight):  # fmt: skip
        module = make()
        for n in range(2):
            x = numbers(torch, 4, 6, seed=1.0 + n).requires_grad_()
            y = module(x)
            y.sum().backward()
            made += [y, x.grad]
        module.apply(q.disable_observer)
        made += [module(x * 9), module.scale, module.zero_point]
        module.apply(q.disable_fake_quant)
        made += [torch.equal(module(x), x), list(module.state_dict())]
    return made


@alike
def test_configurations(torch):
    q = ao(torch)
    return [repr(c) for c in (
        q.default_qconfig, q.default_dynamic_qconfig, q.default_qat_qconfig, q.default_per_channel_qconfig,
        *(f(b) for f in (q.get_default_qconfig, q.get_default_qat_qconfig) for b in ("x86", "fbgemm", "qnnpack")),
    )]  # fmt: skip


@alike
def test_dynamic_linear(torch):
    q, nn, made = ao(torch), torch.nn, []
    model = filled(torch, nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3, bias=False)))
    x = numbers(torch, 5, 20)
    for config in (None, {nn.Linear}, {"0"}, {"2": q.per_channel_dynamic_qconfig}):
        small = q.quantize_dynamic(model, config).requires_grad_(False)
        made += [type(m).__name__ for m in small] + [small(x), repr(small), list(small.state_dict())]
        made += [m.weight().int_repr() for m in small if hasattr(m, "_packed_params")]
        made.append([n for n, _ in small.named_parameters()])
    return made


@alike(tolerance=1e-4)
def test_dynamic_recurrent(torch):
    q, made = ao(torch), []
    for kind in ("LSTM", "GRU"):
        for options in ({}, {"num_layers": 2}, {"bidirectional": True, "batch_first": True}):
            model = filled(torch, torch.nn.Sequential(getattr(torch.nn, kind)(6, 5, **options)))
            small = q.quantize_dynamic(model)
            x = numbers(torch, 4, 3, 6)
            result, last = small[0](x)
            made += [result, last, repr(small)]
            result, last = small[0](x, last)
            made.append(result)
    return made


def network(torch, training=False):
    q, quantized, nn = ao(torch), ao(torch, "nn.quantized"), torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
            self.conv2, self.pool = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2, bias=False), nn.MaxPool2d(2)
            self.add, self.average = quantized.FloatFunctional(), nn.AdaptiveAvgPool2d(1)
            self.hidden, self.relu2, self.last = nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)

        def forward(self, x):
            x = self.relu(self.bn(self.conv(self.quant(x))))
            x = self.pool(self.conv2(x))
            x = self.average(self.add.add(x, x)).flatten(1)
            return self.dequant(self.last(self.relu2(self.hidden(x))))

    model = filled(torch, Network())
    return model.train(training)


FUSED = [["conv", "bn", "relu"], ["hidden", "relu2"]]


@alike(tolerance=5e-3)
def test_static(torch):
    """Integers of results may differ by one: by 1 / 256 here."""
    q, made = ao(torch), []
    x = numbers(torch, 2, 3, 8, 8)
    for config in (q.get_default_qconfig("x86"), q.default_qconfig, q.get_default_qconfig("qnnpack")):
        model = q.fuse_modules(network(torch), FUSED)
        model.qconfig = config
        ready = q.prepare(model)
        ready(x)
        ready(x * 0.8)
        final = q.convert(ready)
        exact, found = model(x), final(x)
        made += [[type(m).__name__ for m in final.children()], list(final.state_dict()), found.shape == exact.shape]
        made += [bool((exact - found).abs().max() < 0.1 * exact.abs().max()), final.conv.weight().int_repr()]
        made += [final.conv.scale, final.conv.zero_point, final.hidden.scale, final.add.scale]
        image = final.quant(x * 0.9371)
        made += [image.int_repr().float() / 256, final.conv(image).int_repr().float() / 256]
    return made


@alike(tolerance=1e-2)
def test_training(torch):
    """Rounded results may differ by one step, 0.0033 here."""
    q, made = ao(torch), []
    x = numbers(torch, 4, 3, 8, 8)
    model = q.fuse_modules_qat(network(torch, training=True), FUSED)
    model.qconfig = q.get_default_qat_qconfig("x86")
    ready = q.prepare_qat(model)
    made += [[type(m).__name__ for m in ready.children()], error(q.prepare_qat, network(torch))]
    ready(x).square().sum().backward()
    made += [ready(x), ready.hidden.weight.grad, ready.conv2.weight.grad]
    final = q.convert(ready.eval())
    exact, found = ready(x), final(x)
    made += [[type(m).__name__ for m in final.children()], bool((exact - found).abs().max() < 0.1 * exact.abs().max())]
    return made


def test_files_and_copies_of_quantized_models():
    torch, q = tensorgrad, ao(tensorgrad)
    x = numbers(torch, 2, 3, 8, 8)

    def made(values):
        model = q.fuse_modules(network(torch), FUSED)
        model.qconfig = q.get_default_qconfig()
        ready = q.prepare(model)
        ready(values)
        return q.convert(ready)

    first, second = made(x), made(x * 3)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    assert not torch.equal(second(x), first(x))
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(second(x), first(x)) and torch.equal(copy.deepcopy(first)(x), first(x))


def test_quantized_embedding():
    torch, q = tensorgrad, ao(tensorgrad)
    model = filled(torch, torch.nn.Sequential(torch.nn.Embedding(10, 16)))
    small = q.quantize_dynamic(model, {torch.nn.Embedding: q.float_qparams_weight_only_qconfig})
    tokens = torch.tensor([[0, 3], [9, 9]])
    assert (small(tokens) - model(tokens)).abs().max() < 0.02 and "QuantizedEmbedding" in repr(small)


def test_what_is_refused():
    torch, q = tensorgrad, ao(tensorgrad)
    with pytest.raises(NotImplementedError, match="Cannot fuse"):
        q.fuse_modules(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), ["0", "1"])
    with pytest.raises(ValueError):
        q.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(2, 2)), dtype=torch.float16)
    with pytest.raises(RuntimeError, match="proj_size"):
        q.quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(4, 4, proj_size=2)))
    with pytest.raises(AssertionError):
        q.get_default_qconfig("other")
