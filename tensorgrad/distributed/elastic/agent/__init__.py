"""PyTorch's package of this name. The agent of this one is `elastic/local_agent.py`."""

from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("server",))
