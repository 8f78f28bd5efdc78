"""`python -m tensorgrad.compat check`: names are read from files that are not run, and looked up."""

import zipfile
from pathlib import Path

import pytest

from tensorgrad.compat import check
from tensorgrad.compat.__main__ import main
from tensorgrad.compat.names_here import found
from tensorgrad.compat.names_used import Use, names_used

PROGRAM = """
import torch, torch.nn as nn
import torch.nn.functional as F
from torch.utils import data as d
try:
    from torch.absent_for_sure import one
except ImportError:
    one = None
if hasattr(torch, "guarded_name"):
    torch.guarded_name()

def f(x: torch.Tensor, nn=3, *, how=F.relu):
    from torch import linalg
    data = x.data
    nn.not_of_torch
    y = [F.inner for F in x]
    torch.nn.functional.mish(x)
    return linalg.norm(x), F.gelu, lambda d: d.own, d.DataLoader

torch.backends.cudnn.benchmark = True
class Net(nn.Module):
    kind = torch.float32.itemsize
    def forward(self, x): return F.absent_function(x)
"""


def test_names_are_read_with_their_places():
    uses = names_used(PROGRAM)
    assert [use.name for use in uses] == [
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "torch.utils.data",
        "torch.absent_for_sure.one",
        "torch.guarded_name",
        "torch.Tensor",
        "torch.nn.functional.relu",
        "torch.linalg",
        "torch.nn.functional.mish",
        "torch.linalg.norm",
        "torch.utils.data.DataLoader",
        "torch.backends.cudnn",
        "torch.nn.Module",
        "torch.float32.itemsize",
        "torch.nn.functional.absent_function",
    ]
    by_name = {use.name: use for use in uses}
    assert by_name["torch.absent_for_sure.one"] == Use("torch.absent_for_sure.one", 6, True, True)
    assert by_name["torch.guarded_name"].guarded and not by_name["torch.Tensor"].guarded
    assert by_name["torch.Tensor"].at_import and by_name["torch.nn.functional.relu"].at_import
    assert not by_name["torch.nn.functional.absent_function"].at_import


@pytest.mark.parametrize(
    ("name", "state", "place"),
    [
        ("torch", "present", "torch"),
        ("torch.nn.Linear.forward", "present", "torch.nn.Linear.forward"),
        ("torch.nn.Linear.no_such", "absent", "torch.nn.Linear.no_such"),
        ("torch.no_such.inner", "absent", "torch.no_such"),
        ("torch.float32.itemsize", "present", "torch.float32.itemsize"),
        ("torch.ops.any.thing", "present", "torch.ops.any.thing"),
        ("torch.complex32", "present", "torch.complex32"),
        ("torch.nn.functional.scaled_grouped_mm", "refuses", "torch.nn.functional.scaled_grouped_mm"),
        ("torch._dynamo.config.suppress_errors", "present", "torch._dynamo.config.suppress_errors"),
        ("torch.nn.modules.utils._ntuple", "present", "torch.nn.modules.utils._ntuple"),
        ("functorch.vmap", "present", "functorch.vmap"),
    ],
)
def test_names_are_looked_up(name, state, place):
    assert found(name)[:2] == (state, place)


def test_a_name_that_needs_a_package_is_here(monkeypatch):
    from tensorgrad.utils import tensorboard

    def needs_a_package(name):
        raise ModuleNotFoundError("torch.utils.tensorboard needs the package tensorboard")

    monkeypatch.setattr(tensorboard, "__getattr__", needs_a_package)
    found.cache_clear()
    assert found("torch.utils.tensorboard.SummaryWriter").state == "present"


@pytest.fixture
def program(tmp_path) -> Path:
    (tmp_path / "main.py").write_text(PROGRAM)
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import not_there\nx = torch.utils.cpp_extension.load\n"
    )
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text("from torch import elsewhere\n")
    (tmp_path / "broken.py").write_text("import torch ??\n")
    return tmp_path


def test_a_folder_is_checked(program, capsys):
    assert main(["check", str(program)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "5 names of PyTorch's are not here, 1 of which stop an import" in lines[0]
    assert lines[1] == f"  {program}/train.py:2: torch.not_there: absent: the import fails"
    assert lines[2] == f"  {program}/main.py:23: torch.nn.functional.absent_function: absent: the call fails"
    assert lines[3].startswith(
        f"  {program}/train.py:3: torch.utils.cpp_extension.load: raises an error when it is used: "
    )
    assert {line.rpartition(": ")[2] for line in lines[4:6]} == {"absent; the code is prepared for that"}
    (program / "train.py").unlink()
    assert main(["check", str(program)]) == 0


def test_requirements_are_checked(tmp_path, monkeypatch, capsys):
    site = tmp_path / "site"
    for name, needs, source in (
        ("library", "inner>=1", "import torch\ntorch.not_there_at_all\n"),
        ("inner", "torch", "import torch\n"),
    ):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {needs}\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(site)
    file = tmp_path / "requirements.txt"
    file.write_text("# ours\nlibrary[all]>=1.0\nnot-installed-here\n")
    assert main(["check", str(file)]) == 1
    text = capsys.readouterr().out
    assert "library 1.0: 1 files, 1 names of PyTorch's are not here, 1 of which stop an import" in text
    assert "library/__init__.py:2: torch.not_there_at_all: absent: the import fails" in text
    assert "inner 1.0: 1 files, every name of PyTorch's that they use is here" in text
    assert "not installed, so not read: not-installed-here" in text


def test_requirements_name_other_files(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text("timm\n-r more/gpu.txt\n--requirement=more/docs.txt\nlion\n")
    (tmp_path / "more" / "gpu.txt").write_text("peft\n-r docs.txt\n")
    (tmp_path / "more" / "docs.txt").write_text("trl\n-c versions.txt\n-r ../requirements.txt\n")
    assert check.wanted(tmp_path / "requirements.txt") == ["timm", "peft", "trl", "trl", "lion"]


def test_wheels_are_read_before_they_are_installed(tmp_path, capsys):
    for name, source in (
        ("library-1.0-py3-none-any", "import torch\ntorch.not_there_at_all\n"),
        ("good-2.0-py3-none-any", "import torch\n"),
        ("other-3.0-py3-none-any", "import json\n"),
        ("torch-2.13.0-cp311-cp311-linux_x86_64", "from torch import its_own\n"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr("package/__init__.py", source)
            wheel.writestr("package/notes.txt", "torch.not_read")
    (tmp_path / "old-0.1.tar.gz").write_bytes(b"")
    library = tmp_path / "library-1.0-py3-none-any.whl"
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "good 2.0: 1 files, every name of PyTorch's that they use is here",
        "library 1.0: 1 files, 1 names of PyTorch's are not here, 1 of which stop an import",
        f"  {library}/package/__init__.py:2: torch.not_there_at_all: absent: the import fails",
        "not wheels, so not read: old-0.1.tar.gz",
    ]
    library.write_bytes(b"no archive")
    assert main(["check", str(tmp_path)]) == 2
    assert "library-1.0-py3-none-any.whl: File is not a zip file" in capsys.readouterr().err


def test_a_project_file_is_read(tmp_path):
    pytest.importorskip("tomllib", reason="Python reads this format from version 3.11")
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\ndependencies = ["timm>=1", "peft"]\n[project.optional-dependencies]\nx = ["trl"]\n')
    assert check.wanted(file) == ["timm", "peft", "trl"]


def test_what_is_not_there_is_said(tmp_path, capsys):
    assert main(["check", str(tmp_path / "no.txt")]) == 2
    assert "no.txt" in capsys.readouterr().err
