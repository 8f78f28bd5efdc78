"""What a function does not take is a TypeError, also where it is written with `**named`, as sizes may be keywords."""

import inspect

import pytest

import tensorgrad
from tests.support.alike import alike, error

# Calls that are right, of all public functions whose Python signature would let any keyword through.
FUNCTIONS = {
    "alias_copy": "(x)", "as_strided_copy": "(x, (2,), (1,))", "detach_copy": "(x)", "diagonal_copy": "(x)",
    "empty": "(2, 3)", "empty_like": "(x)", "expand_copy": "(x, (2, 3))", "full_like": "(x, 1.0)",
    "narrow_copy": "(x, 0, 0, 1)", "ones": "(2, 3)", "ones_like": "(x)", "permute_copy": "(x, (1, 0))",
    "rand": "(2, 3)", "randn": "(2, 3)", "select_copy": "(x, 0, 0)", "slice_copy": "(x)", "split_copy": "(x, 1)",
    "split_with_sizes_copy": "(x, [1, 1])", "squeeze_copy": "(x)", "t_copy": "(x)", "transpose_copy": "(x, 0, 1)",
    "unbind_copy": "(x)", "unfold_copy": "(x, 0, 1, 1)", "unsqueeze_copy": "(x, 0)",
    "view_as_complex_copy": "(torch.zeros(3, 2))", "view_as_real_copy": "(x * 1j)", "view_copy": "(x, (6,))",
    "zeros": "(2, 3)", "zeros_like": "(x)",
}  # fmt: skip
METHODS = {
    "broadcast_to": "(2, 3)", "expand": "(2, 3)", "flip": "(0)", "narrow_copy": "(0, 0, 1)", "new_empty": "(2)",
    "new_full": "((2,), 1.0)", "new_ones": "(2)", "new_tensor": "([1.0])", "new_zeros": "(2)", "permute": "(1, 0)",
    "random_": "(0, 3)", "repeat": "(1, 1)", "reshape": "(6)", "tile": "(1, 1)", "uniform_": "(0.0, 1.0)",
}  # fmt: skip
CALLS = [*(f"torch.{name}{call}" for name, call in FUNCTIONS.items()), *(f"x.{name}{c}" for name, c in METHODS.items())]

# They pass on what they are given, or accept no tensors.
PASS_ON = {"load", "set_autocast_enabled", "handle_torch_function"}
REFUSE = {"ipu", "mtia", "reinforce", "to_mkldnn", "to_padded_tensor", "xpu"}


def test_all_functions_that_python_would_let_take_anything_are_in_the_table():
    found = {}
    for place in (tensorgrad, tensorgrad.Tensor):
        for name in dir(place):
            value = inspect.unwrap(getattr(place, name))
            if name[0] != "_" and inspect.isfunction(value):
                parameters = inspect.signature(value).parameters.values()
                if any(p.kind is p.VAR_KEYWORD for p in parameters):
                    found.setdefault(place, set()).add(name)
    assert found[tensorgrad] - PASS_ON == set(FUNCTIONS)
    assert found[tensorgrad.Tensor] - REFUSE == set(METHODS)


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_keyword_is_refused(call):
    values = {"torch": tensorgrad, "x": tensorgrad.zeros(2, 3)}
    eval(call, values)
    with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
        eval(f"{call[:-1]}, unknown=None)", values)


@alike
def test_missing_double_and_unknown_arguments(torch):
    x = torch.zeros(2, 3)
    made = [
        error(getattr(torch, name), x, *[1.0] * (name == "full_like"), **keywords)
        for name in ("zeros_like", "ones_like", "empty_like", "full_like")
        for keywords in ({"names": None}, {"unknown": 1}, {"pin_memory": True})
    ]
    made += [error(torch.zeros_like, x, 3), error(torch.zeros_like, x, fill_value=3)]
    made += [error(torch.full_like, x), error(torch.full_like, x, 1, 2), error(torch.full_like, x, 1, fill_value=2)]
    made += [torch.full_like(x, fill_value=2), torch.zeros_like(x, pin_memory=False)]
    for name, keyword in (
        ("reshape", "shape"), ("flip", "dims"), ("permute", "dims"), ("repeat", "repeats"), ("tile", "dims"),
        ("expand", "size"), ("new_zeros", "size"), ("new_ones", "size"), ("new_empty", "size"),
    ):  # fmt: skip
        method, given = getattr(x, name), {"reshape": (3, 2), "permute": (1, 0), "flip": (0, 1)}.get(name, (2, 3))
        made += [error(method), error(method, unknown=1), error(method, *given, unknown=1)]
        made += [error(method, *given, **{keyword: given}), error(method, **{keyword: given, "unknown": 1})]
        made += [list(method(*given).shape), list(method(**{keyword: given}).shape), list(method(given).shape)]
    made += [error(x.new_full, (2,)), error(x.new_full, (2,), 1, 2), error(x.new_full, (2,), 1.0, size=(2,))]
    made += [x.new_full(size=(2,), fill_value=3.0), x.new_full((2,), fill_value=3.0), x.new_zeros((2,), device="cpu")]
    made += [error(x.new_full, fill_value=1.0), error(x.new_tensor), error(x.new_tensor, [1.0], unknown=1)]
    return made


@alike
def test_lists_of_no_sizes(torch):
    """An empty list is a list of no sizes; none at all is a mistake."""
    one = torch.tensor(1.0)
    made = [one.reshape(()), one.expand(()), one.permute(()), one.repeat(()), one.tile(()), torch.ones(1).reshape([])]
    return made + [error(getattr(one, name)) for name in ("reshape", "expand", "permute", "repeat", "tile", "flip")]
