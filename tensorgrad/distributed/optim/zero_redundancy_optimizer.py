"""`ZeroRedundancyOptimizer`: every process has the optimizer's state of a part of the parameters only."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.algorithms.join import Join, Joinable, JoinHook
from tensorgrad.distributed.collectives.broadcasts import broadcast
from tensorgrad.distributed.collectives.objects import recv_object_list, send_object_list
from tensorgrad.distributed.group import ProcessGroup, get_global_rank, or_default
from tensorgrad.distributed.optim.partition import partition
from tensorgrad.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _ZeROJoinHook(JoinHook):
    """Takes part in the steps of those that still have inputs."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        """Updates this process's part of the parameters."""
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Divides an optimizer's state among the processes of a group (ZeRO, stage 1).

    Every process updates a part of the parameters, then sends it to the others. The results are those of the optimizer
    in one process, provided that all processes have the same gradients, as after `DistributedDataParallel`.

    Args:
        params: tensors, or dictionaries with the key `"params"`, one for each group; the same in all processes.
        optimizer_class: the class of the optimizer, which is made for this process's part.
        process_group: the group; the default one if None.
        parameters_as_bucket_view: whether the parameters of each process lie in one piece of memory, so that they
            travel in one message.
        overlap_with_ddp: not included; must be False.
        defaults: further arguments of `optimizer_class`.

    Raises:
        TypeError: `params` is a tensor, or holds something else than tensors or dictionaries.
        ValueError: there are no parameters, or they have different dtypes.

    Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = ZeroRedundancyOptimizer([w], torch.optim.SGD, lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 1.5000], requires_grad=True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not included; leave it out, and call step() after "
                "backward()"
            )
        params = _checked(params)
        self.process_group = or_default(process_group)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self.global_rank = get_global_rank(self.process_group, self.rank)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self.initialized = False  # while the base class adds the first groups
        Optimizer.__init__(self, params, defaults)
        Joinable.__init__(self)
        self._divide()
        self.optim: Optimizer = optimizer_class(self._parts[self.rank], **defaults)
        _copy_settings(self.optim.param_groups, self.param_groups)
        self._all_state_dicts: list[dict[str, Any]] = []  # by rank, where they were last collected
        self.initialized = True

    def _divide(self) -> None:
        """Decides who updates what."""
        self._parts = partition(self.param_groups, self.world_size)
        self._owner = {id(p): rank for rank, part in enumerate(self._parts) for group in part for p in group["params"]}
        self._build_buckets()

    def _build_buckets(self) -> None:
        """Moves the parameters of each process into one piece of memory, if that is wanted."""
        self._trainable = [p.requires_grad for p in self._params()]
        self._buckets: list[list[Any]] = []
        if self.parameters_as_bucket_view:
            self._buckets = [_in_one_piece(_of(part)) for part in self._parts]

    def _params(self) -> list[Any]:
        return _of(self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with their own settings. All processes must call it.

        Args:
            param_group: `{"params": [...], "lr": 0.01}`.

        Raises:
            ValueError: a parameter is in another group, or the dtypes differ.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> optimizer = ZeroRedundancyOptimizer([torch.ones(1, requires_grad=True)], torch.optim.SGD, lr=0.5)
        >>> optimizer.add_param_group({"params": [torch.ones(2, requires_grad=True)], "lr": 0.1})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.5, 0.1]
        >>> dist.destroy_process_group()
        """
        super().add_param_group(param_group)
        if not self.initialized:
            return
        try:
            _check_one_type(self._params())
        except ValueError:
            self.param_groups.pop()
            raise
        self._divide()
        self.optim.add_param_group(self._parts[self.rank][-1])
        _copy_settings(self.optim.param_groups, self.param_groups)

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Updates this process's part of the parameters, and exchanges the parts. All processes must call it.

        Args:
            closure: computes the loss and its gradients, and returns the loss.
            kwargs: further arguments of the optimizer's `step`.

        Returns:
            What the optimizer's `step` returns.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> ZeroRedundancyOptimizer([torch.ones(1, requires_grad=True)], torch.optim.SGD, lr=0.5).step()
        >>> dist.destroy_process_group()
        """
        Join.notify_join_context(self)
        if self._trainable != [p.requires_grad for p in self._params()]:
            self._build_buckets()
        _copy_settings(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        _copy_settings(self.optim.param_groups, self.param_groups)
        self._exchange()
        return loss

    def _exchange(self) -> None:
        """Sends this process's part of the parameters to the others, and receives theirs."""
        works = []
        for rank, part in enumerate(self._parts):
            tensors = self._buckets[rank] if self._buckets else [p.detach() for p in _of(part)]
            works += [broadcast(t, group=self.process_group, group_src=rank, async_op=True) for t in tensors]
        for work in works:
            assert work is not None
            work.wait()

    # --- different numbers of inputs ---

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns what `Join` calls in a process that has no more inputs: it updates its part in each step.

        Args:
            kwargs: not used.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.algorithms.join import Join
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.5)
        >>> with Join([model, optimizer]):
        ...     for x in torch.ones(3, 4, 2):
        ...         model(x).sum().backward()
        ...         optimizer.step()
        >>> dist.destroy_process_group()
        """
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        """The device of the first parameter."""
        return self._params()[0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group among whose processes the state is divided."""
        return self.process_group

    # --- saving ---

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects the state of all processes on one, where `state_dict` then works. All processes must call it.

        Args:
            to: the rank within the group that receives the state.

        Raises:
            ValueError: the group has no such rank.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> w = torch.ones(1, requires_grad=True)
        >>> optimizer = ZeroRedundancyOptimizer([w], torch.optim.SGD, lr=0.5, momentum=0.9)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=0)
        >>> optimizer.state_dict()["state"]
        {0: {'momentum_buffer': tensor([1.])}}
        >>> dist.destroy_process_group()
        """
        if not 0 <= to < self.world_size:
            raise ValueError(f"Group rank {to} is not part of group {self.process_group}")
        _copy_settings(self.param_groups, self.optim.param_groups)
        self._all_state_dicts = []
        if self.rank != to:
            send_object_list([_on_cpu(self.optim.state_dict())], group=self.process_group, group_dst=to)
            return
        for rank in range(self.world_size):
            received: list[Any] = [_copied(_on_cpu(self.optim.state_dict()))] if rank == to else [None]
            if rank != to:
                recv_object_list(received, group=self.process_group, group_src=rank)
            self._all_state_dicts += received

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of all processes, as it was last collected here, in the form of the optimizer's own.

        Raises:
            RuntimeError: `consolidate_state_dict` has not collected it in this process.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> optimizer = ZeroRedundancyOptimizer([torch.ones(1, requires_grad=True)], torch.optim.SGD, lr=0.5)
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["param_groups"][0]["lr"]
        0.5
        >>> dist.destroy_process_group()
        """
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. "
                f"Please call `consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save "
                "the global state."
            )
        result = super().state_dict()
        number = {id(p): index for index, p in enumerate(self._params())}
        state: dict[Any, Any] = {}
        for part, local in zip(self._parts, self._all_state_dicts):
            for group, local_group in zip(part, local["param_groups"]):
                for param, index in zip(group["params"], local_group["params"]):
                    if index in local["state"]:
                        state[number[id(param)]] = local["state"][index]
        result["state"] = dict(sorted(state.items()))
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads this process's part of a state, also of the optimizer in one process or in another number of them.

        Args:
            state_dict: what `state_dict` returned; it is not changed.

        Raises:
            ValueError: the number of groups, or of parameters in a group, differs.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> w = torch.ones(1, requires_grad=True)
        >>> optimizer = ZeroRedundancyOptimizer([w], torch.optim.SGD, lr=0.5)
        >>> optimizer.load_state_dict(torch.optim.SGD([w], lr=0.1).state_dict())
        >>> optimizer.param_groups[0]["lr"]
        0.1
        >>> dist.destroy_process_group()
        """
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        own = {index for index, p in zip(saved, self._params()) if self._owner[id(p)] == self.rank}
        state = {index: value for index, value in state_dict["state"].items() if index in own}
        super().load_state_dict({**state_dict, "state": state})  # which compares the numbers of groups and parameters
        self.optim.state.clear()
        self.optim.state.update((param, _copied(state)) for param, state in self.state.items())
        self.state.clear()
        _copy_settings(self.param_groups, self.optim.param_groups)
        self._all_state_dicts = []


def _of(groups: list[dict[str, Any]]) -> list[Any]:
    """All parameters of some groups."""
    return list(chain.from_iterable(group["params"] for group in groups))


def _checked(params: Any) -> list[Any]:
    """The parameters or groups as a list. Raises: TypeError, ValueError."""
    if isinstance(params, torch.Tensor):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {torch.typename(params)}")
    try:
        items = list(params)
    except TypeError as error:
        raise TypeError(
            f"`params` argument should be an iterable of Tensors or dicts, but got {torch.typename(params)}"
        ) from error
    if not items:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if all(isinstance(item, dict) for item in items):
        for index, group in enumerate(items):
            if "params" not in group:
                raise ValueError(
                    "Each parameter group passed-in via `params` must have a 'params' key mapping to the parameters in "
                    "the group"
                )
            given = group["params"]
            items[index] = {**group, "params": [given] if isinstance(given, torch.Tensor) else list(given)}
        _check_one_type(_of(items))
    elif all(isinstance(item, torch.Tensor) for item in items):
        _check_one_type(items)
    else:
        raise TypeError("`params` argument should be an iterable of Tensors or dicts")
    return items


def _check_one_type(params: list[Any]) -> None:
    """Raises: ValueError if there are several dtypes, or layouts other than strided."""
    for param in params:
        first, name = torch.typename(params[0]), torch.typename(param)
        if param.is_sparse:
            raise ValueError(
                f"ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got {name}"
            )
        if name != first:
            raise ValueError(
                "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both "
                f"{first} and {name}"
            )


def _in_one_piece(params: list[Any]) -> list[Any]:
    """Moves parameters into shared memory, by device, and returns these memories. Frozen ones get their own."""
    result = []
    for device in dict.fromkeys(p.device for p in params):
        for param in params:
            if param.device == device and not param.requires_grad:
                param.data = param.data.clone()
        here = [p for p in params if p.device == device and p.requires_grad]
        if here:
            bucket = torch.cat([p.detach().reshape(-1) for p in here])
            for param, values in zip(here, bucket.split([p.numel() for p in here])):
                param.data = values.view(param.shape)
            result.append(bucket)
    return result


def _copy_settings(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
    """Copies everything but the parameters from some groups to others."""
    for given, group in zip(source, target, strict=True):
        group.update((name, value) for name, value in given.items() if name != "params")


def _on_cpu(value: Any) -> Any:
    """The same with all tensors in main memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in (list, tuple) else value


def _copied(value: Any) -> Any:
    """The same with a copy of every tensor, which later steps do not change."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
