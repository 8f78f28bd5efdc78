"""`TestCase`: what tests of libraries take from PyTorch's own tests (`torch.testing._internal.common_utils`)."""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorgrad import testing
from tensorgrad.nn import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from tensorgrad.tensor import Tensor
from tensorgrad.testing._comparison import (
    BooleanPair,
    ErrorMeta,
    NonePair,
    NumberPair,
    ObjectPair,
    TensorLikePair,
    not_close_error_metas,
)

SEED = 1234
_NUMBERS = (int, float, complex, np.number)
_TRUTHS = (bool, np.bool_)
_ARRAYS = (Tensor, np.ndarray)


def _single(value: Any, against: str) -> Any:
    """The number in a tensor or array; other values as they are. Raises: ErrorMeta if it has several."""
    if not isinstance(value, _ARRAYS):
        return value
    count = value.numel() if isinstance(value, Tensor) else value.size
    if count > 1:
        raise ErrorMeta(
            ValueError,
            f"Only single element tensor-likes can be compared against a {against}. Got {count} elements instead.",
        )
    return value.item()


class _Truths(BooleanPair):
    """Two values of which one is a boolean; the other may be a number, or a tensor of one element."""

    def __init__(self, actual: Any, expected: Any, **options: Any):
        both = actual, expected
        if not any(isinstance(v, _TRUTHS) for v in both):
            self._inputs_not_supported()
        self._check_inputs_isinstance(*both, cls=(*_TRUTHS, *_NUMBERS, *_ARRAYS))
        super().__init__(*[bool(_single(v, "boolean")) for v in both], **options)


class _Numbers(NumberPair):
    """Two values of which one is a number; the other may be a tensor of one element. Their types do not matter."""

    def __init__(
        self, actual: Any, expected: Any, *, least: tuple[float, float], rtol: float | None, atol: float | None,
        check_dtype: bool, **options: Any,
    ):  # fmt: skip
        both = actual, expected
        if not any(isinstance(v, _NUMBERS) for v in both):
            self._inputs_not_supported()
        self._check_inputs_isinstance(*both, cls=(*_NUMBERS, *_ARRAYS))
        numbers = [_single(v, "number") for v in both]
        if rtol is None and atol is None:
            whole = all(isinstance(n, int | np.integer) for n in numbers)
            rtol, atol = (0.0, 0.0) if whole else testing.TOLERANCES["float32"]
        super().__init__(*numbers, rtol=rtol, atol=atol, **options)
        self.rtol, self.atol = max(self.rtol, least[0]), max(self.atol, least[1])


class _Arrays(TensorLikePair):
    """Two tensors or arrays, also one of each."""

    def __init__(self, actual: Any, expected: Any, *, least: tuple[float, float], **options: Any):
        self._check_inputs_isinstance(actual, expected, cls=_ARRAYS)
        super().__init__(self._to_tensor(actual), self._to_tensor(expected), **options)
        self.rtol, self.atol = max(self.rtol, least[0]), max(self.atol, least[1])


class TestCase(unittest.TestCase):
    """A test case whose `assertEqual` compares tensors and numbers up to rounding, also in containers.

    >>> from tensorgrad.testing.case import TestCase
    >>> TestCase().assertEqual({"a": [torch.ones(2), 3.0]}, {"a": [torch.ones(2) + 1e-7, 3]})
    """

    precision = 0.0  #: the least `atol`
    rel_tol = 0.0  #: the least `rtol`

    def setUp(self) -> None:
        """Seeds the random numbers of Python, NumPy and torch, as PyTorch's does before each test."""
        import tensorgrad as torch

        random.seed(SEED)
        np.random.seed(SEED)
        torch.manual_seed(SEED)

    def assertEqual(
        self,
        x: Any,
        y: Any,
        msg: str | Callable[[str], str] | None = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        equal_nan: bool = True,
        exact_dtype: bool = True,
        exact_device: bool = False,
        exact_layout: bool = False,
        exact_stride: bool = False,
        exact_is_coalesced: bool = False,
    ) -> None:
        """Checks that two values are equal, or close if they are numbers.

        Args:
            x, y: Tensors, arrays, numbers, other values, or containers of them.
            msg: A text that is added to the message, or a function that makes another one of it.
            atol, rtol: Both or neither: the tolerances; the defaults depend on the dtypes.
            equal_nan: Whether nan is equal to nan.
            exact_dtype, exact_device, exact_layout, exact_stride: What tensors must have in common besides values.
            exact_is_coalesced: Accepted for compatibility.

        Raises:
            AssertionError: If they differ.
        """
        if isinstance(x, Tensor) and isinstance(y, Sequence):
            y = _like(y, x)
        elif isinstance(y, Tensor) and isinstance(x, Sequence):
            x = _like(x, y)
        problems = not_close_error_metas(
            x,
            y,
            pair_types=(NonePair, _Truths, _Numbers, _Arrays, ObjectPair),
            sequence_types=(Sequence, Sequential, ModuleList, ParameterList),
            mapping_types=(Mapping, ModuleDict, ParameterDict),
            least=(self.rel_tol, self.precision),
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            check_device=exact_device,
            check_dtype=exact_dtype,
            check_layout=exact_layout,
            check_stride=exact_stride,
        )
        if problems:
            added = (lambda told: f"{told}\n{msg}") if isinstance(msg, str) and self.longMessage else msg
            raise problems[0].to_error(added)

    def assertNotEqual(self, x: Any, y: Any, msg: str | None = None, **options: Any) -> None:  # type: ignore[override]
        """Checks that two values are not equal: `assertEqual` with the same options would raise an error."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, **options)


def _like(values: Sequence, tensor: Tensor) -> Tensor:
    import tensorgrad as torch

    return torch.as_tensor(values, dtype=tensor.dtype, device=tensor.device)


def run_tests(argv: list[str] | None = None) -> None:
    """Runs the tests of the program, and ends its process: `unittest.main`, by the name in PyTorch's tests."""
    unittest.main(argv=argv)
