"""Scenarios that must behave the same under tensorgrad and torch.

A scenario is a function of the library, `def scenario(torch): ...`, that returns what it observed (numbers, tensors,
names, error messages, nested in any way). `@alike` turns it into a test that runs it under both libraries and compares
the results. An `assert` inside a scenario is checked under both.
"""

import functools
import importlib.util
import re

import numpy as np
import pytest

import tensorgrad
from tests.support.device import as_on_the_cpu

HAS_TORCH = importlib.util.find_spec("torch") is not None
ADDRESS = re.compile(r"0x[0-9a-f]+")


def alike(scenario=None, *, tolerance=1e-5):
    """Turns a scenario into a test. Without torch, the scenario only runs and the test is reported as skipped."""
    if scenario is None:
        return functools.partial(alike, tolerance=tolerance)

    if not scenario.__name__.startswith("test_") and "." not in scenario.__qualname__:
        raise ValueError(f"{scenario.__name__}: pytest only runs functions of a file that are called test_…")

    def test():
        found = observed(scenario, tensorgrad)
        if not HAS_TORCH:
            pytest.skip("torch is not installed: the scenario ran, but there is nothing to compare it with")
        import torch

        expected = observed(scenario, torch)
        reasons = [text for text in texts(expected) if no_kernel(text)]
        if reasons:
            pytest.skip(f"torch cannot do this on this machine: {reasons[0]}")
        assert_alike(found, expected, tolerance, scenario.__name__)

    test.__name__ = test.__qualname__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    test.__module__ = scenario.__module__
    return test


# --- what torch can do on this machine -------------------------------------------------------------------------------

# oneDNN's message on a processor without the kernel it needs, for example an LSTM in bfloat16 without AVX-512.
NO_KERNEL = re.compile(r"could not create a primitive|oneDNN.* not supported|not supported (on|by) this (CPU|platform)")


def no_kernel(error) -> bool:
    """Returns whether an error (or its text) means that torch lacks a kernel for this processor.

    tests/conftest.py skips tests that end with such an error; tests with many rows check each row with `of_torch`.
    """
    return HAS_TORCH and isinstance(error, RuntimeError | str) and NO_KERNEL.search(str(error)) is not None


def of_torch(call):
    """Returns the result of a call of torch; skips the test if torch cannot run it on this machine."""
    try:
        return call()
    except RuntimeError as error:
        if no_kernel(error):
            pytest.skip(f"torch cannot do this on this machine: {error}")
        raise


@functools.cache
def last_bit() -> float:
    """Returns how far torch's weights may be from those of the same seed elsewhere; 0 if it rounds u·w + a once.

    Its kernels for AVX2 and later do. Kernels for older processors round twice, so the last bit may differ. This is
    detected by comparing uniform values from an interval with those from 0 to 1 that they are computed from.
    """
    import torch

    low, high = np.float32(-0.3), np.float32(0.3)
    random = [torch.Generator().manual_seed(0) for _ in range(2)]
    found = torch.empty(256).uniform_(float(low), float(high), generator=random[0]).numpy()
    once = torch.rand(256, generator=random[1]).numpy().astype(np.float64) * np.float64(high - low) + np.float64(low)
    return 0.0 if np.array_equal(found, once.astype(np.float32)) else 1e-6


def texts(value):
    """Yields all strings in an observation."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


# --- scenarios -------------------------------------------------------------------------------------------------------


def observed(scenario, torch):
    """Returns the result of a scenario under one of the libraries, as plain Python values."""
    with torch.enable_grad():
        torch.manual_seed(0)
        return plain(scenario(torch))


def plain(value):
    """Converts tensors to (dtype, requires grad, nested lists); other values are kept."""
    if hasattr(value, "requires_grad") and hasattr(value, "tolist"):
        return (str(value.dtype).replace("tensorgrad.", "torch."), bool(value.requires_grad), value.tolist())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return as_on_the_cpu(ADDRESS.sub("0x", value.replace("tensorgrad", "torch")))
    return value if value is None or isinstance(value, bool | int | float | complex) else as_on_the_cpu(str(value))


def assert_alike(found, expected, tolerance: float, where: str) -> None:
    """Asserts that both observations agree, numbers within a tolerance."""
    differences = list(compare(found, expected, tolerance, where))
    assert not differences, "\n".join(["(found here, then torch's)", *differences])


def compare(found, expected, tolerance: float, where: str):
    """Yields a line for each difference between two observations."""
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(found) == len(expected):
        for i, (f, e) in enumerate(zip(found, expected, strict=True)):
            yield from compare(f, e, tolerance, f"{where}[{i}]")
    elif isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        for key in expected:
            yield from compare(found[key], expected[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(expected, float | complex) and isinstance(found, float | complex):
        close = abs(found - expected) <= tolerance * (1 + abs(expected)) or found == expected
        if not close and not (found != found and expected != expected):  # nan equals nan here
            yield f"{where}: {found} | {expected}"
    elif type(found) is not type(expected) or found != expected:
        yield f"{where}:\n    {found!r}\n    {expected!r}"


def error(function, *args, **kwargs) -> str:
    """Returns `Type: text` of the exception that a call raises; "nothing" if it raises none."""
    try:
        function(*args, **kwargs)
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
    return "nothing"


def graph(tensor, depth: int = 6):
    """Returns the names of the nodes behind a tensor, as (name, [children])."""

    def walk(node, left):
        if node is None or not left:
            return None
        return [node.name(), [walk(child, left - 1) for child, _ in node.next_functions]]

    return walk(tensor.grad_fn, depth)


def as_torch_says(text: str) -> str:
    """Returns the error for a modified saved tensor, without the parts that differ between the libraries on purpose.

    Both name an op: PyTorch the last one that created or changed the tensor, tensorgrad the one that created the saved
    value. tensorgrad also names the op that needs it.
    """
    text = re.sub(r" \(The value is needed by \w+\.\)|, which is output \d of \w+,", "", text)
    return text
