"""The call path: from `a + b` to the array kernel in one Python frame.

For each op a function is made from a short text: unwrap the tensors, promote, run the kernel, wrap the result, record
a node. Ops with the same parameters share the compiled text. Print what was made for an op:

    python -m tensorgrad.dispatch.show mul

What is seldom on (hooks on saved tensors, DEBUG, profiling, anomaly and inference mode) waits behind one list, `SLOW`
(switches.py), that the function tests once; `out=` and operands of the user's own classes also take the slow path.
"""

from __future__ import annotations

import itertools
import linecache

from tensorgrad.autograd.graph import FREED, Node, Packed, next_sequence_nr, raise_freed, raise_modified, save, unpack
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.views import edge_of, view_edge
from tensorgrad.dispatch import kernel_tables
from tensorgrad.dispatch.kernel_errors import explain
from tensorgrad.dispatch.kernel_tables import LARGE, REGISTERED, array_kernel, check_backward, with_own
from tensorgrad.dispatch.op import Op, backward_arguments
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
from tensorgrad.dispatch.signature import LIST, OPTIONAL, arguments_of
from tensorgrad.dispatch.switches import SLOW
from tensorgrad.dispatch.twins import gradients as through_twin
from tensorgrad.dtypes import F32, as_dtype, from_numpy_dtype, scalar_type
from tensorgrad.dtypes import dtype as DTYPE
from tensorgrad.errors import MISSING, NUMPY_NAMES, missing
from tensorgrad.storage import recycling
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import OPERANDS, PLAIN, VIEW, Tensor, share, wrap

new = object.__new__

# --- the other paths -----------------------------------------------------------------------------------------------

MANY = 131_072  # elements of a gradient from which formulas run on tensors


def slowly(op: Op, args: tuple, out=None):
    """The slow path (dispatch/slow_path.py), loaded when first needed."""
    from tensorgrad.dispatch import slow_path

    return slow_path.run(op, args, out)


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


# --- the text ----------------------------------------------------------------------------------------------------


def source(op: Op, variant: str = "call", name: str = "call") -> str:
    """The text of an op's function: `call` (users'), `operator` (for `a + b`) or `plain` (for the slow path)."""
    tensors = [p for p in op.params if p.is_tensor]
    differentiated = [i for i, p in enumerate(tensors) if p.name in op.wrt]
    lines = [f"def {name}({_parameters(op, variant)}):"]
    if variant == "call":
        lines += _numpy_names(op)
        lines += [
            f"    if SLOW{' or out is not None' if has_out(op) else ''}:",
            f"        return {_slowly(op, variant)}",
        ]
    elif variant == "operator":
        a, b = op.params[0].name, op.params[1].name
        lines += [
            f"    if {b}.__class__ not in OPERANDS:",
            f"        return other_operand(OP, {a}, {b})",
            "    if SLOW:",
            f"        return {_slowly(op, variant)}",
        ]
    for i, p in enumerate(tensors):
        lines += _unwrap(op, i, p, variant)
    lines += _prepare(op, tensors, variant)
    tracked = " or ".join(f"r{i}" for i in differentiated)
    lines += _run(op, tensors, variant)
    lines += _result(op)
    if differentiated:
        lines += _record(op, tensors, differentiated, tracked)
    lines.append("    return made")
    return "\n".join(lines) + "\n"


def has_out(op: Op) -> bool:
    """Whether the op takes `out=` (all do, but for derivatives that have a parameter of that name)."""
    return all(p.name != "out" for p in op.params)


def _parameters(op: Op, variant: str) -> str:
    parts, star = [], False
    for p in op.params[:2] if variant == "operator" else op.params:
        if p.keyword and not star and variant != "plain":
            parts.append("*old" if variant == "call" and _numbers_first(op) else "*")
            star = True
        default = p.default or ("MISSING" if p in _renamed_late(op) else "")
        parts.append(f"{p.name}={default}" if default and variant == "call" else p.name)
    last = ["out=None"] if has_out(op) else []
    last += [f"{NUMPY_NAMES[p.name]}=None" for p in op.params if p.name in NUMPY_NAMES]
    if variant == "call" and last:
        parts += last if star else ["*", *last]
    return ", ".join(parts)


def _numbers_first(op: Op) -> bool:
    """Whether the op's numbers, which come by keyword, once stood among the tensors (dispatch/legacy_calls.py)."""
    keywords = [p for p in op.params if p.keyword]
    tensors = [p for p in op.params if p.is_tensor]
    return bool(keywords) and all(p.annotation == "number" for p in keywords) and op.params == (*tensors, *keywords)


def _renamed_late(op: Op) -> list:
    """The required parameters from `dim` on: not Python finds out whether they were given, since `axis` may be."""
    at = next((i for i, p in enumerate(op.params) if p.name == "dim"), len(op.params))
    return [p for p in op.params[at:] if not p.default]


def _numpy_names(op: Op) -> list[str]:
    lines = []
    if _numbers_first(op):
        tensors = ", ".join(p.name for p in op.params if p.is_tensor)
        numbers = ", ".join(p.name for p in op.params if p.keyword)
        lines += ["    if old:", f"        {tensors}, {numbers} = numbers_first(OP, ({tensors}, *old), ({numbers},))"]
    for name in (p.name for p in op.params if p.name in NUMPY_NAMES):
        lines += [f"    if {NUMPY_NAMES[name]} is not None:", f"        {name} = {NUMPY_NAMES[name]}"]
    late = [p.name for p in _renamed_late(op)]
    if late:
        lines += [
            f"    if {' or '.join(f'{name} is MISSING' for name in late)}:",
            f"        missing({op.name!r}, {', '.join(f'{name}={name}' for name in late)})",
        ]
    for name in (p.name for p in op.params if p.annotation == "dtype"):
        lines += [
            f"    if {name} is not None and {name}.__class__ is not DTYPE:",
            f"        {name} = as_dtype({name}, {op.name!r})",
        ]
    return lines


def _unwrap(op: Op, i: int, p, variant: str) -> list[str]:
    if p.kind is LIST:
        lines = [f"    x{i}, r{i} = {'plain_' * (variant == 'plain')}operands(OP, {i}, {p.name})"]
        if variant != "plain":
            lines += [f"    if r{i} is OVERRIDDEN:", f"        return {_slowly(op, variant)}"]
        return lines
    lines = [
        f"    if {p.name}.__class__ in PLAIN:",
        f"        x{i} = {p.name}._array",
        f"        r{i} = {p.name}._requires_grad",
    ]
    if _number_beside(op, variant) and i == 1:
        lines += [
            f"    elif {p.name}.__class__ is float or {p.name}.__class__ is int:",
            f"        x1 = {p.name}",
            "        r1 = False",
        ]
    if p.kind is OPTIONAL:
        lines += [f"    elif {p.name} is None:", f"        x{i} = None", f"        r{i} = False"]
    given = f"owner(OP, {p.name})" if variant == "operator" and i == 0 else p.name
    lines += ["    else:", f"        x{i}, r{i} = {'plain_' * (variant == 'plain')}operand(OP, {i}, {given})"]
    if variant != "plain":
        lines += [f"        if r{i} is OVERRIDDEN:", f"            return {_slowly(op, variant)}"]
    return lines


def _slowly(op: Op, variant: str) -> str:
    """The call of the slow path with the op's arguments."""
    if variant == "operator":
        a, b = op.params[0].name, op.params[1].name
        rest = "".join(f", {p.default}" for p in op.params[2:])
        return f"slowly(OP, (owner(OP, {a}), {b}{rest},))"
    names = ", ".join(p.name for p in op.params)
    return f"slowly(OP, ({names},), out)" if has_out(op) else f"slowly(OP, ({names},))"


def _number_beside(op: Op, variant: str) -> bool:
    """Whether the text is for `tensor + number`, which has its own short way."""
    return variant == "operator" and op.kind == "pointwise" and op.takes_number == (op.takes_number[0], True)


def _prepare(op: Op, tensors, variant: str) -> list[str]:
    """The kind's rule before the kernel: promotion for pointwise ops, checks and normalised arguments for others."""
    lines = []
    if variant == "operator":
        lines += [f"    {p.name} = {p.default}" for p in op.params[2:] if not p.is_tensor]
    if op.kind == "pointwise":
        xs = [f"x{i}" for i in range(len(tensors))]
        if len(xs) == 1:
            if op.rule == "float":
                lines += ["    if x0.dtype is not F32:", "        x0 = to_floating(OP, x0)"]
        else:
            others = xs[1:]
            same = " and ".join(f"x0.__class__ is {x}.__class__" for x in others)
            types = " is ".join(f"{x}.dtype" for x in xs) + (" is F32" if op.rule == "float" else "")
            joined = ", ".join(xs)
            lines.append(f"    if not ({same} and {types}):")
            indent = "        "
            if _number_beside(op, variant):  # NumPy itself keeps float32 beside a Python number
                number = "x1.__class__ is float or x1.__class__ is int"
                lines.append(f"        if not (x0.dtype is F32 and ({number})):")
                indent += "    "
            lines.append(f"{indent}{joined} = promote(OP, {joined})")
    if op.prepare is not None:
        targets = ", ".join(_values(op))
        comma = "," if len(op.params) == 1 else ""
        if op.kind == "reduction":  # nothing to prepare in the commonest call, `x.sum()`
            given = " or ".join(f"{p.name} is not None" for p in op.params if p.name in ("dim", "dtype"))
            lines.append(f"    if {given}:")
            targets_indent = "        "
        else:
            targets_indent = "    "
        lines.append(f"{targets_indent}{targets}{comma} = PREPARE({targets})")
    return lines


def _values(op: Op) -> list[str]:
    """The op's parameters in order, tensors as the variables that hold their arrays."""
    values, i = [], 0
    for p in op.params:
        if p.is_tensor:
            values.append(f"x{i}")
            i += 1
        else:
            values.append(p.name)
    return values


def _run(op: Op, tensors, variant: str) -> list[str]:
    first = "x0[0]" if tensors[0].kind is LIST else "x0"
    names = ", ".join(p.name for p in (op.params[:2] if variant == "operator" else op.params))
    array = "array" if len(op.outputs) == 1 else "*arrays" if op.cache else "arrays"
    array = ", ".join((array, *op.cache))
    kernels = "KERNELS"
    if op.name in LARGE:
        kernels = f"(KERNELS if {_values(op)[LARGE[op.name].sized]}.size < OP.few else OP.large)"
    return [
        "    try:",
        f"        {array} = {kernels}[{first}.__class__]({', '.join(_values(op))})",
        "    except Exception as error:",
        f"        {array} = explain(OP, error, ({', '.join(_values(op))},), ({names},))",
    ]


def _result(op: Op) -> list[str]:
    if len(op.outputs) > 1:
        lines = []
        if op.kind == "reduction":  # (of an input in rows the results are, too)
            lines = ["    if not x0.flags.c_contiguous:", "        arrays = each_in_rows(arrays)"]
        return [*lines, *_format(op, "arrays"), "    made = wrap_all(OP, arrays)"]
    lines = [] if op.kind == "view" else ["    if array.__class__ not in STORAGES:", "        array = as_array(array)"]
    if op.kind == "reduction":  # NumPy keeps the order of the dimensions in memory, PyTorch makes it that of rows
        lines += ["    elif array.ndim > 1 and not array.flags.c_contiguous:", "        array = in_rows(array)"]
    lines += _format(op, "array")
    lines += ["    made = new(Tensor)", "    made._array = array"]
    if op.kind == "view":
        p = op.params[0].name
        kept = ", ".join(p.name for p in op.params[1:])
        kept = f"({kept},)" if kept else "()"
        return [
            *lines,
            f"    storage = {p}._memory",
            "    if storage is None:",
            f"        storage = {p}._storage",
            "    made._memory = storage",
            "    made._edge = made._grad = made._hooks = None",
            f"    view = {p}._view",
            "    made._view = (",
            f"        ({p}, (None, OP, {kept}), storage.version, GRAD.enabled)",
            "        if view is None",
            f"        else (view[0], (view[1], OP, {kept}), storage.version, view[3] and GRAD.enabled)",
            "    )",
            "    made._requires_grad = VIEW",
        ]
    return [
        *lines,
        "    made._requires_grad = False",
        "    made._memory = made._edge = made._grad = made._view = made._hooks = None",
    ]


def _format(op: Op, result: str) -> list[str]:
    """Whether the channels lie innermost in an input that decides on the result: in row order they lie further out.

    Of an image of one point both have the same stride, as in every 1×1 kernel: there the image alone is asked.
    """
    if not op.format_of:
        return []
    names = [p.name for p in op.params if p.is_tensor]
    given = [f"x{names.index(name)}" for name in op.format_of]
    found = " or ".join(f"(steps := {x}.strides)[1] {'<' if n else '<='} steps[-1]" for n, x in enumerate(given))
    ranks = f"== {op.format_ranks[0]}" if len(op.format_ranks) == 1 else "> 3"
    return [
        f"    if x0.ndim {ranks} and ({found}):",
        f"        {result} = in_format_of(({', '.join(given)},), {result})",
    ]


def _record(op: Op, tensors, differentiated, tracked: str) -> list[str]:
    """The graph: one node, with edges to what requires grad, and with what the formulas of those inputs need."""
    lines = [f"    if ({tracked}) and GRAD.enabled:"]
    edges = []
    for i in differentiated:
        p = tensors[i]
        if p.kind is LIST:
            lines.append(f"        e{i} = [edge_of(t) for t in {p.name}] if r{i} else [None] * len(x{i})")
            edges.append(f"*e{i}")
            continue
        n = p.name
        lines.append(f"        e{i} = ({n}._edge or ({n}, 0)) if r{i} is True else view_edge({n}) if r{i} else None")
        edges.append(f"e{i}")
    some = [f"any(e{i})" if tensors[i].kind is LIST else f"e{i}" for i in differentiated]
    condition = " or ".join(f"{e} is not None" if not e.startswith("any") else e for e in some)
    if op.kind in ("cast",):  # integers have no gradients
        condition = f"({condition}) and array.dtype.kind not in 'biu'"
    lines.append(f"        if {condition}:")
    if any(p.name == "dtype" for p in op.params) and op.kind != "cast":
        lines.append("            refuse_integers(array)")
    saved = []
    index = {p.name: i for i, p in enumerate(tensors)}
    for name, users in op.saved.items():
        if name in op.outputs:
            k = op.outputs.index(name)
            output = "made" if len(op.outputs) == 1 else f"made[{k}]"
            saved.append(f"save({output})" + _if_needed(op, users, index))
            continue
        if name in op.cache:
            saved.append(name)
            continue
        saved.append(f"save({name})" + _if_needed(op, users, index))
    body = [
        "node = new(Node)",
        "node.op = OP",
        f"node.edges = ({', '.join(edges)},)",
        f"node.saved = ({', '.join(saved)}{',' if saved else ''})",
        f"node.args = ({''.join(_kept(op, tensors, k) + ', ' for k in op.kept).rstrip()})",
        "node.hooks = None",
        "node.sequence_nr = next_sequence_nr()",
    ]
    if len(op.outputs) == 1:
        body += [
            "node.outputs = ((array.shape, array.dtype, array.__class__),)",
            "made._edge = (node, 0)",
            *([] if op.kind == "view" else ["made._requires_grad = True"]),
        ]
    else:
        body.append("attach(OP, node, made)")
    return lines + [f"            {line}" for line in body]


def _if_needed(op: Op, users: set, index: dict) -> str:
    """The condition for saving a value: that an input whose formula needs it requires grad."""
    if users == set(op.wrt):
        return ""
    return " if " + " or ".join(f"e{index[u]} is not None" for u in op.wrt if u in users) + " else None"


def _kept(op: Op, tensors, name: str) -> str:
    """How a plain value reaches `node.args`; `input_shape` and `input_dtype` are read off the tensor."""
    for p in tensors:
        for suffix, attribute in (("_shape", "shape"), ("_dtype", "dtype")):
            if name == p.name + suffix:
                if p.kind is LIST:
                    return f"[t._array.{attribute} for t in {p.name}]"
                if op.kind == "pointwise" or p.kind is OPTIONAL:  # may be a number or None
                    return f"attribute_of({p.name}, '{attribute}')"
                return f"{p.name}._array.{attribute}"
    return name


def backward_source(op: Op, name: str = "backward") -> str:
    """The text of `(node, grads) -> gradients`: unpack what was saved, evaluate the formulas that are asked for."""
    tensors = [p for p in op.params if p.is_tensor]
    differentiated = [p for p in tensors if p.name in op.wrt]
    lines = [
        f"def {name}(node, grads):",
        "    saved = node.saved",
        "    if saved is FREED:",
        "        raise_freed()",
    ]
    if _has_array_backward(op):
        array_type = "grads[0]._array.__class__" if op.differentiable_outputs == 1 else "node.outputs[0][2]"
        lines += [
            "    if not GRAD.enabled:  # nothing is recorded: the arrays will do",
            f"        on_arrays = ON_ARRAYS[{array_type}]",
            "        results = NotImplemented if on_arrays is None else on_arrays(node, grads)",
            "        if results is not NotImplemented:",
            "            return results",
        ]
    if op.through_twin:
        return "\n".join([*lines, "    return through_twin(node, grads)"]) + "\n"
    lines.append("    g = grads[0]")
    lists = [p for p in differentiated if p.kind is LIST]
    if lists:
        after = len(differentiated) - 1
        lines.append(f"    e_{lists[0].name} = node.edges[: len(node.edges) - {after}]")
        for k, p in enumerate(p for p in differentiated if p.kind is not LIST):
            lines.append(f"    e_{p.name} = node.edges[len(node.edges) - {after - k}]")
    else:
        lines.append(f"    {', '.join(f'e_{p.name}' for p in differentiated)}, = node.edges")
    for k, saved in enumerate(op.saved):
        if saved in op.cache:  # formulas do not see it
            continue
        if saved in op.outputs:
            k_out = op.outputs.index(saved)
            edge = f"(node, {k_out})" if k_out < op.differentiable_outputs else "None"
        else:
            edge = f"e_{saved}" if saved in op.wrt else "None"
            if edge == "None" and any(p.name == saved and p.kind is LIST for p in tensors):
                edge = f"[None] * len(saved[{k}])"
        lines.append(f"    {saved} = unpack(node, saved[{k}], {edge})")
    for k, kept in enumerate(op.kept):
        lines.append(f"    {kept} = node.args[{k}]")
    if op.all_at_once is not None:
        lines.append(f"    {_needs(differentiated)}")
        lines.append(f"    return [*OP.all_at_once({', '.join(arguments_of(op.all_at_once))})]")
    else:
        results = []
        for p in differentiated:
            call = f"D_{p.name}({', '.join(arguments_of(op.formulas[p.name]))})"
            results.append(f"*{call}" if p.kind is LIST else f"{call} if e_{p.name} is not None else None")
        lines.append(f"    return [{', '.join(results)}]")
    return "\n".join(lines) + "\n"


def _needs(differentiated) -> str:
    return f"needs = ({''.join(f'e_{p.name} is not None, ' for p in differentiated).rstrip()})"


def _has_array_backward(op: Op) -> bool:
    registered = any(name == op.name and hasattr(k, "backward") for (name, _), k in REGISTERED.items())
    return bool(op.on_arrays or op.backward_kernel or (registered and op.differentiable_outputs == 1))


def array_backward_source(op: Op, arguments: tuple[str, ...] | None) -> str:
    """The text of a backward that stays among arrays: of a kernel with these arguments, or (None) of the formulas."""
    differentiated = [p for p in op.params if p.is_tensor and p.name in op.wrt]
    lines = ["def on_arrays(node, grads):", "    g = grads[0]"]
    if op.differentiable_outputs > 1 and arguments is not None and "grads" not in arguments:  # one output's alone
        lines += ["    if g is None or grads.count(None) < len(grads) - 1:", "        return NotImplemented"]
    if arguments is None and LARGE:  # the ops have kernels for large arrays, which plain arithmetic has not
        lines += ["    if g._array.size >= MANY:", "        return NotImplemented"]
    lines.append("    saved = node.saved")
    lines.append(f"    {', '.join(f'e_{p.name}' for p in differentiated)}, = node.edges")
    formatted = op.format_of[0] if op.format_of and op.through_twin else None
    wanted = [name for name in op.saved if arguments is None or name in arguments or name == formatted]
    at = list(op.saved).index
    lines += [f"    {s} = saved_array(node, saved[{at(s)}], {f'e_{s}' if s in op.wrt else None})" for s in wanted]
    lines += [
        f"    {kept} = node.args[{k}]" for k, kept in enumerate(op.kept) if arguments is None or kept in arguments
    ]
    if arguments is None:
        results = []
        for p in differentiated:
            call = f"D_{p.name}({', '.join('g._array' if a == 'g' else a for a in arguments_of(op.formulas[p.name]))})"
            results.append(f"as_grad({call}, g) if e_{p.name} is not None else None")
        lines.append(f"    return [{', '.join(results)}]")
        return "\n".join(lines) + "\n"
    if "needs" in arguments:
        lines.append(f"    {_needs(differentiated)}")
    if "grads" in arguments:
        lines += ["    grads = filled_up(node, grads)", "    g = grads[0]"]
    given = {"g": "g._array", "grads": "[g._array for g in grads]"}
    lines += [
        f"    arrays = BACKWARD({', '.join(given.get(a, a) for a in arguments)})",
        "    if arrays is NotImplemented:",
        "        return NotImplemented",
        "    if arrays.__class__ is not tuple:",
        "        arrays = (arrays,)",
    ]
    if formatted:
        lines.append(f"    arrays = gradients_in_format_of({formatted}, arrays)")
    lines.append("    return [None if a is None else as_grad(a, g) for a in arrays]")
    return "\n".join(lines) + "\n"


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
        function = getattr(REGISTERED.get((op.name, storage.device_type)), "backward", None)
        arguments: tuple[str, ...] | None = None
        if function is not None:
            arguments = arguments_of(check_backward(op, function))
            function = _counted(op, function)
        elif storage.xp is None or not (op.backward_kernel or op.on_arrays):
            self[array_type] = None
            return None
        elif op.backward_kernel:
            function = array_kernel(op.backward_kernel, storage.xp)
            arguments = backward_arguments(op.backward_kernel)
            function = with_own(f"{op.name}.backward", storage, function)
        scope = {"BACKWARD": function, **{f"D_{name}": formula for name, formula in op.formulas.items()}}
        text = array_backward_source(op, arguments)
        execute(text, "call path", {**globals(), **scope}, scope)
        self[array_type] = storage.guard(scope["on_arrays"])
        return self[array_type]


# --- from text to function -----------------------------------------------------------------------------------------

_compiled: dict[str, object] = {}
_numbers = itertools.count(1)


def execute(text: str, kind: str, names: dict, scope: dict) -> None:
    """Runs a text that was made here, under a name by which tracebacks find its lines."""
    file = f"<tensorgrad {kind} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names, scope)


def build(op: Op, variant: str):
    """The function of an op, from its text; texts that differ only in the op's name are compiled once."""
    text = backward_source(op) if variant == "backward" else source(op, variant)
    factory = _compiled.get(text)
    if factory is None:
        recycling.start()  # here, as programs that call no op shall keep their allocator
        inner = "backward" if variant == "backward" else "call"
        head, *rest = text.splitlines()
        if variant != "backward":
            rest = ["    if 0: KERNELS, OP, PREPARE", *rest]  # the same cells in every function: see `become`
        body = "".join(f"    {line}\n" for line in (head, *rest))
        scope: dict = {}
        formulas = "".join(f"    D_{name} = FORMULAS[{name!r}]\n" for name in op.formulas if variant == "backward")
        code = f"def make(OP, KERNELS, PREPARE, FORMULAS, ON_ARRAYS):\n{formulas}{body}    return {inner}\n"
        execute(code, "call path", globals(), scope)
        factory = _compiled[text] = scope["make"]
    function = factory(op, op.kernels, op.prepare, op.formulas, op.array_backwards)  # type: ignore[operator]
    name = op.name if variant != "backward" else op.backward_name
    function.__code__ = function.__code__.replace(co_name=name)  # what tracebacks and profiles show
    return function


class _Later:
    """Stands for a function of an op until it is first needed: `backward`, or `plain`."""

    __slots__ = ("op", "variant")

    def __init__(self, op: Op, variant: str):
        self.op, self.variant = op, variant

    def __call__(self, *arguments):
        made = build(self.op, self.variant)
        setattr(self.op, self.variant, made)
        return made(*arguments)


def _placeholders(KERNELS, OP, PREPARE):
    """What stands for an op's functions until they are first called: compiling all of them would take the import
    longer than everything else. A placeholder becomes the real function by taking over its code; for that it must
    have the same cells."""

    def call(*args, **kwargs):
        KERNELS, PREPARE  # noqa: B018
        return become(OP.call, OP, "call")(*args, **kwargs)

    def operator(*args, **kwargs):
        KERNELS, PREPARE  # noqa: B018
        return become(OP.operator, OP, "operator")(*args, **kwargs)

    return {"call": call, "operator": operator}


def become(function, op: Op, variant: str):
    """Gives a placeholder the code of the function it stands for; returns it."""
    real = build(op, variant)
    function.__defaults__, function.__kwdefaults__ = real.__defaults__, real.__kwdefaults__
    function.__code__ = real.__code__
    return function


def promise(op: Op, variant: str):
    """The function of an op (`call`: what users call; `operator`: for `a + b`), compiled when it is first called."""
    function = _placeholders(op.kernels, op, op.prepare)[variant]
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "tensorgrad"
    signature = f"{op.name}({_parameters(op, variant)})".replace("*old", "*")
    function.__doc__ = f"{signature}\n\n{op.doc}" if op.doc else signature
    function.op = op
    setattr(op, variant, function)
    return function


def declare(op: Op):
    """Makes what users call, from the row."""
    forget_backward(op)
    op.plain = _Later(op, "plain")
    return promise(op, "call")


def forget_backward(op: Op) -> None:
    """The op's backward is made anew when next needed: a kernel was registered, or taken out."""
    op.array_backwards = ArrayBackwards(op)
    op.backward = _Later(op, "backward") if op.wrt else None


kernel_tables.ON_CHANGE = forget_backward


# --- what the texts use beside the kernels -------------------------------------------------------------------------


def refuse_integers(array) -> None:
    """Raises: RuntimeError for a result of `dtype=` that has no gradient, of inputs that require one."""
    if array.dtype.kind in "biu":
        raise RuntimeError(f"Autograd not support dtype: {scalar_type(from_numpy_dtype(array.dtype))}")


def attribute_of(value, name: str):
    """The shape or dtype of a tensor's array; None for a number or None."""
    return getattr(value._array, name) if isinstance(value, Tensor) else None


def wrap_all(op: Op, arrays) -> tuple:
    """The results of an op with several outputs, as a plain tuple (views share the input's storage: see views)."""
    return tuple([share(a if a.__class__ in STORAGES else as_array(a), None) for a in arrays])


def in_rows(array):
    """A copy of the array whose elements lie in the order of rows."""
    storage = STORAGES[array.__class__]
    copied = storage.empty(array.shape, array.dtype, storage.device_of(array))
    storage.write(copied, array)
    return copied


def each_in_rows(arrays) -> list:
    """The results of a reduction with several outputs, the elements of each in the order of rows."""
    return [in_rows(a) if a.ndim > 1 and not a.flags.c_contiguous else a for a in arrays]


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
