"""`torch.nn.utils` against PyTorch: clipping, normalising, parametrizing, pruning, fusing, calling without state."""

import copy
import importlib
import pickle
import warnings

import pytest

import tensorgrad
from tests.support.alike import alike, error
from tests.support.compare import quietly


def pruning(torch):
    """`torch.nn.utils.prune`, which PyTorch has only once it was imported."""
    return importlib.import_module(f"{torch.__name__}.nn.utils.prune")


def warned(function, *args, **kwargs):
    """The texts of a call's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args, **kwargs)
    return [f"{w.category.__name__}: {w.message}" for w in caught]


def trained(torch, model, *inputs, steps=2):
    """What two steps of training make of a model: outputs, gradients, state."""
    seen = []
    for _ in range(steps):
        model.zero_grad()
        y = model(*inputs)
        (y * y).sum().backward()
        seen += [y, {name: p.grad for name, p in model.named_parameters()}]
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
    return seen, dict(model.state_dict())


# --- weight norm and spectral norm, the older kind ---


@alike
def test_weight_norm(torch):
    seen = []
    for layer, dim in ((torch.nn.Linear(3, 4), 0), (torch.nn.Linear(3, 4), None), (torch.nn.Conv2d(2, 3, 2), 1)):
        quietly(torch.nn.utils.weight_norm, layer, dim=dim)
        x = torch.ones(2, 3) if isinstance(layer, torch.nn.Linear) else torch.ones(1, 2, 3, 3)
        seen += [trained(torch, layer, x), list(layer.state_dict()), repr(layer)]
        copied = copy.deepcopy(torch.nn.utils.remove_weight_norm(layer))
        seen += [list(layer.state_dict()), copied.weight, copied(x)]
    return seen


@alike
def test_weight_norm_says_what_is_wrong(torch):
    layer = quietly(torch.nn.utils.weight_norm, torch.nn.Linear(2, 2))
    return [
        warned(torch.nn.utils.weight_norm, torch.nn.Linear(2, 2)),
        error(quietly, torch.nn.utils.weight_norm, layer),
        error(torch.nn.utils.remove_weight_norm, torch.nn.Linear(2, 2)),
        error(quietly, torch.nn.utils.weight_norm, torch.nn.LazyLinear(2)),
    ]


@alike
def test_spectral_norm(torch):
    seen = []
    for layer, x in (
        (torch.nn.Linear(3, 4), torch.ones(2, 3)),
        (torch.nn.Conv2d(2, 3, 2), torch.ones(1, 2, 3, 3)),
        (torch.nn.ConvTranspose1d(2, 3, 2), torch.ones(1, 2, 3)),
    ):
        torch.nn.utils.spectral_norm(layer, n_power_iterations=2)
        seen += [trained(torch, layer, x), list(layer.state_dict())]
        layer.eval()
        seen.append([layer(x), layer(x), dict(layer.state_dict()._metadata[""])])
        other = torch.nn.utils.spectral_norm(copy.deepcopy(torch.nn.utils.remove_spectral_norm(layer)))
        seen += [list(layer.state_dict()), layer.weight, len(layer._state_dict_hooks), sorted(other.state_dict())]
    return seen


@alike
def test_spectral_norm_reads_old_checkpoints(torch):
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 4))
    layer(torch.ones(1, 3))
    old = layer.state_dict()
    del old._metadata[""]["spectral_norm"], old["weight_v"]
    missing = dict(old)
    old["weight"] = layer.weight.detach()
    loaded = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 4))
    loaded.load_state_dict(old)
    return [loaded.eval()(torch.ones(1, 3)), error(loaded.load_state_dict, missing)]


@alike
def test_spectral_norm_says_what_is_wrong(torch):
    norm, layer = torch.nn.utils.spectral_norm, torch.nn.Linear(2, 2)
    norm(layer)
    return [
        error(norm, layer),
        error(norm, torch.nn.Linear(2, 2), n_power_iterations=0),
        error(norm, torch.nn.Linear(2, 2, bias=False), "bias"),
        error(norm, torch.nn.LazyLinear(2)),
        error(torch.nn.utils.remove_spectral_norm, torch.nn.Linear(2, 2)),
    ]


# --- parametrizations ---


def parametrizations_of(torch):
    """Symmetric (one tensor, with an inverse), Scaled (without), RankOne (two tensors)."""

    class Symmetric(torch.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, a):
            return a.triu()

    class Scaled(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    class RankOne(torch.nn.Module):
        def forward(self, x, y):
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, z):
            return z[:, 0].clone(), z[0].clone()

    return Symmetric, Scaled, RankOne


@alike
def test_parametrize(torch):
    P, (Symmetric, Scaled, _) = torch.nn.utils.parametrize, parametrizations_of(torch)
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    original = layer.weight
    seen = [P.is_parametrized(layer), P.register_parametrization(layer, "weight", Symmetric()) is layer]
    seen += [repr(layer), type(layer).__name__, P.is_parametrized(layer, "weight"), P.is_parametrized(layer, "bias")]
    seen += [layer.parametrizations.weight.original is original, "weight" in dict(layer.named_parameters())]
    seen += [
        trained(torch, layer, x),
        isinstance(layer, torch.nn.Linear),
        P.type_before_parametrizations(layer).__name__,
    ]
    layer.weight = torch.arange(9.0).reshape(3, 3)
    seen += [layer.weight, layer.parametrizations.weight.original]
    P.register_parametrization(layer, "weight", Scaled())
    seen += [layer.weight, layer(x), error(setattr, layer, "weight", torch.ones(3, 3)), sorted(layer.state_dict())]
    with P.cached():
        seen.append(layer.weight is layer.weight)
    seen.append(layer.weight is layer.weight)
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original.zero_()
    seen += [copied.weight, type(copied).__name__, error(pickle.dumps, layer)]
    layer.load_state_dict(copied.state_dict())
    P.remove_parametrizations(layer, "weight")
    seen += [repr(layer), layer.weight, layer.weight is original, hasattr(layer, "parametrizations")]
    P.register_parametrization(layer, "weight", Symmetric())
    P.remove_parametrizations(layer, "weight", leave_parametrized=False)
    return [*seen, layer.weight, type(layer).__name__, P.type_before_parametrizations(layer).__name__]


def test_copies_of_parametrized_modules_are_independent():
    """In PyTorch they share a class, and removing the parametrization of one breaks the other."""
    P, (Symmetric, *_) = tensorgrad.nn.utils.parametrize, parametrizations_of(tensorgrad)
    layer = P.register_parametrization(tensorgrad.nn.Linear(2, 2), "weight", Symmetric())
    copied = copy.deepcopy(layer)
    P.remove_parametrizations(copied, "weight")
    assert tensorgrad.equal(layer.weight, copied.weight)
    assert P.is_parametrized(layer) and not P.is_parametrized(copied)


@alike
def test_parametrize_with_several_tensors(torch):
    P, (_, Scaled, RankOne) = torch.nn.utils.parametrize, parametrizations_of(torch)
    layer = torch.nn.Linear(3, 3)
    P.register_parametrization(layer, "weight", RankOne())
    seen = [trained(torch, layer, torch.ones(2, 3)), sorted(layer.state_dict())]
    layer.weight = torch.ones(3, 3)
    seen.append(layer.weight)
    other = torch.nn.Linear(3, 3)
    P.transfer_parametrizations_and_params(layer, other)
    seen += [other.weight, other.parametrizations.weight.original1 is layer.parametrizations.weight.original1]
    seen.append(error(P.remove_parametrizations, layer, "weight", leave_parametrized=False))
    P.remove_parametrizations(layer, "weight")
    seen += [layer.weight, sorted(layer.state_dict())]
    buffered = torch.nn.BatchNorm1d(2)
    P.register_parametrization(buffered, "running_mean", Scaled())
    seen += [buffered.eval()(torch.ones(2, 2)), sorted(name for name, _ in buffered.named_buffers())]
    P.remove_parametrizations(buffered, "running_mean")
    return [*seen, repr(buffered)]


@alike
def test_parametrize_follows_the_module(torch):
    """Dtype, device, training mode, functional calls."""
    P, (Symmetric, *_) = torch.nn.utils.parametrize, parametrizations_of(torch)
    layer = torch.nn.Linear(2, 2).eval()
    P.register_parametrization(layer, "weight", Symmetric())
    seen = [layer.parametrizations.weight[0].training, layer.double().weight.dtype]
    tensors = {"parametrizations.weight.original": torch.ones(2, 2, dtype=torch.float64)}
    seen.append(torch.func.functional_call(layer, tensors, torch.ones(1, 2, dtype=torch.float64)))
    return [*seen, layer.train().parametrizations.weight[0].training, layer.weight]


@alike
def test_parametrize_says_what_is_wrong(torch):
    P = torch.nn.utils.parametrize

    def made(forward, right_inverse=None):
        body = {"forward": forward}
        if right_inverse:
            body["right_inverse"] = right_inverse
        return type("Made", (torch.nn.Module,), body)()

    def tried(*functions, **options):
        return error(P.register_parametrization, torch.nn.Linear(2, 3), "weight", made(*functions), **options)

    twice = torch.nn.Linear(2, 2)
    P.register_parametrization(twice, "weight", made(lambda self, x: x))
    return [
        error(P.register_parametrization, torch.nn.Linear(2, 3), "wait", made(lambda self, x: x)),
        tried(lambda self, x: x.double()),
        tried(lambda self, x: x.T),
        tried(lambda self, x: None),
        tried(lambda self, x: x, lambda self, x: None),
        tried(lambda self, x: x, lambda self, x: x.double()),
        tried(lambda self, x: x, lambda self, x: [1]),
        tried(lambda self, x: x.T, unsafe=True),
        error(P.remove_parametrizations, torch.nn.Linear(2, 3), "weight"),
        error(P.ParametrizationList, [], torch.ones(2)),
        *(
            error(P.register_parametrization, twice, "weight", made(*functions))
            for functions in (
                [lambda self, x: x[0]],
                [lambda self, x: x.double()],
                [lambda self, x: 1],
                [lambda self, x: x, lambda self, x: x[0]],
                [lambda self, x: x, lambda self, x: x.double()],
                [lambda self, x: x, lambda self, x: None],
            )
        ),
        error(setattr, twice, "weight", torch.ones(2, 2)),
    ]


@alike(tolerance=1e-4)
def test_parametrizations(torch):
    made, seen = torch.nn.utils.parametrizations, []
    for layer, x in (
        (torch.nn.Linear(3, 4), torch.ones(2, 3)),
        (torch.nn.ConvTranspose2d(2, 3, 2), torch.ones(1, 2, 3, 3)),
    ):
        for function in (made.weight_norm, made.spectral_norm):
            normed = function(copy.deepcopy(layer))
            seen += [trained(torch, normed, x), repr(normed), normed.eval()(x), normed(x)]
            seen.append(torch.nn.utils.parametrize.remove_parametrizations(normed, "weight").weight)
    seen.append(made.spectral_norm(torch.nn.Linear(3, 4), "bias").bias)
    old = quietly(torch.nn.utils.weight_norm, torch.nn.Linear(3, 4))
    new = made.weight_norm(torch.nn.Linear(3, 4))
    seen += [str(new.load_state_dict(old.state_dict())), new.weight]
    return [
        *seen,
        error(made.spectral_norm, torch.nn.Linear(2, 2), dim=2),
        error(made.spectral_norm, torch.nn.Linear(2, 2), n_power_iterations=0),
        error(made.spectral_norm, torch.nn.Linear(2, 2), "wait"),
    ]


@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("trivialization", [True, False])
def test_orthogonal(name, shape, trivialization):
    @alike(tolerance=2e-4)
    def scenario(torch):
        layer = torch.nn.Linear(shape[1], shape[0]).double()
        orthogonal = torch.nn.utils.parametrizations.orthogonal
        orthogonal(layer, orthogonal_map=name, use_trivialization=trivialization)
        seen = [layer.weight, repr(layer), sorted(layer.state_dict())]
        seen.append(trained(torch, layer, torch.ones(2, shape[1], dtype=torch.float64)))
        weight = layer.weight
        small = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
        seen.append((small - torch.eye(min(shape), dtype=small.dtype)).abs().max().item() < 1e-9)
        target = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0][: shape[0], : shape[1]]
        if shape == (4, 4):
            seen.append(error(setattr, layer, "weight", target))
            seen.append((layer.weight - target).abs().max().item() < 1e-9)
        return seen

    scenario()


@alike
def test_orthogonal_says_what_is_wrong(torch):
    orthogonal = torch.nn.utils.parametrizations.orthogonal
    return [
        error(orthogonal, torch.nn.Linear(2, 2), "wait"),
        error(orthogonal, torch.nn.Linear(2, 2), "bias"),
        error(orthogonal, torch.nn.Linear(2, 2), orthogonal_map="exp"),
        error(orthogonal, torch.nn.Linear(2, 2, dtype=torch.complex64), orthogonal_map="householder"),
        error(setattr, orthogonal(torch.nn.Linear(2, 2)), "weight", torch.ones(3, 2)),
    ]


# --- pruning ---


@alike
def test_prune(torch):
    prune, seen = pruning(torch), []
    for function, arguments in (
        (prune.identity, {}),
        (prune.random_unstructured, {"amount": 5}),
        (prune.random_unstructured, {"amount": 0.4}),
        (prune.l1_unstructured, {"amount": 0.3}),
        (prune.random_structured, {"amount": 2, "dim": 0}),
        (prune.ln_structured, {"amount": 1, "n": 2, "dim": 1}),
        (prune.ln_structured, {"amount": 0.5, "n": float("-inf"), "dim": -1}),
        (prune.ln_structured, {"amount": 0, "n": 1, "dim": 0}),
    ):
        layer = torch.nn.Linear(4, 5)
        seen += [function(layer, "weight", **arguments) is layer, sorted(layer.state_dict()), prune.is_pruned(layer)]
        seen += [layer.weight, trained(torch, layer, torch.ones(2, 4)), layer.weight]
        with torch.no_grad():  # so that the product is a leaf, as copying demands
            layer(torch.ones(1, 4))
        copied = copy.deepcopy(layer)
        prune.remove(layer, "weight")
        seen += [layer.weight, sorted(layer.state_dict()), prune.is_pruned(layer), prune.is_pruned(copied)]
        seen.append(copied(torch.ones(1, 4)))
    return seen


@alike
def test_prune_again(torch):
    prune, layer = pruning(torch), torch.nn.Linear(6, 5)
    seen = []
    for step in (
        lambda: prune.l1_unstructured(layer, "weight", 4),
        lambda: prune.random_structured(layer, "weight", 1, 0),
        lambda: prune.ln_structured(layer, "weight", 1, 2, 1),
        lambda: prune.random_unstructured(layer, "weight", 0.5),
        lambda: prune.custom_from_mask(layer, "weight", torch.eye(5, 6)),
    ):
        step()
        seen.append(layer.weight_mask)
    (method,) = layer._forward_pre_hooks.values()
    seen += [type(method).__name__, [type(m).__name__ for m in method], len(method), type(method[1]).__name__]
    prune.remove(layer, "weight")
    return [*seen, layer.weight]


@alike
def test_prune_globally_and_by_scores(torch):
    prune = pruning(torch)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    pairs = [(net[0], "weight"), (net[2], "weight"), (net[2], "bias")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.5)
    seen = [net[0].weight_mask, net[2].weight_mask, net[2].bias_mask]
    prune.global_unstructured(
        pairs, prune.RandomUnstructured, importance_scores={pairs[0]: torch.ones(4, 3)}, amount=4
    )  # fmt: skip
    seen += [net[0].weight_mask, net[2].weight_mask, trained(torch, net, torch.ones(2, 3))]
    layer, scores = torch.nn.Linear(3, 2), torch.arange(6.0).reshape(2, 3)
    prune.l1_unstructured(layer, "weight", 2, importance_scores=scores)
    seen.append(layer.weight_mask)
    method = prune.L1Unstructured(2)
    return [
        *seen,
        method.prune(scores - 2),
        method.prune(scores, default_mask=torch.eye(2, 3), importance_scores=-scores),
    ]


@alike
def test_prune_says_what_is_wrong(torch):
    prune, layer = pruning(torch), torch.nn.Linear(2, 3)
    pruned = prune.identity(torch.nn.Linear(2, 3), "weight")
    structured = prune.RandomStructured
    return [
        error(prune.l1_unstructured, layer, "weight", "all"),
        error(prune.l1_unstructured, layer, "weight", 1.5),
        error(prune.l1_unstructured, layer, "weight", -1),
        error(prune.l1_unstructured, layer, "weight", 7),
        error(prune.l1_unstructured, layer, "weight", 1, importance_scores=torch.ones(2)),
        error(prune.ln_structured, layer, "bias", 1, 2, 0),
        error(prune.ln_structured, layer, "weight", 1, 2, 2),
        error(prune.custom_from_mask, layer, "weight", torch.ones(2)),
        sorted(layer.state_dict()),
        error(prune.remove, layer, "weight"),
        error(prune.global_unstructured, [(layer, "weight")], structured, amount=1).split(" of type ")[-1],
        error(prune.global_unstructured, [(layer, "weight")], prune.Identity, importance_scores=[]),
        error(prune.global_unstructured, 3, prune.Identity),
        error(prune.PruningContainer().add_pruning_method, 3),
        error(prune.l1_unstructured, pruned, "weight", 7),
    ]


# --- fusing, making, ordering, clipping ---


@alike(tolerance=1e-4)
def test_fusion(torch):
    utils, seen = torch.nn.utils, []
    for conv, norm, x in (
        (torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3), torch.randn(2, 2, 4, 4)),
        (torch.nn.Conv1d(2, 3, 2, bias=False), torch.nn.BatchNorm1d(3, affine=False), torch.randn(2, 2, 4)),
        (torch.nn.ConvTranspose2d(2, 3, 2), torch.nn.BatchNorm2d(3), torch.randn(2, 2, 4, 4)),
        (torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.randn(4, 2)),
    ):
        norm(conv(x))  # for its running statistics
        conv.eval(), norm.eval()
        if isinstance(conv, torch.nn.Linear):
            fused = utils.fuse_linear_bn_eval(conv, norm)
        else:
            fused = utils.fuse_conv_bn_eval(conv, norm, transpose=isinstance(conv, torch.nn.ConvTranspose2d))
        seen += [fused.weight, fused.bias, fused(x), (fused(x) - norm(conv(x))).abs().max().item() < 1e-5]
    linear, norm = torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)
    return [
        *seen,
        error(utils.fuse_linear_bn_eval, linear, norm),
        error(utils.fuse_linear_bn_eval, linear.eval(), torch.nn.BatchNorm1d(4).eval()),
        error(utils.fuse_conv_bn_eval, torch.nn.Conv2d(2, 3, 1).eval(), norm),
        error(
            utils.fuse_conv_bn_eval,
            torch.nn.Conv2d(2, 3, 1).eval(),
            torch.nn.BatchNorm2d(3, track_running_stats=False).eval(),
        ),
    ]


@alike
def test_skip_init_and_memory_format(torch):
    utils = torch.nn.utils
    made = utils.skip_init(torch.nn.Linear, 2, 3, dtype=torch.float64)
    drawn = torch.rand(1)  # nothing was drawn before
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ConvTranspose2d(3, 2, 3), torch.nn.Conv1d(2, 2, 2))
    weight, y = net[0].weight, net[0](torch.ones(1, 2, 5, 5))
    utils.convert_conv2d_weight_memory_format(net, torch.channels_last)
    strides = [list(m.weight.stride()) for m in net]
    utils.convert_conv2d_weight_memory_format(net, torch.contiguous_format)
    strides += [list(m.weight.stride()) for m in net]
    volume = utils.convert_conv3d_weight_memory_format(torch.nn.Conv3d(2, 3, 2), torch.channels_last_3d)
    return [
        list(made.weight.shape), made.weight.dtype, str(made.weight.device), drawn, strides, net[0].weight is weight,
        y - net[0](torch.ones(1, 2, 5, 5)), list(volume.weight.stride()),
        error(utils.skip_init, dict), error(utils.skip_init, torch.nn.ReLU),
    ]  # fmt: skip


@alike
def test_total_norm_and_clipping(torch):
    utils = torch.nn.utils
    grads = [torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])]
    parameters = [torch.zeros_like(g).requires_grad_() for g in grads]
    for p, g in zip(parameters, grads, strict=True):
        p.grad = g.clone()
    norm = utils.get_total_norm(grads)
    utils.clip_grads_with_norm_(parameters, 6.5, norm)
    broken = [torch.tensor([float("nan")])]
    return [
        norm, [p.grad for p in parameters], utils.get_total_norm(grads, float("inf")), utils.get_total_norm(grads, 1.0),
        utils.get_total_norm([]), error(utils.get_total_norm, broken, 2.0, True), utils.get_total_norm(iter(grads)),
    ]  # fmt: skip


# --- calling without state ---


@alike
def test_functional_call(torch):
    call = torch.func.functional_call
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    tensors = {name: torch.full_like(p, 0.5).requires_grad_() for name, p in net.named_parameters()}
    buffers = {name: b.clone() for name, b in net.named_buffers()}
    x, before = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), {k: v.clone() for k, v in net.state_dict().items()}
    y = call(net, (tensors, buffers), (x,))
    y.sum().backward()
    seen = [y, {k: t.grad for k, t in tensors.items()}, buffers, [p.grad for p in net.parameters()]]
    seen.append(all(torch.equal(before[k], v) for k, v in net.state_dict().items()))
    seen.append([isinstance(p, torch.nn.Parameter) for p in net.parameters()])
    seen.append(call(net[0], {"bias": torch.zeros(3)}, x))  # the rest stays
    seen.append(call(torch.nn.Bilinear(2, 2, 1), {"weight": torch.ones(1, 2, 2)}, (x,), {"input2": x}).shape == (2, 1))
    return seen


@alike
def test_functional_call_puts_replaced_buffers_into_the_dictionary(torch):
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count = self.count + 1
            return x * self.count

    counter, tensors = Counter(), {"count": torch.tensor([3.0])}
    return [torch.func.functional_call(counter, tensors, (torch.ones(1),)), tensors, counter.count]


@alike
def test_functional_call_of_shared_parameters(torch):
    call = torch.func.functional_call

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    tied, x = Tied(), torch.ones(1, 2)
    one, two = torch.ones(2, 2), 2 * torch.ones(2, 2)
    seen = [call(tied, {"a.weight": one}, x), call(tied, {"b.weight": two}, x)]
    seen.append(call(tied, {"b.weight": two, "a.weight": two}, x))
    seen.append(error(call, tied, {"b.weight": two, "a.weight": one}, x))
    seen.append(call(tied, {"b.weight": two, "a.weight": one}, x, tie_weights=False))
    seen.append(error(call, tied, {"a.weight": one}, x, tie_weights=False, strict=True))
    return [*seen, tied.a.weight is tied.b.weight, call(tied, {"a.weight": one}, x, strict=True)]


@alike
def test_functional_call_says_what_is_wrong(torch):
    call, layer, x = torch.func.functional_call, torch.nn.Linear(2, 2), torch.ones(1, 2)
    names = [
        error(call, layer, {"weight": torch.ones(2, 2), "wait": x}, x, strict=True),
        error(call, layer, {"a.b": x}, x),
        error(call, layer, {"weight": 3}, x),
        error(call, layer, [{"weight": x}, {"weight": x}], x),
        error(call, layer, [3], x),
        error(call, layer, 3, x).partition("<class")[0],
        error(call, torch.nn.DataParallel(layer), {}, x),
        error(call, layer, {"weight": torch.ones(3, 3)}, x).partition(":")[0],
    ]
    older = quietly(torch.nn.utils.stateless.functional_call, layer, {"weight": torch.ones(2, 2)}, x)
    deprecated = warned(torch.nn.utils.stateless.functional_call, layer, {}, x)
    return [names, older, deprecated, layer.weight]


@alike
def test_modules_take_a_memory_format(torch):
    found = []
    for given in (torch.channels_last, torch.contiguous_format):
        for options in ({}, {"dtype": torch.float64}):
            layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.Linear(2, 2))
            layers[0].weight.grad = torch.ones_like(layers[0].weight)
            weight = layers[0].weight
            layers.to(memory_format=given, **options)
            found.append([weight is layers[0].weight, weight.grad.stride(), weight.grad.dtype])
            found += [(p.stride(), p.dtype) for p in layers.state_dict().values()]
    return found


@alike
def test_checks_of_amounts_that_pruning_methods_call(torch):
    from importlib import import_module

    prune = import_module(torch.nn.utils.__name__ + ".prune")
    return [
        *(error(prune._validate_pruning_amount_init, amount) for amount in ("a", 1.1, 20.0, -10, 0.3, 15, 0, 1.0)),
        *(error(prune._validate_pruning_amount, amount, 19) for amount in (20, 19, 0.3, 0)),
        *(prune._compute_nparams_toprune(amount, 15) for amount in (0, 10, 1, 1.0, 0.4)),
    ]


# --- gradients and parameters of a whole model -----------------------------------------------------------------------


@alike
def test_clip_grad(torch):
    utils, seen = torch.nn.utils, []
    for norm_type in (2.0, 1.0, float("inf")):
        ps = [torch.ones(n, requires_grad=True) for n in (2, 3, 1)]
        ((ps[0] * 3).sum() + (ps[1] * torch.tensor([1.0, -5.0, 2.0])).sum()).backward()
        seen.append(utils.clip_grad_norm_(iter(ps), 2.0, norm_type))
        utils.clip_grad_norm_(ps[0], 100.0)
        seen.append([p.grad.tolist() for p in ps[:2]])
        utils.clip_grad_value_(ps, 0.5)
        seen.append([p.grad.tolist() for p in ps[:2]])
    return seen


@alike
def test_clip_grad_edges(torch):
    utils, w = torch.nn.utils, torch.ones(1, requires_grad=True)
    w.grad = torch.tensor([float("inf")])
    return [
        warned(utils.clip_grad_norm_, (p for p in ()), 1.0),
        error(utils.clip_grad_norm_, [w], 1.0, error_if_nonfinite=True),
        warned(utils.clip_grad_norm, [w], 1.0)[0],  # NumPy may also warn, of inf times 0
    ]


@alike
def test_parameters_as_a_vector(torch):
    utils, m = torch.nn.utils, torch.nn.Linear(2, 3)
    shape = utils.parameters_to_vector(m.parameters()).shape
    utils.vector_to_parameters(torch.arange(9.0), m.parameters())
    assert m.bias.tolist() == [6.0, 7.0, 8.0] and m.weight[1].tolist() == [2.0, 3.0]
    return [shape, m.weight.requires_grad, error(utils.vector_to_parameters, [1], m.parameters())]
