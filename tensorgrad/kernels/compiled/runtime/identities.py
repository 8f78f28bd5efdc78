"""Whether objects still refer to the same objects: many comparisons by `is`, done by machine code in one call.

A dictionary's item, an attribute in a slot, the content of a cell and the code of a function are each a word of memory
that holds an object's address. Where it is, is found out on an example, and what is not found is left to Python. A list
of comparisons is an array of 64-bit numbers: how many words have to be equal to a value, how many unequal, how many
lists, whole dictionaries, and single items there are. Then follow, in this order: pairs of an address and a value; for
each list how long it is, and its items; for each dictionary how long it is, and its keys in order, each with the value
(0: any); for each single item the dictionary, the key, the value, and where in the dictionary's order it was last (-1:
nowhere), where it is looked for first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from types import CellType, FunctionType, MappingProxyType
from typing import Any, cast

import numpy as np

from tensorgrad.kernels.compiled.runtime import launch, library
from tensorgrad.kernels.compiled.runtime.native import HEAD

_MANAGED_DICTIONARY = 1 << 4  # the flag of classes whose objects have their dictionary in front of them: here
_IN_FRONT = -24


class Comparisons:
    """Collects comparisons. Each method returns whether it can be one; if not, Python has to do it.

    `function` keeps all objects alive.
    """

    def __init__(self) -> None:
        self._equal: list[int] = []
        self._unequal: list[int] = []
        self._sequences: list[list[int]] = []
        self._walks: list[list[int]] = []
        self._items: list[int] = []
        self._kept: list[Any] = []

    def item(self, owner: Any, key: Any, value: Any, absent: Any) -> bool:
        """Whether a dictionary, or that of a class, has this very object by a key; `absent`: whether it has none."""
        found = _dictionary_of(owner)
        if found is None or key.__class__ is not str:
            return False
        self._kept += [owner, key, value]
        keys = [*(dict.keys(owner) if isinstance(owner, dict) else owner)]
        place = next((n for n, other in enumerate(keys) if other is key), -1)
        self._items += [found, id(key), 0 if value is absent else id(value), place]
        return True

    def length(self, owner: Any, length: int) -> bool:
        """Whether a dictionary, a list or a set has so many items."""
        kind = owner.__class__ if owner.__class__ in (list, set) else dict
        found = _dictionary_of(owner) if kind is dict else id(owner)
        place = _places_of_length()[kind]
        if place is None or found is None:
            return False
        self._kept.append(owner)
        self._equal += [found + place, length]
        return True

    def items(self, owner: Any, items: dict[Any, Any], any_value: Any) -> bool:
        """Whether a dictionary, or that of a class, has these very items in this order, and no others.

        `any_value`: in the place of a value, of which then any will do.
        """
        found = _dictionary_of(owner)
        if found is None or _reorders(owner) or not self.length(owner, len(items)):
            return False
        self._kept += [*items, *items.values()]
        pairs = [(id(key), 0 if value is any_value else id(value)) for key, value in items.items()]
        self._walks.append([found, len(items), *chain.from_iterable(pairs)])
        return True

    def elements(self, owner: Any, elements: tuple[Any, ...]) -> bool:
        """Whether a list has these very elements."""
        if owner.__class__ is not list or not self.length(owner, len(elements)):
            return False
        self._kept += elements
        self._sequences.append([id(owner), len(elements), *map(id, elements)])
        return True

    def attribute(self, owner: Any, name: str, value: Any, place: int | None, equal: bool = True) -> bool:
        """Whether the slot of an object at this place (see `slot`) has this very object; or (not `equal`) another."""
        if place is None:
            return False
        self._kept += [owner, value]
        (self._equal if equal else self._unequal).extend((id(owner) + place, id(value)))
        return True

    def content(self, cell: CellType, value: Any, absent: Any) -> bool:
        """Whether a cell holds this very object."""
        place = _place_in_cell()
        if place is None:
            return False
        self._kept += [cell, value]
        self._equal += [id(cell) + place, 0 if value is absent else id(value)]
        return True

    def part(self, function: FunctionType, name: str, value: Any) -> bool:
        """Whether the `__code__`, `__defaults__` or `__kwdefaults__` of a function is this very object."""
        place = _place_in_function(name)
        if place is None:
            return False
        self._kept += [function, value]
        self._equal += [id(function) + place, 0 if value is None else id(value)]
        return True

    def reference(self, owner: Any, name: str, value: Any) -> bool:
        """Whether the `__class__` or `__dict__` of an object, or the `__mro__` of a class, is this very object."""
        place = _place_of_class() if name == "__class__" else _place_of(owner, value, name)
        if place is None:
            return False
        self._kept += [owner, value]
        self._equal += [id(owner) + place, id(value)]
        return True

    def function(self) -> Callable[[], bool] | None:
        """The function that compares; None if there is nothing to compare."""
        counts = [len(self._equal) // 2, len(self._unequal) // 2]
        counts += [len(self._sequences), len(self._walks), len(self._items) // 4]
        if not any(counts):
            return None
        several = chain(*self._sequences, *self._walks)
        words = np.array([*counts, *self._equal, *self._unequal, *several, *self._items], np.int64)
        compare = partial(launch.same(), words.ctypes.data)
        compare.kept = words, self._kept  # type: ignore[attr-defined]
        return compare


@cache
def usable() -> bool:
    """Whether this process has the machine code."""
    try:
        library.image()
        return launch.same() is not None
    except (library.Unusable, library.Missing):
        return False


def _words(owner: Any, size: int) -> list[int]:
    return list((ctypes.c_int64 * (size // 8)).from_address(id(owner)))


def _only(owner: Any, size: int, value: int) -> int | None:
    """The only place, in bytes, where an object has this word."""
    places = [8 * i for i, word in enumerate(_words(owner, size)) if word == value]
    return places[0] if len(places) == 1 else None


@cache
def _places_of_length() -> dict[type, int | None]:
    """Where dictionaries, lists and sets have the number of their items."""
    numbers = [0, 1, 5, 1000]
    sets = [set(range(n + 3)) for n in numbers]
    for n, several in zip(numbers, sets, strict=True):
        several -= {n, n + 1, n + 2}  # whose places count among those that are filled
    examples: dict[type, list[Any]] = {
        dict: [dict.fromkeys(range(n)) for n in numbers], list: [[*range(n)] for n in numbers], set: sets
    }  # fmt: skip
    return {
        kind: next((p for p in (HEAD, HEAD + 8) if [_words(e, p + 8)[p // 8] for e in several] == numbers), None)
        for kind, several in examples.items()
    }


def _reorders(owner: Any) -> bool:
    """Whether a dictionary may give its keys in another order than it has them in, as an OrderedDict."""
    return isinstance(owner, dict) and type(owner).__iter__ is not dict.__iter__


@cache
def _proxies_are_known() -> bool:
    class Example:
        pass

    place = _words(Example.__dict__, HEAD + 8)[HEAD // 8]
    held: Any = next((d for d in _dictionaries_behind(Example) if id(d) == place), None)
    return held is not None and held == dict(Example.__dict__)


def _dictionaries_behind(cls: type) -> list[Any]:
    import gc

    return [d for d in gc.get_referents(cls) if d.__class__ is dict]


def _dictionary_of(owner: Any) -> int | None:
    """The address of a dictionary, or of that behind the `__dict__` of a class."""
    if isinstance(owner, dict):
        return id(owner)
    if owner.__class__ is MappingProxyType and _proxies_are_known():
        return _words(owner, HEAD + 8)[HEAD // 8]
    return None


@cache
def _place_of_class() -> int | None:
    class Example:
        pass

    return _only(Example(), object.__basicsize__, id(Example))


@cache
def _place_in_classes(name: str) -> int | None:
    class Example:
        pass

    return _only(Example, cast(Any, type).__basicsize__, id(getattr(Example, name)))


def _place_of(owner: Any, value: Any, name: str) -> int | None:
    """Where this object refers to its dictionary, or this class to its bases."""
    if isinstance(owner, type):
        place = _place_in_classes(name)
    elif owner.__class__.__flags__ & _MANAGED_DICTIONARY:
        place = _IN_FRONT
    else:
        place = owner.__class__.__dictoffset__ if owner.__class__.__dictoffset__ > 0 else None
    if place is None or ctypes.c_int64.from_address(id(owner) + place).value != id(value):
        return None
    return place


def slot(example: Any, name: str) -> int | None:
    """Where objects like `example` have the attribute of a slot. It is set meanwhile."""
    before, mark = getattr(example, name), object()
    try:
        setattr(example, name, mark)
        return _only(example, example.__class__.__basicsize__, id(mark))
    finally:
        setattr(example, name, before)


@cache
def _place_in_cell() -> int | None:
    mark = object()
    return _only(CellType(mark), CellType.__basicsize__, id(mark))


@cache
def _place_in_function(name: str) -> int | None:
    def example(a: Any = 1.5, *, b: Any = 2.5) -> None:
        pass

    place = _only(example, FunctionType.__basicsize__, id(getattr(example, name)))
    if place is None or name == "__code__":
        return place
    setattr(example, name, None)  # is that how C has it, too?
    return place if _words(example, FunctionType.__basicsize__)[place // 8] == 0 else None
