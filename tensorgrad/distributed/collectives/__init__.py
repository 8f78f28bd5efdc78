"""Operations that every member of a group calls together, and messages between two of them."""

from tensorgrad.distributed.collectives.barriers import *
from tensorgrad.distributed.collectives.broadcasts import *
from tensorgrad.distributed.collectives.exchanges import *
from tensorgrad.distributed.collectives.gathers import *
from tensorgrad.distributed.collectives.objects import *
from tensorgrad.distributed.collectives.point_to_point import *
from tensorgrad.distributed.collectives.reductions import *
