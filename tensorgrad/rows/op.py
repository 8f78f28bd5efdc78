"""An op is one row: its signature, its kernel, and one derivative formula per differentiable input.

    mul = pointwise("mul(input, other)", "multiply",
                    input=lambda g, other: g * other.conj(), other=lambda g, input: g * input.conj())

A formula is an ordinary function over tensors. Its own parameter names say what the graph saves: `g` is the gradient
of the output, `out` the output, any other name a parameter of the op; `input_shape` (`tensors_shape`, ...) saves only
a shape, `input_dtype` only a dtype. Nothing else is kept.

A fused op has no formulas. Its `twin`, a function over tensors with the op's parameters, computes the same in simpler
ops, and derivatives go through it (`dispatch/twins.py`). The graph then saves the op's inputs.

Tangents (forward mode) follow from the kind, the formulas or the twin; or the row says what they follow from: what the
op is linear in, what its Jacobian is like, or which elements it `selects`. Where nothing of this holds, it has a `jvp`:
a function whose parameters are named as those of a formula, and `input_t` for the tangent of the parameter `input`
(zeros if it has none). It returns the tangent of each differentiable output.

Either kind of row may have a `backward_kernel`: it takes and returns arrays, all gradients together, and is used where
the backward pass is not recorded itself. Its parameter names say what is saved for it, as a formula's do; two more are
`needs` (for each input whether its gradient is needed: the others may be None) and, in place of `g`, `grads` (of ops
with several outputs). What the kernel computes for it besides the outputs is the row's `cache`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import unwrap
from typing import Any, Literal, NamedTuple

from tensorgrad.rows.kernel_tables import OPS, KernelTable, array_function
from tensorgrad.rows.signature import Param, arguments_of, parse
from tensorgrad.rows.strides import BY_KIND

LINEAR_KINDS = ("view", "views", "cast")  # linear in their first input, all of them

# Variables of the generated functions.
RESERVED = r"made|arrays?|steps|node|saved|storage|view|error|[xrems]\d+|d_.*"


class WhenAsked:
    """An attribute that is worked out when it is first read. (With a `__getattr__`, Python reads every attribute of the
    class several times as slowly.)"""

    def __init__(self, work_out: Callable[[Any], Any]) -> None:
        self.work_out = work_out

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return vars(instance).setdefault(self.name, self.work_out(instance))


class Selection(NamedTuple):
    """How an op whose result is elements of its first input finds them, by indices that it returns.

    `gather` takes these elements of any tensor, given for the first input: that of the tangent is the tangent of the
    result. `scatter` is the formula: it puts a gradient back to where they were.
    """

    gather: Callable
    scatter: Callable


Jacobian = Literal["", "zero", "symmetric", "weights"]


def no_change(g: Any) -> Any:
    """The formula of an input that the result does not change with. (It is summed to the shape of the input.)"""
    return g.new_zeros(g.shape)


class Op:
    """A row of the op table: what an op is. The kinds make it (`dispatch/kinds.py`); it never changes.

    What a row says:

    signature       as written; `name` and `params` are read from it
    kind            the rules that it follows: "pointwise", "reduction", "view", "views", "cast", "same shape",
                    "sample" (random numbers) or "op"
    kernel          the name of a NumPy function, "family.function" of kernels/array, or a function (xp, *arrays)
    rule            of pointwise ops: "same" computes in the promoted dtype, "float" makes floats of integers first
    takes_number    for each tensor parameter, whether a Python number may be given for it
    prepare         a function over the arrays and plain values before the kernel: checks, normalized arguments
    shape           the results' shapes (and dtypes) from those of the inputs, for the meta device: a function, or the
                    name of one, "family.function" of kernels/array
    strides         the rule for the strides of the results (rows/strides.py); by default that of the kind
    outputs         names of the results; the first `differentiable_outputs` of them have gradients
    format_of       inputs whose memory format the results take on; `format_ranks`: only with so many dimensions
    formulas        input -> its derivative; or `backward`: one function for the gradients of all inputs `wrt`
    twin            the same in simpler ops
    backward_kernel gradients on arrays; `cache`: what the kernel computes for it besides its outputs
    linear_in       the result as a sum of products of inputs, such as "input * weight + bias"; a number may be a term
    selects         how the result is found among the elements of the first input (a `Selection`), if it is
    jacobian        what is known of it: "zero" (nothing moves the result; formulas follow for the inputs `wrt`),
                    "symmetric" (the formula gives the tangent, too), or "weights" (each element of the input moves one
                    element of the result, which lacks the last dimensions: the formula gives their weights)
    jvp             the tangents of the results, if nothing else says them (transforms/tangents.py)
    jvp_kernel      the tangent on arrays, if an op of one result has something better than `jvp` or its twin
    batch           how it runs on a batch, if the kind does not say it (transforms/batch_rules.py)
    batch_kernel    the same on arrays, and `batch_backward` its gradients, if that is better than `batch` or the twin
    on_arrays       the formulas are plain arithmetic or reshape the gradient, which works on arrays as on tensors
    backward_name   of its nodes in the graph (`grad_fn`)
    doc             for users

    What follows from it: `wrt` (the inputs that can have a gradient), `saved` (tensor -> the inputs whose gradient
    needs it), `kept` (plain values that formulas need), `linear` (the terms of `linear_in`) and `through_twin`
    (gradients come from the twin). `compiled` is what is made of the row when it is used.
    """

    signature: str
    name: str
    params: tuple[Param, ...]
    kind: str
    kernel: str | Callable | None
    rule: str
    takes_number: tuple[bool, ...]
    prepare: Callable | None
    shape: str | Callable | None
    strides: str | Callable
    outputs: tuple[str, ...]
    differentiable_outputs: int
    format_of: tuple[str, ...]
    format_ranks: tuple[int, ...]
    formulas: dict[str, Callable]
    backward: Callable | None
    wrt: tuple[str, ...]
    twin: Callable | None
    through_twin: bool
    backward_kernel: str | Callable
    cache: tuple[str, ...]
    linear_in: str
    selects: Selection | None
    jacobian: Jacobian
    jvp: Callable | None
    jvp_kernel: str | Callable
    batch: str | Callable
    batch_kernel: str | Callable
    batch_backward: str | Callable
    on_arrays: bool
    backward_name: str
    doc: str
    compiled: Compiled

    linear: Any = WhenAsked(lambda op: _terms(op))  # tuple[tuple[str, ...], ...]
    saved: Any = WhenAsked(lambda op: _needed(op)[0])  # dict[str, set[str]]
    kept: Any = WhenAsked(lambda op: _needed(op)[1])  # tuple[str, ...]

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"op {self.name}: a row does not change ({name!r} was to be set)")

    def __repr__(self) -> str:
        return f"<op {self.signature}>"


class Compiled:
    """What is made of a row when it is used: kernels by class of array, and functions (dispatch/generate.py)."""

    op: Op
    kernels: KernelTable  # class of array -> kernel
    call: Any  # what users call
    operator: Any  # what `a + b` calls
    plain: Any = WhenAsked(lambda own: BUILD["plain"](own.op))  # the same for the slow path
    on_arrays: Any = WhenAsked(lambda own: BUILD["on_arrays"](own.op))  # on arrays alone, for plans (capture/plan.py)
    backward: Any = WhenAsked(lambda own: BUILD["backward"](own.op))  # (node, grads) -> gradients
    # The same, never on arrays (for transforms, which see ops only), and always on them (by class of array).
    on_tensors: Any = WhenAsked(lambda own: BUILD["on_tensors"](own.op))
    array_backwards: Any = WhenAsked(lambda own: BUILD["array_backwards"](own.op))

    def __init__(self, op: Op) -> None:
        self.op, self.kernels = op, KernelTable(op)
        self.call = self.operator = None


BUILD: dict[str, Callable[[Op], Any]] = {}  # name of a function in `Compiled` -> what makes it (dispatch/generate.py)


def row(
    signature: str,
    kernel: str | Callable | None,
    *,
    kind: str,
    formulas: dict[str, Callable] | None = None,
    backward: Callable | None = None,
    wrt: tuple[str, ...] = (),
    twin: Callable | None = None,
    prepare: Callable | None = None,
    shape: str | Callable | None = None,
    strides: str | Callable = "",
    rule: str = "same",
    numbers: tuple[str, ...] | str | None = None,
    outputs: tuple[str, ...] = ("out",),
    differentiable_outputs: int = 1,
    cache: tuple[str, ...] = (),
    linear: str = "",
    selects: Selection | None = None,
    jacobian: Jacobian = "",
    jvp: Callable | None = None,
    jvp_kernel: str | Callable = "",
    batch: str | Callable = "",
    batch_kernel: str | Callable = "",
    batch_backward: str | Callable = "",
    on_arrays: bool = False,
    backward_kernel: str | Callable = "",
    backward_name: str = "",
    format_of: tuple[str, ...] = (),
    format_ranks: tuple[int, ...] = (),
    doc: str = "",
) -> Op:
    """Makes a row and enters it into the table `OPS`. `numbers` names the tensor parameters for which a Python number
    may be given ("all": every one; by default all but the first of a pointwise op).

    Raises: ValueError if the name is taken, NameError if a formula needs what the op does not have.
    """
    name, params = parse(signature)
    if name in OPS:
        raise ValueError(f"op {name!r} is declared twice")
    if kind == "sample" and not formulas:
        jacobian = "zero"
    formulas = formulas or (dict.fromkeys(wrt, no_change) if jacobian == "zero" else {})
    if selects is not None:
        formulas[params[0].name] = selects.scatter
    tensors = [p.name for p in params if p.is_tensor]
    if numbers is None:
        numbers = tuple(tensors[1:]) if kind == "pointwise" else ()
    if any(p.name == "out" for p in params):  # a derivative that takes an op's output: it has no `out=`
        outputs = tuple("result" if output == "out" else output for output in outputs)
    through_twin = twin is not None and not formulas and backward is None
    if through_twin and not wrt:
        wrt = tuple(tensors)
    op = Op(
        signature=signature, name=name, params=params, kind=kind, kernel=kernel, rule=rule, prepare=prepare,
        shape=shape, strides=strides or BY_KIND.get(kind, ""), outputs=outputs,
        takes_number=tuple([numbers == "all" or tensor in numbers for tensor in tensors]),
        differentiable_outputs=differentiable_outputs, format_of=format_of, format_ranks=format_ranks,
        formulas=formulas, backward=backward, twin=twin,
        wrt=tuple([p.name for p in params if p.name in formulas or p.name in wrt]), through_twin=through_twin,
        backward_kernel=backward_kernel, cache=cache, on_arrays=on_arrays, linear_in=linear,
        selects=selects, jacobian=jacobian, jvp=jvp, jvp_kernel=jvp_kernel, batch=batch, batch_kernel=batch_kernel,
        batch_backward=batch_backward, backward_name=backward_name or f"{_camel(name)}Backward0", doc=doc,
    )  # fmt: skip
    if CHECKED:
        check(op)
    vars(op)["compiled"] = Compiled(op)
    OPS[name] = op
    return op


# Whether rows are checked when they are declared. It is turned on once the package has been imported: its own rows are
# checked by a test instead (tests/dispatch/test_rows.py).
CHECKED = False


def check_from_now_on() -> None:
    """Mistakes in rows are found when these are declared."""
    global CHECKED
    CHECKED = True


def check(op: Op) -> None:
    """Raises: NameError if a row has the name of a function that works in place, or a name that the generated code
    uses, if a formula needs what the op does not have, or if tangents are stated twice."""
    if op.name.endswith("_"):
        raise NameError(f"op {op.name}: a name that ends in _ is that of a function which works in place")
    names = [p.name for p in op.params]
    taken = [given for given in (*names, *op.cache) if re.fullmatch(RESERVED, given)]
    if taken:
        raise NameError(f"op {op.name}: nothing can be called {taken[0]!r}, as the generated code uses it")
    unknown = set(op.formulas) - set(names)
    if unknown:
        raise NameError(f"op {op.name}: formulas for {sorted(unknown)}, which are not among its parameters")
    said = [field for field in ("linear_in", "selects", "jacobian", "jvp") if getattr(op, field)]
    if len(said) > 1:
        raise NameError(f"op {op.name}: {said[0]} and {said[1]} both say what its tangents are")
    op.linear, op.saved  # noqa: B018  which raise the others


def _camel(name: str) -> str:
    return "".join([word.title() for word in name.split("_")])


def _terms(op: Op) -> tuple[tuple[str, ...], ...]:
    """`"input * weight + bias"` as `(("input", "weight"), ("bias",))`."""
    linear = op.linear_in or (op.params[0].name if op.kind in LINEAR_KINDS else "")
    terms = tuple(tuple(factor.strip() for factor in term.split("*")) for term in linear.split("+") if linear)
    tensors = [p.name for p in op.params if p.is_tensor]
    numbers = [(p.name,) for p in op.params if p.annotation == "number"]
    for term in terms:
        for factor in term:
            if factor not in tensors and term not in numbers:
                raise NameError(
                    f"op {op.name}: it is said to be linear in {factor!r}, which is not a tensor parameter of it"
                )
    return terms


def _needed(op: Op) -> tuple[dict[str, set[str]], tuple[str, ...]]:
    """From the parameter names of the formulas and the backward kernel: the tensors that are saved (each with the
    inputs whose gradient needs it), and the plain values."""
    tensors = [p.name for p in op.params if p.is_tensor]
    plain = [p.name for p in op.params if not p.is_tensor]
    every = set(op.wrt)
    readers = [(f"formula for {name}", {name}, arguments_of(f)) for name, f in op.formulas.items()]
    if op.backward is not None:
        readers.append(("derivative", every, arguments_of(op.backward)))
    if op.through_twin:
        readers.append(("twin", every, (*tensors, *plain)))
    if op.backward_kernel:
        readers.append(("backward kernel", every, backward_arguments(op.backward_kernel)))
    saved: dict[str, set[str]] = {}
    kept: list[str] = []
    for reader, inputs, names in readers:
        for name in names:
            if name in ("g", "grads", "needs") and reader != "twin":
                continue
            if name in saved and reader == "backward kernel":
                continue  # it makes do with what the formulas of the inputs in question save
            if name in tensors or name in op.outputs or name in op.cache:
                saved.setdefault(name, set()).update(inputs)
            elif name in plain or name.rpartition("_")[0] in tensors:
                if name not in kept:
                    kept.append(name)
            else:
                raise NameError(f"op {op.name}: the {reader} needs {name!r}, which the op does not have")
    return saved, tuple(kept)


def backward_arguments(kernel: str | Callable) -> tuple[str, ...]:
    """The names of a backward kernel's parameters, without the array module."""
    return arguments_of(unwrap(kernel if callable(kernel) else array_function(kernel)))[1:]
