"""The most used libraries import and train, without torch, in environments that are made once and kept.

`python -m tests.ecosystem` runs all libraries and all programs.
"""

import pytest

from tests.ecosystem import running
from tests.ecosystem.environments import Unavailable, environment
from tests.ecosystem.libraries import LIBRARIES
from tests.support.once import once

pytestmark = [pytest.mark.slow, once]  # the environments have no Numba


@pytest.mark.parametrize("library", [row for row in LIBRARIES if row.quick], ids=lambda row: row.name)
def test_imports_and_trains(library):
    try:
        python = environment(library)
    except Unavailable as error:
        pytest.skip(f"its environment cannot be made: {error}")
    running.imports(python, library)
    name = library.programs[0]
    running.compare(name, running.run_program(python, name))
