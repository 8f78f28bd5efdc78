"""The code on the pages CONTRIBUTING.md, README.md and docs/architecture.md runs, from top to bottom."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tensorgrad.dispatch.kernel_tables import OPS
from tensorgrad.dispatch.kinds import FUNCTIONS
from tensorgrad.tensor import Tensor

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_the_page_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the page draws pictures
    blocks = blocks_of(ROOT / name)
    assert blocks
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), {})
        assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\) +# (.*)$", block, re.MULTILINE)


def test_the_pages_examples_run():
    blocks = blocks_of(PAGE)
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
