"""Operators that take functions: the kernels that run are those that run in PyTorch, in its order."""

import importlib

import pytest

from tests.support.alike import alike


def made(torch, name="twice"):
    base = importlib.import_module(f"{torch.__name__}._ops").HigherOrderOperator if torch.__name__ == "torch" else None
    if base is None:
        from tensorgrad.library.higher_order import HigherOrderOperator as base

    class Twice(base):
        def __init__(self):
            super().__init__(name)

        def __call__(self, function, x):
            return super().__call__(function, x)

    return base, Twice()


def kernel(function, x):
    return function(function(x))


@alike
def test_kernels_for_devices_and_for_all(torch):
    keys, found = torch._C.DispatchKey, []
    base, twice = made(torch, "case_twice")
    with pytest.raises(TypeError, match="abstract"):
        base("case_x")
    twice.py_impl(keys.CompositeExplicitAutograd)(kernel)
    twice.fallthrough(keys.Autograd)
    twice.fallthrough(keys.AutogradCPU)
    found.append((twice(torch.sqrt, torch.tensor([16.0])).tolist(), twice.name(), str(twice), twice.namespace))
    twice.py_impl(keys.CPU)(lambda function, x: function(x))
    found.append(twice(torch.sqrt, torch.tensor([16.0])).tolist())
    found.append((twice.has_kernel_for_dispatch_key(keys.CPU), twice.has_kernel_for_dispatch_key(keys.CUDA)))
    return found


@alike
def test_a_kernel_for_autograd_is_around_the_others(torch):
    keys, told = torch._C.DispatchKey, []
    _, twice = made(torch, "case_autograd")

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, function, x):
            told.append("forward")
            with torch._C._AutoDispatchBelowAutograd():
                return twice(function, x)

        @staticmethod
        def backward(ctx, g):
            told.append("backward")
            return None, 10 * g

    twice.py_impl(keys.CompositeExplicitAutograd)(kernel)
    twice.py_impl(keys.Autograd)(Doubled.apply)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = twice(lambda t: t * 3, x)
    y.sum().backward()
    return told, y.tolist(), x.grad.tolist()


@alike
def test_modes_have_kernels_of_their_own(torch):
    modes = importlib.import_module(f"{torch.__name__}.utils._python_dispatch")
    keys, told = torch._C.DispatchKey, []
    _, twice = made(torch, "case_modes")

    class Seen(modes.TorchDispatchMode):
        supports_higher_order_operators = False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    twice.py_impl(keys.CompositeExplicitAutograd)(kernel)
    twice.fallthrough(keys.AutogradCPU)
    twice.py_impl(Seen)(lambda mode, function, x: told.append(type(mode).__name__) or twice(function, x))
    with Seen():
        y = twice(torch.sqrt, torch.tensor([16.0]))
    return told, y.tolist()


def test_without_a_kernel_it_says_so():
    import tensorgrad

    _, twice = made(tensorgrad)
    with pytest.raises(NotImplementedError, match="could not find kernel for twice at dispatch key"):
        twice(abs, tensorgrad.ones(1))
