"""The text of the functions that are generated for a row: templates, and what fills them in.

A template reads like the function that it becomes. A slot within a line takes an expression; a slot that has a line to
itself takes any number of lines, indented like the slot, or none. To see the functions of an op:

    python -m tensorgrad.dispatch.show mul

What the texts call is in generate.py, where they are compiled.
"""

from __future__ import annotations

from functools import cache

from tensorgrad.dispatch.half_precision import IN_FLOAT32
from tensorgrad.errors import NUMPY_NAMES, SHORT_MAX, SHORT_MIN
from tensorgrad.rows.kernel_tables import COMPILED, REGISTRY
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import LIST, OPTIONAL, TENSOR, Param, arguments_of

SHORT = {"short_min": hex(SHORT_MIN), "short_max": hex(SHORT_MAX)}  # numbers in the text: a name would take time


def fill(template: str, **parts: str) -> str:
    """Fills the slots of a template.

    >>> from tensorgrad.dispatch.templates import fill
    >>> print(fill('''
    ... if {condition}:
    ...     {body}
    ... ''', condition="x is None", body="x = 0\\ny = 1"))
    if x is None:
        x = 0
        y = 1
    """
    lines: list[str] = []
    for indent, slot, line in _lines(template):
        if slot in parts:
            lines += [indent + each for each in parts[slot].splitlines()]
        else:
            lines.append(line.format_map(parts) if "{" in line else line)
    return "\n".join(lines)


@cache
def _lines(template: str) -> list[tuple[str, str, str]]:
    """The lines of a template, each with its indentation and the name of the slot that it consists of, if it does."""
    found = []
    for line in template.strip("\n").split("\n"):
        slot = line.strip()
        found.append((line[: -len(slot)] if slot else "", slot[1:-1] if slot.startswith("{") else "", line))
    return found


# --- forward -------------------------------------------------------------------------------------------------------

FORWARD = """
def {name}({parameters}):
    {given}
    {slow_path}
    {unwrap}
    {defaults}
    {checks}
    {promote}
    {prepare}
    try:
        {array} = {kernel}({values})
    except Exception as error:
        __tracebackhide__ = True
        {array} = explain(OP, error, ({values},), ({names},))
        {composed}
    {wrap}
    {record}
    return made
"""

COMPOSED = """
if array.__class__ is Tensor:
    return array
"""

SLOW_PATH = """
if SLOW{or_out}:
    return {slowly}
"""

SLOW_OPERATOR = """
if SLOW:
    {other_operand}
    return {slowly}
"""

OTHER_OPERAND = """
if {b}.__class__ not in OPERANDS:
    return {slowly} if overrides({b}) else other_operand(OP, {a}, {b})
"""


def forward(op: Op, variant: str = "call", name: str = "call") -> str:
    """The text of an op's function: `call` (users'), `operator` (for `a + b`) or `plain` (for the slow path)."""
    tensors = [p for p in op.params if p.is_tensor]
    given = slow_path = defaults = ""
    taken = op.params
    if variant == "call":
        given = given_otherwise(op)
        or_out = " or out is not None" if has_out(op) else ""
        slow_path = fill(SLOW_PATH, or_out=or_out, slowly=_slowly(op, variant))
    elif variant == "operator":
        taken = op.params[:2]
        slow_path = fill(SLOW_OPERATOR, other_operand=_other_operand(op), slowly=_slowly(op, variant))
        defaults = "\n".join(f"{p.name} = {p.default}" for p in op.params[2:] if not p.is_tensor)
    array = "array" if len(op.outputs) == 1 else "*arrays" if op.cache else "arrays"
    text = fill(
        FORWARD,
        name=name,
        parameters=parameters(op, variant),
        given=given,
        slow_path=slow_path,
        unwrap="\n".join(_unwrap(op, i, p, variant) for i, p in enumerate(tensors)),
        defaults=defaults,
        checks="" if variant == "operator" else checks(op),
        promote=_promote(op, tensors, variant),
        prepare=_prepare(op),
        array=", ".join((array, *op.cache)),
        kernel=_kernel(op, tensors),
        values=", ".join(_values(op)),
        names=", ".join(p.name for p in taken),
        composed=fill(COMPOSED) if op.kind in ("view", "pointwise") else "",
        wrap=_wrap(op),
        record=_record(op, tensors),
    )
    return text + "\n"


ON_ARRAYS = """
def {name}({parameters}):
    {unwrap}
    {promote}
    {prepare}
    try:
        {array} = {kernel}({values})
    except Exception as error:
        {array} = explain(OP, error, ({values},), ({names},))
    {as_array}
    {laid_out}
    {in_format}
    return {result}
"""

ARRAY_OPERAND = """
x{i} = {p} if {p} is None or {p}.__class__ in STORAGES else plain_operand(OP, {i}, {p}{first})[0]
"""


def on_arrays(op: Op, name: str = "on_arrays") -> str:
    """The text of the op on arrays alone, as a plan calls it: what the kernel keeps follows after the results."""
    tensors = [p for p in op.params if p.is_tensor]
    several = len(op.outputs) > 1
    array = "*arrays" if several and op.cache else "arrays" if several else "array"
    unwrap, laid_out, result = [], _each_laid_out(op) if several else _laid_out(op), ["array"]
    for i, p in enumerate(tensors):
        first = ", x0" if i == 1 and op.takes_number[0] else ""
        unwrap.append(f"x{i} = {p.name}" if p.kind is LIST else fill(ARRAY_OPERAND, i=str(i), p=p.name, first=first))
    if several:
        result = ["*[a if a.__class__ in STORAGES else as_array(a) for a in arrays]"]
    text = fill(
        ON_ARRAYS,
        name=name,
        parameters=parameters(op, "plain").replace(", *", ""),
        unwrap="\n".join(unwrap),
        promote=_promote(op, tensors, "plain"),
        prepare=_prepare(op),
        array=", ".join((array, *op.cache)),
        kernel=_kernel(op, tensors),
        values=", ".join(_values(op)),
        names=", ".join(p.name for p in op.params),
        as_array="" if several or op.kind == "view" else fill(AS_ARRAY, other_class=_other_class(op)),
        laid_out=laid_out,
        in_format=_in_format(op, "arrays" if several else "array"),
        result=", ".join((*result, *op.cache)) + "," * several,
    )
    return text + "\n"


def _other_operand(op: Op) -> str:
    """Lines that leave an operator whose right operand is neither a tensor nor a number."""
    return fill(OTHER_OPERAND, a=op.params[0].name, b=op.params[1].name, slowly=_slowly(op, "operator"))


def has_out(op: Op) -> bool:
    """Whether the op takes `out=` (all do, but for derivatives that have a parameter of that name)."""
    return all([p.name != "out" for p in op.params])


def parameters(op: Op, variant: str) -> str:
    """The parameters of an op's function, as its `def` lists them."""
    return _parameters(op.params, variant)


@cache
def _parameters(params: tuple[Param, ...], variant: str) -> str:
    parts, star = [], False
    missing = _late(params)
    for p in params[:2] if variant == "operator" else params:
        if p.keyword and not star and variant != "plain":
            parts.append("*old" if variant == "call" and _scalars_first(params) else "*")
            star = True
        default = p.default or ("MISSING" if p.name in missing else "")
        parts.append(f"{p.name}={default}" if default and variant == "call" else p.name)
    last = [] if any([p.name == "out" for p in params]) else ["out=None"]
    last += [f"{NUMPY_NAMES[p.name]}=None" for p in params if p.name in NUMPY_NAMES]
    if variant == "call" and last:
        parts += last if star else ["*", *last]
    return ", ".join(parts)


def documented(op: Op) -> str:
    """The parameters of an op's function as its docstring lists them."""
    return _documented(op.params, has_out(op))


@cache
def _documented(params: tuple[Param, ...], out: bool) -> str:
    parts, star = [], False
    for p in params:
        if p.keyword and not star:
            parts.append("*")
            star = True
        parts.append(f"{p.name}={p.default}" if p.default else p.name)
    if out:
        parts += ["out=None"] if star else ["*", "out=None"]
    return ", ".join(parts)


def _slowly(op: Op, variant: str) -> str:
    """The call of the slow path with the op's arguments."""
    if variant == "operator":
        a, b = op.params[0].name, op.params[1].name
        rest = "".join(f", {p.default}" for p in op.params[2:])
        return f"slowly(OP, (owner(OP, {a}), {b}{rest},), None, True)"
    names = ", ".join(p.name for p in op.params)
    return f"slowly(OP, ({names},), out)" if has_out(op) else f"slowly(OP, ({names},))"


# --- arguments that are given by another name, in another place, or as another type ---------------------------------

SCALARS_FIRST = """
if old:
    {tensors}, {scalars} = numbers_first(OP, ({tensors}, *old), ({scalars},))
"""

NUMPY_NAME = """
if {numpy_name} is not None:
    {name} = {numpy_name}
"""

NOT_GIVEN = """
if {any_missing}:
    missing({function}, {names})
"""

DTYPE_OF = """
if {name} is not None and {name}.__class__ is not DTYPE:
    {name} = as_dtype({name}, {function})
"""


FLAG = """
if {name} is not False and {name} is not True{and_given}:
    check_flag({name}, "{name}")
"""


INTEGER = """
if ({name}.__class__ is not int or not {short_min} <= {name} <= {short_max}){and_given}:
    {name} = as_integer({name}, "{name}")
"""


FLOAT = """
if {name}.__class__ is not float and not ({name}.__class__ is int and {short_min} <= {name} <= {short_max}){and_given}:
    {name} = as_float({name}, "{name}")
"""


NUMBER = """
if {name}.__class__ is not float and not ({name}.__class__ is int and {short_min} <= {name} <= {short_max}){and_given}:
    {name} = as_number({name}, "{name}")
"""


STRING = """
if {name}.__class__ is not str{and_given}:
    check_string({name}, "{name}")
"""


PLAIN_VALUES = {"int": INTEGER, "float": FLOAT, "number": NUMBER, "str": STRING}


def given_otherwise(op: Op) -> str:
    """Lines that bring the arguments of a call into the form that the row has them in."""
    parts = []
    if _scalars_first(op.params):
        tensors = ", ".join(p.name for p in op.params if p.is_tensor)
        parts.append(fill(SCALARS_FIRST, tensors=tensors, scalars=", ".join(p.name for p in op.params if p.keyword)))
    parts += numpy_names([p.name for p in op.params], _late(op.params), repr(op.name))
    parts += [dtype_of(p.name, repr(op.name)) for p in op.params if p.annotation == "dtype"]
    return "\n".join(parts)


def checks(op: Op) -> str:
    """Lines that refuse flags that are not bools and numbers that are none, once classes could override."""
    parts = [flag(p.name) for p in op.params if p.annotation == "bool" and p.default != "None"]
    numbers = [p for p in op.params if p.annotation == "number" and p.default]
    parts += [plain_value(p.name, "number", p.default == "None") for p in numbers]
    floats = [p for p in op.params if p.annotation == "float" and p.default]
    parts += [plain_value(p.name, "float", p.default == "None") for p in floats]
    integers = [p for p in op.params if p.annotation == "int" and (p.keyword or op.kind == "pointwise")]
    parts += [plain_value(p.name, "int", False) for p in integers]
    return "\n".join(parts)


def numpy_names(names: list[str], late: list[str], function: str) -> list[str]:
    """Lines that take `axis` for `dim` and `keepdims` for `keepdim`, and miss what neither name was given for."""
    parts = [fill(NUMPY_NAME, name=name, numpy_name=NUMPY_NAMES[name]) for name in names if name in NUMPY_NAMES]
    if late:
        any_missing = " or ".join(f"{name} is MISSING" for name in late)
        given = ", ".join(f"{name}={name}" for name in late)
        parts.append(fill(NOT_GIVEN, any_missing=any_missing, function=function, names=given))
    return parts


def dtype_of(name: str, function: str) -> str:
    """Lines that take Python's `float` and the like for a dtype."""
    return fill(DTYPE_OF, name=name, function=function)


def flag(name: str, optional: bool = False) -> str:
    """Lines that refuse what is not a bool (or None, where that is allowed). As in PyTorch, None is the default of what
    factories may do besides."""
    optional = optional or name in ("requires_grad", "pin_memory")
    return fill(FLAG, name=name, and_given=f" and {name} is not None" if optional else "")


def plain_value(name: str, annotation: str, optional: bool) -> str:
    """Lines that refuse what is not an `int`, a `float`, a `number` or a `str` (or None, where that is allowed)."""
    and_given = f" and {name} is not None" if optional else ""
    return fill(PLAIN_VALUES[annotation], name=name, and_given=and_given, **SHORT)


def _scalars_first(params: tuple[Param, ...]) -> bool:
    """Whether the op's scalars, now keywords, once came before the last tensors (dispatch/legacy_calls.py)."""
    keywords = [p for p in params if p.keyword]
    tensors = [p for p in params if p.is_tensor]
    return bool(keywords) and all(p.annotation == "number" for p in keywords) and params == (*tensors, *keywords)


def _late(params: tuple[Param, ...]) -> list[str]:
    return late({p.name: not p.default for p in params})


def late(required: dict[str, bool]) -> list[str]:
    """The required parameters from `dim` on. Python cannot check that they were given: `axis` may be instead.

    >>> from tensorgrad.dispatch.templates import late
    >>> late({"input": True, "dim": True, "keepdim": False, "index": True})
    ['dim', 'index']
    """
    names = list(required)
    return [name for name in names[names.index("dim") :] if required[name]] if "dim" in required else []


# --- from tensors to arrays ----------------------------------------------------------------------------------------

UNWRAP = """
if {p}.__class__ in PLAIN:
    x{i} = {p}._array
    r{i} = {p}._requires_grad
{or_scalar}
{or_none}
else:
    {other_operand}
    x{i}, r{i} = {operand}(OP, {i}, {given}{first})
    {overridden}
"""

OR_SCALAR = """
elif {p}.__class__ is float or ({p}.__class__ is int and {short_min} <= {p} <= {short_max}):
    x1 = {p}
    r1 = False
"""

OR_NONE = """
elif {p} is None:
    x{i} = None
    r{i} = False
"""

UNWRAP_LIST = """
x{i}, r{i} = {operand}s(OP, {i}, {p})
{overridden}
"""

OVERRIDDEN = """
if r{i} is OVERRIDDEN:
    return {slowly}
"""


def _unwrap(op: Op, i: int, p: Param, variant: str) -> str:
    """Lines that set x<i>, the array of a tensor argument, and r<i>, whether it requires grad."""
    with_scalar = i == 1 and _with_scalar(op, variant)
    return fill(
        UNWRAP_LIST if p.kind is LIST else UNWRAP,
        i=str(i),
        p=p.name,
        or_scalar=fill(OR_SCALAR, p=p.name, **SHORT) if with_scalar else "",
        other_operand=_other_operand(op) if variant == "operator" else "",
        or_none=fill(OR_NONE, p=p.name, i=str(i)) if p.kind is OPTIONAL else "",
        operand="plain_operand" if variant == "plain" else "operand",
        given=f"owner(OP, {p.name})" if variant == "operator" and i == 0 else p.name,
        first=", x0" if i == 1 and op.takes_number[0] and variant != "operator" else "",
        overridden="" if variant == "plain" else fill(OVERRIDDEN, i=str(i), slowly=_slowly(op, variant)),
    )


def _with_scalar(op: Op, variant: str) -> bool:
    """Whether the function is that of an operator which also takes a scalar on its right: `tensor + 1`."""
    return variant == "operator" and op.kind == "pointwise" and op.takes_number == (op.takes_number[0], True)


PROMOTE = """
if not ({alike}):
    {xs} = promote(OP, {xs})
"""

PROMOTE_WITH_SCALAR = """
if not ({alike}):
    if not (x0.dtype is F32 and (x1.__class__ is float or x1.__class__ is int)):
        {xs} = promote(OP, {xs})
"""

TO_FLOATING = """
if x0.dtype is not F32:
    x0 = to_floating(OP, x0)
"""


def _promote(op: Op, tensors: list[Param], variant: str) -> str:
    """Lines that give the operands of a pointwise op one dtype. (NumPy itself keeps float32 next to a scalar.)"""
    if op.kind != "pointwise":
        return ""
    xs = [f"x{i}" for i in range(len(tensors))]
    if len(xs) == 1:
        return fill(TO_FLOATING) if op.rule == "float" else ""
    same_class = " and ".join(f"x0.__class__ is {x}.__class__" for x in xs[1:])
    same_dtype = " is ".join(f"{x}.dtype" for x in xs) + (" is F32" if op.rule == "float" else "")
    template = PROMOTE_WITH_SCALAR if _with_scalar(op, variant) else PROMOTE
    return fill(template, alike=f"{same_class} and {same_dtype}", xs=", ".join(xs))


PREPARE_IF_GIVEN = """
if {given}:
    {values} = PREPARE({values})
"""


def _prepare(op: Op) -> str:
    """The line that runs the row's `prepare`: checks, normalized arguments."""
    if op.prepare is None:
        return ""
    values = ", ".join(_values(op))
    if op.kind == "reduction":  # nothing to prepare in the most frequent call, `x.sum()`
        given = " or ".join(f"{p.name} is not None" for p in op.params if p.name in ("dim", "dtype"))
        return fill(PREPARE_IF_GIVEN, given=given, values=values)
    return f"{values}{',' if len(op.params) == 1 else ''} = PREPARE({values})"


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


def _kernel(op: Op, tensors: list[Param]) -> str:
    """The expression that finds the kernel."""
    table = "KERNELS"
    if op.name in COMPILED:
        sized = _values(op)[COMPILED[op.name].sized]
        table = f"(KERNELS if {sized}.size < KERNELS.large_from else KERNELS.large)"
    return f"{table}[{'x0[0]' if tensors[0].kind is LIST else 'x0'}.__class__]"


# --- from arrays to tensors ----------------------------------------------------------------------------------------

WRAP = """
{as_array}
{laid_out}
{in_format}
made = new(Tensor)
made._array = array
{memory}
"""

AS_ARRAY = """
if {other_class}:
    array = as_array(array)
"""

LAID_OUT = """
{condition}:
    array = {made}
"""

OWN_MEMORY = """
made._requires_grad = False
made._memory = made._edge = made._grad = made._view = made._hooks = None
"""

MEMORY_OF_BASE = """
storage = {base}._memory
if storage is None:
    storage = {base}._storage
made._memory = storage
made._edge = made._grad = made._hooks = None
view = {base}._view
made._view = (
    ({base}, (None, OP, {arguments}), storage.version, GRAD.enabled)
    if view is None
    else (view[0], (view[1], OP, {arguments}), storage.version, view[3] and GRAD.enabled)
)
made._requires_grad = VIEW
"""

WRAP_ALL = """
{laid_out}
{in_format}
made = wrap_all(OP, arrays)
"""

EACH_LAID_OUT = """
{condition}arrays = each_laid_out({rules}, x0, arrays)
"""

IN_FORMAT = """
if x0.ndim {ranks} and ({channels_last}):
    {arrays} = in_format_of(({inputs},), {arrays})
{or_rows}
"""

OR_ROWS = """
elif array.ndim > 1 and not array.flags.c_contiguous:
    array = in_rows(array)
"""

EACH_IN_ROWS = """
else:
    arrays = each_laid_out({rules}, x0, arrays)
"""


def _wrap(op: Op) -> str:
    """Lines that make tensors of the results, in the strides that the row's rule gives them (rows/strides.py)."""
    if len(op.outputs) > 1:
        return fill(WRAP_ALL, laid_out=_each_laid_out(op), in_format=_in_format(op, "arrays"))
    memory = fill(OWN_MEMORY)
    if op.kind == "view":
        rest = ", ".join(p.name for p in op.params[1:])
        memory = fill(MEMORY_OF_BASE, base=op.params[0].name, arguments=f"({rest},)" if rest else "()")
    return fill(
        WRAP,
        as_array="" if op.kind == "view" else fill(AS_ARRAY, other_class=_other_class(op)),
        laid_out=_laid_out(op),
        in_format=_in_format(op, "array"),
        memory=memory,
    )


def _each_laid_out(op: Op) -> str:
    """The line that gives several results their strides."""
    if not op.strides:
        return ""
    assert isinstance(op.strides, str), f"{op.name}: the strides of several results are named"
    condition = "if not x0.flags.c_contiguous: " if op.kind in ("reduction", "same shape") else ""
    rules = op.strides if " " in op.strides else " ".join([op.strides] * len(op.outputs))
    return fill(EACH_LAID_OUT, condition=condition, rules=repr(rules))


def _other_class(op: Op) -> str:
    """Whether a result may be a scalar of NumPy's: the quickest question that finds all of them."""
    return f"array.__class__ {'is not x0.__class__' if _is_ufunc(op) else 'not in STORAGES'}"


def _is_ufunc(op: Op) -> bool:
    return op.kind == "pointwise" and isinstance(op.kernel, str) and "." not in op.kernel


def _laid_out(op: Op) -> str:
    """Lines that give the result its strides where the kernel may have left others: a ufunc of NumPy's leaves the right
    ones if its first operand lies in rows."""
    if op.strides == "rows":
        return fill(LAID_OUT, condition="elif array.ndim > 1 and not array.flags.c_contiguous", made="in_rows(array)")
    if callable(op.strides):
        made = f"in_order(OP.strides({', '.join(_values(op))}), array)"
        unless = getattr(op.strides, "unless", "")
        return fill(LAID_OUT, condition=f"elif array.ndim > 1{f' and not ({unless})' if unless else ''}", made=made)
    if op.strides == "columns":
        return fill(LAID_OUT, condition="elif array.ndim > 1", made="in_columns(array)")
    tensors = [p for p in op.params if p.is_tensor]
    xs = [f"x{i}" for i in range(len(tensors))]
    if op.strides == "input":
        condition = "if not x0.flags.c_contiguous or not array.flags.c_contiguous"
        return fill(LAID_OUT, condition=condition, made="like_input(x0, array)")
    if op.strides != "operands":
        return ""
    if _is_ufunc(op) and len(xs) <= 2:
        condition = "if not x0.flags.c_contiguous"
    else:
        certain = [x for x, p, number in zip(xs, tensors, op.takes_number) if p.kind is TENSOR and not number]
        checked = ("array", "x0", *certain[1:])
        condition = f"if not ({' and '.join(f'{x}.flags.c_contiguous' for x in checked)})"
    return fill(LAID_OUT, condition=condition, made=f"in_order_of(({', '.join(xs)},), array)")


def _in_format(op: Op, arrays: str) -> str:
    """Lines that give results the memory format of inputs whose channels have the smallest stride (channels_last).

    In an image of one pixel, and so in every 1×1 kernel, all strides are equal: only the first input decides then.
    """
    if not op.format_of:
        return ""
    names = [p.name for p in op.params if p.is_tensor]
    inputs = [f"x{names.index(name)}" for name in op.format_of]
    found = " or ".join(f"(steps := {x}.strides)[1] {'<' if n else '<='} steps[-1]" for n, x in enumerate(inputs))
    ranks = f"== {op.format_ranks[0]}" if len(op.format_ranks) == 1 else "> 3"
    or_rows = fill(OR_ROWS) if arrays == "array" else ""
    if arrays == "arrays" and op.format_ranks:  # a kernel may have kept the format of an input of another rank
        or_rows = fill(EACH_IN_ROWS, rules=repr(" ".join(["rows"] * len(op.outputs))))
    return fill(IN_FORMAT, ranks=ranks, channels_last=found, inputs=", ".join(inputs), arrays=arrays, or_rows=or_rows)


# --- the graph -----------------------------------------------------------------------------------------------------

RECORD = """
if ({tracked}) and GRAD.enabled:
    {find_edges}
    if {needed}:
        {refuse_integers}
        {memories}
        node = new(Node)
        node.op = OP
        node.edges = ({edges},)
        node.saved = ({saved})
        node.args = ({args})
        node.hooks = None
        node.sequence_nr = next_sequence_nr()
        {attach}
"""

ATTACH = """
node.outputs = ((array.shape, array.dtype, array.__class__),)
made._edge = (node, 0)
{requires_grad}
"""


def _record(op: Op, tensors: list[Param]) -> str:
    """Lines that record a node: edges to the inputs that require grad, and what the formulas of these need."""
    wanted = [(i, p) for i, p in enumerate(tensors) if p.name in op.wrt]
    if not wanted:
        return ""
    find, edges, some = [], [], []
    for i, p in wanted:
        if p.kind is LIST:
            find.append(f"e{i} = [edge_of(t) for t in {p.name}] if r{i} else [None] * len(x{i})")
            edges.append(f"*e{i}")
            some.append(f"e{i}.count(None) < len(e{i})")  # not `any`: an edge that leads nowhere is false
        else:
            n = p.name
            find.append(f"e{i} = ({n}._edge or ({n}, 0)) if r{i} is True else view_edge({n}) if r{i} else None")
            edges.append(f"e{i}")
            some.append(f"e{i} is not None")
    needed = " or ".join(some)
    if op.kind == "cast":  # integers have no gradients
        needed = f"({needed}) and array.dtype.kind not in 'biu'"
    integers = op.kind != "cast" and any(p.name == "dtype" for p in op.params)
    memories = [f"m{k} = {name}._memory" for k, name in enumerate(op.saved) if _is_tensor(op, tensors, name)]
    saved = [_saved(op, k, name, users, tensors) for k, (name, users) in enumerate(op.saved.items())]
    attach = "attach(OP, node, made)"
    if len(op.outputs) == 1:
        attach = fill(ATTACH, requires_grad="" if op.kind == "view" else "made._requires_grad = True")
    return fill(
        RECORD,
        tracked=" or ".join(f"r{i}" for i, _ in wanted),
        find_edges="\n".join(find),
        needed=needed,
        refuse_integers="refuse_integers(array)" if integers else "",
        memories="\n".join(memories),
        edges=", ".join(edges),
        saved=", ".join(saved) + "," * bool(saved),
        args="".join(_argument(op, tensors, name) + ", " for name in op.kept).rstrip(),
        attach=attach,
    )


def _is_tensor(op: Op, tensors: list[Param], name: str) -> bool:
    """Whether a name is that of an argument which is always one tensor."""
    return any([p.name == name and p.kind is TENSOR and not op.takes_number[i] for i, p in enumerate(tensors)])


def _saved(op: Op, k: int, name: str, users: set[str], tensors: list[Param]) -> str:
    """The expression that saves a tensor for backward, the k-th, if an input whose formula needs it requires grad."""
    if name in op.cache:
        return name
    if name in op.outputs:
        saves = "save_result(made)" if len(op.outputs) == 1 else f"save(made[{op.outputs.index(name)}])"
    elif _is_tensor(op, tensors, name):  # what `save` does, without a call
        saves = f"(save({name}) if m{k} is None or m{k}.version is None else ({name}._array, m{k}, m{k}.version))"
    elif any([p.name == name and p.kind is OPTIONAL for p in op.params]):
        saves = f"(None if {name} is None else save({name}))"
    else:
        saves = f"save({name})"
    if users == set(op.wrt):
        return saves
    index = {p.name: i for i, p in enumerate(tensors)}
    needed = " or ".join(f"e{index[user]} is not None" for user in op.wrt if user in users)
    if len(users) == 1 and name not in op.outputs and LIST not in [p.kind for p in tensors]:
        needed = needed.removesuffix(" is not None")  # not for an edge that leads nowhere (autograd/views.py)
    return f"{saves} if {needed} else None"


def _argument(op: Op, tensors: list[Param], name: str) -> str:
    """How a plain value reaches `node.args`; `input_shape` and `input_dtype` are read off the tensor."""
    for p in tensors:
        for suffix, attribute in (("_shape", "shape"), ("_dtype", "dtype")):
            if name == p.name + suffix:
                if p.kind is LIST:
                    return f"[t._array.{attribute} for t in {p.name}]"
                if p.kind is OPTIONAL and not any(op.takes_number):
                    return f"None if {p.name} is None else {p.name}._array.{attribute}"
                if op.kind == "pointwise" or p.kind is OPTIONAL:  # may be a scalar or None
                    return f"attribute_of({p.name}, '{attribute}')"
                return f"{p.name}._array.{attribute}"
    return name


# --- backward ------------------------------------------------------------------------------------------------------

BACKWARD = """
def {name}(node, grads):
    saved = node.saved
    if saved is FREED:
        raise_freed()
    {on_arrays_first}
    {gradients}
"""

ON_ARRAYS_FIRST = """
if not GRAD.enabled:  # nothing is recorded: the arrays will do
    on_arrays = ON_ARRAYS[{array_type}]
    try:
        results = NotImplemented if on_arrays is None else on_arrays(node, grads)
    except (AttributeError, TypeError):
        if not of_several_classes(node, {array_type}):
            raise
        results = NotImplemented  # a dense gradient where a sparse array was saved, or the other way round
    if results is not NotImplemented:
        return results
"""

FROM_FORMULAS = """
g = grads[0]
{edges}
{saved}
{arguments}
{needs}
return [{results}]
"""


def backward(op: Op, name: str = "backward", on_arrays: bool = True) -> str:
    """The text of `(node, grads) -> gradients`: unpacks what was saved and runs the formulas that are needed.

    Without `on_arrays` it works on tensors, whatever else the row has.
    """
    on_arrays_first = ""
    if on_arrays and has_array_backward(op):
        array_type = "grads[0]._array.__class__" if op.differentiable_outputs == 1 else "node.outputs[0][2]"
        on_arrays_first = fill(ON_ARRAYS_FIRST, array_type=array_type)
    gradients = "return through_twin(node, grads)" if op.through_twin else _from_formulas(op)
    return fill(BACKWARD, name=name, on_arrays_first=on_arrays_first, gradients=gradients) + "\n"


def _from_formulas(op: Op) -> str:
    """Lines that return the gradients that the row's formulas give."""
    wanted = _differentiated(op)
    saved = [f"{name} = unpack(node, saved[{k}], {_edge_of(op, name, k)})" for k, name in enumerate(op.saved)
             if name not in op.cache]  # fmt: skip
    if op.backward is not None:
        needs, results = _needs(wanted), f"*OP.backward({', '.join(arguments_of(op.backward))})"
    else:
        needs, results = "", ", ".join(_gradient(op, p) for p in wanted)
    return fill(
        FROM_FORMULAS,
        edges=_edges(wanted),
        saved="\n".join(saved),
        arguments="\n".join(f"{name} = node.args[{k}]" for k, name in enumerate(op.kept)),
        needs=needs,
        results=results,
    )


def _differentiated(op: Op) -> list[Param]:
    return [p for p in op.params if p.is_tensor and p.name in op.wrt]


def _edges(wanted: list[Param]) -> str:
    """Lines that set e_<input>, the edge of each input that can have a gradient."""
    lists = [p for p in wanted if p.kind is LIST]
    if not lists:
        return f"{', '.join(f'e_{p.name}' for p in wanted)}, = node.edges"
    after = len(wanted) - 1
    lines = [f"e_{lists[0].name} = node.edges[: len(node.edges) - {after}]"]
    single = [p for p in wanted if p.kind is not LIST]
    lines += [f"e_{p.name} = node.edges[len(node.edges) - {after - k}]" for k, p in enumerate(single)]
    return "\n".join(lines)


def _edge_of(op: Op, name: str, k: int) -> str:
    """The edge through which a saved tensor, the k-th, is differentiated again."""
    if name in op.outputs:
        output = op.outputs.index(name)
        return f"(node, {output})" if output < op.differentiable_outputs else "None"
    if name in op.wrt:
        return f"e_{name}"
    is_list = any(p.name == name and p.kind is LIST for p in op.params)
    return f"[None] * len(saved[{k}])" if is_list else "None"


def _gradient(op: Op, p: Param) -> str:
    call = f"D_{p.name}({', '.join(arguments_of(op.formulas[p.name]))})"
    return f"*{call}" if p.kind is LIST else f"{call} if e_{p.name} else None"


def _needs(wanted: list[Param]) -> str:
    return f"needs = ({''.join(f'e_{p.name} is not None, ' for p in wanted).rstrip()})"


# --- backward on arrays --------------------------------------------------------------------------------------------

ARRAY_BACKWARD = """
def on_arrays(node, grads):
    g = grads[0]
    {declines}
    {edges}
    {saved}
    {arguments}
    {gradients}
"""

SAVED_ARRAY = """
if s{k}.__class__ is tuple and s{k}[1].version == s{k}[2]:
    {name} = s{k}[0]
elif s{k} is None:
    {name} = None
else:
    {name} = saved_array(node, s{k}, {edge})
"""

DECLINES_OTHER_OUTPUTS = """
if g is None or grads.count(None) < len(grads) - 1:
    return NotImplemented
"""

DECLINES_COPY = """
if not g._array.flags.c_contiguous:
    return NotImplemented
"""

DECLINES_LARGE = """
if g._array.size >= MANY:
    return NotImplemented
"""

DECLINES_NUMBERS = """
if (other.__class__ is float or other.__class__ is int) and g._array.dtype.itemsize == 2:
    return NotImplemented  # a number keeps its digits beside half precision, which plain arithmetic would round away
"""

FROM_KERNEL = """
{needs}
{all_grads}
arrays = {kernel}({arguments})
if arrays is NotImplemented:
    return NotImplemented
if arrays.__class__ is not tuple:
    arrays = (arrays,)
{in_format}
{found}, = arrays
return [{gradients}]
"""

ALL_GRADS = """
grads = filled_up(node, grads)
g = grads[0]
"""


def has_array_backward(op: Op) -> bool:
    """Whether gradients can be computed without tensors: by formulas, the row's kernel, or a registered one."""
    registered = any(
        f"{op.name}.backward" in table for (_, source), table in list(REGISTRY.items()) if source == "registered"
    )
    return bool(op.on_arrays or op.backward_kernel or (registered and op.differentiable_outputs == 1))


def array_backward(op: Op, arguments: tuple[str, ...] | None, sized: int | None = None) -> str:
    """The text of a backward on arrays: of a kernel with these arguments, or (None) of the formulas.

    `sized`: there is another kernel for large arrays; the index of the argument whose size decides.
    """
    wanted = _differentiated(op)
    in_format = op.format_of[0] if op.format_of and op.through_twin else None
    declines = ""
    if op.differentiable_outputs > 1 and arguments is not None and "grads" not in arguments:  # one output's alone
        declines = fill(DECLINES_OTHER_OUTPUTS)
    if arguments is None and op.kind == "view":  # the gradient is a view of that of the output
        declines = fill(DECLINES_COPY)
    elif arguments is None and COMPILED:  # the ops have kernels for large arrays, which plain arithmetic has not
        declines = fill(DECLINES_LARGE)
    used = {*op.saved, *op.kept} if arguments is None else {*arguments, in_format}
    unpacked = [
        f"{name} = saved_array(node, s{k}, None) if s{k}.__class__ is Packed else s{k}"
        if name in op.cache
        else fill(SAVED_ARRAY, name=name, k=str(k), edge=f"e_{name}" if name in op.wrt else "None")
        for k, name in enumerate(op.saved)
        if name in used
    ]
    if unpacked:
        unpacked.insert(0, f"{', '.join(f's{k}' for k in range(len(op.saved)))}, = node.saved")
    kept = [f"{name} = node.args[{k}]" for k, name in enumerate(op.kept) if name in used]
    if arguments is None and op.name in IN_FLOAT32:
        kept.append(fill(DECLINES_NUMBERS))
    if arguments is None:
        gradients = _arrays_from_formulas(op)
    else:
        gradients = _arrays_from_kernel(op, arguments, in_format, sized)
    text = fill(
        ARRAY_BACKWARD,
        declines=declines,
        edges=f"{', '.join(f'e_{p.name}' for p in wanted)}, = node.edges",
        saved="\n".join(unpacked),
        arguments="\n".join(kept),
        gradients=gradients,
    )
    return text + "\n"


def _arrays_from_formulas(op: Op) -> str:
    results = []
    for p in _differentiated(op):
        given = ", ".join("g._array" if name == "g" else name for name in arguments_of(op.formulas[p.name]))
        made = "as_view_of" if op.kind == "view" else "as_grad"
        results.append(f"{made}(D_{p.name}({given}), g) if e_{p.name} else None")
    return f"return [{', '.join(results)}]"


def _arrays_from_kernel(op: Op, arguments: tuple[str, ...], in_format: str | None, sized: int | None) -> str:
    given = [{"g": "g._array", "grads": "[g._array for g in grads]"}.get(name, name) for name in arguments]
    kernel, wanted = "BACKWARD", _differentiated(op)
    if sized is not None:
        kernel = f"(BACKWARD if {given[sized]}.size < ROW.large_from else LARGE_BACKWARD)"
    return fill(
        FROM_KERNEL,
        needs=_needs(wanted) if "needs" in arguments else "",
        all_grads=fill(ALL_GRADS) if "grads" in arguments else "",
        kernel=kernel,
        arguments=", ".join(given),
        in_format=f"arrays = gradients_in_format_of({in_format}, arrays)" if in_format else "",
        found=", ".join(f"d_{p.name}" for p in wanted),
        gradients=", ".join(f"None if d_{p.name} is None else as_grad(d_{p.name}, g)" for p in wanted),
    )


# --- composites ----------------------------------------------------------------------------------------------------

GUARD = """
def guard({parameters}):
    {given}
    {ask}
    try:
        {handler}
        {checks}
        {autocast}
        return FUNCTION({arguments})
    except Exception:
        __tracebackhide__ = True
        types = check_tensors(FUNCTION, SELF, ({tensors}), ({values}))
        if types:
            return call_other(SELF, types, *as_called(SELF, ({positional}), dict({named})))
        raise
"""

CHECKED = """
def guard({parameters}):
    {given}
    try:
        {checks}
        return COMPOSITE({arguments})
    except Exception:
        __tracebackhide__ = True
        check_tensors(COMPOSITE, SELF, ({tensors}), ({values}))
        raise
"""

AUTOCAST = """
if LOCAL.autocast is not None:
    return LOCAL.autocast.composite(FUNCTION, {arguments})
"""

ASK = """
if LOCAL.function_modes or LOCAL.dispatch_modes or not ({ordinary}):
    asked = ask(SELF, ({positional}), dict({named}))
    if asked is not NotImplemented:
        return asked
"""

ORDINARY = "({name}.__class__ in PLAIN or {name}.__class__ in NUMBERS_AND_NAMES)"

HANDLER = """
handled = HANDLER(SELF, {arguments})
if handled is not NotImplemented:
    return handled
"""

CHECK_LAYOUT = """
if layout is not None and layout is not strided:
    check_strided(SELF.__name__, layout)
"""


def checked(
    parameters: list[str], arguments: list[str], given: list[str], checks: list[str], tensors: list[str]
) -> str:
    """The text of a guard that only checks: of a method which writes what the composite returns."""
    return fill(
        CHECKED,
        parameters=", ".join(parameters),
        given="\n".join(given),
        checks="\n".join(checks),
        arguments=", ".join(arguments),
        tensors="".join(f"{name}, " for name in tensors),
        values="".join(f"{value}, " for value in _values_of(arguments)),
    )


def _values_of(arguments: list[str]) -> list[str]:
    return [a.partition("=")[0] if a[:2] != "**" else f"*{a[2:]}.values()" for a in arguments]


def guard(
    parameters: list[str], arguments: list[str], given: list[str], checks: list[str], tensors: list[str],
    autocast: bool, handler: bool, asks: bool,
) -> str:  # fmt: skip
    """The text of the function that guards a composite (guard.py): it checks the `tensors` if the composite fails."""
    call = ", ".join(arguments)
    values = _values_of(arguments)
    positional = "".join(f"{a}, " for a in arguments if "=" not in a and not a.startswith("**"))
    named = ", ".join(a for a in arguments if "=" in a or a.startswith("**"))
    ordinary = [
        fill(ORDINARY, name=value) if value[0] != "*" else f"not {value.partition('.')[0][1:]}" for value in values
    ]
    return fill(
        GUARD,
        parameters=", ".join(parameters),
        given="\n".join(given),
        ask=fill(ASK, ordinary=" and ".join(ordinary), positional=positional, named=named) if asks else "",
        handler=fill(HANDLER, arguments=call) if handler else "",
        checks="\n".join(checks),
        autocast=fill(AUTOCAST, arguments=call) if autocast else "",
        arguments=call,
        tensors="".join(f"{name}, " for name in tensors),
        values="".join(f"{value}, " for value in values),
        positional=positional,
        named=named,
    )
