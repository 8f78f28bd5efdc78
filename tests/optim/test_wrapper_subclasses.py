"""Steps on parameters of a class without memory of its own: every op of a step goes through `__torch_dispatch__`."""

import pytest

from tests.support.alike import alike

STEPS = {
    "SGD": {"lr": 0.1},
    "SGD with momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"lr": 0.1},
    "Adam, amsgrad": {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True},
    "AdamW": {"lr": 0.1},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_move_what_is_wrapped(name):
    @alike
    def test_it(torch):
        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            def __init__(self, inner):
                self.values_inside = inner

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                made = func(*map(cls.plain, args), **{k: cls.plain(v) for k, v in (kwargs or {}).items()})
                if func.__name__.split(".")[0].endswith("_"):
                    return args[0]
                return cls.wrapped(made)

            @classmethod
            def plain(cls, value):
                if isinstance(value, list | tuple):
                    return [cls.plain(v) for v in value]
                return value.values_inside if isinstance(value, cls) else value

            @classmethod
            def wrapped(cls, value):
                if isinstance(value, list | tuple):
                    return [cls.wrapped(v) for v in value]
                return cls(value) if isinstance(value, torch.Tensor) else value

        wrapped = torch.nn.Parameter(Wrapped(torch.arange(1.0, 7.0).view(2, 3)))
        plain = torch.nn.Parameter(torch.arange(3.0))
        optimizer = getattr(torch.optim, name.split()[0].strip(","))([wrapped, plain], foreach=False, **STEPS[name])
        for step in range(3):
            wrapped.grad = Wrapped(torch.arange(-2.0, 4.0).view(2, 3) * (step + 1))
            plain.grad = torch.ones(3)
            optimizer.step()
        kept = {
            key: value.values_inside for key, value in optimizer.state[wrapped].items() if isinstance(value, Wrapped)
        }
        return wrapped.values_inside.detach(), plain.detach(), kept

    test_it()
