"""The scaling of losses does what PyTorch's does: the same numbers, the same complaints."""

import pickle

import pytest

import tensorgrad


def story(l, device):
    """What a scaler does over a number of steps, some of which overflow, and what it says of wrong calls."""
    w, b = (l.nn.Parameter(l.ones(n, device=device)) for n in (2, 3))
    optimizer = l.optim.SGD([w, b], lr=1.0)
    scaler = l.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    found = []

    def tried(call):
        try:
            found.append(call())
        except (RuntimeError, AssertionError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")

    for call in (scaler.update, lambda: scaler.step(optimizer), lambda: scaler.unscale_(optimizer), scaler.state_dict):
        tried(call)
    for factor in (1.0, float("inf"), 1.0, 1.0, 1.0, float("nan"), 1.0, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum() + b.sum()).backward()
        tried(lambda: scaler.step(optimizer))
        tried(scaler.update)
        found.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"], w.tolist(), b.tolist()))
    optimizer.zero_grad()
    for call in (
        lambda: scaler.step(optimizer), scaler.update, lambda: scaler.update(4.0), scaler.get_scale,
        lambda: scaler.update(l.tensor(5.0, device=device)), scaler.get_scale,
        lambda: scaler.update(l.ones(2, device=device)), lambda: scaler.scale(3),
        lambda: str(scaler.scale(l.ones((), dtype=l.float16, device=device)).dtype),
        lambda: str(scaler.scale(l.ones(1, dtype=l.float16, device=device)).dtype),
    ):  # fmt: skip
        tried(call)
    scaler.scale(w.sum() + b.sum()).backward()
    for call in (
        lambda: scaler.unscale_(optimizer), lambda: scaler.unscale_(optimizer), lambda: scaler.step(optimizer),
        lambda: scaler.step(optimizer), lambda: scaler.unscale_(optimizer), w.tolist,
        lambda: scaler.step(optimizer, closure=1),
    ):  # fmt: skip
        tried(call)
    scaler.update()
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**127, "growth_interval": 1})
    scaler.scale((w * 0).sum()).backward()  # its growth would be infinite
    scaler.step(optimizer)
    scaler.update()
    return [*found, scaler.state_dict()]


def test_the_scaler_does_what_pytorchs_does():
    torch = pytest.importorskip("torch")
    ours, theirs = story(tensorgrad, "cpu"), story(torch, "cpu")
    assert [str(each).replace("tensorgrad", "torch") for each in ours] == [str(each) for each in theirs]


def own_steps(l):
    """What optimizers that unscale by themselves are handed."""
    found = []

    class Handed(l.optim.Optimizer):
        _step_supports_amp_scaling = True

        def __init__(self, params):
            super().__init__(params, {})

        def step(self):
            found.append((self.grad_scale.item(), self.found_inf.item()))

    class Given(Handed):
        def step(self, grad_scaler=None):
            found.append(grad_scaler.get_scale())
            grad_scaler.unscale_(self)

    w = l.nn.Parameter(l.ones(2))
    scaler = l.amp.GradScaler("cpu", init_scale=4.0)
    for kind in (Handed, Given):
        for factor in (1.0, float("inf")):
            optimizer, w.grad = kind([w]), None
            scaler.scale((w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append((scaler.get_scale(), w.grad.tolist()))
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_optimizers_that_unscale_by_themselves():
    torch = pytest.importorskip("torch")
    assert own_steps(tensorgrad) == own_steps(torch)


def test_a_scaler_is_pickled_between_iterations():
    w = tensorgrad.nn.Parameter(tensorgrad.ones(2))
    optimizer, scaler = tensorgrad.optim.SGD([w], lr=1.0), tensorgrad.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(AssertionError, match="may only be pickled"):
        pickle.dumps(scaler)
    scaler.update()
    other = pickle.loads(pickle.dumps(scaler))
    assert other.state_dict() == scaler.state_dict()
    assert other.scale(tensorgrad.ones(())).item() == 4.0
    assert not pickle.loads(pickle.dumps(tensorgrad.amp.GradScaler("cpu", enabled=False))).is_enabled()


def test_composites_are_cast_as_one():
    l = tensorgrad
    h, s = l.rand(3, 4).bfloat16(), l.ones(3, 4)
    with l.autocast("cpu"):
        found = l.nn.functional.hinge_embedding_loss(h, s), l.nn.functional.kl_div(h, h, reduction="sum"), h.trace()
    assert all(each.dtype is l.float32 for each in found)
    expected = l.nn.functional.kl_div(h.float(), h.float(), reduction="sum")
    assert found[1].item() == expected.item()  # in full precision from the start


def test_results_that_have_a_place_have_a_dtype_too():
    """Ops in place and those with `out=` are not cast."""
    torch = pytest.importorskip("torch")
    values = [[1.001, 2.0], [3.0, 4.003]]
    found = []
    for l in (tensorgrad, torch):
        a, out, h = l.tensor(values), l.zeros(2, 2), l.tensor(values).half()
        with l.autocast("cpu"):
            l.mm(a, a, out=out)
            b = a.clone().addmm_(a, a)
            h.mul_(h)
            with pytest.raises(RuntimeError):
                a.clone().addmm_(a, a.bfloat16())
        found.append([out.tolist(), b.tolist(), h.tolist(), (a @ a).tolist()])
    assert found[0] == found[1] and found[0][0] == found[0][3]


def test_what_is_not_a_tensor_is_named_under_autocast_too():
    with tensorgrad.autocast("cpu"), pytest.raises(TypeError, match="must be Tensor, not list"):
        tensorgrad.cosine_similarity([1.0], [2.0])


@pytest.mark.parametrize("reentrant", (False, True))
@pytest.mark.parametrize("inside", (False, True))
def test_a_checkpoint_is_computed_again_as_it_was_the_first_time(reentrant, inside):
    """With the casts around the first run, whatever is around the backward pass."""
    torch = pytest.importorskip("torch")

    def story(l):
        seen = []

        def region(x, w):
            y = (x @ w).sigmoid() @ w
            seen.append((y.dtype, l.is_autocast_enabled("cpu"), l.get_autocast_dtype("cpu")))
            return y.float().sum()

        x, w = (l.tensor([[0.5, 1.0], [2.0, -1.0]], requires_grad=True) for _ in range(2))
        checkpoint = l.utils.checkpoint.checkpoint
        with l.autocast("cpu", dtype=l.float16, enabled=inside):
            loss = checkpoint(region, x, w, use_reentrant=reentrant)
        with l.autocast("cpu", enabled=not inside):
            loss.backward()
        return str(seen).replace("tensorgrad", "torch"), x.grad.dtype == l.float32, w.grad.tolist()

    ours, theirs = story(tensorgrad), story(torch)
    assert ours[:2] == theirs[:2]
    torch.testing.assert_close(torch.tensor(ours[2]), torch.tensor(theirs[2]), rtol=1e-2, atol=1e-2)
