"""The parameters of one `FullyShardedDataParallel`: behind each other in one vector, of which each rank keeps a part.

As for `fully_shard` (param_group.py) they are gathered while the module runs; only how the parts make up the
parameters is different: a rank's part is an equal share of the vector, wherever that cuts parameters in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.fsdp.param_group import ParamGroup
from tensorgrad.distributed.fsdp.policies import MixedPrecisionPolicy
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.tensor.dtensor import DTensor
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import share

__all__ = ["FLAT_PARAM", "FlatGroup", "FlatParameter", "Original"]

FLAT_PARAM = "_flat_param"  # its name in the wrapped module


class FlatParameter(Parameter, plain=True):
    """This rank's part of the parameters of a `FullyShardedDataParallel`, one behind the other, as one vector.

    Its `_fqns`, `_shapes` and `_numels` are the names, shapes and numbers of elements of the whole parameters.

    >>> from tensorgrad.distributed.fsdp import FlatParameter
    >>> isinstance(FlatParameter(torch.zeros(3)), torch.nn.Parameter)
    True
    """

    __slots__ = ()

    _fqns: tuple[str, ...]
    _shapes: tuple[Any, ...]
    _numels: tuple[int, ...]


class Original:
    """One of the parameters: where it is in the vector, and which modules have it.

    With `keeps`, the modules' own parameter stays, and has this rank's part between uses. Otherwise modules have a
    plain attribute, between uses without values, and only the vector is a parameter.
    """

    def __init__(self, name: str, parameter: Any, start: int, keeps: bool) -> None:
        self.name, self.parameter, self.start, self.keeps = name, parameter, start, keeps
        self.shape, self.numel = tuple(parameter.shape), parameter.numel()
        self.places: list[tuple[Any, str]] = []
        self.whole: Any = None
        self.without_values = None if keeps else torch.empty(self.shape, dtype=parameter.dtype, device="meta")

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted."""
        return self.parameter.requires_grad

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient of the whole has arrived."""
        return self.whole is not None and self.whole._grad is not None

    def make_whole(self, local: Any) -> Any:
        """The parameter that modules have while they run."""
        return Parameter(local, self.requires_grad)

    def show(self, parameter: Any) -> None:
        """Makes this what modules have."""
        for module, name in self.places:
            if self.keeps:
                module._parameters[name] = parameter
            else:
                object.__setattr__(module, name, parameter)

    def show_piece(self) -> None:
        """What modules have while the whole is not there."""
        self.show(self.parameter if self.keeps else self.without_values)

    def register(self, parameter: Any) -> None:
        """Makes this a parameter of the modules, for a while."""
        for module, name in self.places:
            module._parameters[name] = parameter
        if not self.keeps:
            self.show(parameter)

    def unregister(self) -> None:
        """Undoes `register`."""
        for module, name in self.places:
            if not self.keeps:
                del module._parameters[name]
        self.show_piece()

    def registered(self) -> Any:
        """What is registered: also if the program has replaced it."""
        module, name = self.places[0]
        return module._parameters[name]


class FlatGroup(ParamGroup):
    """All parameters of one `FullyShardedDataParallel`.

    Args:
        owner: the wrapped module.
        found: name, parameter and places of each.
        group: the ranks that have the parts; None if each rank has all of it.
        replicas: the ranks that have the same part, if there are any.
        device: where parameters are gathered.
        home: where the parts are.
        policy: dtypes.
        keeps: whether the modules' own parameters stay (`use_orig_params`).
        low_precision_grads: whether gradients keep the dtype in which they were averaged.
    """

    def __init__(
        self,
        owner: Any,
        found: list[tuple[str, Any, list]],
        group: Any,
        replicas: Any,
        device: Any,
        home: Any,
        policy: MixedPrecisionPolicy,
        keeps: bool,
        low_precision_grads: bool,
    ) -> None:
        self.owner, self.keeps, self.low_precision_grads = owner, keeps, low_precision_grads
        self.size: int = 1 if group is None else group.size()
        self.rank: int = 0 if group is None else group.rank()
        self.comm_hook: Any = None
        self.exposed = False  # whether the program has asked for whole parameters
        self.flat: Any = None
        dtype = _common_dtype([parameter for _, parameter, _ in found], keeps)
        # As in PyTorch, own parameters begin at multiples of 16 bytes, which decides what part of them a rank has.
        step = max(16 // (policy.param_dtype or dtype).itemsize, 1) if keeps and found else 1
        at, made = 0, []
        for name, parameter, places in found:
            at = -(-at // step) * step
            original = Original(name, parameter, at, keeps)
            original.places = places
            made.append(original)
            at += original.numel
        self.part = -(-at // self.size)  # the number of elements of a rank's part, with padding
        self.total = self.part * self.size if keeps else at
        super().__init__(made, group, replicas, device, policy)
        if made:
            self._divide(dtype, home)

    def _divide(self, dtype: Any, home: Any) -> None:
        local = torch.zeros(self.part, dtype=dtype, device=home)
        with torch.no_grad():
            for p in self.parameters:
                self.put(local, p, p.parameter)
        self.flat = FlatParameter(local, any(p.requires_grad for p in self.parameters))
        self.flat._fqns = tuple(p.name for p in self.parameters)
        self.flat._shapes = tuple(torch.Size(p.shape) for p in self.parameters)
        self.flat._numels = tuple(p.numel for p in self.parameters)
        self.flat._fsdp_flattened = True
        for p in self.parameters:
            if self.keeps:
                p.parameter._fsdp_flattened = True
                continue
            p.parameter = self.flat
            for module, name in p.places:
                del module._parameters[name]
            p.show_piece()
        if self.keeps:
            self.divide_originals()
        else:
            self.owner._parameters[FLAT_PARAM] = self.flat

    # --- parts ---

    def span(self, p: Original) -> tuple[int, int]:
        """From where to where this rank's part has elements of a parameter; from 0 to 0 if it has none."""
        first, last = self.rank * self.part, (self.rank + 1) * self.part
        low, high = max(p.start, first), min(p.start + p.numel, last)
        return (low - first, high - first) if low < high else (0, 0)

    def piece(self, p: Original, whole: Any) -> Any:
        """What of a whole parameter, or of what has its shape, is in this rank's part, as a vector."""
        first, last = self.span(p)
        shift = self.rank * self.part - p.start
        return whole.reshape(-1)[first + shift : last + shift] if first < last else whole.reshape(-1)[:0]

    def put(self, part: Any, p: Original, whole: Any) -> None:
        """Writes into a part what it has of a whole parameter."""
        first, last = self.span(p)
        if first < last:
            part[first:last].copy_(self.piece(p, whole))

    def divide_originals(self) -> None:
        """Gives the modules' own parameters their elements in this rank's part: in the same memory."""
        for p in self.parameters:
            p.parameter._array = self._own(p, self.flat._array)
            p.parameter._memory = self.flat._storage

    def _own(self, p: Original, array: Any) -> Any:
        first, last = self.span(p)
        own = array[first:last]
        return own.reshape(p.shape) if self.group is None else own

    def collect(self, part: Any) -> Any:
        """The whole vector, from the parts of all ranks. All of them must call it."""
        if self.group is None:
            return part
        whole = torch.empty(self.size * self.part, dtype=part.dtype, device=self.device)
        collectives.all_gather_single(whole, part.to(self.device), self.group)
        return whole

    def of(self, p: Original, whole: Any) -> Any:
        """A parameter in the whole vector, in the same memory."""
        return whole[p.start : p.start + p.numel].reshape(p.shape)

    # --- gathering ---

    def start(self) -> None:
        """Begins to gather, in the background."""
        if self.gathered or self.pending is not None or not self.parameters:
            return
        dtype = self.policy.param_dtype or self.flat.dtype
        mine = self.flat.detach().to(self.device, dtype)
        everyone, work = mine, None
        if self.group is not None:
            everyone = torch.empty(self.size * self.part, dtype=dtype, device=self.device)
            work = collectives.all_gather_single(everyone, mine, self.group, async_op=True)
        self.pending = [(work, self.parameters, everyone)]

    def _wholes(self, chosen: list[Any], everyone: Any) -> Iterator[Any]:
        for p in chosen:
            yield everyone[p.start : p.start + p.numel].reshape(p.shape)

    def hide(self) -> None:
        """Modules have their pieces again, though what is gathered stays for backward."""
        for p in self.parameters:
            p.show_piece()

    def gather_again(self) -> None:
        """Called when backward reaches the module: modules have their parameters, also those that run once more."""
        self.gather()
        for p in self.parameters:
            p.show(p.whole)

    # --- gradients ---

    def _reduce_gradients(self) -> None:
        if not any(p.has_gradient for p in self.parameters):
            return
        dtype = self.policy.reduce_dtype or self.policy.param_dtype or self.flat.dtype
        total = torch.zeros(self.size * self.part, dtype=dtype, device=self.device)
        for p in self.parameters:
            if p.has_gradient:
                total[p.start : p.start + p.numel].copy_(p.whole._grad.detach().reshape(-1))
                p.whole._grad = None
        mine = total if self.group is None else torch.empty(self.part, dtype=dtype, device=self.device)
        if self.comm_hook is not None:
            hook, state = self.comm_hook
            hook(state, total) if self.group is None else hook(state, total, mine)
        else:
            if self.group is not None:
                collectives.reduce_scatter_single(mine, total, ReduceOp.AVG, self.group)
            if self.replicas is not None:
                collectives.all_reduce(mine, ReduceOp.AVG, self.replicas)
        self._add_gradient(mine.to(self.flat.device, dtype if self.low_precision_grads else self.flat.dtype))

    def _add_gradient(self, part: Any) -> None:
        array, storage = part._array, part._storage
        if not self.keeps:
            self.flat._grad = part if self.flat._grad is None else self.flat._grad + part
            return
        for p in self.parameters:
            first, last = self.span(p)
            if p.requires_grad and first < last:
                grad = share(self._own(p, array), storage)
                p.parameter._grad = grad if p.parameter._grad is None else p.parameter._grad + grad

    # --- whole parameters for the program ---

    @contextmanager
    def whole_parameters(self, shown: bool, writeback: bool, on_cpu: bool, with_grads: bool) -> Iterator[None]:
        """In this context, modules have their parameters as a whole. All ranks must enter it.

        Args:
            shown: whether this rank's modules do.
            writeback: whether what the program writes into them stays: each rank keeps its own part of it.
            on_cpu: whether they are in main memory.
            with_grads: whether they have gradients, too.
        """
        if self.exposed:
            yield
            return
        self.exposed = True
        try:
            with self._whole(shown, writeback, on_cpu, with_grads) if self.parameters else nullcontext():
                yield
        finally:
            self.exposed = False

    @contextmanager
    def _whole(self, shown: bool, writeback: bool, on_cpu: bool, with_grads: bool) -> Iterator[None]:
        self.release()
        with torch.no_grad():
            whole = self.collect(self.flat.detach())
            grads = self._whole_grads() if with_grads else {}
        if not shown:
            yield
            return
        if on_cpu:
            whole = whole.cpu()
        self._expose(whole, grads)
        try:
            yield
        finally:
            self._conceal(writeback, grads if with_grads else None)

    def _whole_grads(self) -> dict[int, Any]:
        """The gradients of whole parameters, by their number; without those that no rank has."""
        flags = torch.tensor([float(p.parameter._grad is not None) for p in self.parameters], device=self.device)
        if self.group is not None:
            collectives.all_reduce(flags, ReduceOp.MAX, self.group)
        dtypes = [p.parameter._grad.dtype for p in self.parameters if p.parameter._grad is not None]
        part = torch.zeros(self.part, dtype=dtypes[0] if dtypes else self.flat.dtype, device=self.flat.device)
        for p in self.parameters:
            first, last = self.span(p)
            if p.parameter._grad is not None and first < last:
                part[first:last].copy_(p.parameter._grad.reshape(-1))
        whole = self.collect(part)
        return {i: self.of(p, whole) for i, p in enumerate(self.parameters) if flags[i].item()}

    def _expose(self, whole: Any, grads: dict[int, Any]) -> None:
        if not self.keeps:
            self.owner._parameters[FLAT_PARAM] = None
        for i, p in enumerate(self.parameters):
            view = self.of(p, whole)
            if self.keeps:
                p.parameter._array, p.parameter._memory = view._array, view._storage
                if grads:
                    p.parameter._grad = grads.get(i)
            p.register(p.parameter if self.keeps else Parameter(view, p.requires_grad))

    def _conceal(self, writeback: bool, grads: dict[int, Any] | None) -> None:
        with torch.no_grad():
            for p in self.parameters:
                found = p.registered()
                if writeback and found is not None and tuple(found.shape) == p.shape:
                    self.put(self.flat.detach(), p, found.detach())
                if grads is not None:
                    grad = p.parameter._grad
                    mine = None if grad is None or not self._has(p) else self.piece(p, grad).clone()
                    p.parameter._grad = mine if mine is None or self.group is not None else mine.reshape(p.shape)
                p.unregister()
        if self.keeps:
            self.divide_originals()
        else:
            self.owner._parameters[FLAT_PARAM] = self.flat

    def _has(self, p: Original) -> bool:
        first, last = self.span(p)
        return first < last

    # --- conversions of the module ---

    @contextmanager
    def only_the_vector(self) -> Iterator[None]:
        """In this context, the vector is the only parameter: what converts parameters converts it."""
        if not self.parameters or not self.keeps:
            yield
            return
        self.release()
        for p in self.parameters:
            p.show(None)
        self.owner._parameters[FLAT_PARAM] = self.flat
        try:
            yield
        finally:
            self.flat = self.owner._parameters.pop(FLAT_PARAM)
            for p in self.parameters:
                p.show(p.parameter)
                if p.parameter._grad is not None:
                    p.parameter._grad = p.parameter._grad.to(self.flat.device, self.flat.dtype)
            self.divide_originals()


def _common_dtype(parameters: list[Any], keeps: bool) -> Any:
    """The dtype of all of them.

    Raises: ValueError if they have not one, or one without gradients; or if some are frozen and not `keeps`.
        NotImplementedError if one is a `DTensor`.
    """
    dtype: Any = None
    for parameter in parameters:
        if isinstance(parameter, DTensor):
            raise NotImplementedError(
                "FullyShardedDataParallel: a parameter is a DTensor already; use fully_shard with tensor parallelism"
            )
        if dtype is None and not parameter.is_floating_point():
            raise ValueError("Cannot flatten integer dtype tensors")
        if dtype is not None and parameter.dtype != dtype:
            raise ValueError(f"Must flatten tensors with uniform dtype but got {dtype} and {parameter.dtype}")
        if not keeps and parameter.requires_grad != parameters[0].requires_grad:
            raise ValueError("Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`")
        dtype = parameter.dtype
    return dtype
