"""Wrong calls of all functions of `torch`, `torch.linalg`, `torch.special` and `torch.fft`: PyTorch's type of error."""

import warnings

import pytest

import tensorgrad
from tensorgrad.overriding.function_modes import COMPOSITES

torch = pytest.importorskip("torch", reason="the oracle")

# What each function is called with: (library, a matrix) -> the positional arguments, the others.
CALLS = {
    "nothing": lambda t, x: ((), {}),
    "a str": lambda t, x: (("a",), {}),
    "None": lambda t, x: ((None,), {}),
    "an object": lambda t, x: ((object(),), {}),
    "two numbers": lambda t, x: ((3, 2), {}),
    "a str behind": lambda t, x: ((x, "a"), {}),
    "two strs behind": lambda t, x: ((x, x, "a"), {}),
    "a large dim": lambda t, x: ((x,), {"dim": 9}),
    "a str as dim": lambda t, x: ((x,), {"dim": "a"}),
    "an unknown name": lambda t, x: ((x,), {"bogus": 1}),
}
ROOMS = ("", "linalg", "special", "fft")
# What PyTorch checks first by its overloads; here the error comes from what the function does first.
OVERLOADS = {
    "arange": "a matrix is refused as a bound",
    "bernoulli": "probabilities are checked first",
    "dsplit": "dimensions are checked first",
    "group_norm": "the number of groups is used first",
    "linalg.matrix_norm": "the dimensions are refused as such",
    "linalg.norm": "the same",
    "linalg.vector_norm": "an order that is a matrix",
    "lobpcg": "the shape is checked first",
    "masked_fill": "the mask is checked first",
    "max_pool2d": "the shape is checked first",
    "max_pool3d": "the shape is checked first",
    "native_norm": "an order that is a str",
    "norm": "the same",
    "nuclear_norm": "dimensions are checked first",
    "randint_like": "a bound that is a matrix",
    "range": "a bound that is a matrix",
    "repeat_interleave": "the dtype is checked first",
    "rrelu_": "the bounds are checked first",
    "sparse_coo_tensor": "a size is converted first",
    "tensordot": "dimensions are unpacked first",
}


def functions():
    for room in ROOMS:
        there, here = (getattr(library, room) if room else library for library in (torch, tensorgrad))
        for name in sorted(dir(there)):
            function = getattr(there, name)
            ordinary = callable(function) and not isinstance(function, type) and not name.startswith("_")
            ours = getattr(here, name, None)
            if ordinary and ours is not None and (room or name in COMPOSITES or hasattr(ours, "op")):
                yield f"{room}.{name}".lstrip(".")


def outcome(library, name, call):
    room, _, name = name.rpartition(".")
    function = getattr(getattr(library, room) if room else library, name)
    args, kwargs = CALLS[call](library, library.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*args, **kwargs)
    except Exception as error:
        return "TypeError" if isinstance(error, TypeError) else type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("call", CALLS)
def test_errors_are_of_pytorchs_type(call):
    """A TypeError where PyTorch's Python code fails later is better; so is a call that works."""
    apart = {}
    for name in functions():
        expected, _ = outcome(torch, name, call)
        found, said = outcome(tensorgrad, name, call)
        if expected and found not in ("", "TypeError", expected) and name not in OVERLOADS:
            apart[name] = f"{expected}, here {found}: {said[:80]}"
    assert not apart
