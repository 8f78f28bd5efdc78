"""`FullyShardedDataParallel`: a wrapper around a module whose parameters are divided among the ranks.

Source: Zhao et al., 2023, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass, replace
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.variable import Variable
from tensorgrad.distributed import collectives
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    MixedPrecision,
    OptimStateKeyType,
    ShardingStrategy,
)
from tensorgrad.distributed.fsdp.api import FullOptimStateDictConfig as FullOptimStateDictConfig
from tensorgrad.distributed.fsdp.api import FullStateDictConfig as FullStateDictConfig
from tensorgrad.distributed.fsdp.api import LocalOptimStateDictConfig as LocalOptimStateDictConfig
from tensorgrad.distributed.fsdp.api import LocalStateDictConfig as LocalStateDictConfig
from tensorgrad.distributed.fsdp.api import OptimStateDictConfig as OptimStateDictConfig
from tensorgrad.distributed.fsdp.api import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig
from tensorgrad.distributed.fsdp.api import ShardedStateDictConfig as ShardedStateDictConfig
from tensorgrad.distributed.fsdp.api import StateDictConfig as StateDictConfig
from tensorgrad.distributed.fsdp.api import StateDictSettings as StateDictSettings
from tensorgrad.distributed.fsdp.api import StateDictType as StateDictType
from tensorgrad.distributed.fsdp.around_forward import State, after_forward, before_forward
from tensorgrad.distributed.fsdp.auto_wrap import auto_wrap
from tensorgrad.distributed.fsdp.flat_group import FlatGroup, FlatParameter
from tensorgrad.distributed.fsdp.managed import device_for, ignored, materialize, move, own_parameters
from tensorgrad.distributed.fsdp.model_states import PREFIX, WRAPPED, clean
from tensorgrad.distributed.fsdp.policies import MixedPrecisionPolicy
from tensorgrad.distributed.fsdp.sharding_groups import HYBRID, ranks_for
from tensorgrad.distributed.fsdp.unit import units_of
from tensorgrad.distributed.fsdp.with_optimizer_states import WithOptimizerStates
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.utils import _sync_params_and_buffers
from tensorgrad.nn.container import ModuleDict, ModuleList

__all__ = ["FlatParameter", "FullyShardedDataParallel", "OptimStateKeyType"]

_BUCKET = 250 * 1024 * 1024  # bytes that travel in one message at the start
_KEEP_AFTER_FORWARD = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy.NO_SHARD)


class FullyShardedDataParallel(WithOptimizerStates):
    """A module whose parameters, gradients and optimizer state are divided among the ranks.

    The parameters that belong to one wrapper lie behind each other in one vector, of which each rank keeps an equal
    part. They are gathered while the module runs, and again when backward needs them; then gradients are averaged, and
    each rank keeps its part. Make the optimizer afterwards. All ranks must start with equal parameters, or
    with `sync_module_states`.

    Args:
        module: the module.
        process_group: the ranks; all of them if None. With a hybrid strategy a pair: the ranks to divide among, and the
            replicas.
        sharding_strategy: what is divided; a `ShardingStrategy`, `FULL_SHARD` if None.
        cpu_offload: `CPUOffload(True)` keeps parts, gradients and the optimizer's state in main memory.
        auto_wrap_policy: which modules inside are wrapped by themselves; see `torch.distributed.fsdp.wrap`.
        backward_prefetch: accepted; backward gathers parameters when it needs them.
        mixed_precision: dtypes, a `MixedPrecision`.
        ignored_modules: modules inside that are left as they are.
        param_init_fn: gives a module on the meta device memory and values, instead of its `reset_parameters`.
        device_id: the device; that of the parameters if None.
        sync_module_states: whether rank 0 sends its parameters and buffers to the others first.
        forward_prefetch, limit_all_gathers: accepted; forward gathers parameters when it needs them.
        use_orig_params: whether the module's own parameters stay, each with this rank's part of it. Otherwise the
            vectors are the only parameters.
        ignored_states: modules, or parameters, that are left as they are.
        device_mesh: the ranks, in place of `process_group`; with a hybrid strategy of two dimensions.

    Raises:
        ValueError: arguments do not fit, or the parameters of one wrapper have not one dtype, or, without
            `use_orig_params`, some of them are frozen.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = FullyShardedDataParallel(torch.nn.Linear(2, 3), sharding_strategy=ShardingStrategy.NO_SHARD)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    [('_fsdp_wrapped_module._flat_param', (9,))]
    >>> list(model.state_dict())
    ['weight', 'bias']
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Any,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Any] | None = None,
        param_init_fn: Callable[[Any], Any] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        if isinstance(module, ModuleList | ModuleDict):
            warnings.warn(
                f"FSDP will not all-gather parameters for containers that do not implement forward: {module}",
                stacklevel=2,
            )
        cls = FullyShardedDataParallel
        left, left_params = ignored(module, ignored_modules, ignored_states, cls)
        self._ignored_modules, self._ignored_params = left, left_params
        mine = [p for p in module.parameters() if p not in left_params and not hasattr(p, "_fsdp_flattened")]
        self.compute_device = device_for(device_id, mine)
        ranks = ranks_for(sharding_strategy, process_group, device_mesh, auto_wrap_policy, self.compute_device.type)
        if auto_wrap_policy is not None:
            hybrid = sharding_strategy in HYBRID and device_mesh is None
            options = {
                "process_group": (ranks.process_group, ranks.replicas) if hybrid else process_group,
                "sharding_strategy": sharding_strategy, "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch, "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn, "device_id": device_id, "sync_module_states": sync_module_states,
                "forward_prefetch": forward_prefetch, "limit_all_gathers": limit_all_gathers,
                "use_orig_params": use_orig_params, "ignored_states": left_params, "device_mesh": device_mesh,
            }  # fmt: skip
            auto_wrap(module, auto_wrap_policy, left, left_params, options, cls)
        self.sharding_strategy, self.process_group = ranks.strategy, ranks.process_group
        self.rank, self.world_size = ranks.process_group.rank(), ranks.process_group.size()
        self.mixed_precision, self.cpu_offload = mixed_precision or MixedPrecision(), cpu_offload or CPUOffload()
        self.backward_prefetch, self.forward_prefetch = backward_prefetch, forward_prefetch
        self.limit_all_gathers, self._use_orig_params, self._device_mesh = (
            limit_all_gathers, use_orig_params, device_mesh
        )  # fmt: skip
        materialize(module, param_init_fn, self.compute_device, left, cls)
        if device_id is not None:
            move(module, self.compute_device, left, left_params, cls)
        found = own_parameters(module, left_params, cls)
        if sync_module_states:
            states = [buffer.detach() for inner in module.modules() if inner not in left
                      for buffer in inner.buffers(recurse=False)]  # fmt: skip
            states += [parameter.detach() for _, parameter, _ in found]
            for group in (ranks.replicas if sharding_strategy in HYBRID else None, ranks.process_group):
                if group is not None:
                    _sync_params_and_buffers(group, states, _BUCKET, 0)
        self._mesh, self._fsdp = ranks.mesh, self._made(module, found, ranks)
        self._fsdp_wrapped_module = module
        self._is_root = None
        self._running = False
        self._dtypes_of_buffers = {}
        self._init_states()

    def _made(self, module: Any, found: list[tuple[str, Any, list]], ranks: Any) -> State:
        precision = self.mixed_precision
        policy = MixedPrecisionPolicy(
            precision.param_dtype, precision.reduce_dtype, None, precision.cast_forward_inputs and bool(found)
        )
        home = torch.device("cpu") if self.cpu_offload.offload_params else self.compute_device
        group = FlatGroup(
            module, found, ranks.shards, ranks.replicas, self.compute_device, home, policy, self._use_orig_params,
            precision.keep_low_precision_grads,
        )  # fmt: skip
        return State(group, policy, None)

    # --- the wrapped module ---

    @property
    def module(self) -> Any:
        """The wrapped module, without the wrapper of `checkpoint_wrapper` if it has one."""
        inner = self._fsdp_wrapped_module
        return inner._modules.get("_checkpoint_wrapped_module", inner)

    @property
    def _has_params(self) -> bool:
        return bool(self._group.parameters)

    @property
    def _flat_param(self) -> FlatParameter | None:
        return self._group.flat

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == WRAPPED:
                raise
            return getattr(super().__getattr__(WRAPPED), name)

    def __getitem__(self, key: Any) -> Any:
        return self._fsdp_wrapped_module[key]

    def check_is_root(self) -> bool:
        """Returns whether this wrapper is not inside another one."""
        self._find_root()
        return bool(self._is_root)

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """Returns the wrappers in a model.

        Args:
            module: the model.
            root_only: whether only those that are not inside another one.
        """
        found = units_of(module)
        return [inner for inner in found if not root_only or inner.check_is_root()]

    def _find_root(self) -> None:
        """Called before a wrapper is used: the first that is used contains the others, if there are others."""
        if self._is_root is not None:
            return
        self._is_root = True
        for unit in self.fsdp_modules(self):
            if unit is not self:
                if unit._is_root:
                    raise AssertionError(
                        "Non-root FSDP instance's `_is_root` should not have been set yet or should have been set to "
                        "`False`"
                    )
                unit._is_root = False
            unit._cast_buffers()
        precision = self.mixed_precision
        both = precision.cast_forward_inputs or precision.cast_root_forward_inputs
        self._fsdp.policy = replace(self._fsdp.policy, cast_forward_inputs=both)

    def _cast_buffers(self) -> None:
        dtype = self.mixed_precision.buffer_dtype
        if dtype is None:
            return
        inside = [(name, module) for name, module in self._fsdp_wrapped_module.named_modules()]
        taken = {inner for unit in self.fsdp_modules(self._fsdp_wrapped_module) for inner in unit.modules()}
        for path, module in inside:
            if module in taken or module in self._ignored_modules:
                continue
            for name, buffer in list(module.named_buffers(recurse=False)):
                if buffer.is_floating_point():
                    self._dtypes_of_buffers[clean(f"{path}.{name}" if path else name)] = buffer.dtype
                    module._buffers[name] = buffer.to(dtype)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Yields the parameters with their names; within `summon_full_params`, those of the model without wrappers."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(PREFIX, "") if self._group.exposed else name, parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Yields the buffers with their names; within `summon_full_params`, those of the model without wrappers."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(PREFIX, "") if self._group.exposed else name, buffer

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """Calls a function with every module, while parameters are whole. All ranks must call it.

        Args:
            fn: the function of a module.
        """
        with self._group.whole_parameters(True, True, False, False):
            return super().apply(fn)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        with self._group.only_the_vector():
            return super()._apply(fn, recurse)

    # --- training ---

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own result."""
        self._find_root()
        root, state = bool(self._is_root), self._fsdp
        units = self.fsdp_modules(self) if root else []
        for unit in units:  # what an earlier pass has left may be out of date
            unit._group.release()
        output = None
        args, kwargs = before_forward(state, args, kwargs)
        self._running = True
        try:
            output = self._fsdp_wrapped_module(*args, **kwargs)
        finally:
            self._running = False
            kept = root or self.sharding_strategy in _KEEP_AFTER_FORWARD
            state.reshard = not (kept and torch.is_grad_enabled())
            output = after_forward(state, output)
        if torch.is_grad_enabled():
            if root:
                _release_after_backward(output, [unit._group for unit in units])
                if self.sharding_strategy not in _KEEP_AFTER_FORWARD:
                    self._group.hide()
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda grad: self._group.gather_again())
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context gradients are only accumulated, as a whole; the next backward pass outside averages them all.

        Raises: RuntimeError if this wrapper is inside another one.
        """
        if not self.check_is_root():
            raise RuntimeError(
                "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module."
            )
        groups = [unit._group for unit in self.fsdp_modules(self)]
        before = [group.sync for group in groups]
        for group in groups:
            group.sync = False
        try:
            yield
        finally:
            for group, sync in zip(groups, before):
                group.sync = sync

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scales the gradients so that their norm, over all ranks, is at most `max_norm`. All ranks must call it.

        Args:
            max_norm: the largest norm.
            norm_type: the power; `inf` for the largest element.

        Returns:
            The norm before.

        Raises:
            RuntimeError: this wrapper is inside another one.
        """
        if not self.check_is_root():
            raise RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        groups = [unit._group for unit in self.fsdp_modules(self)]
        if all(group.group is None for group in groups):
            return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        divided = {id(p) for group in groups if group.group is not None for p in _parameters_of(group)}
        grads = [(id(p) in divided, p.grad) for p in self.parameters() if p.grad is not None]
        power = float(norm_type)
        with torch.no_grad():
            total = self._norm([grad for apart, grad in grads if apart], power)
            rest = self._norm([grad for apart, grad in grads if not apart], power)
            if math.isinf(power):
                total = torch.maximum(total, rest)
                collectives.all_reduce(total, ReduceOp.MAX, self.process_group)
            else:
                total = total**power
                collectives.all_reduce(total, group=self.process_group)
                total = (total + rest**power) ** (1 / power)
            if self.cpu_offload.offload_params:
                total = total.cpu()
            factor = torch.clamp(float(max_norm) / (total + 1e-6), max=1.0)
            for _, grad in grads:
                grad.mul_(factor.to(grad.device, grad.dtype))
        if not grads:
            warnings.warn(
                f"Called FSDP.clip_grad_norm_() on rank {self.rank} with no gradients -- returning the total norm in "
                f"the default dtype {total.dtype}",
                stacklevel=2,
            )
            return total
        dtype = grads[0][1].dtype
        for _, grad in grads:
            dtype = torch.promote_types(dtype, grad.dtype)
        return total.to(dtype)

    def _norm(self, grads: list[Any], power: float) -> Any:
        """The norm of gradients as one vector, in float32 or more."""
        if not grads:
            return torch.zeros((), device=self.compute_device)
        norms = [torch.linalg.vector_norm(grad.detach(), power, dtype=torch.float32) for grad in grads]
        return torch.linalg.vector_norm(torch.stack(norms), power).to(self.compute_device)

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Makes a function combine the gradients, in place of the mean.

        Args:
            state: what the function receives first.
            hook: called as `hook(state, gradient)` with the gradient of all parameters of a wrapper as a vector, which
                it changes in place; or, where parameters are divided, as `hook(state, gradient, part)` with the part of
                this rank, which it fills.

        Raises:
            AssertionError: this wrapper is inside another one, the strategy is hybrid, or there is a hook already.
            ValueError: the hook cannot be called.
        """
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        if not callable(hook):
            raise ValueError(f"The communication hook must be callable but got {hook}")
        for unit in self.fsdp_modules(self):
            if unit.sharding_strategy in HYBRID:
                raise AssertionError(
                    f"Communication hook is not supported for hybrid strategies: {unit.sharding_strategy}"
                )
            if unit._group.comm_hook is not None:
                raise AssertionError("A communication hook is already registered")
            unit._group.comm_hook = (hook, state)

    # --- whole parameters ---

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Any,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """In this context, the model has its parameters as a whole. All ranks must enter it.

        Args:
            module: the model.
            recurse: whether also those of wrappers inside.
            writeback: whether what is written into them stays: of each parameter, each rank keeps its part.
            rank0_only: whether only rank 0 has them; then nothing can be written.
            offload_to_cpu: whether they are in main memory.
            with_grads: whether they have their gradients; needs `use_orig_params`.

        Raises:
            NotImplementedError: the arguments do not go together.
            AssertionError: in forward, or in such a context.
        """
        units = FullyShardedDataParallel.fsdp_modules(module) if recurse else [module]
        with ExitStack() as stack:
            for unit in units:
                if isinstance(unit, FullyShardedDataParallel):
                    unit._check_summoned(writeback, rank0_only, offload_to_cpu, with_grads)
                    shown = not rank0_only or unit.rank == 0
                    stack.enter_context(unit._group.whole_parameters(shown, writeback, offload_to_cpu, with_grads))
            yield

    def _check_summoned(self, writeback: bool, rank0_only: bool, offload_to_cpu: bool, with_grads: bool) -> None:
        if with_grads and (offload_to_cpu or not self._use_orig_params):
            raise NotImplementedError(
                f"with_grads={with_grads}, use_orig_params={self._use_orig_params}, offload_to_cpu={offload_to_cpu} is "
                "not supported yet"
            )
        if offload_to_cpu and self._has_params and self._group.group is None:
            raise NotImplementedError("offload_to_cpu=True and NO_SHARD is not supported yet")
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported yet")
        if offload_to_cpu and not rank0_only:
            warnings.warn(
                "offload_to_cpu=True and rank0_only=False may result in the unsharded parameters being redundantly "
                "copied to CPU memory for GPUs sharing the same CPU memory, which risks CPU OOM. We recommend using "
                "offload_to_cpu=True with rank0_only=True.",
                stacklevel=4,
            )
        if self._running:
            raise AssertionError("Cannot manually unshard parameters during forward/backward")
        if self._group.exposed:
            raise AssertionError("Cannot manually unshard parameters when already unsharding parameters")
        self._find_root()


def _parameters_of(group: FlatGroup) -> list[Any]:
    """What optimizers have of a group."""
    if group.keeps:
        return [p.parameter for p in group.parameters]
    return [group.flat] if group.parameters else []


def _release_after_backward(output: Any, groups: list[FlatGroup]) -> None:
    """Drops what is gathered at the end of the backward pass of an output, also where no gradient arrives."""
    queued: list[bool] = []

    def release() -> None:
        queued.clear()
        for group in groups:
            if not group.queued:
                group.release()

    def begin(grad: Any) -> None:
        if not queued:
            queued.append(True)
            Variable._execution_engine.queue_callback(release)

    for tensor in _tensors(output):
        if tensor.requires_grad:
            tensor.register_hook(begin)


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in a result: in nested lists, tuples, dictionaries and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple | set):
        inner = value
    elif is_dataclass(value) and not isinstance(value, type):
        inner = vars(value).values()
    for item in inner:
        yield from _tensors(item)
