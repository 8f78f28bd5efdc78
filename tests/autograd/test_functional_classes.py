"""`autograd.functional` and `autograd.grad` with tensors of classes of a program's own, beside PyTorch's."""

import importlib

import pytest

from tests.support.alike import alike

CALLS = {
    "jacobian": lambda F, f, g, x, v: F.jacobian(f, x),
    "jacobian that is recorded": lambda F, f, g, x, v: F.jacobian(f, x, create_graph=True),
    "jacobian at once": lambda F, f, g, x, v: F.jacobian(f, x, vectorize=True),
    "hessian": lambda F, f, g, x, v: F.hessian(g, x),
    "hessian of two": lambda F, f, g, x, v: F.hessian(lambda a, b: (a * b).sum() + (a * a).sum(), (x, x)),
    "vjp": lambda F, f, g, x, v: F.vjp(f, x, v),
    "vjp of one number": lambda F, f, g, x, v: F.vjp(g, x),
    "jvp": lambda F, f, g, x, v: F.jvp(f, x, v),
    "hvp": lambda F, f, g, x, v: F.hvp(g, x, v),
    "vhp": lambda F, f, g, x, v: F.vhp(g, x, v),
    "strict jvp": lambda F, f, g, x, v: F.jvp(f, x, v, strict=True),
    "strict hvp": lambda F, f, g, x, v: F.hvp(g, x, v, strict=True),
}  # fmt: skip


def wrapper(torch):
    """A class that holds another tensor and has no memory."""
    tree_map = importlib.import_module(f"{torch.__name__}.utils._pytree").tree_map

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = {"dtype": inner.dtype, "device": inner.device, "requires_grad": inner.requires_grad}
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **made)

        def __init__(self, inner):
            self.held = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            inside = tree_map(lambda t: t.held if isinstance(t, cls) else t, (args, kwargs or {}))
            return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, func(*inside[0], **inside[1]))

    return Wrapped


def derived(torch):
    """A class that overrides nothing."""

    class Derived(torch.Tensor):
        pass

    return lambda x: x.as_subclass(Derived)


def told(value):
    if isinstance(value, list | tuple):
        return [told(v) for v in value]
    return type(value).__name__, getattr(value, "held", value).detach().tolist()


@pytest.mark.parametrize("make", [wrapper, derived])
@pytest.mark.parametrize("name", CALLS)
def test_products_and_matrices_of_derivatives(name, make):
    def scenario(torch):
        of = make(torch)
        x, v = of(torch.tensor([1.0, 2.0, 3.0])), of(torch.tensor([0.5, -1.0, 2.0]))
        return told(CALLS[name](torch.autograd.functional, lambda x: x * x * x, lambda x: (x * x * x).sum(), x, v))

    scenario.__name__ = "test_it"
    alike(scenario)()


@alike
def test_gradients_are_of_the_class(torch):
    x = derived(torch)(torch.tensor([1.0, 2.0])).requires_grad_()
    (of_inputs,) = torch.autograd.grad((x * x).sum(), x)
    return told(of_inputs)


@alike
def test_a_class_is_asked_for_gradients(torch):
    seen = []

    class Seeing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, len(args), sorted(kwargs or {})) if func is torch.autograd.grad else None)
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.tensor([1.0, 2.0]).as_subclass(Seeing).requires_grad_()
    made = torch.autograd.grad((x * x).sum(), (x,))
    return told(made), [call for call in seen if call is not None]
