"""The tables in which a module keeps its parameters, buffers and submodules.

`_parameters`, `_buffers` and `_modules` are the truth, as in PyTorch. Reading `self.weight` from there through
`__getattr__`, as PyTorch does, costs 100-350 ns; so each of the three is a `Members`, a dictionary that mirrors what is
put into it as an ordinary attribute of the module, which is read in 5-25 ns. Whoever writes into the tables directly
(`module._parameters["w"] = p`, `del module._modules["head"]`) therefore changes the attribute too.
"""

from __future__ import annotations

import weakref
from typing import Any


class Members(dict):
    """One of a module's tables; what it holds can also be read as the module's attribute of that name."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Any = None, members: Any = ()):
        # Weak, so that a model is freed when its last user lets go of it, not when the garbage collector comes by.
        self.owner = None if owner is None else weakref.ref(owner)
        self.update(members)

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        owner = self.owner and self.owner()
        # A class attribute (a method, a property) hides a member of the same name, as it does in PyTorch.
        if owner is not None and not hasattr(type(owner), name):
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
        """As an ``OrderedDict``'s."""
        others = [] if last else [(k, v) for k, v in self.items() if k != name]
        for key, value in [(name, self.pop(name)), *others]:
            self.pop(key, None)
            self[key] = value

    @staticmethod
    def adopt(module: Any, tables: tuple[str, ...]) -> None:
        """Gives a module, whose ``__dict__`` came from another one, tables of its own."""
        for table in tables:
            members = module.__dict__.get(table)
            if members is not None and not (
                isinstance(members, Members) and members.owner and members.owner() is module
            ):
                object.__setattr__(module, table, Members(module, members))

    def __reduce_ex__(self, protocol: Any) -> tuple:
        # Copies and pickles are plain dictionaries, as PyTorch's: a module makes its own of those that it finds.
        return dict, (), None, None, iter(self.items())
