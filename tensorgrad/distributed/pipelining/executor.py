"""Runs the actions of one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tensorgrad.distributed.pipelining.metadata import outputs_of
from tensorgrad.distributed.pipelining.orders import FORWARD, FULL_BACKWARD, Action
from tensorgrad.distributed.pipelining.transfers import Transfers

__all__ = ["Batch", "execute"]


@dataclass
class Batch:
    """What one step works on: the parts of a batch, and what becomes of them.

    Args:
        args, kwargs: the arguments of each microbatch.
        loss: `loss(output, microbatch)`; None to compute none.
        save_outputs: whether the last stage keeps its outputs.
        grad_scale_factor: what gradients are divided by in the end.
    """

    args: list[Any]
    kwargs: list[Any]
    loss: Callable[[Any, int], Any] | None
    save_outputs: bool
    grad_scale_factor: int
    losses: dict[int, Any] = field(default_factory=dict)


def execute(actions: list[Action], stages: dict[int, Any], batch: Batch) -> None:
    """Runs a rank's actions one after the other; each waits for what it needs from other ranks.

    Any lists of actions that `timeline` accepts come to their end: a rank waits only to receive, and at the very end
    for what it has sent.

    Args:
        actions: what to do.
        stages: this rank's stages, by their index.
        batch: what to do it with.
    """
    transfers = Transfers(stages, len(batch.args))
    left = Counter(action.stage_index for action in actions if action.computation_type == FULL_BACKWARD)
    for stage_index, kind, microbatch in actions:
        stage = stages[stage_index]
        if kind == FORWARD:
            assert microbatch is not None
            _forward(stage, microbatch, batch, transfers)
        elif kind == FULL_BACKWARD:
            assert microbatch is not None
            left[stage_index] -= 1
            _backward(stage, microbatch, batch, transfers, left[stage_index] == 0)
        else:
            stage.perform_reduce_grad(batch.grad_scale_factor)
    transfers.finish()


def _forward(stage: Any, microbatch: int, batch: Batch, transfers: Transfers) -> None:
    transfers.receive_activations(stage, microbatch)
    output = stage.forward_one_chunk(microbatch, batch.args[microbatch], batch.kwargs[microbatch], batch.save_outputs)
    if not stage.is_last:
        transfers.send_activations(stage, microbatch, outputs_of(output))
    elif batch.loss is not None:
        batch.losses[microbatch] = batch.loss(output, microbatch)


def _backward(stage: Any, microbatch: int, batch: Batch, transfers: Transfers, last: bool) -> None:
    transfers.receive_gradients(stage, microbatch)
    stage.backward_one_chunk(microbatch, batch.losses.get(microbatch), last)
    if stage.is_last:
        batch.losses[microbatch] = batch.losses[microbatch].detach()  # its graph would keep the inputs alive
    transfers.send_gradients(stage, microbatch)
