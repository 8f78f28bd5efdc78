"""Settings of all datapipes in a graph: shuffling, seeds, shares."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from tensorgrad.utils.data.graph import DataPipe, DataPipeGraph, traverse_dps
from tensorgrad.utils.data.sampler import draw_seed

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph: DataPipeGraph) -> list[Any]:
    """Returns the datapipes in a graph, each once.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> from tensorgrad.utils.data.graph import traverse_dps
    >>> from tensorgrad.utils.data.graph_settings import get_all_graph_pipes
    >>> get_all_graph_pipes(traverse_dps(IterableWrapper([1, 2]).map(str)))
    [MapperIterDataPipe, IterableWrapperIterDataPipe]
    """
    found: dict[int, Any] = {}

    def collect(graph: DataPipeGraph) -> None:
        for number, (pipe, inner) in graph.items():
            if number not in found:
                found[number] = pipe
                collect(inner)

    collect(graph)
    return list(found.values())


def apply_sharding(
    datapipe: DataPipe, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT
) -> DataPipe:
    """Has each datapipe that can be shared out (`sharding_filter`) yield only the share of one reader.

    Raises:
        RuntimeError: If one is behind another, so that samples would be lost.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> from tensorgrad.utils.data.graph_settings import apply_sharding
    >>> list(apply_sharding(IterableWrapper(range(7)).sharding_filter().map(str), 3, 1))
    ['1', '4']
    """

    def apply(graph: DataPipeGraph, before: Any) -> None:
        for pipe, inner in graph.values():
            applied = before
            method = inspect.getattr_static(pipe, "apply_sharding", None)
            if method is not None:
                if before is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause data loss. Sharding "
                        f"already applied to {before} while trying to apply to {pipe}"
                    )
                known = inspect.signature(pipe.apply_sharding).parameters
                group = {"sharding_group": sharding_group} if "sharding_group" in known else {}
                pipe.apply_sharding(num_of_instances, instance_id, **group)
                applied = pipe
            apply(inner, applied)

    apply(traverse_dps(datapipe), None)
    return datapipe


def _having(datapipe: DataPipe, *names: str) -> list[Any]:
    pipes = get_all_graph_pipes(traverse_dps(datapipe))
    return [pipe for pipe in pipes if all(inspect.getattr_static(pipe, name, None) is not None for name in names)]


def apply_shuffle_settings(datapipe: DataPipe, shuffle: bool | None = None) -> DataPipe:
    """Switches the shuffling datapipes on or off; adds one at the end, with a warning, if there is none to switch on.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> from tensorgrad.utils.data.graph_settings import apply_shuffle_settings
    >>> list(apply_shuffle_settings(IterableWrapper(range(5)).shuffle(), False))
    [0, 1, 2, 3, 4]
    """
    if shuffle is None:
        return datapipe
    shufflers = _having(datapipe, "set_shuffle", "set_seed")
    if shuffle and not shufflers:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. Be aware "
            "that the default buffer size might not be sufficient for your task.",
            stacklevel=2,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """Gives each datapipe that has a method `set_seed` a seed from a generator.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> from tensorgrad.utils.data.graph_settings import apply_random_seed
    >>> rng = torch.Generator().manual_seed(4)
    >>> list(apply_random_seed(IterableWrapper(range(5)).shuffle(), rng))
    [0, 1, 3, 2, 4]
    """
    for pipe in _having(datapipe, "set_seed"):
        pipe.set_seed(draw_seed(rng))
    return datapipe


def apply_shuffle_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """`apply_random_seed`, by its older name."""
    warnings.warn(
        "`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future releases. Please use "
        "`apply_random_seed` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return apply_random_seed(datapipe, rng)


def shared_generator(seed: int) -> Any:
    """Returns the generator from which every process draws the same seeds."""
    return torch.Generator().manual_seed(seed)
