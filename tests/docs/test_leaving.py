"""The page on leaving and arriving, with the programs that need other packages."""

import importlib.util
from pathlib import Path

import pytest

from tests.docs.test_docs import FENCE
from tests.onnx.compare import NEEDS

PAGE = Path(__file__).parents[2] / "docs" / "leaving.md"


def blocks():
    return [code for language, code in FENCE.findall(PAGE.read_text(encoding="utf-8")) if language in ("py", "python")]


def test_the_programs_run_and_agree_with_onnxruntime(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason=NEEDS)
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for code in blocks():
        if "silero_vad" not in code:
            exec(code, scope)
    printed = capsys.readouterr().out.split("\n")
    assert printed.count("True") == 5 and "False" not in printed


def test_silero_vad_hears_a_vowel(capsys):
    if importlib.util.find_spec("silero_vad") is None:
        pytest.skip("the package silero-vad, whose files are loaded, is not installed")
    import tensorgrad as torch

    (code,) = (code for code in blocks() if "silero_vad" in code)
    exec(code, {"torch": torch})
    assert "False" not in capsys.readouterr().out
