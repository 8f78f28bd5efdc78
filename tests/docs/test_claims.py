"""What several pages say about start-up times, GPUs and the first example agrees, and with the files it comes from."""

import re

import pytest

from tests.support.processes import ROOT, run_python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def text(*path):
    return " ".join((ROOT.joinpath(*path)).read_text(encoding="utf-8").split())


def test_the_start_takes_what_was_measured():
    added = float(re.search(r"tensorgrad adds (\S+) s to `import numpy`", text("docs", "benchmarks", "startup.md"))[1])
    assert 0.05 <= added < 0.15, "then it is not a tenth of a second: change the pages, too"
    for page in PAGES:
        for sentence in re.findall(r"[^.]*tenth of a second[^.]*", text(page.relative_to(ROOT))):
            if "start" in sentence:
                assert "NumPy" in sentence, f"{page.name} must say that this is added to NumPy's: {sentence}"


def test_every_page_names_the_same_gpus():
    ran = re.search(r"It has run on[^.]*", text("docs", "cuda.md"))[0]
    known = set(re.findall(r"[HAB]\d00", ran))
    said = re.search(r"it has run on[^,]*", text("README.md"))[0]
    assert known and set(re.findall(r"[HAB]\d00", said)) == known
    for page in PAGES:
        assert not re.search(r"(never|not) (been )?run on a GPU", text(page.relative_to(ROOT))), page.name


def test_the_first_training_is_ten_epochs():
    pytest.importorskip("sklearn")
    code = """
        import sys; sys.path.insert(0, "examples")
        import train_digits
        print(round(train_digits.IMAGES_TO_SEE / 1437))  # of 1,797 digits, a fifth is held out
    """
    done = run_python(code, cwd=ROOT)
    assert done.stdout.strip() == "10", done.stderr
