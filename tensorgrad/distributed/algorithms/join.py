"""`Join`: training goes on although some processes have run out of inputs."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.group import or_default

__all__ = ["Join", "JoinHook", "Joinable"]

MANY = 1000  # iterations without inputs after which a process warns


class JoinHook:
    """What a process does once it has joined, that is, run out of inputs. To be subclassed.

    >>> from tensorgrad.distributed.algorithms.join import JoinHook
    >>> JoinHook().main_hook()
    """

    def main_hook(self) -> None:
        """Takes part in the communication of one iteration of those that still have inputs. Called for each."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once when all have joined.

        Args:
            is_last_joiner: whether this process is one of those that joined last.
        """


class _JoinConfig(NamedTuple):
    """What `Join` tells an object that takes part."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """The settings outside of `Join`."""
        return _JoinConfig()


class Joinable(ABC):
    """An object that communicates in each iteration, and can take part in `Join`. To be subclassed.

    Its constructor must call this one, and each iteration `Join.notify_join_context(self)` before it communicates.

    >>> from tensorgrad.distributed.algorithms.join import Joinable
    >>> sorted(Joinable.__abstractmethods__)
    ['__init__', 'join_device', 'join_hook', 'join_process_group']
    """

    @abstractmethod
    def __init__(self) -> None:
        self._join_config = _JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook of this object. The arguments are the additional ones of `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the tensors that `Join` sends."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group in which `Join` communicates."""


class Join:
    """In this context processes may have different numbers of inputs.

    A process that reaches the end of the context takes part in the others' communication, by the hooks of the given
    objects, until all have reached it.

    Args:
        joinables: the objects that communicate: models, optimizers.
        enable: whether to do anything at all.
        throw_on_early_termination: whether all processes get an error as soon as one has no more inputs.
        kwargs: arguments for the `join_hook` of each object.

    Raises:
        ValueError: there is no object, or they have different groups.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.join import Join
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> with Join([model]):
    ...     for x in torch.ones(3, 4, 2):
    ...         model(x).sum().backward()
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable = joinables, enable
        self._throw_on_early_termination = throw_on_early_termination
        self._join_hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._process_group, self._device = joinables[0].join_process_group, joinables[0].join_device
        for joinable in joinables:
            if joinable.join_process_group != self._process_group:
                raise ValueError("Using join context manager with multiple process groups")
        self._rank = or_default(self._process_group).rank()
        for position, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, position == 0)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Takes part in the others' iterations until all processes are here. Raises: RuntimeError if that is wanted."""
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig()

    def _shadow(self) -> None:
        iterations = 0
        while self._sum(0):
            if self._throw_on_early_termination:
                self._sum(1)
                raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")
            if iterations == MANY:
                warnings.warn(
                    f"Detected uneven input skew of greater than {MANY}. This means that rank {self._rank} has at "
                    f"least {MANY} fewer inputs than other currently-active ranks. This level of skew could lead to "
                    "performance degradation during training.",
                    stacklevel=3,
                )
            for hook in self._join_hooks:
                hook.main_hook()
            iterations += 1
        for hook in self._join_hooks:
            hook.post_hook(iterations == 0)

    def _sum(self, value: int) -> float:
        total = torch.full((1,), float(value), device=self._device)
        collectives.all_reduce(total, group=self._process_group)
        return total.item()

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tells the processes that have joined that this one has not.

        Args:
            joinable: the object that is going to communicate.

        Returns:
            For the first object of a `Join`, the work of an all-reduce whose result is the number of processes that
            have not joined; else None.

        Raises:
            RuntimeError: a process has joined, and `throw_on_early_termination` is set.
        """
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = collectives.all_reduce(torch.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            exhausted = torch.zeros(1, device=device)
            collectives.all_reduce(exhausted, group=group)
            if exhausted.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
