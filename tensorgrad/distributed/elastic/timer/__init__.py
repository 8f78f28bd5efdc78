"""`torch.distributed.elastic.timer`: a process asks to be killed if a block of code takes too long.

The server runs in the process that started the others; the client, in each of them, sends it requests by a queue.
"""

from __future__ import annotations

from tensorgrad.distributed.elastic.timer.api import (
    RequestQueue,
    TimerClient,
    TimerRequest,
    TimerServer,
    configure,
    expires,
)
from tensorgrad.distributed.elastic.timer.local_timer import (
    LocalTimerClient,
    LocalTimerServer,
    MultiprocessingRequestQueue,
)

__all__ = [
    "LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue", "RequestQueue", "TimerClient",
    "TimerRequest", "TimerServer", "configure", "expires",
]  # fmt: skip
