"""How test programs of either library end."""

import os
import sys


def end(dist):
    """Leaves the group, if that has not happened, and the process.

    PyTorch's threads may still run when its process ends, which then aborts ("terminate called without an active
    exception"), although all results are written.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    if dist.__name__.startswith("torch."):
        sys.stdout.flush()
        os._exit(0)
