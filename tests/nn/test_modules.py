"""The classes of torch.nn against PyTorch's: its test database, and what that does not reach."""

import copy
import functools
import gc
import importlib
import io
import pickle
import warnings
import weakref
from collections import OrderedDict, namedtuple

import pytest

import tensorgrad
from tests.support.alike import HAS_TORCH, alike, error
from tests.support.processes import output_of

if HAS_TORCH:
    from tests.conformance import moduledb

    NAMES = moduledb.names()
else:
    NAMES = []


# --- the database ---


@functools.cache
def differences(name):
    """What differs with all inputs."""
    return moduledb.check(name)


@pytest.mark.conformance
@pytest.mark.parametrize("name", NAMES)
def test_class_with_all_inputs(name):
    problems = differences(name)
    assert not moduledb.unexplained(name, problems), "\n".join(problems)
    assert problems or name not in moduledb.KNOWN, f"{name} agrees now: take it out of KNOWN"


@pytest.mark.parametrize("name", NAMES)
def test_class(name, request):
    """With a few inputs for each: `make gpu` leaves out the test above, where none of all inputs may differ, either."""
    all_inputs = f"{test_class_with_all_inputs.__name__}[{name}]" in {item.name for item in request.session.items}
    if not (all_inputs and differences(name) == []):
        problems = moduledb.unexplained(name, moduledb.check(name, most=6))
        assert not problems, "\n".join(problems)


@alike
def test_every_name_is_there(torch):
    """All modules, and the methods of a module."""
    theirs = pytest.importorskip("torch", reason="PyTorch says which names there are")
    public = [n for n in dir(theirs.nn) if not n.startswith("_") and n not in ("intrinsic", "qat", "quantizable")]
    public.remove("quantized")
    methods = [n for n in dir(theirs.nn.Module) if not n.startswith("_")]
    utils = ["parametrizations", "parametrize", "prune", "rnn", "stateless", "skip_init", "fuse_conv_bn_eval"]
    return [
        [n for n in public if not hasattr(torch.nn, n)],
        [n for n in methods if not hasattr(torch.nn.Module, n)],
        [n for n in utils if importlib.import_module(f"{torch.__name__}.nn.utils") and n not in dir(torch.nn.utils)]
        if torch is tensorgrad
        else [],
        [n for n in theirs.func.__all__ if not hasattr(torch.func, n)],
    ]


def caught(function, *args, **kwargs):
    """(result, texts of the warnings) of a call."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    return result, [f"{w.category.__name__}: {w.message}" for w in seen]


# --- transformers ---


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_encoder_masks(batch_first, norm_first, training):
    """Each mask, in training (with dropout) and in inference, where PyTorch has other kernels."""

    @alike(tolerance=1e-4)
    def scenario(torch):
        seen = []
        for activation, grad in (("relu", True), ("gelu", False)):
            layer = torch.nn.TransformerEncoderLayer(
                8, 2, 16, 0.2, activation, batch_first=batch_first, norm_first=norm_first
            )
            encoder, _ = caught(torch.nn.TransformerEncoder, layer, 2, torch.nn.LayerNorm(8))
            encoder.train(training)
            x = torch.randn(3, 5, 8) if batch_first else torch.randn(5, 3, 8)
            causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
            padding = torch.zeros(3, 5, dtype=torch.bool)
            padding[0, 3:] = padding[1, 4:] = True
            for arguments in (
                {},
                {"mask": causal},
                {"mask": causal, "is_causal": True},
                {"mask": causal == float("-inf")},
                {"src_key_padding_mask": padding},
                {"src_key_padding_mask": padding.flip(1)},
                {"src_key_padding_mask": torch.zeros(3, 5).masked_fill(padding, float("-inf"))},
                {"src_key_padding_mask": padding, "mask": causal == float("-inf")},
                {"mask": (torch.rand(6, 5, 5) > 0.6) & ~torch.eye(5).bool()},
            ):
                with torch.set_grad_enabled(grad):
                    seen.append(encoder(x, **arguments))
            with torch.set_grad_enabled(grad):
                seen.append(error(encoder, x, is_causal=True))
        return seen

    scenario()


@alike(tolerance=1e-4)
def test_transformer(torch):
    """The same weights from one seed, the same dropout, all masks at once."""
    seen = []
    for options in ({}, {"norm_first": True, "activation": torch.nn.functional.gelu}, {"bias": False}):
        model, _ = caught(torch.nn.Transformer, 8, 2, 2, 2, 16, 0.1, batch_first=True, **options)
        src, tgt = torch.randn(2, 4, 8), torch.randn(2, 3, 8)
        padding = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool()
        masks = {"tgt_mask": model.generate_square_subsequent_mask(3), "src_key_padding_mask": padding}
        y = model(src, tgt, memory_key_padding_mask=padding, **masks)
        y.sum().backward()
        seen += [y, [p.grad for p in model.parameters()], model.eval()(src[0], tgt[0])]
    return seen


@alike
def test_transformer_warnings_and_errors(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer
    batched = {"batch_first": True}

    class Layer(layer):
        pass

    def unequal():
        made = layer(8, 2, **batched)
        made.norm1.eps = 1.0
        return made

    made = [
        layer(8, 2), layer(8, 2, **batched), layer(8, 2, norm_first=True, **batched), layer(9, 3, **batched),
        layer(8, 2, bias=False, **batched), layer(8, 2, activation=torch.tanh, **batched), Layer(8, 2, **batched),
        nn.TransformerDecoderLayer(8, 2), unequal(),
    ]  # fmt: skip
    x, model = torch.ones(2, 3, 8), caught(nn.Transformer, 8, 2, 1, 1, 16)[0]
    no, long, some = torch.ones(2, 2).bool(), torch.ones(2, 2).long(), torch.ones(3, 2)
    return [
        [caught(nn.TransformerEncoder, one, 1)[1] for one in made],
        [caught(nn.TransformerEncoder, one, 1)[0].use_nested_tensor for one in made],
        caught(nn.TransformerEncoder, made[0], 1, enable_nested_tensor=False)[1],
        [layer(8, 2, activation=a).activation_relu_or_gelu for a in ("relu", "gelu", nn.ReLU(), nn.GELU(), torch.sin)],
        error(layer, 8, 2, activation="tanh"),
        error(model, torch.ones(2, 3, 8), torch.ones(2, 4, 8)),
        error(model, torch.ones(2, 3, 7), torch.ones(2, 3, 8)),
        error(made[0], x, long),
        caught(made[0].eval(), x, no & False, some * 0)[1],
        error(caught, made[0], x, None, torch.ones(2, 2)),
        caught(caught(nn.TransformerEncoder, made[0], 1)[0], x, no & False, some * 0)[1],
        nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64),
    ]


@alike
def test_encoder_layers_may_override_their_blocks(torch):
    class Looking(torch.nn.TransformerEncoderLayer):
        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            x, looked = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask)
            self.looked = looked.detach()
            return self.dropout1(x)

    layer = Looking(4, 2, 8, 0.0)
    return [layer(torch.randn(3, 2, 4)), layer.looked, copy.deepcopy(layer)(torch.ones(3, 2, 4))]


# --- modules that learn their sizes ---


@alike
def test_uninitialized(torch):
    nn = torch.nn
    parameter, buffer = nn.UninitializedParameter(dtype=torch.float64), nn.UninitializedBuffer(persistent=False)
    seen = [repr(parameter), repr(buffer), parameter.dtype, parameter.requires_grad, buffer.requires_grad]
    seen += [isinstance(parameter, nn.Parameter), isinstance(buffer, nn.Buffer), str(parameter.device)]
    seen += [nn.parameter.is_lazy(p) for p in (parameter, buffer, nn.Parameter(torch.ones(1)), torch.ones(1))]
    for use in (lambda p: p + 1, lambda p: p.clone(), lambda p: p[0], lambda p: torch.exp(p), lambda p: p.numel()):
        seen.append(error(use, parameter).partition(" in ")[0])
    seen += [error(lambda: parameter.shape), error(parameter.share_memory_)]
    copied = copy.deepcopy(parameter)
    seen += [repr(copied), repr(pickle.loads(pickle.dumps(parameter))), copied.dtype]
    parameter.materialize((2, 3))
    buffer.materialize((2,), dtype=torch.int64)
    seen += [type(parameter).__name__, list(parameter.shape), parameter.dtype, parameter.requires_grad]
    seen += [list(buffer.shape), buffer.dtype, type(buffer).__name__]
    return seen


@alike
def test_lazy_layers(torch):
    nn = torch.nn
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    seen = [repr(net), [repr(v) for v in net.state_dict().values()], net[4].has_uninitialized_params()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    del net[1]  # PyTorch cannot copy an uninitialised buffer
    copied, pickled = copy.deepcopy(net), pickle.loads(pickle.dumps(net))  # PyTorch's pickles forget the dtype
    seen.append([repr(p) for p in net.double().parameters()])
    x = torch.ones(2, 3, 5, 5, dtype=torch.float64)
    net(x).sum().backward()
    optimizer.step()
    seen += [repr(net), [type(m).__name__ for m in net], net.state_dict(), len(net[3]._forward_pre_hooks)]
    for other in (copied, pickled):
        seen += [list(other(x.float()).shape), repr(other)]
    return seen


@alike
def test_lazy_layers_and_checkpoints(torch):
    """From and to layers that have been called, and layers that have not."""
    nn, called = torch.nn, torch.nn.Linear(3, 2)
    lazy = nn.LazyLinear(2)
    seen = [
        str(lazy.load_state_dict(called.state_dict())),
        list(lazy.weight.shape),
        type(lazy).__name__,
        lazy.in_features,
    ]
    seen += [lazy(torch.ones(1, 3)), type(lazy).__name__, lazy.in_features]
    file = io.BytesIO()
    torch.save(called.state_dict(), file)
    file.seek(0)
    other = nn.LazyLinear(2)
    other.load_state_dict(torch.load(file))
    seen += [error(other, torch.ones(1, 4)), error(called.load_state_dict, nn.LazyLinear(2).state_dict())]
    seen += [str(nn.LazyLinear(2).load_state_dict(nn.LazyLinear(2).state_dict()))]
    norm = nn.LazyBatchNorm1d()
    norm.load_state_dict(nn.BatchNorm1d(3).state_dict())
    return [*seen, norm(torch.ones(2, 3)), repr(norm)]


@alike
def test_lazy_layers_say_what_is_wrong(torch):
    nn = torch.nn

    class Forgetful(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, input):
            pass

    class Unfinished(nn.modules.lazy.LazyModuleMixin, nn.Linear):
        pass

    return [
        error(nn.LazyConv2d(3, 3), torch.ones(2, 3)),
        error(nn.LazyConv2d(4, 3, groups=2), torch.ones(2, 3, 5, 5)),
        error(nn.LazyBatchNorm1d(), torch.ones(2, 3, 3, 3)),
        error(nn.LazyInstanceNorm1d(affine=True), torch.ones(3, 4)),
        error(nn.LazyLinear(2).requires_grad_, False).partition(" in ")[0],
        error(nn.LazyLinear(2).share_memory),
        error(Forgetful(), torch.ones(1)),
        error(Unfinished(2, 2), torch.ones(1)),
    ]


# --- other classes ---


@alike
def test_sync_batch_norm(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(3, affine=False).eval()))
    weight = net[1].weight
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    alone = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3, bias=False))
    return [
        repr(made), made is net, made[1].weight is weight, made[2][0].training,
        repr(alone), alone(torch.randn(4, 3, 2, 2, 2)), list(alone.state_dict()),
        error(alone, torch.ones(3)), error(alone, torch.ones(2, 0)), alone.process_group,
    ]  # fmt: skip


@alike
def test_deprecated_classes(torch):
    nn = torch.nn
    container, first = caught(nn.Container, a=nn.ReLU(), b=None)
    loss, second = caught(nn.NLLLoss2d, reduction="sum")
    scores = torch.log_softmax(torch.ones(1, 2, 1, 1), 1)
    return [repr(container), first, repr(loss), second, loss(scores, torch.zeros(1, 1, 1).long())]


@alike
def test_what_a_module_can_do_besides(torch):
    nn = torch.nn
    layer = nn.Linear(2, 2)
    return [
        error(layer.xpu), error(layer.ipu), error(layer.mtia).split(".")[0], error(nn.Module().xpu),
        nn.factory_kwargs(None),
        nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": torch.float64}}),
        error(nn.factory_kwargs, {"dtypes": 1}), error(nn.factory_kwargs, {"dtype": 1, "factory_kwargs": {"dtype": 2}}),
        [getattr(nn.attention.SDPBackend, n).name for n in ("MATH", "FLASH_ATTENTION", "CUDNN_ATTENTION")],
        error(nn.attention.sdpa_kernel("math").__enter__),
    ]  # fmt: skip


@alike
def test_hooks_of_all_modules(torch):
    """From where PyTorch keeps them: torch.nn.modules.module."""
    window, seen = torch.nn.modules.module, []
    handles = [
        window.register_module_forward_hook(lambda m, args, out: seen.append(("after", type(m).__name__))),
        window.register_module_forward_pre_hook(lambda m, args: seen.append(("before", type(m).__name__))),
        window.register_module_full_backward_hook(lambda m, i, o: seen.append(("backward", type(m).__name__))),
        window.register_module_module_registration_hook(lambda m, n, s: seen.append(("made", n))),
    ]
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    net(torch.ones(1, 2, requires_grad=True)).sum().backward()
    counts = [len(window._global_forward_hooks), len(window._global_backward_hooks)]
    for handle in handles:
        handle.remove()
    net(torch.ones(1, 2))
    return [seen, counts, len(window._global_forward_hooks)]


@alike
def test_gradients_of_convolutions_as_functions(torch):
    grad, seen = torch.nn.grad, []
    for n, shape, weight_shape in ((1, (2, 4, 9), (6, 2, 3)), (2, (2, 4, 9, 8), (6, 2, 3, 2)),
                                   (3, (1, 2, 5, 6, 5), (2, 1, 2, 2, 3))):  # fmt: skip
        x, w = torch.randn(shape), torch.randn(weight_shape, requires_grad=True)
        y = getattr(torch.nn.functional, f"conv{n}d")(x, w, None, 2, 1, 1, 2)
        g = torch.randn(y.shape)
        by_input = getattr(grad, f"conv{n}d_input")(x.shape, w, g, 2, 1, 1, 2)
        by_input.sum().backward()
        seen += [by_input, w.grad, getattr(grad, f"conv{n}d_weight")(x, w.shape, g, 2, 1, 1, 2)]
    return seen


def test_models_are_freed_by_reference_counting():
    """Lazy layers, transformers and parametrized layers too: none of them is a cycle."""
    nn = tensorgrad.nn
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    models = [nn.LazyLinear(2), nn.TransformerEncoderLayer(4, 2, 8), parametrized]
    gc.disable()
    try:
        watched = [weakref.ref(model) for model in models]
        del models, parametrized
        assert [ref() for ref in watched[:2]] == [None, None]
    finally:
        gc.enable()


def test_imports_stay_light():
    """What few programs use is loaded when they do. (`torch.func` is not: `vmap` stands in torch from the start.)"""
    program = (
        "import sys, tensorgrad.nn, tensorgrad.nn.utils; "
        "late = 'lazy uninitialized transformer utils.prune utils.parametrize rnn'.split(); "
        "print([m for m in late if f'tensorgrad.nn.{m}' in sys.modules])"
    )
    assert output_of(program).strip() == "[]"


# --- handles of hooks ----------------------------------------------------------------------------------------------


HOOKS = {  # how a hook is hung up, and the tables that must be as before once it is taken out
    "forward": lambda m: m.register_forward_hook(print),
    "forward with arguments": lambda m: m.register_forward_hook(print, with_kwargs=True),
    "forward always": lambda m: m.register_forward_hook(print, with_kwargs=True, always_call=True),
    "forward pre": lambda m: m.register_forward_pre_hook(print),
    "forward pre with arguments": lambda m: m.register_forward_pre_hook(print, with_kwargs=True, prepend=True),
    "backward": lambda m: m.register_full_backward_hook(print),
    "backward pre": lambda m: m.register_full_backward_pre_hook(print),
    "state": lambda m: m.register_state_dict_pre_hook(print),
    "loaded": lambda m: m.register_load_state_dict_post_hook(print),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_a_removed_hook_leaves_nothing(kind):
    for library in (tensorgrad, pytest.importorskip("torch")):
        module = library.nn.Linear(2, 2)
        tables = lambda: {k: len(v) for k, v in vars(module).items() if "hook" in k and hasattr(v, "__len__") and v}
        assert tables() == {}
        handle = HOOKS[kind](module)
        assert handle.id in handle.hooks_dict_ref() and tables()
        handle.remove()
        assert tables() == {} and handle.id not in handle.hooks_dict_ref()
        handle.remove()


def test_a_handle_is_pickled_with_its_module():
    module = tensorgrad.nn.Linear(2, 2)
    module.handle = module.register_forward_hook(print, with_kwargs=True)
    copy = pickle.loads(pickle.dumps(module))
    assert copy._forward_hooks and copy._forward_hooks_with_kwargs
    copy.handle.remove()
    assert not copy._forward_hooks and not copy._forward_hooks_with_kwargs and module._forward_hooks
    later = module.register_forward_hook(print)
    assert later.id > copy.handle.id
    alone = pickle.loads(pickle.dumps(tensorgrad.ones(1, requires_grad=True).register_hook(print)))
    alone.remove()  # its table is gone


def test_the_common_hooks_can_be_cleared_as_in_pytorch():
    handle = tensorgrad.nn.modules.module.register_module_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tensorgrad.nn.ReLU()(tensorgrad.ones(1))
    tensorgrad.nn.modules.module._global_forward_hooks = OrderedDict()
    tensorgrad.nn.ReLU()(tensorgrad.ones(1))
    handle.remove()


def test_named_tuples_and_warnings_of_backward_hooks():
    torch = pytest.importorskip("torch")
    Pair = namedtuple("Pair", "a b")
    forwards = {
        "named": lambda x, y: Pair(x * 2, y * 3),
        "list": lambda x, y: [x * 2, y * 3],
        "two nodes": lambda x, y: (x.clone(), y.clone()),
        "one op": lambda x, y: x * y,
        "two ops": lambda x, y: (x * y).exp(),
        "inner": lambda x, y: x.exp() * y,
    }
    for name, forward in forwards.items():
        said = []
        for library in (tensorgrad, torch):
            for register in ("register_full_backward_hook", "register_backward_hook"):
                module = type("M", (library.nn.Module,), {"forward": lambda self, *a, f=forward: f(*a)})()
                getattr(module, register)(lambda *_: None)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    out = module(*(library.ones(2, requires_grad=True) for _ in range(2)))
                said.append(
                    (type(out).__name__, [(w.category, str(w.message).split(" is deprecated")[0]) for w in caught])
                )
        assert [s[1] for s in said[:2]] == [s[1] for s in said[2:]], name
        assert [s[0] for s in said[:2]] == [s[0] for s in said[2:]], name


@alike
def test_modules_do_not_copy_in_to(torch):
    module = torch.nn.Linear(2, 2)
    calls = (("cpu",), (torch.float64,), (torch.ones(2),), ())
    return [error(lambda args=args, copy=copy: module.to(*args, copy=copy)) for args in calls for copy in (True, False)]


@alike
def test_arguments_of_to_are_those_of_one_of_its_forms(torch):
    one = torch.ones(1, dtype=torch.float64)
    calls = (
        (("cpu", True), {}), (("cpu", torch.float64, True), {}), ((torch.float64, True), {}), ((one, True), {}),
        ((), {}),
        (("cpu", 1), {}), (("cpu", torch.float64, True, True), {}), (("cpu", "cpu"), {}), ((None, torch.float64), {}),
        ((torch.float64,), {"device": "cpu"}), (("cpu",), {"non_blocking": 1}), ((), {"tensor": one}), ((float,), {}),
        ((), {"other": one}), ((torch.channels_last,), {}), ((torch.int32,), {}), ((one,), {"non_blocking": True}),
    )  # fmt: skip
    found = []
    for args, named in calls:
        try:
            found.append(str(torch.nn.Linear(2, 2).to(*args, **named).weight.dtype))
        except Exception as failed:
            found.append(type(failed).__name__)
    return found


@alike
def test_a_class_with_its_own_getattr_is_asked_for_members_every_time(torch):
    class Watched(torch.nn.Linear):
        def __getattr__(self, name):
            value = super().__getattr__(name)
            seen.append(name)
            return value

    class Plain(torch.nn.Linear):
        pass

    seen = []
    made = Watched(2, 1)
    made.register_buffer("count", torch.zeros(1))
    made.part = torch.nn.ReLU()
    seen.clear()
    assert made.weight is made.weight and made.count.shape == (1,) and not made.part.inplace
    first = list(seen)
    changed = Plain(2, 1)
    weight = changed.weight
    seen.clear()
    changed.__class__ = Watched
    assert changed.weight is weight and changed(torch.ones(1, 2)).shape == (1, 1)
    then = [name for name in seen if name in ("weight", "bias")]
    assert first == ["weight", "weight", "count", "part"] and then == ["weight", "weight", "bias"]
    changed.__class__ = Plain
    seen.clear()
    assert changed.weight is weight
    return first, then, seen, [name for name, _ in changed.named_parameters()]


@alike
def test_replicas_share_all_but_the_parameters(torch):
    norm = torch.nn.BatchNorm1d(3)
    replica = norm._replicate_for_data_parallel()
    shared = replica.running_mean is norm.running_mean
    assert shared and not hasattr(replica, "weight") and norm.weight is not None
    return list(replica._parameters), list(replica._buffers), replica._is_replica, type(replica).__name__


@alike
def test_hook_tables_of_a_class_with_its_own_getattr(torch):
    """It need not call ours: tensordict's modules do not for names that begin with an underscore."""

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

        def __getattr__(self, name):
            if name in self.__dict__["_modules"]:
                return self.__dict__["_modules"][name]
            raise AttributeError(name)

    module, seen = Own(), []
    told = [len(module._forward_hooks), len(module._state_dict_hooks)]
    module.register_forward_hook(lambda *given: seen.append(len(given)))
    module(torch.ones(1, 2))
    return told, seen, len(module._forward_hooks), hasattr(torch.nn.Module, "_forward_hooks")


@alike(tolerance=1e-2)
def test_running_statistics_of_instance_norm_may_be_of_any_dtype(torch):
    found = []
    for kept in (torch.bfloat16, torch.float16, torch.float64):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            for affine in (False, True):
                norm = torch.nn.InstanceNorm2d(3, track_running_stats=True, affine=affine)
                norm.running_mean, norm.running_var = norm.running_mean.to(kept), norm.running_var.to(kept)
                x = torch.linspace(-3, 5, 96).reshape(2, 3, 4, 4).to(dtype)
                try:
                    out = norm(x), norm.eval()(x)
                except RuntimeError:
                    found.append("refused")
                    continue
                found.append([[str(y.dtype), y.double()] for y in (*out, norm.running_mean, norm.running_var)])
    return found
