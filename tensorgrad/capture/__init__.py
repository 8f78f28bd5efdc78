"""`tensorgrad.capture`: what did a program do?

`record` runs a function eagerly, once, and returns what it did on arrays: a graph of ops (`torch.fx`), and its effects.
Composites, vmap, `backward()` and the steps of optimizers are seen where they end. See docs/capture.md in the
repository.
"""

from tensorgrad.capture.nodes import Effect
from tensorgrad.capture.recorder import ReadError
from tensorgrad.capture.recording import Recording, record
from tensorgrad.capture.steps import GuardError

__all__ = ["Effect", "GuardError", "ReadError", "Recording", "record"]
