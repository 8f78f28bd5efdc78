"""`DTensor`: a tensor that is distributed over the ranks of a mesh.

A `DTensor` is this rank's piece, an ordinary tensor with its place in the graph, and a layout (`_spec`) that says how
the pieces make up the whole. What users see, such as its shape, is that of the whole. What looks at the array, such as
an optimizer's step or the engine that accumulates gradients, sees the piece, so it needs to know nothing of layouts.

Gradients are placed like their tensors, see `transitions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor._redistribute import CastGradient, Regraded, redistribute_local_tensor
from tensorgrad.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, text_of
from tensorgrad.nn.parameter import Parameter
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor, share

__all__ = ["DTensor", "as_dtensor", "default_mesh", "normalized"]


def normalized(placements: Sequence[Placement] | None, mesh: DeviceMesh, ndim: int) -> tuple[Placement, ...]:
    """Placements with dimensions counted from the front; `Replicate` everywhere if None.

    Raises: RuntimeError if there is not one for each dimension of the mesh.
    """
    found = tuple(placements) if placements is not None else (Replicate(),) * mesh.ndim
    if len(found) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(found)}, and "
            f"device_mesh.ndim: {mesh.ndim}."
        )
    result = []
    for placement in found:
        if not isinstance(placement, Placement):
            raise RuntimeError(f"placements must be Shard, Replicate or Partial, got {placement!r}")
        if type(placement) is Shard and placement.dim < 0:
            placement = Shard(placement.dim + ndim)
        if isinstance(placement, Shard) and not 0 <= placement.dim < ndim:
            raise ValueError(f"{placement!r} does not fit a tensor of {ndim} dimensions")
        result.append(placement)
    return tuple(result)


def default_mesh(mesh: DeviceMesh | None) -> DeviceMesh:
    """The mesh, or one of all ranks if None: of GPUs where there are any, as in PyTorch."""
    if mesh is not None:
        return mesh
    from tensorgrad import cuda
    from tensorgrad.distributed.device_mesh import init_device_mesh
    from tensorgrad.distributed.process_group import get_world_size, init_process_group, is_initialized

    if not is_initialized():
        init_process_group()
    return init_device_mesh("cuda" if cuda.is_available() else "cpu", (get_world_size(),))


def as_dtensor(local: Tensor, spec: DTensorSpec, cls: type[DTensor] | None = None) -> DTensor:
    """The `DTensor` whose piece on this rank is `local`, at the same place in the graph."""
    made: Any = local.as_subclass(cls or DTensor)
    made._spec = spec
    return made


def _local(tensor: DTensor) -> Tensor:
    """This rank's piece, at the same place in the graph."""
    return Tensor.as_subclass(tensor, Tensor)


class DTensor(Tensor, only_ops=True):
    """A tensor distributed over the ranks of a mesh.

    It is made by `distribute_tensor`, `DTensor.from_local`, by functions such as `zeros` of this module, and by ops on
    other distributed tensors. Ops run on each rank's piece where that is possible; otherwise the pieces are moved
    first.
    All ranks must call the same ops in the same order.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import DTensor, Shard
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> x = DTensor.from_local(torch.ones(2, 3), mesh, [Shard(0)])
    >>> (x * 2).sum().full_tensor()
    tensor(12.)
    >>> dist.destroy_process_group()
    """

    _spec: DTensorSpec
    _run_op: ClassVar[Callable[..., Any]]  # ops/run.py sets it
    _implicit_replication: ClassVar[bool] = False  # whether ordinary tensors among distributed ones are replicated

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return DTensor._run_op(func, args, kwargs or {})

    # --- layout ---

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How the tensor lies along each dimension of the mesh."""
        return self._spec.placements

    @property
    def _local_tensor(self) -> Tensor:
        """This rank's piece, in the same memory, outside the graph."""
        return share(self._array, self._storage)

    @property
    def shape(self) -> Size:
        """The sizes of the whole."""
        return Size(self._spec.shape)

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape of the whole, or the size of a dimension."""
        if dim is None:
            return Size(self._spec.shape)
        super().size(dim)
        return self._spec.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Returns the strides that the whole would have: row by row, if the piece is stored so."""
        order = sorted(range(self.ndim), key=lambda d: (-Tensor.stride(self)[d], d))
        strides, step = [0] * self.ndim, 1
        for d in reversed(order):
            strides[d], step = step, step * max(self._spec.shape[d], 1)
        return tuple(strides) if dim is None else strides[dim]

    def numel(self) -> int:
        """Returns the number of elements of the whole."""
        return math.prod(self._spec.shape)

    nelement = numel

    @property
    def nbytes(self) -> int:
        """The size of the whole in bytes."""
        return self.numel() * self.element_size()

    def __len__(self) -> int:
        Tensor.__len__(self)
        return self._spec.shape[0]

    # --- values ---

    def item(self) -> Any:
        """Returns the only element as a Python number. All ranks must call it."""
        return self.full_tensor().item()

    def tolist(self) -> Any:
        """Returns the values of the whole as nested lists. All ranks must call it."""
        return self.full_tensor().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Returns the values of the whole as a NumPy array. All ranks must call it."""
        whole = self.full_tensor()
        return whole.numpy(force=force)

    def _scalar(self) -> Any:
        return self.full_tensor()._scalar()

    def __bool__(self) -> bool:
        return bool(self.full_tensor())

    def __index__(self) -> int:
        return self.full_tensor().__index__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a distributed tensor cannot be pickled: save x.full_tensor() or x.to_local(), or use "
            "torch.distributed.checkpoint"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"DTensor(local_tensor={_local(self)}, device_mesh={self.device_mesh}, placements={self.placements})"

    def norm(  # type: ignore[override]
        self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        """Returns the norm. That of all elements is computed on the pieces. All ranks must call it."""
        power = 2.0 if p in ("fro", None) else p
        if dim is not None or keepdim or dtype is not None or not isinstance(power, int | float) or power <= 0:
            return Tensor.norm(self, p, dim, keepdim, dtype)
        tensor = self.redistribute(placements=gradient_spec(self._spec).placements)
        largest = math.isinf(power)
        local = _local(tensor)
        mine = local.abs().max() if largest and local.numel() else local.abs().pow(power).sum() if not largest else None
        mine = local.new_zeros(()) if mine is None else mine
        terms = Partial("max" if largest else "sum")
        placements = [terms if placement.is_shard() else placement for placement in tensor.placements]
        total = as_dtensor(mine, DTensorSpec(self.device_mesh, tuple(placements), ())).redistribute(
            placements=[Replicate()] * self.device_mesh.ndim
        )
        return total if largest else total.pow(1 / power)

    # --- moving ---

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """Returns the distributed tensor that consists of every rank's local tensor. Gradients flow back.

        Args:
            local_tensor: this rank's piece.
            device_mesh: the mesh; one of all ranks if None.
            placements: one for each dimension of the mesh; `Replicate` if None.
            run_check: where it is replicated, take the tensor of the first rank.
            shape: the shape of the whole; by default all pieces have the same shape.
            stride: accepted; strides follow from the piece.
            grad_placements: placements that the gradient of `local_tensor` shall have; those of the tensor if None.

        Raises:
            RuntimeError: `local_tensor` is a `DTensor`.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.tensor import DTensor, Replicate
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> DTensor.from_local(torch.ones(2), dist.init_device_mesh("cpu", (1,)), [Replicate()]).placements
        (Replicate(),)
        >>> dist.destroy_process_group()
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError("the local_tensor argument only accepts torch.Tensor but got DTensor value.")
        mesh = default_mesh(device_mesh)
        found = normalized(placements, mesh, local_tensor.ndim)
        if shape is None:
            whole = list(local_tensor.shape)
            for i, placement in enumerate(found):
                if isinstance(placement, Shard):
                    whole[placement.dim] *= mesh.size(i)
            shape = whole
        spec = DTensorSpec(mesh, found, tuple(shape))
        if run_check:
            from tensorgrad.distributed.nn.functional import broadcast

            for i, placement in enumerate(found):
                if placement.is_replicate():
                    group = mesh.get_group(i)
                    local_tensor = broadcast(local_tensor, group.ranks[0], group)
        if grad_placements is not None:
            local_tensor = Regraded.apply(
                local_tensor, spec, normalized(grad_placements, mesh, local_tensor.ndim), True
            )
        return as_dtensor(local_tensor.view_as(local_tensor), spec)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns this rank's piece. Gradients flow back.

        Args:
            grad_placements: how the gradient of the piece lies on the mesh; like the tensor if None.
        """
        if not torch.is_grad_enabled():
            return self._local_tensor
        local = _local(self)
        if grad_placements is None:
            return local
        return Regraded.apply(local, self._spec, normalized(grad_placements, self.device_mesh, self.ndim), False)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns the whole tensor. All ranks must call it. Gradients flow back.

        Args:
            grad_placements: how the gradient of the result lies on the mesh; replicated if None.
        """
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """Returns the same tensor under other placements. Gradients flow back.

        Args:
            device_mesh: the tensor's own mesh, or None.
            placements: the new placements, one for each dimension of the mesh.
            async_op: accepted; the result is complete.
            forward_dtype: cast to this dtype first.
            backward_dtype: cast the gradient to this dtype.

        Raises:
            RuntimeError: there are no placements, or they are partial where the tensor is not.
            NotImplementedError: another mesh.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        target = normalized(placements, self.device_mesh, self.ndim)
        for mine, new in zip(self.placements, target):
            if isinstance(new, Partial) and mine != new:
                raise RuntimeError(
                    "Can not redistribute to Partial, redistributing to Partial is for internal use only!"
                )
        tensor: Any = self if forward_dtype is None else self.to(forward_dtype)
        local = _local(tensor)
        if backward_dtype is not None:
            local = CastGradient.apply(local, backward_dtype)
        spec = self._spec.with_placements(target)
        if target == self.placements:
            return as_dtensor(local.view_as(local), spec)
        return as_dtensor(redistribute_local_tensor(local, self._spec, target), spec)

    # --- autograd ---

    @property
    def grad(self) -> Any:
        """The gradient accumulated by `backward`, distributed like the tensor."""
        found = Tensor.grad.fget(self)  # type: ignore[attr-defined]
        return None if found is None else as_dtensor(found, gradient_spec(self._spec))

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, DTensor):
                raise TypeError(f"the gradient of a DTensor must be a DTensor, got {type(value).__name__}")
            if tuple(value.shape) != tuple(self.shape):
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                    f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
            if value.dtype is not self.dtype:
                raise RuntimeError(
                    f"assigned grad has data of a different type: expected {self.dtype}, got {value.dtype}"
                )
            placements = gradient_spec(self._spec).placements
            value = _local(value if value.placements == placements else value.redistribute(placements=placements))
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def backward(self, gradient: Any = None, *args: Any, **options: Any) -> None:
        """Computes the gradients of the tensors from which this one was computed. All ranks must call it."""
        if gradient is None and self.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if isinstance(gradient, DTensor):
            gradient = _local(gradient.redistribute(placements=gradient_spec(self._spec).placements))
        _local(self).backward(gradient, *args, **options)

    @property
    def data(self) -> Any:
        """The same memory outside autograd."""
        local = _local(self)
        return as_dtensor(local.data, self._spec)

    @data.setter
    def data(self, value: Tensor) -> None:
        if isinstance(value, DTensor):
            self._spec = value._spec
        Tensor.data.fset(self, value)  # type: ignore[attr-defined]

    def detach(self) -> DTensor:
        """Returns the same memory outside the graph."""
        return as_dtensor(self._local_tensor, self._spec)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Sets in place whether gradients flow to this tensor; returns it."""
        Tensor.requires_grad_(self, requires_grad)
        return self

    # --- parameters, copies ---

    def _as_parameter(self, requires_grad: bool) -> DTensorParameter:
        """What `nn.Parameter(dtensor)` makes."""
        made: Any = as_dtensor(self._local_tensor, self._spec, DTensorParameter)
        return made.requires_grad_(True) if requires_grad else made

    def _like_this(self, local: Tensor) -> DTensor:
        """What `torch.zeros_like` and the like made for this rank's piece, as a distributed tensor."""
        return as_dtensor(local, gradient_spec(self._spec))

    def _to_store(self, target: Tensor, result: Tensor) -> Tensor:
        """What an op computed, as it is to be written over `target`; either of them is distributed."""
        if not isinstance(target, DTensor) or not isinstance(result, DTensor):
            raise mixed("an in-place op", [t._spec for t in (target, result) if isinstance(t, DTensor)])
        if tuple(result.shape) != tuple(target.shape):
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
            )
        if result.placements != target.placements:
            if any(p.is_partial() and not p.is_partial("sum") and p != q
                   for p, q in zip(target.placements, result.placements)):  # fmt: skip
                raise NotImplementedError(f"an in-place op on a tensor placed {text_of(target.placements)}")
            local = redistribute_local_tensor(_local(result), result._spec, target.placements)
            result = as_dtensor(local, target._spec)
        return result

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Calls `hook` with the gradient, a distributed tensor; what it returns replaces it, unless that is None."""
        spec = gradient_spec(self._spec)

        def on_piece(grad: Tensor) -> Any:
            result = hook(as_dtensor(grad, spec))
            return _local(result.redistribute(placements=spec.placements)) if isinstance(result, DTensor) else result

        return Tensor.register_hook(self, on_piece)

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        made = as_dtensor(self._local_tensor.clone(), self._spec, type(self))
        made.requires_grad_(self.requires_grad)
        made._grad = None if self._grad is None else self._grad.clone()
        memo[id(self)] = made
        return made


class DTensorParameter(DTensor, Parameter):  # type: ignore[misc]  # DTensor's `__torch_function__` is the one asked
    """A parameter that is distributed: what `nn.Parameter(dtensor)` makes."""

    _results_keep_class = True

    def __new__(cls, data: DTensor, requires_grad: bool = True) -> Any:
        """Makes a parameter of a distributed tensor."""
        return data._as_parameter(requires_grad)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + DTensor.__repr__(self)


def gradient_spec(spec: DTensorSpec) -> DTensorSpec:
    """How the gradient of a tensor is distributed: like the tensor, and whole where that is partial."""
    return spec.with_placements([Replicate() if p.is_partial() else p for p in spec.placements])


def mixed(name: str, layouts: Sequence[DTensorSpec]) -> RuntimeError:
    """The error for an op on ordinary and distributed tensors together."""
    return RuntimeError(
        f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
        f"distributed operators! (The distributed ones are placed {', '.join(text_of(s.placements) for s in layouts)}.)"
    )
