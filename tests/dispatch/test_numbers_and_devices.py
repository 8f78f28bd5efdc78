"""Ops of two Python numbers, names of devices that there are none of, streams of the CPU: as PyTorch's."""

import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")

NUMBERS = (
    "l.div(7, 2, rounding_mode='trunc')", "l.div(-7, 2, rounding_mode='floor')", "l.mul(3, 4)", "l.add(1, 2.5)",
    "l.sub(3, 1)", "l.true_divide(3, 2)", "l.floor_divide(7, 2)", "l.add(1, 2, alpha=2)", "l.multiply(2, True)",
    "l.add(True, True)", "l.add(1j, 1)", "l.mul(2.5, 3).dtype", "l.floor_divide(7.5, 2)", "l.div(7, 2)",
    "l.add(1, 2, out=l.zeros(()))", "l.zeros(1, 2, 1).squeeze(0, 2).shape", "l.zeros(1, 2, 1).squeeze_(0, 2).shape",
)  # fmt: skip
REFUSED = ("l.pow(2, 3)", "l.remainder(5, 3)", "l.maximum(1, 2)", "l.fmod(5, 3)", "l.mul(3, [1])", "l.add(1, None)")
NAMES = "ipu xpu opengl hip fpga xla lazy vulkan mps hpu mtia privateuseone".split()  # noqa: SIM905
STREAMS = (
    "l.Stream('cpu')", "l.Stream('cpu').query()", "l.Stream('cpu') == l.Stream('cpu')", "l.Event('cpu')",
    "l.Event('cpu', enable_timing=True)", "l.Event('cpu').query()", "l.Event('cpu').synchronize()",
)  # fmt: skip


def evaluate(library, expression):
    return str(eval(expression, {"l": library}))


@pytest.mark.parametrize("expression", (*NUMBERS, *STREAMS))
def test_values(expression):
    assert evaluate(tg, expression) == evaluate(torch, expression)


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression):
    for library in (tg, torch):
        with pytest.raises(TypeError):
            evaluate(library, expression)


@pytest.mark.parametrize("name", NAMES)
def test_devices_that_are_not_there(name):
    assert evaluate(tg, f"l.device('{name}:1')") == evaluate(torch, f"l.device('{name}:1')")
    assert tg.device(name) != tg.device("cpu")
    for made in (lambda l: l.zeros(1, device=name), lambda l: l.ones(1).to(name), lambda l: l.Generator(name)):
        for library in (tg, torch):
            with pytest.raises((RuntimeError, AssertionError, ImportError)):
                made(library)


def test_events_of_the_cpu_are_not_recorded():
    for library in (tg, torch):
        for wrong in (
            lambda l: l.Event("cpu").record(), lambda l: l.Stream("cpu").record_event(),
            lambda l: l.Stream("cpu").wait_stream(l.Stream("cpu")),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="doesn't support events"):
                wrong(library)
        with pytest.raises(ValueError, match="enable_timing"):
            library.Event("cpu").elapsed_time(library.Event("cpu"))
