"""`mpi4py.MPI` as libraries see it that only ask whether mpiexec has started them.

They import it and look at the size of COMM_WORLD (Lightning does). The import would initialize MPI, with this process
alone in its world; that is possible only once, so this process could join no other ranks afterwards. Here MPI is
initialized when something else is done with COMM_WORLD. Where mpiexec has started the process, nothing is changed.
"""

from __future__ import annotations

import atexit
from typing import Any

from tensorgrad.distributed.mpi.world import launched

__all__ = ["execute"]

ALONE = {"Get_size": lambda: 1, "Get_rank": lambda: 0, "size": 1, "rank": 0}


def execute(loader: Any, module: Any) -> None:
    """Runs the module by its loader, without initializing MPI."""
    if launched() is not None:
        loader.exec_module(module)
        return
    import mpi4py

    wanted, mpi4py.rc.initialize = mpi4py.rc.initialize, False
    loader.exec_module(module)
    if wanted:
        module.COMM_WORLD = _late_world(module)


def _late_world(MPI: Any) -> Any:
    """COMM_WORLD, which initializes MPI when it is used for more than to ask who is there."""
    world = MPI.COMM_WORLD

    class World:
        @property  # type: ignore[misc]  # `isinstance(…, MPI.Comm)`
        def __class__(self) -> Any:
            return type(world)

        def __getattr__(self, name: str) -> Any:
            if not MPI.Is_initialized():
                if name in ALONE:
                    return ALONE[name]
                MPI.Init_thread()
                atexit.register(lambda: MPI.Is_finalized() or MPI.Finalize())
            MPI.COMM_WORLD = world
            return getattr(world, name)

    return World()
