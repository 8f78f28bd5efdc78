"""The two functions that compute gradients: `backward` fills `.grad`, `grad` returns them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tensorgrad.autograd import engine
from tensorgrad.autograd.edges import GradientEdge, edge_at, shape_and_type
from tensorgrad.autograd.views import is_end
from tensorgrad.dtypes import F32, from_numpy_dtype
from tensorgrad.errors import warn, wrong_argument
from tensorgrad.overriding import function_classes
from tensorgrad.rows.switches import LOCAL
from tensorgrad.size import Size
from tensorgrad.storage.stubs import INFERENCE, STORAGES
from tensorgrad.storage.wrapper_subclass import NoStorage
from tensorgrad.tensor import PLAIN, Tensor, share, wrap


def roots_of(tensors, gradients, create_graph: bool, who: str):
    """Pairs each output's edge with its gradient (ones for a scalar).

    Raises: RuntimeError for an output that does not require grad, or a missing or misshapen gradient.
    """
    roots = []
    for i, (position, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        edge = edge_at(position)
        if edge is None or is_end(edge):
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        shape, dtype, array_type = shape_and_type(position)
        if gradient is None:
            if math.prod(shape) != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if dtype.kind == "c":
                raise RuntimeError(
                    f"grad can be implicitly created only for real scalar outputs but got {from_numpy_dtype(dtype)}"
                )
            like = None if isinstance(position, GradientEdge) else position
            roots.append((edge, _ones(shape, dtype, STORAGES[array_type], like)))
            continue
        if not isinstance(gradient, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
        if gradient._array.shape != shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and output[{i}] has a shape of "
                f"{Size(shape)}."
            )
        if gradient._array.dtype.kind == "c" and dtype.kind != "c":
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. "
                f"Mismatch in dtype: grad_output[{i}] has a dtype of {gradient.dtype} and output[{i}] has a dtype of "
                f"{from_numpy_dtype(dtype)}."
            )
        roots.append((edge, gradient._values if gradient.is_nested else gradient))  # type: ignore[arg-type]
    return roots


_NOWHERE = (object(), 0)


def _targets(positions) -> list:
    """The edges of tensors or graph positions; for a view without a history one that no gradient reaches."""
    return [_NOWHERE if edge is not None and is_end(edge) else edge for edge in map(edge_at, positions)]


# (tensor) -> ones, for classes that keep their values themselves (library/operator_gradients.py).
ONES_LIKE: Any = None
_ONE = np.ones((), F32)


def _ones(shape: tuple, dtype, storage, like: Tensor | None = None) -> Tensor:
    """Ones on the device of the tensor `like`, or on the current one."""
    if storage.xp is np and dtype is F32 and not shape:
        ones = _ONE.copy()  # takes half as long as a new array
        return wrap(ones) if INFERENCE.on else share(ones, None)
    if storage.xp is not None and not storage.several:
        return wrap(storage.xp.array(1, dtype) if not shape else storage.xp.ones(shape, dtype))
    if storage is NoStorage:
        return ONES_LIKE(like)
    made = storage.empty(shape, dtype, storage.current_device() if like is None else storage.device_of(like._array))
    storage.write(made, 1)
    return wrap(made)


def _as_list(given) -> list:
    """One or several tensors or edges as a list."""
    if isinstance(given, Tensor | GradientEdge):
        return [given]
    if not isinstance(given, Iterable):
        raise wrong_argument(given, "outputs", "Tensor or tuple of Tensors")
    return list(given)


def _listed(value, count: int) -> list:
    if value is None:
        return [None] * count
    values = [value] if isinstance(value, Tensor) else list(value)
    if len(values) != count:
        raise RuntimeError(f"got {count} tensors and {len(values)} gradients")
    return values


def refuse_backward() -> None:
    """Raises: RuntimeError, as leaves outside of a transform cannot have the gradients of what it makes."""
    raise RuntimeError(
        "backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
        "functorch.vjp instead or call backward() outside of functorch transforms."
    )


def backward(
    tensors,
    grad_tensors=None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables=None,
    inputs=None,
) -> None:
    """Adds to `.grad` of every leaf that `tensors` depend on (or only of `inputs`) the gradient of their sum.

    Args:
        tensors: One or several outputs: tensors, or graph positions (`graph.get_gradient_edge`).
        grad_tensors: The initial gradient of each output, of its shape; may be None for scalars (means 1).
        retain_graph: Keep what the graph saved, to run backward again; defaults to `create_graph`.
        create_graph: Record the backward pass itself, for higher derivatives.
        grad_variables: The former name of `grad_tensors`.
        inputs: The only tensors whose `.grad` is to be filled (one, several, or a dict of them).

    Raises:
        RuntimeError: If an output is not differentiable, or if the graph was already used and freed.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.autograd.backward([x.sum(), x * x], [None, torch.tensor([1.0, 10.0])])
    >>> x.grad
    tensor([ 3., 41.])
    """
    if grad_variables is not None:
        warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    for transform in LOCAL.transforms:
        transform.refuse_backward()
    if LOCAL.differentiating:
        refuse_backward()
    if create_graph:
        _warn_of_cycles()
    tensors = _as_list(tensors)
    roots = roots_of(tensors, _listed(grad_tensors, len(tensors)), create_graph, "backward")
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        engine.run(roots, keep_graph=keep, create_graph=create_graph)
        return
    wanted = _as_list(inputs.values() if isinstance(inputs, dict) else inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    targets = _targets(wanted)
    for position in wanted:
        if isinstance(position, Tensor):
            position.retain_grad()  # for tensors that are not leaves, the pass itself then fills `.grad`
    found = engine.run(roots, keep_graph=keep, create_graph=create_graph, targets=targets, fills=True)
    for (leaf, _), gradient in dict(zip(targets, found, strict=True)).items():
        if gradient is not None and isinstance(leaf, Tensor):
            engine.keep_gradient(leaf, gradient, create_graph)


def _warn_of_cycles() -> None:
    from tensorgrad.settings import warn_once

    warn_once(
        "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
        "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
        "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break "
        "the cycle and avoid the leak."
    )


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Returns the gradients of the sum of `outputs` with respect to each of `inputs`, without changing `.grad`.

    Args:
        outputs: One or several tensors or graph positions (`graph.get_gradient_edge`).
        inputs: One or several of these, for a tuple of gradients; or a dict of them, for a dict of gradients.
        grad_outputs: The initial gradient of each output; with `is_grads_batched` each has an additional leading
            dimension, and so have the results: all are computed in one pass (`torch.func.vmap`).
        allow_unused: Return None for inputs that no output depends on, instead of raising an error.
        materialize_grads: Return zeros for those.
        only_inputs: Ignored, as in PyTorch.
        retain_graph: Whether the graph stays for another pass; by default only with `create_graph`.
        create_graph: Whether the pass itself is recorded, so that gradients can be differentiated.
        is_grads_batched: See `grad_outputs`.

    Raises:
        RuntimeError: If an input does not require grad, or is unused and that is not allowed.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> torch.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if isinstance(inputs, dict):
        options = (retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched, materialize_grads)
        found = grad(outputs, list(inputs.values()), grad_outputs, *options)
        return dict(zip(inputs, found, strict=True))
    types = () if LOCAL.inside_override else tuple(_overriding(outputs, inputs))
    if types:
        named = {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph,
            "only_inputs": only_inputs, "allow_unused": allow_unused, "is_grads_batched": is_grads_batched,
            "materialize_grads": materialize_grads,
        }  # fmt: skip
        return function_classes.call(grad, types, (outputs, inputs), named)
    if not only_inputs:
        warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outputs, inputs = _as_list(outputs), _as_list(inputs)
    gradients = _listed(grad_outputs, len(outputs))
    keep = create_graph if retain_graph is None else retain_graph
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    targets = _targets(inputs)
    if any(t is None for t in targets):
        roots_of(outputs[:1], gradients[:1], create_graph, "grad")  # PyTorch looks at the outputs first
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    if is_grads_batched:
        _check_batches(outputs, gradients)
        more = {"allow_unused": allow_unused, "materialize_grads": materialize_grads}
        return tuple(OVER_BATCH(lambda g: grad(outputs, inputs, g, keep, create_graph, **more), gradients))
    roots = roots_of(outputs, gradients, create_graph, "grad")
    found = engine.run(roots, keep_graph=keep, create_graph=create_graph, targets=targets)
    results = []
    for i, (gradient, position) in enumerate(zip(found, inputs, strict=True)):
        if gradient is None:
            if not allow_unused:
                raise RuntimeError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior."
                )
            if materialize_grads and isinstance(position, GradientEdge):
                raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
            gradient = position.new_zeros(position.shape, requires_grad=create_graph) if materialize_grads else None
        elif isinstance(position, Tensor) and position.is_nested:
            gradient = position._with(gradient)  # type: ignore[attr-defined]
        elif hasattr(position, "_as_gradient"):  # a class of tensors says what a gradient of one is
            gradient = position._as_gradient(gradient)
        elif not create_graph:
            gradient = _writable(gradient)
        results.append(gradient)
    return tuple(results)


def _overriding(*given) -> Iterator[type]:
    """Yields the classes of tensors that see which functions are called. (Others say what their gradients are.)"""
    for tensors in given:
        for t in _as_list(tensors):
            cls = t.__class__
            if (
                cls not in PLAIN
                and isinstance(t, Tensor)
                and not (cls._sees_rows or t.is_nested or hasattr(t, "_as_gradient"))
            ):
                yield cls


def _check_batches(outputs: list, gradients: list) -> None:
    """Raises: RuntimeError for a batch of gradients that are not of their output's shape."""
    for i, (position, given) in enumerate(zip(outputs, gradients, strict=True)):
        shape = shape_and_type(position)[0]
        if isinstance(given, Tensor) and tuple(given.shape[1:]) != tuple(shape):
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                f"dimension: grad_output[{i}] has a shape of {given.shape}, but output[{i}] one of {Size(shape)}"
            )


def _writable(gradient: Tensor) -> Tensor:
    """Returns the gradient, or a copy if several of its elements share memory: a program may write to what it gets.

    That of a sum is, which PyTorch returns so, and refuses to write to. Nor is it a view (of what the pass computed,
    under no_grad), which must not be written.
    """
    if 0 in getattr(gradient._array, "strides", ()) and gradient.numel() > 1:
        return gradient.clone()
    if gradient._view is None or gradient.requires_grad:
        return gradient
    return share(gradient._array, gradient._storage, gradient.__class__)  # with its tangent, which `detach` would drop


OVER_BATCH: Any = None  # runs a function on a batch (transforms/batch_map.py)


def _backward_method(self: Tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
    """Adds the gradient of this tensor to `.grad` of every leaf it depends on; see `torch.autograd.backward`.

    Args:
        gradient: the gradient of this tensor, of its shape; 1 if None, which is for tensors of one element.
        retain_graph: whether the graph stays for another pass; by default only with `create_graph`.
        create_graph: whether the pass itself is recorded, so that gradients can be differentiated.
        inputs: the leaves whose `.grad` is added to; by default all.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if gradient is None and inputs is None and self._requires_grad is True and self._array.size == 1:
        array = self._array
        if (
            array.dtype.kind == "f" and not LOCAL.differentiating and not LOCAL.transforms
        ):  # a real loss, the usual case
            roots = [(self._edge or (self, 0), _ones(array.shape, array.dtype, STORAGES[array.__class__], self))]
            keep = create_graph if retain_graph is None else retain_graph
            if create_graph:
                _warn_of_cycles()
            return engine.run(roots, keep_graph=keep, create_graph=create_graph)
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


Tensor.backward = _backward_method  # type: ignore[assignment]
