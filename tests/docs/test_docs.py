"""The documentation is true: its code runs, its links and file names lead somewhere, and no public name is left out."""

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad import viz
from tests.docs.test_doctests import PUBLIC, contents
from tests.docs.test_tutorial import tutorial

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
import public_names as names  # noqa: E402

PAGES = sorted(p for p in DOCS.rglob("*.md") if p.relative_to(DOCS).parts[0] != "_ext")
ALL = [*PAGES, *sorted(ROOT.glob("*.md"))]
# Those whose code is run by another file of tests.
ELSEWHERE = {
    "architecture": "tests/docs/test_contributing.py",
    **{p.stem: "tests/docs/test_tutorial.py" for p in tutorial.chapters()},
}
# How a block of each language is checked; any other language has to be added here.
LANGUAGES = {
    "python": "run", "text": "compared with what the block before it prints", "sh": "its commands exist",
    "console": "run, and compared", "py": "a fragment that only compiles", "": "a drawing, or rows of the op table",
}  # fmt: skip
# Names of files that are the reader's, or that a tool makes.
READERS = {"train.py", "program.py", "your_script.py", "hubconf.py", "graph.svg", "backprop.html"}
# What the pages name because PyTorch has it and tensorgrad has not.
MISSING = {
    "torch._dynamo", "torch.package",
}  # fmt: skip
PLACEHOLDERS = {"torch.name", "torch.nn.functional.squareplus"}
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def identify(page) -> str:
    return str(page.relative_to(ROOT))


def fences(page, language):
    """The blocks of one language on a page."""
    return [code for found, code in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


def prose(page) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


# --- code ------------------------------------------------------------------------------------------------------------

WITH_CODE = [page for page in PAGES if fences(page, "python") and page.stem not in ELSEWHERE]


def test_code_is_found():
    assert {"tour", "install", "index", "security", "coming-from-pytorch"} <= {page.stem for page in WITH_CODE}
    for page in ELSEWHERE:
        assert (ROOT / ELSEWHERE[page]).exists()


@pytest.mark.parametrize("page", WITH_CODE, ids=identify)
@pytest.mark.filterwarnings("ignore")
def test_the_pages_code_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tutorial.run(page, {"__name__": "page"})


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_every_block_is_of_a_kind_that_is_checked(page):
    infos = [info for info, _ in FENCE.findall(page.read_text(encoding="utf-8"))]
    assert not [info for info in infos if "`" in info], "backquotes there make a fence no fence"
    found = {language for language in infos if "{" not in language}
    assert found <= set(LANGUAGES), f"{page}: how are blocks of {found - set(LANGUAGES)} checked?"
    for code in fences(page, "py"):
        ast.parse(code)
    compared = [printed for _, _, printed in tutorial.blocks(page) if printed]
    assert len(compared) == len(fences(page, "text")), "an output stands right behind the block that prints it"


@pytest.mark.parametrize("page", [page for page in PAGES if "{picture}" in page.read_text()], ids=identify)
def test_pictures_are_drawn(page):
    """The blocks that the site shows as pictures make some."""
    for info, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if info.startswith("{picture}"):
            *before, last = ast.parse(code).body
            scope: dict = {"torch": tensorgrad, "viz": viz}
            exec(compile(ast.Module(before, []), str(page), "exec"), scope)
            picture = eval(compile(ast.Expression(last.value), str(page), "eval"), scope)
            assert picture._repr_svg_().startswith("<svg")


def test_the_picture_of_the_first_example_is_what_the_library_draws(tmp_path):
    """docs/graph.svg, on the first screen of README.md and docs/index.md."""
    code = fences(ROOT / "README.md", "python")[0]
    assert code.rstrip().splitlines()[0] == "import tensorgrad as torch" and "y.render(" in code
    scope: dict = {}
    exec(code, scope)
    drawn = scope["picture"].save(tmp_path / "graph.svg")
    assert drawn.read_bytes() == (DOCS / "graph.svg").read_bytes(), "save it again, and look at it"
    for page, path in ((ROOT / "README.md", "docs/graph.svg"), (DOCS / "index.md", "graph.svg")):
        assert f"]({path})" in page.read_text(encoding="utf-8")


CONSOLE = [(page, code) for page in PAGES for code in fences(page, "console")]


@pytest.mark.parametrize("page, code", CONSOLE, ids=[code.splitlines()[0][2:] for _, code in CONSOLE])
def test_a_console_shows_what_the_command_prints(page, code):
    """But for times, versions, and how many threads and processors there are."""
    command, _, expected = code.partition("\n")
    given = dict(word.split("=") for word in re.findall(r"\b[A-Z]+=\w+", command))
    words = shlex.split(re.sub(r"\b[A-Z]+=\w+ ?|^\$ ", "", command))
    assert words[0] == "python"
    result = subprocess.run(
        [sys.executable, *words[1:]], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **given}
    )
    assert result.returncode == 0 and masked(result.stderr + result.stdout) == masked(expected)


def masked(text: str) -> list[str]:
    """The lines of an output without what differs between machines."""
    lines = [re.sub(r"NumPy .*", "NumPy ...", line) for line in text.splitlines()]
    return [re.sub(r"\d+(\.\d+)? us", "n us", line).rstrip() for line in lines if line.strip()]


def commands():
    """The lines of the shell blocks: (page, words)."""
    for page in PAGES:
        for block in fences(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(re.sub(r"^(\b[A-Z_]+=\S+ )+", "", line), comments=True)
                if words:
                    yield page, words


@pytest.mark.parametrize(
    "page, words", [*commands()], ids=lambda value: value.stem if isinstance(value, Path) else " ".join(value)
)
def test_a_shell_command_exists(page, words):
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
    elif program == "python" and rest[0] == "-m":
        assert importlib.util.find_spec(rest[1]) is not None
    elif program == "python":
        assert rest[0] in READERS or (ROOT / rest[0]).exists()
    elif program == "pip":
        text = (ROOT / "pyproject.toml").read_text()
        extra = re.search(r"\[(\w+)\]", rest[-1])
        assert rest[0] == "install" and (extra is None or f"\n{extra[1]} = [" in text)
    elif program == "curl":  # asks a server that an example starts
        assert rest[-1].startswith("localhost:")
    else:
        pytest.fail(f"{page}: {program} is not a command that is checked here")


# --- links and files -------------------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path in backquotes: something with a slash, or a file's ending.
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|toml|txt|sh)|(?:[\w-]+/)+[\w-]*)`")


@pytest.mark.parametrize("page", ALL, ids=identify)
def test_links_lead_to_files(page):
    for link in LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", link):
            target = link.partition("#")[0]
            assert (page.parent / target).exists(), f"{page}: {link}"


@pytest.mark.parametrize("page", ALL, ids=identify)
def test_files_that_are_named_exist(page):
    """Paths may be given from the root, from the package, its ops, the examples, the docs, or beside the page."""
    for path in PATH.findall(prose(page)):
        if path in READERS or path.startswith("build/"):
            continue
        places = (ROOT, ROOT / "tensorgrad", ROOT / "tensorgrad" / "ops", ROOT / "examples", DOCS, page.parent)
        assert any((place / path).exists() for place in places), f"{page}: {path}"


def test_files_that_the_source_names_exist():
    """In comments and docstrings, which give as much of a path as tells the file from others."""
    there = [f"/{path.relative_to(ROOT).as_posix()}" for folder in ("tensorgrad", "tests", "tools") for path in
             (ROOT / folder).rglob("*.*") if "__pycache__" not in path.parts]  # fmt: skip
    known = {name[at:] for name in there for at, letter in enumerate(name) if letter == "/"}
    for path in (ROOT / "tensorgrad").rglob("*.py"):
        named = set(re.findall(r"\b[a-z_0-9]+(?:/[a-z_0-9]+)*\.(?:py|cu|cuh)\b", path.read_text(encoding="utf-8")))
        gone = {name for name in named if f"/{name}" not in known} - READERS - {"script.py", "runpy.py"}
        assert not gone, f"{path.relative_to(ROOT)}: {gone}"


def resolves(name: str) -> bool:
    """Whether `torch.a.b` can be reached."""
    value = tensorgrad
    for i, part in enumerate(name.split(".")[1:], 2):
        if not hasattr(value, part):
            try:
                value = importlib.import_module(".".join(["tensorgrad", *name.split(".")[1:i]]))
            except ImportError:
                return False
        else:
            value = getattr(value, part)
    return True


NAME = re.compile(r"`(torch(?:\.\w+)+)[`(]")


@pytest.mark.parametrize("page", ALL, ids=identify)
def test_names_of_torch_exist(page):
    if page.stem != "coverage":  # it is about PyTorch's
        named = set(NAME.findall(prose(page)))
        table = page.read_text(encoding="utf-8").partition("<!-- names in use")[2]  # of PyTorch's, too
        named -= set(NAME.findall(table))
        assert not [name for name in named - MISSING - PLACEHOLDERS if not resolves(name)]


def test_what_is_said_to_be_missing_is():
    text = prose(DOCS / "coming-from-pytorch.md")
    for name in MISSING:
        assert name in text and not resolves(name), f"{name}: say on coming-from-pytorch.md that it is here"


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_included_text_exists(page):
    for path, options in re.findall(
        r"```\{(?:literal)?include\} (\S+)\n((?::.*\n)*)", page.read_text(encoding="utf-8")
    ):
        text = (page.parent / path).read_text(encoding="utf-8")
        wanted = re.search(r":pyobject: (\S+)", options)
        if wanted:
            tree: ast.AST = ast.parse(text)
            for name in wanted[1].split("."):
                inside = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
                assert name in inside, f"{page}: {path} has no {wanted[1]}"
                tree = inside[name]
        for text_wanted in re.findall(r":(?:start-at|end-before): (.*)", options):
            assert text_wanted in text, f"{page}: {path} has no {text_wanted!r}"


# --- the reference ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", PUBLIC, ids=lambda room: room or "torch")
def test_every_public_name_is_in_the_reference(room):
    assert room in names.rooms(), f"no page of docs/reference lists {room or 'torch'}"
    missing = set(contents(room)) - set(names.public(room)) - {"Tensor"}  # it has a page of its own
    assert not missing, f"{room}: not in the reference: {sorted(missing)}"


def test_emphasis_is_of_words_and_stars_of_shapes_are_stars():
    """No `*` of a shape, a power or a list of arguments is taken for the mark around a title."""
    reference = pytest.importorskip("reference", reason="the directive needs Sphinx: pip install '.[docs]'")
    shapes = 0
    for room in names.rooms():
        for name, value in names.public(room).items():
            values = [value, *(v for _, v in reference.members(value))] if isinstance(value, type) else [value]
            for text in {reference.docstring_of(getattr(v, "__func__", v)) for v in values}:
                for kind, content in reference.blocks(text):
                    if kind == "example":
                        continue
                    made = reference.inline(content)
                    plain = "".join(node.astext() for node in made)
                    for node in made:
                        if node.tagname == "emphasis":
                            assert re.fullmatch(r"[A-Z][\w\s:,-]*\w", node.astext()), (room, name, node.astext())
                    prose = re.sub(r"``?[^`]*``?", "", content)
                    marks = 2 * sum(node.tagname == "emphasis" for node in made)
                    code = sum(node.astext().count("*") for node in made if node.tagname in ("literal", "pending_xref"))
                    assert plain.count("*") - code == prose.count("*") - marks, (room, name)
                    assert not re.search(r"(?<!\S)\*\*\w[^*]*\*\*", content), (room, name, "bold is not known here")
                    shapes += prose.count("(*")
    assert shapes > 60
    (text,) = reference.inline("A shape (*, 2n) becomes (*, n), as 2**63 * x and f(*args) do.")
    assert text.astext().count("*") == 6
    assert [n.astext() for n in reference.inline("in *A title of words* (*, n)") if n.tagname == "emphasis"] == [
        "A title of words"
    ]


def test_the_reference_is_large():
    """The search for names works at all."""
    assert len(names.known()) > 2000 and {"torch.nn.Linear", "torch.Tensor.add_", "torch.fft.fft"} <= names.known()


def test_every_page_is_reached():
    """Every page stands in a table of contents."""
    listed = set()
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{line}.md").resolve() for line in lines}
    assert listed | {(DOCS / "index.md").resolve()} == {page.resolve() for page in PAGES}


def made_from_these_files(stamp: Path, root: Path) -> bool:
    """Whether `make docs` has passed with the files that are here, and none has been written since it began.

    Args:
        stamp: Lists the files that were here; as old as the beginning of `make docs`.
        root: The checkout.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        here = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        return here == stamp.read_text() and all(
            (root / name).stat().st_mtime_ns < stamp.stat().st_mtime_ns for name in here.splitlines()
        )
    except (OSError, subprocess.CalledProcessError):  # no git, no stamp, or a file is missing
        return False


@pytest.mark.skipif(shutil.which("git") is None, reason="git lists the files")
def test_what_the_pages_were_made_from_is_known(tmp_path):
    stamp, page = tmp_path / "stamp", tmp_path / "new" / "page.md"
    assert not made_from_these_files(stamp, ROOT)
    page.parent.mkdir()
    page.write_text("")
    subprocess.run(["git", "init", "-q"], cwd=page.parent, check=True)
    for listed, age, expected in (("page.md\n", 5, True), ("page.md\n", -5, False), ("gone.md\npage.md\n", 5, False)):
        stamp.write_text(listed)
        os.utime(page, ns=(0, stamp.stat().st_mtime_ns - age * 10**9))
        assert made_from_these_files(stamp, page.parent) == expected


def test_sphinx_has_no_complaint(tmp_path):
    """Every page is read as `make docs` does, with warnings as errors: by it, or else here, and none written."""
    if made_from_these_files(ROOT / "build" / "docs-passed", ROOT):
        return
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="Sphinx and its theme build the pages: pip install '.[docs]'")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "dummy",
        "-n",
        "-W",
        "--keep-going",
        "-q",
        str(DOCS),
        str(tmp_path),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
