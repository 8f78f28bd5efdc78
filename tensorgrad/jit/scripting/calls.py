"""Calls in a source: of operators, methods, functions of the source and of Python's own."""

from __future__ import annotations

import ast
import builtins
import inspect
import typing
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad import devices, dtypes
from tensorgrad.jit.plain_operators import PLAIN
from tensorgrad.jit.scripting import functional, results
from tensorgrad.jit.scripting.errors import NotWritable, UnsupportedNodeError
from tensorgrad.jit.scripting.types import (
    ANY,
    BOOL,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    Type,
    list_of,
    tuple_of,
)  # fmt: skip
from tensorgrad.jit.scripting.values import Items, Method, Modules, Object, Operator, Ranged, Typed
from tensorgrad.jit.types import number_of
from tensorgrad.nn import functional as F
from tensorgrad.nn.modules.tuples import _pair, _quadruple, _single, _triple
from tensorgrad.size import Size

NUMBERS = ("int", "float", "bool", "number", "complex")


def call(e: Any, node: ast.Call, wanted: Type | None) -> Any:
    """What a call stands for. `e` writes the function that it is in."""
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        raise NotWritable("* or ** in a call")
    function = e.value(node.func)
    if isinstance(function, Modules):
        return e.unit.module_call(e, function, node)
    if isinstance(function, Method):
        owner = function.owner
        if isinstance(owner, Modules):
            return e.unit.method_call(e, owner, function.name, node)
        return _method(e, owner, function.name, node, wanted)
    if isinstance(function, Object):
        return _function(e, function.value, node, wanted)
    if isinstance(function, Typed) and function.type.cls is not None:
        return _method(e, function, "__call__", node, wanted)
    raise NotWritable(f"a call of {ast.unparse(node.func)[:60]}")


def arguments(e: Any, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call."""
    return [e.value(a) for a in node.args], {str(k.arg): e.value(k.value) for k in node.keywords}


def _typed(e: Any, node: ast.Call) -> tuple[list[Typed], dict[str, Typed]]:
    args, named = arguments(e, node)
    return [e.need(a, node) for a in args], {k: e.need(v, node) for k, v in named.items()}


def _text(args: list[Typed], named: dict[str, Typed]) -> str:
    return ", ".join([*(a.text for a in args), *(f"{k}={v.text}" for k, v in named.items())])


# --- methods ---------------------------------------------------------------------------------------------------------


def _method(e: Any, owner: Typed, name: str, node: ast.Call, wanted: Type | None) -> Any:
    kind = owner.type
    if kind == TENSOR and name == "tolist":
        if wanted is None:
            raise e.refused("Expected type hint for result of tolist()", node)
        return Typed(f"annotate({wanted}, {e.kept(owner).text}.tolist())", wanted)
    if kind == TENSOR:
        args, named = _typed(e, node)
        return operator(e, name, [owner, *args], named, node)
    if kind.name in ("List", "Dict"):
        part = kind.parts[-1]
        args = [e.typed(a, part if i == len(node.args) - 1 else None) for i, a in enumerate(node.args)]
        if name == "append" and args:
            args = [e.as_type(args[0], part, node)]
        found = results.of_container(kind, name, [a.type for a in args])
        if found is None:
            raise e.unfit(f"a {kind} has no method {name}", node, Typed("", NONE))
        named = {str(k.arg): e.typed(k.value) for k in node.keywords}
        if name == "sort" and "key" in named:
            raise e.refused("sort() with a key is not supported", node, UnsupportedNodeError)
        if name == "append":
            return Typed(f"torch.append({_text([owner, *args], named)})", found)
        return Typed(f"torch.{name}({_text([owner, *args], named)})", found)
    if kind == STR:
        args, named = _typed(e, node)
        if name not in results.OF_STRINGS:
            raise e.refused(f"a str has no method {name} in TorchScript", node)
        return Typed(f"torch.{name}({_text([owner, *args], named)})", results.OF_STRINGS[name])
    if kind.cls is not None:
        return e.unit.instance_call(e, owner, name, node)
    if kind.name == "Optional":
        raise e.refused(f"'{kind}' object has no attribute or method '{name}'", node)
    raise NotWritable(f"a method of a {kind}")


def operator(e: Any, name: str, args: list[Typed], named: dict[str, Typed], node: ast.AST) -> Typed:
    """A call of an operator on tensors."""
    named = dict(named)
    if len(args) == 1 and not named and name in CASTS:
        name, named = "to", {"dtype": Typed(str(number_of(CASTS[name])), INT)}
    if name in AXES:
        named = {{"axis": "dim", "keepdims": "keepdim"}.get(k, k): v for k, v in named.items()}
    if name == "to" and len(args) > 1 and args[1].type == STR:
        args = [args[0], Typed(f"torch.device({args[1].text})", DEVICE), *args[2:]]
    if "device" in named and named["device"].type == STR:
        named["device"] = Typed(f"torch.device({named['device'].text})", DEVICE)
    if name in ("type", "numpy", "backward", "register_hook"):
        raise NotWritable(f"{name}() of a tensor")
    if name in results.VARARGS:
        first = 0 if args and args[0].type != TENSOR else 1
        rest = args[first:]
        if rest and all(a.type in (INT, NUMBER) for a in rest):
            args = [*args[:first], Typed(f"[{', '.join(a.text for a in rest)}]", list_of(INT))]
    if name.removesuffix("_") in OF_NUMBERS:
        args = [as_number(a) for a in args]
    args = [listed(e, a) for a in args]
    named = {k: listed(e, v) for k, v in named.items()}
    if any(a.type.name == "Tuple" for a in (*args, *named.values())):
        raise NotWritable(f"a tuple of several types as an argument of {name}")
    if name == "unique":
        return _unique(e, args, named)
    if name == "size" and not args[1:] and not named:
        return Typed(f"torch.size({args[0].text})", list_of(INT))
    if name == "split" and args[1:] and args[1].type.name == "List":
        name = "split_with_sizes"
    kind = results.of_tensors(name, [a.type for a in args], {k: v.type for k, v in named.items()})
    if kind is None:
        raise NotWritable(f"the operator {name} is not here")
    results.check(name, [a.type for a in args], {k: v.type for k, v in named.items()})
    return Typed(f"torch.{name}({_text(args, named)})", kind)


def _unique(e: Any, args: list[Typed], named: dict[str, Typed]) -> Typed:
    """`unique`, whose operators always return three tensors: those that are asked for, by constants."""
    given = dict(zip(("input", "sorted", "return_inverse", "return_counts", "dim"), args, strict=False)) | named
    flags = [given[n].text if n in given else d for n, d in (("return_inverse", "False"), ("return_counts", "False"))]
    order = given["sorted"].text if "sorted" in given else "True"
    if not set(flags) <= {"True", "False"}:
        raise NotWritable("unique() with flags that are not constants")
    dim = given.get("dim")
    if dim is not None and dim.type == INT:
        text = f"torch.unique_dim({given['input'].text}, {dim.text}, {order}, {flags[0]}, {flags[1]})"
    else:
        text = f"torch._unique2({given['input'].text}, {order}, {flags[0]}, {flags[1]})"
    places = [0, *(i for i, flag in enumerate(flags, 1) if flag == "True")]
    if len(places) == 1:
        return Typed(f"({text})[0]", TENSOR)
    found = e.kept(Typed(text, tuple_of(TENSOR, TENSOR, TENSOR))).text
    return Typed(f"({', '.join(f'{found}[{i}]' for i in places)})", tuple_of(*[TENSOR] * len(places)))


# Operators that take numbers beside tensors.
OF_NUMBERS = frozenset(("add", "div", "fill", "full", "full_like", "masked_fill", "mul", "new_full", "sub", "where"))
AXES = frozenset(
    ("all", "amax", "amin", "any", "argmax", "argmin", "cat", "max", "mean", "min", "norm", "prod", "softmax",
     "squeeze", "stack", "std", "sum", "unsqueeze", "var")
)  # fmt: skip
# Methods that are casts.
CASTS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "long": dtypes.int64,
    "int": dtypes.int32, "bool": dtypes.bool, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16,
    "bfloat16": dtypes.bfloat16,
}  # fmt: skip


def as_number(value: Typed) -> Typed:
    """A bool as the integer that TorchScript gives to operators on tensors."""
    return Typed(f"int({value.text})", INT) if value.type == BOOL else value


def listed(e: Any, value: Typed) -> Typed:
    """A tuple of numbers or tensors as the list that an operator takes."""
    if value.type == tuple_of():
        return Typed(f"annotate({list_of(INT)}, [])", list_of(INT))
    if value.type.name != "Tuple" or len(set(value.type.parts)) != 1:
        return value
    kind = list_of(value.type.parts[0])
    tree = ast.parse(value.text, mode="eval").body
    if isinstance(tree, ast.Tuple):
        parts = [str(ast.get_source_segment(value.text, part)) for part in tree.elts]
        return Typed(f"[{', '.join(parts)}]", kind)
    kept = e.kept(value).text
    return Typed(f"[{', '.join(f'{kept}[{i}]' for i in range(len(value.type.parts)))}]", kind)


# --- functions -------------------------------------------------------------------------------------------------------


def _function(e: Any, function: Any, node: ast.Call, wanted: Type | None) -> Any:
    if isinstance(function, Operator):
        args, named = _typed(e, node)
        return operator(e, function.name, args, named, node)
    name = getattr(function, "__name__", "")
    if function in (builtins.isinstance, builtins.hasattr) or name in results.MODES:
        test = e.condition(node)
        return Typed(test.text if test.static is None else str(test.static), BOOL)
    if function is torch.jit.annotate or function is typing.cast:
        kind = e.annotation(node.args[0])
        return Typed(f"annotate({kind}, {e.as_type(e.typed(node.args[1], kind), kind, node).text})", kind)
    if getattr(function, "__self__", None) is not None and inspect.ismethod(function):
        raise NotWritable(f"a method of an object of Python: {name}")
    made = BUILTINS.get(function) if isinstance(function, typing.Hashable) else None
    if made is not None:
        return made(e, node, wanted)
    if function in results.NAMES:
        args, _ = _typed(e, node)
        if all(a.type.name in NUMBERS for a in args):
            kind = results.MATH[results.NAMES[function]]
            name = results.NAMES[function]
            return Typed(f"torch.{name}({_text(args, {})})", kind)
        raise e.unfit(f"math.{name} of {args[0].type}", node, *args)
    if isinstance(function, type):
        return _class(e, function, node)
    if function is torch._assert:
        message = node.args[1] if node.args[1:] else node.keywords[0].value
        e.do_assert(ast.copy_location(ast.Assert(node.args[0], message), node))
        return Object(None)
    if function is warnings.warn:
        return Typed(f"torch.warn({e.typed(node.args[0]).text})", NONE)
    own = functional.FUNCTIONS.get(name) if getattr(F, name, None) is function else None
    if own is not None:
        return e.unit.function_call(e, _with_indices(e, own, node), node)
    if getattr(torch, name, None) is function or getattr(F, name, None) is function:
        return _of_torch(e, functional.RENAMED.get(name, name), node, wanted)
    for module, prefix in ((torch.linalg, "linalg"), (torch.fft, "fft"), (torch.special, "special")):
        if getattr(module, name, None) is function:
            args, named = _typed(e, node)
            return operator(e, name if name.startswith(prefix) else f"{prefix}_{name}", args, named, node)
    foreign = getattr(function, "overloadpacket", function)
    if type(foreign).__name__ == "OpOverloadPacket":
        args, named = _typed(e, node)
        space, _, short = str(foreign).partition(".")
        if space == "aten":
            return operator(e, short, args, named, node)
        return Typed(f"ops.{space}.{short}({_text(args, named)})", TENSOR)
    if inspect.isfunction(inspect.unwrap(function)) if callable(function) else False:
        return e.unit.function_call(e, function, node)
    raise NotWritable(f"a call of {function!r:.80}")


def _with_indices(e: Any, function: Callable, node: ast.Call) -> Callable:
    """A function of `torch.nn.functional`; of those that pool, the form that the constant `return_indices` names."""
    other = functional.FUNCTIONS.get(f"{function.__name__}_with_indices")
    if other is None:
        return function
    place = list(inspect.signature(function).parameters).index("return_indices")
    named = {k.arg: k.value for k in node.keywords}
    flag = node.args[place] if len(node.args) > place else named.get("return_indices")
    text = "False" if flag is None else e.typed(flag).text
    if text not in ("True", "False"):
        raise NotWritable(f"{function.__name__} with return_indices that is not a constant")
    return other if text == "True" else function


def _of_torch(e: Any, name: str, node: ast.Call, wanted: Type | None) -> Any:
    if name in ("tensor", "as_tensor"):
        args = [e.typed(a) for a in node.args]
        named = {str(k.arg): e.typed(k.value) for k in node.keywords}
        args = [listed(e, a) for a in args]
    else:
        args, named = _typed(e, node)
    named.pop("inplace", None) if name in functional.RENAMED.values() else None
    if name.startswith("max_pool") and "return_indices" in named:
        name += "_with_indices" if named.pop("return_indices").text == "True" else ""
    if "input" in named and not args:
        args = [named.pop("input")]
    if (
        name in ("cat", "concat", "stack", "hstack", "vstack", "dstack", "column_stack")
        and args
        and args[0].type.name == "Tuple"
    ):
        args = [listed(e, args[0]), *args[1:]]
    if args and args[0].type.name in NUMBERS and name in PLAIN and TENSOR not in (a.type for a in args):
        kind = results.MATH.get(name) or results.arithmetic("add", args[0].type, args[-1].type)
        if kind is not None:
            return Typed(f"torch.{name}({_text(args, named)})", kind)
    if name == "einsum" and len(args) > 1 and args[1].type == TENSOR:
        args = [args[0], Typed(f"[{', '.join(a.text for a in args[1:])}]", list_of(TENSOR))]
    if name == "tensordot":
        args, named = _dims_of_tensordot(e, args, named, node)
    if name in ("meshgrid", "broadcast_tensors", "block_diag", "cartesian_prod") and args and args[0].type == TENSOR:
        args = [Typed(f"[{', '.join(a.text for a in args)}]", list_of(TENSOR))]
    return operator(e, name, args, named, node)


def _dims_of_tensordot(e: Any, args: list, named: dict, node: ast.Call) -> tuple[list, dict]:
    """The arguments of `tensordot` as the operator has them: the dimensions of each tensor are a list of its own."""
    dims = args[2] if len(args) > 2 else named.pop("dims", Typed("2", INT))
    if dims.type == INT:
        count = int(dims.text) if dims.text.isdecimal() else None
        if count is None:
            raise NotWritable("a number of dimensions that is not a constant")
        pairs = [Typed(str([*range(-count, 0)]), list_of(INT)), Typed(str([*range(count)]), list_of(INT))]
    else:
        dims = e.kept(dims)
        pairs = [listed(e, e.item(dims, Typed(str(i), INT), node)) for i in range(2)]
    return [*args[:2], *pairs], {key: value for key, value in named.items() if value.type != NONE}


def _class(e: Any, cls: type, node: ast.Call) -> Any:
    if cls is devices.device:
        args, named = _typed(e, node)
        return Typed(f"torch.device({_text(args, named)})", DEVICE)
    if cls is torch.set_grad_enabled:
        return Typed(f"torch.set_grad_enabled({e.typed(node.args[0]).text})", NONE)
    if cls is Size:
        return e.typed(node.args[0])
    kind = e.unit.type_of_class(cls)
    if kind is None or kind.cls is None:
        raise NotWritable(f"the class {cls.__name__}")
    found = kind.cls
    if found.base == "NamedTuple":
        names, kinds = list(found.attributes), list(found.attributes.values())
        given: dict[str, Typed] = {}
        for name, value in zip(names, node.args, strict=False):
            given[name] = e.as_type(e.typed(value, found.attributes[name]), found.attributes[name], node)
        for keyword in node.keywords:
            part = found.attributes[str(keyword.arg)]
            given[str(keyword.arg)] = e.as_type(e.typed(keyword.value, part), part, node)
        for name, value in getattr(cls, "_field_defaults", {}).items():
            if name not in given:
                given[name] = e.as_type(Object(value), found.attributes[name], node)
        if list(given) != names and set(given) != set(names):
            raise e.refused(f"{cls.__name__}() needs {', '.join(names)}", node)
        inside = ", ".join(given[n].text for n in names)
        return Typed(f"{found.name}({inside})", kind) if kinds else Typed(f"{found.name}()", kind)
    if found.base == "Enum":
        raise NotWritable("a member of an enumeration by its value")
    return e.unit.new(e, kind, node)


# --- Python's own ----------------------------------------------------------------------------------------------------


def _number(name: str, kind: Type) -> Callable:
    def make(e: Any, node: ast.Call, wanted: Type | None) -> Any:
        value = e.typed(node.args[0])
        if kind == BOOL and value.type.name in ("str", "List", "Dict"):
            return Typed(e.truth(value, node), BOOL)
        if value.type == TENSOR or value.type.name in (*NUMBERS, "str"):
            return Typed(f"{name}({value.text})", kind)
        raise e.unfit(f"{name}() of a {value.type}", node, value)

    return make


def _str(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    value = e.typed(node.args[0])
    return value if value.type == STR else Typed(f"str({value.text})", STR)


def _len(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    value = e.value(node.args[0])
    if isinstance(value, Modules):
        return Typed(str(len(value.module._modules)), INT)
    value = e.need(value, node)
    if value.type.name == "Tuple":
        return Typed(str(len(value.type.parts)), INT)
    if value.type == TENSOR or value.type.name in ("List", "Dict", "str"):
        return Typed(f"torch.len({value.text})", INT)
    raise e.unfit(f"len() of a {value.type}", node, value)


def _range(e: Any, node: ast.Call, wanted: Type | None) -> Ranged:
    args = [e.kept(e.as_type(e.typed(a), INT, node)) for a in node.args]
    start, step = (args[0].text if len(args) > 1 else "0"), (args[2].text if len(args) > 2 else "1")
    if len(args) == 1:
        return Ranged(args[0].text, start, step)
    return Ranged(", ".join(a.text for a in args), start, step)


def _enumerate(e: Any, node: ast.Call, wanted: Type | None) -> Items:
    start = (
        ast.literal_eval(node.args[1]) if node.args[1:] else next((ast.literal_eval(k.value) for k in node.keywords), 0)
    )
    return Items([str(start or ""), e.value(node.args[0])])


def _zip(e: Any, node: ast.Call, wanted: Type | None) -> Items:
    parts: list[Any] = []
    for arg in node.args:
        value = e.value(arg)
        parts.append(value)
    return Items(parts)


def _least(name: str) -> Callable:
    def make(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
        args = [e.typed(a) for a in node.args]
        if len(args) == 1:
            if args[0].type == TENSOR:
                return operator(e, name, args, {}, node)
            return Typed(f"ops.prim.{name}({args[0].text})", args[0].type.parts[0])
        found = args[0]
        for other in args[1:]:
            if found.type == TENSOR:
                found = _number_of(found, INT if other.type == TENSOR else other.type)
            other = _number_of(other, found.type)
            kind = results.arithmetic("add", found.type, other.type)
            if kind is None:
                raise e.unfit(f"{name}() of {found.type} and {other.type}", node, found, other)
            found = Typed(f"ops.prim.{name}({found.text}, {other.text})", kind)
        return found

    return make


def _number_of(value: Typed, kind: Type) -> Typed:
    """A tensor as a number of a type."""
    return Typed(f"annotate({kind}, {value.text})", kind) if value.type == TENSOR and kind in (INT, FLOAT) else value


def _repeated(count: int) -> Callable:
    """`_pair` and the like, which PyTorch's modules use: a list, or a number several times."""

    def make(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
        return several(e, listed(e, e.typed(node.args[0])), count)

    return make


def several(e: Any, value: Typed, count: int) -> Typed:
    """A number as a list in which it is several times; all else as it is."""
    if value.type not in (INT, FLOAT):
        return value
    text = value.text if value.text.lstrip("-").replace(".", "", 1).isdecimal() else e.kept(value).text
    return Typed(f"[{', '.join([text] * count)}]", list_of(value.type))


def _abs(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    value = e.typed(node.args[0])
    return Typed(f"torch.abs({value.text})" if value.type == TENSOR else f"ops.prim.abs({value.text})", value.type)


def _sum(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    value = e.typed(node.args[0])
    if value.type.name == "List" and value.type.parts[0].name in ("int", "float", "bool") and len(node.args) == 1:
        return Typed(f"torch.sum({value.text})", INT if value.type.parts[0] == BOOL else value.type.parts[0])
    raise NotWritable("sum() of this")


def _round(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    value = e.typed(node.args[0])
    if len(node.args) > 1:
        raise NotWritable("round() with digits")
    return Typed(f"torch.round({value.text})", TENSOR if value.type == TENSOR else FLOAT)


def _sorted(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    if node.keywords:
        raise e.refused("sorted() with options is not supported", node, UnsupportedNodeError)
    value = e.iterated(e.value(node.args[0]), node)
    return Typed(f"torch.sorted({value.text})", value.type)


def _list(e: Any, node: ast.Call, wanted: Type | None) -> Any:
    if not node.args:
        return e.of_list(ast.copy_location(ast.List([]), node), wanted)
    value = e.value(node.args[0])
    if isinstance(value, Modules):
        return value
    value = e.iterated(value, node)
    made = value.text.startswith(("torch.list(", "torch.keys("))
    return Typed(value.text if made else f"torch.list({value.text})", value.type)


def _tuple(e: Any, node: ast.Call, wanted: Type | None) -> Any:
    value = e.value(node.args[0])
    if isinstance(value, Object) or (isinstance(value, Typed) and value.type.name == "Tuple"):
        return value
    raise NotWritable("tuple() of a list")


def _dict(e: Any, node: ast.Call, wanted: Type | None) -> Any:
    if not node.args and not node.keywords:
        return e.of_dict(ast.copy_location(ast.Dict([], []), node), wanted)
    value = e.typed(node.args[0]) if len(node.args) == 1 and not node.keywords else Typed("", NONE)
    pair = value.type.parts[0] if value.type.name == "List" else NONE
    if value.type.name == "Dict":
        return Typed(f"torch.dict({value.text})", value.type)
    if pair.name == "Tuple" and len(pair.parts) == 2:
        return Typed(f"torch.dict({value.text})", Type("Dict", pair.parts))
    raise NotWritable("dict() of this")


def _print(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    args, _ = _typed(e, node)
    return Typed(f"print({_text(args, {})})", NONE)


def _of_text(name: str, kind: Type) -> Callable:
    def make(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
        return Typed(f"torch.{name}({e.typed(node.args[0]).text})", kind)

    return make


def _truths(name: str) -> Callable:
    def make(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
        value = e.typed(node.args[0])
        if value.type == TENSOR:
            return operator(e, name, [value], {}, node)
        return Typed(f"torch.{name}({value.text})", BOOL)

    return make


def _getattr(e: Any, node: ast.Call, wanted: Type | None) -> Any:
    name = ast.literal_eval(node.args[1])
    return e.value(ast.copy_location(ast.Attribute(node.args[0], name), node))


def _divmod(e: Any, node: ast.Call, wanted: Type | None) -> Typed:
    args, _ = _typed(e, node)
    kind = results.arithmetic("add", args[0].type, args[1].type) or ANY
    return Typed(f"torch.divmod({_text(args, {})})", tuple_of(kind, kind))


BUILTINS: dict[Any, Callable] = {
    int: _number("int", INT), float: _number("float", FLOAT), bool: _number("bool", BOOL), str: _str, len: _len,
    range: _range, enumerate: _enumerate, zip: _zip, min: _least("min"), max: _least("max"), abs: _abs, sum: _sum,
    round: _round, sorted: _sorted, list: _list, tuple: _tuple, dict: _dict, OrderedDict: _dict, print: _print,
    getattr: _getattr, ord: _of_text("ord", INT), chr: _of_text("chr", STR), hex: _of_text("hex", STR),
    **{function: _repeated(n) for n, function in enumerate((_single, _pair, _triple, _quadruple), 1)},
    bin: _of_text("bin", STR), oct: _of_text("oct", STR), any: _truths("any"), all: _truths("all"), divmod: _divmod,
}  # fmt: skip
