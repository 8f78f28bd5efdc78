"""Expressions of a source as texts with types."""

from __future__ import annotations

import ast
import builtins
import enum
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad import devices, dtypes, layouts
from tensorgrad.jit import operators
from tensorgrad.jit.scripting import results
from tensorgrad.jit.scripting.calls import as_number, call, listed
from tensorgrad.jit.scripting.errors import NotSupportedError, NotWritable, UnsupportedNodeError, refused
from tensorgrad.jit.scripting.source import MISSING
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
    fits,
    joined,
    list_of,
    of_node,
    of_value,
    optional,
    tuple_of,
    within,
)  # fmt: skip
from tensorgrad.jit.scripting.values import Method, Modules, Object, Operator, Ranged, Test, Typed
from tensorgrad.jit.text import identifier, literal
from tensorgrad.jit.types import number_of
from tensorgrad.tensor import Tensor

COMPARISONS = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
NUMBERS = ("int", "float", "bool", "number", "complex")


def quoted(text: str) -> str:
    """A string in the form that both readers of programs know: characters beyond ASCII as they are."""
    made = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return '"' + "".join(c if c.isprintable() else f"\\{ord(c):03o}" for c in made) + '"'


def as_slice(part: ast.expr) -> ast.expr:
    """`slice(1, None)` as `1:`, which is how programs of torch.fx write what stands between brackets."""
    if not (isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "slice"):
        return part
    given = [None if isinstance(a, ast.Constant) and a.value is None else a for a in part.args]
    lower, upper, step = [None, *given, None][:3] if len(given) == 1 else [*given, None, None][:3]
    return ast.copy_location(ast.Slice(lower, upper, step), part)


class Expressions:
    """Writes expressions of one function.

    Args:
        unit: what is compiled with it.
        source: the function: its tree, its place, and the names around it.
    """

    def __init__(self, unit: Any, source: Any, tree: ast.FunctionDef) -> None:
        self.unit, self.source, self.tree = unit, source, tree
        self.lines: list[str] = []
        self.depth = 1
        self.variables: dict[str, Any] = {}
        self.declared: Type | None = None
        self.returns: Type | None = None
        self.outer: dict[str, Any] = {}  # variables as they are outside of the block: their types stay
        self.loops = 0
        self.unrolled = False
        self.count = 0
        self.names: dict[str, str] = {}

    def refused(self, problem: str, node: Any, kind: type[Exception] = RuntimeError) -> Exception:
        """An error that shows the line of a node."""
        return refused(self.source.place, problem, node, kind)

    def write(self, line: str) -> None:
        """Adds a line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self) -> str:
        """A name for a variable of the program."""
        self.count += 1
        return f"_{self.count - 1}"

    def name_of(self, name: str) -> str:
        """The name in the program of a variable."""
        made = identifier(name)
        if made[:1] == "_" and made[1:2].isdecimal():
            made = f"v{made}"
        return self.names.setdefault(name, made)

    def kept(self, value: Any) -> Typed:
        """A value that is computed once: a variable."""
        value = self.need(value, self.tree)
        if value.text.isidentifier() or value.text.lstrip("-").isdecimal():
            return value
        name = self.fresh()
        self.write(f"{name} = {value.text}")
        return Typed(name, value.type)

    def annotation(self, node: ast.expr) -> Type:
        """The type of an annotation."""
        return of_node(node, self.unit.type_of_class, self.source)

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, wanted: Type | None = None) -> Any:
        """What an expression stands for. `wanted` helps where its type is not in it."""
        made: Callable | None = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if made is None:
            raise self.refused(f"{type(node).__name__} is not supported", node, UnsupportedNodeError)
        if isinstance(node, ast.List | ast.Dict | ast.ListComp | ast.GeneratorExp | ast.Call | ast.Tuple):
            return made(node, wanted)
        return made(node)

    def typed(self, node: ast.expr, wanted: Type | None = None) -> Typed:
        """The value of an expression in the program."""
        return self.need(self.value(node, wanted), node)

    def need(self, value: Any, node: ast.AST) -> Typed:
        """A value of the program."""
        if isinstance(value, Typed):
            return value
        if isinstance(value, Object):
            return self.constant(value.value, node)
        if isinstance(value, Modules):
            return Typed(value.text, value.type)
        if isinstance(value, Ranged):
            return Typed(f"torch.list(range({value.text}))", list_of(INT))
        raise NotWritable(f"{type(value).__name__.lower()} as a value: {ast.unparse(node)[:80]}")

    def constant(self, value: Any, node: ast.AST) -> Typed:
        """A value of Python as one of the program."""
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            parts = [self.need(v if isinstance(v, Typed | Object | Modules) else Object(v), node) for v in value]
            inside = ", ".join(p.text for p in parts)
            return Typed(f"({inside}{',' if len(parts) == 1 else ''})", tuple_of(*(p.type for p in parts)))
        if isinstance(value, enum.Enum):  # which may be a str, too
            kind = self.unit.type_of_class(type(value))
            return Typed(f"{kind}.{value.name}", kind)
        if isinstance(value, str):
            return Typed(quoted(value), STR)
        if isinstance(value, Tensor):
            return Typed(self.unit.constant(value), TENSOR)
        if isinstance(value, list) and value:
            parts = [self.need(Object(v), node) for v in value]
            if len({p.type for p in parts}) == 1:
                return Typed(f"[{', '.join(p.text for p in parts)}]", list_of(parts[0].type))
        if value is None or isinstance(
            value, bool | int | float | complex | devices.device | dtypes.dtype | layouts.layout | layouts.memory_format
        ):
            return Typed(literal(number_of(value)), of_value(value, self.unit.type_of_class))
        raise NotWritable(f"the value {value!r:.80} in the source")

    def of_constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis or isinstance(node.value, bytes):
            raise self.refused("this constant is not supported", node, UnsupportedNodeError)
        return self.constant(node.value, node)

    def of_name(self, node: ast.Name) -> Any:
        if node.id in self.variables:
            return self.variables[node.id]
        if node.id in self.names:
            raise self.refused(f"{node.id} is not defined in all branches", node)
        found = self.source.look_up(node.id)
        if found is MISSING:
            raise self.refused(f"undefined value {node.id}", node)
        return Object(found)

    def of_attribute(self, node: ast.Attribute) -> Any:
        owner, name = self.value(node.value), node.attr
        if isinstance(owner, Object):
            found = getattr(owner.value, name, MISSING)
            if found is MISSING and owner.value is torch.ops.aten and operators.on_tensors(name) is not None:
                return Object(Operator(name))
            if found is MISSING:
                raise self.refused(f"{owner.value!r:.60} has no attribute {name}", node)
            return Object(found)
        if isinstance(owner, Modules):
            return self.unit.attribute(self, owner, name, node)
        if not isinstance(owner, Typed):
            raise NotWritable(f"an attribute of {ast.unparse(node.value)[:60]}")
        if owner.type == TENSOR and name in results.PROPERTIES:
            operator, kind = results.PROPERTIES[name]
            return Typed(f"{operator}({owner.text})", kind)
        cls = owner.type.cls
        if cls is not None:
            if cls.base == "Enum" and name in ("name", "value"):
                return Typed(f"({owner.text}).{name}", STR if name == "name" else cls.value)
            if name in cls.attributes:
                return Typed(f"({owner.text}).{name}", cls.attributes[name])
        if owner.type == tuple_of(TENSOR, TENSOR) and name in ("values", "indices"):  # of max, sort, topk, ...
            return self.item(owner, Typed("0" if name == "values" else "1", INT), node)
        if owner.type == DEVICE and name in ("type", "index"):
            return Typed(f"ops.prim.{name}({owner.text})", STR if name == "type" else optional(INT))
        return Method(owner, name)

    def of_tuple(self, node: ast.Tuple, wanted: Type | None = None) -> Any:
        kinds: Any = (
            wanted.parts
            if wanted and wanted.name == "Tuple" and len(wanted.parts) == len(node.elts)
            else [None] * len(node.elts)
        )
        return Object(tuple(self.value(e, k) for e, k in zip(node.elts, kinds, strict=True)))

    def of_list(self, node: ast.List, wanted: Type | None = None) -> Typed:
        kind = within(wanted).parts[0] if wanted is not None and within(wanted).name == "List" else None
        parts = [self.typed(e, kind) for e in node.elts]
        if not parts:
            return Typed(f"annotate({list_of(kind or TENSOR)}, [])", list_of(kind or TENSOR))
        found: Type | None = kind or parts[0].type
        if kind is None:
            for part in parts[1:]:
                found = found and joined(found, part.type)
        if found is None:
            raise self.refused("Lists must contain only a single type", node)
        texts = [self.as_type(p, found, node).text for p in parts]
        text = f"[{', '.join(texts)}]"
        if found.name in ("Optional", "Union", "Any") or (found.cls is not None and found.cls.is_interface):
            text = f"annotate({list_of(found)}, {text})"
        return Typed(text, list_of(found))

    def of_dict(self, node: ast.Dict, wanted: Type | None = None) -> Typed:
        kinds: tuple = within(wanted).parts if wanted is not None and within(wanted).name == "Dict" else ()
        if not node.keys:
            kinds = kinds or (STR, TENSOR)
            kind = Type("Dict", kinds)
            return Typed(f"annotate({kind}, {{}})", kind)
        if None in node.keys:
            raise self.refused("** is not supported", node, UnsupportedNodeError)
        keys = [self.typed(k) for k in node.keys if k is not None]
        values = [self.typed(v, kinds[1] if kinds else None) for v in node.values]
        kind = Type("Dict", kinds or (keys[0].type, values[0].type))
        values = [self.as_type(v, kind.parts[1], node) for v in values]
        pairs = ", ".join(f"{k.text}: {v.text}" for k, v in zip(keys, values, strict=True))
        return Typed(f"annotate({kind}, {{{pairs}}})", kind)

    def of_joinedstr(self, node: ast.JoinedStr) -> Typed:
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            else:
                assert isinstance(part, ast.FormattedValue)
                if part.format_spec is not None or part.conversion not in (-1, None):
                    raise self.refused("a format in an f-string is not supported", node, UnsupportedNodeError)
                text += "{}"
                values.append(self.typed(part.value).text)
        return Typed(f"torch.format({', '.join([quoted(text), *values])})", STR)

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            test = self.condition(node)
            return Typed(test.text if test.static is None else str(test.static), BOOL)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self.constant(-node.operand.value, node)  # type: ignore[operator]
        value = self.typed(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        name = "neg" if isinstance(node.op, ast.USub) else "bitwise_not"
        if name == "bitwise_not" and value.type != TENSOR:
            raise self.unfit(f"Arguments for call are not valid: bitwise_not of {value.type}", node, value)
        return Typed(f"torch.{name}({value.text})", INT if value.type == BOOL else value.type)

    def of_binop(self, node: ast.BinOp) -> Any:
        if type(node.op) not in results.OPERATORS:
            raise self.refused("this operation is not supported", node, UnsupportedNodeError)
        name = results.OPERATORS[type(node.op)]
        left = self.typed(node.left)
        if name == "remainder" and left.type == STR:
            right = self.value(node.right)
            given = right.value if isinstance(right, Object) and isinstance(right.value, tuple) else (right,)
            inside = ", ".join(self.need(v, node).text for v in given)
            several = isinstance(right, Object) and isinstance(right.value, tuple)
            return Typed(f"torch.percentFormat({left.text}, {f'({inside},)' if several else inside})", STR)
        return self.binary(name, left, self.typed(node.right), node)

    def binary(self, name: str, one: Typed, other: Typed, node: ast.AST) -> Typed:
        """An operation on two values."""
        kind = results.arithmetic(name, one.type, other.type)
        if name == "add" and one.type.name == other.type.name == "Tuple":
            parts = [
                self.item(value, Typed(str(i), INT), node)
                for value in (self.kept(one), self.kept(other))
                for i in range(len(value.type.parts))
            ]
            return self.need(Object(tuple(parts)), node)
        if kind is None:
            one, other = listed(self, one), listed(self, other)
            kind = results.arithmetic(name, one.type, other.type)
        if kind is None:
            raise self.unfit(
                f"Arguments for call are not valid: {name} of {one.type} and {other.type}", node, one, other
            )
        if kind == TENSOR:
            name = "floor_divide" if name == "floordiv" else name
            one, other = as_number(one), as_number(other)
        if TENSOR in (one.type, other.type) and one.type != TENSOR:
            if name == "sub":
                return Typed(f"torch.rsub({other.text}, {one.text})", kind)
            if name in ("add", "mul"):
                one, other = other, one
            elif name == "div":
                return Typed(f"torch.mul(torch.reciprocal({other.text}), {one.text})", kind)
        return Typed(f"torch.{name}({one.text}, {other.text})", kind)

    def unfit(self, problem: str, node: ast.AST, *values: Typed) -> Exception:
        """An error where types are certain; else what is scripted runs as Python."""
        known = ("int", "float", "str", "bool", "Tensor", "NoneType", "Optional")
        if all(v.type.name in known for v in values):
            return self.refused(problem, node)
        return NotWritable(problem)

    # --- conditions --------------------------------------------------------------------------------------------------

    def of_compare(self, node: ast.Compare) -> Any:
        test = self._comparison(node)
        if isinstance(test, Typed):
            return test
        return Typed(test.text if test.static is None else str(test.static), BOOL)

    def _compared(self, op: ast.cmpop, one: Typed, other: Typed) -> Typed:
        name = COMPARISONS[type(op)]
        if TENSOR in (one.type, other.type) and one.type != TENSOR:
            one, other, name = other, one, {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(name, name)
        return Typed(f"torch.{name}({one.text}, {other.text})", TENSOR if TENSOR in (one.type, other.type) else BOOL)

    def of_boolop(self, node: ast.BoolOp) -> Any:
        test = self.condition(node)
        return Typed(test.text if test.static is None else str(test.static), BOOL)

    def condition(self, node: ast.expr) -> Test:
        """A condition."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            static = None if inner.static is None else not inner.static
            return Test(
                f"torch.__not__({inner.text})" if not inner.if_true and not inner.if_false else f"not ({inner.text})",
                static,
                inner.if_false,
                inner.if_true,
                inner.named,
            )
        if isinstance(node, ast.BoolOp):
            return self._both(node)
        value: Any = None
        if isinstance(node, ast.Compare):
            value = self._comparison(node)
        elif isinstance(node, ast.Call):
            value = self._asked(node)
        if isinstance(value, Test):
            return value
        if value is None:
            value = self.value(node)
        if isinstance(value, Object) and isinstance(value.value, bool | None):
            return Test(str(bool(value.value)), bool(value.value))
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return Test(str(node.value), node.value)
        value = self.need(value, node)
        if value.type == NONE:
            return Test("False", False)
        return Test(self.truth(value, node))

    def truth(self, value: Typed, node: ast.AST) -> str:
        """The text of `bool(value)`."""
        if value.type == BOOL:
            return value.text
        if value.type == TENSOR or value.type.name in NUMBERS:
            return f"bool({value.text})"
        if value.type == STR or value.type.name in ("List", "Dict"):
            return f"torch.gt(torch.len({value.text}), 0)"
        raise self.unfit(f"Could not cast value of type {value.type} to bool", node, value)

    def _both(self, node: ast.BoolOp) -> Test:
        """`a and b`, `a or b`."""
        both = isinstance(node.op, ast.And)
        before = dict(self.variables)
        parts: list[Test] = []
        above: list[list[str]] = []  # the lines that each part needs before it
        for one in node.values:
            start = len(self.lines)
            test = self.condition(one)
            lines = self.lines[start:]
            del self.lines[start:]
            if test.static is not None:
                if test.static is not both:  # it decides, whatever the others are
                    self.variables = before
                    return Test(str(test.static), test.static)
                continue
            parts.append(test)
            above.append(lines)
            self.learn(test, both)
        self.variables = dict(before)
        if not parts:
            return Test(str(both), both)
        if len(parts) == 1:
            self.lines += above[0]
            return parts[0]
        facts = tuple(f for p in parts for f in (p.if_true if both else p.if_false))
        named = any(above[1:]) or any(p.named for p in parts)
        if named:
            text = self.fresh()
            self._in_turn(text, parts, above, both)
            self.variables = before
        else:
            self.lines += above[0]
            text = f" {'and' if both else 'or'} ".join(f"({p.text})" for p in parts)
        return Test(text, None, facts if both else (), () if both else facts, named)

    def _in_turn(self, name: str, parts: list[Test], above: list[list[str]], both: bool) -> None:
        """Writes a condition of which later parts need lines of their own: one `if` inside of another."""
        self.lines += above[0]
        test, rest = parts[0], [[f"  {line}" for line in lines] for lines in above[1:]]
        if not rest:
            self.write(f"{name} = {test.text}")
            return
        for truth in (True, False):
            self.write(f"if {test.text}:" if truth else "else:")
            self.depth += 1
            if truth is both:
                self.enter(test, truth)
                self._in_turn(name, parts[1:], rest, both)
            else:
                self.write(f"{name} = {truth}")
            self.depth -= 1

    def _comparison(self, node: ast.Compare) -> Test | Typed:
        if len(node.ops) > 1:
            parts: list[ast.expr] = []
            left = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                parts.append(ast.copy_location(ast.Compare(left, [op], [right]), node))
                left = right
            return self.condition(ast.copy_location(ast.BoolOp(ast.And(), parts), node))
        op, right = node.ops[0], node.comparators[0]
        if isinstance(op, ast.In | ast.NotIn):
            one = self.typed(node.left)
            if isinstance(right, ast.Tuple):
                other = self.of_list(ast.copy_location(ast.List(right.elts), right))
            else:
                other = listed(self, self.typed(right))
            text = f"torch.__contains__({other.text}, {one.text})"
            return Test(text if isinstance(op, ast.In) else f"torch.__not__({text})")
        if isinstance(op, ast.Is | ast.IsNot):
            return self._identity(node.left, right, isinstance(op, ast.Is), node)
        pair = self.value(node.left), self.value(right)
        values = [v.value if isinstance(v, Object) else MISSING for v in pair]
        for i, part in enumerate((node.left, right)):
            if isinstance(part, ast.Constant):
                values[i] = part.value
        if all(isinstance(v, str | bool) for v in values) and type(op) in (ast.Eq, ast.NotEq):
            same = values[0] == values[1]  # of constants: a module's way of padding
            return Test(str(same is isinstance(op, ast.Eq)), same is isinstance(op, ast.Eq))
        return self._compared(op, self.need(pair[0], node), self.need(pair[1], node))

    def _identity(self, left: ast.expr, right: ast.expr, same: bool, node: ast.AST) -> Test:
        if isinstance(left, ast.Constant):
            left, right = right, left
        if not (isinstance(right, ast.Constant) and right.value is None):
            one, other = self.typed(left), self.typed(right)
            return Test(f"{one.text} {'is' if same else 'is not'} {other.text}")
        value = self.value(left)
        if isinstance(value, Modules):
            return Test(str(not same), not same)
        value = self.need(value, node)
        if value.type == NONE:
            return Test(str(same), same)
        if value.type.name not in ("Optional", "Any", "Union"):
            return Test(str(not same), not same)
        facts: tuple = ()
        if isinstance(left, ast.Name):
            facts = ((left.id, within(value.type)),)
        text = f"{value.text} {'is' if same else 'is not'} None"
        return Test(text, None, () if same else facts, facts if same else ())

    def _asked(self, node: ast.Call) -> Test | None:
        """`isinstance`, `hasattr`, `is_scripting`."""
        function = self.value(node.func)
        asked = function.value if isinstance(function, Object) else None
        name = getattr(asked, "__name__", "")
        if asked is builtins.isinstance or (name == "isinstance" and getattr(asked, "__module__", "").endswith("jit")):
            value = self.value(node.args[0])
            if isinstance(value, Object | Modules) and not isinstance(getattr(value, "value", None), tuple):
                raise NotWritable("isinstance of a module")
            value = self.need(value, node)
            given = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            kinds = [self._class_of(n, value.type) for n in given]
            options = value.type.parts if value.type.name == "Union" else (value.type,)
            if value.type.name == "Optional":
                options = (
                    NONE,
                    *(within(value.type).parts if within(value.type).name == "Union" else value.type.parts),
                )
            matches = [o for o in options if any(k is not None and fits(o, k) for k in kinds)]
            if ANY in options:
                raise NotWritable("isinstance of a value of any type")
            if len(matches) in (0, len(options)):
                return Test(str(bool(matches)), bool(matches))
            rest = [o for o in options if o not in matches]
            facts = []
            for found in (matches, rest):
                kind = found[0] if len(found) == 1 else Type("Union", tuple(found))
                facts.append(((node.args[0].id, kind),) if isinstance(node.args[0], ast.Name) else ())
            return Test(
                f"isinstance({value.text}, [{', '.join(map(str, matches))}])"
                if len(matches) > 1
                else f"isinstance({value.text}, {matches[0]})",
                None,
                facts[0],
                facts[1],
            )
        if asked is builtins.hasattr:
            owner, attribute = self.value(node.args[0]), ast.literal_eval(node.args[1])
            if isinstance(owner, Modules):
                there = hasattr(owner.module, attribute)
                return Test(str(there), there)
            raise NotWritable("hasattr of this")
        if name in results.MODES:
            return Test(str(results.MODES[name]), results.MODES[name])
        return None

    def _class_of(self, node: ast.expr, kind: Type) -> Type | None:
        """The type that the second argument of `isinstance` means. `list` is the list that it may be."""
        if isinstance(node, ast.Name) and node.id in ("list", "tuple", "dict", "List", "Tuple", "Dict"):
            name = node.id.capitalize()
            options = kind.parts if kind.name in ("Union", "Optional") else (kind,)
            return next((o for o in options if o.name == name), None)
        return self.annotation(node)

    def learn(self, test: Test, truth: bool) -> None:
        """Takes over what a condition says of the types of variables."""
        for name, kind in test.if_true if truth else test.if_false:
            value = self.variables.get(name)
            if isinstance(value, Typed):
                self.variables[name] = Typed(value.text, kind)

    def enter(self, test: Test, truth: bool) -> None:
        """Takes over, at the start of a block, what its condition says of variables."""
        (self.cast if test.named else self.learn)(test, truth)

    def cast(self, test: Test, truth: bool) -> None:
        """Takes over what a condition says of variables, and writes it down, where a reader does not see it."""
        self.learn(test, truth)
        for name, kind in test.if_true if truth else test.if_false:
            value = self.variables.get(name)
            if isinstance(value, Typed) and value.type == kind:
                self.write(f"{value.text} = unchecked_cast({kind}, {value.text})")

    def of_ifexp(self, node: ast.IfExp) -> Any:
        test = self.condition(node.test)
        if test.static is not None:
            return self.value(node.body if test.static else node.orelse)
        before, values, blocks = dict(self.variables), [], []
        for truth, part in ((True, node.body), (False, node.orelse)):
            self.variables = dict(before)
            mark = len(self.lines)
            self.enter(test, truth)
            values.append(self.typed(part))
            blocks.append(self.lines[mark:])
            del self.lines[mark:]
        self.variables = before
        kind = joined(values[0].type, values[1].type)
        if kind is None:
            raise self.unfit(
                f"the two values of a conditional expression are of type {values[0].type} and {values[1].type}",
                node,
                *values,
            )
        texts = [self.as_type(v, kind, node).text for v in values]
        name = self.fresh()
        self.write(f"if {test.text}:")
        for text, block in zip(texts, blocks, strict=True):
            self.lines += [f"  {line}" for line in block]
            self.write(f"  {name} = {self._annotated(text, kind)}")
            if text is texts[0] and block is blocks[0]:
                self.write("else:")
        return Typed(name, kind)

    @staticmethod
    def _annotated(text: str, kind: Type) -> str:
        return f"annotate({kind}, {text})" if kind.name in ("Optional", "Union") else text

    def as_type(self, value: Any, kind: Type, node: ast.AST) -> Typed:
        """A value as one of a type."""
        value = self.need(value, node)
        if value.type == kind:
            return value
        if fits(value.type, kind):
            if kind.name in ("Optional", "Union"):
                return Typed(f"annotate({kind}, {value.text})", kind)
            return Typed(value.text, kind)
        if kind == FLOAT and value.type == INT:
            raise self.unfit(f"expected a value of type {kind}, but got {value.type}", node, value)
        if value.type == NUMBER and kind.name in ("int", "float"):
            return Typed(f"{kind}({value.text})", kind)
        raise self.unfit(f"Expected a value of type {kind}, but got {value.type}", node, value, Typed("", kind))

    def several(self, value: Typed, wanted: Type) -> Typed:
        """A number where a function of `torch.nn.functional` takes a list of them: a list of one."""
        part, kind = wanted.parts[0], within(value.type)
        if kind not in (INT, FLOAT) or part not in (kind, FLOAT):
            return value
        if kind == value.type:
            return Typed(f"[{value.text if kind == part else f'float({value.text})'}]", wanted)
        kept, name = self.kept(value).text, self.fresh()
        inside = f"unchecked_cast({kind}, {kept})"
        self.write(f"if torch.__is__({kept}, None):")
        self.write(f"  {name} = annotate({optional(wanted)}, None)")
        self.write("else:")
        self.write(f"  {name} = annotate({optional(wanted)}, [{inside if kind == part else f'float({inside})'}])")
        return Typed(name, optional(wanted))

    # --- items -------------------------------------------------------------------------------------------------------

    def iterated(self, value: Any, node: ast.AST) -> Typed:
        """A value as a list to go over."""
        value = self.need(value, node)
        kind = value.type
        if kind.name == "List":
            return value
        if kind == STR:
            return Typed(f"torch.list({value.text})", list_of(STR))
        if kind == TENSOR:
            return Typed(f"torch.unbind({value.text})", list_of(TENSOR))
        if kind.name == "Dict":
            return Typed(f"torch.keys({value.text})", list_of(kind.parts[0]))
        if kind.name == "Tuple" and len(set(kind.parts)) == 1:
            kept = self.kept(value)
            return Typed(f"[{', '.join(f'{kept.text}[{i}]' for i in range(len(kind.parts)))}]", list_of(kind.parts[0]))
        raise NotWritable(f"a loop over a {kind}")

    def of_subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Modules):
            key = ast.literal_eval(node.slice) if isinstance(node.slice, ast.Constant | ast.UnaryOp) else None
            names = list(owner.module._modules)
            if isinstance(key, int) and -len(names) <= key < len(names):
                return owner.child(names[key])
            if isinstance(key, str) and key in names:
                return owner.child(key)
            raise NotWritable("an item of a module that is not a constant")
        if isinstance(owner, Object) and isinstance(owner.value, tuple) and isinstance(node.slice, ast.Constant):
            found = owner.value[node.slice.value]  # type: ignore[index]
            return found if isinstance(found, Typed | Object | Modules) else Object(found)
        value = self.need(owner, node)
        if value.type == TENSOR:
            return self.indexed(value, node.slice, node)
        key = as_slice(node.slice)
        if isinstance(key, ast.Slice):
            return self._sliced(value, key, node)
        return self.item(value, self.typed(key), node)

    def _sliced(self, value: Typed, part: ast.Slice, node: ast.AST) -> Typed:
        if value.type.name == "Tuple":
            bounds = [None if b is None else ast.literal_eval(b) for b in (part.lower, part.upper, part.step)]
            kept = self.kept(value)
            picked = range(len(value.type.parts))[slice(*bounds)]
            inside = ", ".join(f"{kept.text}[{i}]" for i in picked)
            return Typed(
                f"({inside}{',' if len(picked) == 1 else ''})", tuple_of(*(value.type.parts[i] for i in picked))
            )
        if value.type.name not in ("List", "str"):
            raise self.unfit(f"a {value.type} has no slices", node, value)
        return Typed(f"torch.slice({value.text}, {self._bounds(part)})", value.type)

    def _bounds(self, part: ast.Slice) -> str:
        """The start, end and step of a slice. A tensor stands for its number there."""
        bounds = [("None" if b is None else self.whole(self.typed(b)).text) for b in (part.lower, part.upper)]
        return f"{bounds[0]}, {bounds[1]}, {'1' if part.step is None else self.typed(part.step).text}"

    @staticmethod
    def whole(value: Typed) -> Typed:
        """A tensor as the whole number that it has."""
        return Typed(f"annotate(int, {value.text})", INT) if value.type == TENSOR else value

    def item(self, value: Typed, key: Typed, node: ast.AST) -> Typed:
        """`value[key]`, of what is not a tensor."""
        kind = value.type
        if kind.name == "Tuple" or (kind.cls is not None and kind.cls.base == "NamedTuple"):
            parts = kind.parts if kind.cls is None else tuple(kind.cls.attributes.values())
            if key.text.lstrip("-").isdecimal():
                at = int(key.text)
                if not -len(parts) <= at < len(parts):
                    raise self.refused("Tuple index out of range", node)
                return Typed(f"({value.text})[{at % len(parts)}]", parts[at])
            raise NotWritable("an item of a tuple that is not a constant")
        if kind.name in ("List", "Dict"):
            return Typed(f"{self._owner(value)}[{key.text}]", kind.parts[-1])
        if kind == STR:
            return Typed(f"torch.__getitem__({value.text}, {key.text})", STR)
        if kind == TENSOR:
            return Typed(f"torch.select({value.text}, 0, {key.text})", TENSOR)
        raise self.unfit(f"a {kind} has no items", node, value)

    @staticmethod
    def _owner(value: Typed) -> str:
        return value.text if value.text.isidentifier() else f"({value.text})"

    def put(self, owner: Typed, key: Typed, value: Any, node: ast.AST) -> str:
        """`owner[key] = value`."""
        if owner.type.name not in ("List", "Dict"):
            raise self.unfit(f"an item of a {owner.type} cannot be set", node, owner)
        value = self.as_type(value, owner.type.parts[-1], node)
        return f"{self.fresh()} = torch._set_item({owner.text}, {key.text}, {value.text})"

    def indexed(self, value: Typed, key: ast.expr, node: ast.AST) -> Typed:
        """`tensor[key]`."""
        text, indices = self._basic(value.text, key)
        if indices:
            text = f"torch.index({text}, annotate(List[Optional[Tensor]], [{', '.join(indices)}]))"
        return Typed(text, TENSOR)

    def written(self, owner: Typed, key: ast.expr, value: Typed, node: ast.AST) -> str:
        """`tensor[key] = value`."""
        text, indices = self._basic(owner.text, key)
        if indices:
            listed = f"annotate(List[Optional[Tensor]], [{', '.join(indices)}])"
            if value.type != TENSOR:
                value = Typed(
                    f"torch.tensor({value.text}, dtype=ops.prim.dtype({owner.text}), "
                    f"device=ops.prim.device({owner.text}))",
                    TENSOR,
                )
            return f"torch.index_put_({text}, {listed}, {value.text})"
        if value.type != TENSOR:
            return f"torch.fill_({text}, {value.text})"
        return f"torch.copy_({text}, {value.text})"

    def _basic(self, text: str, key: ast.expr) -> tuple[str, list[str]]:
        """Selects, slices and new dimensions, and the tensors that index what they leave."""
        parts = [as_slice(part) for part in (key.elts if isinstance(key, ast.Tuple) else [key])]
        dots = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis]
        made: list[Any] = [p if isinstance(p, ast.Slice) or i in dots else self.value(p) for i, p in enumerate(parts)]
        values = [m if isinstance(m, ast.Slice | ast.Constant) else self.need(m, key) for m in made]
        if dots and len(values) == 1:
            return f"torch.alias({text})", []
        back = [i for i in range(len(values)) if dots and i > dots[0]]
        indices: list[str] = []
        dim = 0
        if back and any(isinstance(v, Typed) and v.type == TENSOR for v in values):
            raise NotWritable("an index with ... and tensors")
        for i, value in enumerate(values):
            if i in dots:
                continue
            at = dim if i not in back else None
            if at is None:  # counted from the end
                rest = sum(not (isinstance(v, Typed) and v.type == NONE) for v in values[i:])
                news = sum(isinstance(v, Typed) and v.type == NONE for v in values[i:])
                at = -rest - (news if False else 0)
                if isinstance(value, Typed) and value.type == NONE:
                    at = -rest - 1
            if isinstance(value, ast.Slice):
                if value.lower is not None or value.upper is not None or value.step is not None:
                    text = f"torch.slice({text}, {at}, {self._bounds(value)})"
                dim += 1
                indices += ["None"] if not back else []
            elif isinstance(value, Typed) and value.type == NONE:
                text = f"torch.unsqueeze({text}, {at})"
                dim += 1
                indices += ["None"]
            elif isinstance(value, Typed) and value.type == INT:
                text = f"torch.select({text}, {at}, {value.text})"
            elif isinstance(value, Typed) and value.type == TENSOR:
                indices.append(value.text)
                dim += 1
            elif isinstance(value, Typed) and value.type.name == "List":
                indices.append(f"torch.tensor({value.text})")
                dim += 1
            else:
                raise NotWritable("an index of this type")
        while indices and indices[-1] == "None":
            indices.pop()
        return text, indices

    # --- comprehensions ----------------------------------------------------------------------------------------------

    def of_listcomp(self, node: ast.ListComp | ast.GeneratorExp, wanted: Type | None = None) -> Typed:
        if len(node.generators) != 1 or node.generators[0].is_async:
            raise self.refused(
                "Only a single generator is supported in a list comprehension", node, UnsupportedNodeError
            )
        (part,) = node.generators
        if part.ifs:
            raise self.refused("Comprehension ifs are not supported yet", node, NotSupportedError)
        over = self.value(part.iter)
        if isinstance(over, Modules):
            before = dict(self.variables)
            values = []
            for module in over.listed():
                self.store(part.target, module)  # type: ignore[attr-defined]
                values.append(self.typed(node.elt))
            self.variables = before
            kind = list_of(values[0].type if values else TENSOR)
            return Typed(f"[{', '.join(v.text for v in values)}]", kind)
        name = self.fresh()
        place = len(self.lines)
        found: list[Type] = []

        def do() -> None:
            value = self.typed(node.elt, wanted.parts[0] if wanted and wanted.name == "List" else None)
            found.append(value.type)
            self.write(f"{self.fresh()} = torch.append({name}, {value.text})")

        loop = ast.copy_location(ast.For(part.target, part.iter, [_Written(do)], []), node)
        hidden = {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
        outside = {n: self.variables.pop(n) for n in hidden if n in self.variables}
        taken = {n: self.names.pop(n) for n in hidden if n in self.names}
        for n in hidden:
            self.names[n] = f"{identifier(n)}_{self.fresh()[1:]}"
        self.do_for(loop)  # type: ignore[attr-defined]
        for n in hidden:
            self.names.pop(n, None)
        self.names.update(taken)
        self.variables.update(outside)
        kind = list_of(found[0])
        self.lines.insert(place, "  " * self.depth + f"{name} = annotate({kind}, [])")
        return Typed(name, kind)

    of_generatorexp = of_listcomp  # a list in TorchScript, too

    def do__written(self, node: Any) -> None:
        """The inside of a comprehension."""
        node.do()

    # --- calls -------------------------------------------------------------------------------------------------------

    def of_call(self, node: ast.Call, wanted: Type | None = None) -> Any:
        return call(self, node, wanted)


class _Written(ast.stmt):
    """A statement that writes itself."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self.do = do
