"""system/progress.py, and what exports say of their steps."""

import io
import sys

import pytest

import tensorgrad as torch
from tensorgrad.system.progress import progress, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def shown(terminal) -> list[str]:
    """What stood in the line, one after the other."""
    assert "\n" not in terminal.getvalue()
    return terminal.getvalue().split("\r\x1b[K")[1:]


def test_a_terminal_shows_the_current_step_and_nothing_at_the_end(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    say("nobody listens")
    with progress("export"):
        say("one")
        with progress("save"):  # belongs to the call around it
            say("two")
        say("x" * 200)
    say("nobody listens any more")
    assert shown(terminal) == ["export: one", "export: two", ("export: " + "x" * 200)[:79], ""]


def test_an_error_ends_the_line(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    with pytest.raises(ValueError, match="mine"), progress("export"):
        say("one")
        raise ValueError("mine")
    assert shown(terminal) == ["export: one", ""]
    with progress("another"):
        say("two")
    assert shown(terminal)[2:] == ["another: two", ""]


@pytest.mark.parametrize(("verbose", "expected"), [(True, "export: one\nexport: two\n"), (None, ""), (False, "")])
def test_what_is_not_a_terminal_gets_lines_if_asked_for(capsys, verbose, expected):
    with progress("export", verbose):
        say("one")
        say("two")
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("file", [None, "closed"])
def test_without_a_standard_error_nothing_is_said(monkeypatch, file):
    closed = Terminal()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if file else None)
    with progress("export", True):
        say("one")


def test_exports_say_what_they_do(monkeypatch, tmp_path):
    terminal = on_a_terminal(monkeypatch)
    model, x = torch.nn.Linear(3, 2), torch.ones(2, 3)
    torch.onnx.export(model, (x,), tmp_path / "model.onnx", dynamic_shapes={"input": {0: "batch"}})
    assert shown(terminal) == [
        "onnx.export: running the model", "onnx.export: running the model at 3 sizes",
        "onnx.export: translating operation 1 of 7", "onnx.export: writing the file", "",
    ]  # fmt: skip
    terminal.truncate(0)
    terminal.seek(0)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    steps = shown(terminal)
    assert steps[:2] == ["export: running the model", ""] and steps[-1] == ""
    assert steps[2].startswith("export.save: writing ")
    torch.onnx.export(model, (x,), verbose=False)
    assert len(shown(terminal)) == len(steps)
