"""Derivatives of functions of tensors: Jacobians, Hessians, and their products with vectors.

Products from the left are built on `autograd.grad`, and Jacobian-vector products J·v on forward mode
(transforms/forward.py).

`inputs` is a tensor or a tuple of tensors, and so is the result of `func`; results are nested like these.
With `strict=True` a result that does not depend on an input is an error instead of zero. What depends on what is read
off the graph: products J·v are then computed with the *double-backward trick*. g(u) = Jᵀ·u is linear in u, so the
derivative of g along v, computed by backward, is (Jᵀ)ᵀ·v = J·v (https://j-towns.github.io/2017/06/12/A-new-trick.html).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tensorgrad.autograd.gradients import grad
from tensorgrad.autograd.modes import enable_grad
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import PLAIN, Tensor
from tensorgrad.transforms.batch_map import basis, over_batch
from tensorgrad.transforms.forward import Level
from tensorgrad.transforms.linearized import Linearized

Tensors = Tensor | tuple[Tensor, ...]

_FROM_FUNCTION = "outputs of the user-provided function"
_STRICT = "This is not allowed in strict mode"

# Strict mode's messages for missing gradients, {i} being the index ...
_MISSING = {
    "output": f"The output of the user-provided function is independent of input {{i}}. {_STRICT}.",
    "product": "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the "
    f"double backward trick to compute forward mode gradients. {_STRICT}.",
    "jacobian": f"The jacobian of the user-provided function is independent of input {{i}}. {_STRICT}.",
    "hessian product": f"The hessian of the user-provided function is independent of entry {{i}} in the grad_jacobian. "
    f"{_STRICT} as it prevents from using the double backward trick to replace forward mode AD.",
}
# ... and for values that should require grad but do not.
_CONSTANT = {
    "output": "Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode.",
    "gradient": f"The gradient with respect to input {{i}} is independent of the inputs of the user-provided function. "
    f"{_STRICT}.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to "
    f"input {{i}} is independent of the input. {_STRICT}. You should ensure that your function is twice differentiable "
    "and that the jacobian depends on the inputs (this would be violated by a linear function for example).",
}


def vjp(func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """Returns the outputs of `func`, and the vector-Jacobian product vᵀ·J at `inputs`, by one backward pass.

    Args:
        v: Shaped like the outputs; may be omitted for a single output of one element (means 1).
        create_graph: Make both results differentiable.
        func: a function of tensors that returns one or several.
        inputs: a tensor, or a tuple of tensors.
        strict: whether an output that does not depend on an input is an error.

    Returns:
        (outputs, product); the product is shaped like `inputs`.

    >>> torch.autograd.functional.vjp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with enable_grad():
        several, points = _given(inputs, "inputs", "vjp")
        points = _attached(points, create_graph)
        many, outputs = _given(func(*points), _FROM_FUNCTION, "vjp")
        _require("output", outputs, strict)
        if v is None and (len(outputs) != 1 or outputs[0].numel() != 1):
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single Tensor with a single "
                "element."
            )
        cotangents = _vector(v, outputs, many, "vjp")
        product = _filled("output", _pull(outputs, points, cotangents, create_graph), points, strict, create_graph)
    return _shown(outputs, many, create_graph), _shown(product, several, create_graph)


def jvp(func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """Returns the outputs of `func`, and the Jacobian-vector product J·v at `inputs`, in forward mode.

    Args:
        v: Shaped like the inputs; may be omitted for a single input of one element (means 1).
        create_graph: Make both results differentiable.

    Returns:
        (outputs, product); the product is shaped like the outputs.

    >>> torch.autograd.functional.jvp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with enable_grad():
        several, points = _given(inputs, "inputs", "jvp")
        tangents = _direction(v, points, several, "jvp")
        points = _attached(points, create_graph)
        by: Callable = _jvp if not strict and _are_plain(points) else partial(_jvp_by_backward, strict=strict)
        many, outputs, product = by(func, points, tangents, create_graph)
    return _shown(outputs, many, create_graph), _shown(product, many, create_graph)


def _jvp(func, points, tangents, create_graph: bool):
    with Level(of_duals=True) as level:
        many, outputs = _given(func(*map(level.dual, points, tangents)), _FROM_FUNCTION, "jvp")
        product = [level.tangent_of(o) for o in outputs]
    return many, outputs, _filled("product", product, outputs, False, create_graph)


def _jvp_by_backward(func, points, tangents, create_graph: bool, strict: bool):
    many, outputs = _given(func(*points), _FROM_FUNCTION, "jvp")
    _require("output", outputs, strict)
    cotangents = tuple(o.new_zeros(o.shape).requires_grad_() for o in outputs)
    pulled = _pull(outputs, points, cotangents, True)
    if strict:
        _require_all(pulled, "gradient")
    pushed = _pull(pulled, cotangents, tangents, create_graph)
    missing = "product" if any(g is not None for g in pulled) else "output"
    return many, outputs, _filled(missing, pushed, outputs, strict, create_graph)


def jacobian(
    func: Callable,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
):
    """Returns the Jacobian of `func` at `inputs`, of shape `output.shape + input.shape`.

    Args:
        create_graph: Make the result differentiable.
        vectorize: Compute all rows (or columns) at once, as `torch.func.vmap` does.
        strategy: "reverse-mode" computes rows (one backward pass per output element), "forward-mode" columns (one
            product J·v per input element).

    Returns:
        A tensor; for several inputs a tuple of them; for several outputs a tuple of these.

    >>> torch.autograd.functional.jacobian(lambda x: x * x, torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strict and (vectorize or strategy == "forward-mode"):
        other = "vectorized=True" if strategy == "reverse-mode" else 'strategy="forward-mode"'
        either = "`vectorize=False`" if strategy == "reverse-mode" else '`strategy="reverse-mode"`'
        raise RuntimeError(
            f"torch.autograd.functional.jacobian: `strict=True` and `{other}` are not supported together"
            f"{_YET[strategy]}. Please either set `strict=False` or {either}."
        )
    several, points = _given(inputs, "inputs", "jacobian")
    if not _are_plain(points):  # of other classes there are no batches, and no tangents
        vectorize, strategy = False, "reverse-mode"
    with enable_grad():
        if strategy == "forward-mode":
            many, blocks = _by_columns(func, points, create_graph, vectorize)
        else:
            many, blocks = _by_rows(func, points, create_graph, strict, vectorize)
    rows = tuple(_shown(row, several, create_graph) for row in blocks)
    return rows if many else rows[0]


_YET = {"reverse-mode": "", "forward-mode": " (yet)"}


def _by_rows(func, points, create_graph: bool, strict: bool, vectorize: bool):
    """For each output its Jacobian with respect to each input, with one backward pass per element of the output; or one
    for all elements."""
    points = _attached(points, create_graph)
    many, outputs = _given(func(*points), _FROM_FUNCTION, "jacobian")
    _require("output", outputs, strict)
    blocks = []
    for i, output in enumerate(outputs):
        if vectorize:
            blocks.append(_all_rows(output, points, create_graph))
            continue
        rows: list[list[Tensor]] = [[] for _ in points]
        flat = output.reshape(-1)
        for j in range(flat.numel()):  # one by one: the parts of unbind have one node, whose backward fills them all
            for k, gradient in enumerate(_pull((flat[j],), points, None, create_graph, keep=True)):
                if gradient is None and strict:
                    raise RuntimeError(
                        f"Output {i} of the user-provided function is independent of input {k}. {_STRICT}."
                    )
                if gradient is not None and strict and create_graph and not gradient.requires_grad:
                    raise RuntimeError(
                        f"The jacobian of the user-provided function is independent of input {i}. {_STRICT} when "
                        "create_graph=True."
                    )
                rows[k].append(points[k].new_zeros(points[k].shape) if gradient is None else gradient)
        blocks.append(tuple(_stacked(row, output, point) for row, point in zip(rows, points, strict=True)))
    return many, blocks


def _all_rows(output: Tensor, points, create_graph: bool) -> tuple[Tensor, ...]:
    """The Jacobian of an output with respect to each input, in one backward pass."""

    def rows(vectors: list[Tensor]) -> list[Tensor]:
        found = _pull((output,), points, vectors, create_graph, keep=True)
        return [p.new_zeros(p.shape) if g is None else g for g, p in zip(found, points, strict=True)]

    found = over_batch(rows, [basis(output)])
    return tuple(rows.reshape((*output.shape, *p.shape)) for rows, p in zip(found, points, strict=True))


def _stacked(rows: list[Tensor], output: Tensor, point: Tensor) -> Tensor:
    from tensorgrad.ops.join import stack

    shape = (*output.shape, *point.shape)
    return stack(rows).reshape(shape) if rows else point.new_zeros(shape)


def _by_columns(func, points, create_graph: bool, vectorize: bool):
    """The same as `_by_rows`, with one product J·v per element of the inputs."""
    if create_graph:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported '
            'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
            "`vectorize=True`."
        )
    many = [False]

    def outputs_of(result):
        many[0], outputs = _given(result, _FROM_FUNCTION, "jacobian")
        return outputs

    derivative = Linearized(lambda given: func(*given), _attached(points, False), outputs_of)
    blocks: list[list[Tensor]] = [[] for _ in derivative.outputs]
    for k, point in enumerate(points):

        def columns(vectors: list[Tensor], k: int = k) -> list[Tensor]:
            return derivative([vectors[0] if j == k else None for j in range(len(points))])

        found = over_batch(columns, [basis(point)])
        for block, output, column in zip(blocks, derivative.outputs, found, strict=True):
            block.append(column.movedim(0, -1).reshape((*output.shape, *point.shape)))
    return many[0], [tuple(block) for block in blocks]


def hessian(
    func: Callable,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
):
    """Returns the Hessian of a scalar function: the Jacobian of its gradient, of shape `input.shape + input.shape`.

    For several inputs it is a tuple of tuples with the block for each pair of inputs.

    Raises:
        RuntimeError: Unless `func` returns a single tensor of one element.

    >>> torch.autograd.functional.hessian(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    several, points = _given(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def scalar(*values):
        return _single(func(*values), "hessian", strict).reshape(())

    def gradient(*values):
        found = jacobian(scalar, values, create_graph=True)
        _require("jacobian", found, strict)
        return found

    blocks = jacobian(gradient, points, create_graph, strict, vectorize, outer_jacobian_strategy)
    return blocks if several else blocks[0][0]


def vhp(func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """Returns the value of a scalar function, and the product vᵀ·H with its Hessian, by two backward passes.

    Returns:
        (value, product); the product and `v` are shaped like `inputs`.

    >>> torch.autograd.functional.vhp(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        several, points = _given(inputs, "inputs", "vhp")
        vector = _direction(v, points, several, "vhp")
        points = _attached(points, create_graph)
        output = _single(func(*points), "vhp", strict)
        slopes = _pull((output,), points, None, True)
        if strict:
            _require_all(slopes, "jacobian")
        product = _pull(slopes, points, vector, create_graph)
        product = _filled("jacobian", product, points, strict, create_graph)
    return _shown((output,), False, create_graph), _shown(product, several, create_graph)


def hvp(func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """Returns the value of a scalar function, and the product H·v with its Hessian: forward mode over backward.

    H is symmetric for twice continuously differentiable functions: `vhp` then computes the same.

    Returns:
        (value, product); the product and `v` are shaped like `inputs`.

    >>> torch.autograd.functional.hvp(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        several, points = _given(inputs, "inputs", "hvp")
        vector = _direction(v, points, several, "hvp")
        points = _attached(points, create_graph)
        by: Callable = _hvp if not strict and _are_plain(points) else partial(_hvp_by_backward, strict=strict)
        output, product = by(func, points, vector, create_graph)
    return _shown((output,), False, create_graph), _shown(product, several, create_graph)


def _hvp(func, points, vector, create_graph: bool):
    with Level(of_duals=True) as level:
        duals = tuple(map(level.dual, points, vector))
        output = _single(func(*duals), "hvp", False)
        slopes = _pull((output,), duals, None, create_graph)
        product = [None if s is None else level.tangent_of(s) for s in slopes]
    return output, _filled("jacobian", product, points, False, create_graph)


def _hvp_by_backward(func, points, vector, create_graph: bool, strict: bool):
    output = _single(func(*points), "hvp", strict)
    slopes = _pull((output,), points, None, True)
    if strict:
        _require_all(slopes, "jacobian")
    weights = tuple(p.new_zeros(p.shape).requires_grad_() for p in points)
    curvature = _filled("jacobian", _pull(slopes, points, weights, True), points, strict, True)
    product = _pull(curvature, weights, vector, create_graph)
    return output, _filled("hessian product", product, points, strict, create_graph)


# --- helpers -------------------------------------------------------------------------------------------------------


def _given(value, what: str, who: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether `value` is a tuple, and `value` as a tuple. Raises: TypeError if it contains anything but tensors."""
    several = isinstance(value, tuple)
    values = value if several else (value,)
    for i, element in enumerate(values):
        if not isinstance(element, Tensor):
            which = f"value at index {i}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {who} must be either a Tensor or a tuple of Tensors but the {which} has type "
                f"{type(element)}."
            )
    return several, values


def _are_plain(points: tuple) -> bool:
    """Whether none of the tensors is of a class that overrides what is done with it."""
    return all(p.__class__ in PLAIN for p in points)


def _shown(values: Sequence[Tensor], several: bool, create_graph: bool):
    """The results in the caller's form: detached unless `create_graph`, and nested like the inputs."""
    values = tuple(values) if create_graph else tuple(v.detach() for v in values)
    return values if several else values[0]


def _attached(points: tuple, create_graph: bool) -> tuple:
    """New tensors with the same values: differentiation ignores tensors that `func` closes over."""
    if LOCAL.differentiating and not (create_graph and all(p.requires_grad for p in points)):
        raise RuntimeError(  # the result would be a constant for the transform
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) "
            "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to "
            "use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside "
            "of a function being transformed instead."
        )
    return tuple(p.view_as(p) if create_graph and p.requires_grad else p.detach().requires_grad_() for p in points)


def _pull(outputs, inputs, cotangents, create_graph: bool, keep: bool | None = None) -> tuple:
    """The gradients of the differentiable outputs (None entries are skipped); None if there is no gradient."""
    cotangents = (None,) * len(outputs) if cotangents is None else cotangents
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return grad([o for o, _ in pairs], inputs, [c for _, c in pairs], keep, create_graph, allow_unused=True)


def _filled(kind: str, gradients, like, strict: bool, create_graph: bool) -> tuple:
    """`gradients` with zeros for None; in strict mode None, and constants under `create_graph`, are errors."""
    for i, gradient in enumerate(gradients if strict else ()):
        if gradient is None:
            raise RuntimeError(_MISSING[kind].format(i=i))
        if create_graph and not gradient.requires_grad:
            matrix = "jacobian" if kind in ("output", "product") else "hessian"
            raise RuntimeError(
                f"The {matrix} of the user-provided function is independent of input {i}. {_STRICT} when "
                "create_graph=True."
            )
    return tuple(p.new_zeros(p.shape) if g is None else g for g, p in zip(gradients, like, strict=True))


def _require(kind: str, values, strict: bool) -> None:
    """Raises: RuntimeError in strict mode if a value does not require grad."""
    for i, value in enumerate(values if strict else ()):
        if not value.requires_grad:
            raise RuntimeError(_CONSTANT[kind].format(i=i))


def _require_all(gradients, kind: str) -> None:
    """Raises: RuntimeError if a gradient is missing or constant."""
    for i, gradient in enumerate(gradients):
        if gradient is None:
            raise RuntimeError(_MISSING["output"].format(i=i))
        if not gradient.requires_grad:
            raise RuntimeError(_CONSTANT[kind].format(i=i))


def _vector(v, like: tuple, several: bool, who: str) -> tuple:
    """`v`, checked against the tensors it belongs to; ones if it was omitted."""
    if v is None:
        return tuple(t.detach().new_ones(t.shape) for t in like)
    _, vector = _given(v, "v", who)
    if len(vector) != len(like):
        if several:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vector)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (entry, tensor) in enumerate(zip(vector, like, strict=True)):
        if entry.shape != tensor.shape:
            where = f"Entry {i} in " if several else ""
            raise RuntimeError(f"{where}v has invalid size: should be {tensor.shape} but got {entry.shape}.")
    return vector


def _direction(v, points: tuple, several: bool, who: str) -> tuple:
    """`v` as a vector in the space of the inputs. Raises: RuntimeError if it was omitted but is required."""
    if v is None and (len(points) != 1 or points[0].numel() != 1):
        raise RuntimeError(
            "The vector v can only be None if the input to the user-provided function is a single Tensor with a single "
            "element."
        )
    return _vector(v, points, several, who)


def _single(value, who: str, strict: bool) -> Tensor:
    """The single output of a scalar function. Raises: RuntimeError if there are several outputs or elements."""
    several, outputs = _given(value, _FROM_FUNCTION, who)
    _require("output", outputs, strict)
    if several:
        raise RuntimeError(f"The function given to {who} should return a single Tensor")
    if value.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {who} should contain a single element")
    return value
