"""The installed PyTorch's version. Tests of what changed on the way to the one that is the specification need it."""

import re
from importlib import metadata, util

import pytest

SPECIFICATION = "2.13"  # pyproject.toml installs it for the tests


def numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, to be compared."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


INSTALLED = numbers(metadata.version("torch")) if util.find_spec("torch") is not None else numbers(SPECIFICATION)


def since(version: str, what: str) -> pytest.MarkDecorator:
    """Returns a mark that skips a test under a PyTorch before `version`, in which something was different."""
    reason = f"{what} before PyTorch {version}, and {'.'.join(map(str, INSTALLED))} is installed"
    return pytest.mark.skipif(numbers(version) > INSTALLED, reason=reason)
