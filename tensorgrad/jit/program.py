"""A program: the classes and functions of all files of an archive."""

from __future__ import annotations

import ast
from typing import Any

from tensorgrad.jit.compiling import Compiler
from tensorgrad.jit.errors import ProgramError
from tensorgrad.jit.functions import UNSET, Function, Parameter
from tensorgrad.jit.objects import Class, EnumMember
from tensorgrad.jit.parse import File, parse
from tensorgrad.jit.types import ANY, read_type

MOST_HOOKS = 64  # of a class: each of its modules has them
BASES = ("Module", "NamedTuple", "Enum", "Interface", "ModuleInterface")


class Program:
    """The classes and functions of an archive.

    Args:
        sources: The text of its files, by their names in the archive.
        version: The version of PyTorch's operators for which it was written.

    Raises: ProgramError.
    """

    def __init__(self, sources: dict[str, bytes], version: int) -> None:
        self.sources, self.version = sources, version
        self.constants: tuple = ()
        self.found: dict[str, Any] = {}
        self._classes: list[tuple[File, ast.ClassDef, Class]] = []
        self._functions: list[tuple[File, ast.FunctionDef, str]] = []
        for name in sorted(sources):
            self._declare(parse(name, sources[name]))

    def find(self, name: str) -> Any:
        """Returns a class or function by its full name, or None."""
        return self.found.get(name)

    def __deepcopy__(self, memo: Any) -> Program:
        return self

    def _declare(self, file: File) -> None:
        """Notes the names of a file."""
        prefix = file.name.removeprefix("code/").removesuffix(".py").replace("/", ".")
        for node in file.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "op_version_set":
                continue  # of archives before PyTorch 1.4
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                raise ProgramError("only classes and functions are allowed here", file.at(node))
            full = f"{prefix}.{node.name}"
            if full in self.found:
                raise ProgramError(f"there are two of {full!r:.200}", file.at(node))
            if isinstance(node, ast.FunctionDef):
                self._functions.append((file, node, full))
                self.found[full] = Function(node.name, [], "", "")
                continue
            bases = [ast.unparse(base) for base in node.bases]
            if len(bases) > 1 or any(base not in BASES for base in bases) or node.keywords or node.decorator_list:
                raise ProgramError(f"a class of unknown kind: {bases}"[:300], file.at(node))
            self.found[full] = cls = Class(full, *(bases or [""]))
            self._classes.append((file, node, cls))

    def compile(self, constants: tuple) -> None:
        """Makes the functions. `constants` are the values of `CONSTANTS.c0`, ..."""
        self.constants = constants
        for file, node, cls in self._classes:
            self._read_class(file, node, cls)
        bodies: list[tuple[Compiler, ast.FunctionDef, Function]] = []
        for file, definition, full in self._functions:
            bodies.append(self._read_function(file, definition, self.found[full], definition.name))
        for file, node, cls in self._classes:
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    bodies.append(self._read_function(file, part, cls.methods[part.name], part.name))
        for compiler, body, function in bodies:
            try:
                compiler.compile(body, function)
            except RecursionError:
                raise compiler.refuse("the program is nested too deeply", body) from None
        self._classes, self._functions = [], []

    def _compiler(self, file: File, function: str) -> Compiler:
        return Compiler(file, function, self.find, self.constants, self.version)

    def _read_class(self, file: File, node: ast.ClassDef, cls: Class) -> None:
        """Reads what a class says before its functions."""
        compiler = self._compiler(file, node.name)
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                cls.methods[part.name] = Function(part.name, [], "", "", method=True)
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                self._attribute(compiler, cls, part.target.id, part.annotation)
                if part.value is not None:
                    cls.constants[part.target.id] = compiler.value(part.value)([])
            elif isinstance(part, ast.Assign) and len(part.targets) == 1:
                self._assigned(compiler, cls, part, part.targets[0])
            elif not isinstance(part, ast.Pass):
                raise compiler.refuse("a class has attributes and functions only", part)
        hooks = [*cls.forward_pre_hooks, *cls.forward_hooks]
        for name in hooks:
            if name not in cls.methods:
                raise compiler.refuse(f"there is no hook {name!r:.100}", node)
        if len(hooks) > MOST_HOOKS:
            raise compiler.refuse(f"a class has {len(hooks)} hooks, more than {MOST_HOOKS}", node)
        if cls.base == "NamedTuple":
            try:
                cls.make_tuple()
            except ValueError as error:
                raise compiler.refuse(str(error), node) from None

    def _attribute(self, compiler: Compiler, cls: Class, name: str, annotation: ast.expr) -> None:
        cls.attributes[name] = compiler.type(annotation)
        cls.texts[name] = ast.unparse(annotation)

    def _assigned(self, compiler: Compiler, cls: Class, part: ast.Assign, target: ast.expr) -> None:
        """`__parameters__ = ["weight"]`, `__annotations__["0"] = Type`, or a member of an enumeration."""
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "__annotations__":
            name = getattr(target.slice, "value", None)
            if not isinstance(name, str):
                raise compiler.refuse("the name of an attribute is a string", part)
            self._attribute(compiler, cls, name, part.value)
            return
        value = compiler.value(part.value)([])
        name = target.id if isinstance(target, ast.Name) else ""
        if name in ("__parameters__", "__buffers__", "__forward_hooks__", "__forward_pre_hooks__"):
            if not isinstance(value, list) or any(not isinstance(v, str) for v in value):
                raise compiler.refuse(f"{name} is a list of strings", part)
            setattr(cls, name.strip("_"), value)
        elif cls.base == "Enum" and name:
            cls.constants[name] = EnumMember(cls, name, value)
        else:
            raise compiler.refuse("a class has attributes and functions only", part)

    def _read_function(
        self, file: File, node: ast.FunctionDef, function: Function, name: str
    ) -> tuple[Compiler, ast.FunctionDef, Function]:
        """Reads the parameters of a function."""
        compiler = self._compiler(file, name)
        given = node.args
        if given.vararg or given.kwarg or given.posonlyargs or node.decorator_list or given.kw_defaults.count(None):
            raise compiler.refuse("a function has ordinary parameters only", node)
        values: list[Any] = [UNSET] * (len(given.args) - len(given.defaults))
        values += [compiler.value(default)([]) for default in given.defaults]
        values += [compiler.value(default)([]) for default in given.kw_defaults if default is not None]
        for i, (arg, value) in enumerate(zip([*given.args, *given.kwonlyargs], values, strict=True)):
            kind = ANY if function.method and i == 0 else compiler.type(arg.annotation)
            function.parameters.append(Parameter(arg.arg, kind, value))
        function.places = {p.name: i for i, p in enumerate(function.parameters)}
        read_type(node.returns, compiler.find, compiler.refuse)
        function.returns = "" if node.returns is None else ast.unparse(node.returns)
        function.text = _outdented(file.text(node))
        return compiler, node, function


def _outdented(text: str) -> str:
    lines = text.split("\n")
    spaces = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[spaces:] if not line[:spaces].strip() else line for line in lines) + "\n"
