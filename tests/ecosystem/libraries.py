"""The libraries, one row each: what to install, what to import, which programs train, and which of its own tests run.

A row's requirements are pip's. They may demand torch: none is installed (see `environments.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class OwnTests:
    """The tests of a library itself, run in a checkout of its sources that the user has.

    Args:
        repository: "owner/name". The checkout is the folder `name` of `--sources`, at the tag of the installed version.
        tests: Files or folders in the checkout, given to pytest.
        arguments: Further arguments of pytest, such as `("-k", "not slow")`.
        left_out: Patterns of test ids (`fnmatch`, such as `"*test_download*"`) that are not run, and why.
        requirements: What the tests need beyond the library and pytest.
        seconds: The time limit of one test.
    """

    repository: str
    tests: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    seconds: int = 120


@dataclass(frozen=True)
class Library:
    """One library.

    Args:
        name: As the package index spells it, which also gives its version.
        requirements: What pip installs, besides NumPy and ml_dtypes. The newest versions that accept torch 2.13.
        imports: Modules to import.
        programs: Names of programs in `programs/`, without `.py`.
        own: Its own tests, if they are run.
        quick: Whether continuous integration runs its import and its first program.
        gaps: What is known not to work, one line each.
    """

    name: str
    requirements: tuple[str, ...]
    imports: tuple[str, ...]
    programs: tuple[str, ...] = ()
    own: OwnTests | None = None
    quick: bool = False
    gaps: tuple[str, ...] = ()


LIBRARIES = (
    Library(
        "einops",
        requirements=("einops",),
        imports=("einops", "einops.layers.torch"),
        programs=("einops_layers",),
        quick=True,
    ),
)

BY_NAME = {library.name: library for library in LIBRARIES}
