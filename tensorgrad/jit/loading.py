"""`torch.jit.load`: reads an archive of TorchScript, its program, and the state of its modules."""

from __future__ import annotations

import os
from pickle import UnpicklingError
from typing import Any

from tensorgrad.jit.modules import RecursiveScriptModule
from tensorgrad.jit.objects import Class, Instance
from tensorgrad.jit.parse import LONGEST
from tensorgrad.jit.program import Program
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.serialization import archive, reading
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.unpickler import CALL, Restricted
from tensorgrad.tensor import Tensor

MODULE, INSTANCE = 2000, 400  # bytes that an empty one takes
NEWEST = 10  # version of the operators: in a later one, they may mean something else


class ProgramReader(archive.Reader):
    """Reads the entries of an archive of TorchScript."""

    compressed = (".py", ".debug_pkl")

    def _find_prefix(self) -> str:
        found = [n for n in self.entries if n.count("/") == 1 and n.endswith("/constants.pkl")]
        if len(found) != 1 or found[0].replace("constants", "data") not in self.entries:
            what = "a zip archive without a program"
            if any(name.endswith("/model.json") for name in self.entries):
                what = "an archive of PyTorch 1.1 or earlier: load it with PyTorch and save it again"
            elif any(name.endswith("/data.pkl") for name in self.entries):
                what = "a checkpoint: use torch.load"
            raise UnpicklingError(f"the file is {what}")
        return found[0].removesuffix("constants.pkl")


class ProgramUnpickler(Restricted):
    """Reads the values of an archive: plain data, and instances of the program's classes."""

    def __init__(self, data: Any, persistent: Any, program: Program, outside: int) -> None:
        super().__init__(data, persistent, None, 0, outside)
        self.program = program
        self.parameters: dict[int, Parameter] = {}
        self.unfinished: dict[int, Any] = {}
        self.made: list[Any] = []  # all instances
        self.kept: list[Tensor] = []  # those whose ids `parameters` has

    def find(self, module: str, name: str) -> None:
        """Pushes a class of the program, or what stands for a name."""
        full = f"{module}.{name}"
        if full.startswith("__torch__."):
            found = self.program.find(full)
            if not isinstance(found, Class):
                raise UnpicklingError(f"the archive has an object of the class {full[:200]}, which it does not define")
            self.stack.append(found)
        elif module == "torch.jit._pickle" and name in TAGS:
            self.stack.append(TAGS[name])
        else:
            super().find(module, name)

    def unknown(self, full: str) -> None:
        """Raises: UnpicklingError."""
        raise UnpicklingError(f"the archive refers to {full[:200]}, which was refused: nothing was executed")

    def new(self) -> None:
        """Pushes a new instance of a class of the program."""
        if len(self.stack) < 2 or not isinstance(self.stack[-2], Class):
            super().new()
            return
        args, cls = self.pop(), self.pop()
        if args != () or cls.base not in ("", "Module"):
            raise UnpicklingError(f"the archive makes a {cls.name} of {described(args)}")
        self.take(MODULE if cls.base else INSTANCE)
        made = RecursiveScriptModule(self.program, cls) if cls.base else Instance(cls)
        self.unfinished[id(made)] = made
        self.made.append(made)
        self.stack.append(made)

    def call(self, function: Any, args: Any) -> None:
        """Pushes a member of an enumeration, a named tuple, or a value whose type the archive tells."""
        if isinstance(function, Class):
            self.take(CALL)
            given = args if type(args) is tuple else (args,)  # PyTorch gives a member's value as it is
            self.stack.append(function.member(*given) if function.base == "Enum" else function.call(*given))
        elif isinstance(function, Tag):
            if type(args) is not tuple or len(args) not in (1, 2):
                raise UnpicklingError("the archive tags something that is not a value")
            self.stack.append(args[0])
        else:
            super().call(function, args)

    def build(self) -> None:
        """Sets the state of an instance."""
        target = self.stack[-2] if len(self.stack) > 1 else None
        if not isinstance(target, RecursiveScriptModule | Instance):
            super().build()
            return
        state = self.pop()
        if id(target) not in self.unfinished:
            raise UnpicklingError("the archive sets the state of an object twice")
        cls = target._class
        if "__setstate__" in cls.methods:
            cls.methods["__setstate__"].run((target, state))
        else:
            if type(state) is not dict:
                raise UnpicklingError(f"the state of a {cls.name} is {described(state)}")
            for name, value in state.items():
                self.set(target, name, value)
        del self.unfinished[id(target)]

    def set(self, target: Any, name: Any, value: Any) -> None:
        """Sets an attribute of an instance."""
        if type(name) is not str or name not in target._class.attributes or not name or "." in name:
            raise UnpicklingError(f"{target._class.name} has no attribute {described(name)}")
        if isinstance(value, Module) and id(value) in self.unfinished:
            raise UnpicklingError("a module of the archive contains itself")
        if isinstance(target, Instance):
            target._set(name, value)
            return
        if isinstance(value, Tensor):
            self.kept.append(value)
        target._fill(name, value, self.parameters)

    def share_parameters(self) -> None:
        """Puts parameters in the place of their tensors, where lists have these too, as the weights of an LSTM."""
        for made in self.made:
            made._values.update({name: self._with_parameters(value) for name, value in made._values.items()})

    def _with_parameters(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.parameters.get(id(value), value)
        if type(value) is list:
            value[:] = map(self._with_parameters, value)
        elif type(value) is dict:
            value.update({key: self._with_parameters(v) for key, v in value.items()})
        elif type(value) is tuple:
            return tuple(map(self._with_parameters, value))
        return value


class Tag:
    """Stands for a function of PyTorch's that tells the type of a list or dict: the value is as it is."""


TAGS = {
    name: Tag()
    for name in ("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")
}


def read(f: Any, map_location: Any, extra: dict[str, Any] | None) -> RecursiveScriptModule:
    """Returns the module in a file. Raises: RuntimeError, ValueError."""
    if isinstance(f, str | os.PathLike):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {os.fspath(f)} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {os.fspath(f)} is a directory")
    try:
        with reading.opened(f) as file:
            return _read(ProgramReader(file), reading.Places(map_location), extra)
    except UnpicklingError as error:
        raise RuntimeError(f"torch.jit.load: {error}") from error


def _read(reader: ProgramReader, place: Any, extra: dict[str, Any] | None) -> RecursiveScriptModule:
    program = Program(_sources(reader), _version(reader))
    outside = 2 * reader.length
    constants = ProgramUnpickler(
        reader.read("constants.pkl"), reading.storages(reader, place, "constants"), program, outside
    ).load()
    if type(constants) is not tuple:
        raise UnpicklingError(f"the constants are {described(constants)}")
    program.compile(constants)
    machine = ProgramUnpickler(reader.read("data.pkl"), reading.storages(reader, place, "data"), program, outside)
    module = machine.load()
    if not isinstance(module, RecursiveScriptModule) or machine.unfinished:
        raise UnpicklingError(f"the archive has {described(module)} in place of a module")
    if machine.parameters:
        machine.share_parameters()
    for name in extra or ():
        if reader.has(f"extra/{name}"):
            extra[name] = bytes(reader.read(f"extra/{name}"))  # type: ignore[index]
    return module


def _sources(reader: ProgramReader) -> dict[str, bytes]:
    """The files of the program."""
    names = [name.removeprefix(reader.prefix) for name in reader.entries if name.startswith(reader.prefix + "code/")]
    names = [name for name in names if name.endswith(".py")]
    if sum(map(reader.size, names)) > LONGEST:
        raise UnpicklingError(f"its program is longer than {LONGEST >> 20} MB")
    return {name: bytes(reader.read(name)) for name in names}


def _version(reader: ProgramReader) -> int:
    for entry in (".data/version", "version"):
        if reader.has(entry):
            text = bytes(reader.read(entry)).strip().decode("ascii", "replace")
            if text.isdecimal() and len(text) < 9 and 0 < int(text) <= NEWEST:
                return int(text)
            raise UnpicklingError(f"its version is {described(text)}, and those from 1 to {NEWEST} are read")
    return 1
