"""The tables in which a module keeps its parameters, buffers and submodules.

As in PyTorch, `_parameters`, `_buffers` and `_modules` hold the members. Reading `self.weight` from there through
`__getattr__`, as PyTorch does, costs 100-350 ns. So each of the three is a `Members`, a dictionary that mirrors its
entries as ordinary attributes of the module, which are read in 5-25 ns. Code that writes to the tables directly
(`module._parameters["w"] = p`, `del module._modules["head"]`) therefore changes the attribute too.

A class with a `__getattr__` of its own expects to be asked for members: the tables of its modules mirror nothing.
"""

from __future__ import annotations

import weakref
from typing import Any


class Members(dict):
    """One of a module's tables; its entries can also be read as attributes of the module.

    It is made as a dict is, and then belongs to no module: programs make tables of the type of a module's.
    """

    __slots__ = ("__weakref__", "owner")
    reader: Any = None  # `Module.__getattr__`

    def __init__(self, *members: Any, **more: Any):
        self.owner: Any = None
        if members or more:
            self.update(*members, **more)

    @staticmethod
    def of(module: Any, members: Any = ()) -> Members:
        """A table of a module."""
        table = Members()
        # Weak, so that a model is freed with its last reference and does not wait for the garbage collector.
        table.owner = weakref.ref(module)
        if members:
            table.update(members)
        return table

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        owner = self.owner and self.owner()
        # A class attribute (a method, a property) hides a member of the same name, as it does in PyTorch.
        cls: Any = type(owner)
        if owner is not None and cls.__getattr__ is Members.reader and not hasattr(cls, name):
            object.__setattr__(owner, name, value)

    def __delitem__(self, name: str) -> None:
        value = dict.pop(self, name)
        owner = self.owner and self.owner()
        if owner is not None and owner.__dict__.get(name, owner) is value:
            del owner.__dict__[name]

    def update(self, *members: Any, **more: Any) -> None:
        for name, value in dict(*members, **more).items():
            self[name] = value

    def __ior__(self, members: Any) -> Members:  # type: ignore[misc]
        self.update(members)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self:
            return dict.pop(self, name, *default)
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            return dict.popitem(self)
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def move_to_end(self, name: str, last: bool = True) -> None:
        """Does what `OrderedDict.move_to_end` does."""
        others = [] if last else [(k, v) for k, v in self.items() if k != name]
        for key, value in [(name, self.pop(name)), *others]:
            self.pop(key, None)
            self[key] = value

    @staticmethod
    def adopt(module: Any, tables: tuple[str, ...]) -> None:
        """Gives its own tables to a module whose `__dict__` came from another module."""
        for table in tables:
            members = module.__dict__.get(table)
            if members is not None and not (
                isinstance(members, Members) and members.owner and members.owner() is module
            ):
                object.__setattr__(module, table, Members.of(module, members))

    def __reduce_ex__(self, protocol: Any) -> tuple:
        # Copies and pickles are plain dictionaries, as in PyTorch; a module converts them when it is restored.
        return dict, (), None, None, iter(self.items())
