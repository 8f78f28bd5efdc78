"""Errors: frames of the library between a program's line and an error are hidden where tools honour it, and few."""

import contextlib
import gc
import sys
import traceback
import weakref

import pytest

import tensorgrad as tg
from tensorgrad.errors import hide_callers

nn = tg.nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))

    def forward(self, x):
        return self.part(x)


CALLS = {
    "layers": lambda: Net()(tg.ones(2, 3)),
    "sum": lambda: tg.ones(2, 3) + tg.ones(4),
    "product": lambda: tg.ones(2, 3) @ tg.ones(4, 2),
    "target": lambda: nn.functional.cross_entropy(tg.ones(2, 3), tg.tensor([1, 5])),
    "not a tensor": lambda: tg.add("a", 3),
    "list": lambda: tg.cat(["a"]),
}


def frames(error):
    """Pairs: whether the frame is ours, and whether IPython and pytest hide it."""
    found, place = [], error.__traceback__
    while place is not None:
        frame = place.tb_frame
        hidden = frame.f_locals.get("__tracebackhide__", frame.f_globals.get("__tracebackhide__", False))
        found.append((frame.f_globals["__name__"].partition(".")[0] == "tensorgrad", bool(hidden)))
        place = place.tb_next
    return found


@pytest.mark.parametrize("name", CALLS)
def test_our_frames_are_hidden_and_no_others(name):
    for _ in range(2):  # the first call compiles the functions
        with pytest.raises((RuntimeError, IndexError, TypeError)) as caught:
            CALLS[name]()
    found = frames(caught.value)
    assert not any(hidden for ours, hidden in found if not ours)
    assert all(hidden for ours, hidden in found[:-1] if ours), "\n".join(
        traceback.format_tb(caught.value.__traceback__)
    )


def test_an_error_of_a_kernel_does_not_show_the_kernel():
    with pytest.raises(RuntimeError) as caught:
        tg.ones(2, 3) @ tg.ones(4, 2)
    assert not any("kernels" in frame.filename for frame in traceback.extract_tb(caught.value.__traceback__))


OURS = """
def fail(x):
    try:
        raise ValueError("inside")
    except ValueError as error:
        hide_callers(sys._getframe())
        raise
"""


def test_no_cycle_keeps_what_the_frames_hold():
    """Before Python 3.13 the marks are in a copy of a frame's variables, an exception among them."""
    space = {"__name__": "tensorgrad.made_here", "hide_callers": hide_callers, "sys": sys}
    exec(OURS, space)
    gc.disable()
    try:
        x = tg.ones(2, 3)
        held = weakref.ref(x)
        with contextlib.suppress(ValueError):
            space["fail"](x)
        del x
        assert held() is None
    finally:
        gc.enable()


def test_a_deep_stack_is_looked_at_in_part_only():
    def deep(n):
        if n:
            return deep(n - 1)
        hide_callers(sys._getframe())

    deep(200)
