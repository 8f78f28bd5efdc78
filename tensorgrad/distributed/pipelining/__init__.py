"""`torch.distributed.pipelining`: a model in stages, each on a rank, through which the parts of a batch flow."""

from __future__ import annotations

from tensorgrad.distributed.pipelining.pipe import *
from tensorgrad.distributed.pipelining.schedules import *
from tensorgrad.distributed.pipelining.schedules import _ScheduleForwardOnly as _ScheduleForwardOnly
from tensorgrad.distributed.pipelining.stage import *
