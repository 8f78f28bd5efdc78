"""Every example in a docstring runs and prints what it says, and everything public has a docstring."""

import doctest
import importlib
import pkgutil
import types

import pytest

import tensorgrad
from tensorgrad.ops.dispatch import OPS

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = ["tensorgrad", *(m.name for m in pkgutil.walk_packages(tensorgrad.__path__, "tensorgrad."))]
# Whose public names PyTorch's users see, each with everything that is reached from there.
PUBLIC = [
    "autograd", "autograd.functional", "autograd.graph", "linalg", "nn", "nn.functional", "nn.init", "nn.utils",
    "optim", "optim.lr_scheduler", "random", "special", "utils.checkpoint", "utils.data",
]  # fmt: skip


def examples_of(name):
    """The doctests of a module; those of the functions that were made from rows belong to `tensorgrad.ops`.

    Examples of the API stand alone, as a reader would copy them; those of kernels may use what their module imports.
    """
    module, finder = importlib.import_module(name), doctest.DocTestFinder()
    scope = vars(module) if name.startswith("tensorgrad.kernels") else {}
    found = finder.find(module, globs=scope)
    if name == "tensorgrad.ops":
        for op in OPS.values():
            found += finder.find(op.call, f"{name}.{op.name}", module=False, globs={})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    tests = examples_of(name)
    if not tests:
        return
    report: list[str] = []
    for test in tests:
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not report, "".join(report)


def test_examples_are_found():
    """The search itself works: for what was made from a row, a composite, a class, a method and a kernel."""
    known = {
        "ops": "matmul",
        "ops.scan": "cummax",
        "nn.module": "Module",
        "tensor": "Tensor.real",
        "kernels.array.conv": "conv",
    }
    for module, example in known.items():
        names = {test.name for test in examples_of(f"tensorgrad.{module}")}
        assert f"tensorgrad.{module}.{example}" in names, f"{module}: {sorted(names)}"


def described(value) -> bool:
    """Whether a function, class, method or property has a docstring of its own; a function made from a row has its
    signature in any case, and needs the row's `doc` beside it."""
    if isinstance(value, type):
        return bool(value.__dict__.get("__doc__"))
    op = getattr(value, "op", None)
    if op is not None and getattr(value, "__name__", "") == op.name:
        return bool(op.doc)
    return bool(getattr(value, "__doc__", None))


def ours(value) -> bool:
    """Whether something is a function or class of this package."""
    return callable(value) and (getattr(value, "__module__", None) or "").startswith("tensorgrad")


def undescribed_members(cls):
    """The public methods and properties of a class that neither it nor a class it overrides describes."""
    lines = [c for c in cls.__mro__ if c.__module__.startswith("tensorgrad")]
    for owner in lines:
        for name, value in vars(owner).items():
            is_member = callable(value) or isinstance(value, property | classmethod | staticmethod)
            if name.startswith("_") or not is_member:
                continue
            if not any(name in vars(c) and described(vars(c)[name]) for c in lines):
                yield f"{owner.__module__}.{owner.__qualname__}.{name}"


@pytest.mark.parametrize("room", ["", *PUBLIC])
def test_everything_public_is_described(room):
    module = importlib.import_module(f"tensorgrad.{room}".rstrip("."))
    public = {name: v for name, v in vars(module).items() if not name.startswith("_") and ours(v)}
    public = {name: v for name, v in public.items() if not isinstance(v, types.ModuleType)}
    assert public
    missing = [name for name, value in public.items() if not described(value)]
    missing += {name for v in public.values() if isinstance(v, type) for name in undescribed_members(v)}
    assert not missing, f"{module.__name__}: without a docstring (rows take doc=): {sorted(missing)}"
