"""The tree of a function becomes the lines of a program: statements here, expressions in `expressions.py`."""

from __future__ import annotations

import ast
from typing import Any

import tensorgrad as torch
from tensorgrad.jit.scripting import functional
from tensorgrad.jit.scripting.errors import NotWritable, UnsupportedNodeError
from tensorgrad.jit.scripting.expressions import Expressions
from tensorgrad.jit.scripting.results import OPERATORS
from tensorgrad.jit.scripting.types import ANY, FLOAT, INT, NONE, NUMBER, STR, TENSOR, Type, fits, joined, within
from tensorgrad.jit.scripting.values import Items, Modules, Object, Ranged, Typed
from tensorgrad.jit.text import literal

GUARDS: dict[Any, Any] = {torch.no_grad: functional.no_grad, torch.enable_grad: functional.enable_grad}
PLAIN = bool | int | float | complex | str | None


def flat(parts: list[Any]) -> list[Any]:
    """What a loop goes over, without the tuples in it."""
    return [one for part in parts for one in (flat(part.parts) if isinstance(part, Items) else [part])]


def has_modules(value: Any) -> bool:
    """Whether a module is in a tuple, or in one inside of it."""
    parts = getattr(value, "value", None)
    return isinstance(value, Modules) or (isinstance(parts, tuple) and any(map(has_modules, parts)))


class Emitter(Expressions):
    """Writes the body of a function.

    Attributes:
        lines: what is written so far.
        variables: what each variable of the source stands for.
        returns: the type of the result, as far as it is known.
    """

    def body(self, nodes: list[ast.stmt]) -> None:
        """Writes the statements of the function."""
        if isinstance(nodes[0], ast.Expr) and isinstance(nodes[0].value, ast.Constant):
            nodes = nodes[1:]  # its description
        done = self.block(nodes)
        if done is None and self.returns not in (None, NONE) and not fits(NONE, self.returns):
            raise self.refused(
                "Function was not annotated as having type None, but does not return along all paths",
                nodes[-1] if nodes else self.tree,
            )
        if done == "raise" and self.returns is not None and self.returns != NONE:
            self.write(f"return uninitialized({self.returns})")
        self.returns = self.returns or NONE
        if not self.lines:
            self.write("pass")

    def block(self, nodes: list[ast.stmt]) -> str | None:
        """Writes statements. Returns how the block is left, if it does not go on after its end."""
        for node in nodes:
            made = getattr(self, f"do_{type(node).__name__.lower()}", None)
            if made is None:
                raise self.refused(f"{type(node).__name__} is not supported", node, UnsupportedNodeError)
            done = made(node)
            if done is not None:
                return done
        return None

    def indented(self, nodes: list[ast.stmt]) -> str | None:
        """Writes a block within a statement."""
        self.depth += 1
        start = len(self.lines)
        done = self.block(nodes)
        if len(self.lines) == start:
            self.write("pass")
        self.depth -= 1
        return done

    # --- simple statements -------------------------------------------------------------------------------------------

    def do_pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        value = self.value(node.value)
        if isinstance(value, Typed):
            self.write(value.text if value.type == NONE else f"{self.fresh()} = {value.text}")

    def do_return(self, node: ast.Return) -> str:
        if node.value is None:
            value = Typed("None", NONE)
        else:
            value = self.typed(node.value, self.declared)
        if self.declared is not None:
            value = self.as_type(value, self.declared, node)
        elif self.returns is None:
            self.returns = value.type
        else:
            found = joined(self.returns, value.type)
            if found is None:
                raise self.refused(
                    f"Previous return statement returned a value of type {self.returns} but this return statement "
                    f"returns a value of type {value.type}", node,
                )  # fmt: skip
            self.returns = found
        self.write(f"return {value.text}")
        return "return"

    def do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            if len(node.targets) > 1 and isinstance(value, Typed) and not value.text.isidentifier():
                value = self.kept(value)
            self.store(target, value)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        kind = self.annotation(node.annotation)
        if node.value is None:
            return
        value = self.as_type(self.typed(node.value, kind), kind, node)
        if isinstance(node.target, ast.Name):
            self.assign(node.target.id, Typed(value.text, kind), node, declared=True)
        else:
            self.store(node.target, value)

    def do_augassign(self, node: ast.AugAssign) -> None:
        if type(node.op) not in OPERATORS:
            raise self.refused("this operation is not supported", node, UnsupportedNodeError)
        name = OPERATORS[type(node.op)]
        if isinstance(node.target, ast.Subscript):
            owner = self.kept(self.typed(node.target.value))
            if owner.type == TENSOR:
                part = self.kept(self.indexed(owner, node.target.slice, node))
                self.write(f"{self.fresh()} = {self.in_place(name, part, self.typed(node.value), node).text}")
                return
            key = self.kept(self.typed(node.target.slice))
            old = self.item(owner, key, node)
            self.write(self.put(owner, key, self.binary(name, old, self.typed(node.value), node), node))
            return
        load = ast.copy_location(
            ast.Name(node.target.id)
            if isinstance(node.target, ast.Name)
            else ast.Attribute(node.target.value, node.target.attr),
            node.target,
        )
        old, value = self.typed(load), self.typed(node.value)
        if old.type == TENSOR or old.type.name == "List":
            self.store(node.target, self.in_place(name, old, value, node))
        else:
            self.store(node.target, self.binary(name, old, value, node))

    def in_place(self, name: str, old: Typed, value: Typed, node: ast.AST) -> Typed:
        """`old += value`, which writes to a tensor or a list."""
        if name not in ("add", "sub", "mul", "div", "floordiv", "remainder", "pow") or (
            old.type != TENSOR and name != "add"
        ):
            return self.binary(name, old, value, node)
        name = {"floordiv": "floor_divide"}.get(name, name)
        return Typed(f"torch.{name}_({old.text}, {value.text})", old.type)

    def do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                raise self.refused("del of this is not supported", node, UnsupportedNodeError)
            owner, key = self.typed(target.value), self.typed(target.slice)
            self.write(f"torch.Delete({owner.text}, {key.text})")

    def do_assert(self, node: ast.Assert) -> None:
        test = self.condition(node.test)
        if test.static is True:
            return
        message = self.typed(node.msg).text if node.msg is not None else '""'
        self.write(f"if {test.text}:" if test.static is None else "if False:")
        self.write("  pass")
        self.write("else:")
        self.write(f'  ops.prim.RaiseException(torch.add("AssertionError: ", {message}))')
        self.cast(test, True)  # the other way ends in an error

    def do_raise(self, node: ast.Raise) -> str:
        name, message = "RuntimeError", '""'
        if isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if node.exc.args:
                made = self.typed(node.exc.args[0])
                message = made.text if made.type == STR else f"str({made.text})"
        elif node.exc is not None:
            name = ast.unparse(node.exc)
        self.write(f"ops.prim.RaiseException(torch.add({literal(name + ': ')}, {message}))")
        return "raise"

    def do_break(self, node: ast.Break) -> str:
        return self._jump("break", node)

    def do_continue(self, node: ast.Continue) -> str:
        return self._jump("continue", node)

    def _jump(self, name: str, node: ast.stmt) -> str:
        """`break` or `continue`, which PyTorch does not have in loops whose body is written several times."""
        if self.unrolled:
            raise self.refused(
                "Because we emit iteration over Modulelists or Tuples as unrolled loops, we do not support break or "
                "continue inside the body of these loops", node,
            )  # fmt: skip
        self.write(name)
        return name

    # --- branches and loops ------------------------------------------------------------------------------------------

    def do_if(self, node: ast.If) -> str | None:
        test = self.condition(node.test)
        if test.static is not None:
            self.learn(test, test.static)
            return self.block(node.body if test.static else node.orelse)
        before = dict(self.variables)
        results: list[tuple[str | None, dict[str, Any], int]] = []
        for truth, nodes in ((True, node.body), (False, node.orelse)):
            self.variables = dict(before)
            self.write(f"if {test.text}:" if truth else "else:")
            self.depth += 1
            self.enter(test, truth)
            self.depth -= 1
            outer, self.outer = self.outer, before
            done = self.indented(nodes)
            self.outer = outer
            results.append((done, self.variables, len(self.lines)))
        self._merge(before, results, node)
        ways = [done for done, _, _ in results]
        if ways in (["raise", None], [None, "raise"]):
            self.cast(test, ways[0] is None)
        if None in ways:
            return None
        return "raise" if "raise" in ways else ways[0]

    def _merge(self, before: dict[str, Any], results: list, node: ast.AST) -> None:
        """What variables stand for after a branch."""
        going = [(variables, end) for done, variables, end in results if done is None]
        if len(going) < 2:
            self.variables = dict(going[0][0]) if going else dict(before)
            if not going:
                return
            for done, _, end in results:  # torch looks at all branches: what is not assigned has no value there
                if done == "raise":
                    added = [
                        f"{'  ' * (self.depth + 1)}{v.text} = uninitialized({v.type})"
                        for n, v in self.variables.items()
                        if isinstance(v, Typed) and v.text.isidentifier() and before.get(n) != v
                        and (n not in before or before[n].type != v.type)
                    ]  # fmt: skip
                    self.lines[end:end] = added
                    break
            return
        (one, _), (other, _) = going
        merged: dict[str, Any] = {}
        for name in {**one, **other}:
            a, b = one.get(name), other.get(name)
            if a is None or b is None:
                continue  # it has a value in one branch only
            if a == b:
                merged[name] = a
                continue
            if not isinstance(a, Typed) or not isinstance(b, Typed):
                raise NotWritable(f"{name} stands for another thing in each branch")
            kind = joined(a.type, b.type)
            old = before.get(name)
            if kind is None and isinstance(old, Typed) and fits(a.type, old.type) and fits(b.type, old.type):
                kind = old.type
            if kind is None:
                raise self.refused(
                    f"Type mismatch: {name} is set to type {a.type} in the true branch and type {b.type} in the false "
                    "branch", node,
                )  # fmt: skip
            merged[name] = Typed(a.text, kind)
        self.variables = merged

    def do_while(self, node: ast.While) -> None:
        if node.orelse:
            raise self.refused("else branches of while loops aren't supported", node, UnsupportedNodeError)
        start = len(self.lines)
        test = self.condition(node.test)
        above = [line[2 * self.depth :] for line in self.lines[start:]]
        if not above and not test.named:
            self.write(f"while {test.text if test.static is None else test.static}:")
            self._loop(node.body, node, test)
            return
        variables = dict(self.variables)
        self.cast(test, True)
        facts = [line[2 * self.depth :] for line in self.lines[start + len(above) :]]
        del self.lines[start:]
        self.variables = variables
        self.write("while True:")
        self._loop(node.body, node, test, (*above, f"if {test.text}:", "  pass", "else:", "  break", *facts))

    def _loop(self, nodes: list[ast.stmt], node: ast.AST, test: Any = None, first: tuple[str, ...] = ()) -> None:
        """Writes the body of a loop: variables keep their types."""
        before = dict(self.variables)
        if test is not None:
            self.learn(test, True)
        unrolled, self.unrolled = self.unrolled, False
        outer, self.outer = self.outer, before
        self.loops += 1
        self.depth += 1
        for line in first:
            self.write(line)
        self.depth -= 1
        self.indented(nodes)
        self.loops -= 1
        self.outer = outer
        self.unrolled = unrolled
        self.variables = before

    def do_for(self, node: ast.For) -> str | None:
        if node.orelse:
            raise self.refused("else branches of for loops aren't supported", node, UnsupportedNodeError)
        over = self.value(node.iter)
        if isinstance(over, Items) and any(isinstance(part, Modules) for part in flat(over.parts)):
            return self._unrolled(node, over)
        if isinstance(over, Modules):
            return self._unrolled(node, Items([over]))
        if isinstance(over, Object) and isinstance(over.value, tuple):
            over = self.need(over, node)
        if isinstance(over, Typed) and over.type.name == "Tuple" and len(set(over.type.parts)) > 1:
            return self._unrolled(node, Items([over]))
        before = dict(self.variables)
        if isinstance(over, Ranged) and isinstance(node.target, ast.Name):
            self.variables[node.target.id] = Typed(self.name_of(node.target.id), INT)
            self.write(f"for {self.name_of(node.target.id)} in range({over.text}):")
            self._loop(node.body, node)
        elif isinstance(over, Typed) and isinstance(node.target, ast.Name):
            values = self.iterated(over, node)
            name = self.name_of(node.target.id)
            self.variables[node.target.id] = Typed(name, values.type.parts[0])
            self.write(f"for {name} in {values.text}:")
            self._loop(node.body, node)
        else:
            self._counted(node, over)
        after = self.variables
        self.variables = {n: v for n, v in after.items() if n in before}
        return None

    def _counted(self, node: ast.For, over: Any) -> None:
        """A loop over several lists, or whose elements are taken apart."""
        parts = [self._laid(p, node) for p in (over.parts if isinstance(over, Items) else [over])]
        lists = [p for p in flat(parts) if isinstance(p, Typed)]
        if not lists:
            raise NotWritable("a loop over ranges")
        count = f"torch.len({lists[0].text})"
        for other in lists[1:]:
            count = f"ops.prim.min({count}, torch.len({other.text}))"
        index = self.fresh()
        self.write(f"for {index} in range({count}):")
        values = [self._at(p, index) for p in parts]
        value: Any = Object(tuple(values)) if isinstance(over, Items) else values[0]
        self.depth += 1
        mark = len(self.lines)
        outside = self.loops
        self.loops += 1
        self.store(node.target, value)
        first = [line.lstrip(" ") for line in self.lines[mark:]]
        del self.lines[mark:]
        self.loops = outside
        self.depth -= 1
        self._loop(node.body, node, None, tuple(first))

    def _laid(self, part: Any, node: ast.AST) -> Any:
        """What a loop goes over, with each list under a name of its own."""
        if isinstance(part, Items):
            return Items([self._laid(p, node) for p in part.parts])
        return part if isinstance(part, Ranged | str) else self.kept(self.iterated(part, node))

    def _at(self, part: Any, index: str) -> Any:
        """The element of what a loop goes over."""
        if isinstance(part, Items):
            return Object(tuple(self._at(p, index) for p in part.parts))
        if isinstance(part, str):
            return Typed(index if not part else f"torch.add({index}, {part})", INT)
        if isinstance(part, Ranged):
            return Typed(f"torch.__derive_index({index}, {part.start}, {part.step})", INT)
        return Typed(f"{part.text}[{index}]", part.type.parts[0])

    def _unrolled(self, node: ast.For, over: Items) -> str | None:
        """A loop over modules, or over a tuple of several types: its body is written once for each, until one leaves
        the function.
        """
        over = Items([self.kept(p) if isinstance(p, Typed) else p for p in over.parts])
        lengths = [len(p.listed()) for p in flat(over.parts) if isinstance(p, Modules)]
        if not lengths:
            lengths = [len(p.type.parts) for p in over.parts]
        done = None
        for number in range(min(lengths)):
            values = [self._turn(part, number, node) for part in over.parts]
            value = values[0] if len(over.parts) == 1 else Object(tuple(values))
            outer, self.unrolled = self.unrolled, True
            self.store(node.target, value)
            done = self.block(node.body)
            self.unrolled = outer
            if done is not None:
                break
        return done

    def _turn(self, part: Any, number: int, node: ast.AST) -> Any:
        """What a loop over modules goes over, in one turn."""
        if isinstance(part, Items):
            return Object(tuple(self._turn(p, number, node) for p in part.parts))
        if isinstance(part, Modules):
            return part.listed()[number]
        if isinstance(part, str):
            return Typed(literal(number + int(part or 0)), INT)
        if isinstance(part, Typed):
            return self.item(part, Typed(literal(number), INT), node)
        raise NotWritable("a loop over modules and a range")

    def do_with(self, node: ast.With) -> str | None:
        if len(node.items) != 1 or node.items[0].optional_vars is not None:
            raise NotWritable("a with statement of several objects, or with a name")
        given = node.items[0].context_expr
        what = self.value(given.func) if isinstance(given, ast.Call) and not given.args else None
        cls = GUARDS.get(what.value) if isinstance(what, Object) and isinstance(what.value, type) else None
        if cls is None:
            raise NotWritable(f"with {ast.unparse(given)[:60]}")
        kind = self.unit.type_of_class(cls)
        self.write(f"with {self.unit.new(self, kind, ast.copy_location(ast.Call(given, [], []), node)).text}:")
        return self.indented(node.body)

    # --- where values go ---------------------------------------------------------------------------------------------

    def store(self, target: ast.expr, value: Any) -> None:
        """Assigns a value."""
        if isinstance(target, ast.Starred):
            raise NotWritable("a starred target")
        if isinstance(target, ast.Name):
            self.assign(target.id, value, target)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            self.write(f"{owner.text}.{target.attr} = {self.attribute_value(owner, target, value).text}")
        elif isinstance(target, ast.Subscript):
            owner, value = self.typed(target.value), self.need(value, target)
            if owner.type == TENSOR:
                self.write(f"{self.fresh()} = {self.written(owner, target.slice, value, target)}")
                return
            self.write(self.put(owner, self.typed(target.slice), value, target))
        else:
            raise self.refused("this target is not supported", target, UnsupportedNodeError)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        count = len(target.elts)
        if isinstance(value, Object) and isinstance(value.value, tuple):
            parts: list[Any] = list(value.value)
            if len(parts) == count:
                kept = [self.copied(part, target) for part in parts]
                for one, part in zip(target.elts, kept, strict=True):
                    self.store(one, part)
                return
        value = self.need(value, target)
        kinds = (
            list(value.type.parts)
            if value.type.name == "Tuple"
            else [value.type.parts[0]] * count
            if value.type.name == "List"
            else []
        )
        if value.type.cls is not None and value.type.cls.base == "NamedTuple":
            kinds = list(value.type.cls.attributes.values())
        if len(kinds) != count:
            if value.type == TENSOR:
                raise NotWritable("a tensor that is taken apart")
            raise self.refused(f"Provided {count} variables to unpack, but the value is a {value.type}", target)
        names = [self.fresh() for _ in kinds]
        self.write(f"{', '.join(names)}, = {value.text}")
        for one, name, kind in zip(target.elts, names, kinds, strict=True):
            self.store(one, Typed(name, kind))

    def copied(self, value: Any, node: ast.AST) -> Any:
        """A value under a name of its own: what it was computed from may change next."""
        if isinstance(value, Modules) or (isinstance(value, Object) and not isinstance(value.value, tuple | PLAIN)):
            return value
        if isinstance(value, Object) and isinstance(value.value, tuple) and has_modules(value):
            return Object(tuple(self.copied(part, node) for part in value.value))
        made = self.need(value, node)
        name = self.fresh()
        self.write(f"{name} = {made.text}")
        return Typed(name, made.type)

    def attribute_value(self, owner: Any, target: ast.Attribute, value: Any) -> Typed:
        """The value that an attribute gets."""
        if isinstance(owner, Modules):
            if isinstance(value, Modules) or target.attr in owner.cls.children:
                raise self.refused("a module cannot be assigned", target)
            if target.attr == "training":
                raise NotWritable("training is set by train() and eval()")
            old = self.unit.attribute(self, owner, target.attr, target)
            if not isinstance(old, Typed):
                raise NotWritable(f"{target.attr} is part of the program, and is assigned")
            return self.as_type(value, old.type, target)
        cls = owner.type.cls if isinstance(owner, Typed) else None
        if cls is None or cls.base:
            raise self.refused("Tried to set an attribute of this", target)
        value = self.need(value, target)
        if target.attr not in cls.attributes:
            if not cls.open:
                raise self.refused(
                    f"Tried to set nonexistent attribute: {target.attr}. Did you forget to initialize it in "
                    "__init__()?",
                    target,
                )
            cls.attributes[target.attr] = value.type
        return self.as_type(value, cls.attributes[target.attr], target)

    def assign(self, name: str, value: Any, node: ast.AST, declared: bool = False) -> None:
        """Gives a variable a value."""
        if isinstance(value, Ranged) or (isinstance(value, Object) and isinstance(value.value, tuple | PLAIN)):
            value = self.need(value, node)
        if not isinstance(value, Typed):
            if name in self.outer and not self.unrolled and name in self.variables:
                raise NotWritable(f"{name} stands for another thing later")
            self.variables[name] = value
            return
        here = self.name_of(name)
        old = None if declared else self.outer_type(name)
        kind = value.type
        if old is not None:
            if kind == NUMBER and within(old) in (INT, FLOAT):
                value = self.as_type(value, within(old), node)
                kind = value.type
            if not fits(kind, old):
                raise (
                    self.refused(
                        f"Variable '{name}' previously had type {old} but is now being assigned to a value of type "
                        f"{kind}",
                        node,
                    )
                    if fits(old, within(kind)) or self.certain(old, kind)
                    else NotWritable(f"{name} has two types")
                )
            if self.loops:
                kind = old
        self.write(f"{here} = {value.text}")
        self.variables[name] = Typed(here, kind)

    def certain(self, one: Type, other: Type) -> bool:
        """Whether two types are known well enough to refuse a program for them."""
        return ANY not in (one, other) and {one.name, other.name} <= {
            "int",
            "float",
            "str",
            "bool",
            "Tensor",
            "List",
            "Dict",
            "Tuple",
            "NoneType",
        }

    def outer_type(self, name: str) -> Type | None:
        """The type that a variable has outside of the block."""
        found = self.outer.get(name)
        return found.type if isinstance(found, Typed) else None
