"""Functions of PyTorch's package that are not included: they raise an error when called."""

from __future__ import annotations

from tensorgrad.system.not_included import stand_in

ADVICE = {
    "breakpoint": "call Python's breakpoint() on one rank, and torch.distributed.barrier() on all of them",
    "record_comm": "use torch.profiler",
}
__all__ = [*ADVICE]

for _name, _advice in ADVICE.items():
    globals()[_name] = stand_in(_name, _advice, __name__, f"distributed.{_name}")
