"""Module hooks: their registration, and the call that runs them.

`Module.__call__` comes here only if the module has ever had a hook, or if a global hook has ever been registered: the
flag `_hooked`, on the instance or on the class, records this. A module's hook tables are created on first access
(`_OnFirstAccess`), so a module without hooks stores none of them and pays for one test per call.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tensorgrad.autograd.handles import RemovableHandle
from tensorgrad.tensor import Tensor

# Accessing a call table makes later calls check for hooks; the state tables concern `state_dict` alone.
CALL_TABLES = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
STATE_TABLES = (
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"
)  # fmt: skip


class _Tables:
    _forward_hooks: OrderedDict[int, Callable]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: OrderedDict[int, Callable]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _backward_hooks: OrderedDict[int, Callable]
    _backward_pre_hooks: OrderedDict[int, Callable]
    _is_full_backward_hook: bool | None = None


class _Global(_Tables):
    """The hooks common to all modules, in the same tables as a module's own."""

    def __init__(self) -> None:
        for table in CALL_TABLES:
            setattr(self, table, OrderedDict())


GLOBAL_HOOKS = _Global()


class _OnFirstAccess:
    """A table that a module does not have yet. Not `__getattr__`, which subclasses may define without calling ours."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, cls: type) -> Any:
        if module is None:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{self.name}'")
        own = module.__dict__
        table: OrderedDict[int, Any] = OrderedDict()
        own[self.name] = table
        if self.name in CALL_TABLES:
            own["_hooked"] = True
        return table


class Hooked(_Tables):
    """The hook methods of `tensorgrad.nn.Module`."""

    _hooked = False
    forward: Callable[..., Any]

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before every `forward`; what it returns, if anything, replaces the arguments.

        Args:
            prepend: run it before the hooks that are already registered.
            with_kwargs: call `hook(module, args, kwargs)`, which returns `None` or `(args, kwargs)`.
        """
        handle = _add(self, "_forward_pre_hooks", hook, prepend, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, output)` after every `forward`; a result, if any, replaces the output.

        Args:
            prepend: run it before the hooks that are already registered.
            with_kwargs: call `hook(module, args, kwargs, output)`.
            always_call: run it also when the call raises.
            hook: a function of the module, its positional arguments and its result.

        >>> layer = torch.nn.Linear(2, 3)
        >>> handle = layer.register_forward_hook(lambda module, args, output: print(output.shape))
        >>> y = layer(torch.zeros(1, 2))
        torch.Size([1, 3])
        >>> handle.remove()
        """
        extra = (self._forward_hooks_with_kwargs, self._forward_hooks_always_called)
        handle = _add(self, "_forward_hooks", hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` when the gradients of the outputs are known; it may return new ones."""
        return _add(self, "_backward_pre_hooks", hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        Both are tuples, with `None` for what is not a tensor; a returned tuple replaces `grad_input`.

        Raises:
            RuntimeError: the module has a (deprecated) regular backward hook.
        """
        _choose_kind(self, True, "a single Module")
        return _add(self, "_backward_hooks", hook, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """Deprecated: sees the gradients of the last op of the module, not those of the module's inputs.

        Use `register_full_backward_hook`.
        """
        _choose_kind(self, False, "a single Module")
        return _add(self, "_backward_hooks", hook)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self.__dict__.get("_compiled_call_impl")
        return call(self, args, kwargs) if compiled is None else compiled(*args, **kwargs)


def hooked(module: Any) -> bool:
    """Whether there are hooks for a call of a module."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        or GLOBAL_HOOKS._forward_hooks or GLOBAL_HOOKS._forward_pre_hooks
        or GLOBAL_HOOKS._backward_hooks or GLOBAL_HOOKS._backward_pre_hooks
    )  # fmt: skip


def call(module: Any, args: tuple, kwargs: dict) -> Any:
    """Calls a module with its hooks."""
    return _HookedCall(module, args, kwargs).run() if hooked(module) else module.forward(*args, **kwargs)


for _name in (*CALL_TABLES, *STATE_TABLES):
    setattr(Hooked, _name, _OnFirstAccess(_name))


class _HookedCall:
    """One call of a module that has hooks. An object, because the hooks that run after an error depend on its state."""

    def __init__(self, module: Any, args: tuple, kwargs: dict):
        self.module, self.args, self.kwargs = module, args, kwargs
        self.result: Any = None
        self.called: set[int] = set()

    def run(self) -> Any:
        try:
            return self._run()
        except Exception:
            self._always(GLOBAL_HOOKS, "global module")
            self._always(self.module, "module")
            raise

    def _run(self) -> Any:
        self._before()
        module = self.module
        full, regular = _backward_hooks_of(module)
        before = [*GLOBAL_HOOKS._backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
        backward = None
        if full or before:
            from tensorgrad.nn.backward_hook import BackwardHook

            backward = BackwardHook(module, full, before)
            self.args = backward.watch_inputs(self.args)

        self.result = module.forward(*self.args, **self.kwargs)
        for owner in (GLOBAL_HOOKS, module):
            for key, hook in list(owner._forward_hooks.items()):
                self.called.add(key)
                self._after(owner, key, hook)

        if backward is not None:
            if not isinstance(self.result, Tensor | tuple):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(self.result)}",
                    stacklevel=5,
                )
            self.result = backward.watch_outputs(self.result)
        if regular:
            self._hook_last_op(regular)
        return self.result

    def _hook_last_op(self, hooks: list[Callable]) -> None:
        """Registers regular backward hooks on the op that made the result, and warns of gradients they will miss."""
        last = self.result
        while not isinstance(last, Tensor):
            last = next(v for v in last.values() if isinstance(v, Tensor)) if isinstance(last, dict) else last[0]
        if last.grad_fn is None:
            return
        for hook in hooks:
            last.grad_fn.register_hook(
                lambda grad_input, grad_output, hook=hook: hook(self.module, grad_input, grad_output)
            )
        unseen = _not_seen(self.args, self.result, last.grad_fn)
        if unseen:
            how, what = unseen
            warnings.warn(
                f"Using {how} is deprecated and will be removed in future versions. This hook will be missing some "
                f"{what}. Please use register_full_backward_hook to get the documented behavior.",
                FutureWarning,
                stacklevel=5,
            )

    def _before(self) -> None:
        module = self.module
        for owner in (GLOBAL_HOOKS, module):
            for key, hook in list(owner._forward_pre_hooks.items()):
                if key in owner._forward_pre_hooks_with_kwargs:
                    given = hook(module, self.args, self.kwargs)
                    if given is None:
                        continue
                    if not (isinstance(given, tuple) and len(given) == 2):
                        raise RuntimeError(
                            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {given}."
                        )
                    self.args, self.kwargs = given
                else:
                    given = hook(module, self.args)
                    if given is not None:
                        self.args = given if isinstance(given, tuple) else (given,)

    def _after(self, owner: Any, key: int, hook: Callable) -> None:
        if key in owner._forward_hooks_with_kwargs:
            given = hook(self.module, self.args, self.kwargs, self.result)
        else:
            given = hook(self.module, self.args, self.result)
        if given is not None:
            self.result = given

    def _always(self, owner: Any, whose: str) -> None:
        """Runs, after an error, the `always_call` hooks that have not run yet. Errors in them become warnings."""
        for key, hook in list(owner._forward_hooks.items()):
            if key not in owner._forward_hooks_always_called or key in self.called:
                continue
            try:
                self._after(owner, key, hook)
            except Exception as error:
                warnings.warn(
                    f"{whose} forward hook with ``always_call=True`` raised an exception that was silenced as another "
                    f"error was raised in forward: {error!s}",
                    stacklevel=4,
                )


def _add(module: Any, name: str, hook: Callable, prepend: bool = False, extra: Any = None) -> RemovableHandle:
    table = getattr(module, name)
    module.__dict__["_hooked"] = True  # needed if the table came with the module's state
    handle = RemovableHandle.add(table, hook, extra_dict=extra)
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def _choose_kind(owner: Any, full: bool, whose: str) -> None:
    if owner._is_full_backward_hook is (not full):
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks on {whose}. Please use only one of them."
            if whose == "a single Module"
            else "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use "
            "only one of them."
        )
    owner._is_full_backward_hook = full


def _backward_hooks_of(module: Any) -> tuple[list[Callable], list[Callable]]:
    """(full, regular) backward hooks, the global ones first."""
    kinds: dict[bool | None, list[Callable]] = {True: [], False: [], None: []}
    for owner in (GLOBAL_HOOKS, module):
        kinds[owner._is_full_backward_hook] += owner._backward_hooks.values()
    return kinds[True], kinds[False]


def _not_seen(args: tuple, result: Any, last: Any) -> tuple[str, str] | None:
    """Returns which gradients of a call a hook on the op `last` misses, as (why, which), or None if it sees all."""
    results = result if isinstance(result, tuple) else (result,)
    on_module = "non-full backward hooks on a Module that does not"
    if not all(isinstance(r, Tensor) for r in results):
        return f"{on_module} return a single Tensor or a tuple of Tensors", "of the grad_output"
    if not all(isinstance(a, Tensor) for a in args):
        return f"{on_module} take as input a single Tensor or a tuple of Tensors", "of the grad_input"
    if len({r.grad_fn for r in results if r.grad_fn is not None}) > 1:
        return "a non-full backward hook when outputs are generated by different autograd Nodes", "grad_output"
    # Leaves among the inputs count as nodes in between, as in PyTorch.
    if {a.grad_fn for a in args if a.grad_fn is not None} != {node for node, _ in last.next_functions}:
        return "a non-full backward hook when the forward contains multiple autograd Nodes", "grad_input"
    return None


def _for_all(table: str, hook: Callable, extra: Any = None) -> RemovableHandle:
    Hooked._hooked = True  # from now on, calls of all modules check for hooks
    return RemovableHandle.add(getattr(GLOBAL_HOOKS, table), hook, extra_dict=extra)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, args)` before the `forward` of every module. For debugging and profiling."""
    return _for_all("_forward_pre_hooks", hook)


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls `hook(module, args, output)` after the `forward` of every module. For debugging and profiling."""
    extra = (GLOBAL_HOOKS._forward_hooks_with_kwargs, GLOBAL_HOOKS._forward_hooks_always_called)
    handle = _for_all("_forward_hooks", hook, extra)
    if with_kwargs:
        GLOBAL_HOOKS._forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        GLOBAL_HOOKS._forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, grad_output)` before the backward pass of every module."""
    return _for_all("_backward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, grad_input, grad_output)` after the backward pass of every module."""
    _choose_kind(GLOBAL_HOOKS, True, "all")
    return _for_all("_backward_hooks", hook)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """Deprecated: use `register_module_full_backward_hook`, which sees the gradients of the module's inputs."""
    _choose_kind(GLOBAL_HOOKS, False, "all")
    return _for_all("_backward_hooks", hook)


# Registration hooks by handle id: hook(module, name, value) -> replacement or None.
on_parameter: OrderedDict[int, Callable] = OrderedDict()
on_buffer: OrderedDict[int, Callable] = OrderedDict()
on_module: OrderedDict[int, Callable] = OrderedDict()


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, name, parameter)` whenever a parameter is registered; a result replaces it."""
    return RemovableHandle.add(on_parameter, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, name, buffer)` whenever a buffer is registered; a result replaces it."""
    return RemovableHandle.add(on_buffer, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(module, name, submodule)` whenever a submodule is registered; a result replaces it."""
    return RemovableHandle.add(on_module, hook)


def registered(hooks: OrderedDict, owner: Any, name: str, value: Any) -> Any:
    """Runs the registration hooks on `value` and returns it or its replacement."""
    for hook in hooks.values():
        given = hook(owner, name, value)
        if given is not None:
            value = given
    return value
