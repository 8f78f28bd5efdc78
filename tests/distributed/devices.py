"""The GPUs of a rank, by the variable DEVICE: "emulator", or "cuda" for real ones; one of them is enough for all ranks.

NCCL refuses two ranks on one GPU, unless it believes that they are on different hosts: then it sends by sockets.
"""

import os


def install():
    """Call it before tensorgrad is imported."""
    if os.environ.get("DEVICE") == "emulator":
        from tests import emulator

        emulator.install()
    elif os.environ.get("DEVICE") == "cuda":
        import cupy

        if cupy.cuda.runtime.getDeviceCount() < int(os.environ["WORLD_SIZE"]):
            os.environ |= {"NCCL_HOSTID": os.environ["RANK"], "NCCL_SOCKET_IFNAME": "lo", "LOCAL_RANK": "0"}
            os.environ.setdefault("NCCL_DEBUG", "WARN")
            os.environ.setdefault("NCCL_DEBUG_FILE", "/dev/stderr")


def own_gpu(rank):
    """The number of a rank's GPU."""
    return int(os.environ.get("LOCAL_RANK", rank))
