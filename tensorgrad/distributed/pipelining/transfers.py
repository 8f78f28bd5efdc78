"""What travels between stages: activations to the next one, gradients to the one before.

Activations are preceded by a short message that describes them, so microbatches may differ in size and no pass is
needed to find shapes out. A gradient has the shape of its activation and needs no description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.collectives.point_to_point import P2POp, batch_isend_irecv, irecv, isend
from tensorgrad.distributed.group import get_global_rank, or_default
from tensorgrad.distributed.pipelining.metadata import Layout, decode, encode
from tensorgrad.distributed.work import Work

__all__ = ["Transfers"]

FIRST = 64  # numbers in the first message of a description; longer descriptions have a second message


class Transfers:
    """The messages of one rank's stages during one step. Sending never waits, so no order of receiving can block it.

    Args:
        stages: this rank's stages, by their index.
        n_microbatches: how many there are.
    """

    def __init__(self, stages: dict[int, Any], n_microbatches: int) -> None:
        self.stages, self.n_microbatches = stages, n_microbatches
        self.works: list[Work] = []  # what is still being sent

    def send_activations(self, stage: Any, microbatch: int, outputs: tuple[Any, ...]) -> None:
        """Gives the outputs of a stage to the next one."""
        if stage.is_last:
            return
        following = self.stages.get(stage.stage_index + 1)
        if following is not None:
            following.accept_activations(microbatch, [t.detach() for t in outputs], [t.requires_grad for t in outputs])
            return
        layouts = encode([Layout.of(tensor) for tensor in outputs])
        numbers = [0, self.n_microbatches, int(stage.has_backward), *layouts]
        numbers[0] = len(numbers)
        parts = [numbers[:FIRST] + [0] * (FIRST - len(numbers)), numbers[FIRST:]]
        header = [torch.tensor(part, dtype=torch.int64, device="cpu") for part in parts if part]
        self._send(stage, stage.stage_index + 1, microbatch, 0, [*header, *(t.detach() for t in outputs)])

    def receive_activations(self, stage: Any, microbatch: int) -> None:
        """Waits for the inputs of a stage.

        Raises:
            RuntimeError: the other rank runs another kind of step.
        """
        if stage.is_first or stage.stage_index - 1 in self.stages:
            return
        before = stage.stage_index - 1
        header = torch.empty(FIRST, dtype=torch.int64, device="cpu")
        self._receive(stage, before, microbatch, 0, [header])
        numbers = header.tolist()
        if numbers[0] > FIRST:
            rest = torch.empty(numbers[0] - FIRST, dtype=torch.int64, device="cpu")
            self._receive(stage, before, microbatch, 0, [rest])
            numbers += rest.tolist()
        self._check_same_step(stage, before, numbers[1], bool(numbers[2]))
        layouts = decode(numbers[3:])
        tensors = [torch.empty(shape, dtype=dtype, device=stage.device) for shape, dtype, _ in layouts]
        self._receive(stage, before, microbatch, 0, tensors)
        stage.accept_activations(microbatch, tensors, [layout.requires_grad for layout in layouts])

    def send_gradients(self, stage: Any, microbatch: int) -> None:
        """Gives the gradients of a stage's inputs to the stage that made these."""
        if stage.is_first:
            return
        gradients = stage.bwd_cache.pop(microbatch)
        before = self.stages.get(stage.stage_index - 1)
        if before is not None:
            before.accept_gradients(microbatch, gradients)
            return
        self._send(stage, stage.stage_index - 1, microbatch, 1, [g for g in gradients if g is not None])

    def receive_gradients(self, stage: Any, microbatch: int) -> None:
        """Waits for the gradients of a stage's outputs: of those that require one."""
        if stage.is_last or stage.stage_index + 1 in self.stages:
            return
        gradients = [
            torch.empty(out.shape, dtype=out.dtype, device=out.device) if out.requires_grad else None
            for out in stage.fwd_cache[microbatch][0]
        ]
        wanted = [gradient for gradient in gradients if gradient is not None]
        self._receive(stage, stage.stage_index + 1, microbatch, 1, wanted)
        stage.accept_gradients(microbatch, tuple(gradients))

    def finish(self) -> None:
        """Waits until everything has been sent."""
        for work in self.works:
            work.wait()
        self.works = []

    def _check_same_step(self, stage: Any, other: int, n_microbatches: int, has_backward: bool) -> None:
        rank = get_global_rank(or_default(stage.group), stage.stage_index_to_group_rank[other])
        if n_microbatches != self.n_microbatches:
            raise RuntimeError(
                f"stage {stage.stage_index} has n_microbatches={self.n_microbatches}, but stage {other} on rank {rank} "
                f"has n_microbatches={n_microbatches}"
            )
        if has_backward != stage.has_backward:
            said = "runs a backward pass" if has_backward else "runs no backward pass"
            raise RuntimeError(
                f"stage {other} on rank {rank} {said}, but stage {stage.stage_index} expects the opposite: give "
                "loss_fn to the schedule on every rank, and call step on all ranks, or eval on all"
            )

    def _operations(
        self, op: Any, stage: Any, other: int, microbatch: int, backward: int, tensors: Sequence[Any]
    ) -> list[Work]:
        """Begins to send or receive. Each pair of stages, microbatch and direction has a tag of its own."""
        sender_or_receiver = max(stage.stage_index, other)
        tag = 2 * (microbatch * stage.num_stages + sender_or_receiver) + backward
        peer = stage.stage_index_to_group_rank[other]
        group = or_default(stage.group)
        return batch_isend_irecv([P2POp(op, t, group=group, tag=tag, group_peer=peer) for t in tensors])

    def _send(self, *arguments: Any) -> None:
        self.works = [work for work in self.works if not (work.is_completed() and work.wait())]
        self.works += self._operations(isend, *arguments)

    def _receive(self, *arguments: Any) -> None:
        for work in self._operations(irecv, *arguments):
            work.wait()
