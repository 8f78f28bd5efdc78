"""What the examples say of themselves, refuse, and read from files: no kernel changes it."""

import gzip
import hashlib
import http.server
import importlib
import json
import re
import sys
import threading

import numpy as np
import pytest

from tests.docs.test_examples import EXAMPLES, MNIST, SMALL, needs_mnist, run
from tests.support.processes import output_of

SCRIPTS = [*SMALL, "ddp.py", "inference.py", "serve.py", "train_digits.py"]
LIBRARIES = sorted(p.name for p in (EXAMPLES / "libraries").glob("*.py"))

# Runs programs one after the other, as Python and its packages take longer to start than they do: prints how each ends.
ENDINGS = """
    import contextlib, io, json, runpy, sys
    what, *names = sys.argv[1:]
    sys.path[0] = ""
    if what == "library":  # Python takes these for packages that are not installed
        needed = ("lightning", "peft", "sentence_transformers", "timm", "transformers")
        sys.modules.update(dict.fromkeys(needed))
    for name in names:
        printed, code = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                if what == "library":
                    sys.argv = [name]
                    runpy.run_path(name, run_name="__main__")
                else:
                    sys.argv = ["", "--help"]
                    runpy.run_module(name, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
        print(json.dumps([printed.getvalue(), code]))
"""


def endings(what, names):
    """What each of these programs prints, and its argument of sys.exit."""
    return [json.loads(line) for line in output_of(ENDINGS, what, *names, cwd=EXAMPLES.parent).splitlines()]


@pytest.fixture(scope="module")
def helps():
    modules = ["examples." + name.removesuffix(".py").replace("/", ".") for name in SCRIPTS]
    return dict(zip(SCRIPTS, endings("help", modules)))


@pytest.fixture(scope="module")
def without_libraries():
    return dict(zip(LIBRARIES, endings("library", [EXAMPLES / "libraries" / name for name in LIBRARIES])))


@pytest.mark.parametrize("name", LIBRARIES)
def test_examples_of_libraries_say_what_to_install(name, without_libraries):
    """Without the library, an example is one line. With it, they do what programs of tests/ecosystem/ do."""
    printed, code = without_libraries[name]
    assert not printed and len(code.strip().splitlines()) == 1 and "this example needs" in code


def test_what_to_install_is_said_on_the_standard_error():
    """By one of them, in a process of its own: sys.exit prints its argument there, and ends the process with 1."""
    blocked = "import sys, runpy; sys.modules['timm'] = None; runpy.run_path(sys.argv[1])"
    told = run("-c", blocked, EXAMPLES / "libraries" / "timm_digits.py", expect=1)
    assert len(told.strip().splitlines()) == 1 and "this example needs" in told


@pytest.mark.parametrize("name", SCRIPTS)
def test_example_says_what_it_does(name, helps):
    assert (EXAMPLES / name).read_text().startswith("import tensorgrad as torch\n")
    words, code = helps[name]
    assert code in (0, None)
    for option in ("--seed", "--device", "--data"):
        assert option in words
    assert name in (EXAMPLES / "README.md").read_text()


def test_resuming_from_nothing_is_an_error_of_one_line(tmp_path):
    error = run(EXAMPLES / "xor.py", "--resume", "--out", tmp_path, expect=1)
    assert "there is no" in error and error.count("\n") == 1


# --- data ----------------------------------------------------------------------------------------------------------


def write_idx(file, rank, shape, extra=0):
    """A gzipped idx file of zeros that says `rank` and `shape`, with `extra` bytes more than that."""
    header = bytes([0, 0, 8, rank]) + np.array(shape, ">i4").tobytes()
    file.write_bytes(gzip.compress(header + bytes(int(np.prod(shape)) + extra)))


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (None, None, "t10k-images-idx3-ubyte.gz is missing"),
        ((3, (2, 28, 28)), None, "t10k-labels-idx1-ubyte.gz is missing"),
        ((1, (2,)), None, "is not an idx file of 3-dimensional bytes"),
        ((3, (2, 28, 28), -1), None, "should have (2, 28, 28) bytes, but has 1567"),
        ((3, (2, 28, 28)), (1, (3,)), "has 2 images, but"),
        ((3, (2, 8, 8)), (1, (2,)), "expected images of 28 x 28 pixels, got 8 x 8"),
        ((3, (2, 28, 28)), (1, (2,)), "expected 10,000 t10k digits"),
    ],
)
def test_bad_data_is_named(tmp_path, monkeypatch, images, labels, message):
    monkeypatch.syspath_prepend(EXAMPLES)
    data = importlib.import_module("data")
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        if content:
            write_idx(tmp_path / f"t10k-{name}-ubyte.gz", *content)
    with pytest.raises(ValueError, match=re.escape(message)):
        data.load_mnist(tmp_path)


def test_four_files_are_two_parts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    data = importlib.import_module("data")
    for part, count in (("train", 5), ("t10k", 3)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", 3, (count, 28, 28))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", 1, (count,))
    assert [a.shape for a in data.load_mnist(tmp_path)] == [(5, 1, 28, 28), (5,), (3, 1, 28, 28), (3,)]


def test_errors_of_the_training_program_are_one_line(tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"text")
    error = run(EXAMPLES / "train_digits.py", "--data", tmp_path, expect=1)
    assert "t10k-images-idx3-ubyte.gz cannot be read" in error and error.count("\n") == 1
    error = run(EXAMPLES / "train_digits.py", "--save", tmp_path / "absent" / "digits.npz", expect=1)
    assert "there is no such folder" in error and error.count("\n") == 1


def test_texts_come_from_the_folder_or_from_the_library(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    data = importlib.import_module("data")
    names, text = data.load_names(None), data.load_text(None)
    assert len(names) > 500 and all(re.fullmatch("[a-z]+", name) for name in names)
    assert len(text) == 40_000 and text.isascii()
    (tmp_path / "names.txt").write_text("ada\ngrace\n")
    assert data.load_names(tmp_path) == ["ada", "grace"]
    with pytest.raises(ValueError, match=r"tinyshakespeare\.txt is missing"):
        data.load_text(tmp_path)


@needs_mnist
def test_published_sums_are_those_of_the_files(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    download = importlib.import_module("download")
    found = [name for name in download.FILES if (MNIST / name).exists()]
    assert "t10k-images-idx3-ubyte.gz" in found
    for name in found:
        assert download.is_genuine((MNIST / name).read_bytes(), download.FILES[name][0]), name


@pytest.fixture
def mirror(tmp_path):
    """The address of a server of the files in tmp_path/mirror."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_download_keeps_only_what_is_genuine(tmp_path, mirror, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    download = importlib.import_module("download")
    (tmp_path / "mirror" / "good.txt").write_bytes(b"good")
    (tmp_path / "mirror" / "bad.txt").write_bytes(b"tampered with")
    sums = {name: hashlib.sha256(name.removesuffix(".txt").encode()).hexdigest() for name in ("good.txt", "bad.txt")}
    monkeypatch.setattr(
        download,
        "FILES",
        {"good.txt": (sums["good.txt"], (mirror + "absent/", mirror)), "bad.txt": (sums["bad.txt"], (mirror,))},
    )
    folder = tmp_path / "data"
    monkeypatch.setattr(sys, "argv", ["download.py", str(folder)])
    assert download.main() == 1
    assert [file.name for file in folder.iterdir()] == ["good.txt"]
    assert "good.txt: as published" in (said := capsys.readouterr().out) and "bad.txt: cannot be fetched" in said
    monkeypatch.setattr(sys, "argv", ["download.py", str(folder), "--only", "good.txt"])
    assert download.main() == 0
    (folder / "good.txt").write_bytes(b"spoiled")
    assert download.main() == 1
    assert "NOT as published" in capsys.readouterr().out
