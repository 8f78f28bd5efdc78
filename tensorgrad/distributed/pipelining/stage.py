"""`PipelineStage`: one part of a model, which runs on one rank."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.distributed.pipelining.metadata import Layout, as_tensors, check_alike, outputs_of
from tensorgrad.distributed.process_group import get_rank, get_world_size
from tensorgrad.nn.parallel.distributed import DistributedDataParallel, _find_tensors
from tensorgrad.utils._pytree import tree_leaves, tree_map

__all__ = ["PipelineStage"]


def _described(value: Any) -> Any:
    """Arguments for a message: tensors as their shapes and dtypes."""

    def one(leaf: Any) -> str:
        if isinstance(leaf, torch.Tensor):
            return f"Tensor({leaf.shape}, grad={leaf.requires_grad}, dtype={leaf.dtype})"
        return str(leaf)

    return tree_map(one, value)


class PipelineStage:
    """A part of a model as a stage of a pipeline: it gets its inputs from the stage before, and passes its outputs on.

    Every rank of the group makes a stage (for some schedules several), and a schedule with it. All inputs and outputs
    between stages are tensors. Shapes need not be given, and microbatches may have different ones.

    Args:
        submodule: this stage's part of the model.
        stage_index: its place, from 0. Stage `i` belongs on rank `i % group_size`.
        num_stages: how many stages there are on all ranks.
        device: where inputs are put when they arrive. The submodule is not moved.
        input_args, output_args: examples of inputs and outputs; those of the first microbatch are compared with them.
        output_grads, input_grads: accepted; gradients have the shapes of their tensors.
        group: the process group; the default one if None.
        dw_builder, get_mesh: not supported.

    Raises:
        ValueError: there is no stage of this index.
        RuntimeError: the group has more ranks than there are stages.
        PipeliningMetadataError: an example is not a tensor.
        NotImplementedError: an option is not supported.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import PipelineStage
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> stage = PipelineStage(torch.nn.Linear(2, 1), stage_index=0, num_stages=1, device="cpu")
    >>> stage.is_first, stage.is_last
    (True, True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None or get_mesh is not None:
            name = "dw_builder" if dw_builder is not None else "get_mesh"
            raise NotImplementedError(f"PipelineStage: {name} is not supported; leave it out")
        self.group_rank, self.group_size = get_rank(group), get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        for grads in (output_grads, input_grads):
            if grads is not None:
                as_tensors(grads, allow_none=True)
        self.expected: dict[str, tuple[Layout, ...]] = {}
        for what, examples in (("input", input_args), ("output", output_args)):
            if examples is not None:
                self.expected[what] = tuple(Layout.of(tensor) for tensor in as_tensors(examples))
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = torch.device(device), group
        self.stage_index_to_group_rank = {i: i % self.group_size for i in range(num_stages)}
        self.has_backward = False
        self.received: dict[int, tuple[Any, ...]] = {}  # microbatch -> inputs that have arrived
        self.received_grads: dict[int, tuple[Any, ...]] = {}  # microbatch -> gradients of the outputs
        self.fwd_cache: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}  # outputs and inputs, until backward
        self.bwd_cache: dict[int, tuple[Any, ...]] = {}  # gradients of the inputs, until they are sent
        self.output_chunks: list[Any] = []

    @property
    def is_first(self) -> bool:
        """Whether no stage comes before this one."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether no stage comes after this one."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self) -> None:
        """Drops what is left of the last step."""
        for kept in (self.received, self.received_grads, self.fwd_cache, self.bwd_cache, self.output_chunks):
            kept.clear()

    def accept_activations(self, microbatch: int, tensors: list[Any], requires_grad: list[bool]) -> None:
        """Takes the inputs of a microbatch: new leaves of the graph, where this stage's backward pass ends."""
        wanted = self.has_backward and torch.is_grad_enabled()
        self.received[microbatch] = tuple(t.requires_grad_(r and wanted) for t, r in zip(tensors, requires_grad))

    def accept_gradients(self, microbatch: int, gradients: tuple[Any, ...]) -> None:
        """Takes the gradients of a microbatch's outputs; None for those that require none."""
        self.received_grads[microbatch] = gradients

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """Runs the forward pass of a microbatch.

        Args:
            fwd_chunk_id: the number of the microbatch.
            args: the inputs of the first stage; the others use what they have received.
            kwargs: more arguments of this stage.
            save_forward_output: whether the last stage keeps its output in `output_chunks`.

        Raises:
            RuntimeError: the submodule raised an error.
        """
        inputs = as_tensors(args) if self.is_first else self.received.pop(fwd_chunk_id)
        kwargs = kwargs or {}
        self._check_expected("input", fwd_chunk_id, inputs)
        try:
            with self._no_reduction():
                output = self.submod(*inputs, **kwargs)
        except DistBackendError:
            raise
        except Exception as error:
            raise RuntimeError(
                f"[Stage {self.stage_index}] failed to run forward:\nargs: {_described(inputs)}\n"
                f"kwargs: {_described(kwargs)}"
            ) from error
        outputs = outputs_of(output)
        if not self.is_last:
            outputs = as_tensors(outputs)
        elif save_forward_output:
            self.output_chunks.append(output)
        if "output" in self.expected:
            self._check_expected("output", fwd_chunk_id, as_tensors(outputs))
        if self.has_backward:
            self.fwd_cache[fwd_chunk_id] = outputs, inputs
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, loss: Any = None, last_backward: bool = False) -> None:
        """Runs the backward pass of a microbatch, and keeps the gradients of its inputs in `bwd_cache`.

        Args:
            bwd_chunk_id: the number of the microbatch.
            loss: what the last stage starts from; the others start from the gradients that they have received.
            last_backward: whether this is the last microbatch, after which gradients are averaged over replicas.
        """
        if not self.has_backward:
            return
        outputs, inputs = self.fwd_cache.pop(bwd_chunk_id)
        gradients: tuple[Any, ...]
        roots, gradients = ((loss,), (None,)) if self.is_last else (outputs, self.received_grads.pop(bwd_chunk_id))
        pairs = [(root, gradient) for root, gradient in zip(roots, gradients) if root.requires_grad]
        if hasattr(self.submod, "set_requires_gradient_sync"):  # fully_shard
            self.submod.set_requires_gradient_sync(last_backward)
        if last_backward and isinstance(self.submod, DistributedDataParallel):
            self.submod.reducer.prepare_for_backward(_find_tensors([root for root, _ in pairs]))
        with nullcontext() if last_backward else self._no_reduction():
            if pairs:
                torch.autograd.backward([root for root, _ in pairs], [gradient for _, gradient in pairs])
        if not self.is_first:
            self.bwd_cache[bwd_chunk_id] = tuple(self._taken_gradient(x) for x in inputs)
        if self.is_last and not self.is_first:  # the output is only to be returned: its graph is not needed any more
            for tensor in tree_leaves(outputs):
                if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                    tensor.detach_()

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Ends a step: scales the gradients."""
        self.scale_grads(grad_scale_factor)

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divides the gradients of the parameters: by the number of microbatches, if the loss is a mean."""
        if grad_scale_factor != 1:
            for parameter in self.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale_factor)

    def _taken_gradient(self, x: Any) -> Any:
        """The gradient of an input, zeros if the outputs do not depend on it; None if it requires none."""
        if not x.requires_grad:
            return None
        gradient, x.grad = x.grad, None
        return torch.zeros_like(x, requires_grad=False) if gradient is None else gradient

    def _no_reduction(self) -> AbstractContextManager[Any]:
        """Gradients of single microbatches are not averaged over replicas."""
        return self.submod.no_sync() if isinstance(self.submod, DistributedDataParallel) else nullcontext()

    def _check_expected(self, what: str, microbatch: int, tensors: tuple[Any, ...]) -> None:
        if microbatch == 0 and what in self.expected:
            check_alike(f"Stage {self.stage_index} {what}", self.expected[what], tensors)
