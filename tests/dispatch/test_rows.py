"""Rows of the op table: what they say does not change, and mistakes in a declaration are found when it is made."""

import linecache
import traceback

import pytest

import tensorgrad as torch
from tensorgrad.dispatch.codegen import function_of
from tensorgrad.dispatch.kinds import FUNCTIONS, export, op
from tensorgrad.dispatch.show import derivatives
from tensorgrad.dispatch.templates import fill
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.op import check


def test_a_row_does_not_change():
    row = torch.mul.op
    with pytest.raises(AttributeError, match="op mul: a row does not change"):
        row.kernel = "divide"
    assert row.kernel == "multiply"


@pytest.mark.parametrize(
    ("signature", "given", "error"),
    [
        ("mul(input)", {}, "op 'mul' is declared twice"),
        ("new_in_test(made)", {}, "op new_in_test: nothing can be called 'made'"),
        ("new_in_test(input)", {"other": lambda g: g}, r"formulas for \['other'\], which are not among its parameters"),
        (
            "new_in_test(input)",
            {"input": lambda g, x: g},
            "the formula for input needs 'x', which the op does not have",
        ),
        (
            "new_in_test(input)",
            {"input": lambda g: g, "linear": "input", "jvp": lambda input_t: input_t},
            "op new_in_test: linear_in and jvp both say what its tangents are",
        ),
        (
            "new_in_test_(input)",
            {},
            "op new_in_test_: a name that ends in _ is that of a function which works in place",
        ),
    ],
)
def test_a_mistake_in_a_row_leaves_no_op_behind(signature, given, error):
    before = dict(OPS)
    with pytest.raises((NameError, ValueError), match=error):
        op(signature, "exp", **given)
    assert before == OPS


def test_no_derivative_is_stated_twice():
    stated = ["derivative: formula for input", "derivative: backward kernel: softmax.softmax_grad"]
    assert derivatives(OPS["softmax"]) == [*stated, "Jacobian: symmetric"]
    for row in OPS.values():  # where the Jacobian says it, the formula is all there is, and perhaps a kernel
        if row.selects or row.jacobian:
            assert not (row.through_twin or row.jvp_kernel or row.jvp or row.backward)


def test_the_rows_of_the_package_have_no_mistakes():  # while it is imported, they are not checked
    for row in list(OPS.values()):
        check(row)


def test_an_unknown_place_is_an_error():
    with pytest.raises(ValueError, match="in_test: there is no place 'functions'; expected one of method, function"):
        export("in_test", abs, "functions")
    assert "in_test" not in FUNCTIONS


def test_tracebacks_show_the_lines_of_generated_functions():
    function = function_of("def divide(x):\n    return x / ZERO", {"ZERO": 0}, {})
    with pytest.raises(ZeroDivisionError) as raised:
        function(1)
    assert "return x / ZERO" in "".join(traceback.format_tb(raised.value.__traceback__))
    assert linecache.getline(torch.mul.__code__.co_filename, torch.mul.__code__.co_firstlineno)


def test_a_slot_takes_lines_or_none():
    assert fill("\nif {x}:\n    {lines}\n    {none}\n", x="a", lines="b\nif c:\n    d", none="") == (
        "if a:\n    b\n    if c:\n        d"
    )
