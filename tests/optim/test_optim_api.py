"""What torch.optim offers around its optimizers: averages of models, gradients through a step, other state for a while,
state on its way between kinds of optimizers; alike in PyTorch."""

import copy
import pickle

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.alike import alike, error


def model(torch):
    """A small network with buffers, of the same weights in both libraries."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def inputs(torch):
    return torch.tensor(np.random.default_rng(0).standard_normal((8, 3)).astype("float32"))


# --- averages of models ----------------------------------------------------------------------------------------------

AVERAGES = {
    "plain": lambda s: {},
    "plain, with buffers": lambda s: {"use_buffers": True},
    "moving": lambda s: {"avg_fn": s.get_ema_avg_fn(0.7)},
    "plain by a function, with buffers": lambda s: {"avg_fn": s.get_swa_avg_fn(), "use_buffers": True},
    "moving, lists": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.7)},
    "moving, lists, with buffers": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.7), "use_buffers": True},
    "plain, lists": lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()},
    "own": lambda s: {"avg_fn": lambda mean, now, n: 0.25 * mean + 0.75 * now + 0 * n},
}


def averages_scenario(options):
    def scenario(torch):
        """The averaged weights and buffers after each step of a training, and batch normalisation computed anew."""
        swa, net, x, seen = torch.optim.swa_utils, model(torch), inputs(torch), []
        averaged = swa.AveragedModel(net, **options(swa))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for n in range(4):
            optimizer.zero_grad()
            (net(x * (n + 1)) ** 2).mean().backward()
            optimizer.step()
            averaged.update_parameters(net)
            seen.append({name: value.tolist() for name, value in averaged.state_dict().items()})
        assert all(not p.requires_grad or p.grad is None for p in averaged.parameters())
        averaged.eval()
        swa.update_bn([x, [x * 2, "a label"], (x - 1,)], averaged, device="cpu")
        assert not averaged.training
        return [*seen, [b.tolist() for b in averaged.buffers()], averaged.module[1].momentum, averaged(x).tolist()]

    return scenario


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_averaged_model(options):
    alike(averages_scenario(options))()


@alike
def test_averages_of_numbers(torch):
    swa = torch.optim.swa_utils
    for function in (swa.get_ema_avg_fn, swa.get_ema_multi_avg_fn):
        assert error(function, 1.5).startswith("ValueError")
    whole, fraction = [torch.tensor([7, 2])], [torch.tensor([0.5]), torch.tensor([[1.0 + 2.0j]])]
    swa.get_ema_multi_avg_fn(0.25)(whole, [torch.tensor([20, 3])], 1)
    swa.get_swa_multi_avg_fn()(fraction[:1], [torch.tensor([2.0])], torch.tensor(2))
    swa.get_swa_multi_avg_fn()(fraction[1:], [torch.tensor([[2.0 - 1.0j]])], 2)
    texts = [error(f, value) for f in (swa.get_ema_avg_fn, swa.get_ema_multi_avg_fn) for value in (-0.1, 1.1)]
    both = error(swa.AveragedModel, torch.nn.Linear(1, 1), avg_fn=abs, multi_avg_fn=abs)
    return [whole, fraction, texts, both]


@alike
def test_update_bn_without_batch_normalisation(torch):
    net = torch.nn.Linear(2, 2)
    torch.optim.swa_utils.update_bn(iter(()), net)
    return net.training


@alike
def test_averaged_model_saves_and_loads(torch):
    swa, net = torch.optim.swa_utils, model(torch)
    averaged = swa.AveragedModel(net)
    averaged.update_parameters(net)
    twin = swa.AveragedModel(net)
    twin.load_state_dict(copy.deepcopy(averaged.state_dict()))
    with torch.no_grad():
        net[0].weight.add_(1)
    twin.update_parameters(net)
    return [list(twin.state_dict()), twin.n_averaged, twin.module[0].weight]


# --- gradients through a step ----------------------------------------------------------------------------------------


@alike
def test_a_learning_rate_that_learns(torch):
    """Two steps with settings that are tensors, and the gradients of what comes out with respect to them."""
    seen = []
    for name, settings in (
        ("SGD", {"lr": 0.1}),
        ("Adam", {"lr": 0.1, "weight_decay": 0.2, "betas": (0.9, 0.99)}),
        ("AdamW", {"lr": 0.1, "betas": (0.8, 0.9)}),
        ("RAdam", {"lr": 0.1}),
    ):
        made = {
            key: tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in value)
            if isinstance(value, tuple)
            else torch.tensor(value, dtype=torch.float64, requires_grad=True)
            for key, value in settings.items()
        }
        start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
        w = start.clone()
        optimizer = getattr(torch.optim, name)([w], differentiable=True, **made)
        for n in range(2):
            w.grad = torch.tensor([0.3, -0.1, 0.7], dtype=torch.float64) * (n + 1)
            optimizer.step()
        tensors = [t for value in made.values() for t in (value if isinstance(value, tuple) else (value,))]
        seen.append(torch.autograd.grad((w**2).sum(), [start, *tensors]))
    return seen


@pytest.mark.parametrize(
    ("name", "options"), [("Adamax", {}), ("Adam", {"amsgrad": True}), ("RMSprop", {"centered": True, "momentum": 0.5})]
)
def test_where_torch_cannot_look_through(name, options):
    """PyTorch's step overwrites what autograd still needs. Here the gradient is that of finite differences."""

    def moved(w, lr):
        w = w.clone()
        optimizer = getattr(tg.optim, name)([w], differentiable=True, lr=lr, **options)
        for n in range(3):
            w.grad = w.clone().cos() * (n + 1) + w * 0.5
            optimizer.step()
        return w

    start = tg.tensor([1.0, -2.0, 0.6], dtype=tg.float64, requires_grad=True)
    rate = tg.tensor(0.1, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(moved, (start, rate))


@alike
def test_parameters_of_a_differentiable_optimizer(torch):
    """Computed tensors are taken; of leaves nobody could ask for a gradient."""
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = torch.ones(2)
    computed = leaf * 2
    refused = error(torch.optim.Adam, [computed])
    optimizer = torch.optim.Adam([computed], differentiable=True)
    optimizer.add_param_group({"params": [leaf * 3], "lr": 0.5})
    state = torch.tensor(0.0, requires_grad=True)
    computed.grad = torch.ones(2)
    optimizer.state[computed] = {"step": state, "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    step = torch.optim.SGD([leaf], differentiable=True).step
    return [refused, error(optimizer.step), error(step), leaf]


# --- state -----------------------------------------------------------------------------------------------------------


@alike
def test_swapping_in(torch):
    """Other parameters and other state for a while."""
    swap = torch.optim.swap_in_optimizer_params_and_state
    ws = [torch.ones(2, requires_grad=True), torch.zeros(3, requires_grad=True)]
    optimizer = torch.optim.Adam([{"params": ws[:1]}, {"params": ws[1:], "lr": 0.5}])
    fresh = error(swap(optimizer, {}, {}).__enter__)
    for w in ws:
        w.grad = torch.ones_like(w)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.25
    others = {"a": torch.full((2,), 5.0, requires_grad=True), "b": torch.full((3,), 7.0, requires_grad=True)}
    for other in others.values():
        other.grad = torch.ones_like(other)
    with swap(optimizer, others, saved):
        optimizer.step()
        inside = [optimizer.param_groups[0]["lr"], [p is q for p, q in zip(optimizer.state, others.values())]]
    optimizer.step()
    seen = [fresh, inside, ws, list(others.values()), optimizer.param_groups[0]["lr"]]

    def broken(**changes):
        return {**saved, **changes}

    group = saved["param_groups"][0]
    for wrong in (
        3, {}, broken(state=3), broken(state={ws[0]: {}}), broken(state={0: 3}), broken(param_groups=()),
        broken(param_groups=[]), broken(param_groups=[3, 3]), broken(param_groups=[{"params": "x"}] * 2),
        broken(param_groups=[{"params": [1, 2]}] * 2), broken(param_groups=[{"params": [0], "x": 1}] * 2),
        broken(param_groups=[{**group, "params": [0]}, {**group, "params": [0]}]), broken(state={7: {}}),
    ):  # fmt: skip
        seen.append(error(swap(optimizer, others, wrong).__enter__).split("; got")[0])
    seen.append(error(swap(optimizer, {"a": others["a"]}, saved).__enter__))
    return [text.partition(", got")[0] if isinstance(text, str) else text for text in seen]


@alike
def test_loading_into_another_kind(torch):
    """State of a plain optimizer in a fused one, and back: where and how steps are counted."""
    seen = []
    for source, target in (({}, {"fused": True}), ({"fused": True}, {})):
        w = torch.ones(2, dtype=torch.float64, requires_grad=True)
        w.grad = torch.ones(2, dtype=torch.float64)
        one, other = torch.optim.Adam([w], **source), torch.optim.Adam([w], **target)
        one.step()
        state = one.state_dict()
        state["state"][0]["step"] = state["state"][0]["step"].double()
        other.load_state_dict(state)
        other.step()
        seen += [other.state_dict()["state"], other.param_groups[0]["fused"], w]
    return seen


@alike
def test_default_dtype_of_counts(torch):
    seen = []
    try:
        for default in (torch.float64, torch.float16):
            torch.set_default_dtype(default)
            w = torch.ones(2, dtype=torch.float32, requires_grad=True)
            w.grad = torch.ones(2, dtype=torch.float32)
            for name, options in (("Adam", {}), ("Adam", {"fused": True}), ("ASGD", {}), ("Adafactor", {})):
                optimizer = getattr(torch.optim, name)([w], **options)
                optimizer.step()
                seen.append({key: str(value.dtype)[-7:] for key, value in optimizer.state[w].items()})
    finally:
        torch.set_default_dtype(torch.float32)
    return seen


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", ["LBFGS", "Adagrad", "NAdam", "ASGD", "Muon", "Adafactor", "Rprop"])
def test_copies_go_on_alike(name, copied):
    w = tg.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)

    def go(w, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = (w**2).log1p().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    optimizer = getattr(tg.optim, name)([w])
    go(w, optimizer)
    twin, other = copied((w, optimizer))
    go(w, optimizer)
    go(twin, other)
    assert twin.tolist() == w.tolist()


@alike
def test_hooks_of_every_optimizer(torch):
    """Those that write `step` themselves run the hooks as well."""
    seen = []
    for name in ("LBFGS", "Muon", "Adafactor", "Rprop"):
        w = torch.ones(2, 2, requires_grad=True)
        optimizer = getattr(torch.optim, name)([w])
        optimizer.register_step_pre_hook(
            lambda o, args, kwargs: seen.append((type(o).__name__, len(args), len(kwargs)))
        )
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", len(args))))

        def closure(w=w):
            w.grad = 2 * w.detach()
            return (w**2).sum().detach()

        seen.append(optimizer.step(closure))
        seen.append(optimizer.state_dict()["param_groups"])
    return seen


@alike
def test_several_kinds_of_parameters_at_once(torch):
    """Dtypes, layouts and sizes in one group, some without a gradient."""
    seen = []
    for name in ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop", "Adafactor"):
        rng = np.random.default_rng(0)
        ws = [torch.tensor(rng.standard_normal(shape)) for shape in ((3, 4), (2, 0), (), (140_000,), (2, 3))]
        ws = [ws[0].t().clone().float().t(), ws[1], ws[2], ws[3].float(), ws[4]]
        ws = [w.requires_grad_() for w in ws if name != "Adafactor" or w.numel()]
        optimizer = getattr(torch.optim, name)(ws, lr=0.1, maximize=True)
        for n in range(3):
            for w in ws[:-1]:
                w.grad = torch.tensor(rng.standard_normal(tuple(w.shape))).to(w.dtype) * (n + 1)
            optimizer.step()
        seen.append([name, [w[:7] if w.ndim else w for w in ws], [len(s) for s in optimizer.state.values()]])
    return seen


def test_sixteen_bits():
    """Updates of float16 parameters are computed in float32: near those of float64."""
    for name in ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop", "Adafactor", "LBFGS", "Muon"):
        results = []
        for dtype in (tg.float16, tg.float64):
            w = tg.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=dtype, requires_grad=True)
            optimizer = getattr(tg.optim, name)([w])

            def closure(w=w):
                w.grad = (w.detach() * 0.25).to(w.dtype)
                return (w.detach() ** 2).sum() / 8

            for _ in range(2):
                optimizer.step(closure)
            assert w.dtype is dtype
            results.append(w.detach().double().numpy())
        np.testing.assert_allclose(*results, rtol=4e-3, atol=2e-3)


@alike
def test_a_wrapper_that_skips_init(torch):
    """As accelerate's and opacus' are."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        @property
        def param_groups(self):
            return self.optimizer.param_groups

        @property
        def state(self):
            return self.optimizer.state

        def zero_grad(self, set_to_none=True):
            self.optimizer.zero_grad(set_to_none)

        def step(self, closure=None):
            return self.optimizer.step(closure)

    x = torch.nn.Parameter(torch.ones(2))
    wrapper = Wrapper(torch.optim.Adam([x], lr=0.1))
    values = []
    for _ in range(3):
        wrapper.zero_grad()
        (x * x).sum().backward()
        wrapper.step()
        values.append(x.detach().clone())
    return [values, wrapper.param_groups[0]["lr"], isinstance(wrapper, torch.optim.Optimizer)]
