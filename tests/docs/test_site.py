"""What the site is made of beside its pages: entries' own pages, sources, drawings, notebooks, the gallery.

Nothing is built here: the parts are called with little pages, and what they read is compared with what they make.
"""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

import tensorgrad
from tests.docs.test_docs import DOCS, PAGES, ROOT, names
from tests.docs.test_examples import EXAMPLES, SMALL
from tests.docs.test_tutorial import tutorial

sys.path.insert(0, str(DOCS / "_ext"))
import notebooks
import pages
import sources

sys.path.remove(str(DOCS / "_ext"))


@pytest.fixture(scope="module")
def sphinx():
    """The directives, which need Sphinx."""
    pytest.importorskip("sphinx", reason="Sphinx and its theme build the pages: pip install '.[docs]'")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(DOCS / "_ext")
        import frame
        import gallery
        import reference

        return {"frame": frame, "gallery": gallery, "reference": reference}


# --- a page for each function and class ------------------------------------------------------------------------------

FRAME = (
    '<title>torch - tensorgrad</title><meta name="description" content="All of it."><link rel="next" href="b">'
    '<a href="#icon"></a><b id="icon"></b><article role="main" id="furo-main-content">'
    '<h1>torch<a href="#torch">#</a></h1>'
    '{}</article><div class="related-pages">next</div><div class="bottom-of-page"></div>'
)
ENTRIES = (
    pages.begin("torch.sum", "Adds -- all.") + '<dt id="torch.sum">sum</dt><a href="#torch.Sum">Sum</a>'
    '<a href="#torch.old">old</a><a href="#icon"></a>' + pages.END
    + pages.begin("torch.Sum", "A <class>.") + '<dt id="torch.Sum"></dt><i id="torch.Sum.go"></i>'
    '<a href="#torch.Sum.go">go</a>' + pages.END + '<dt id="torch.old">old</dt><a href="#torch.sum">sum</a>'
)  # fmt: skip


def test_a_long_page_becomes_an_index_and_pages(tmp_path):
    (tmp_path / "torch.html").write_text(FRAME.format(ENTRIES))
    moved = pages.divided(tmp_path, "torch.html")
    assert moved == {
        "torch.sum": ("torch.sum.html", {"torch.sum"}),
        "torch.Sum": ("torch.Sum-.html", {"torch.Sum", "torch.Sum.go"}),  # on no system the same file
    }
    index, one = (tmp_path / "torch.html").read_text(), (tmp_path / "torch.sum.html").read_text()
    assert '<p class="name" id="torch.sum" data-page="torch.sum.html">' in index and "<!--entry" not in index
    assert 'id="torch.old"' in index and 'id="torch.Sum.go"' not in index
    assert "<title>torch.sum - tensorgrad</title>" in one and one.count('name="description"') == 1
    assert 'content="torch.sum: Adds – all."' in one and "related-pages" not in one and "torch.Sum.go" not in one
    assert pages.divided(tmp_path, "torch.sum.html") == {}, "a page is divided once"


def test_links_lead_to_the_new_pages(tmp_path):
    (tmp_path / "torch.html").write_text(FRAME.format(ENTRIES))
    moved = pages.divided(tmp_path, "torch.html")
    places = {("reference/torch.html", one): f"reference/{file}" for file, ids in moved.values() for one in ids}
    elsewhere = pages.relinked('<a href="../reference/torch.html#torch.Sum.go">', "tutorial/a.html", places)
    assert elsewhere == '<a href="../reference/torch.Sum-.html#torch.Sum.go">'
    assert pages.relinked('<a href="reference/torch.html#torch.sum">', "index.html", places) == (
        '<a href="reference/torch.sum.html">'
    )
    kept = '<a href="torch.html#windows"><a href="https://x.org/torch.html#torch.sum"><a href="#there">'
    assert pages.relinked(kept, "reference/b.html", places) == kept
    index = pages.relinked((tmp_path / "torch.html").read_text(), "reference/torch.html", places)
    assert '<dt id="torch.old">old</dt><a href="#torch.sum">' in index  # the index has it
    own = pages.relinked(
        (tmp_path / "torch.sum.html").read_text(), "reference/torch.sum.html", places, "reference/torch.html"
    )
    assert [*re.findall(r'<a href="([^"]*)"', own)] == [
        "#icon", "torch.html", "torch.Sum-.html", "torch.html#torch.old", "#icon",
    ]  # fmt: skip
    other = pages.relinked(
        (tmp_path / "torch.Sum-.html").read_text(), "reference/torch.Sum-.html", places, "reference/torch.html"
    )
    assert '<a href="#torch.Sum.go">go</a>' in other


def test_no_two_names_share_a_file():
    files = pages.files_of(sorted(names.known()))
    assert len({file.lower() for file in files.values()}) == len(files) > 2000
    assert files["torch.Tensor"] != files["torch.tensor"] and files["torch.nn.Linear"] == "torch.nn.Linear.html"


def test_signatures_have_types(sphinx):
    shown = sphinx["reference"].signature_of
    assert shown(tensorgrad.cumsum) == (
        "(input: Tensor, dim: int, *, dtype: dtype | None = None, out: Tensor | None = None) → Tensor"
    )
    assert shown(tensorgrad.nn.Linear).startswith("(in_features: int, out_features: int, bias: bool = True")
    every = [shown(value) for room in names.rooms() for value in names.public(room).values()]
    assert sum(": Tensor" in one for one in every) > 500
    assert not [one for one in every if "'Tensor'" in one or "<module" in one or "tensorgrad.ops" in one]


def test_a_name_is_linked_to_the_line_that_defines_it():
    without, wrong = [], []
    for room in names.rooms():
        for name, value in names.public(room).items():
            place = sources.place_of(name, value)
            if place is None:
                without.append(f"{room}.{name}")
                continue
            path, number = place
            lines = path.read_text(encoding="utf-8").splitlines()
            if not 1 <= number <= len(lines):
                wrong.append((room, name, path.name, number))
    assert not wrong
    assert len(without) < 100, without
    for name, value, file, line in (
        ("Linear", tensorgrad.nn.Linear, "linear.py", "class Linear"), ("topk", tensorgrad.topk, "sort.py", ""),
        ("exp", tensorgrad.exp, "pointwise.py", "exp"), ("save", tensorgrad.save, "saving.py", "def save("),
    ):  # fmt: skip
        path, number = sources.place_of(name, value)
        assert path.name == file and line in path.read_text(encoding="utf-8").splitlines()[number - 1]


def test_the_page_of_a_source_has_its_lines():
    pytest.importorskip("pygments", reason="Sphinx and its theme build the pages: pip install '.[docs]'")
    path = sources.PACKAGE / "version.py"
    made = sources.shown(path)
    assert f'id="L-{len(path.read_text().splitlines())}"' in made and "<title>tensorgrad/version.py" in made
    assert sources.page_of(path) == "source/tensorgrad/version.py.html" and '"../../_static/site.css"' in made


# --- drawings, the explorer, the gallery -----------------------------------------------------------------------------


def test_drawings_are_drawn(sphinx):
    frame = sphinx["frame"]
    for draw in frame.DRAWINGS.values():
        ElementTree.fromstring(draw())
    used = {name for page in PAGES for name in re.findall(r"\{drawing\} (\w+)", page.read_text(encoding="utf-8"))}
    assert used | {"workloads"} == set(frame.DRAWINGS), "conf.py puts `workloads` into the benchmarks"
    for step in frame.STEPS:
        for file in step[2:]:
            assert (
                " " in file or (ROOT / "tensorgrad" / file).exists() or (ROOT / "tensorgrad/autograd" / file).exists()
            )


def test_the_bars_are_those_that_were_measured(sphinx):
    stored = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    ratios = {f"{row['theme']}: {row['name']}": row["ratios"]["fast/torch"]["median"] for row in stored["rows"]}
    bars = [one for one in ElementTree.fromstring(sphinx["frame"].workloads()).iter() if one.tag.endswith("rect")]
    widths = [float(bar.get("width")) for bar in bars if bar.get("height") == "16"]
    expected = [ratios[name] for name in sphinx["frame"].WORKLOADS]
    assert len(widths) == 10
    assert [width / widths[0] for width in widths] == pytest.approx([one / expected[0] for one in expected], rel=0.01)


EXPLORER = re.compile(r"^```\{explorer\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPLORED = [(page, code) for page in PAGES for code in EXPLORER.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page, code", EXPLORED, ids=[page.stem for page, _ in EXPLORED])
def test_the_explorer_of_a_page_is_made(page, code, sphinx, tmp_path):
    sphinx["frame"].explored(code, tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_explorer_is_where_people_look():
    assert {page.stem for page, _ in EXPLORED} == {"index", "see", "06-engine"}


def test_the_gallery_has_all_examples(sphinx):
    gallery = sphinx["gallery"]
    shown = {name for name, _ in gallery.rows()}
    assert {*SMALL, "serve.py", "inference.py"} <= shown
    assert all((EXAMPLES / name).exists() for name in shown)
    for name, (arguments, picture) in gallery.RUNS.items():
        assert picture in SMALL[name][1].split(), name
        for option in re.findall(r"--(\w+)", arguments):
            assert f"{option}=" in (EXAMPLES / name).read_text() or f'"--{option}"' in (EXAMPLES / name).read_text(), (
                name
            )


@pytest.mark.slow
def test_the_gallerys_pictures_are_drawn(sphinx):
    """Continuous integration draws two (GALLERY in .ci/run); what `make docs` has drawn is there already."""
    gallery = sphinx["gallery"]
    with ThreadPoolExecutor(2) as pool:
        drawn = dict(zip(gallery.drawn(), pool.map(gallery.picture, gallery.drawn()), strict=True))
    assert drawn and [name for name, picture in drawn.items() if picture is None] == []
    for picture in drawn.values():
        assert picture.read_bytes().startswith((b"<?xml", b"<svg", b"\x89PNG"))


def test_the_logo_is_an_image():
    logo = (DOCS / "_static" / "logo.svg").read_bytes()
    assert ElementTree.fromstring(logo).tag.endswith("svg") and len(logo) < 2000


# --- notebooks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_is_its_page(name, tmp_path):
    """The code is that of the page, which other tests run, in its order; the prose is between it."""
    notebooks.write(tmp_path)
    made = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    files = [page for pattern in notebooks.PAGES[name] for page in sorted(DOCS.glob(pattern))]
    code = [block.strip("\n") for page in files for _, block, _ in tutorial.blocks(page)]
    cells = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    drawn = [cell for cell in cells if cell not in code]
    assert [cell for cell in cells if cell in code] == code and len(code) > 5
    text = "".join(page.read_text(encoding="utf-8") for page in files)
    pictures = re.findall(r"^```\{picture\}[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert drawn == [notebooks.drawn(picture) for picture in pictures] != []
    for cell in drawn:
        scope: dict = {}
        exec(cell.removesuffix("picture()"), scope)
        assert scope["picture"]()._repr_svg_().startswith("<svg") and set(scope) == {"__builtins__", "picture"}
    prose = "\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
    assert all(line in prose for line in re.findall(r"^#+ .*$", re.sub(r"(?ms)^```.*?^```$", "", text), re.MULTILINE))
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])


def test_an_output_is_left_out_and_other_text_is_kept():
    text = "# A\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\nSee [b](b.md).\n\n"
    text += "```text\nkept\n```\n\n```{picture}\nx\n```\n"
    assert notebooks.cells(text) == [
        ("markdown", "# A"), ("code", "1 + 1"), ("markdown", "See [b].\n\n```text\nkept\n```"),
        ("code", notebooks.drawn("x")),
    ]  # fmt: skip
