"""What the processes of an agent run, in `test_elastic_agent.py`."""

import os
import sys
import time
from pathlib import Path

NAMES = (
    "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "RANK", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE", "WORLD_SIZE",
)  # fmt: skip


def variables(text, number):
    """What an agent tells its processes."""
    return {name: os.environ.get(name) for name in NAMES}, text, number


def fails(times):
    """Rank 1 fails the first times; the other one would run for long then."""
    if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < times:
        if os.environ["RANK"] == "1":
            sys.exit(3)
        time.sleep(600)


def together(folder, sizes, failing=-1):
    """Ranks add up their numbers, again and again until there are as many as wanted; one fails when it first has."""
    import tensorgrad as torch
    import tensorgrad.distributed as dist

    dist.init_process_group("gloo")
    size, total = dist.get_world_size(), torch.ones(1)
    dist.all_reduce(total)
    if size == sizes and os.environ["GROUP_RANK"] == str(failing) and not Path(folder, "failed").exists():
        Path(folder, "failed").touch()
        raise ValueError("as it was told to")
    Path(folder, f"{size} {os.getpid()}").touch()
    while size < sizes:
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()
    return total.item()


if __name__ == "__main__":
    fails(int(sys.argv[1]))
