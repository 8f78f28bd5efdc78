"""The two methods that compare with PyTorch: they can be repeated, find faults, and make programs small."""

import pytest

import tensorgrad
from tests.fuzz import expressions, programs
from tests.fuzz.beside_torch import Difference, Known, meant

pytest.importorskip("torch", reason="both methods compare with PyTorch")


def test_a_program_is_written_again_by_its_seed():
    assert [programs.program(seed)[0] for seed in range(3)] == [programs.program(seed)[0] for seed in range(3)]
    assert repr(expressions.Case(5)) == repr(expressions.Case(5))


def test_a_fault_is_found_and_made_small(monkeypatch):
    """`neg_` forgets the first element of a view."""
    right = tensorgrad.Tensor.neg_

    def wrong(self):
        return right(self[1:]) if self.dim() == 1 and self.numel() > 1 else right(self)

    lines = [
        "t1 = torch.arange(1., 4.)", "t2 = t1 * 2", "t3 = torch.ones(2)", "t1.neg_()", "t4 = t1 + t2", "t3.mul_(2)",
    ]  # fmt: skip
    assert programs.replay(lines) == ""
    monkeypatch.setattr(tensorgrad.Tensor, "neg_", wrong)
    found = programs.replay(lines)
    assert found.startswith("values of t1")
    small, found = programs.made_small(lines[:4], found)
    assert small == [lines[0], lines[3]] and found.startswith("values of t1")


def test_a_wrong_value_of_an_expression_is_found(monkeypatch):
    seed = next(s for s in range(20_000) if expressions.Case(s).text == "torch.tan(a)" and
                expressions.Case(s).mode == "plain" and expressions.Case(s).operands.dtype == "float64" and
                expressions.Case(s).operands.arrays["a"].size)  # fmt: skip
    expressions.check(seed)
    monkeypatch.setattr(tensorgrad, "tan", tensorgrad.sin)
    with pytest.raises(Difference, match=r"torch\.tan\(a\) \| plain \| float64"):
        expressions.check(seed)


def test_differences_that_are_meant_have_a_reason():
    for known in (*programs.KNOWN, *expressions.KNOWN, *expressions.OPEN):
        assert len(known.reason) > 20
    known = (Known("add_", "^error", "a reason"),)
    assert meant("t1.add_(2)", "error: nothing", known) == "a reason" and meant("t1.add_(2)", "values", known) == ""


def test_every_operand_of_an_expression_is_known():
    names = set(expressions.Case(0).operands.arrays)
    for text in expressions.EXPRESSIONS:
        assert expressions.used(text) and set(expressions.used(text)) <= names, text
