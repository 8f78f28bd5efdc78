"""Scenarios that must come out alike under tensorgrad and torch.

A scenario is a function of the library: `def scenario(torch): ...` that returns what it observed (numbers, tensors,
names, texts of errors; nested as it likes). `@alike` makes a test of it: it runs under both and compares. An `assert`
inside a scenario is checked under both.
"""

import functools
import importlib.util
import re

import numpy as np
import pytest

import tensorgrad

HAS_TORCH = importlib.util.find_spec("torch") is not None
ADDRESS = re.compile(r"0x[0-9a-f]+")


def alike(scenario=None, *, tolerance=1e-5):
    """Turns a scenario into a test. Without torch it only runs, and the test then counts as skipped."""
    if scenario is None:
        return functools.partial(alike, tolerance=tolerance)

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

# oneDNN, on a processor for which it has no kernel of this kind: say, no LSTM in bfloat16 without AVX-512.
NO_KERNEL = re.compile(r"could not create a primitive|oneDNN.* not supported|not supported (on|by) this (CPU|platform)")


def no_kernel(error) -> bool:
    """Whether an error, or its text, is torch's way to say that this processor lacks what the call needs.

    tests/conftest.py skips any test that such an error ends; a test of many rows asks for each by `of_torch`.
    """
    return HAS_TORCH and isinstance(error, RuntimeError | str) and NO_KERNEL.search(str(error)) is not None


def of_torch(call):
    """What a call of torch gives; the test is skipped if torch cannot do that on this machine."""
    try:
        return call()
    except RuntimeError as error:
        if no_kernel(error):
            pytest.skip(f"torch cannot do this on this machine: {error}")
        raise


@functools.cache
def last_bit() -> float:
    """How far torch's weights may be from those of the same seed elsewhere; not at all if it rounds u·w + a once.

    Its kernels for AVX2 and later do. Those for older processors round twice, so that the last bit may differ: asked
    for by the uniform numbers from an interval, beside those from 0 to 1 that they are made of.
    """
    import torch

    low, high = np.float32(-0.3), np.float32(0.3)
    random = [torch.Generator().manual_seed(0) for _ in range(2)]
    found = torch.empty(256).uniform_(float(low), float(high), generator=random[0]).numpy()
    once = torch.rand(256, generator=random[1]).numpy().astype(np.float64) * np.float64(high - low) + np.float64(low)
    return 0.0 if np.array_equal(found, once.astype(np.float32)) else 1e-6


def texts(value):
    """All texts in an observation."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


# --- scenarios -------------------------------------------------------------------------------------------------------


def observed(scenario, torch):
    """What the scenario returns under one of the libraries, as plain Python values."""
    with torch.enable_grad():
        torch.manual_seed(0)
        return plain(scenario(torch))


def plain(value):
    """Tensors as (dtype, requires grad, nested lists); everything else by its own value."""
    if hasattr(value, "requires_grad") and hasattr(value, "tolist"):
        return (str(value.dtype).replace("tensorgrad.", "torch."), bool(value.requires_grad), value.tolist())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return ADDRESS.sub("0x", value.replace("tensorgrad", "torch"))
    return value if value is None or isinstance(value, bool | int | float | complex) else str(value)


def assert_alike(found, expected, tolerance: float, where: str) -> None:
    """Asserts that both observations agree, numbers within a tolerance."""
    differences = list(compare(found, expected, tolerance, where))
    assert not differences, "\n".join(["(found here, then torch's)", *differences])


def compare(found, expected, tolerance: float, where: str):
    """Yields a line for every place where two observations differ."""
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(found) == len(expected):
        for i, (f, e) in enumerate(zip(found, expected, strict=True)):
            yield from compare(f, e, tolerance, f"{where}[{i}]")
    elif isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        for key in expected:
            yield from compare(found[key], expected[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(expected, float | complex) and isinstance(found, float | complex):
        close = abs(found - expected) <= tolerance * (1 + abs(expected)) or found == expected
        if not close and not (found != found and expected != expected):  # nan is alike nan
            yield f"{where}: {found} | {expected}"
    elif type(found) is not type(expected) or found != expected:
        yield f"{where}:\n    {found!r}\n    {expected!r}"


def error(function, *args, **kwargs) -> str:
    """`Type: text` of the exception that a call raises; "nothing" if it raises none."""
    try:
        function(*args, **kwargs)
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
    return "nothing"


def graph(tensor, depth: int = 6):
    """The names of the nodes behind a tensor: (name, [children])."""

    def walk(node, left):
        if node is None or not left:
            return None
        return [node.name(), [walk(child, left - 1) for child, _ in node.next_functions]]

    return walk(tensor.grad_fn, depth)


def as_torch_says(text: str) -> str:
    """The error of a modified saved tensor, without where the two libraries differ on purpose.

    Both name an op: PyTorch the last one that made or changed the tensor, tensorgrad the one that made the saved value;
    and tensorgrad adds which op needs it.
    """
    text = re.sub(r" \(The value is needed by \w+\.\)|, which is output \d of \w+,", "", text)
    return text
