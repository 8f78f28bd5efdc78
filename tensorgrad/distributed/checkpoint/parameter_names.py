"""The names that parameters have in the model that was wrapped: without what the wrappers add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.fsdp import FSDPModule
from tensorgrad.distributed.fsdp.model_states import WRAPPED

__all__ = ["named_states", "names_of_parameters", "plain_name", "submodule_prefixes"]


def plain_name(model: Any, key: str) -> str:
    """A key of the model's state dict without the parts that wrappers add.

    >>> from tensorgrad.distributed.checkpoint.parameter_names import plain_name
    >>> plain_name(torch.nn.Sequential(torch.nn.Linear(1, 1)), "0.weight")
    '0.weight'
    """
    here, kept = model, []
    for part in key.split("."):
        in_ddp = isinstance(here, torch.nn.parallel.DistributedDataParallel) and part == "module"
        if not in_ddp and part != WRAPPED:
            kept.append(part)
        here = getattr(here, part, None)
    return ".".join(kept)


def named_states(model: Any) -> dict[str, str]:
    """The plain name of each key of the model's state dict."""
    return {key: plain_name(model, key) for key in model.state_dict()}


def names_of_parameters(model: Any) -> dict[int, list[str]]:
    """All plain names of each parameter, by its `id`; several if it is shared.

    Parameters that `fully_shard` gathered are divided again, as optimizers have the pieces.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    found: dict[int, list[str]] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(plain_name(model, key))
    return found


def submodule_prefixes(model: Any, submodules: Iterable[Any]) -> list[str]:
    """What the plain names of the submodules' states begin with."""
    wanted = set(submodules)
    return [plain_name(model, name) + "." for name, module in model.named_modules() if module in wanted]
