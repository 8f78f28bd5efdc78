"""Gradients, Jacobians, and their products with vectors, of functions of nested tensors.

Each of these runs the function on new tensors with the same values, and computes gradients with respect to them by
`autograd.grad`. A result is attached to a graph only if it depends on something outside that requires grad: on the
user's tensors, or on those of an enclosing transform. That is how transforms nest. Inside forward mode
(func/forward.py) the new tensors keep the tangents of the given ones.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad._functorch.vmap import shown
from tensorgrad.autograd.views import edge_of
from tensorgrad.rows.switches import LOCAL, differentiating
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch import BatchedArray, innermost_level
from tensorgrad.transforms.batch_map import basis, over_batch
from tensorgrad.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

ArgNums = int | tuple[int, ...]
NONE: Any = "no cotangent"
_next_run = itertools.count().__next__
_GRAD, _VJP = "grad_and_value(f)(*args)", "vjp(f, *primals)"


def _point(value: Tensor) -> Tensor:
    """The same values, with their tangents, outside the graph: to be a leaf of a graph within the transforms."""
    for transform in LOCAL.transforms:
        transform.shares(value)
    level = innermost_level() if LOCAL.transforms else None
    if level is None:
        return share(value._array, value._storage)
    made = level.hidden(value)
    _hand_over(value, made, lambda tangent: tangent)
    return made


def _without_graph(value: Tensor, of_tangents: Callable[[Tensor], Tensor]) -> Tensor:
    """The same values outside the graph, also further out; with `of_tangents(tangent)` of their tangents."""
    if not LOCAL.transforms:
        return share(value._array, value._storage)
    array = value._array
    if array.__class__ is BatchedArray:
        with array.level.off():
            made = _without_graph(array.value, of_tangents)
        made = share(array.with_value(made), None)
    else:
        made = value.detach()
    _hand_over(value, made, of_tangents)
    return made


def _hand_over(value: Tensor, made: Tensor, of_tangents: Callable[[Tensor], Tensor]) -> None:
    if made._array is not value._array:
        for transform in LOCAL.transforms:
            transform.hand_over(value, made, of_tangents)


class _Run:
    """One evaluation of a function, ready to be differentiated.

    `points` are the new input tensors, `outputs` the results, both flattened; `aux` is the auxiliary output.
    """

    def __init__(
        self,
        who: str,
        func: Callable,
        args: tuple,
        kwargs: dict | None = None,
        argnums: ArgNums | None = None,
        has_aux: bool = False,
    ) -> None:
        self.tracked = torch.is_grad_enabled()  # whether results may be attached to a graph
        self.number = _next_run()
        self.own: set[int] = set()  # the ids of the leaves created here
        values, self.points_spec = tree_flatten(picked(args, argnums))
        self.points = [self._new(value) for value in values]
        args = replaced(args, argnums, tree_unflatten(self.points, self.points_spec))
        with torch.enable_grad(), differentiating():
            self.result = func(*args, **(kwargs or {}))
        self.aux = None
        if has_aux:
            self.result, self.aux = output_and_aux(who, self.result)
        self.outputs, self.outputs_spec = tree_flatten(self.result)
        self.keep = self._leads_out(self.outputs)  # whether the derivative needs a graph

    def _new(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(value)}")
        if value.is_inference() and not torch.is_inference_mode_enabled():
            value = value.clone()  # which may require grad
        if not value.requires_grad:
            return self._leaf(_point(value))
        with torch.enable_grad():  # `vjp`'s function may be called where a graph is wanted, though this run has none
            return value.view_as(value)

    def _leaf(self, value: Tensor) -> Tensor:
        """Creates a leaf that belongs to this run only."""
        value.requires_grad_()
        value.__dict__["_made_by_run"] = self.number
        self.own.add(id(value))
        return value

    def again(self) -> None:
        """Call before using this run again later: other transforms may enclose it by then."""
        self.tracked, self.number = torch.is_grad_enabled(), _next_run()
        self.keep = self._leads_out(self.outputs)

    def _leads_out(self, values: Sequence[Any]) -> bool:
        """Whether any of these tensors was computed from a leaf that belongs to neither this run nor one inside it."""
        if not self.tracked:
            return False
        edges = [edge_of(value) for value in values if isinstance(value, Tensor)]
        ahead, seen = [edge[0] for edge in edges if edge is not None], set()
        while ahead:
            target = ahead.pop()
            if id(target) in seen:
                continue
            seen.add(id(target))
            if not isinstance(target, Tensor):
                for edge in target.edges:
                    if edge is not None:
                        ahead.append(edge[0])
            elif id(target) not in self.own and target.__dict__.get("_made_by_run", -1) < self.number:
                return True
        return False

    def out(self, values: Any) -> Any:
        """Returns nested results for use outside: detached unless their graph leads outside this run."""
        return tree_map(self._out, values)

    def _out(self, value: Any) -> Tensor:
        require_tensors(value)
        lone = value.requires_grad and not self._leads_out([value])
        return _without_graph(value, self._out) if lone or id(value) in self.own else value

    def pulled(self, cotangents: Sequence[Tensor | None], create_graph: bool, retain_graph: bool | None = None) -> list:
        """Computes Jᵀ·cotangents, one for each point; zeros for a point that no output depends on.

        None is the cotangent 1 of a scalar; an output without a cotangent has `NONE`.
        """
        pairs = [(o, c) for o, c in zip(self.outputs, cotangents, strict=True) if o.requires_grad and c is not NONE]
        found: Sequence = [None] * len(self.points)
        if pairs:
            outputs, gradients = zip(*pairs, strict=True)
            found = torch.autograd.grad(outputs, self.points, gradients, retain_graph, create_graph, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, self.points, strict=True)]


def output_and_aux(who: str, result: Any) -> tuple[Any, Any]:
    """The pair that a function with auxiliary output returned. Raises: RuntimeError if it did not."""
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result


def require_tensors(values: Any) -> None:
    """Raises: RuntimeError unless nested values consist of tensors."""
    for value in (values,) if isinstance(values, Tensor) else tree_leaves(values):
        if not isinstance(value, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(value)}")


def check_outputs(who: str, outputs: Sequence[Any]) -> None:
    """Raises: RuntimeError unless the outputs are tensors, and there is at least one."""
    if not outputs or outputs == [None]:
        raise RuntimeError(f"{who}: Expected f to be a function that has non-empty output (got output = {outputs})")
    for output in outputs:
        if not isinstance(output, Tensor):
            raise RuntimeError(
                f"{who}: expected f(*primals) to return only tensors, got unsupported type {type(output)}"
            )


# --- argument positions ----------------------------------------------------------------------------------------------


def _positions(argnums: ArgNums, count: int) -> tuple[int, ...]:
    """The non-negative positions. Raises: RuntimeError if they do not refer to one of `count` arguments."""
    if not isinstance(argnums, int | tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    for number in numbers:
        if not isinstance(number, int):
            raise RuntimeError(f"argnum must be int, got: {type(number)}")
        if not -count <= number < count:
            raise RuntimeError(f"Got argnum={number}, but only {count} positional inputs")
    numbers = tuple(number % count for number in numbers)
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {numbers}")
    return numbers


def picked(args: tuple, argnums: ArgNums | None) -> Any:
    """The argument at `argnums`, or a tuple of several."""
    if argnums is None:
        return args
    picked = tuple(args[i] for i in _positions(argnums, len(args)))
    return picked[0] if isinstance(argnums, int) else picked


def replaced(args: tuple, argnums: ArgNums | None, news: Any) -> tuple:
    """`args` with `news` at the positions `argnums`."""
    if argnums is None:
        return news
    replaced = dict(zip(_positions(argnums, len(args)), (news,) if isinstance(argnums, int) else news, strict=True))
    return tuple(replaced.get(i, arg) for i, arg in enumerate(args))


# --- gradients -------------------------------------------------------------------------------------------------------


def grad(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """Returns the gradient of a scalar-valued function, as a function of the same arguments.

    Args:
        func: Returns a tensor without dimensions; with `has_aux` a pair of that and auxiliary output, which is passed
            through.
        argnums: The positional argument(s) to differentiate by, each a tensor or nested tensors.

    Returns:
        A function whose result is nested like the argument; a tuple for several, and a pair (gradient, aux) with
        `has_aux`.

    Raises (when called):
        RuntimeError: If there is no such argument, or the result is not a scalar.

    >>> torch.func.grad(torch.sin)(torch.tensor(0.0))
    tensor(1.)
    >>> torch.func.grad(torch.func.grad(lambda x: x**3))(torch.tensor(2.0))
    tensor(12.)
    >>> torch.func.grad(lambda p: p["w"] * p["b"])({"w": torch.tensor(2.0), "b": torch.tensor(3.0)})
    {'w': tensor(3.), 'b': tensor(2.)}
    """

    @functools.wraps(func, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        run, found = _gradients(func, args, kwargs, argnums, has_aux)
        return (found, run.out(run.aux)) if has_aux else found

    return gradient


def _gradients(func: Callable, args: tuple, kwargs: dict, argnums: ArgNums, has_aux: bool) -> tuple[_Run, Any]:
    """Runs a scalar-valued function, and returns that run and the gradients."""
    run = _Run(_GRAD, func, args, kwargs, argnums, has_aux)
    value = run.result
    if not isinstance(value, Tensor):
        raise RuntimeError(f"{_GRAD}: Expected f(*args) to return a Tensor, got {type(value)}")
    if value.dim() != 0:
        raise RuntimeError(
            f"{_GRAD}: Expected f(*args) to return a scalar Tensor, got tensor with {value.dim()} dims. Maybe you "
            "wanted to use the vjp or jacrev APIs instead?"
        )
    return run, run.out(tree_unflatten(run.pulled([None], run.keep), run.points_spec))


def grad_and_value(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """Like `grad`, but also returns the value: (gradient, value), or (gradient, (value, aux)) with `has_aux`.

    >>> torch.func.grad_and_value(lambda x: x**3)(torch.tensor(2.0))
    (tensor(12.), tensor(8.))
    """

    @functools.wraps(func, updated=())
    def both(*args: Any, **kwargs: Any) -> Any:
        run, found = _gradients(func, args, kwargs, argnums, has_aux)
        value = run.out(run.result)
        return (found, (value, run.out(run.aux))) if has_aux else (found, value)

    return both


# --- products with vectors -------------------------------------------------------------------------------------------


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """Returns the value of a function, and a function that multiplies vectors by its transposed Jacobian.

    Args:
        func: Maps tensors to tensors, both possibly nested; with `has_aux` it returns (tensors, aux).
        primals: Its arguments.

    Returns:
        (value, multiply) or (value, multiply, aux). `multiply(cotangents)` takes cotangents nested like the value,
        and returns a tuple with one product for each of `primals`.

    Raises:
        RuntimeError: If the result does not consist of floating-point tensors.

    >>> value, multiply = torch.func.vjp(torch.sin, torch.zeros(2))
    >>> multiply(torch.tensor([1.0, 2.0]))
    (tensor([1., 2.]),)
    """
    run, multiply = _vjp(func, primals, None, has_aux)
    value = run.out(run.result)
    return (value, multiply, run.out(run.aux)) if has_aux else (value, multiply)


def _vjp(func: Callable, args: tuple, argnums: ArgNums | None, has_aux: bool) -> tuple[_Run, Callable]:
    run = _Run(_VJP, func, args, None, argnums, has_aux)
    check_outputs(_VJP, run.outputs)
    for output in run.outputs:
        if not (output.is_floating_point() or output.is_complex()):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                f"{output.dtype}"
            )

    def multiply(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        vectors, spec = tree_flatten(cotangents)
        if spec != run.outputs_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {shown(spec)}, primal output: {shown(run.outputs_spec)}"
            )
        run.again()
        if create_graph is None:
            create_graph = run.tracked and (run.keep or any(v.requires_grad for v in vectors))
        return run.out(tree_unflatten(run.pulled(vectors, create_graph, retain_graph), run.points_spec))

    return run, multiply


# --- Jacobians -------------------------------------------------------------------------------------------------------


def require_real(who: str, values: Any, what: str) -> None:
    for i, value in enumerate(tree_leaves(values)):
        if isinstance(value, Tensor) and value.is_complex():
            raise RuntimeError(
                f"{who}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}"
            )


def nested(blocks: list[list[Tensor]], points_spec: TreeSpec, outputs_spec: TreeSpec) -> Any:
    """Nests blocks[i][j], the Jacobian of the i-th output by the j-th point, like the outputs and the points."""
    rows = [tree_unflatten(row, points_spec) for row in blocks]
    return tree_map(lambda i: rows[i], tree_unflatten(range(len(rows)), outputs_spec))


def jacrev(func: Callable, argnums: ArgNums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Callable:
    """Returns the Jacobian of a function, as a function of the same arguments; computed by rows in backward passes.

    Args:
        func: Maps tensors to tensors, both possibly nested; with `has_aux` it returns (tensors, aux).
        argnums: The positional argument(s) to differentiate by.
        chunk_size: How many rows are computed at once; all of them if it is None.

    Returns:
        A function whose result is nested like `func`'s, and within that like the arguments: tensors of shape
        `output.shape + input.shape`.

    >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func, updated=())
    def jacobian(*args: Any) -> Any:
        require_real("jacrev", args, "inputs")
        run, _ = _vjp(func, args, argnums, has_aux)
        require_real("jacrev", run.outputs, "outputs")
        blocks = []
        for i, output in enumerate(run.outputs):

            def rows(vectors: list[Tensor], i: int = i) -> list[Tensor]:
                cotangents = [vectors[0] if k == i else NONE for k in range(len(run.outputs))]
                return run.pulled(cotangents, run.keep, retain_graph=True)

            blocks.append(
                [
                    found.reshape((*output.shape, *point.shape))
                    for found, point in zip(in_chunks(rows, basis(output), chunk_size), run.points, strict=True)
                ]
            )
        found = run.out(nested(blocks, run.points_spec, run.outputs_spec))
        return (found, run.out(run.aux)) if has_aux else found

    return jacobian


def in_chunks(function: Callable, vectors: Tensor, chunk_size: int | None) -> list[Tensor]:
    """`over_batch`, for so many of the vectors at once; a single one needs no batch."""
    if len(vectors) and 1 in (chunk_size, len(vectors)):
        parts = [[x.unsqueeze(0) for x in function([v])] for v in vectors]
    else:
        size = chunk_size or max(len(vectors), 1)
        starts = range(0, max(len(vectors), 1), size)
        parts = [over_batch(function, [vectors[start : start + size]], "same") for start in starts]
    return parts[0] if len(parts) == 1 else [torch.cat(column) for column in zip(*parts, strict=True)]
