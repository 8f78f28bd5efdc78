"""Saves checkpoints one after the other until it is killed: `python checkpoint_kills.py FOLDER`."""

import sys
from pathlib import Path

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
folder = Path(sys.argv[1])
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
state = {"x": distribute_tensor(torch.zeros(1001), mesh, [Shard(0)]), "y": torch.zeros(1000), "step": 0}
dcp.save(state, checkpoint_id=folder)
print("saved", flush=True)
while True:
    state["x"] += 1
    state["y"] += 1
    state["step"] += 1
    dcp.save(state, checkpoint_id=folder)
