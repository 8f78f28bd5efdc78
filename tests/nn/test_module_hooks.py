"""Hooks of modules against PyTorch: when they run, with what, and what they may change."""

import pytest

import tensorgrad as tg
from tensorgrad import nn

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")


def _forward_hooks(lib):
    log = []
    m = lib.nn.Linear(1, 1, bias=False)
    lib.nn.init.ones_(m.weight)
    m.register_forward_pre_hook(lambda mod, args: log.append("pre"))
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,), prepend=True)
    m.register_forward_pre_hook(lambda mod, args, kw: ((args[0] + 1,), kw), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, out: log.append((args[0].item(), out.item())))
    m.register_forward_hook(lambda mod, args, kw, out: out * 10, with_kwargs=True, prepend=True)
    handle = m.register_forward_hook(lambda mod, args, out: out + 0.5)
    log.append(m(lib.ones(1, 1)).item())
    handle.remove()
    handle.remove()
    log.append(m(input=lib.ones(1, 1)).item() if False else m(lib.ones(1, 1)).item())
    with m.register_forward_hook(lambda mod, args, out: -out):
        log.append(m(lib.ones(1, 1)).item())
    log.append(m(lib.ones(1, 1)).item())
    m._forward_hooks.clear()
    m._forward_pre_hooks.clear()
    log.append(m(lib.ones(1, 1)).item())
    m._forward_hooks[99] = lambda mod, args, out: out + 7
    log.append(m(lib.ones(1, 1)).item())
    return log


@needs_torch
def test_forward_hooks():
    assert _forward_hooks(tg) == _forward_hooks(torch)


def _always_called(lib):
    log = []

    class Failing(lib.nn.Module):
        def forward(self, x):
            raise KeyError("no")

    m = Failing()
    m.register_forward_hook(lambda *args: log.append("never"))
    m.register_forward_hook(lambda mod, args, out: log.append(("always", out)), always_call=True)
    m.register_forward_hook(lambda *args: 1 / 0, always_call=True)
    with pytest.raises(KeyError), pytest.warns(UserWarning, match="silenced as another error was raised in forward"):
        m(1)
    m = lib.nn.ReLU()
    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple of"):
        m(lib.ones(1))
    return log


@needs_torch
def test_hooks_that_are_always_called():
    assert _always_called(tg) == _always_called(torch)


def _backward_hooks(lib, hooks_module):
    log = []

    def show(grads):
        return [None if g is None else g.tolist() for g in grads]

    inner = lib.nn.Linear(2, 1, bias=False)
    lib.nn.init.ones_(inner.weight)
    m = lib.nn.Sequential(inner, lib.nn.Tanh())
    m.register_full_backward_hook(lambda mod, gi, go: log.append(("hook", show(gi), show(go))))
    inner.register_full_backward_hook(lambda mod, gi, go: None if gi[0] is None else (gi[0] * 2,))
    inner.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    x = lib.zeros(1, 2, requires_grad=True)
    m(x).sum().backward()
    log += [x.grad.tolist(), inner.weight.grad.tolist()]
    with pytest.warns(UserWarning, match="Full backward hook is firing when gradients are computed with respect to"):
        m(lib.zeros(1, 2)).sum().backward()  # no input requires grad: the hook still runs, without input gradients
    with lib.no_grad():
        m(x)
    handle = hooks_module.register_module_full_backward_hook(lambda mod, gi, go: log.append(type(mod).__name__))
    m(x).sum().backward()
    handle.remove()
    m(x).sum().backward()

    class Two(lib.nn.Module):
        def forward(self, a, n, b):
            return a * b, "text", b * n

    two = Two()
    two.register_full_backward_hook(lambda mod, gi, go: log.append(("two", show(gi), show(go))))
    a, b = lib.tensor([2.0], requires_grad=True), lib.tensor([3.0])
    outs = two(a, 5, b)
    outs[0].sum().backward()
    log.append(a.grad.tolist())

    bad = lib.nn.ReLU()
    bad.register_full_backward_hook(lambda mod, gi, go: (None, None))
    with pytest.raises(
        RuntimeError, match="Backward hook returned an invalid number of grad_input, got 2, but expected 1"
    ):
        bad(x).sum().backward()
    with pytest.raises(
        RuntimeError, match="Cannot use both regular backward hooks and full backward hooks on a single"
    ):
        bad.register_backward_hook(print)
    return log


@needs_torch
def test_backward_hooks():
    import torch.nn.modules.module as theirs

    import tensorgrad.nn.module_hooks as mine

    assert _backward_hooks(tg, mine) == _backward_hooks(torch, theirs)


def test_regular_backward_hook():
    m, seen = nn.Tanh(), []
    m.register_backward_hook(lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    m(tg.zeros(1, requires_grad=True)).sum().backward()
    assert seen == [([1.0], [1.0])]


def test_global_hooks():
    from tensorgrad.nn import module_hooks as hooks

    log = []
    handles = [
        hooks.register_module_forward_pre_hook(lambda m, args: log.append(("pre", type(m).__name__))),
        hooks.register_module_forward_hook(lambda m, args, out: log.append(("post", type(m).__name__))),
        hooks.register_module_parameter_registration_hook(lambda m, name, p: log.append(name)),
        hooks.register_module_buffer_registration_hook(lambda m, name, p: log.append(name)),
        hooks.register_module_module_registration_hook(lambda m, name, sub: nn.Tanh() if name == "1" else None),
    ]
    m = nn.Sequential(nn.BatchNorm1d(1, track_running_stats=False), nn.ReLU())
    m(tg.ones(2, 1))
    for handle in handles:
        handle.remove()
    m(tg.ones(2, 1))
    assert log == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
        ("pre", "Sequential"), ("pre", "BatchNorm1d"), ("post", "BatchNorm1d"), ("pre", "Tanh"), ("post", "Tanh"),
        ("post", "Sequential"),
    ]  # fmt: skip
