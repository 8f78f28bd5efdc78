"""Every example in a docstring runs and prints what it says, and everything public has a docstring with an example."""

import doctest
import functools
import importlib
import importlib.util
import pkgutil
import re
from types import FunctionType

import pytest

import tensorgrad
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.ops.special.special import SPECIAL

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = ["tensorgrad", *(m.name for m in pkgutil.walk_packages(tensorgrad.__path__, "tensorgrad."))]
# Whose public names PyTorch's users see, each with everything that is reached from there; "" is `torch` itself.
PUBLIC = [
    "", "Tensor", "__config__", "accelerator", "amp", "autograd", "autograd.functional", "autograd.graph",
    "backends.cpu", "backends.cuda", "backends.cudnn", "backends.mkl", "backends.mkldnn", "backends.mps",
    "backends.openmp", "backends.opt_einsum", "compat", "compiler", "cuda", "cuda.amp", "cuda.comm", "cuda.nvtx",
    "cuda.profiler", "distributed",
    "distributions", "distributions.constraints", "distributions.kl", "distributions.transforms", "export", "fft",
    "func",
    "jit", "linalg", "masked", "mps", "multiprocessing", "nn", "nn.functional", "nn.grad", "nn.init", "nn.parallel",
    "nn.parameter", "nn.utils", "nn.utils.fusion", "nn.utils.memory_format", "nn.utils.parametrizations",
    "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "nn.utils.stateless", "onnx", "optim",
    "optim.lr_scheduler", "profiler", "random", "serialization", "signal.windows", "special", "testing",
    "torch_version", "utils.benchmark", "utils.checkpoint", "utils.data", "utils.dlpack", "utils.flop_counter",
    "utils.hooks", "utils.module_tracker", "xpu",
]  # fmt: skip
# What the package's own files take from these rooms: no names of PyTorch's.
HELPERS = {
    "autograd.graph": "AccumulateGrad LeafHooks NodeHooks Packed as_node hooks_of leaf_hooks_of legacy_type_name "
    "raise_freed raise_modified save share shown unpack",
    "nn.parallel": "is_parallel",
    "nn.parameter": "share",
    "nn.utils.parametrizations": "normalized output_dim",
    "nn.utils.stateless": "merged",
}
# What has no example, and why.
EXEMPT = {
    "Tensor": dict.fromkeys(("is_cpu", "is_cuda", "is_meta"), "a line each in the engine, whose lines are counted"),
}
NEEDS = {}  # modules that cannot be loaded here -> the optional package that they are for
MODULES.remove("tensorgrad.compat.child")  # importing it makes `torch` mean tensorgrad
for _name in MODULES:  # now: a package may not gain names while its examples are looked for
    try:
        importlib.import_module(_name)
    except ModuleNotFoundError as error:
        if (error.name or "tensorgrad").startswith("tensorgrad"):
            raise
        NEEDS[_name] = error.name


@functools.cache
def examples_of(name):
    """The doctests of a module; those of functions that were made from rows or in loops belong to `tensorgrad.ops`.

    Examples know `torch`, which is tensorgrad, as those of NumPy know `np`. Those of kernels, and of the parts that
    pictures are made of, may also use what their module imports.
    """
    module, finder, scope = importlib.import_module(name), doctest.DocTestFinder(), {"torch": tensorgrad}
    if name.startswith(("tensorgrad.kernels", "tensorgrad.viz.")):
        scope = scope | vars(module)
    found = finder.find(module, globs=scope)
    if name == "tensorgrad.ops":
        exported = {**FUNCTIONAL, **FUNCTIONS, **SPECIAL, **vars(tensorgrad.Tensor)}
        made = {id(f): f for f in exported.values() if isinstance(f, FunctionType) and not in_its_module(f)}
        for function in made.values():
            found += finder.find(function, f"{name}.{function.__name__}", module=False, globs=scope)
    return [test for test in found if test.examples]


def in_its_module(function) -> bool:
    """Whether a function is found under its name in the module that its text is in."""
    return function.__globals__.get(function.__name__) is function


@pytest.mark.filterwarnings("ignore")  # of what PyTorch has deprecated
@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    if name in NEEDS:
        pytest.skip(f"{name} needs the package {NEEDS[name]}")
    report: list[str] = []
    for test in examples_of(name):
        optional = re.findall(r"# needs the package (\w+)", test.docstring)
        if all(importlib.util.find_spec(package) for package in optional):
            doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not report, "".join(report)


def test_examples_are_found():
    """The search itself works: no example in a public docstring is left out, and those of kernels are found too."""
    found = {test.docstring for name in MODULES if name not in NEEDS for test in examples_of(name)}
    public = {f"{room}.{name}": v for room in PUBLIC for name, v in contents(room).items() if exemplified(v)}
    assert len(public) > 1500
    assert not [name for name, value in public.items() if value.__doc__ not in found]
    assert "conv" in {test.name.rpartition(".")[2] for test in examples_of("tensorgrad.kernels.array.conv")}


def described(value) -> bool:
    """Whether a function, class, method or property has a docstring of its own; a function made from a row has its
    signature in any case, and needs the row's `doc` beside it."""
    if isinstance(value, type):
        return bool(value.__dict__.get("__doc__"))
    op = getattr(value, "op", None)
    if op is not None and getattr(value, "__name__", "") == op.name:
        return bool(op.doc)
    return bool(getattr(value, "__doc__", None))


def exemplified(value) -> bool:
    """Whether a function or class has an example in its docstring."""
    return ">>>" in ((value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__) or "")


def ours(value) -> bool:
    """Whether something is a function, class or property of this package."""
    if isinstance(value, property):
        return True
    return callable(value) and (getattr(value, "__module__", None) or "").startswith("tensorgrad")


def contents(room: str) -> dict:
    """The functions and classes that users find in a room, by name."""
    if room == "Tensor":
        found = vars(tensorgrad.Tensor)
    else:
        module = importlib.import_module(f"tensorgrad.{room}".rstrip("."))
        names = set(getattr(module, "__all__", dir(module))) - set(getattr(module, "_LAZY", ()))  # rooms of their own
        found = {name: getattr(module, name) for name in names}
    helpers = HELPERS.get(room, "").split()
    return {n: v for n, v in found.items() if not n.startswith("_") and ours(v) and n not in helpers}


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


@pytest.mark.parametrize("room", PUBLIC, ids=lambda room: room or "torch")
def test_everything_public_is_described(room):
    public = contents(room)
    assert public
    missing = [name for name, value in public.items() if not described(value)]
    missing += {name for v in public.values() if isinstance(v, type) for name in undescribed_members(v)}
    assert not missing, f"{room or 'torch'}: without a docstring (rows take doc=): {sorted(missing)}"


@pytest.mark.parametrize("room", PUBLIC, ids=lambda room: room or "torch")
def test_everything_public_has_an_example(room):
    """An in-place form is shown by the function it is the form of; a row by its `doc` or in ops/pytorch/examples.py."""
    public = contents(room)
    allowed = EXEMPT.get(room, {})
    missing = {
        name
        for name, value in public.items()
        if not exemplified(value) and not (name.endswith("_") and exemplified(public.get(name[:-1])))
    }
    assert not missing - set(allowed), f"{room or 'torch'}: without an example: {sorted(missing - set(allowed))}"
    assert not set(allowed) - missing, f"{room or 'torch'}: no longer exempt: {sorted(set(allowed) - missing)}"
