"""Which calls of which modules a node of a program belongs to, and how these modules were called.

PyTorch's form, in `node.meta["nn_module_stack"]`: an entry for each call that is running, the outermost first, whose
key is `L__self__` and the path of the module, with `@1` for its second call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tensorgrad.nn import Module
from tensorgrad.utils import _pytree

Stack = dict[str, tuple[str, str]]  # key -> path and type


class ModuleCalls:
    """Follows the calls of a module and of those inside of it.

    Args:
        module: The module.
        preserved: The paths of modules whose arguments and results are noted.

    Raises: AttributeError if there is no such module.
    """

    def __init__(self, module: Module, preserved: tuple[str, ...] = ()) -> None:
        self.module, self.preserved = module, frozenset(preserved)
        for path in preserved:
            module.get_submodule(path)
        self.paths: dict[int, list[str]] = {}
        self.running: list[tuple[str, str, str]] = []  # key, path and type
        self.counts: dict[str, int] = {}
        self.noted: dict[str, tuple[list, Any]] = {}  # call -> nodes of the arguments, and their structure
        self.signatures: dict[str, tuple[list, Any, list, Any]] = {}
        self.undo: list[Callable[[], Any]] = []

    def begin(self, node_of: Callable[[Any], Any]) -> None:
        """Follows calls from here on. `node_of` returns the node of a tensor, and other values as they are."""
        self.node_of = node_of
        aliases = set()
        for table, name, alias, original in _aliased(self.module):
            aliases.add(alias)
            self.undo.append(partial(table.update, {name: original}))
        for path, inner in self.module.named_modules(remove_duplicate=False):
            self.paths.setdefault(id(inner), []).append(path)
        for inner in self.module.modules():
            if inner not in aliases:  # which share the hooks of the original
                self.undo.append(inner.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                self.undo.append(inner.register_forward_hook(self._leave, always_call=True).remove)

    def end(self) -> None:
        """Makes all as it was before."""
        while self.undo:
            self.undo.pop()()

    def stack(self) -> Stack:
        """The calls that are running."""
        return {key: (path, kind) for key, path, kind in self.running}

    def _path(self, module: Module) -> str:
        """The path by which a module is called: below the one that is running, if it is there."""
        paths = self.paths[id(module)]
        if self.running:
            prefix = self.running[-1][1]
            inside = [p for p in paths if p.startswith(prefix and f"{prefix}.")]
            paths = inside or paths
        return min(paths, key=len)

    def _enter(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> None:
        path = self._path(module)
        number = self.counts[path] = self.counts.get(path, -1) + 1
        call = f"{path}@{number}" if number else path
        self.running.append((f"L__self__{call}", path, f"{type(module).__module__}.{type(module).__qualname__}"))
        if path in self.preserved:
            leaves, spec = _pytree.tree_flatten((args, kwargs))
            self.noted[call] = [self.node_of(leaf) for leaf in leaves], spec

    def _leave(self, module: Module, args: tuple, result: Any) -> None:
        call = self.running.pop()[0].removeprefix("L__self__")
        if call in self.noted:
            leaves, spec = _pytree.tree_flatten(result)
            self.signatures[call] = *self.noted.pop(call), [self.node_of(leaf) for leaf in leaves], spec


def _aliased(module: Module) -> Iterator[tuple[Any, str, Module, Module]]:
    """Gives a module that has several names another object for each further one, so that its calls tell the name.

    They share all that the module has. Yields the tables that were changed, with the names and both objects.
    """
    seen, tables, left = {id(module)}, set(), [module]
    while left:
        owner = left.pop(0)
        if id(owner._modules) in tables:
            continue
        tables.add(id(owner._modules))
        for name, inner in list(owner._modules.items()):
            if inner is None:
                continue
            if id(inner) in seen:
                alias = object.__new__(type(inner))
                object.__setattr__(alias, "__dict__", inner.__dict__)
                owner._modules[name] = alias
                yield owner._modules, name, alias, inner
            seen.add(id(inner))
            left.append(inner)


class NodeStacks:
    """The calls that nodes of one graph belonged to, for nodes of a graph that is made by running it.

    Args:
        names: of the nodes of the first graph for which `noted` gets the ones of the second.
    """

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.current: Stack = {}
        self.noted: list[dict[str, Any]] = []  # for each run

    def begin(self, node_of: Callable[[Any], Any]) -> None:
        """Begins a run. `node_of` returns the node of a tensor, and other values as they are."""
        self.node_of = node_of
        self.noted.append({})

    def end(self) -> None:
        """Ends it."""
        self.current = {}

    def stack(self) -> Stack:
        """The calls to which the node that is being run belonged."""
        return self.current

    def made(self, name: str, result: Any) -> None:
        """Notes what a node of the first graph became."""
        if name in self.names:
            self.noted[-1][name] = self.node_of(result)
