"""The two methods that compare with PyTorch: they can be repeated, find faults, and make programs small."""

import pytest

import tensorgrad
from tensorgrad.dispatch import resizing
from tests.fuzz import expressions, programs
from tests.fuzz.beside_torch import Difference, Known, meant

pytest.importorskip("torch", reason="both methods compare with PyTorch")


def test_a_program_is_written_again_by_its_seed():
    assert [programs.program(seed)[0] for seed in range(3)] == [programs.program(seed)[0] for seed in range(3)]
    assert repr(expressions.Case(5)) == repr(expressions.Case(5))


@pytest.mark.parametrize("method, seeds", [(programs, range(5_000_000, 5_000_040)),
                                           (expressions, range(6_000_000, 6_000_250))])  # fmt: skip
def test_some_cases(method, seeds):
    """Always the same ones, so that a change is judged by what it does; `make stress` makes new ones."""
    for seed in seeds:
        try:
            method.check(seed)
        except Difference as difference:
            raise AssertionError(f"seed {seed}: {difference}") from None


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


@pytest.mark.parametrize("name", ["resize_", "add"])
def test_faults_where_memory_grows_are_found(name, monkeypatch):
    """The tensor that is resized has wrong numbers: no view is in the way of seeing it."""
    right = getattr(tensorgrad, name) if name == "add" else getattr(tensorgrad.Tensor, name)

    def wrong(*args, **kwargs):
        with tensorgrad.no_grad():
            return right(*args, **kwargs).mul_(2)

    lines = ["t1 = torch.arange(1., 3.)", "t2 = torch.ones(3)"]
    lines += ["t1.resize_((3,))[2:] = 1"] if name == "resize_" else ["torch.add(t2, t2, out=t1)"]
    assert programs.replay(lines) == ""
    monkeypatch.setattr(tensorgrad if name == "add" else tensorgrad.Tensor, name, wrong)
    found = programs.replay(lines)
    assert found.startswith("values of t1") and not meant("\n".join(lines), found, programs.KNOWN)


def test_memory_that_grows_under_a_view_is_compared(monkeypatch):
    lines = ["t1 = torch.arange(1., 3.)", "t2 = t1[1:]", "t1.resize_((4,)).fill_(7)"]
    assert programs.replay(lines) == ""
    monkeypatch.setattr(resizing, "_users", lambda tensor: resizing._ALONE)
    assert programs.replay(lines).startswith("values of t2")


@pytest.mark.parametrize("name, text", [("topk", "a.gather(-1, torch.topk(a, 1)[1])"), ("argsort", "torch.argsort(a")])
def test_wrong_indices_are_found(name, text, monkeypatch):
    seed = next(s for s in range(40_000) if expressions.Case(s).text.startswith(text) and
                expressions.Case(s).mode == "plain" and expressions.Case(s).operands.dtype == "float64" and
                expressions.Case(s).operands.arrays["a"].shape[-1:] > (1,))  # fmt: skip
    expressions.check(seed)
    right = getattr(tensorgrad, name)

    def wrong(*args, **kwargs):
        found = right(*args, **kwargs)
        return (found[0], 0 * found[1]) if name == "topk" else found.flip(-1)

    monkeypatch.setattr(tensorgrad, name, wrong)
    with pytest.raises(Difference, match=r"values"):
        expressions.check(seed)


def test_differences_that_are_meant_have_a_reason():
    for known in (*programs.KNOWN, *expressions.KNOWN):
        assert len(known.reason) > 20
    known = (Known("add_", "^error", "a reason"),)
    assert meant("t1.add_(2)", "error: nothing", known) == "a reason" and meant("t1.add_(2)", "values", known) == ""


def test_every_operand_of_an_expression_is_known():
    names = set(expressions.Case(0).operands.arrays)
    for text in expressions.EXPRESSIONS:
        assert expressions.used(text) and set(expressions.used(text)) <= names, text
