"""`torch.cond` and `torch.while_loop`: branches and loops that an exported program keeps.

Called as they are, they run one branch, and the loop as long as it goes. A tracer (export/) sees the operator with its
functions (`torch.ops.higher_order.cond`), and traces each of these as a graph of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import BatchedArray
from tensorgrad.utils import _pytree


class HigherOrderOperator:
    """An operator whose arguments are functions: `torch.ops.higher_order.cond`.

    Attributes:
        graphs: what the graphs of its functions are called in a program.
    """

    def __init__(self, name: str, function: Callable[..., tuple], graphs: tuple[str, ...]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.higher_order"
        self._function, self.graphs = function, graphs

    def __call__(self, *args: Any) -> tuple:
        modes = LOCAL.dispatch_modes
        if modes and hasattr(modes[-1], "higher_order"):
            return modes[-1].higher_order(self, args)
        return self._function(*args)

    def name(self) -> str:
        """Its name."""
        return self.__name__

    def __repr__(self) -> str:
        return self.__name__

    def __reduce__(self) -> str:
        return self.__name__

    def __deepcopy__(self, memo: dict) -> HigherOrderOperator:
        return self


# What records all that may run (the export to ONNX) is told which tensors begin a loop, and which are its results or
# those of a branch. Branches are recorded both, and loops for one turn.
CHOICES: list[Callable[[list[Tensor], list[Tensor]], None]] = []


def _batched(value: Any) -> bool:
    return isinstance(value, Tensor) and isinstance(value._array, BatchedArray)


def _run_cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence) -> tuple:
    """Runs one branch; both where each sample of `vmap` may choose another one, or both are recorded."""
    if not _batched(pred) and not CHOICES:
        return tuple((true_fn if bool(pred) else false_fn)(*operands))
    yes, no = tuple(true_fn(*operands)), tuple(false_fn(*operands))
    check_branches(yes, no)
    pred = pred.reshape(()).bool()
    made = [tensorgrad.where(pred, a, b) if isinstance(a, Tensor) else a for a, b in zip(yes, no, strict=True)]
    if CHOICES:
        CHOICES[-1]([], [t for t in made if isinstance(t, Tensor)])
    return tuple(made)


def check_branches(yes: Sequence, no: Sequence) -> None:
    """Raises: RuntimeError if the results of two branches are of different kinds."""
    start = "When merging two branches' output in torch.cond, "
    if len(yes) != len(no):
        raise RuntimeError(f"{start} expected the same number of outputs but got {len(yes)} and {len(no)}.")
    for a, b in zip(yes, no, strict=True):
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            if isinstance(a, Tensor) or isinstance(b, Tensor) or a != b:
                raise RuntimeError(f"{start} expected the same output but got {a} and {b}.")
            continue
        for what, one, other in (
            ("dtype", a.dtype, b.dtype), ("dim", a.dim(), b.dim()), ("size", list(a.shape), list(b.shape)),
            ("device", a.device, b.device),
        ):  # fmt: skip
            if one != other:
                raise RuntimeError(f"{start} expected same {what} but got {one} and {other}.")


def _run_while_loop(cond_fn: Callable, body_fn: Callable, carried: Sequence, additional: Sequence = ()) -> tuple:
    if not isinstance(carried, tuple | list):
        raise RuntimeError(f"carried_inputs must be a tuple or list but got {type(carried)}")
    values = tuple(carried)
    if CHOICES:
        return _one_turn(cond_fn, body_fn, values, tuple(additional))
    while _goes_on(cond_fn(*values, *additional)):
        made = body_fn(*values, *additional)
        check_carried(made, values)
        values = made
    return tuple(v.clone() if v is w and isinstance(v, Tensor) else v for v, w in zip(values, carried, strict=True))


def _one_turn(cond_fn: Callable, body_fn: Callable, values: tuple, additional: tuple) -> tuple:
    """Runs the first turn of a loop, in a form from which the loop can be made again: each result is
    where(condition, where(next condition, next value, next value), value)."""
    if not all(isinstance(v, Tensor) for v in values):
        raise NotImplementedError("while_loop(): a loop over numbers cannot be exported: carry tensors")
    starts = [v.clone() for v in values]
    goes_on = cond_fn(*starts, *additional)
    made = body_fn(*starts, *additional)
    check_carried(made, starts)
    again = cond_fn(*made, *additional)
    for pred in (goes_on, again):
        check_condition(pred)
        if not isinstance(pred, Tensor):
            raise NotImplementedError("while_loop(): a loop whose condition is a bool cannot be exported")
    where = tensorgrad.where
    results = [where(goes_on, where(again, new, new), old) for new, old in zip(made, starts, strict=True)]
    CHOICES[-1](starts, results)
    return tuple(results)


def _goes_on(pred: Any) -> bool:
    check_condition(pred)
    if _batched(pred):
        raise NotImplementedError("while_loop(): under vmap, a loop whose samples need different numbers of turns")
    return bool(pred)


def check_condition(pred: Any) -> None:
    """Raises: RuntimeError if what a loop's condition returned is not one."""
    scalar = isinstance(pred, Tensor) and pred.dim() == 0 and pred.dtype is tensorgrad.bool
    if not scalar and not isinstance(pred, bool):
        raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {pred}")


def check_carried(made: Any, before: Sequence) -> None:
    """Raises: AssertionError or RuntimeError if a loop's body returned something else than it takes."""
    if not isinstance(made, tuple):
        raise AssertionError(f"body_fn should return a tuple but got {type(made)}")
    if len(made) != len(before):
        raise AssertionError(
            f"body_fn should return the same number of elements as carried_inputs, got {len(made)} vs {len(before)}"
        )
    for i, (a, b) in enumerate(zip(made, before, strict=True)):
        if isinstance(a, Tensor) != isinstance(b, Tensor):
            different = f"type: {a} vs {b}"
        elif isinstance(a, Tensor) and (a.shape, a.dtype) != (b.shape, b.dtype):
            different = f"{a.dtype}{list(a.shape)} vs {b.dtype}{list(b.shape)}"
        else:
            continue
        raise RuntimeError(
            f"Expected body_fn_output and carried_inputs to have same metadata but found: pair[{i}] differ in "
            f"{different}"
        )


cond_op = HigherOrderOperator("cond", _run_cond, ("true_graph", "false_graph"))
while_loop_op = HigherOrderOperator("while_loop", _run_while_loop, ("while_loop_cond_graph", "while_loop_body_graph"))
OPERATORS = {"cond": cond_op, "while_loop": while_loop_op}


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """Returns `true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`. An exported program keeps both.

    Only the branch that is taken runs; `vmap` runs both if its samples may choose differently, and so does
    `torch.export`. Gradients flow through the branch that was taken.

    Args:
        pred: a tensor of one element, or a bool.
        true_fn, false_fn: functions that return tensors of the same dtypes and shapes, and change none in place.
        operands: what they take: tensors, or lists, tuples and dicts of them. They may also use other tensors.

    Raises:
        RuntimeError: If an argument is something else, or, where both branches run, their results differ in kind.

    >>> x = torch.tensor([1.0, -2.0])
    >>> torch.cond(x.sum() > 0, lambda x: x * 10, lambda x: -x, (x,))
    tensor([-1.,  2.])
    >>> class Steep(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.cond(x.sum() > 0, lambda x: x * 10, lambda x: -x, (x,))
    >>> program = torch.export.export(Steep(), (x,))
    >>> program.module()(torch.tensor([1.0, 2.0]))
    tensor([10., 20.])
    """
    if not isinstance(pred, bool | Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    leaves, spec = _pytree.tree_flatten(operands)
    if not isinstance(operands, tuple | list) or not all(isinstance(t, Tensor) for t in leaves):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but "
            f"got {operands}."
        )
    if isinstance(pred, bool):
        if LOCAL.dispatch_modes:
            warnings.warn(
                "Pred is a Python constant. When used with torch.cond, it specializes on one of the branches. If you "
                "want torch.cond to preserve two branches, please make the predicate a boolean tensor or a SymBool.",
                UserWarning,
                stacklevel=2,
            )
        return (true_fn if pred else false_fn)(*operands)
    found: list[Any] = []
    results = cond_op(pred, _flat(true_fn, spec, found), _flat(false_fn, spec, found), tuple(leaves))
    if any(other != found[0] for other in found):
        raise RuntimeError(
            f"Unmatched output spec from torch.cond branches: true branch tree_spec {found[0]} vs false branch "
            f"tree_spec {found[1]}."
        )
    return _pytree.tree_unflatten(results, found[0])


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    """Calls `carried_inputs = body_fn(*carried_inputs)` as long as `cond_fn(*carried_inputs)` is true.

    Args:
        cond_fn: returns a bool, or a tensor of dtype bool without dimensions.
        body_fn: returns a tuple of tensors of the same dtypes and shapes as it takes, and changes none in place.
        carried_inputs: a tuple of tensors and integers, which may be in lists, tuples and dicts. An exported program
            has tensors only.

    Raises:
        RuntimeError: If an argument, or what a function returned, is something else.

    >>> torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    leaves, spec = _pytree.tree_flatten(carried_inputs)
    if not isinstance(carried_inputs, tuple | list) or not all(isinstance(t, Tensor | int) for t in leaves):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor or "
            f"int leaves, but got {carried_inputs}."
        )

    def condition(*values: Any) -> Any:
        return cond_fn(*_pytree.tree_unflatten(values, spec))

    results = while_loop_op(condition, _flat(body_fn, spec, []), tuple(leaves), ())
    return _pytree.tree_unflatten(results, spec)


def _flat(function: Callable, spec: Any, found: list[Any]) -> Callable:
    """A function of leaves that returns leaves, and notes their structure."""

    def call(*leaves: Any) -> tuple:
        result = function(*_pytree.tree_unflatten(list(leaves), spec))
        values, made = _pytree.tree_flatten(result)
        found.append(made)
        return tuple(values)

    return call
