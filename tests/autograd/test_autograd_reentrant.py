"""Backward passes within backward passes, hundreds deep: modes, errors and interrupts come through; as in torch."""

from __future__ import annotations

import contextvars
import gc
import signal
import time

import pytest

import tensorgrad as tg
from tensorgrad.autograd import engine

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")


def nested(l, depth, at_the_bottom, inputs=False):
    """Runs backward through a function whose backward does the same, `depth` times; the gradient of the outermost."""

    class Deep(l.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with l.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x < 0:
                return g * at_the_bottom()
            with l.enable_grad():
                y = Deep.apply(ctx.x).sum()
                if inputs:
                    return l.autograd.grad(y, ctx.x)[0] * g
                y.backward()
            return g

    x = l.tensor(float(depth), requires_grad=True)
    Deep.apply(x).sum().backward()
    return x.grad.tolist()


@pytest.mark.parametrize("depth", (19, 20, 21, 41, 700))
@pytest.mark.parametrize("inputs", (False, True))
def test_as_deep_as_one_likes(depth, inputs):
    assert nested(tg, depth, lambda: 2, inputs) == nested(torch, depth, lambda: 2, inputs)


def test_modes_come_through():
    told = []
    for l in (tg, torch):
        told.append([])

        def note(l=l, seen=told[-1]):
            seen.append((l.is_grad_enabled(), l.is_autocast_enabled("cpu"), l.autograd.is_view_replay_enabled()))
            return 1

        with l.autocast("cpu"), l.autograd._force_original_view_tracking(True):
            nested(l, 60, note)
    assert told[0] == told[1]


def test_modes_that_are_switched_below_stay_switched():
    def switch():
        tg.set_autocast_enabled("cpu", True)
        return 1

    nested(tg, 60, switch)
    assert tg.is_autocast_enabled("cpu")
    tg.set_autocast_enabled("cpu", False)


def test_what_a_program_keeps_for_itself_comes_through():
    value = contextvars.ContextVar("value", default=1)
    value.set(3)
    assert nested(tg, 60, lambda: value.get(), inputs=True) == 3


@pytest.mark.parametrize("error", (ValueError("below"), KeyboardInterrupt(), RecursionError("own")))
def test_errors_come_up(error):
    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        nested(tg, 90, fail)
    assert caught.value is error and tg.is_grad_enabled() and engine.RUNS.current[0] == 0
    assert nested(tg, 90, lambda: 1) == 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm clock")
def test_an_interrupt_reaches_the_pass_that_runs():
    def late(*_):
        raise KeyboardInterrupt

    def work():
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        for _ in range(6000):
            time.sleep(0.01)
        ended.append(1)

    ended: list[int] = []
    before = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(KeyboardInterrupt):
            nested(tg, 90, work)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not ended and tg.is_grad_enabled()


def test_what_is_kept_for_each_thread_ends_with_its_owner():
    """A profiler, a counter or a summary has some, and with it tensors."""
    from tensorgrad.system.per_thread import _ALL
    from tensorgrad.utils.flop_counter import FlopCounterMode

    def use():
        model, x = tg.nn.Linear(2, 3), tg.ones(1, 2)
        with FlopCounterMode(display=False):
            model(x)
        with tg.profiler.profile(with_modules=True):
            model(x)
        tg.nn.summary(model, x)

    use()
    gc.collect()
    before = len(_ALL)
    for _ in range(3):
        use()
    gc.collect()
    assert len(_ALL) == before
