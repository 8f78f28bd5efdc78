"""`torch.utils.model_zoo`: the older name of a function of `torch.hub`."""

from typing import Any

from tensorgrad import hub
from tensorgrad.hub import load_state_dict_from_url as load_url
from tensorgrad.system.lazy_modules import whole

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":
        return hub.tqdm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), "tqdm"})


whole(__name__)
