"""PyTorch's module of this name: the same functions and classes as in `torch.distributed`."""

from __future__ import annotations

from tensorgrad.distributed.backend import (
    Backend,
    BackendConfig,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from tensorgrad.distributed.collectives import *
from tensorgrad.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from tensorgrad.distributed.group import (
    GroupMember,
    ProcessGroup,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    group,
)
from tensorgrad.distributed.group import canonical_rank as _canonicalize_group_rank
from tensorgrad.distributed.group import default_group as _get_default_group
from tensorgrad.distributed.group import not_in_group as _rank_not_in_group
from tensorgrad.distributed.objects import *
from tensorgrad.distributed.point_to_point import *
from tensorgrad.distributed.process_group import *
from tensorgrad.distributed.reduce_op import ReduceOp, supports_complex
from tensorgrad.distributed.rendezvous import rendezvous
from tensorgrad.distributed.store import PrefixStore, Store
from tensorgrad.distributed.work import Work


def _get_default_store() -> Store:
    """The store of the default group."""
    return _get_default_group().store
