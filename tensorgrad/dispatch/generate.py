"""The call path: from `a + b` to the array kernel in one Python frame.

For each op a function is generated from a short text (templates.py): unwrap the tensors, promote, run the kernel, wrap
the result, record a node. Ops with the same parameters share the compiled text. This file has the names that the texts
use. To print the functions of an op:

    python -m tensorgrad.dispatch.show mul

What is usually off (hooks on saved tensors, DEBUG, profiling, anomaly and inference mode) is behind one list, `SLOW`
(rows/switches.py), that the function tests once; `out=` and operands of the user's own classes also take the slow path.
"""

from __future__ import annotations

from contextlib import suppress
from types import FunctionType

from tensorgrad.autograd.graph import FREED, Node, next_sequence_nr
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import Packed, raise_freed, raise_modified, save, unpack
from tensorgrad.autograd.views import edge_of, view_edge
from tensorgrad.dispatch import signatures, templates
from tensorgrad.dispatch.codegen import function_of, take_over
from tensorgrad.dispatch.kernel_errors import explain
from tensorgrad.dispatch.promotion import (
    OVERRIDDEN,
    as_array,
    operand,
    operands,
    other_operand,
    owner,
    plain_operand,
    plain_operands,
    promote,
    to_floating,
)
from tensorgrad.dispatch.twins import gradients as through_twin
from tensorgrad.dtypes import F32, as_dtype, from_numpy_dtype, scalar_type
from tensorgrad.dtypes import dtype as DTYPE
from tensorgrad.errors import MISSING, as_float, as_integer, as_number, check_flag, missing
from tensorgrad.overriding.function_classes import overrides
from tensorgrad.rows import kernel_tables
from tensorgrad.rows.kernel_tables import COMPILED, REGISTRY, array_kernel, asked_backward, check_backward, in_turn
from tensorgrad.rows.op import BUILD, Op, backward_arguments
from tensorgrad.rows.signature import arguments_of
from tensorgrad.rows.strides import each_laid_out, in_columns, in_order, in_order_of, in_rows, like_input
from tensorgrad.rows.switches import SLOW
from tensorgrad.storage import blas_memory, recycling
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.system import collector
from tensorgrad.tensor import OPERANDS, PLAIN, VIEW, Tensor, share, wrap

new = object.__new__

# --- the other paths -----------------------------------------------------------------------------------------------

MANY = 131_072  # elements of a gradient from which formulas run on tensors


def slowly(op: Op, args: tuple, out=None, is_operator: bool = False):
    """The slow path (dispatch/slow_path.py), loaded when first needed: from then on, this name is its own."""
    from tensorgrad.dispatch import slow_path

    globals()["slowly"] = slow_path.run
    return slow_path.run(op, args, out, is_operator)


def numbers_first(op: Op, given: tuple, now: tuple) -> tuple:
    """The arguments of a call in its old order (dispatch/legacy_calls.py)."""
    from tensorgrad.dispatch import legacy_calls

    return legacy_calls.numbers_first(op, given, now)


def in_format_of(inputs: tuple, results):
    """The results in the memory format of the inputs (dispatch/memory_formats.py)."""
    from tensorgrad.dispatch import memory_formats

    return memory_formats.in_format_of(inputs, results)


def gradients_in_format_of(x, arrays: tuple) -> tuple:
    """Gradients, of which those that are shaped like the input lie in memory as it does."""
    if x.ndim < 4 or x.strides[1] > x.strides[-1]:
        return arrays
    return tuple([a if a is None or a.ndim != x.ndim else in_format_of((x,), a) for a in arrays])


def _counted(op: Op, function):
    """A registered backward that raises unless it gives one gradient per input: the engine would drop the others."""

    def backward(*arguments):
        arrays = function(*arguments)
        count = len(arrays) if isinstance(arrays, tuple) else 1
        if arrays is not NotImplemented and count != len(op.wrt):
            raise RuntimeError(
                f"the backward registered for {op.name} returned {count} gradients, expected {len(op.wrt)} "
                f"({', '.join(op.wrt)})"
            )
        return arrays

    return backward


class ArrayBackwards(dict):
    """One op's backward on arrays, by array class; None where there is only the one on tensors. Fills itself."""

    __slots__ = ("op",)

    def __init__(self, op: Op):
        self.op = op

    def __missing__(self, array_type):
        op, storage = self.op, STORAGES[array_type]
        function, arguments, sized, more = backward_kernel(op, storage)
        if function is None and (storage.xp is None or not op.on_arrays):
            self[array_type] = None
            return None
        formulas = {f"D_{name}": formula for name, formula in op.formulas.items()}
        text = templates.array_backward(op, arguments, sized)
        made = function_of(text, {"BACKWARD": function, **more, **formulas}, globals())
        self[array_type] = storage.guard(made)
        return self[array_type]


def backward_kernel(op: Op, storage) -> tuple:
    """What computes the gradients of an op on arrays: a function, the names of its arguments, and if there is another
    one for large arrays, the index of the argument whose size decides, and the two. Nones: the formulas do, or nothing.
    """
    function = REGISTRY[storage.backend, "registered"].get(f"{op.name}.backward")
    if function is not None:
        return _counted(op, function), arguments_of(check_backward(op, function)), None, {}
    if storage.xp is None or not op.backward_kernel:
        return None, None, None, {}
    function = in_turn(f"{op.name}.backward", asked_backward(op, storage))
    row = COMPILED.get(f"{op.name}.backward") if storage.backend == "cpu" else None
    if row is None:
        return function, backward_arguments(op.backward_kernel), None, {}
    small = array_kernel(op.backward_kernel, storage.xp)
    more = {"ROW": row, "LARGE_BACKWARD": function}
    return small, backward_arguments(op.backward_kernel), row.sized, more


def of_several_classes(node: Node, array_type: type) -> bool:
    """Whether a node saved an array of another class than its gradient's."""
    saved = [s[0] for s in node.saved if s.__class__ is tuple]
    return any(array.__class__ in STORAGES and array.__class__ is not array_type for array in saved)


# --- from row to function ------------------------------------------------------------------------------------------


def build(op: Op, variant: str) -> FunctionType:
    """The function of an op, from its text; texts that differ only in the op's name are compiled once."""
    recycling.start()  # here, so that a program which calls no op keeps its allocator
    blas_memory.start()
    collector.impatient()
    if variant in ("backward", "on_tensors"):
        text, name = templates.backward(op, on_arrays=variant == "backward"), op.backward_name
        formulas = {f"D_{input}": formula for input, formula in op.formulas.items()}
        cells = {"OP": op, "ON_ARRAYS": op.compiled.array_backwards, **formulas}
    else:
        text = templates.on_arrays(op) if variant == "on_arrays" else templates.forward(op, variant)
        name = op.name
        cells = {"KERNELS": op.compiled.kernels, "OP": op, "PREPARE": op.prepare}
    return function_of(text, cells, globals(), name)


def _call(KERNELS, OP, PREPARE):
    """What stands for an op's function until it is first called. It has the cells of the real one."""

    def call(*args, **kwargs):
        KERNELS, PREPARE  # noqa: B018
        return take_over(OP.compiled.call, build(OP, "call"))(*args, **kwargs)

    return call


def _operator(KERNELS, OP, PREPARE):
    """The same for `a + b`."""

    def operator(*args, **kwargs):
        KERNELS, PREPARE  # noqa: B018
        return take_over(OP.compiled.operator, build(OP, "operator"))(*args, **kwargs)

    return operator


def promise(op: Op, variant: str):
    """The function of an op (`call`: what users call; `operator`: for `a + b`), compiled when it is first called."""
    function = (_call if variant == "call" else _operator)(op.compiled.kernels, op, op.prepare)
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "tensorgrad"
    signature = f"{op.name}({templates.documented(op)})"
    function.__doc__ = f"{signature}\n\n{op.doc}" if op.doc else signature
    signatures.promise(function, lambda: (signatures.of_row if variant == "call" else signatures.of_operator)(op))
    function.op = op
    setattr(op.compiled, variant, function)
    return function


def declare(op: Op):
    """Makes what users call, from the row."""
    return promise(op, "call")


def forget_backward(op: Op) -> None:
    """The op's backward is made again when next needed: a kernel was registered, or taken out."""
    for name in ("array_backwards", "backward", "on_tensors"):
        with suppress(AttributeError):  # it was not made yet
            delattr(op.compiled, name)


kernel_tables.ON_CHANGE = forget_backward
BUILD.update(
    array_backwards=ArrayBackwards,
    plain=lambda op: build(op, "plain"),
    on_arrays=lambda op: build(op, "on_arrays"),
    backward=lambda op: build(op, "backward") if op.wrt else None,
    on_tensors=lambda op: build(op, "on_tensors") if op.wrt else None,
)


# --- what the texts use beside the kernels -------------------------------------------------------------------------


def refuse_integers(array) -> None:
    """Raises: RuntimeError for a result of `dtype=` that has no gradient, of inputs that require one."""
    if array.dtype.kind in "biu":
        raise RuntimeError(f"Autograd not support dtype: {scalar_type(from_numpy_dtype(array.dtype))}")


def save_result(tensor: Tensor) -> tuple:
    """The form in which a node saves a result of its own: `save`, for a tensor that no other thread can know yet."""
    array, memory = tensor._array, tensor._memory
    if memory is None:
        memory = tensor._memory = STORAGES[array.__class__].of(array)
    elif memory.version is None:
        return save(tensor)
    return array, memory, memory.version


def attribute_of(value, name: str):
    """The shape or dtype of a tensor's array; None for a number or None."""
    return getattr(value._array, name) if isinstance(value, Tensor) else None


def wrap_all(op: Op, arrays) -> tuple:
    """The results of an op with several outputs, as a plain tuple (views share the input's storage: see views)."""
    return tuple([share(a if a.__class__ in STORAGES else as_array(a), None) for a in arrays])


def attach(op: Op, node: Node, results: tuple) -> None:
    """Puts the differentiable results of an op with several outputs into the graph."""
    node.outputs = tuple((t._array.shape, t._array.dtype, t._array.__class__) for t in results)
    for nr, tensor in enumerate(results[: op.differentiable_outputs]):
        tensor._edge, tensor._requires_grad = (node, nr), True


def saved_array(node: Node, saved, edge):
    """The array (or number) that a node kept. Raises: RuntimeError if it was written in place since."""
    if saved.__class__ is tuple:
        array, storage, version = saved
        if storage.version != version:
            raise_modified(node, array, storage, version, edge)
        return array
    return saved.unpack(None)._array if saved.__class__ is Packed else saved


def filled_up(node: Node, grads) -> list:
    """The gradients of a node's differentiable outputs, zeros for those that none arrived for."""
    some = next(g for g in grads if g is not None)
    outputs = node.outputs[: node.op.differentiable_outputs]
    return [
        some.new_zeros(shape, dtype=from_numpy_dtype(dtype)) if g is None else g
        for g, (shape, dtype, _) in zip(grads, outputs)
    ]


def as_grad(array, g: Tensor) -> Tensor:
    """A gradient that was computed on arrays, as a tensor; that of the output itself if it was passed on."""
    if array is g._array:
        return g
    tensor = new(Tensor)
    tensor._array = array if array.__class__ in STORAGES else as_array(array)
    tensor._requires_grad = False
    tensor._memory = tensor._edge = tensor._grad = tensor._view = tensor._hooks = None
    return tensor


def as_view_of(array, g: Tensor) -> Tensor:
    """A gradient that is another view of the memory of `g`, as a tensor."""
    tensor = new(Tensor)
    tensor._array = array
    tensor._requires_grad = False
    tensor._memory = g._storage if g._memory is None else g._memory
    tensor._edge = tensor._grad = tensor._view = tensor._hooks = None
    return tensor
