"""The tree of a function becomes closures: each node one, which takes the list of the function's variables.

Names are looked up here, once, in tables of what a program may use: variables, the program's own classes and
functions, and the operators (operators.py). There is nothing else that a text can reach.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tensorgrad.jit import operators
from tensorgrad.jit.errors import Failure, ProgramError
from tensorgrad.jit.functions import UNSET, Function
from tensorgrad.jit.objects import Class, Instance, Scripted, get
from tensorgrad.jit.parse import File
from tensorgrad.jit.types import Type, dotted, read_type
from tensorgrad.tensor import Tensor

Step = Callable[[list], Any]
BREAK, CONTINUE = ("break",), ("continue",)  # what a step of a loop returns that leaves its turn
BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder",
    ast.Pow: "pow", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.Is: "__is__", ast.IsNot: "__isnot__",
}  # fmt: skip


class Compiler:
    """Makes the body of one function.

    Args:
        find: Returns the class or function of the program that a name stands for, or None.
        constants: The values of `CONSTANTS.c0`, ...
        version: The version of PyTorch's operators for which the program was written.
    """

    def __init__(self, file: File, function: str, find: Callable[[str], Any], constants: tuple, version: int) -> None:
        self.file, self.function, self.known, self.constants = file, function, find, constants
        self.version = version
        self.names: dict[str, int] = {}
        self.inner: dict[str, Step] = {}
        self.loops = 0  # around what is being compiled

    def refuse(self, problem: str, node: ast.AST) -> ProgramError:
        """An error that names the place of a node."""
        return ProgramError(problem, self.file.at(node, self.function))

    def find(self, path: str, node: ast.AST) -> Any:
        """Returns a class or function of the program. Raises: ProgramError if there is none."""
        found = self.known(path)
        if found is None:
            raise self.refuse(f"unknown name {path!r:.200}", node)
        return found

    def compile(self, node: ast.FunctionDef, function: Function) -> None:
        """Gives a function its body."""
        for parameter in function.parameters:
            self.names[parameter.name] = len(self.names)
        for name in self.file.variables[node]:
            self.names.setdefault(name, len(self.names))
        function.body = self.block(node.body)
        function.variables = len(self.names)

    def type(self, node: ast.expr | None) -> Type:
        """The type that an annotation names."""
        return read_type(node, self.find, self.refuse)

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, nodes: list[ast.stmt]) -> Step:
        """Statements in a row. A step returns None, or a tuple of the function's result."""
        steps = [self.statement(node) for node in nodes if not isinstance(node, ast.Pass)]
        if not steps:
            return lambda f: None
        where = dict(zip(steps, (n for n in nodes if not isinstance(n, ast.Pass)), strict=True))
        file, function = self.file, self.function

        def run(f: list) -> Any:
            step = steps[0]
            try:
                for step in steps:
                    done = step(f)
                    if done is not None:
                        return done
            except Failure as failure:
                if failure.frame is not f:
                    failure.add(f, file.at(where[step], function), file.line(where[step].lineno))
                raise
            except Exception as error:
                raise Failure(error, f, file.at(where[step], function), file.line(where[step].lineno)) from error
            return None

        return run

    def statement(self, node: ast.stmt) -> Step:
        """A statement."""
        made = getattr(self, f"_{type(node).__name__.lower()}", None)
        if made is None:
            raise self.refuse(f"{type(node).__name__} was refused here", node)
        return made(node)

    def _return(self, node: ast.Return) -> Step:
        value = (lambda f: None) if node.value is None else self.value(node.value)
        return lambda f: (value(f),)

    def _expr(self, node: ast.Expr) -> Step:
        value = self.value(node.value)

        def run(f: list) -> None:
            value(f)

        return run

    def _assign(self, node: ast.Assign) -> Step:
        if len(node.targets) != 1:
            raise self.refuse("an assignment to more than one target was refused", node)
        value, store = self.value(node.value), self.target(node.targets[0])
        if isinstance(node.targets[0], ast.Name):
            place = self.names[node.targets[0].id]

            def assign(f: list) -> None:
                f[place] = value(f)

            return assign
        return lambda f: store(f, value(f))

    def _annassign(self, node: ast.AnnAssign) -> Step:
        self.type(node.annotation)
        if node.value is None:
            return lambda f: None
        value, store = self.value(node.value), self.target(node.target)
        return lambda f: store(f, value(f))

    def _if(self, node: ast.If) -> Step:
        test, then, other = self.value(node.test), self.block(node.body), self.block(node.orelse)
        return lambda f: then(f) if test(f) else other(f)

    def _while(self, node: ast.While) -> Step:
        if node.orelse:
            raise self.refuse("else of a loop was refused", node)
        test, body = self.value(node.test), self.turn(node.body)

        def loop(f: list) -> Any:
            while test(f):
                done = body(f)
                if done is not None and done is not CONTINUE:
                    return None if done is BREAK else done
            return None

        return loop

    def _for(self, node: ast.For) -> Step:
        if node.orelse:
            raise self.refuse("else of a loop was refused", node)
        over = node.iter
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            bounds, _ = self.arguments(over)
            items: Step = lambda f: range(*(int(b(f)) for b in bounds))
        else:
            items = self.value(over)
        store, body = self.target(node.target), self.turn(node.body)

        def loop(f: list) -> Any:
            for item in items(f):
                store(f, item)
                done = body(f)
                if done is not None and done is not CONTINUE:
                    return None if done is BREAK else done
            return None

        return loop

    def turn(self, nodes: list[ast.stmt]) -> Step:
        """The body of a loop."""
        self.loops += 1
        body = self.block(nodes)
        self.loops -= 1
        return body

    def _break(self, node: ast.Break | ast.Continue) -> Step:
        if not self.loops:
            raise self.refuse(f"{type(node).__name__} outside of a loop was refused", node)
        way = BREAK if isinstance(node, ast.Break) else CONTINUE
        return lambda f: way

    _continue = _break

    def _functiondef(self, node: ast.FunctionDef) -> Step:
        """A function inside of a function, which `fork` runs: it takes nothing, and sees the variables around it."""
        if any((node.args.args, node.args.posonlyargs, node.args.kwonlyargs, node.args.vararg, node.args.kwarg)):
            raise self.refuse("a function inside of a function takes no arguments", node)
        loops, self.loops = self.loops, 0
        self.inner[node.name] = self.block(node.body)
        self.loops = loops
        return lambda f: None

    def _with(self, node: ast.With) -> Step:
        if len(node.items) != 1:
            raise self.refuse("a with statement of more than one object was refused", node)
        item = node.items[0]
        context, body = self.value(item.context_expr), self.block(node.body)
        store = None if item.optional_vars is None else self.target(item.optional_vars)

        def run(f: list) -> Any:
            entered = context(f)
            if not isinstance(entered, Scripted):
                raise TypeError(f"a with statement needs an object, but got {type(entered).__name__}")
            value = entered._method("__enter__").run((entered,))
            if store is not None:
                store(f, value)
            try:
                return body(f)
            finally:
                entered._method("__exit__").run((entered, None, None, None))

        return run

    # --- where values go ---------------------------------------------------------------------------------------------

    def target(self, node: ast.expr) -> Callable[[list, Any], None]:
        """What an assignment does with a value."""
        if isinstance(node, ast.Name):
            place = self.names[node.id]
            return lambda f, value: f.__setitem__(place, value)
        if isinstance(node, ast.Tuple | ast.List):
            stores = [self.target(part) for part in node.elts]

            def unpack(f: list, value: Any) -> None:
                if not isinstance(value, list | tuple) or len(value) != len(stores):
                    raise ValueError(f"expected {len(stores)} values to unpack, but got {_counted(value)}")
                for store, part in zip(stores, value, strict=True):
                    store(f, part)

            return unpack
        if isinstance(node, ast.Attribute):
            owner, name = self.value(node.value), node.attr

            def put(f: list, value: Any) -> None:
                found = owner(f)
                if not isinstance(found, Scripted):
                    raise AttributeError(f"an attribute of {type(found).__name__} cannot be set")
                found._set(name, value)

            return put
        if isinstance(node, ast.Subscript):
            container, key = self.value(node.value), self.value(node.slice)
            store_item = operators.find("torch._set_item", self.version)
            return lambda f, value: store_item(container(f), key(f), value)
        raise self.refuse("an assignment to this was refused", node)

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Step:
        """An expression."""
        made = getattr(self, f"_{type(node).__name__.lower()}", None)
        if made is None:
            raise self.refuse(f"{type(node).__name__} was refused here", node)
        return made(node)

    def _constant(self, node: ast.Constant) -> Step:
        value = node.value
        if value is not None and type(value) not in (bool, int, float, complex, str):
            raise self.refuse(f"a constant of type {type(value).__name__} was refused", node)
        return lambda f: value

    def _name(self, node: ast.Name) -> Step:
        if node.id in self.names:
            place, name = self.names[node.id], node.id

            def load(f: list) -> Any:
                value = f[place]
                if value is UNSET:
                    raise NameError(f"{name} has no value yet")
                return value

            return load
        if node.id in ("inf", "nan", "infj", "nanj"):
            number = complex(0, float(node.id[:3])) if node.id[3:] else float(node.id)
            return lambda f: number
        raise self.refuse(f"unknown name {node.id!r:.100}", node)

    def _list(self, node: ast.List) -> Step:
        parts = [self.value(part) for part in node.elts]
        return lambda f: [part(f) for part in parts]

    def _tuple(self, node: ast.Tuple) -> Step:
        parts = [self.value(part) for part in node.elts]
        return lambda f: tuple([part(f) for part in parts])

    def _dict(self, node: ast.Dict) -> Step:
        if None in node.keys:
            raise self.refuse("** was refused", node)
        pairs = [(self.value(k), self.value(v)) for k, v in zip(node.keys, node.values, strict=True)]  # type: ignore[arg-type]
        return lambda f: {key(f): value(f) for key, value in pairs}

    def _ifexp(self, node: ast.IfExp) -> Step:
        test, then, other = self.value(node.test), self.value(node.body), self.value(node.orelse)
        return lambda f: then(f) if test(f) else other(f)

    def _boolop(self, node: ast.BoolOp) -> Step:
        parts = [self.value(part) for part in node.values]
        if isinstance(node.op, ast.And):
            return lambda f: all(part(f) for part in parts)
        return lambda f: any(part(f) for part in parts)

    def _unaryop(self, node: ast.UnaryOp) -> Step:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda f: not value(f)
        if isinstance(node.operand, ast.Constant):
            number = operators.find("torch.neg", self.version)(node.operand.value)
            return lambda f: number
        negative = operators.find("torch.neg", self.version)
        return lambda f: negative(value(f))

    def _binop(self, node: ast.BinOp) -> Step:
        left, right = self.value(node.left), self.value(node.right)
        run = operators.find(f"torch.{BINARY[type(node.op)]}", self.version)
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):  # 1.+2.j
            number = run(node.left.value, node.right.value)
            return lambda f: number
        return lambda f: run(left(f), right(f))

    def _compare(self, node: ast.Compare) -> Step:
        if len(node.ops) != 1:
            raise self.refuse("a chain of comparisons was refused", node)
        left, right, kind = self.value(node.left), self.value(node.comparators[0]), type(node.ops[0])
        if kind in (ast.In, ast.NotIn):
            inside = operators.find("torch.__contains__", self.version)
            return lambda f: inside(right(f), left(f)) is (kind is ast.In)
        run = operators.find(f"torch.{BINARY[kind]}", self.version)
        return lambda f: run(left(f), right(f))

    def _subscript(self, node: ast.Subscript) -> Step:
        value, key = self.value(node.value), self.value(node.slice)

        def item(f: list) -> Any:
            container = value(f)
            if not isinstance(container, list | tuple | dict | str | Tensor):
                raise TypeError(f"{type(container).__name__} has no items")
            return container[key(f)]

        return item

    def _attribute(self, node: ast.Attribute) -> Step:
        path = dotted(node)
        root = "" if path is None else path.partition(".")[0]
        if path is not None and root not in self.names:
            if root == "CONSTANTS":
                return self._listed(path, node)
            found = self._of_program(path, node)
            return lambda f: found
        owner, name = self.value(node.value), node.attr
        return lambda f: get(owner(f), name)

    def _listed(self, path: str, node: ast.AST) -> Step:
        number = path[len("CONSTANTS.c") :]
        if not number.isdecimal() or len(number) > 9 or int(number) >= len(self.constants):
            raise self.refuse(f"there is no constant {path!r:.100}", node)
        value = self.constants[int(number)]
        return lambda f: value

    def _of_program(self, path: str, node: ast.AST) -> Any:
        """A function, class or member of an enumeration."""
        if not path.startswith("__torch__."):
            raise self.refuse(f"unknown name {path!r:.100}", node)
        found = self.known(path)
        if found is not None:
            return found
        owner, _, name = path.rpartition(".")
        enum = self.known(owner)
        if isinstance(enum, Class) and name in enum.constants:
            return enum.constants[name]
        raise self.refuse(f"unknown name {path!r:.200}", node)

    # --- calls -------------------------------------------------------------------------------------------------------

    def arguments(self, node: ast.Call) -> tuple[list[Step], dict[str, Step]]:
        """The arguments of a call."""
        named = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.refuse("** was refused", node)
            named[keyword.arg] = self.value(keyword.value)
        return [self.value(arg) for arg in node.args], named

    def _call(self, node: ast.Call) -> Step:
        target = node.func
        path = dotted(target)
        root = "" if path is None else path.partition(".")[0]
        if path is None or root in self.names:
            return self._method_call(node) if isinstance(target, ast.Attribute) else self._called_value(node)
        if isinstance(target, ast.Name):
            return self._builtin(node, target.id)
        if root in ("torch", "ops"):
            return self._operator(path, node)
        if isinstance(target, ast.Attribute) and target.attr == "__new__":
            cls = self.find(path.rpartition(".")[0], target)
            if not isinstance(cls, Class) or cls.base:
                raise self.refuse(f"an instance of {path!r:.100} cannot be made", node)
            return lambda f: Instance(cls)
        found = self._of_program(path, target)
        if not isinstance(found, Class | Function):
            raise self.refuse(f"{path!r:.100} cannot be called", node)
        args, named = self.arguments(node)
        if isinstance(found, Class):
            return lambda f: found.call(*(a(f) for a in args), **{k: v(f) for k, v in named.items()})
        return lambda f: found.run(tuple([a(f) for a in args]), {k: v(f) for k, v in named.items()})

    def _operator(self, path: str, node: ast.Call) -> Step:
        run = operators.find(path, self.version)
        args, named = self.arguments(node)
        if named:
            return lambda f: run(*[a(f) for a in args], **{k: v(f) for k, v in named.items()})
        if len(args) == 1:
            only = args[0]
            return lambda f: run(only(f))
        if len(args) == 2:
            first, second = args
            return lambda f: run(first(f), second(f))
        return lambda f: run(*[a(f) for a in args])

    def _method_call(self, node: ast.Call) -> Step:
        assert isinstance(node.func, ast.Attribute)
        owner, name = self.value(node.func.value), node.func.attr
        args, named = self.arguments(node)

        def call(f: list) -> Any:
            found = owner(f)
            if isinstance(found, Tensor) and name == "tolist":  # the one method that is written as such
                return found.tolist()
            if not isinstance(found, Scripted):
                raise AttributeError(f"{type(found).__name__} has no method {name!r:.100}")
            return found._method(name).run((found, *[a(f) for a in args]), {k: v(f) for k, v in named.items()})

        return call

    def _called_value(self, node: ast.Call) -> Step:
        target = self.value(node.func)
        args, named = self.arguments(node)

        def call(f: list) -> Any:
            found = target(f)
            if isinstance(found, Class):
                return found.call(*(a(f) for a in args), **{k: v(f) for k, v in named.items()})
            if not isinstance(found, Function):
                raise TypeError(f"{type(found).__name__} cannot be called")
            return found.run(tuple([a(f) for a in args]), {k: v(f) for k, v in named.items()})

        return call

    def _builtin(self, node: ast.Call, name: str) -> Step:
        if name in ("annotate", "unchecked_cast") and len(node.args) == 2:
            kind, value = self.type(node.args[0]), self.value(node.args[1])
            if kind.name in ("int", "float", "complex", "bool", "number", "Scalar"):
                return lambda f: _plain(value(f))
            return value
        if name == "fork" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            inner = self.inner.get(node.args[0].id)
            if inner is None:
                raise self.refuse(f"unknown function {node.args[0].id!r:.100}", node)
            # At once: `wait`, which the program calls for the result, returns it.
            return lambda f: (inner([*f]) or (None,))[0]
        if name == "uninitialized" and len(node.args) == 1:
            self.type(node.args[0])
            return lambda f: None
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            owner, attribute = self.value(node.args[0]), node.args[1].value
            return lambda f: get(owner(f), str(attribute))
        if name == "isinstance" and len(node.args) == 2:
            value, given = self.value(node.args[0]), node.args[1]
            kinds = [self.type(k) for k in (given.elts if isinstance(given, ast.List | ast.Tuple) else [given])]
            return lambda f: any(kind.holds(value(f)) for kind in kinds)
        if name not in operators.BUILTINS:
            raise self.refuse(f"unknown name {name!r:.100}", node)
        run = operators.BUILTINS[name]
        args, named = self.arguments(node)
        if named:
            raise self.refuse(f"{name}() does not take named arguments", node)
        return lambda f: run(*[a(f) for a in args])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _counted(value: Any) -> str:
    return str(len(value)) if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"
