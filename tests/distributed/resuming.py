"""A program that goes on from its last checkpoint: `python resuming.py FOLDER STEPS [PAUSE]`.

Rank 0 saves after each step, to a temporary name that is then renamed, and writes when each group made its first step.
Each rank notes its process before it joins the group. Once the folder has a file `hurry`, there are no pauses.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder, steps, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
rank = int(os.environ["RANK"])
(folder / f"{os.environ['TORCHELASTIC_RESTART_COUNT']}.{rank}.{os.getpid()}.pid").touch()
dist.init_process_group("gloo")

torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
saved, first = folder / "checkpoint.pt", 0
if saved.exists():
    state = torch.load(saved)
    first = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])

for step in range(first, steps):
    torch.manual_seed(1000 * step + rank)
    x = torch.randn(16, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "checkpoint.tmp")
        os.replace(folder / "checkpoint.tmp", saved)
        if step == first:
            with open(folder / "first_steps", "a") as file:
                file.write(f"{time.time()} {step}\n")
    while pause and not (folder / "hurry").exists():
        time.sleep(pause)
        if step < steps - 10:  # it does not end before it is to, in whatever group it is
            break
dist.destroy_process_group()
