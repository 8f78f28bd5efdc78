"""Makes `import torch` load tensorgrad: after `install()`, for `torch` and all `torch.*`, in this process only.

    import tensorgrad.compat
    tensorgrad.compat.install()
    import torch                             # this is tensorgrad
    from torch.nn.modules.linear import Linear

`python -m tensorgrad.run script.py` does this for a whole program and the processes that it starts, and `python -m
tensorgrad.compat enable` for a whole environment.
"""

from __future__ import annotations

import sys
from types import ModuleType

import tensorgrad
from tensorgrad.compat import children, stand_ins, trees
from tensorgrad.compat.import_hook import COVERAGE, OURS, hook, is_torchs, name_members

_before: dict[str, ModuleType] = {}


def install() -> None:
    """Makes `torch` refer to tensorgrad from now on. Existing references to PyTorch are not affected.

    >>> import tensorgrad.compat
    >>> tensorgrad.compat.install()
    >>> import torch
    >>> torch is tensorgrad
    True
    >>> tensorgrad.compat.uninstall()
    """
    if hook in sys.meta_path:
        return
    for name in [n for n in list(sys.modules) if is_torchs(n)]:
        _before[name] = sys.modules.pop(name)
    sys.meta_path.insert(0, hook)
    sys.modules["torch"] = tensorgrad
    tensorgrad.__name__ = "torch"
    name_members("torch")
    stand_ins.start("tensorgrad")
    trees.tell_loaded()
    children.of_multiprocessing(True)


def uninstall() -> None:
    """Undoes `install`: `torch` refers to what it did before.

    >>> from tensorgrad import compat
    >>> compat.install()
    >>> compat.uninstall()
    >>> compat.installed()
    False
    """
    if hook not in sys.meta_path:
        return
    sys.meta_path.remove(hook)
    stand_ins.stop()
    tensorgrad.__name__ = OURS
    name_members(OURS)
    children.of_multiprocessing(False)
    for name in [n for n in list(sys.modules) if is_torchs(n)]:
        del sys.modules[name]
    sys.modules.update(_before)
    _before.clear()


def installed() -> bool:
    """Returns whether `torch` currently refers to tensorgrad.

    >>> from tensorgrad import compat
    >>> compat.install()
    >>> compat.installed()
    True
    >>> compat.uninstall()
    """
    return hook in sys.meta_path


def explain(error: BaseException) -> str | None:
    """Returns a hint for an error caused by a name that tensorgrad lacks; None for any other error.

    >>> from tensorgrad import compat
    >>> compat.explain(ImportError("No module named 'torch.hub'", name="torch.hub"))
    'torch is tensorgrad here; run `python -m tensorgrad.coverage` to see what is available'
    """
    named = isinstance(error, ImportError | AttributeError) and (getattr(error, "name", None) or "")
    text = str(error)
    if isinstance(error, ImportError) and str(named).startswith((OURS, "torch")):
        return f"torch is tensorgrad here; run {COVERAGE} to see what is available"
    if isinstance(error, AttributeError) and ("'tensorgrad" in text or "torch." in text):
        return f"torch is tensorgrad here; run {COVERAGE} to see what is available"
    return None
