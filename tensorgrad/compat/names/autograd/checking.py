"""Gradient checks: compares the derivatives of backward, and of forward mode, with finite differences.

A float is one real direction, a complex number two. For a real quantity L (the real or the imaginary part of
one element of an output) backward computes dL/dx for real inputs, and dL/dRe x + i·dL/dIm x for complex ones (PyTorch's
convention); central differences compute the same values from the function alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from tensorgrad.autograd.function import Function
from tensorgrad.autograd.gradients import grad
from tensorgrad.random.generator import Generator
from tensorgrad.sparse.gradcheck import densely, is_sparse
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.forward import Level


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` when a derivative is wrong."""


def gradcheck(
    func: Callable,
    inputs,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Checks backward through `func` at `inputs` against finite differences, for all inputs that require grad.

    Args:
        func: Takes the inputs, returns a tensor or a tuple of tensors; must be deterministic.
        inputs: A tensor or a tuple; should be float64 or complex128, since rounding errors dominate otherwise.
        eps: The step of the differences.
        atol, rtol: The tolerances, as in `allclose`.
        raise_exception: Raise GradcheckError instead of returning False.
        nondet_tol: How much two runs of backward may differ.
        check_undefined_grad: Also check that backward handles outputs that receive no gradient.
        check_grad_dtypes: Also check that gradients have the dtype of their inputs.
        check_batched_grad: Also check `is_grads_batched`.
        check_forward_ad: Check the tangents of forward mode.
        check_batched_forward_grad: Also check these under `vmap`.
        check_backward_ad: Check backward.
        fast_mode: Compare one random projection instead of the whole Jacobian.
        masked: Vary and compare only the stored elements of sparse inputs and results, not all.

    Raises:
        GradcheckError: If a derivative is wrong (see `raise_exception`).
        ValueError: If no input requires grad.

    >>> x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.exp, x)
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    try:
        inputs = _tuple(inputs)
        if any(map(is_sparse, inputs)):
            func, inputs = densely(func, inputs, bool(masked))
        _check_inputs(inputs)
        outputs = _tuple(func(*inputs))
        if any(map(is_sparse, outputs)):
            func, inputs = densely(func, inputs, bool(masked))
            outputs = _tuple(func(*inputs))
        outputs = _differentiable(outputs)
        if not outputs:
            _check_constant(func, inputs, eps)
            return True
        if check_forward_ad:
            _compare_tangents(func, inputs, eps, atol, rtol, fast_mode)
        if check_batched_forward_grad:
            _check_batched_tangents(func, inputs)
        if not check_backward_ad:
            return True
        compare = _compare_projection if fast_mode else _compare_jacobians
        compare(func, inputs, outputs, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol, dtypes=check_grad_dtypes)
        if check_batched_grad:
            _check_batched(inputs, outputs)
        _check_zero_gradients(inputs, outputs)
        if check_undefined_grad:
            _check_undefined(func, inputs)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable,
    inputs,
    grad_outputs=None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Checks the second derivatives of `func`: applies `gradcheck` to its gradient.

    Args:
        grad_outputs: The gradients of the outputs to differentiate at; random by default.
        gen_non_contig_grad_outputs: Make the random ones non-contiguous.
        (Others as in `gradcheck`.)

    >>> x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradgradcheck(torch.sin, x)
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for option, name in ((check_undefined_grad, "check_undefined_grad"), (check_batched_grad, "check_batched_grad")):
        if option and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    inputs = _tuple(inputs)
    if any(map(is_sparse, inputs)):
        func, inputs = densely(func, inputs, bool(masked))
    if grad_outputs is None:
        outputs = _differentiable(func(*inputs))
        cotangents = tuple(_random_like(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        cotangents = _tuple(grad_outputs)
    wanted = [i for i, x in enumerate(inputs) if _needs_grad(x)]

    def gradient(*args):
        points, gradients = args[: len(inputs)], args[len(inputs) :]
        outputs = _differentiable(func(*points))
        found = grad(outputs, [points[i] for i in wanted], gradients, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient, (*inputs, *cotangents), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked,
    )  # fmt: skip


# --- inputs and outputs --------------------------------------------------------------------------------------------


def _tuple(value) -> tuple:
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def _needs_grad(value) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _differentiable(outputs) -> tuple:
    return tuple(o for o in _tuple(outputs) if _needs_grad(o))


def _check_inputs(inputs: tuple) -> None:
    """Raises: ValueError if no input requires grad, RuntimeError if the elements of one share memory."""
    for i, x in enumerate(inputs):
        if not _needs_grad(x):
            continue
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=3,
            )
        if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )
    if not any(_needs_grad(x) for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


def _random_like(output: Tensor, spaced: bool) -> Tensor:
    """Uniform random values in [-1, 1) of the output's shape that require grad; not contiguous if `spaced`."""
    shape = (*output.shape, 2) if spaced else tuple(output.shape)
    values = output.detach().new_empty(shape).uniform_(-1, 1)
    return (values[..., 0] if spaced else values).requires_grad_()


def _parts(outputs: tuple) -> list:
    """The real quantities to differentiate: for output i its real part and, if it is complex, its imaginary part."""
    return [
        (i, imaginary) for i, o in enumerate(outputs) for imaginary in ((True, False) if o.is_complex() else (False,))
    ]


def _part(output: Tensor, imaginary: bool) -> Tensor:
    if not output.is_complex():
        return output
    return output.imag if imaginary else output.real


# --- finite differences --------------------------------------------------------------------------------------------


def _difference(func, inputs: tuple, k: int, step: Tensor, eps: float, only: Callable) -> list:
    """(f(x + step) - f(x - step)) / (2 eps) for the outputs selected by `only`, with `step` added to input k.

    The input is modified in place and restored: the function may also use it other than through its argument.
    """
    data = inputs[k].data
    original = data.clone()
    ends = []
    try:
        for sign in (1, -1):
            data.copy_(original + sign * step)
            ends.append([o.detach().clone() for o in only(func(*inputs))])
    finally:
        data.copy_(original)
    for above, below in zip(*ends, strict=True):
        for what, first, second in (("shape", above.shape, below.shape), ("dtype", above.dtype, below.dtype)):
            if first != second:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed by {eps}, but "
                    f"got: {what}s {first} and {second}."
                )
    return [(above - below) / (2 * eps) for above, below in zip(*ends, strict=True)]


def _directions(x: Tensor) -> list:
    """The unit steps of one element: 1, and i for complex numbers."""
    return [1, 1j] if x.is_complex() else [1]


def _numerical(func, inputs: tuple, k: int, eps: float, only: Callable = _differentiable) -> dict:
    """For each part of each output the matrix (elements of input k) × (elements of the output)."""
    from tensorgrad.ops.join import stack

    x = inputs[k]
    rows: dict = {}
    for j in range(x.numel()):
        slopes: dict = {}
        for unit in _directions(x):
            step = x.detach().new_zeros(x.shape).contiguous()
            step.view(-1)[j] = eps * unit
            outputs = _difference(func, inputs, k, step, eps, only)
            for i, imaginary in _parts(tuple(outputs)):
                slope = unit * _part(outputs[i], imaginary).reshape(-1)
                slopes[i, imaginary] = slopes[i, imaginary] + slope if (i, imaginary) in slopes else slope
        for part, slope in slopes.items():
            rows.setdefault(part, []).append(slope)
    return {part: stack(row) for part, row in rows.items()}


def _check_constant(func, inputs: tuple, eps: float) -> None:
    """Raises: GradcheckError if a function without differentiable outputs nevertheless depends on its inputs."""
    for k, x in enumerate(inputs):
        if _needs_grad(x):
            for matrix in _numerical(func, inputs, k, eps, only=_tuple_of_tensors).values():
                if bool(matrix.ne(0).any()):
                    raise GradcheckError("Numerical gradient for function expected to be zero")


def _tuple_of_tensors(outputs) -> tuple:
    return tuple(o for o in _tuple(outputs) if isinstance(o, Tensor))


# --- comparisons ---------------------------------------------------------------------------------------------------


def _compare_jacobians(func, inputs, outputs, *, eps, atol, rtol, nondet_tol, dtypes) -> None:
    wanted = [k for k, x in enumerate(inputs) if _needs_grad(x)]
    numerical = {k: _numerical(func, inputs, k, eps) for k in wanted}
    for i, imaginary in _parts(outputs):
        found = _analytical(outputs[i], [inputs[k] for k in wanted], imaginary, nondet_tol, dtypes)
        for nr, (k, analytical) in enumerate(zip(wanted, found, strict=True)):
            if inputs[k].numel() and outputs[i].numel():
                _require_close(analytical, numerical[k][i, imaginary], i, nr, outputs[i], imaginary, atol, rtol)


def _analytical(output: Tensor, points: list, imaginary: bool, nondet_tol: float, dtypes: bool) -> list:
    """For each input the matrix (its elements) × (elements of the output), with one backward pass per column."""
    from tensorgrad.ops.join import stack

    columns: list[list] = [[] for _ in points]
    for j in range(output.numel()):
        cotangent = output.detach().new_zeros(output.shape).contiguous()
        cotangent.view(-1)[j] = 1j if imaginary else 1
        twice = [grad(output, points, cotangent, retain_graph=True, allow_unused=True) for _ in range(2)]
        for column, point, first, second in zip(columns, points, *twice, strict=True):
            column.append(_checked(point, first, second, nondet_tol, dtypes).reshape(-1))
    return [
        stack(column, 1) if column else point.detach().new_zeros((point.numel(), 0))
        for column, point in zip(columns, points, strict=True)
    ]


def _checked(point: Tensor, first: Tensor | None, second: Tensor | None, nondet_tol: float, dtypes: bool) -> Tensor:
    """A gradient, checked for shape, dtype and reproducibility; zeros for None."""
    if first is None or second is None:
        return point.detach().new_zeros(point.shape)
    if dtypes and first.dtype is not point.dtype:
        raise GradcheckError("Gradient has dtype mismatch")
    if first.shape != point.shape:
        raise GradcheckError("Analytical gradient has incorrect size")
    if first.numel() and float((first - second).abs().max().item()) > nondet_tol:
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
            "different values, although analytical gradient matches numerical gradient."
            f"The tolerance for nondeterminism was {nondet_tol}."
        )
    return first.detach()


def _require_close(
    analytical, numerical, i: int, k: int, output: Tensor, imaginary: bool, atol: float, rtol: float
) -> None:
    numerical = numerical.to(analytical.dtype) if analytical.is_complex() else numerical
    error = (analytical - numerical).abs()
    if bool((error <= atol + rtol * numerical.abs()).all()):
        return
    part = ""
    if output.is_complex():
        part = f"While considering the {'imaginary' if imaginary else 'real'} part of complex outputs only, "
    raise GradcheckError(
        f"{part}Jacobian mismatch for output {i} with respect to input {k},\nnumerical:{numerical}\n"
        f"analytical:{analytical}\n"
    )


def _compare_projection(func, inputs, outputs, *, eps, atol, rtol, nondet_tol, dtypes) -> None:
    """Compares one scalar per (input, output): the derivative of a random combination along a random direction."""
    generator = Generator()  # the same directions each time, and no numbers of the program's
    wanted = [k for k, x in enumerate(inputs) if _needs_grad(x)]
    directions = {k: _unit(inputs[k], generator) for k in wanted}
    numerical = {k: _difference(func, inputs, k, directions[k] * eps, eps, _differentiable) for k in wanted}
    for i, output in enumerate(outputs):
        cotangent = _unit(output, generator)
        points = [inputs[k] for k in wanted]
        twice = [grad(output, points, cotangent, retain_graph=True, allow_unused=True) for _ in range(2)]
        for nr, (k, first, second) in enumerate(zip(wanted, *twice, strict=True)):
            gradient = _checked(inputs[k], first, second, nondet_tol, dtypes)
            slope = _inner(cotangent, numerical[k][i])
            allowed = atol * max(1.0, float(_inner(cotangent.abs(), cotangent.new_ones(cotangent.shape).abs())))
            found = _inner(gradient, directions[k])
            if not abs(found - slope) <= allowed + rtol * abs(slope):
                raise GradcheckError(
                    f"Jacobian mismatch for output {i} with respect to input {nr},\nnumerical:{slope}\n"
                    f"analytical:{found}\nThese are the derivatives of one random combination of the output's elements "
                    "along one random direction (fast mode). With fast_mode=False all elements are compared.\n"
                )


def _unit(tensor: Tensor, generator: Generator) -> Tensor:
    """A random direction of unit length."""
    values = tensor.detach().new_empty(tensor.shape, device="cpu").normal_(generator=generator).to(tensor.device)
    length = float((values.abs() ** 2).sum().sqrt().item())
    return values / length if length else values


def _inner(a: Tensor, b: Tensor) -> float:
    """Re(conj(a)·b), the inner product that relates cotangents to gradients."""
    product = (a.conj() * b if a.is_complex() or b.is_complex() else a * b).sum()
    return float(product.real.item() if product.is_complex() else product.item())


# --- forward mode --------------------------------------------------------------------------------------------------


def _pushed(func, inputs: tuple, k: int, tangent: Tensor) -> tuple:
    """The tangents of the outputs if only input k has one; zeros for those that have none."""
    with Level(of_duals=True) as level:
        duals = [level.dual(x, tangent) if i == k else x for i, x in enumerate(inputs)]
        outputs = [o for o in _tuple_of_tensors(func(*duals)) if o.requires_grad or level.tangent_of(o) is not None]
        found = [level.tangent_of(o) for o in outputs]
    return tuple(
        o.detach().new_zeros(o.shape) if t is None else t.detach() for o, t in zip(outputs, found, strict=True)
    )


def _compare_tangents(func, inputs: tuple, eps: float, atol: float, rtol: float, fast: bool) -> None:
    generator = Generator()
    for nr, k in enumerate(k for k, x in enumerate(inputs) if _needs_grad(x)):
        x = inputs[k]
        for tangent in [_unit(x, generator)] if fast else _unit_tangents(x):
            numerical = _difference(func, inputs, k, tangent * eps, eps, _differentiable)
            found = _pushed(func, inputs, k, tangent)
            for i, (analytical, slope) in enumerate(zip(found, numerical, strict=True)):
                error = (analytical - slope).abs()
                if not bool((error <= atol + rtol * slope.abs()).all()):
                    raise GradcheckError(
                        f"Jacobian computed with forward mode mismatch for output {i} with respect to input {nr},\n"
                        f"numerical:{slope}\nanalytical:{analytical}\nThese are the derivatives along the direction "
                        f"{tangent}.\n"
                    )


def _unit_tangents(x: Tensor):
    """Yields one tangent for each element of a real tensor, two (1 and i) for each of a complex one."""
    for j in range(x.numel()):
        for unit in _directions(x):
            tangent = x.detach().new_zeros(x.shape).contiguous()
            tangent.view(-1)[j] = unit
            yield tangent


def _check_batched_tangents(func, inputs: tuple) -> None:
    """Raises: GradcheckError if `vmap` over tangents and one call per tangent give different results."""
    from tensorgrad.func.vmap import vmap
    from tensorgrad.ops.join import stack

    for nr, k in enumerate(k for k, x in enumerate(inputs) if _needs_grad(x)):
        rows = [_random_like(inputs[k], False).detach() for _ in range(2)]
        single = [_pushed(func, inputs, k, row) for row in rows]
        batched = vmap(lambda row, k=k: _pushed(func, inputs, k, row))(stack(rows))
        for i, (found, *expected) in enumerate(zip(batched, *single, strict=True)):
            if bool(((found - stack(expected)).abs() > 1e-8).any()):
                raise GradcheckError(f"Batched tangents differ for output {i} with respect to input {nr}")


# --- other requirements ----------------------------------------------------------------------------------------------


def _check_batched(inputs: tuple, outputs: tuple) -> None:
    """Raises: GradcheckError if `is_grads_batched` and one call per gradient give different results."""
    from tensorgrad.ops.join import stack

    points = [x for x in inputs if _needs_grad(x)]
    for i, output in enumerate(outputs):
        rows = [_random_like(output, False).detach() for _ in range(2)]
        single = [grad(output, points, row, retain_graph=True, allow_unused=True) for row in rows]
        batched = grad(output, points, stack(rows), retain_graph=True, allow_unused=True, is_grads_batched=True)
        for k, (found, *expected) in enumerate(zip(batched, *single, strict=True)):
            if (found is None) != (expected[0] is None) or (
                found is not None and bool(((found - stack(expected)).abs() > 1e-8).any())
            ):
                raise GradcheckError(f"Batched gradients differ for output {i} with respect to input {k}")


def _check_zero_gradients(inputs: tuple, outputs: tuple) -> None:
    """Raises: GradcheckError if zero gradients do not yield zeros of the right dtype, device and shape."""
    points = [x for x in inputs if _needs_grad(x)]
    zeros = [o.detach().new_zeros(o.shape) for o in outputs]
    for point, gradient in zip(points, grad(outputs, points, zeros, retain_graph=True, allow_unused=True), strict=True):
        if gradient is None:
            continue
        if bool(gradient.ne(0).any()):
            raise GradcheckError("backward not multiplied by grad_output")
        for what in ("dtype", "device", "shape"):
            if getattr(gradient, what) != getattr(point, what):
                raise GradcheckError(f"grad is incorrect {dict(dtype='type', shape='size').get(what, what)}")


class _Undefined(Function):
    """Returns its input; backward passes no gradient on."""

    @staticmethod
    def forward(ctx, value):
        return value.view_as(value)

    @staticmethod
    def backward(ctx, g):
        return None


def _check_undefined(func, inputs: tuple) -> None:
    """Raises: GradcheckError if backward fails, or is not zero, when some or all outputs receive no gradient."""
    points = [x for x in inputs if _needs_grad(x)]
    count = len(_differentiable(func(*inputs)))
    for missing in [set(range(count)), *({i} for i in range(count) if count > 1)]:
        outputs = [_Undefined.apply(o) if i in missing else o for i, o in enumerate(_differentiable(func(*inputs)))]
        try:
            found = grad(outputs, points, [o.detach().new_zeros(o.shape) for o in outputs], allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError("Expected backward function to handle undefined output grads.") from error
        if any(g is not None and bool(g.ne(0).any()) for g in found):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
            )


for _function in (gradcheck, gradgradcheck):
    _function.GradcheckError = GradcheckError  # type: ignore[union-attr]
