"""PyTorch's module of this name: the same functions and classes as in `torch.distributed`."""

from __future__ import annotations

from tensorgrad.distributed.backend import *
from tensorgrad.distributed.collectives import *
from tensorgrad.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from tensorgrad.distributed.debug_level import *
from tensorgrad.distributed.group import *
from tensorgrad.distributed.group import canonical_rank as _canonicalize_group_rank
from tensorgrad.distributed.group import default_group as _get_default_group
from tensorgrad.distributed.group import not_in_group as _rank_not_in_group
from tensorgrad.distributed.missing import *
from tensorgrad.distributed.process_group import *
from tensorgrad.distributed.process_group import _pg_map as _pg_map
from tensorgrad.distributed.process_group import named_group as _resolve_process_group
from tensorgrad.distributed.reduce_op import ReduceOp, supports_complex
from tensorgrad.distributed.rendezvous import rendezvous
from tensorgrad.distributed.shrinking import SHRINK_ABORT, SHRINK_DEFAULT, shrink_group
from tensorgrad.distributed.stores.store import PrefixStore, Store
from tensorgrad.distributed.work import Work


def _get_default_store() -> Store:
    """The store of the default group."""
    return _get_default_group().store
