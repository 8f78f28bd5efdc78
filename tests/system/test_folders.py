"""The library works without a home directory, or with one that is not usable."""

import ast
import os
import sys
import textwrap
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad.system import folders
from tests.support.processes import output_of

ROOT = Path(tensorgrad.__file__).parent
FOLDERS = ("HOME", "XDG_CACHE_HOME", "TORCH_HOME", "LOCALAPPDATA", "USERPROFILE", "MPLCONFIGDIR")

PROGRAM = """
    import os, sys
    if {nobody}:  # a container's user, who is in no list of users
        import pwd
        def missing(uid):
            raise KeyError(f"getpwuid(): uid not found: {{uid}}")
        pwd.getpwuid = missing
    import tensorgrad as torch
    from tensorgrad.system import folders

    def told(function):
        try:
            return function()
        except RuntimeError as error:
            return str(error)

    print(folders.home(), folders.cache(), told(torch.hub.get_dir), sep="\\n")
    x = torch.randn(400, 400, requires_grad=True)
    (torch.nn.functional.relu(x) @ x).sum().backward()
    torch.save({{"x": x}}, "x.pt")
    assert torch.equal(torch.load("x.pt")["x"], x)
    (x * 2).sum().render().save("graph.svg")
    open("hubconf.py", "w").write("def model(): return 3")
    assert torch.hub.load(".", "model", source="local") == 3
    torch.hub.set_dir("here")
    assert torch.hub.get_dir() == "here"
"""


def run(tmp_path, nobody=False, **variables):
    """Returns the lines that PROGRAM prints with no folders in the environment but those given."""
    program = textwrap.dedent(PROGRAM).format(nobody=nobody)
    kept = {k: v for k, v in os.environ.items() if k not in FOLDERS}
    given = {**kept, "PYTHONPATH": str(ROOT.parent), **variables}
    printed = output_of(program, timeout=180, cwd=tmp_path, env=given)
    assert not (tmp_path / "~").exists()
    return printed.splitlines()


needs_users = pytest.mark.skipif(os.name != "posix", reason="HOME and the list of users are POSIX's")


@needs_users
def test_without_a_home(tmp_path):
    home, cache, hub = run(tmp_path, nobody=True)
    assert (home, cache) == ("None",) * 2
    assert "TORCH_HOME" in hub


@needs_users
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has a folder of its own for caches")
@pytest.mark.parametrize("place", ["/nonexistent/home", "a file", "relative", "", "/proc"])
def test_a_home_that_cannot_be_used(place, tmp_path):
    if place == "a file":
        place = str(tmp_path / "file")
        Path(place).write_text("")
    home, cache, hub = run(tmp_path, HOME=place)
    if place == "relative":
        assert (home, cache) == ("None",) * 2 and "TORCH_HOME" in hub
        return
    place = place or "/"
    assert home == place
    assert cache == os.path.join(place, ".cache")
    assert hub == os.path.join(cache, "torch", "hub")


@needs_users
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has a folder of its own for caches")
def test_folders_that_are_told(tmp_path):
    given = {"XDG_CACHE_HOME": "/no/cache", "TORCH_HOME": "/no/torch"}
    shown = run(tmp_path, nobody=True, **given)
    assert shown == ["None", "/no/cache", "/no/torch/hub"]
    assert run(tmp_path, nobody=True, XDG_CACHE_HOME="relative")[1] == "None"


def test_other_systems_caches(monkeypatch):
    monkeypatch.setattr(folders, "home", lambda: Path("/home/me"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folders.cache() == Path("/home/me/Library/Caches") and folders.cache(system=False) == Path("/home/me/.cache")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", os.path.abspath("/local"))
    assert folders.cache() == Path(os.path.abspath("/local"))
    monkeypatch.delenv("LOCALAPPDATA")
    assert folders.cache() == Path("/home/me")
    monkeypatch.setattr(folders, "home", lambda: None)
    assert folders.cache() is None and folders.cache(system=False) is None


def test_the_home_folder_is_asked_for_in_one_place():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name == "system/folders.py" or not any(word in text for word in ("home", "~/", *FOLDERS[:2])):
            continue
        for node in ast.walk(ast.parse(text)):
            asked = isinstance(node, ast.Attribute) and node.attr == "home" and ast.unparse(node.value).endswith("Path")
            named = isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                node.value in FOLDERS[:2] or node.value.startswith("~/")
            )  # fmt: skip
            if asked or named:
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, f"use tensorgrad.system.folders: {wrong}"
