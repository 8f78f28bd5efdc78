"""What tests of libraries import: the pairs of `torch.testing._comparison`, and smaller names."""

import pytest

import tensorgrad
from tests.support.alike import alike, error

torch = pytest.importorskip("torch")


def told(metas):
    return [(meta.type.__name__, meta.msg, meta.id, str(meta.to_error(lambda text: "so: " + text))) for meta in metas]


def kinds(torch):
    import importlib

    module = importlib.import_module(torch.__name__ + ".testing._comparison")
    names = ("NonePair", "BooleanPair", "NumberPair", "TensorLikePair")
    return module, [getattr(module, name) for name in names]


@alike
def test_pairs_of_nested_values(torch):
    module, pair_types = kinds(torch)

    def check(actual, expected, **options):
        return told(module.not_close_error_metas(actual, expected, pair_types=pair_types, **options))

    ones = torch.ones(2)
    return (
        check({"a": [ones, 1.0, True, None]}, {"a": [ones, 1.0, True, None]}),
        check({"a": [ones, 1.0, True, None]}, {"a": [ones + 1, 2.0, True, 3]}),
        check(ones, ones.double()),
        check(ones, ones.double(), check_dtype=False),
        check(ones, torch.ones(3)),
        check(ones, ones + 0.1, rtol=0, atol=0.2),
        check(1, 1.0),
        check(1, 1.0, check_dtype=True),
        check(float("nan"), float("nan"), equal_nan=True),
        check(torch.ones(2).numpy(), torch.zeros(2).numpy()),
        check(torch.ones(2, 2).to_sparse(), torch.ones(2, 2), check_layout=False),
        error(check, [1], [1, 2]),
        error(check, {"a": 1}, {"b": 1}),
        error(check, "a", "a"),
        error(check, ones, 1.0).partition(":")[0],
        [line for *line, _, _ in check(True, False)],
        told(module.not_close_error_metas("a", "b")),
    )


@alike
def test_the_test_case_of_libraries(torch):
    """As timm's tests of optimizers use it: PyTorch's is `torch.testing._internal.common_utils.TestCase`."""
    if torch is tensorgrad:
        from tensorgrad.testing.case import TestCase
    else:
        from torch.testing._internal.common_utils import TestCase
    case, ones = TestCase(), torch.ones(2)

    def outcome(actual, expected, method="assertEqual", **options):
        try:
            getattr(case, method)(actual, expected, **options)
        except (AssertionError, ValueError) as problem:
            return type(problem).__name__
        return "same"

    pairs = [
        (ones, ones), (ones, ones + 1e-7), (ones, ones + 1), (ones, ones.double()), (ones, ones.numpy()),
        (ones, [1, 1]), ([1.0, 1.0], ones),
        (ones, torch.ones(3)), (ones * float("nan"), ones * float("nan")), (1, 1.0), (1, 1 + 1e-7),
        (1, 2), (True, 1), (True, torch.tensor(True)), (True, ones), (1.0, torch.ones(1)), (1.0, ones), (None, None),
        (None, 1), ("a", "a"), ("a", "b"), ({1, 2}, {2, 1}), ({"a": [ones, 3]}, {"a": [ones, 3]}), ([1], [1, 2]),
        ({"a": 1}, {"b": 1}), (torch.float32, torch.float32), (torch.float32, torch.float64),
        (torch.nn.ParameterList([ones]), torch.nn.ParameterList([ones + 1])), (1j, 1j + 1e-7), (1j, 2j),
    ]  # fmt: skip
    assert issubclass(type("Own", (TestCase,), {}), TestCase)
    return (
        [(outcome(*pair), outcome(*pair, method="assertNotEqual")) for pair in pairs],
        outcome(ones, ones.double(), exact_dtype=False),
        outcome(ones, ones + 0.1, rtol=0, atol=0.2),
        outcome(ones, ones + 0.1, atol=0.2),
        outcome(ones * float("nan"), ones * float("nan"), equal_nan=False),
        error(case.assertEqual, ones, ones + 1, "of the second").splitlines()[-1],
        error(case.assertEqual, ones, ones + 1, lambda told: "instead"),
        error(case.assertEqual, 1.0, ones),
    )


@alike
def test_a_pair_of_the_users_own(torch):
    module, pair_types = kinds(torch)

    class Mean(module.TensorLikePair):
        def __init__(self, actual, expected, *, mean=False, **options):
            super().__init__(actual, expected, **options)
            self.mean = mean

        def compare(self):
            self._compare_attributes(self.actual, self.expected)
            actual, expected = self._equalize_attributes(self.actual, self.expected)
            if not self.mean:
                super()._compare_values(actual, expected)
            elif (actual - expected).abs().mean() > self.atol:
                self._fail(AssertionError, f"more than {self.atol}")

    def check(actual, expected, **options):
        return told(module.not_close_error_metas(actual, expected, pair_types=(*pair_types[:3], Mean), **options))

    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])
    return (
        check(a, b),
        check([a], [b], mean=True, rtol=0, atol=0.1),
        check(a, b, mean=True, rtol=0, atol=1.5),
        check(a, b.double(), check_dtype=False, rtol=0, atol=2),
    )


def test_names_that_tests_of_libraries_import(tmp_path):
    import tensorgrad
    from tensorgrad._utils_internal import get_file_path_2, get_writable_path

    assert "fbgemm" in tensorgrad.backends.quantized.supported_engines
    assert get_file_path_2(str(tmp_path), "a") == str(tmp_path / "a")
    assert get_writable_path(str(tmp_path)) == str(tmp_path) != get_writable_path(str(tmp_path / "none"))


LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc")


@pytest.mark.parametrize("check_layout", [True, False])
@pytest.mark.parametrize("there", LAYOUTS)
@pytest.mark.parametrize("here", LAYOUTS)
def test_tensors_of_two_layouts_are_compared(here, there, check_layout):
    for change in ([], [(0, 0, 4.0)], [(0, 1, 4.0)], [(0, 0, 0.0), (0, 1, 1.0)]):
        outcomes = []
        for library in (torch, tensorgrad):
            other = library.eye(3)
            for row, column, value in change:
                other[row, column] = value
            given = [
                x if layout == "strided" else x.to_sparse(layout=getattr(library, layout))
                for x, layout in ((library.eye(3), here), (other, there))
            ]
            try:
                outcomes.append(library.testing.assert_close(*given, check_layout=check_layout))
            except AssertionError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
