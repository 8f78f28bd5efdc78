"""Forward mode: Jacobian-vector products, and what is made of them.

The function runs on a level of its own, on which each op also computes how its results change along the given tangents
(transforms/forward.py). No graph is needed, and none is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad._functorch.vmap import shown
from tensorgrad.func.derivatives import (
    ArgNums,
    check_outputs,
    jacrev,
    nested,
    output_and_aux,
    picked,
    replaced,
    require_real,
    require_tensors,
)
from tensorgrad.random import default_generators
from tensorgrad.rows.switches import differentiating
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch_map import basis, over_batch
from tensorgrad.transforms.forward import Level, check_shape
from tensorgrad.transforms.linearized import Linearized
from tensorgrad.utils._pytree import tree_flatten, tree_unflatten

_JVP = "jvp(f, primals, tangents)"


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Returns the value of a function, and the product of its Jacobian with a vector: its change along `tangents`.

    Args:
        func: Maps tensors to tensors, both possibly nested; with `has_aux` it returns (tensors, aux).
        primals: The tuple of its arguments.
        tangents: Nested like `primals`.
        strict: Raise an error if an output does not depend on the arguments.

    Returns:
        (value, product), nested alike; or (value, product, aux).

    Raises:
        RuntimeError: If primals and tangents do not match, or the result does not consist of tensors.

    >>> torch.func.jvp(torch.sin, (torch.zeros(2),), (torch.tensor([1.0, 2.0]),))
    (tensor([0., 0.]), tensor([1., 2.]))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    points, spec = tree_flatten(primals)
    vectors, vectors_spec = tree_flatten(tangents)
    if spec != vectors_spec:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {shown(spec)} and tangents with "
            f"structure {shown(vectors_spec)}"
        )
    for name, values in (("primals", points), ("tangents", vectors)):
        if not values:
            raise RuntimeError(f"{_JVP}: Expected {name} to contain at least one Tensor.")
        for value in values:
            if not isinstance(value, Tensor):
                raise RuntimeError(f"{_JVP}: Expected {name} to only contain Tensors, got {type(value)}")
    for point, vector in zip(points, vectors, strict=True):
        check_shape(point, vector)
    with Level() as level:
        duals = [level.dual(point, vector) for point, vector in zip(points, vectors, strict=True)]
        with differentiating():
            value, aux = func(*tree_unflatten(duals, spec)), None
        if has_aux:
            value, aux = output_and_aux(_JVP, value)
            require_tensors(aux)
        outputs, outputs_spec = tree_flatten(value)
        check_outputs(_JVP, outputs)
        found = [level.tangent_of(output) for output in outputs]
    if strict and any(t is None for t in found):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
            "allowed with strict=True."
        )
    pairs = zip(outputs, found, strict=True)
    product = tree_unflatten([o.new_zeros(o.shape) if t is None else t for o, t in pairs], outputs_spec)
    return (value, product, aux) if has_aux else (value, product)


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """Returns the value, and a function `tangents -> jvp(func, primals, tangents)[1]` that is cheap to call often.

    `func` itself runs once: the tangents are pushed through the ops that it called.

    >>> value, slope = torch.func.linearize(torch.sin, torch.zeros(2))
    >>> slope(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    points, points_spec = tree_flatten(primals)
    derivative = _linearized(func, points, points_spec, lambda given: given)
    outputs_spec = tree_flatten(derivative.result)[1]

    def multiply(*tangents: Any) -> Any:
        vectors, spec = tree_flatten(tangents)
        if spec != points_spec:
            raise RuntimeError(
                f"Expected the tangents {shown(spec)} to have the same argspec as the primals {shown(points_spec)}"
            )
        for i, (vector, point) in enumerate(zip(vectors, points, strict=True)):
            for what in ("shape", "device", "dtype"):
                has, wanted = getattr(vector, what), getattr(point, what)
                if has != wanted:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {has} in flattened pytree doesn't match the {what} {wanted} of the "
                        "corresponding primal."
                    )
        return tree_unflatten(derivative(vectors), outputs_spec)

    return derivative.result, multiply


def _linearized(func: Callable, points: list, spec: Any, arguments: Callable, has_aux: bool = False) -> Linearized:
    """`func` at `arguments(points, nested)`, ready for many tangents."""
    for value in points:
        if not isinstance(value, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(value)}")

    def outputs(result: Any) -> list:
        flat = tree_flatten(output_and_aux(_JVP, result)[0] if has_aux else result)[0]
        check_outputs(_JVP, flat)
        return flat

    def run(given: list) -> Any:
        with differentiating():
            return func(*arguments(tree_unflatten(given, spec)))

    return Linearized(run, points, outputs)


@contextmanager
def _random_numbers(randomness: str) -> Iterator[None]:
    """Raises: RuntimeError if random numbers were drawn that are not allowed."""
    state = default_generators.places()
    yield
    if randomness == "error" and not default_generators.standing_at(state):
        default_generators.go_to(state)
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )


def jacfwd(func: Callable, argnums: ArgNums = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """Like `jacrev`, but computed by columns: one product J·v for each element of the inputs, by `vmap`.

    `func` itself runs once, unless it writes in place or calls a custom function; `randomness` is that of `vmap`.

    >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    @functools.wraps(func, updated=())
    def jacobian(*args: Any) -> Any:
        require_real("jacfwd", args, "inputs")
        points, points_spec = tree_flatten(picked(args, argnums))
        with _random_numbers(randomness):
            derivative = _linearized(func, points, points_spec, lambda own: replaced(args, argnums, own), has_aux)
        value, aux = derivative.result if has_aux else (derivative.result, None)
        if has_aux:
            require_tensors(aux)
        outputs, outputs_spec = tree_flatten(value)
        require_real("jacfwd", outputs, "outputs")
        blocks: list[list[Tensor]] = [[] for _ in outputs]
        for j, point in enumerate(points):

            def columns(vectors: list[Tensor], j: int = j) -> list[Tensor]:
                return derivative([vectors[0] if k == j else None for k in range(len(points))])

            products = over_batch(columns, [basis(point)], randomness)
            for block, output, found in zip(blocks, outputs, products, strict=True):
                block.append(found.movedim(0, -1).reshape((*output.shape, *point.shape)))
        found = nested(blocks, points_spec, outputs_spec)
        return (found, aux) if has_aux else found

    return jacobian


def hessian(func: Callable, argnums: ArgNums = 0) -> Callable:
    """Returns the second derivatives of a function: the Jacobian, by columns, of its Jacobian by rows.

    >>> torch.func.hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
