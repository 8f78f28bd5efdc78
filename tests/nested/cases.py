"""Nested tensors of random shapes in both libraries, and how results of the two are compared."""

import re
import warnings

import numpy as np

import tensorgrad


def arrays(shapes, seed=0, dtype="float64"):
    """One array of each shape."""
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def nested(torch, shapes, layout="jagged", seed=0, requires_grad=True, dtype="float64"):
    """A nested tensor of random values; the same in both libraries."""
    given = [torch.tensor(array) for array in arrays(shapes, seed, dtype)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's strided layout warns that it is a prototype
        return torch.nested.nested_tensor(given, layout=getattr(torch, layout), requires_grad=requires_grad)


def with_gaps(torch):
    """A view of a tensor (3, 6, 4) of which each row is read from another place, for another length."""
    base = torch.tensor(arrays([(3, 6, 4)], 1)[0], requires_grad=True)
    starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([3, 2, 4])
    return torch.nested.narrow(base, 1, starts, lengths, layout=torch.jagged)


# Jagged tensors of every kind.
JAGGED = {
    "three dimensions": lambda torch: nested(torch, [(2, 3), (4, 3), (1, 3)]),
    "four dimensions": lambda torch: nested(torch, [(3, 2, 4), (1, 2, 4)]),
    "an empty piece": lambda torch: nested(torch, [(5, 4), (0, 4), (2, 4)]),
    "equal pieces": lambda torch: nested(torch, [(2, 3), (2, 3)]),
    "transposed": lambda torch: nested(torch, [(2, 3), (4, 3), (1, 3)]).transpose(1, 2),
    "transposed, four dimensions": lambda torch: nested(torch, [(3, 2, 4), (1, 2, 4)]).transpose(1, 2),
    "with gaps": with_gaps,
    "two dimensions": lambda torch: nested(torch, [(3,), (5,), (1,)]),
}
# Strided ones.
STRIDED = {
    "three dimensions": lambda torch: nested(torch, [(2, 3), (4, 3), (1, 3)], "strided"),
    "different sizes": lambda torch: nested(torch, [(2, 3), (4, 1), (1, 5)], "strided"),
    "four dimensions": lambda torch: nested(torch, [(3, 2, 4), (1, 2, 4)], "strided"),
    "transposed": lambda torch: nested(torch, [(2, 3), (4, 3), (1, 3)], "strided").transpose(1, 2),
    "two dimensions": lambda torch: nested(torch, [(3,), (5,), (1,)], "strided"),
}


def on(make, expression, **more):
    """A call: an expression of `x`, the nested tensor that `make` makes."""

    def call(torch):
        names = {name: value(torch) if callable(value) else value for name, value in more.items()}
        return eval(expression, {"torch": torch, "F": torch.nn.functional, "x": make(torch), **names})

    return call


def seen(value):
    """What a result consists of: type, shape with `j` for ragged sizes, dtype, and the values as nested lists."""
    if isinstance(value, tuple | list):
        return [type(value).__name__ if hasattr(value, "_fields") else "several", *map(seen, value)]
    if hasattr(value, "is_nested"):
        kind = [
            str(value.layout).rpartition(".")[2],
            str(value.dtype).rpartition(".")[2],
            value.dim(),
            value.requires_grad,
        ]
        if not value.is_nested:
            return [*kind, tuple(value.shape), np.asarray(value.detach(), dtype=complex)]
        pieces = value.unbind()
        sizes = None
        if kind[0] == "jagged":
            sizes = re.sub(r"j\d+", "j", str(tuple(value.shape))), value._ragged_idx
        return [*kind, "nested", sizes, [seen(piece)[4:] for piece in pieces]]
    return value


def outcome(call, torch):
    """What a call returns, or the class of the exception that it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return seen(call(torch))
    except Exception as error:
        return type(error), str(error)


def _dtype_in(value):
    return value[1] if len(value) > 1 and isinstance(value[1], str) else None


def same(found, expected, tolerance=1e-10, dtype=None):
    """Whether two results are the same, numbers to the tolerance, or to that of their dtype."""
    if isinstance(expected, np.ndarray):
        if dtype in ("float32", "float16"):
            tolerance = max(tolerance, 1e-5 if dtype == "float32" else 1e-3)
        return (
            isinstance(found, np.ndarray)
            and found.shape == expected.shape
            and np.allclose(found, expected, tolerance, tolerance, equal_nan=True)
        )
    if isinstance(expected, list | tuple):
        return (
            type(found) is type(expected)
            and len(found) == len(expected)
            and all(same(a, b, tolerance, _dtype_in(expected) or dtype) for a, b in zip(found, expected))
        )
    return found == expected


def raised(result):
    """Whether a result is an exception."""
    return isinstance(result, tuple) and isinstance(result[0], type)


def compare(call, errors=True, tolerance=1e-10):
    """Asserts that a call does the same in both libraries; with `errors`, where torch raises, so does tensorgrad."""
    import torch

    expected, found = outcome(call, torch), outcome(call, tensorgrad)
    if raised(expected):
        if errors:
            assert raised(found), f"torch raises {expected}, here {found}"
        return expected
    assert not raised(found), f"{found}, but torch returns {expected}"
    assert same(found, expected, tolerance), f"{found}\n\nbut torch returns\n\n{expected}"
    return expected
