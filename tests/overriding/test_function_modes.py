"""`torch.overrides.TorchFunctionMode`: the same programs in both libraries."""

import functools
import re

import numpy as np
import pytest

import tensorgrad
import tensorgrad.overrides
from tensorgrad.rows.switches import LOCAL, SLOW
from tests.support.alike import alike

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("torch.overrides")


def log_of(library, program):
    """What two nested modes see of a program, outermost first in the list of a call."""
    log = []

    class Mode(library.overrides.TorchFunctionMode):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            named = {k: v for k, v in (kwargs or {}).items()}
            log.append((self.name, func.__name__, len(args), named))
            return func(*args, **(kwargs or {}))

    x = library.ones(2, 2, requires_grad=True)
    with Mode("outer"), Mode("inner"):
        result = program(library, x)
    return log, result


PROGRAMS = {
    "operator": lambda l, x: x + 1,
    "method": lambda l, x: x.exp(),
    "function": lambda l, x: l.matmul(x, x),
    "keyword": lambda l, x: l.cumsum(x, dim=1),
    "several": lambda l, x: (x * 2).sum(),
    "list": lambda l, x: l.cat([x, x]),
    "disabled": lambda l, x: _disabled(l, x),
}


def _disabled(l, x):
    with l._C.DisableTorchFunction():
        x.exp()
    with l._C.DisableTorchFunctionSubclass():
        return x + 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_modes_see(name):
    ours, theirs = log_of(tensorgrad, PROGRAMS[name]), log_of(torch, PROGRAMS[name])
    assert [(mode, called) for mode, called, *_ in ours[0]] == [(mode, called) for mode, called, *_ in theirs[0]]
    assert np.allclose(ours[1].detach().numpy(), theirs[1].detach().numpy())
    assert not SLOW and not LOCAL.function_modes


def test_a_mode_decides_the_result():
    for library in (tensorgrad, torch):

        class Negative(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                return -result if func.__name__ == "add" else result

        x = library.ones(2)
        with Negative():
            assert (x + 1).neg().tolist() == [2.0, 2.0]
            with library.overrides.BaseTorchFunctionMode():
                assert x.add(1).neg().tolist() == [2.0, 2.0]
            assert library.add(x, x, alpha=1).neg().tolist() == [2.0, 2.0]
        assert (x + 1).tolist() == [2.0, 2.0]


def test_the_stack_of_modes():
    for library in (tensorgrad, torch):
        o = library.overrides
        with o.BaseTorchFunctionMode() as outer, o.BaseTorchFunctionMode() as inner:
            assert library._C._len_torch_function_stack() == 2
            assert o._get_current_function_mode() is inner and o._get_current_function_mode_stack() == [outer, inner]
        assert library._C._len_torch_function_stack() == 0


def test_a_mode_that_fails_or_declines():
    for library in (tensorgrad, torch):

        class Empty(library.overrides.TorchFunctionMode):
            pass

        class Declines(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return NotImplemented

        x = library.ones(2)
        with pytest.raises(NotImplementedError), Empty():
            library.add(x, 1)
        told = "all __torch_function__ handlers returned NotImplemented:\n\n  - mode object <"
        with pytest.raises(TypeError, match=re.escape(told)), Declines():
            library.add(x, 1)
        assert library._C._len_torch_function_stack() == 0 and library.add(x, 1).tolist() == [2.0, 2.0]


def test_modes_come_before_subclasses():
    def story(library):
        log = []

        class Sub(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append((func.__name__, [t.__name__ for t in types]))
                return super().__torch_function__(func, types, args, kwargs)

        class Mode(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append(("mode", func.__name__, [t.__name__ for t in types]))
                return func(*args, **(kwargs or {}))

        x = library.ones(2).as_subclass(Sub)
        with Mode():
            y = x + 1
        return log, type(y).__name__

    assert story(tensorgrad) == story(torch)


def test_initializers_are_seen():
    """Lightning skips them where weights are loaded afterwards."""
    for library in (tensorgrad, torch):

        class Skip(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if getattr(func, "__module__", "").endswith("nn.init"):
                    return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
                return func(*args, **(kwargs or {}))

        x = library.full((2,), 3.0)
        with Skip():
            assert library.nn.init.normal_(x) is x
        assert x.tolist() == [3.0, 3.0]


def test_initializers_take_generators_and_names():
    for library in (tensorgrad, torch):
        x = library.nn.init.constant_(tensor=library.ones(2), val=4)
        assert x.tolist() == [4.0, 4.0]


@alike
def test_a_class_that_is_not_a_tensor_is_not_given_the_defaults_of_keywords(torch):
    seen = []

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((len(args), dict(kwargs or {})))
            return "answered"

    like, ones = Like(), torch.ones(2, 2)
    answers = [
        torch.clone(like), torch.linalg.svd(like), torch.linalg.solve(like, ones),
        torch.linalg.solve(like, ones, left=False),
        torch.linalg.solve_triangular(like, ones, upper=True), torch.zeros_like(like),
        torch.zeros_like(like, dtype=torch.float64), torch.where(ones > 0, like, ones),
    ]  # fmt: skip
    return answers, seen[1:]


@alike
def test_classes_and_modes_are_given_the_functions_that_users_know(torch):
    known = {}
    known[torch.Tensor.add_], known[torch.Tensor.mul_] = "torch.Tensor.add_", "torch.Tensor.mul_"
    for name in ("add", "sub", "mul", "div", "matmul", "pow", "eq", "where", "cat", "gather", "clamp", "flip", "conj"):
        known.setdefault(getattr(torch, name), f"torch.{name}")
        if name in ("add", "sub", "div"):  # functions of rows are the methods, too
            known.setdefault(getattr(torch.Tensor, name), f"torch.Tensor.{name}")

    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return known.get(func, "not known"), len(args)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(known.get(func, "not known"))
            return func(*args, **(kwargs or {}))

    seen, x, y = [], torch.tensor([1.0, 2.0]), Other()
    found = [x + y, x - y, x / y, x.__radd__(y), torch.add(x, y), torch.sub(y, x), torch.div(x, y), torch.mul(x, y)]
    found += [torch.where(x > 0, x, y), torch.cat([x, y]), torch.matmul(x, y), torch.eq(x, y), torch.pow(x, y)]
    found += [torch.clamp(y, 0, 1), torch.flip(y, [0]), torch.conj(y)]
    found += [x.add_(y), x.mul_(y), x]
    with Mode():
        x + 1, x - x, torch.add(x, 1), torch.div(x, x), torch.flip(x, [0]), torch.cat([x, x]), torch.where(x > 0, x, x)
    return found, [name for name in seen if name != "not known"]


def test_modes_are_given_the_method_that_there_is_now(monkeypatch):
    """Programs, and tests before this one, replace methods for a while."""

    def given():
        seen = []

        class Mode(tensorgrad.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(func)
                return func(*args, **(kwargs or {}))

        with Mode():
            tensorgrad.ones(2) % 3
        return seen[-1]

    kept = tensorgrad.Tensor.remainder
    for method in (functools.wraps(kept)(lambda *args, **kwargs: kept(*args, **kwargs)), kept):
        monkeypatch.setattr(tensorgrad.Tensor, "remainder", method)
        assert given() is method
