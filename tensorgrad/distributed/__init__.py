"""`torch.distributed`: several processes that train together, through MPI (the packages mpi4py and mpich).

Nothing here imports mpi4py before a group of several processes is made. See docs/distributed.md in the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tensorgrad.distributed.backend import (
    Backend,
    BackendConfig,
    get_default_backend_for_device,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from tensorgrad.distributed.collectives import *
from tensorgrad.distributed.constants import default_pg_timeout
from tensorgrad.distributed.debug_level import *
from tensorgrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from tensorgrad.distributed.errors import *
from tensorgrad.distributed.file_store import FileStore
from tensorgrad.distributed.group import (
    GroupMember,
    ProcessGroup,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    group,
)
from tensorgrad.distributed.missing import *
from tensorgrad.distributed.objects import *
from tensorgrad.distributed.point_to_point import *
from tensorgrad.distributed.process_group import *
from tensorgrad.distributed.reduce_op import ReduceOp, supports_complex
from tensorgrad.distributed.rendezvous import register_rendezvous_handler, rendezvous
from tensorgrad.distributed.store import HashStore, PrefixStore, Store
from tensorgrad.distributed.tcp_store import TCPStore
from tensorgrad.distributed.work import Work
from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("distributed_c10d", "nn", "utils"))  # modules that run when they are first used

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        from tensorgrad.system.missing_names import no_attribute

        raise no_attribute(__name__, name)
