"""The shared assertions fail where they should."""

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.compare import (
    array_of,
    assert_close,
    assert_equal,
    dtype_name,
    evaluate,
    normal,
    outcome,
    type_name,
)
from tests.support.processes import environment, output_of, run_python

ONE = np.float32(1)
DIFFERENT = {
    "a value": (np.array([1.0, 2.0]), np.array([1.0, 2.1])),
    "nan": (np.array([1.0]), np.array([np.nan])),
    "an infinity": (np.array([np.inf]), np.array([-np.inf])),
    "an integer": (np.array([1_000_000]), np.array([1_000_001])),
    "an unsigned integer": (np.array([0], np.uint8), np.array([255], np.uint8)),
    "a dtype": (np.array([1.0], np.float32), np.array([1.0])),
    "a shape": (np.ones((2, 1)), np.ones(2)),
    "a scalar for an array": (ONE, np.ones(3, np.float32)),
    "an array for a tensor": (np.ones(2, np.float32), tg.ones(2)),
    "a tensor for an array": (tg.ones(2), np.ones(2, np.float32)),
    "a tensor's dtype": (tg.ones(2), tg.ones(2, dtype=tg.bfloat16)),
    "the number of values": ((ONE, ONE), (ONE,)),
    "the names of values": ({"a": ONE}, {"b": ONE}),
    "the order of values": ({"a": ONE, "b": ONE}, {"b": ONE, "a": ONE}),
    "a value inside": ({"a": [ONE, (tg.zeros(1),)]}, {"a": [ONE, (tg.ones(1),)]}),
    "a value for None": (ONE, None),
    "None for a value": (None, ONE),
    "a text": ("a", "b"),
    "a boolean": (True, False),
}


@pytest.mark.parametrize("compare", [assert_equal, assert_close])
@pytest.mark.parametrize("name", DIFFERENT)
def test_differences_are_found(name, compare):
    found, expected = DIFFERENT[name]
    with pytest.raises(AssertionError):
        compare(found, expected)
    for same in (found, expected):
        compare(same, same)


def test_tolerances():
    a, b = np.array([1.0, 100.0]), np.array([1.0, 100.1])
    assert_close(a, b, 1e-2, atol=0)
    assert_close(a, b, 0, atol=0.2)
    assert_close(a, b, {"float64": 1e-2})
    assert_close(a, b, 1e-4, scale=20)
    assert_close(a, b, 0, atol=2e-3, relative_to_largest=True)
    for options in (
        {"tolerance": 1e-4}, {"tolerance": {"float32": 1.0}}, {"tolerance": 0, "atol": 2e-3},
        {"tolerance": 0, "atol": 9e-4, "relative_to_largest": True},
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            assert_close(a, b, **options)


def test_the_message_says_where():
    with pytest.raises(AssertionError, match=r"weights\['a'\]\[1\]"):
        assert_close({"a": [ONE, ONE]}, {"a": [ONE, ONE * 2]}, what="weights")


def test_arrays():
    assert normal(2, 3).shape == (2, 3) and normal(2).dtype == np.float32 and normal().shape == ()
    assert_equal(normal(4, seed=np.random.default_rng(3)), normal(4, seed=3))
    assert normal(3, dtype=np.complex64).imag.all()
    x = tg.tensor([1.5, 2.0], dtype=tg.bfloat16, requires_grad=True)
    assert array_of(x).tolist() == [1.5, 2.0] and dtype_name(x) == "bfloat16"
    assert array_of(tg.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


def test_outcomes():
    assert outcome(int, "3") == 3 and type_name(outcome(int, "x")) == "ValueError"
    assert evaluate(tg, "l.ones(k).sum().item()", k=2) == 2.0
    assert isinstance(evaluate(tg, "l.ones(2) @ l.ones(3)"), RuntimeError)
    assert type_name(NotImplementedError()) == "RuntimeError"


def test_programs(monkeypatch):
    monkeypatch.setenv("TESTS_OF_COMPARE", "1")
    code = """
        import os, sys
        print(os.environ.get("TESTS_OF_COMPARE"), *sys.argv[1:])
    """
    assert output_of(code, 3).split() == ["1", "3"]
    assert output_of(code, env=environment("TESTS_OF_")).split() == ["None"]
    assert output_of(code, env=environment(TESTS_OF_COMPARE="2")).split() == ["2"]
    assert run_python("raise SystemExit(3)").returncode == 3
    with pytest.raises(AssertionError, match="exit status 3"):
        output_of("raise SystemExit(3)")
