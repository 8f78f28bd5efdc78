"""torch.ao.quantization.quantize_fx: the same graphs, observers, names and integers as PyTorch's."""

import copy
import io
import operator

import pytest

import tensorgrad
from tests.quantized.test_ao import ao, filled, numbers
from tests.support.alike import alike, error


def residual(torch):
    """A block of a ResNet, and what is around it."""
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.down = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8))
            self.relu, self.max, self.mean = nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(8, 5)

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y = self.max(self.relu(y + self.down(x)))
            return self.fc(torch.flatten(self.mean(y), 1))

    return Network(), (2, 3, 8, 8)


def inverted(torch):
    """A block of a MobileNet: a thin convolution for each channel, ReLU6, a sum."""
    nn = torch.nn

    def block(inputs, outputs, size, groups=1):
        conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.thin = block(3, 6, 1), block(6, 6, 3, 6)
            self.narrow, self.bn = nn.Conv2d(6, 3, 1, bias=False), nn.BatchNorm2d(3)
            self.drop, self.fc = nn.Dropout(0.0), nn.Linear(3, 4)

        def forward(self, x):
            y = x + self.bn(self.narrow(self.thin(self.wide(x))))
            return self.fc(self.drop(y.mean([2, 3])))

    return Network(), (2, 3, 8, 8)


def perceptron(torch):
    nn, F = torch.nn, torch.nn.functional

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.act = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 3), nn.Hardswish()

        def forward(self, x):
            x = F.relu(self.a(x))
            x = self.act(torch.sigmoid(self.b(x)) * 2 + 1)
            return self.c(x.reshape(-1, 16))

    return Network(), (5, 12)


def shuffled(torch):
    """Two branches joined, and their channels shuffled as ShuffleNet does."""
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
            self.b, self.c = nn.Conv2d(3, 4, 1), nn.Conv2d(8, 2, 1)

        def forward(self, x):
            y = torch.cat((self.a(x), self.b(x)), dim=1)
            count, channels, height, width = y.size()
            y = y.view(count, 2, channels // 2, height, width)
            y = torch.transpose(y, 1, 2).contiguous().view(count, -1, height, width)
            return self.c(y)

    return Network(), (2, 3, 6, 6)


def recurrent(torch):
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)
            self.relu = nn.ReLU()

        def forward(self, x):
            y, _ = self.lstm(x)
            return self.relu(self.fc(y[:, -1]))

    return Network(), (2, 4, 6)


NETWORKS = {f.__name__: f for f in (residual, inverted, perceptron, shuffled)}


def workflow(torch):
    return ao(torch, "quantization.quantize_fx")


def described(model):
    """The nodes of a graph: what they do, with the names of what they take."""
    made = []
    for node in model.graph.nodes:
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        if node.op == "call_module":
            target = f"{target}: {type(model.get_submodule(target)).__name__}"
        made.append((node.op, node.name, target, str(node.args), str(dict(node.kwargs))))
    return made


def shared(model):
    """The names of modules that are one."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        found.setdefault(id(module), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def static_mapping(torch):
    """PyTorch's default for x86 with ranges that do not depend on how a histogram is searched."""
    q = ao(torch)
    activation = q.MinMaxObserver.with_args(reduce_range=True)
    mapping = q.get_default_qconfig_mapping("x86")
    return mapping.set_global(q.QConfig(activation, q.default_per_channel_weight_observer))


def on_the_way(torch, model, x):
    """What each step of a graph computes: the integers, where it is quantized."""
    made = {}

    class Noting(torch.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and n.op.startswith("call"):
                made[n.name] = result.int_repr() if result.is_quantized else result
            return result

    Noting(model).run(x)
    return sorted(made.items())


@alike
def test_static(torch):
    made = []
    for build in NETWORKS.values():
        model, shape = build(torch)
        x = numbers(torch, *shape)
        ready = workflow(torch).prepare_fx(filled(torch, model).eval(), static_mapping(torch), (x,))
        made += [described(ready), shared(ready)]
        with torch.no_grad():
            made += [ready(x), ready(x * 0.8)]
            final = workflow(torch).convert_fx(ready)
            made += [described(final), list(final.state_dict()), on_the_way(torch, final, x * 0.9371)]
    return made


@alike
def test_defaults_make_the_same_graph(torch):
    made = []
    for build in NETWORKS.values():
        model, shape = build(torch)
        x = numbers(torch, *shape)
        ready = workflow(torch).prepare_fx(model.eval(), ao(torch).get_default_qconfig_mapping(), (x,))
        ready(x)
        made += [described(ready), described(workflow(torch).convert_fx(ready))]
    return made


@alike
def test_training(torch):
    made = []
    for build in NETWORKS.values():
        model, shape = build(torch)
        x = numbers(torch, *shape)
        mapping = ao(torch).get_default_qat_qconfig_mapping("x86")
        ready = workflow(torch).prepare_qat_fx(filled(torch, model).train(), mapping, (x,))
        made += [described(ready), shared(ready)]
        optimizer = torch.optim.SGD(ready.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            ready(x).square().mean().backward()
            optimizer.step()
        ready.eval()
        exact = ready(x)
        final = workflow(torch).convert_fx(ready)
        made += [described(final), list(final.state_dict())]
        with torch.no_grad():
            found = final(x)
        made.append(bool((exact - found).abs().max() < 0.1 * exact.abs().max() + 0.05))
    return made


@alike
def test_dynamic(torch):
    q, (model, shape) = ao(torch), recurrent(torch)
    x = numbers(torch, *shape)
    mapping = q.QConfigMapping().set_global(q.default_dynamic_qconfig)
    ready = workflow(torch).prepare_fx(filled(torch, model).eval(), mapping, (x,))
    final = workflow(torch).convert_fx(ready)
    with torch.no_grad():
        return [described(ready), described(final), final(x)]


@alike
def test_a_dynamic_linear_layer_with_a_relu(torch):
    q, nn = ao(torch), torch.nn
    model = filled(torch, nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))).eval()
    x = numbers(torch, 3, 12)
    ready = workflow(torch).prepare_fx(model, q.QConfigMapping().set_global(q.default_dynamic_qconfig), (x,))
    final = workflow(torch).convert_fx(ready)
    return [described(final), repr(getattr(final, "0")), final(x).detach()]


@alike
def test_what_a_mapping_chooses(torch):
    q, nn = ao(torch), torch.nn
    config = q.QConfig(q.MinMaxObserver.with_args(reduce_range=True), q.default_per_channel_weight_observer)
    made = []
    for mapping in (
        q.QConfigMapping(),
        q.QConfigMapping().set_global(config).set_object_type(nn.Conv2d, None),
        q.QConfigMapping().set_object_type(nn.Linear, config),
        q.QConfigMapping().set_global(config).set_module_name("down", None),
        q.QConfigMapping().set_global(config).set_module_name("down", None).set_module_name("down.0", config),
        q.QConfigMapping().set_global(config).set_module_name_regex("conv[0-9]", None),
        q.QConfigMapping().set_global(config).set_object_type(operator.add, None),
        q.QConfigMapping().set_global(config).set_module_name_object_type_order("", operator.add, 0, None),
        q.QConfigMapping().set_global(config).set_module_name_object_type_order("", operator.add, 1, None),
        {"": config, "module_name": [("fc", None)]},
    ):
        model, shape = residual(torch)
        x = numbers(torch, *shape)
        ready = workflow(torch).prepare_fx(model.eval(), mapping, (x,))
        ready(x)
        made += [described(ready), described(workflow(torch).convert_fx(ready))]
        if not isinstance(mapping, dict):
            made.append([(k, str(v)) for k, v in q.QConfigMapping.from_dict(mapping.to_dict()).to_dict().items()
                         if k in ("", "module_name", "module_name_regex")])  # fmt: skip
    made.append(error(q.QConfigMapping.from_dict, {"else": 1}))
    return made


@alike
def test_what_convert_takes_back(torch):
    q = ao(torch)
    model, shape = residual(torch)
    x, mapping = numbers(torch, *shape), static_mapping(torch)
    ready = workflow(torch).prepare_fx(model.eval(), mapping, (x,))
    ready(x)
    final = workflow(torch).convert_fx(copy.deepcopy(ready), qconfig_mapping=mapping.set_module_name("fc", None))
    other = static_mapping(torch).set_module_name("fc", q.default_qconfig)
    return [described(final), error(workflow(torch).convert_fx, ready, qconfig_mapping=other)[:90]]


@alike
def test_quantized_inputs_and_results_and_kept_attributes(torch):
    q, fx = ao(torch), ao(torch, "quantization.fx.custom_config")
    model, shape = shuffled(torch)
    model.labels = ["a", "b"]
    x = numbers(torch, *shape)
    custom = fx.PrepareCustomConfig().set_preserved_attributes(["labels"])
    custom.set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    ready = workflow(torch).prepare_fx(filled(torch, model).eval(), static_mapping(torch), (x,), custom)
    made = [described(ready), ready.labels]
    with torch.no_grad():
        ready(x)
        kept = fx.ConvertCustomConfig().set_preserved_attributes(["labels"])
        final = workflow(torch).convert_fx(ready, kept)
        image = torch.quantize_per_tensor(x, 0.03, 40, torch.quint8)
        made += [described(final), final.labels, final(image).int_repr()]
    made += [error(workflow(torch).convert_fx, q.QuantStub())[:60]]
    return made


@alike
def test_modules_that_are_not_traced(torch):
    fx, nn = ao(torch, "quantization.fx.custom_config"), torch.nn

    class Own(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    made = []
    for custom in (
        fx.PrepareCustomConfig().set_non_traceable_module_classes([Own]),
        fx.PrepareCustomConfig().set_non_traceable_module_names(["1"]),
    ):
        model = nn.Sequential(nn.Linear(4, 4), Own(), nn.Linear(4, 2)).eval()
        x = numbers(torch, 3, 4)
        ready = workflow(torch).prepare_fx(model, static_mapping(torch), (x,), custom)
        ready(x)
        made += [described(ready), described(workflow(torch).convert_fx(ready))]
    return made


@alike
def test_fusing(torch):
    fx, made = ao(torch, "quantization.fx.custom_config"), []
    for build in NETWORKS.values():
        model, shape = build(torch)
        model.note, x = "kept", numbers(torch, *shape)
        exact = copy.deepcopy(filled(torch, model)).eval()(x).detach()
        fused = workflow(torch).fuse_fx(model.eval(), fx.FuseCustomConfig().set_preserved_attributes(["note"]))
        made += [described(fused), fused.note, bool((fused(x) - exact).abs().max() < 1e-4)]
    return made


@alike
def test_sums_and_products_with_numbers(torch):
    q, made = ao(torch), []

    class Network(torch.nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f, self.relu = f, torch.nn.ReLU()

        def forward(self, x):
            return self.f(self, x)

    x = numbers(torch, 5, 7)
    config = q.QConfigMapping().set_global(q.QConfig(q.MinMaxObserver.with_args(), q.default_weight_observer))
    for f in (
        lambda m, x: x + 3, lambda m, x: x + 0.25, lambda m, x: x + -300.0, lambda m, x: m.relu(x + 0.5),
        lambda m, x: x * 3, lambda m, x: x * 0, lambda m, x: x * -0.5, lambda m, x: m.relu(x * -1.5),
        lambda m, x: torch.nn.functional.relu(torch.mul(x, x)), lambda m, x: torch.relu(torch.add(x, x)),
        lambda m, x: torch.matmul(x, torch.transpose(x, 0, 1)), lambda m, x: torch.stack([x, x.detach()]),
        lambda m, x: torch.clamp(x, -0.5, 0.25), lambda m, x: x.repeat(2, 1),
    ):  # fmt: skip
        ready = workflow(torch).prepare_fx(Network(f).eval(), config, (x,))
        ready(x)
        final = workflow(torch).convert_fx(ready)
        made += [described(final), on_the_way(torch, final, x * 0.93)]
    return made


def test_files_and_copies():
    torch = tensorgrad
    model, shape = residual(torch)
    x = numbers(torch, *shape)

    def made(values):
        ready = workflow(torch).prepare_fx(filled(torch, copy.deepcopy(model)).eval(), static_mapping(torch), (x,))
        ready = copy.deepcopy(ready)
        ready(values)
        return workflow(torch).convert_fx(ready)

    first, second = made(x), made(x * 3)
    assert not torch.equal(first(x), second(x))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(first(x), second(x)) and torch.equal(first(x), copy.deepcopy(first)(x))


def test_what_is_refused():
    torch, fx = tensorgrad, workflow(tensorgrad)
    model, shape = perceptron(torch)
    x, mapping = numbers(torch, *shape), ao(torch).get_default_qconfig_mapping()
    with pytest.raises(NotImplementedError, match="leave out backend_config"):
        fx.prepare_fx(model.eval(), mapping, (x,), backend_config={})
    with pytest.raises(NotImplementedError, match="_equalization_config"):
        fx.prepare_fx(model.eval(), mapping, (x,), _equalization_config={})
    with pytest.raises(AssertionError, match="QConfigMapping"):
        fx.prepare_fx(model.eval(), None, (x,))
    with pytest.raises(AssertionError, match="prepare_fx"):
        fx.convert_fx(torch.fx.symbolic_trace(model))
    with pytest.raises(AssertionError, match="FixedQParamsObserver"):
        ao(torch).FixedQParamsFakeQuantize(ao(torch).MinMaxObserver)
    config = ao(torch).default_qconfig
    with pytest.raises(LookupError, match="During fusion"):
        model, shape = residual(torch)
        only = ao(torch).QConfigMapping().set_global(config).set_object_type(torch.nn.Conv2d, config)
        fx.prepare_fx(model.eval(), only, (x,))
