"""The op database as a section of the conformance report: its records, by the family that their function is of."""

from __future__ import annotations

import functools
import importlib
import inspect

import tensorgrad as tg
from tensorgrad.ops import FAMILIES
from tests.conformance import opdb
from tests.conformance.__main__ import Entry
from tests.conformance.opdb_bridge import named
from tests.conformance.opdb_excluded import excluded
from tests.conformance.opdb_known import ABSENT

NAMESPACES = ("nn.functional", "linalg", "fft", "special", "masked", "signal")


@functools.cache
def _records() -> dict:
    return {opdb.record_name(record): record for record in opdb.records()}


def entries() -> list[Entry]:
    """All records of the database, in its order."""
    return [_entry(name, record) for name, record in _records().items()]


def _entry(name: str, record) -> Entry:
    found = opdb.resolve(record)
    refuses = getattr(found, "__module__", None) == "tensorgrad.ops.pytorch.absent"
    if found is not None and not refuses and not is_sparse(name):
        return Entry(name, family(record))
    reason = excluded(name)
    if reason is not None:
        return Entry(name, "", excluded=reason)
    return Entry(name, family(record), missing=ABSENT.get(name, "Not written yet."))


def is_sparse(name: str) -> bool:
    """Whether a record is about sparse layouts, which tests/sparse compares."""
    return name == "to_sparse" or name.startswith("sparse.")


def check(name: str) -> list[str]:
    """What differs in a record."""
    try:
        return opdb.check_all(_records()[name])
    except Exception as error:
        return [f"the record itself: {type(error).__name__}: {error}"]


def family(record) -> str:
    """The namespace of a record's function, or the file of ops that it is in; "other" if it is in neither."""
    space = next((space for space in NAMESPACES if record.name.startswith(f"{space}.")), None)
    if space:
        return space
    name = "__getitem__" if record.name in opdb.SPELLED else record.name
    candidates = (named(name), named(f"{name}_"), getattr(tg.Tensor, name, None), opdb.resolve(record))
    function = next((f for f in candidates if f), None)
    function = inspect.unwrap(getattr(function, "fget", function)) if function else None  # a property's; a guard's
    module = getattr(function, "__module__", None) or ""
    if module.startswith("tensorgrad."):
        return module.rpartition(".")[2]
    return _rooms().get(getattr(function, "op", None)) or _rooms().get(function) or "other"


@functools.cache
def _rooms() -> dict:
    """Rows and functions of the op files -> the first file that has them. (What a row becomes has no module.)"""
    rooms: dict = {}
    for room in FAMILIES:
        for value in vars(importlib.import_module(f"tensorgrad.ops.{room}")).values():
            if callable(value):
                rooms.setdefault(getattr(value, "op", value), room.rpartition(".")[2])
    rooms.pop(None, None)
    return rooms
