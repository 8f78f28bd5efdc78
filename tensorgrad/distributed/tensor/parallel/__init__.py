"""`torch.distributed.tensor.parallel`: layers whose weights are divided among the ranks."""

from __future__ import annotations

from tensorgrad.distributed.tensor.parallel.loss import *
from tensorgrad.distributed.tensor.parallel.parallelize import *
from tensorgrad.distributed.tensor.parallel.style import *
