"""`parallelize_module`: divides the layers of a module by a plan."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor.dtensor import default_mesh
from tensorgrad.distributed.tensor.parallel.style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """Divides a module, or layers in it, among the ranks of a mesh with one dimension. It is changed in place.

    Args:
        module: the module.
        device_mesh: the ranks; all of them if None.
        parallelize_plan: a style, or a dictionary from names of layers to styles; `*` stands for any part of a name.
        src_data_rank: accepted; weights are those of the first rank.

    Returns:
        The module.

    Raises:
        ValueError: the mesh has several dimensions, or no layer has a name of the plan.
        TypeError: the plan is neither a style nor a dictionary.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> parallelize_module(torch.nn.Linear(2, 3), parallelize_plan=ColwiseParallel()).weight.placements
    (Shard(dim=0),)
    >>> dist.destroy_process_group()
    """
    mesh = default_mesh(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module needs a mesh with one dimension, got {mesh}: take a part of it by name")
    if parallelize_plan is None or parallelize_plan == {}:
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]], got {type(parallelize_plan)}")
    names = dict(module.named_modules())
    for pattern, style in parallelize_plan.items():
        depth = pattern.count(".")
        found = [name for name in names if name.count(".") == depth and fnmatch(name, pattern)]
        if not found:
            raise ValueError(
                f"parallelize_module: no layer is called {pattern!r}; there are {sorted(filter(None, names))}"
            )
        for name in found:
            style._apply(names[name], mesh)
    return module
