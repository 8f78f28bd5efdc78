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
    """Also of methods that are not ops, or that return the tensor itself: torchvision's images look for `Tensor.to`."""
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


FACTORIES = {
    "new_ones": (2,), "new_zeros": (2,), "new_empty": (2,), "new_full": ((2,), 1.0), "new_tensor": ([1.0],),
}  # fmt: skip


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_of_a_subclass_keep_the_class(lib, name):
    class Named(lib.Tensor):
        pass

    seen = []

    class Logged(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Disabled(lib.Tensor):
        __torch_function__ = lib._C._disabled_torch_function_impl

    def made(cls):
        return type(getattr(lib.ones(2).as_subclass(cls), name)(*FACTORIES[name]))

    assert made(Named) is Named
    assert made(Logged) is Logged
    assert name in seen
    assert made(Disabled) is lib.Tensor
    assert made(lib.Tensor) is lib.Tensor


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_a_parameter_of_a_subclass_keeps_the_class(lib):
    class Named(lib.Tensor):
        pass

    data = lib.ones(2).as_subclass(Named)
    made = lib.nn.Parameter(data)
    assert type(made) is Named and isinstance(made, lib.nn.Parameter) and made.requires_grad and made.is_leaf
    assert type(-made) is Named and not isinstance(-made, lib.nn.Parameter)
    assert made.data_ptr() == data.data_ptr()
    module = lib.nn.Module()
    module.weight = made
    assert [name for name, _ in module.named_parameters()] == ["weight"]
    assert type(lib.nn.Parameter(lib.nn.Parameter(lib.ones(1)))) is lib.nn.Parameter


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_classes_are_asked_in_the_order_of_the_arguments_subclasses_first(lib):
    def overriding(name, *bases):
        def override(cls, func, types, args=(), kwargs=None):
            return name

        return type(name, bases, {"__torch_function__": classmethod(override)})

    plain, other = overriding("plain", object), overriding("other", object)
    derived = overriding("derived", plain)
    tensor = overriding("tensor", lib.Tensor)
    x = lib.ones(2, 2)

    def both(first, second):
        first, second = (x.as_subclass(c) if issubclass(c, lib.Tensor) else c() for c in (first, second))
        return lib.mm(first, second), lib.add(first, second), lib.allclose(first, second)

    assert both(plain, tensor) == ("plain",) * 3
    assert both(tensor, plain) == ("tensor",) * 3
    assert both(plain, derived) == both(derived, plain) == ("derived",) * 3
    assert both(other, plain) == ("other",) * 3


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_an_index_of_an_overriding_class_is_asked(lib):
    seen = []

    class Index:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, args[2]))

    lib.ones(3)[Index()] = 1
    assert seen == [("__setitem__", 1)]
    with pytest.raises(IndexError):
        lib.ones(3)[object()] = 1


@pytest.mark.parametrize("lib", LIBRARIES, ids=lambda lib: lib.__name__)
def test_a_wrapper_says_its_strides_and_offset(lib):
    class Wrapper(lib.Tensor):
        @staticmethod
        def __new__(cls, **options):
            return lib.Tensor._make_wrapper_subclass(cls, (2, 3), dtype=lib.float32, **options)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    made = Wrapper(strides=(6, 2), storage_offset=12)
    assert (made.stride(), made.storage_offset()) == ((6, 2), 12)
    assert Wrapper().storage_offset() == 0
