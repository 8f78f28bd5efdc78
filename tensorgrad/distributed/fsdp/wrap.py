"""`torch.distributed.fsdp.wrap`: rules that say which modules of a model are to be divided by themselves.

A rule is a function `rule(module, recurse, nonwrapped_numel)`: with `recurse` it says whether to look at the module's
children, and else whether to wrap the module, of which so many elements are in no wrapped child. `ModuleWrapPolicy` and
`CustomPolicy` are objects, which name all modules at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.nn.attention import MultiheadAttention
from tensorgrad.nn.container import ModuleDict, ModuleList

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Wraps every module.

    >>> from tensorgrad.distributed.fsdp.wrap import always_wrap_policy
    >>> always_wrap_policy(torch.nn.ReLU(), False, 0)
    True
    """
    return True


def lambda_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable) -> bool:
    """Wraps the modules for which a function returns True.

    Args:
        module, recurse, nonwrapped_numel: see the module `wrap`.
        lambda_fn: called with a module.

    >>> from tensorgrad.distributed.fsdp.wrap import lambda_auto_wrap_policy
    >>> lambda_auto_wrap_policy(torch.nn.ReLU(), False, 0, lambda module: len(list(module.parameters())) > 0)
    False
    """
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type]
) -> bool:
    """Wraps the modules of some classes.

    Args:
        module, recurse, nonwrapped_numel: see the module `wrap`.
        transformer_layer_cls: the classes.

    >>> from tensorgrad.distributed.fsdp.wrap import transformer_auto_wrap_policy
    >>> transformer_auto_wrap_policy(torch.nn.Linear(2, 2), False, 6, {torch.nn.Linear})
    True
    """
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Any,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Iterable[type] | None = None,
    exclude_wrap_modules: Iterable[type] | None = None,
) -> bool:
    """Wraps modules that have at least so many elements outside of wrapped children.

    Args:
        module, recurse, nonwrapped_numel: see the module `wrap`.
        min_num_params: how many.
        force_leaf_modules: classes whose children are not looked at; `MultiheadAttention` if None.
        exclude_wrap_modules: classes that are not wrapped; `ModuleList` and `ModuleDict` if None.

    >>> from tensorgrad.distributed.fsdp.wrap import size_based_auto_wrap_policy
    >>> [size_based_auto_wrap_policy(torch.nn.Linear(2, 2), False, 6, limit) for limit in (6, 7)]
    [True, False]
    """
    if force_leaf_modules is None:
        force_leaf_modules = size_based_auto_wrap_policy.FORCE_LEAF_MODULES  # type: ignore[attr-defined]
    if exclude_wrap_modules is None:
        exclude_wrap_modules = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES  # type: ignore[attr-defined]
    stop = force_leaf_modules if recurse else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(stop))


size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]


class _Policy(ABC):
    """Names the modules to wrap."""

    @abstractmethod
    def _chosen(self, module: Any, root_kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments for a module; None if it is not to be wrapped."""

    def _run_policy(
        self, root_module: Any, ignored_modules: Collection[Any], root_kwargs: dict[str, Any]
    ) -> dict[Any, dict[str, Any]]:
        """Returns the modules to wrap, with the arguments for each.

        Args:
            root_module: the model.
            ignored_modules: those that are left as they are.
            root_kwargs: the arguments for the model.
        """
        modules = [module for module in root_module.modules() if module not in ignored_modules]
        arguments = [self._chosen(module, root_kwargs) for module in modules]
        return {module: found for module, found in zip(modules, arguments) if found is not None}


class ModuleWrapPolicy(_Policy):
    """Wraps the modules of some classes. It may also be called as a rule.

    Args:
        module_classes: the classes.

    >>> from tensorgrad.distributed.fsdp.wrap import ModuleWrapPolicy
    >>> policy = ModuleWrapPolicy({torch.nn.Linear})
    >>> policy(torch.nn.Linear(2, 2), recurse=False), policy(torch.nn.ReLU(), recurse=False)
    (True, False)
    """

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = set(module_classes)

    def _chosen(self, module: Any, root_kwargs: dict[str, Any]) -> dict[str, Any] | None:
        return dict(root_kwargs) if isinstance(module, tuple(self._module_classes)) else None

    def __call__(self, module: Any, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        """The rule."""
        return transformer_auto_wrap_policy(module, recurse, -1, self._module_classes)

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy(_Policy):
    """Wraps the modules for which a function returns True, or a dictionary of arguments.

    Args:
        lambda_fn: called with a module; the arguments that it returns replace those for the model.

    Raises:
        ValueError: it returns something else.

    >>> from tensorgrad.distributed.fsdp.wrap import CustomPolicy
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> policy = CustomPolicy(lambda module: isinstance(module, torch.nn.Linear))
    >>> list(policy._run_policy(model, set(), {}))
    [Linear(in_features=2, out_features=2, bias=True)]
    """

    def __init__(self, lambda_fn: Callable[[Any], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def _chosen(self, module: Any, root_kwargs: dict[str, Any]) -> dict[str, Any] | None:
        found = self._lambda_fn(module)
        if not isinstance(found, dict | bool):
            raise ValueError(
                "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned "
                f"{found}"
            )
        return {**root_kwargs, **(found if isinstance(found, dict) else {})} if found else None


# --- applying them ----------------------------------------------------------------------------------------------------


def _recursive_wrap(
    module: Any,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Any],
    ignored_modules: Collection[Any],
    ignored_params: Collection[Any],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Any, int]:
    """Wraps the modules inside a module that a rule chooses, from the inside out.

    Returns:
        The module, itself wrapped if the rule says so, and how many elements are in wrapped modules.
    """
    elements = sum(p.numel() for p in module.parameters() if not any(p is other for other in ignored_params))
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=elements):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if child not in ignored_modules:
            made, more = _recursive_wrap(
                child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
            )
            setattr(module, name, made)
            wrapped += more
    if only_wrap_children or not auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=elements - wrapped):
        return module, wrapped
    return _wrapped(module, wrapper_cls, kwargs), elements


def _wrapped(module: Any, wrapper_cls: Callable[..., Any], options: dict[str, Any]) -> Any:
    return wrapper_cls(module, **{**options, **getattr(module, "_wrap_overrides", {})})


_ENABLED: list[tuple[Callable[..., Any], dict[str, Any]]] = []


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """In this context, `wrap` wraps modules.

    Args:
        wrapper_cls: a class or function, such as `fully_shard`, that is called with a module.
        wrapper_kwargs: further arguments for it.

    Raises:
        NotImplementedError: inside of such a context.

    >>> from tensorgrad.distributed.fsdp.wrap import enable_wrap, wrap
    >>> with enable_wrap(wrapper_cls=torch.nn.Sequential):
    ...     wrap(torch.nn.ReLU())
    Sequential(
      (0): ReLU()
    )
    """
    if _ENABLED:
        raise NotImplementedError(
            "You are already within an autowrap context and we currently do not supported nested autowrap."
        )
    _ENABLED.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _ENABLED.pop()


def wrap(module: Any, **wrap_overrides: Any) -> Any:
    """Wraps a module within `enable_wrap`, and returns it unchanged elsewhere.

    Args:
        module: the module.
        wrap_overrides: arguments that replace those of `enable_wrap`.

    >>> from tensorgrad.distributed.fsdp.wrap import wrap
    >>> wrap(torch.nn.ReLU())
    ReLU()
    """
    if not _ENABLED:
        return module
    wrapper_cls, options = _ENABLED[0]
    return _wrapped(module, wrapper_cls, {**options, **wrap_overrides})
