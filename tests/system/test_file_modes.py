"""The mode of a file is set by its descriptor: who can write to the folder may exchange what its name stands for."""

import ast
import os
import stat
from pathlib import Path

import pytest

import tensorgrad as torch
from tensorgrad.compat import environment

PACKAGE = Path(torch.__file__).parent
BY_DESCRIPTOR = hasattr(os, "fchmod")


class Package:
    """An installed package whose list of files the system's manager keeps."""

    def read_text(self, name):
        return None


def enable(folder, monkeypatch):
    monkeypatch.setattr(environment, "real_torch", lambda: None)
    monkeypatch.setattr(environment, "installed", Package)
    monkeypatch.setattr(environment, "file", lambda: str(folder / environment.NAME))
    environment.enable()
    return folder / environment.NAME


def save(folder, monkeypatch):
    torch.save(torch.ones(2), folder / "file.pt")
    return folder / "file.pt"


@pytest.mark.skipif(not BY_DESCRIPTOR, reason="this system sets modes by name only")
@pytest.mark.parametrize("write", [enable, save])
def test_a_link_in_place_of_a_file_changes_no_other_file(write, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("a key")
    secret.chmod(0o600)
    folder = tmp_path / "shared"
    folder.mkdir()
    exchanged = []

    def exchanging(function):
        """Exchanges all files of the folder just before a mode is set."""

        def call(which, mode, **options):
            for path in filter(Path.is_file, folder.iterdir()):
                path.unlink()
                path.symlink_to(secret)
                exchanged.append(path)
            return function(which, mode, **options)

        return call

    for name in ("chmod", "fchmod"):
        monkeypatch.setattr(os, name, exchanging(getattr(os, name)))
    write(folder, monkeypatch)
    monkeypatch.undo()
    assert exchanged and stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_files_can_be_read_by_others(tmp_path, monkeypatch):
    assert stat.S_IMODE(enable(tmp_path, monkeypatch).stat().st_mode) & 0o444 == 0o444
    (tmp_path / "other").write_text("")  # with the mode that the user chose for new files
    expected = stat.S_IMODE((tmp_path / "other").stat().st_mode)
    assert stat.S_IMODE(save(tmp_path, monkeypatch).stat().st_mode) == expected


def test_nothing_sets_a_mode_by_name_where_there_is_another_way():
    """Only below `if not hasattr(os, "fchmod")`."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if "chmod(" not in text:
            continue
        tree = ast.parse(text)
        guarded = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "fchmod" in ast.unparse(node.test)
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("chmod", "lchmod"):
                call = ast.unparse(node)
                if not any(call in text for text in guarded):
                    found.append(f"{path.relative_to(PACKAGE)}: {call}")
    assert found == []
