"""torch.ao.quantization: observers, the workflow, and quantized modules, compared with PyTorch."""

import copy
import importlib
import io
import warnings

import numpy as np
import pytest

import tensorgrad
from tensorgrad.ao.nn.quantized import products
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
                 "MovingAveragePerChannelMinMaxObserver"):  # fmt: skip
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
def test_what_a_histogram_observer_shows(torch):
    q, made = ao(torch), []
    for options in ({}, {"bins": 50, "dtype": torch.qint8, "reduce_range": True}, {"quant_min": 0, "quant_max": 127}):
        observer = q.HistogramObserver(**options)
        made += [warned(observer.calculate_qparams)[1], repr(observer)[:40], observer.quant_min, observer.quant_max]
        x = numbers(torch, 6, 50)
        made += [observer(x) is x, [(k, v.tolist()) for k, v in observer.state_dict().items()]]
        made += [observer(x) is x, observer.histogram.tolist()]
        wide = torch.cat([x.flatten() * 3, torch.tensor([float("inf"), float("-inf")])])
        made += [warned(observer, wide), observer.min_val.item(), observer.max_val.item(), observer.histogram.sum()]
        made += [warned(observer, torch.full((2,), float("inf"))), observer(torch.empty(0)).shape, observer.max_val]
        made += [warned(observer, torch.tensor([1.0, float("nan")])), observer.max_val]
    made.append(warned(q.HistogramObserver, qscheme=torch.per_channel_affine))
    return made


def warned(call, *args, **kwargs):
    """The types of a call's warnings, and of its error."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            call(*args, **kwargs)
            failed = None
        except Exception as raised:
            failed = type(raised).__name__
    return sorted({str(w.message) for w in seen}), failed


def _batches():
    random = np.random.default_rng(0)
    normal, n = random.normal(size=5000), 5000
    return {
        "normal": [normal],
        "uniform": [random.uniform(-1, 1, n)],
        "far from zero": [random.uniform(5, 6, n)],
        "relu": [np.maximum(normal, 0)],
        "relu6": [np.clip(3 + 3 * normal, 0, 6)],
        "exponential": [random.exponential(size=n)],
        "negative": [-random.exponential(size=n)],
        "Laplace": [random.laplace(size=n)],
        "Student's t": [random.standard_t(2, n)],
        "Cauchy": [random.standard_cauchy(n)],
        "log normal": [random.lognormal(0, 2, n)],
        "sigmoid": [1 / (1 + np.exp(-3 * normal))],
        "an outlier": [np.append(normal, 100.0)],
        "bimodal": [np.append(normal / 5 - 3, random.normal(4, 0.5, n))],
        "rare ones": [random.choice([0.0, 1.0], n, p=[0.999, 0.001])],
        "three values": [random.choice([-1.0, 0.0, 1.0], n, p=[0.001, 0.6, 0.399])],
        "digits": [random.integers(0, 10, n)],
        "pixels": [random.integers(0, 256, n) / 255],
        "constant": [np.full(10, 3.0)],
        "negative constant": [np.full(10, -3.0)],
        "zeros": [np.zeros(5)],
        "one value": [np.array([0.7])],
        "growing": [normal, 4 * random.normal(size=n)],
        "moving": [normal, normal + 20],
        "an outlier later": [normal, np.append(normal, 1000.0)],
        "a constant first": [np.full(10, 2.0), normal],
        "shrinking": [4 * normal, random.normal(size=n)],
        "infinite": [np.append(normal, [np.inf, -np.inf])],
    }


@pytest.mark.filterwarnings("ignore:torch.inf detected")
@pytest.mark.parametrize("name", _batches())
def test_a_histogram_observer_loses_no_more_than_pytorchs(name):
    """The ranges need not be the same: what counts is the error of the values that were seen."""
    torch = pytest.importorskip("torch", reason="torch is not installed: there is nothing to compare with")
    batches = [np.asarray(batch, np.float32) for batch in _batches()[name]]
    values = np.concatenate(batches).astype(np.float64)
    values = values[np.isfinite(values)]
    for options in (
        {}, {"reduce_range": True}, {"quant_min": 0, "quant_max": 127}, {"qscheme": "per_tensor_symmetric"},
        {"dtype": "qint8"}, {"dtype": "qint8", "qscheme": "per_tensor_symmetric"},
        {"dtype": "qint8", "quant_min": -8, "quant_max": 7}, {"bins": 512},
    ):  # fmt: skip
        lost = []
        for library in (tensorgrad, torch):
            named = {k: getattr(library, v) if isinstance(v, str) else v for k, v in options.items()}
            observer = ao(library).HistogramObserver(**named)
            for batch in batches:
                observer(library.tensor(batch))
            scale, zero = (float(each) for each in observer.calculate_qparams())
            integers = np.clip(np.rint(values / scale) + zero, observer.quant_min, observer.quant_max)
            lost.append(np.square((integers - zero) * scale - values).sum())
        assert lost[0] <= 1.02 * lost[1] + 1e-12, (options, lost)


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


@alike
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


@alike
def test_static(torch):
    q, made = ao(torch), []
    x = numbers(torch, 2, 3, 8, 8)
    of_channels = q.default_per_channel_weight_observer
    for config in (
        q.QConfig(q.MinMaxObserver.with_args(reduce_range=True), of_channels),
        q.default_qconfig,
        q.QConfig(q.MinMaxObserver.with_args(), q.default_weight_observer),
    ):  # histograms' ranges differ from PyTorch's
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
        made += [image.int_repr(), final.conv(image).int_repr(), found]
    return made


def _product(library, random, convolution, bits, channels, relu):
    """The integers of a product of random numbers."""
    groups = int(random.choice([1, 2, 3]))
    inputs, outputs = groups * int(random.integers(1, 9)), groups * int(random.integers(1, 9))
    x = random.standard_normal((2, inputs, 7, 6) if convolution else (5, 40)).astype(np.float32)
    weight = random.standard_normal((outputs, inputs // groups, 3, 3) if convolution else (outputs, 40)) / 3
    bias, weight = random.standard_normal(outputs).astype(np.float32), weight.astype(np.float32)
    largest = np.abs(weight).reshape(outputs, -1).max(1) / 127
    given = library.quantize_per_tensor(library.from_numpy(x), 8 / (2**bits - 1), 2 ** (bits - 1), library.quint8)
    w = library.from_numpy(weight)
    if channels:
        zeros = library.zeros(outputs, dtype=library.int64)
        w = library.quantize_per_channel(w, library.from_numpy(largest).double(), zeros, 0, library.qint8)
    else:
        w = library.quantize_per_tensor(w, float(largest.max()), 0, library.qint8)
    places = [[1, 1], [1, 1], [1, 1], groups] if convolution else []
    if library is tensorgrad:
        run = products.conv if convolution else products.linear
        between = [*places, "zeros"] if convolution else []
        made = run(given, w, library.from_numpy(bias), *between, 0.041, 117, relu)
    else:
        name = "conv2d" if convolution else "linear"
        packed = getattr(library.ops.quantized, f"{name}_prepack")(w, library.from_numpy(bias), *places)
        made = getattr(library.ops.quantized, f"{name}_relu" if relu else name)(given, packed, 0.041, 117)
    return made.int_repr().numpy().astype(int)


@pytest.mark.parametrize("convolution", [False, True])
@pytest.mark.parametrize("bits", [7, 8])
def test_products_give_torchs_integers(convolution, bits):
    """Those of onednn, which x86 uses where it can; those of qnnpack within one unit."""
    torch = pytest.importorskip("torch", reason="torch is not installed: there is nothing to compare with")
    before, compared = torch.backends.quantized.engine, 0
    try:
        for engine, most in (("onednn", 0), ("qnnpack", 1)):
            if engine not in torch.backends.quantized.supported_engines:
                continue
            torch.backends.quantized.engine = engine
            for seed in range(12):
                made = [
                    _product(library, np.random.default_rng(seed), convolution, bits, seed % 2, seed % 3 == 0)
                    for library in (tensorgrad, torch)
                ]
                assert np.abs(made[0] - made[1]).max() <= most, (engine, seed)
                compared += 1
    finally:
        torch.backends.quantized.engine = before
    if not compared:
        pytest.skip("this torch has neither engine: there is nothing to compare with")


@alike
def test_training(torch):
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
