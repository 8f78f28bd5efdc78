"""PyTorch's own test files, run with tensorgrad in torch's place, beside torch.

    python -m tests.conformance.upstream /path/to/pytorch/test test_indexing.py nn/test_init.py
    python -m tests.conformance.upstream /path/to/pytorch/test test_torch.py -k gather -v

Needs the folder `test` of a checkout of PyTorch, and torch, whose test utilities (`torch.testing._internal`) are loaded
with tensorgrad as their `torch`. What counts are the tests that pass under torch here. Prints how many of them pass
under tensorgrad and, with -v, the others with the last line of their errors. What torch said is kept in --keep.
A test may take 20 seconds, or --seconds. With --every 10 only each tenth test of a file runs.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import faulthandler
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from collections.abc import Iterable
from pathlib import Path

# Modules of torch that are test utilities, or plain Python beside the library, and so serve both.
BORROWED = (
    "torch.testing._internal", "torch.testing._comparison", "torch.testing._utils",
    "torch.utils._import_utils", "torch.utils._mode_utils", "torch._vendor",
)  # fmt: skip

# What the utilities ask at import of names that tensorgrad has no use for.
ANSWERS = {
    "_C._get_privateuse1_backend_name": lambda: "privateuseone",
    "_C._jit_set_emit_hooks": lambda *hooks: None,
    "_utils._is_privateuse1_backend_available": lambda: False,
    "_logging.scribe.open_source_signpost": lambda **options: None,
    "_C._DisableTorchDispatch": contextlib.nullcontext,
    "_C._DisableFuncTorch": contextlib.nullcontext,
    "_dynamo.disable": lambda function: function,  # asked of a library that has no compiler
}

# What they are told so that more tests run: those of sparse products, which PyTorch leaves to MKL.
CLAIMS = {"backends.mkl.is_available": lambda: True}

DTYPES = (  # that the utilities list; only their names are there
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "quint8", "qint8", "qint32", "quint4x2", "quint2x4", *(f"uint{n}" for n in range(1, 8)),
    *(f"int{n}" for n in range(1, 8)), "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
)  # fmt: skip

_loading = 0  # how many modules are just being imported


class Missing:
    """Stands for a name that tensorgrad has not. While modules are imported it does
    nothing; afterwards its use is an error.
    """

    def __init__(self, name: str):
        self.__dict__["_name"] = name

    __all__ = ()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        if not _loading:
            raise AttributeError(f"missing name: {self._name}")
        if len(args) == 1 and callable(args[0]) and not kwargs:  # a decorator
            return args[0]
        return Missing(self._name)

    def __mro_entries__(self, bases):
        return ()

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __instancecheck__(self, value):
        return False

    def __subclasscheck__(self, cls):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __iter__(self):
        return iter(())

    def __repr__(self):
        return f"<missing {self._name}>"

    def __bool__(self):
        return False


class MissingModule(types.ModuleType):
    """A module that tensorgrad has not, full of missing names."""

    __all__ = ()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")


def take(module: str, name: str):
    """What `from module import name` gives, or a `Missing`."""
    answer = f"{module}.{name}".partition(".")[2]
    if answer in ANSWERS:
        return ANSWERS[answer]
    try:
        source = importlib.import_module(module)
    except ImportError:
        return Missing(f"{module}.{name}")
    try:
        return getattr(source, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module}.{name}")
        except ImportError:
            return older(module, name)


_checkout: Path  # the folder of the checkout, set by `child`


def older(module: str, name: str):
    """A name that the installed test utilities no longer have, from those of the checkout; or a `Missing`."""
    file = _checkout.joinpath(*module.split(".")).with_suffix(".py")
    if not module.startswith(BORROWED) or not file.exists():
        return Missing(f"{module}.{name}")
    alias = f"checkout.{module}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, file, loader=_Loader(alias, str(file)))
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return getattr(sys.modules[alias], name, None) or Missing(f"{module}.{name}")


class Names:
    """A module whose missing names are `Missing` while modules are imported, and errors afterwards."""

    def __init__(self, module: types.ModuleType):
        self.__dict__["_module"] = module

    def __getattr__(self, name: str):
        try:
            value = getattr(self._module, name)
        except AttributeError:
            if _loading and not name.startswith("__"):
                return Missing(f"{self._module.__name__}.{name}")
            raise
        return Names(value) if isinstance(value, types.ModuleType) else value

    def __setattr__(self, name: str, value):
        setattr(self._module, name, value)

    def __delattr__(self, name: str):
        delattr(self._module, name)

    def __dir__(self):
        return dir(self._module)


def names(module: str, whole: str):
    """What `import whole` binds: its first part, or `import whole as x`: the module."""
    importlib.import_module(whole)
    return Names(sys.modules[module])


def plain(value):
    """The module behind `Names`, for the questions whether a name is there."""
    return value._module if isinstance(value, Names) else value


class _Lenient(ast.NodeTransformer):
    """Imports of torch become assignments that survive what is missing."""

    def visit_Call(self, node: ast.Call):
        self.generic_visit(node)
        asks = isinstance(node.func, ast.Name) and (node.func.id, len(node.args)) in (("getattr", 3), ("hasattr", 2))
        if asks:
            node.args[0] = ast.copy_location(
                ast.Call(ast.Name("_upstream_plain", ast.Load()), [node.args[0]], []), node
            )
        if ast.unparse(node) == "super(self.__class__, self)":  # endless where a device's class inherits it
            node.args = []
        return node

    def visit_Import(self, node: ast.Import):
        result = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top not in ("torch", "functorch"):
                result.append(ast.copy_location(ast.Import([alias]), node))
                continue
            bound = alias.name if alias.asname else top
            call = ast.Call(
                ast.Name("_upstream_names", ast.Load()), [ast.Constant(bound), ast.Constant(alias.name)], []
            )
            result.append(ast.copy_location(ast.Assign([ast.Name(alias.asname or top, ast.Store())], call), node))
        return result

    def visit_ImportFrom(self, node: ast.ImportFrom):
        if node.level or not node.module or not re.match(r"(torch|functorch)(\.|$)", node.module):
            return node
        if any(alias.name == "*" for alias in node.names):
            return node
        return [
            ast.copy_location(
                ast.Assign(
                    [ast.Name(alias.asname or alias.name, ast.Store())],
                    ast.Call(
                        ast.Name("_upstream_take", ast.Load()),
                        [ast.Constant(node.module), ast.Constant(alias.name)],
                        [],
                    ),
                ),
                node,
            )
            for alias in node.names
        ]


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a file of PyTorch's with lenient imports."""

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data, path, **options):
        tree = ast.fix_missing_locations(_Lenient().visit(ast.parse(data, path)))
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module):
        global _loading
        module.__dict__.update(_upstream_take=take, _upstream_names=names, _upstream_plain=plain)
        _loading += 1
        try:
            super().exec_module(module)
        finally:
            _loading -= 1


class _Finder(importlib.abc.MetaPathFinder):
    """Test utilities from the installed torch, PyTorch's test files, and stand-ins for modules that are missing."""

    def __init__(self, torch_folder: Path | None, tests: Path):
        self.torch, self.folders = torch_folder, [tests]

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        if self.torch and top == "torch" and fullname.startswith(BORROWED):
            return self._spec(fullname, self.torch.joinpath(*fullname.split(".")[1:]))
        if top not in ("torch", "functorch"):
            specs = (self._spec(fullname, folder.joinpath(*fullname.split("."))) for folder in self.folders)
            return next(filter(None, specs), None)
        return None

    @staticmethod
    def _spec(fullname, base):
        package = base / "__init__.py"
        if base.is_dir() and not package.exists() and base.parent.name == "test":
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(base)]
            return spec
        if package.exists():
            return importlib.util.spec_from_file_location(
                fullname, package, loader=_Loader(fullname, str(package)), submodule_search_locations=[str(base)]
            )
        file = base.with_suffix(".py")
        return (
            importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
            if file.exists()
            else None
        )


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: a module of torch that nobody has."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in ("torch", "functorch", "torchvision"):
            return (
                importlib.machinery.ModuleSpec(fullname, self, is_package=True)
                if fullname.partition(".")[0] != "torchvision"
                else None
            )
        return None

    def create_module(self, spec):
        return MissingModule(spec.name)

    def exec_module(self, module):
        pass


def beside_torch(tests: Path) -> None:
    """PyTorch's test files under torch itself, which may have no longer what a file of another version wants."""
    import torch  # noqa: F401

    sys.meta_path.insert(0, _Finder(None, tests))
    sys.meta_path.append(_Absent())


def stand_in(tests: Path) -> None:
    """Makes `torch` mean tensorgrad, with torch's test utilities beside it."""
    folder = Path(importlib.util.find_spec("torch").origin).parent
    import tensorgrad
    import tensorgrad.compat as compat

    compat.install()
    sys.meta_path.insert(0, _Finder(folder, tests))
    from tensorgrad.compat.import_hook import hook as ours

    original = ours.find_spec

    def find_spec(fullname, path=None, target=None):
        try:
            return original(fullname, path, target)
        except ModuleNotFoundError:
            parent = fullname.rpartition(".")[0]
            module = sys.modules.get(parent)
            if module is not None and not hasattr(module, "__path__"):
                module.__path__ = []
            return importlib.machinery.ModuleSpec(fullname, absent, is_package=True)

    absent = _Absent()
    ours.find_spec = find_spec
    sys.meta_path.append(absent)
    import tensorgrad.testing

    tensorgrad.testing.__path__ = [str(folder / "testing")]
    for name, answer in (ANSWERS | CLAIMS).items():
        holder, _, last = name.rpartition(".")
        try:
            module = importlib.import_module("tensorgrad." + holder)
        except ModuleNotFoundError:
            module = MissingModule("torch." + holder)
            setattr(tensorgrad, holder, module)
        if name in CLAIMS or last not in vars(module):
            setattr(module, last, answer)
    import tensorgrad.dtypes as dtypes

    class MissingDtype(dtypes.dtype):
        """A dtype of which there is only the name."""

        __slots__ = ()

        def __new__(cls, name):
            return object.__new__(cls)

        def __init__(self, name):
            self.name, self.itemsize, self.category = name, 1, dtypes.FLOATING
            self.is_floating_point, self.is_complex, self.is_signed = "float" in name, "complex" in name, True

        @property
        def numpy(self):
            if _loading:  # asked for its limits
                return dtypes.float16.numpy
            raise AttributeError(f"missing name: torch.{self.name}")

        def __reduce__(self):
            return self.name

    import tensorgrad.cuda.jiterator as jiterator

    for name in ("torch.testing._utils", "torch.utils._mode_utils"):  # attributes of their packages, as in torch
        importlib.import_module(name)
    for name in ("_create_jit_fn", "_create_multi_output_jit_fn"):  # raise an error, too late for a list of ops
        setattr(jiterator, name, Missing(f"torch.cuda.jiterator.{name}"))
    for name in DTYPES:
        if not isinstance(getattr(tensorgrad, name, None), dtypes.dtype):
            setattr(tensorgrad, name, MissingDtype(name))


# --- running -------------------------------------------------------------------------------------------------------


class TimeLimit(BaseException):
    """A test took too long."""


def _alarm(*_):
    raise TimeLimit


class Result(unittest.TestResult):
    """Writes a line for each test: its name, what became of it, the last line of its error."""

    def __init__(self, file, seconds: float):
        super().__init__()
        self.file, self.seconds = file, seconds

    def _say(self, test, outcome, error=""):
        print(json.dumps([test.id(), outcome, error]), file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.said = False
        self._say(test, "crash")
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def _failed(self, test, error):
        kind, value, traceback = error
        if kind is TimeLimit:
            self._say(test, "failed", "TimeLimit")
            return
        while value.__cause__ is not None:
            value = value.__cause__
            kind = type(value)
        place = ""
        while traceback is not None:
            name = traceback.tb_frame.f_code.co_filename
            if "/test" in name and "_internal" not in name and name != __file__:
                place = f"{Path(name).name}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        self._say(
            test,
            "failed",
            f"{place} {kind.__name__}: {' '.join(str(value).partition('To execute this')[0].split())[:300]}",
        )

    def addSuccess(self, test):
        self._say(test, "passed")

    def addError(self, test, err):
        self._failed(test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason):
        self._say(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._say(test, "passed")

    def addUnexpectedSuccess(self, test):
        self._say(test, "failed", "unexpected success")


def each(suite):
    """The tests of a suite, one by one."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from each(part)
        else:
            yield part


def child(options) -> None:
    """Runs the tests of one file under one library and writes lines."""
    global _checkout
    _checkout = options.tests.parent
    (stand_in if options.child == "tensorgrad" else beside_torch)(options.tests)
    file = options.files[0]
    finder = next(finder for finder in sys.meta_path if isinstance(finder, _Finder))
    finder.folders.insert(0, (options.tests / file).parent)
    os.chdir(options.tests)
    sys.path.append(str(options.tests))  # for folders that are packages without saying so
    sys.argv = [str(options.tests / file)]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _alarm)
    if options.child == "tensorgrad":
        common = importlib.import_module("torch.testing._internal.common_utils")
        # Around each test only the seed, nothing of the compiler and the dispatcher.
        common.TestCase._run_custom = lambda self, result=None: unittest.TestCase.run(self, result)
        common.TestCase.setUp = lambda self: common.set_rng_seed()
        common.TestCase.tearDown = lambda self: None
        common.TestCase._prev_torch_function_state = None
    module = importlib.import_module(Path(file).stem)
    done = set(options.done.read_text().splitlines())
    with open(options.lines, "a") as lines:
        result = Result(lines, options.seconds)
        found = each(unittest.defaultTestLoader.loadTestsFromModule(module))
        for test in itertools.islice(found, 0, None, options.every):
            if test.id() not in done and (not options.k or re.search(options.k, test.id())):
                test(result)


def outcomes(library: str, file: str, options, without: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """What became of each test of a file, but for some, under one library; one that ends the process is a crash."""
    kept = options.keep and Path(options.keep, f"{library}-{file.replace('/', '.')}-{options.every}.json")
    if library == "torch" and kept and kept.exists():
        return json.loads(kept.read_text())
    found: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        lines, finished = Path(folder, "lines"), Path(folder, "done")
        while True:
            finished.write_text("\n".join([*without, *found]))
            command = [sys.executable, "-m", "tests.conformance.upstream", str(options.tests), file, "--child", library]
            command += ["--lines", str(lines), "--done", str(finished), "--seconds", str(options.seconds)]
            command += ["--every", str(options.every)]
            command += ["-k", options.k] if options.k else []
            before = len(found)
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            for line in lines.read_text().splitlines() if lines.exists() else ():
                name, outcome, error = json.loads(line)
                if found.get(name, ("crash",))[0] in ("crash", "passed"):  # a failing part stays a failure
                    found[name] = (outcome, error)
            if done.returncode == 0:
                break
            if len(found) == before:
                print(f"{file} does not import under {library}:\n{done.stderr[-1500:]}", file=sys.stderr)
                break
    if found and kept and library == "torch" and not options.k:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.upstream", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("tests", type=Path, help="the folder `test` of a checkout of PyTorch")
    parser.add_argument("files", nargs="+", help="test files in it")
    parser.add_argument("-k", help="only tests whose name this expression finds")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th test of a file")
    parser.add_argument("-v", action="store_true", help="name the tests that do not pass")
    parser.add_argument("--keep", help="a folder for what torch said, which need not be run twice")
    parser.add_argument("--seconds", type=float, default=20, help="the time limit of a test")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--lines", help=argparse.SUPPRESS)
    parser.add_argument("--done", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tests = options.tests.resolve()
    if options.child:
        child(options)
        return
    total = collections.Counter()
    for file in options.files:
        theirs = outcomes("torch", file, options)
        ours = outcomes("tensorgrad", file, options, [name for name, (said, _) in theirs.items() if said != "passed"])
        counted = [
            name
            for name, (outcome, _) in theirs.items()
            if outcome == "passed" and (not options.k or re.search(options.k, name))
        ]
        passed = [name for name in counted if ours.get(name, ("absent",))[0] == "passed"]
        total["torch"] += len(counted)
        total["here"] += len(passed)
        print(f"{file}: {len(passed)} of {len(counted)}")
        if options.v:
            for name in sorted(set(counted) - set(passed)):
                print(f"  {name.partition('.')[2]}: {': '.join(ours.get(name, ('absent', '')))}")
    if len(options.files) > 1:
        print(f"all: {total['here']} of {total['torch']}")


if __name__ == "__main__":
    main()
