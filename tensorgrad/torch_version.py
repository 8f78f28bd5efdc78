"""`torch.torch_version`: a string that compares as a version."""

from __future__ import annotations

import re
from typing import Any

from tensorgrad.version import __version__ as _followed

__all__ = ["TorchVersion"]

# As in Python's packages: 1!2.13.0rc1.post2.dev3+local.
_FORM = r"""\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<phase>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre>\d*))?
    (?P<posted>-(?P<post1>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post2>\d*))?
    (?P<dev>[-_.]?dev[-_.]?(?P<devn>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*"""
_PHASES = {"alpha": 1, "a": 1, "beta": 2, "b": 2}  # the others are release candidates: 3


class TorchVersion(str):
    """A version string that compares as a version, with strings and with tuples of integers.

    >>> from tensorgrad.torch_version import TorchVersion
    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0") >= (2, 13), TorchVersion("2.13.0rc1") < "2.13"
    (True, True, True)
    """

    __slots__ = ()

    def _pair(self, other: Any) -> tuple[Any, Any]:
        """Both operands in comparable form: as versions, or as text if either is not a valid version."""
        text = other if isinstance(other, str) else ".".join(str(part) for part in other)
        mine, theirs = _order(self), _order(text)
        return (str(self), other) if mine is None or theirs is None else (mine, theirs)

    def _compared(self, other: Any, how: Any) -> Any:
        try:
            return how(*self._pair(other))
        except TypeError:
            return NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, lambda mine, theirs: mine > theirs)

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, lambda mine, theirs: mine < theirs)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, lambda mine, theirs: mine >= theirs)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, lambda mine, theirs: mine <= theirs)

    def __eq__(self, other: Any) -> bool:
        return self._compared(other, lambda mine, theirs: mine == theirs)

    # `!=` compares the text, as in PyTorch.

    def __hash__(self) -> int:
        return str.__hash__(self)


def _order(version: str) -> tuple | None:
    """The sort key of a version; None if the text is not a version."""
    found = re.fullmatch(_FORM, version, re.VERBOSE | re.IGNORECASE)
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    while release and release[-1] == 0:
        release = release[:-1]
    if found["phase"]:
        phase = (_PHASES.get(found["phase"].lower(), 3), int(found["pre"] or 0))
    else:  # a development version comes before all others of its release; no phase sorts after any phase
        phase = (0, 0) if found["dev"] and not found["posted"] else (4, 0)
    post = int(found["post1"] or found["post2"] or 0) if found["posted"] else -1
    dev = (0, int(found["devn"] or 0)) if found["dev"] else (1, 0)
    local = tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split(r"[-_.]", found["local"] or "")
        if part
    )
    return int(found["epoch"] or 0), release, phase, post, dev, local


__version__ = TorchVersion(_followed)
