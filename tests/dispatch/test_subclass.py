"""Subclasses of Tensor: results keep the class, `__torch_function__` sees the calls, plain tensors stay quick."""

import pytest

import tensorgrad as tg

try:
    import torch
except ImportError:  # then only our own behaviour is asserted
    torch = None
LIBRARIES = [tg] if torch is None else [tg, torch]


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_results_are_of_the_subclass(lib):
    class Named(lib.Tensor):
        pass

    x = lib.ones(2, 3).as_subclass(Named)
    assert type(x + 1) is Named
    assert type(x.sum()) is Named
    assert type(x @ x.t()) is Named
    assert type(lib.exp(x)) is Named
    assert type(2 * x) is Named
    assert type(x[0]) is Named
    assert type(lib.ones(2) + 1) is lib.Tensor


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_gradients_flow_through_a_subclass(lib):
    class Named(lib.Tensor):
        pass

    leaf = lib.tensor([1.0, 2.0], requires_grad=True)
    y = (leaf.as_subclass(Named) * 3).sum()
    assert type(y) is Named
    y.backward()
    assert leaf.grad.tolist() == [3, 3]


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_an_override_sees_the_calls(lib):
    seen = []

    class Logged(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2).as_subclass(Logged)
    seen.clear()
    y = lib.exp(x)
    assert type(y) is Logged
    assert seen == ["exp"]


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_an_override_sees_methods_and_arguments_as_given(lib):
    """Also of methods that are no op, or that return the tensor itself: torchvision's images look for `Tensor.to`."""
    seen = []

    class Plain(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with lib._C.DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
            for name in ("clone", "cpu", "detach", "float", "requires_grad_", "to"):
                if func in (getattr(lib.Tensor, name),):
                    seen.append((name, len(args), sorted(kwargs or {})))
            return result.as_subclass(lib.Tensor) if isinstance(result, cls) else result

    x = lib.ones(2, 3).as_subclass(Plain)
    made = [x.clone(), x.detach(), x.to(lib.float64), x.float(), x.to("cpu", copy=True), x.cpu(), x.requires_grad_()]
    assert [type(y) for y in made] == [lib.Tensor] * 7
    assert [name for name, _, _ in seen] == ["clone", "detach", "to", "float", "to", "cpu", "requires_grad_"]
    assert seen[2][1:] == (2, []) and seen[4][1:] == (2, ["copy"])
    assert type(x.sum()) is lib.Tensor and type(x.sum(0, dtype=lib.float64)) is lib.Tensor


def test_as_subclass_wants_a_subclass():
    with pytest.raises(RuntimeError, match="inherits from Tensor"):
        tg.ones(1).as_subclass(int)


def test_an_operator_called_on_a_number_says_so_with_and_without_subclasses():
    class Own(tg.Tensor):
        pass

    values = tg.ones(3, dtype=tg.int64)
    assert type(tg.ones(1).as_subclass(Own) + 1) is Own
    for name in ("__radd__", "__mul__", "__ror__", "__and__"):
        with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
            getattr(tg.Tensor, name)(2, values)
