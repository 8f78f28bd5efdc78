"""Modules that contain others, in sequence, in a list or by name, and the same for parameters."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tensorgrad.nn.module import Module, indented, typename
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class Container(Module):
    """Deprecated: a module whose submodules are given by name. Subclass `Module` instead.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.nn.Container(activation=torch.nn.ReLU())
    Container(
      (activation): ReLU()
    )
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
            "instead.",
            FutureWarning,
            stacklevel=2,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index: Any, size: int) -> int:
    """Converts `index`, which counts from the end if negative, to a position from 0."""
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range")
    return index % size


class _Indexed(Module):
    """Base of Sequential and ModuleList: submodules named "0", "1", ... (or as given)."""

    _modules: dict[str, Any]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def _name_at(self, index: int) -> str:
        return list(self._modules)[_position(index, len(self))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for name in list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]:
            delattr(self, name)
        self._modules = {str(i): module for i, module in enumerate(list(self._modules.values()))}

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return self._modules[self._name_at(index)]

    def _part(self, members: list) -> Any:
        """Returns a new container of some of the members, given as (name, module)."""
        raise NotImplementedError

    def pop(self, key: int | slice) -> Any:
        """Removes the module(s) at `key` and returns them."""
        found = self[key]
        del self[key]
        return found

    def append(self, module: Module) -> Any:
        """Adds `module` at the end; returns `self`."""
        self.add_module(str(len(self)), module)
        return self

    def _insert(self, index: int, module: Module) -> None:
        modules = self._modules
        for i in range(len(modules), index, -1):
            modules[str(i)] = modules[str(i - 1)]
        modules[str(index)] = module

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_Indexed):
    """Calls its modules one after another, each on the result of the previous one.

    Args:
        args: the modules; or one `OrderedDict` of modules by name.

    >>> from tensorgrad import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> model(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    >>> model[1]
    ReLU()
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _part(self, members: list) -> Any:
        return type(self)(OrderedDict(members))

    def insert(self, index: int, module: Module) -> Sequential:
        """Puts `module` before position `index`; returns `self`.

        Raises:
            AssertionError: `module` is not a module.
            IndexError: there is no such position.
        """
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        self._insert(index + size if index < 0 else index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Adds all modules of an iterable at the end; returns `self`."""
        for module in list(sequential):
            self.append(module)
        return self

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *_sequential(other))

    def __iadd__(self, other: Any) -> Sequential:
        return self.extend(_sequential(other))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*list(self) * _times(self, other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        return self.extend(list(self) * (_times(self, other) - 1))


def _sequential(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)!s} is given.")
    return other


def _times(modules: Sequential, other: int) -> int:
    if not isinstance(other, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(modules)} and {type(other)}")
    if other <= 0:
        raise ValueError(f"Non-positive multiplication factor {other} for {type(modules)}")
    return other


class ModuleList(_Indexed):
    """A list of modules that registers them; it has no `forward` of its own.

    Args:
        modules: the modules, in order; none by default.

    >>> from tensorgrad import nn
    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> layers
    ModuleList(
      (0-2): 3 x Linear(in_features=4, out_features=4, bias=True)
    )
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _part(self, members: list) -> Any:
        return type(self)([module for _, module in members])

    def insert(self, index: int, module: Module) -> None:
        """Puts `module` before position `index`."""
        self._insert(index, module)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds all modules of an iterable at the end; returns `self`.

        Raises:
            TypeError: `modules` is not an iterable.
        """
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Prints runs of equal modules once, with their count."""
        runs: list[tuple[int, int, str]] = []  # (first, last, text)
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = []
        for first, last, text in runs:
            one = first == last
            lines.append(f"({first}): {text}" if one else f"({first}-{last}): {last - first + 1} x {text}")
        return f"{self._get_name()}(" + "".join(f"\n  {indented(line)}" for line in lines) + ("\n)" if lines else ")")


class ModuleDict(Module):
    """A dictionary of modules that registers them; it has no `forward` of its own.

    Args:
        modules: a mapping, or pairs, of names and modules.

    >>> from tensorgrad import nn
    >>> heads = nn.ModuleDict({"policy": nn.Linear(8, 4), "value": nn.Linear(8, 1)})
    >>> list(heads)
    ['policy', 'value']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Removes the module called `key` and returns it."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """The pairs of name and module."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Adds the modules of a mapping, or of an iterable of pairs, replacing those of the same name.

        Raises:
            TypeError: `modules` is not an iterable, or one of its elements is not.
            ValueError: an element of the iterable is not a pair.
        """
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(given: Any, who: str) -> list[tuple[str, Any]]:
    if not isinstance(given, Iterable):
        raise TypeError(
            f"{who}.update should be called with an iterable of key/value pairs, but got {type(given).__name__}"
        )
    if isinstance(given, Mapping | ModuleDict | ParameterDict):
        return list(given.items())
    pairs = []
    for i, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{who} update sequence element #{i} should be Iterable; is{type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{who} update sequence element #{i} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any, kind_of_data: Callable) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    name = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.size())
    where = f" ({value.device})" if value.is_cuda else ""
    return f"  ({key}): {name} containing: [{kind_of_data(value)} of size {size}{where}]"


class ParameterList(Module):
    """A list of parameters that registers them. Tensors become parameters; other objects are stored unchanged.

    Args:
        values: the parameters; tensors become parameters.

    >>> rows = torch.nn.ParameterList([torch.zeros(2), torch.zeros(3)])
    >>> [p.shape for p in rows.parameters()]
    [torch.Size([2]), torch.Size([3])]
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def append(self, value: Any) -> ParameterList:
        """Adds `value` at the end; returns `self`."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds all values of an iterable at the end; returns `self`.

        Raises:
            TypeError: `values` is not an iterable, or is a tensor.
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def extra_repr(self) -> str:
        return "\n".join(_line(i, value, lambda t: t.dtype) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters that registers them. Tensors become parameters; other objects are stored unchanged.

    Args:
        parameters: a mapping, or pairs, of names and parameters.

    >>> gains = torch.nn.ParameterDict({"left": torch.ones(2)})
    >>> gains["left"].requires_grad
    True
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _name(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._name(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._name(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A new dictionary of the same parameters."""
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Returns the parameter called `key`, after setting it to `default` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes all parameters."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Removes the parameter called `key` and returns it."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Removes the pair that was added last and returns it."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter called `key`, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with `default` for every key."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """The pairs of name and parameter."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds the parameters of a mapping, or of an iterable of pairs, replacing those of the same name.

        Raises:
            TypeError: `parameters` is not an iterable, or one of its elements is not.
            ValueError: an element of the iterable is not a pair.
        """
        pairs = _pairs(parameters, "ParameterDict")
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort()  # as in PyTorch, whose code predates ordered dictionaries
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value, typename) for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self
