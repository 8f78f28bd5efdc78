"""`torch` is tensorgrad in metadata, in the processes that a program starts, and in a whole environment."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv

import pytest

import tensorgrad as tg
from tensorgrad import compat
from tensorgrad.compat import type_stubs
from tensorgrad.compat.__main__ import main
from tests.support.processes import ROOT, environment, output_of, run_python

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


def test_enable_and_disable(tmp_path):
    """In an environment of its own, whose NumPy is this one's."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    ).stdout.strip()
    import numpy

    for package in (os.path.dirname(numpy.__file__), os.path.dirname(numpy.__file__) + ".libs"):
        if os.path.exists(package):
            os.symlink(package, os.path.join(site, os.path.basename(package)))
    given = environment("PYTHONPATH", "TENSORGRAD_COMPAT")

    def run(*arguments, **added):
        done = subprocess.run(
            [python, *arguments], capture_output=True, text=True, cwd=tmp_path, env={**given, **added}
        )
        return done.stdout + done.stderr

    def command(name):
        return run("-m", "tensorgrad.compat", name, PYTHONPATH=str(ROOT))

    assert re.match("not enabled: `import torch` is nothing", command("status"))
    assert re.match("enabled", command("enable")) and re.match("enabled", command("status"))
    assert run("-c", TELL).split() == ["tensorgrad", tg.__version__]
    assert type_stubs.is_ours(os.path.join(site, "torch-stubs"))  # for editors: tests/editors
    assert run("-c", "import sys; print('tensorgrad' in sys.modules)").strip() == "False"
    assert re.match("disabled", command("disable")) and not os.path.exists(os.path.join(site, "torch-stubs"))
    assert re.match("nothing to do", command("disable"))
    assert "No module named 'torch'" in run("-c", "import torch")
    assert sys.executable != str(python)


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
