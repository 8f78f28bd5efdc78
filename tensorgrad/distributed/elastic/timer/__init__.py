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
from tensorgrad.system.not_included import stand_in as _stand_in

_ADVICE = "use LocalTimerClient and LocalTimerServer"
FileTimerClient = _stand_in("FileTimerClient", _ADVICE, __name__)
FileTimerRequest = _stand_in("FileTimerRequest", _ADVICE, __name__)
FileTimerServer = _stand_in("FileTimerServer", _ADVICE, __name__)

__all__ = [
    "FileTimerClient", "FileTimerRequest", "FileTimerServer", "LocalTimerClient", "LocalTimerServer",
    "MultiprocessingRequestQueue", "RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires",
]  # fmt: skip
