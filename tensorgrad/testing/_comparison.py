"""Comparisons as objects: what libraries build their own `assert_close` from, such as torchvision's for images.

A pair holds two values of a kind that it knows, and compares them. `not_close_error_metas` makes the pairs of nested
containers, the first of `pair_types` that accepts each, and returns how they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tensorgrad import testing
from tensorgrad.tensor import Tensor


class ErrorMeta(Exception):
    """How two values differ: the type and the text of an error to raise, and where the values are."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()):
        super().__init__(msg)
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """Returns the error. `msg` is its text instead, or a function that makes it from the text."""
        message = testing._at(self.msg, self.id)
        return self.type(msg(message) if callable(msg) else message if msg is None else msg)


class UnsupportedInputs(Exception):
    """Raised by a pair that does not know values of this kind."""


class Pair:
    """Two values. Subclasses say which they accept, and compare them.

    Args:
        actual, expected: The values.
        id: Their place in the containers: indices and keys.
        unknown: Options of other pairs.
    """

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown: Any):
        self.actual, self.expected, self.id = actual, expected, id

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: Any) -> None:
        if not all(isinstance(value, cls) for value in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or self.id)

    def compare(self) -> None:
        """Compares the values. Raises: ErrorMeta if they differ."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.actual!r}, {self.expected!r}, id={self.id})"


class ObjectPair(Pair):
    """Any two values, compared by `==`."""

    def compare(self) -> None:
        """Compares the values."""
        try:
            same = bool(self.actual == self.expected)
        except Exception as error:
            self._fail(ValueError, f"{self.actual} == {self.expected} failed with:\n{error}.")
        if not same:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """Two values of which one is None."""

    def __init__(self, actual: Any, expected: Any, **options: Any):
        if actual is not None and expected is not None:
            self._inputs_not_supported()
        super().__init__(actual, expected, **options)

    def compare(self) -> None:
        """Compares the values."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two booleans."""

    def __init__(self, actual: Any, expected: Any, **options: Any):
        self._check_inputs_isinstance(actual, expected, cls=(bool, np.bool_))
        super().__init__(bool(actual), bool(expected), **options)

    def compare(self) -> None:
        """Compares the values."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class TensorLikePair(Pair):
    """Two tensors, or what can become one.

    Args:
        actual, expected: The values.
        allow_subclasses: Whether their types may differ, if one is a subclass of the other's.
        rtol, atol: Both or neither; the defaults depend on the dtypes.
        equal_nan, check_device, check_dtype, check_layout, check_stride: As `assert_close`'s.
        options: Of `Pair`.
    """

    def __init__(
        self,
        actual: Any,
        expected: Any,
        *,
        allow_subclasses: bool = True,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_device: bool = True,
        check_dtype: bool = True,
        check_layout: bool = True,
        check_stride: bool = False,
        **options: Any,
    ):
        kinds = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not kinds or (not allow_subclasses and type(actual) is not type(expected)):
            self._inputs_not_supported()
        super().__init__(self._to_tensor(actual), self._to_tensor(expected), **options)
        self.rtol, self.atol = testing._tolerances(self.actual, self.expected, rtol, atol)
        self.equal_nan = equal_nan
        self.check_device, self.check_dtype = check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _to_tensor(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        try:
            return testing._tensor(value)
        except Exception:
            self._inputs_not_supported()

    def compare(self) -> None:
        """Compares the values."""
        self._compare_attributes(self.actual, self.expected)
        if "meta" not in (self.actual.device.type, self.expected.device.type):
            self._compare_values(*self._equalize_attributes(self.actual, self.expected))

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        checks = {"device": self.check_device, "dtype": self.check_dtype, "layout": self.check_layout}
        problem = testing._attributes(actual, expected, checks | {"stride": self.check_stride})
        if problem is not None:
            self._fail(AssertionError, problem)

    def _equalize_attributes(self, actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        """Returns them on one device, and of one dtype."""
        import tensorgrad as torch

        both = [tensor.cpu() for tensor in (actual, expected)]
        dtype = torch.promote_types(actual.dtype, expected.dtype)
        return both[0].to(dtype), both[1].to(dtype)

    def _compare_values(self, actual: Tensor, expected: Tensor) -> None:
        problem = testing._all_values(actual, expected, self.rtol, self.atol, self.equal_nan, actual.ndim == 0)
        if problem is not None:
            self._fail(AssertionError, problem)


class NumberPair(TensorLikePair):
    """Two Python numbers. Their types are compared only with `check_dtype=True`.

    Args:
        actual, expected: The numbers.
        check_dtype: Whether their types must be the same.
        options: Of `TensorLikePair`.
    """

    def __init__(self, actual: Any, expected: Any, *, check_dtype: bool = False, **options: Any):
        self._check_inputs_isinstance(actual, expected, cls=(int, float, complex, np.number))
        self._types = type(actual), type(expected)
        super().__init__(testing._tensor(actual), testing._tensor(expected), check_dtype=False, **options)
        self.check_dtype = check_dtype

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        if self.check_dtype and self._types[0] is not self._types[1]:
            self._fail(AssertionError, f"The (d)types do not match: {self._types[0]} != {self._types[1]}.")


def originate_pairs(
    actual: Any,
    expected: Any,
    *,
    pair_types: Sequence[type[Pair]],
    sequence_types: Any = (Sequence,),
    mapping_types: Any = (Mapping,),
    id: tuple[Any, ...] = (),
    **options: Any,
) -> list[Pair]:
    """Returns the pairs of two values: those of their items if they are sequences or mappings.

    Args:
        actual, expected: The values.
        pair_types: The kinds of pair that are tried, in order.
        sequence_types, mapping_types: Which types have items. (Text has none.)
        id: The place of the values.
        options: For the pairs.

    Raises:
        ErrorMeta: If the containers differ, or no kind of pair accepts two values.
    """
    more: dict[str, Any] = {
        "pair_types": pair_types, "sequence_types": sequence_types, "mapping_types": mapping_types, **options
    }  # fmt: skip
    text = (str, bytes)
    keys: Sequence[Any] | None = None
    if all(isinstance(value, sequence_types) and not isinstance(value, text) for value in (actual, expected)):
        if len(actual) != len(expected):
            raise ErrorMeta(
                AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", id=id
            )
        keys = range(len(actual))
    elif isinstance(actual, mapping_types) and isinstance(expected, mapping_types):
        if set(actual) != set(expected):
            raise ErrorMeta(AssertionError, testing._keys(actual, expected), id=id)
        keys = list(actual)
    if keys is not None:
        return [p for k in keys for p in originate_pairs(actual[k], expected[k], id=(*id, k), **more)]
    for pair_type in pair_types:
        try:
            return [pair_type(actual, expected, id=id, **options)]
        except UnsupportedInputs:
            continue
    message = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
    raise ErrorMeta(TypeError, message, id=id)


def not_close_error_metas(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]] = (ObjectPair,), **options: Any
) -> list[ErrorMeta]:
    """Returns how two values differ: an empty list if they are close.

    Args:
        actual, expected: The values, which may be nested containers.
        pair_types: The kinds of pair that are tried for each two items, in order.
        options: For the pairs and `originate_pairs`.

    Raises:
        AssertionError: If the containers differ.
        TypeError: If no kind of pair accepts two items.

    >>> from tensorgrad.testing._comparison import TensorLikePair, not_close_error_metas
    >>> not_close_error_metas([torch.ones(2)], [torch.ones(2)], pair_types=[TensorLikePair])
    []
    """
    try:
        pairs = originate_pairs(actual, expected, pair_types=pair_types, **options)
    except ErrorMeta as problem:
        raise problem.to_error() from None
    problems = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as problem:
            problems.append(problem.with_traceback(None))
    return problems
