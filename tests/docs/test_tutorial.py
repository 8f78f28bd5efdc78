"""The chapters of docs/tutorial run in order, print what they say, and hold what they assert."""

import sys
from pathlib import Path

import pytest

from tests.support.processes import output_of

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
sys.path.insert(0, str(TUTORIAL))
import run as tutorial  # noqa: E402

sys.path.remove(str(TUTORIAL))
CHAPTERS = tutorial.chapters()
_scope: dict = {"__name__": "tutorial"}
_done: list = []


@pytest.mark.parametrize("number", range(1, len(CHAPTERS) + 1))
def test_the_chapter_runs(number):
    """Chapters build on each other: those before it that did not run yet run first."""
    while len(_done) < number:
        page = CHAPTERS[len(_done)]
        _done.append(page)
        tutorial.run(page, _scope)


def test_there_are_thirteen():
    assert [int(page.stem[:2]) for page in CHAPTERS] == list(range(1, 14))


def test_a_chapter_ends_at_a_real_file():
    for page in CHAPTERS:
        text = page.read_text(encoding="utf-8")
        assert "## The real thing" in text and "](../../tensorgrad/" in text.partition("## The real thing")[2], page


def test_a_chapter_runs_by_itself():
    printed = output_of(None, TUTORIAL / "run.py", 3, cwd=TUTORIAL.parent.parent)
    assert printed.count("runs, and prints what it says") == 3


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nassert 1 == 2\n```\n",
        "```python\npass\n```\n\n```text\nsomething\n```\n",
    ],
)
def test_the_runner_notices_what_is_wrong(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        tutorial.run(page, {})
