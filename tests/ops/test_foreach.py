"""`torch._foreach_*`: one op on every tensor of a list, as in torch."""

import pytest

import tensorgrad as tg
from tests.support.alike import HAS_TORCH, alike, error

NAMES = [name for name in __import__("tensorgrad.foreach", fromlist=["functions"]).functions()]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: nothing to compare the names with")
def test_the_names_are_pytorchs():
    import torch

    assert sorted(NAMES) == sorted(name for name in dir(torch) if name.startswith("_foreach_"))


def lists(torch):
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=generator) * 0.8 + 0.1 for shape in ((2,), (2, 3), ())]


TWO = ("add", "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul", "pow", "sub")
SEVERAL = (*TWO, "addcdiv", "addcmul", "lerp")
UNARY = [name for name in NAMES if not name.endswith("_") and f"{name}_" in NAMES]


@alike
def test_ops_of_one_list(torch):
    found = []
    for name in UNARY:
        if name.removeprefix("_foreach_") in SEVERAL:
            continue
        given, written = lists(torch), lists(torch)
        made = getattr(torch, name)(given)
        returned = getattr(torch, f"{name}_")(written)
        assert type(made) is tuple and returned is written and returned[0] is written[0]
        found.append([name, list(made), written, given])
    return found


@alike
def test_ops_of_two_lists_and_of_numbers(torch):
    found = []
    for name in TWO:
        others = [2.5, [0.5, 2, 3.0], [t * 0.5 for t in lists(torch)]]
        others += [torch.tensor(0.5)] if name in ("add", "div", "mul") else []
        for other in others:
            made, written = getattr(torch, f"_foreach_{name}")(lists(torch), other), lists(torch)
            getattr(torch, f"_foreach_{name}_")(written, other)
            found.append([name, list(made), written])
    found.append(list(torch._foreach_add(lists(torch), lists(torch), alpha=2)))
    found.append(list(torch._foreach_sub(lists(torch), other=lists(torch), alpha=0.5)))
    found.append(list(torch._foreach_add(lists(torch), torch.tensor(2.0), alpha=3)))
    found.append(list(torch._foreach_pow(2.0, lists(torch))))
    return found


@alike
def test_ops_of_three_lists(torch):
    a, b, c, found = lists(torch), [t + 1 for t in lists(torch)], [t + 2 for t in lists(torch)], []
    for name in ("addcdiv", "addcmul"):
        for value in ((), (2,), ([1, 2.0, 3],), (torch.tensor([1.0, 2.0, 3.0]),)):
            written = lists(torch)
            getattr(torch, f"_foreach_{name}_")(written, b, c, *value)
            found.append([list(getattr(torch, f"_foreach_{name}")(a, b, c, *value)), written])
        found.append(list(getattr(torch, f"_foreach_{name}")(a, b, c, value=0.5)))
    for weight in (0.3, [0.1, 0.2, 0.3], c):
        written = lists(torch)
        torch._foreach_lerp_(written, b, weight)
        found.append([list(torch._foreach_lerp(a, b, weight)), written])
    return found, list(torch._foreach_lerp(a, b, weight=0.5))


@alike
def test_the_others(torch):
    a = lists(torch)
    copies = torch._foreach_clone(a)
    assert all(one is not other for one, other in zip(a, copies))
    zeros = torch._foreach_zero_(list(copies))
    torch._foreach_copy_(list(copies), a)
    return (
        [list(torch._foreach_norm(a, *ord)) for ord in ((), (1,), (float("inf"),), (2, torch.float64))],
        list(torch._foreach_max(a)), list(torch._foreach_powsum(a, 2)), zeros, list(copies),
        list(torch._foreach_mm([torch.ones(2, 3)], [torch.ones(3, 1)])),
    )  # fmt: skip


@alike
def test_derivatives_are_the_ops(torch):
    leaves = [t.requires_grad_() for t in lists(torch)]
    products = torch._foreach_mul(torch._foreach_exp(leaves), [1.0, 2.0, 3.0])
    sum(t.sum() for t in torch._foreach_addcmul(products, leaves, leaves, value=2)).backward()
    return [t.grad for t in leaves]


@alike
def test_errors(torch):
    a = lists(torch)
    calls = (
        lambda: torch._foreach_exp([]),
        lambda: torch._foreach_add(a, a[:2]),
        lambda: torch._foreach_add_(a, [1.0]),
        lambda: torch._foreach_add(a, torch.ones(2)),
        lambda: torch._foreach_addcmul(a, a, a, torch.ones(2)),
        lambda: torch._foreach_addcmul(a, a, a, torch.tensor(1.0)),
        lambda: torch._foreach_add_([torch.ones(2, dtype=torch.int64)], 2.5),
    )
    return [error(call) for call in calls], a


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg._foreach_add([tg.ones(1)], "x"),
        lambda: tg._foreach_add([tg.ones(1)], None),
        lambda: tg._foreach_add([tg.ones(1)]),
        lambda: tg._foreach_add([tg.ones(1)], 1, wrong=2),
        lambda: tg._foreach_add([tg.ones(1)], 1, alpha=2),
        lambda: tg._foreach_mul([tg.ones(1)], [tg.ones(1)], alpha=2),
        lambda: tg._foreach_exp(tg.ones(1)),
        lambda: tg._foreach_exp([1.0]),
    ],
)
def test_wrong_arguments_are_type_errors_and_write_nothing(call):
    with pytest.raises(TypeError, match="_foreach_"):
        call()
