"""`torch` is tensorgrad in metadata, in the processes that a program starts, and in a whole environment."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy
import pytest

import tensorgrad as tg
from tensorgrad import compat
from tensorgrad.compat import type_stubs
from tensorgrad.compat.__main__ import main
from tests.support.processes import ROOT, environment, not_copied, output_of, run_python

TELL = "import torch, importlib.metadata as m; print(torch.__package__, m.version('torch'))"


@pytest.fixture
def installed():
    compat.install()
    yield
    compat.uninstall()


def test_metadata_asks_for_what_libraries_expect_of_torch(installed):
    """pip brings these beside libraries, which use them without asking for them themselves."""
    assert importlib.metadata.requires("torch") == ["jinja2", "typing-extensions>=4.10.0"]


def test_metadata_says_the_version_that_is_followed(installed):
    assert importlib.metadata.version("torch") == tg.__version__ == importlib.metadata.distribution("Torch").version
    assert importlib.metadata.metadata("torch")["Name"] == "torch"
    assert "torch" in importlib.metadata.packages_distributions()["functorch"]


def test_metadata_of_another_folder_is_not_touched(installed, tmp_path):
    assert not list(importlib.metadata.distributions(name="torch", path=[str(tmp_path)]))


def test_metadata_before_and_after_is_the_same():
    def version():
        try:
            return importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            return None

    before = version()
    compat.install()
    compat.uninstall()
    assert version() == before


def test_processes_of_any_kind_see_tensorgrad(tmp_path):
    """Also in a folder from which tensorgrad cannot be imported, and grandchildren."""
    (tmp_path / "child.py").write_text(TELL)
    program = tmp_path / "program.py"
    inner = "import subprocess, sys; subprocess.run([sys.executable, 'child.py'], check=True)"
    program.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}], check=True)\n")
    runner = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tensorgrad.run import main; main([{str(program)!r}])"
    printed = output_of(runner, cwd=tmp_path, env=environment("PYTHONPATH", "TENSORGRAD_COMPAT"))
    assert printed.split() == ["tensorgrad", tg.__version__]


def test_a_module_of_torchs_runs_as_the_main_program():
    printed = output_of(None, "-m", "tensorgrad.run", "-m", "torch.utils.collect_env")
    assert "2.13.0" in printed


def test_processes_start_without_importing_tensorgrad_and_keep_their_sitecustomize(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('the own one', __name__)")
    startup = os.path.join(os.path.dirname(compat.__file__), "startup")
    given = environment(PYTHONPATH=os.pathsep.join([startup, str(tmp_path)]))
    ask = "import sys; print('tensorgrad' in sys.modules, 'tensorgrad.compat.import_hook' in sys.modules)"
    for switch, hooked in (("1", "True"), ("0", "False")):
        printed = output_of(ask, env={**given, "TENSORGRAD_COMPAT": switch}).splitlines()
        assert printed == ["the own one sitecustomize", f"False {hooked}"]


def test_enable_is_refused_where_torch_is_installed(monkeypatch, tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    given = environment("PYTHONPATH", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    done = run_python(None, "-m", "tensorgrad.compat", "enable", env=given, cwd=tmp_path)
    assert done.returncode == 1 and str(package) in done.stderr and len(done.stderr.splitlines()) == 1
    assert run_python(None, "-m", "tensorgrad.compat").returncode == 2


class Environment:
    """An environment of its own, whose NumPy is this one's; `site` is its folder of packages."""

    def __init__(self, folder):
        venv.create(folder / "env", with_pip=False)
        self.folder = folder
        self.python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.site = Path(self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        for package in (os.path.dirname(numpy.__file__), os.path.dirname(numpy.__file__) + ".libs"):
            if os.path.exists(package):
                os.symlink(package, self.site / os.path.basename(package))
        (self.site / "another.py").write_text("")  # pip removes the folder if nothing else is in it

    def run(self, *arguments, **added):
        given = environment("PYTHONPATH", "TENSORGRAD_COMPAT")
        done = subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, cwd=self.folder, env={**given, **added}
        )
        return done.stdout + done.stderr

    def command(self, name, **added):
        return self.run("-m", "tensorgrad.compat", name, **added)

    def install(self, editable=None):
        """Does what pip does; `editable` is a folder that Python is told to look in instead."""
        if editable is None:
            shutil.copytree(ROOT / "tensorgrad", self.site / "tensorgrad", ignore=_LEFT_OUT)
        else:
            shutil.copytree(ROOT / "tensorgrad", editable / "tensorgrad", ignore=_LEFT_OUT)
            (self.site / "_tensorgrad.pth").write_text(f"{editable}\n")
        about = self.site / "tensorgrad-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.4\nName: tensorgrad\nVersion: 0.1.0\n")
        (about / "INSTALLER").write_text("pip\n")
        files = [path for path in self.site.rglob("*") if path.is_file()]
        files = [path for path in files if not path.relative_to(self.site).parts[0].startswith(("numpy", "another"))]
        lines = [f"{path.relative_to(self.site).as_posix()},," for path in [*files, about / "RECORD"]]
        (about / "RECORD").write_text("\n".join([*lines, ""]))

    def left(self):
        """The names in the folder of packages, without NumPy's and those that were there before."""
        names = {
            path.name for path in self.site.iterdir() if not path.name.startswith(("numpy", "distutils", "_virtualenv"))
        }
        return names - {"another.py", "__pycache__", "pip", "setuptools", "wheel"}


_LEFT_OUT = not_copied("images")
WHERE = "import torch; print(torch.__file__)"


@pytest.fixture
def own(tmp_path):
    return Environment(tmp_path)


def test_enable_and_disable(own):
    """Typed in the folder of a checkout, too, it is the installed package that programs get."""
    own.install()
    assert re.match("not enabled: `import torch` is nothing", own.command("status"))
    assert re.match("enabled", own.command("enable", PYTHONPATH=str(ROOT)))
    assert own.command("status").startswith(f"enabled: `import torch` is tensorgrad, in {own.site} ")
    assert own.run("-c", TELL).split() == ["tensorgrad", tg.__version__]
    assert own.run("-c", WHERE).strip() == str(own.site / "tensorgrad" / "__init__.py")
    assert own.run("-c", "import sys; print('tensorgrad' in sys.modules)").strip() == "False"
    assert str(ROOT) not in (own.site / "torch_is_tensorgrad.pth").read_text()
    assert type_stubs.is_ours(str(own.site / "torch-stubs"))  # for editors: tests/editors
    assert re.match("disabled", own.command("disable")) and re.match("nothing to do", own.command("disable"))
    assert "No module named 'torch'" in own.run("-c", "import torch")
    assert not (own.site / "torch-stubs").exists()
    record = (own.site / "tensorgrad-0.1.0.dist-info" / "RECORD").read_text()
    assert "torch_is_tensorgrad" not in record and "torch-stubs" not in record
    assert sys.executable != str(own.python)


# Not by `find_spec`: setuptools takes that for a run of pip, and hides its own distutils from this process.
HAS_PIP = bool(list(importlib.metadata.distributions(name="pip")))


@pytest.mark.skipif(not HAS_PIP, reason="pip is not installed")
def test_nothing_is_left_when_the_package_is_uninstalled(own):
    own.install()
    for _ in range(2):  # the second time changes nothing
        assert re.match("enabled", own.command("enable"))
    pip = [sys.executable, "-m", "pip", "--python", str(own.python), "uninstall", "--yes", "tensorgrad"]
    done = subprocess.run(pip, capture_output=True, text=True, env=environment("PYTHONPATH"), cwd=own.folder)
    assert done.returncode == 0, done.stderr
    assert not own.left()


def test_enable_is_refused_where_the_package_is_only_imported(own):
    said = own.command("enable", PYTHONPATH=str(ROOT))
    assert "tensorgrad is not installed in this environment" in said and str(ROOT) in said
    assert said.count("\n") == 1 and not own.left()


def test_status_says_so_when_the_package_is_gone(own, tmp_path):
    """As when the folder of an editable installation was moved."""
    own.install(editable=tmp_path / "checkout")
    assert re.match("enabled", own.command("enable"))
    assert f"is tensorgrad, in {tmp_path / 'checkout'} " in own.command("status")
    os.rename(tmp_path / "checkout", tmp_path / "moved")
    said = own.command("status", PYTHONPATH=str(ROOT))
    assert re.match("enabled, but without effect, .*: `import torch` is nothing", said)
    assert "No module named 'torch'" in own.run("-c", "import torch")


def test_stubs_are_written_and_removed_and_nothing_else_is(tmp_path, capsys):
    assert main(["stubs", str(tmp_path)]) == 0
    folder = tmp_path / "torch"
    for file in ("__init__.pyi", "nn/functional.pyi", "optim/lr_scheduler/__init__.pyi", "py.typed"):
        assert (folder / file).exists()
    assert not (folder / "kernels").exists()
    assert main(["stubs", str(tmp_path)]) == 0 and main(["stubs"]) == 2
    assert type_stubs.remove(str(folder)) and not folder.exists() and not type_stubs.remove(str(folder))
    folder.mkdir()
    (folder / "mine.pyi").touch()
    assert main(["stubs", str(tmp_path)]) == 1 and not type_stubs.remove(str(folder))
    assert "is not empty" in capsys.readouterr().err and (folder / "mine.pyi").exists()
