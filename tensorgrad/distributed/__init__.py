"""`torch.distributed`: several processes that train together, through MPI (the packages mpi4py and mpich).

Nothing here imports mpi4py before a group of several processes is made. See docs/distributed.md in the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tensorgrad.distributed.backend import *
from tensorgrad.distributed.collectives import *
from tensorgrad.distributed.constants import default_pg_timeout as default_pg_timeout
from tensorgrad.distributed.debug_level import *
from tensorgrad.distributed.device_mesh import DeviceMesh as DeviceMesh
from tensorgrad.distributed.device_mesh import init_device_mesh as init_device_mesh
from tensorgrad.distributed.errors import *
from tensorgrad.distributed.grad_bucket import BuiltinCommHookType as BuiltinCommHookType
from tensorgrad.distributed.grad_bucket import GradBucket as GradBucket
from tensorgrad.distributed.group import *
from tensorgrad.distributed.missing import *
from tensorgrad.distributed.process_group import *
from tensorgrad.distributed.reduce_op import ReduceOp as ReduceOp
from tensorgrad.distributed.reduce_op import _make_nccl_premul_sum
from tensorgrad.distributed.reduce_op import supports_complex as supports_complex
from tensorgrad.distributed.rendezvous import register_rendezvous_handler as register_rendezvous_handler
from tensorgrad.distributed.rendezvous import rendezvous as rendezvous
from tensorgrad.distributed.shrinking import shrink_group as shrink_group
from tensorgrad.distributed.stores.file_store import FileStore as FileStore
from tensorgrad.distributed.stores.store import HashStore as HashStore
from tensorgrad.distributed.stores.store import PrefixStore as PrefixStore
from tensorgrad.distributed.stores.store import Store as Store
from tensorgrad.distributed.stores.tcp_store import TCPStore as TCPStore
from tensorgrad.distributed.work import Work as Work
from tensorgrad.system.lazy_modules import later as _later

# Modules that run when they are first used.
_later(
    __name__,
    (
        "_composable",
        "_functional_collectives",
        "algorithms",
        "checkpoint",
        "distributed_c10d",
        "elastic",
        "fsdp",
        "launch",
        "launcher",
        "nn",
        "optim",
        "pipelining",
        "rpc",
        "run",
        "tensor",
        "utils",
    ),
)

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        from tensorgrad.system.missing_names import no_attribute

        raise no_attribute(__name__, name)
