"""`torch.jit.save`: writes a module with its program as an archive of TorchScript, which PyTorch loads too."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from pickle import BUILD, EMPTY_DICT, EMPTY_TUPLE, MARK, NEWOBJ, REDUCE, SETITEMS
from typing import Any

from tensorgrad.jit.objects import EnumMember, Scripted
from tensorgrad.jit.types import Type
from tensorgrad.serialization import archive
from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import Global, bytes_of, named
from tensorgrad.tensor import Tensor


class Typed:
    """A value of a program, with the type that its class declares."""

    def __init__(self, value: Any, kind: Type) -> None:
        self.value, self.kind = value, kind


class ProgramPickler(Pickler):
    """Writes values of a program: instances by their attributes, lists and dicts with their types."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, 2)
        self.plain: dict[int, Any] = {}  # for each parameter, the tensor that is written

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Writes a value."""
        if isinstance(obj, Typed):
            self._typed(obj.value, obj.kind)
        elif isinstance(obj, Scripted):
            self._object(obj)
        elif isinstance(obj, EnumMember):
            self._name(obj.cls.name)
            self.save(obj.value)
            self.write(REDUCE)  # type: ignore[attr-defined]
        elif isinstance(obj, Tensor):
            super().save(self._tensor(obj), save_persistent_id)  # type: ignore[misc]
        elif isinstance(obj, tuple) and hasattr(obj, "_fields") and not isinstance(obj, Global):
            super().save(tuple(obj), save_persistent_id)  # type: ignore[misc]
        else:
            super().save(obj, save_persistent_id)  # type: ignore[misc]

    def _tensor(self, tensor: Tensor) -> Tensor:
        """The plain tensor to write, one for each object."""
        if type(tensor) is Tensor and tensor._edge is None:
            return tensor
        if id(tensor) not in self.plain:
            plain = tensor.detach()
            plain.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            self.plain[id(tensor)] = plain, tensor
        return self.plain[id(tensor)][0]

    def _name(self, full: str) -> None:
        module, _, name = full.rpartition(".")
        self.save(named(module, name))

    def _object(self, obj: Scripted) -> None:
        known = self.memo.get(id(obj))  # type: ignore[attr-defined]
        if known is not None:
            self.write(self.get(known[0]))  # type: ignore[attr-defined]
            return
        cls = obj._class
        self._name(cls.name)
        self.write(EMPTY_TUPLE + NEWOBJ)  # type: ignore[attr-defined]
        if "__getstate__" in cls.methods:
            self.save(cls.methods["__getstate__"].run((obj,)))
        else:
            self.write(EMPTY_DICT + MARK)  # type: ignore[attr-defined]
            for name, kind in cls.attributes.items():
                if name not in cls.constants:
                    self.save(name)
                    self._typed(obj._get(name), kind)
            self.write(SETITEMS)  # type: ignore[attr-defined]
        self.write(BUILD)  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    def _typed(self, value: Any, kind: Type) -> None:
        """Writes a value. PyTorch's reader needs the types of lists and dicts."""
        if kind.name == "Optional" and value is not None:
            kind = kind.parts[0]
        if kind.name == "float" and type(value) is int:
            value = float(value)
        if kind.name == "List" and isinstance(value, list):
            self._tagged([Typed(v, kind.parts[0]) for v in value], kind)
        elif kind.name == "Dict" and isinstance(value, dict):
            self._tagged({k: Typed(v, kind.parts[1]) for k, v in value.items()}, kind)
        elif kind.name == "Tuple" and type(value) is tuple and len(value) == len(kind.parts):
            self.save(tuple(Typed(v, part) for v, part in zip(value, kind.parts, strict=True)))
        else:
            self.save(value)

    def _tagged(self, value: Any, kind: Type) -> None:
        self._name("torch.jit._pickle.restore_type_tag")
        self.save((value, str(kind)))
        self.write(REDUCE)  # type: ignore[attr-defined]


def write(module: Any, f: Any, extra: dict[str, Any] | None) -> None:
    """Writes a module to a path or an object with `write`. Raises: see `torch.jit.save`."""
    module = getattr(module, "_module", module)  # of a scripted function
    program = getattr(module, "_program", None)
    if not isinstance(module, Scripted) or program is None:
        what = f"{type(module).__module__}.{type(module).__qualname__}"
        why = "torch.jit.script(module) makes one of its source, and torch.jit.trace(module, example) records one"
        if "_unwritable" in getattr(module, "__dict__", ()):
            why = f"its source has no text in TorchScript here: {module._unwritable}"
        if "_traced" in getattr(module, "__dict__", ()):
            why = module._traced[1]
        raise NotImplementedError(
            f"jit.save: a {what} without a program cannot be saved ({why}). "
            "torch.save(module.state_dict(), file) saves its state"
        )
    if isinstance(f, str | os.PathLike):
        with archive.replacing(f) as file:
            _write(module, program, file, Path(f).name.partition(".")[0] or "archive", extra)
    else:
        _write(module, program, f, "archive", extra)


def _write(module: Scripted, program: Any, file: Any, name: str, extra: dict[str, Any] | None) -> None:
    parts = {folder: _pickled(value) for folder, value in (("data", module), ("constants", program.constants))}
    with archive.Writer(file, name) as writer:
        for entry, content in (extra or {}).items():
            writer.add(f"extra/{entry}", content.encode() if isinstance(content, str) else content)
        for folder, (text, pickler) in parts.items():
            for key, storage in pickler.storages.items():
                writer.add(f"{folder}/{key}", bytes_of(storage))
            writer.add(f"{folder}.pkl", text)
        for entry, content in program.sources.items():
            writer.add(entry, content)
        writer.add("version", f"{program.version}\n".encode())
        writer.add("byteorder", sys.byteorder.encode())


def _pickled(value: Any) -> tuple[bytes, ProgramPickler]:
    text = io.BytesIO()
    pickler = ProgramPickler(text)
    pickler.dump(value)
    return text.getvalue(), pickler
