"""The code on the page CONTRIBUTING.md runs, from top to bottom."""

import re
from pathlib import Path

from tensorgrad.ops.dispatch import OPS
from tensorgrad.ops.kinds import FUNCTIONS
from tensorgrad.tensor import Tensor

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


def test_the_pages_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    before = set(OPS)
    scope: dict = {}
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), scope)
    finally:
        for name in set(OPS) - before:  # the demonstrations leave no trace
            del OPS[name]
            for owner in (name, f"{name}_"):
                FUNCTIONS.pop(owner, None)
                if owner in vars(Tensor):
                    delattr(Tensor, owner)
