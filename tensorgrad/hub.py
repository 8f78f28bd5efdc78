"""`torch.hub`: loads checkpoints from URLs, and models from a folder with a `hubconf.py`.

Repositories are not fetched from GitHub: clone and review one yourself, and pass its folder with `source="local"`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlparse as urlparse  # libraries take it from here

from tensorgrad.system import folders
from tensorgrad.system.lazy_modules import whole

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_chosen: str | None = None
READ_DATA_CHUNK = 128 * 1024  # how much is read at a time
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # in a file's name, as in resnet18-5c106cde.pth


def get_dir() -> str:
    """Returns the download folder: set by `set_dir`, else `$TORCH_HOME/hub` or `~/.cache/torch/hub`, as in PyTorch.

    Raises:
        RuntimeError: If none is set and the user has no home folder.

    >>> import os
    >>> os.path.basename(torch.hub.get_dir())
    'hub'
    """
    return os.path.join(_get_torch_home(), "hub") if _chosen is None else _chosen


def _get_torch_home() -> str:
    """The folder of PyTorch's caches: `$TORCH_HOME`, or `~/.cache/torch`."""
    given = os.environ.get("TORCH_HOME")
    if given is not None:
        return os.path.expanduser(given)
    cache = folders.cache(system=False)
    if cache is None:
        raise RuntimeError("hub: the user has no home folder for downloads: set TORCH_HOME, or call torch.hub.set_dir")
    return str(cache / "torch")


def set_dir(d: str | os.PathLike) -> None:
    """Sets the download folder.

    >>> before = torch.hub.get_dir()
    >>> torch.hub.set_dir("/tmp/models")
    >>> torch.hub.get_dir()
    '/tmp/models'
    >>> torch.hub.set_dir(before)
    """
    global _chosen
    _chosen = os.path.expanduser(d)


def download_url_to_file(url: str, dst: Any, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Downloads a file. Nothing is left at `dst` unless the download is complete.

    Args:
        hash_prefix: The expected beginning of the content's SHA-256, in hexadecimal.
        progress: Ignored; no progress is shown.

    Raises:
        RuntimeError: If the hash differs.
        urllib.error.URLError: If the URL cannot be read.

    >>> import os, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source, target = (pathlib.Path(folder, name) for name in ("there", "here"))
    ...     _ = source.write_text("content")
    ...     torch.hub.download_url_to_file(source.as_uri(), target, hash_prefix="ed7002b439e9")
    ...     target.read_text()
    'content'
    """
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "tensorgrad.hub"})
    part, name = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(dst)), suffix=".part")
    try:
        with os.fdopen(part, "wb") as file, urllib.request.urlopen(request) as answer:
            while block := answer.read(READ_DATA_CHUNK):
                digest.update(block)
                file.write(block)
        found = digest.hexdigest()
        if hash_prefix is not None and not found.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
        shutil.move(name, dst)
    finally:
        if os.path.exists(name):
            os.remove(name)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """Downloads a file, unless it is already there, and loads it with `torch.load`.

    Args:
        model_dir: The folder to keep it in; by default `checkpoints` in `get_dir()`.
        check_hash: Check the SHA-256, whose beginning is part of the file name, as in `name-5c106cde.pth`.
        file_name: The name to save it as, instead of the one in the URL.

    Raises the exceptions of `download_url_to_file` and `torch.load`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = pathlib.Path(folder, "model.pt")
    ...     torch.save({"weight": torch.ones(2)}, source)
    ...     torch.hub.load_state_dict_from_url(source.as_uri(), model_dir=folder + "/kept")
    {'weight': tensor([1., 1.])}
    """
    from tensorgrad.serialization import load as load_file

    folder = model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urllib.parse.urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return load_file(path, map_location=map_location, weights_only=weights_only)


def _entries(repo_or_dir: Any, source: str) -> Any:
    """Imports a folder's `hubconf.py` as a module.

    Raises: NotImplementedError if the source is "github", ValueError if it is unknown,
    RuntimeError if one of its dependencies is missing.
    """
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(
            "hub: repositories are not fetched from GitHub. Clone the repository, review it, and pass its folder with "
            'source="local"'
        )
    folder = os.path.abspath(os.path.expanduser(repo_or_dir))
    sys.path.insert(0, folder)  # for modules in the same folder
    try:
        spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [p for p in getattr(module, "dependencies", ()) if importlib.util.find_spec(p) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(repo_or_dir: Any, model: str, source: str) -> Callable:
    entry = getattr(_entries(repo_or_dir, source), model, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return entry


def list(github: Any, force_reload: bool = False, *, source: str = "github", **options: Any) -> Any:
    """Lists the models in a folder's `hubconf.py`. Raises the exceptions of `load`.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with open(os.path.join(folder.name, "hubconf.py"), "w") as file:
    ...     _ = file.write("def five(times=1):\\n    'Five, some times.'\\n    return 5 * times\\n")
    >>> torch.hub.list(folder.name, source="local")
    ['five']
    >>> folder.cleanup()
    """
    module = _entries(github, source)
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(github: Any, model: str, force_reload: bool = False, *, source: str = "github", **options: Any) -> str | None:
    """Returns the docstring of a model's entry in `hubconf.py`. Raises the exceptions of `load`.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with open(os.path.join(folder.name, "hubconf.py"), "w") as file:
    ...     _ = file.write("def five(times=1):\\n    'Five, some times.'\\n    return 5 * times\\n")
    >>> torch.hub.help(folder.name, "five", source="local")
    'Five, some times.'
    >>> folder.cleanup()
    """
    return _entry(github, model, source).__doc__


def load(repo_or_dir: Any, model: str, *args: Any, source: str = "github", **options: Any) -> Any:
    """Returns the result of the function `model` in a folder's `hubconf.py`, called with the other arguments.

    Args:
        source: Must be "local".
        trust_repo, force_reload, verbose, skip_validation: Ignored.

    Raises:
        NotImplementedError: For repositories on GitHub.
        RuntimeError: If the entry or a dependency is missing.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with open(os.path.join(folder.name, "hubconf.py"), "w") as file:
    ...     _ = file.write("def five(times=1):\\n    'Five, some times.'\\n    return 5 * times\\n")
    >>> torch.hub.load(folder.name, "five", source="local", times=2)
    10
    >>> folder.cleanup()
    """
    for name in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        options.pop(name, None)
    return _entry(repo_or_dir, model, source)(*args, **options)


class _NoProgress:
    """What `tqdm` is here if the package is not installed: it counts and shows nothing."""

    def __init__(self, iterable: Any = None, *args: Any, **options: Any) -> None:
        self.iterable, self.n = iterable, 0

    def __iter__(self) -> Any:
        return iter(() if self.iterable is None else self.iterable)

    def update(self, n: int = 1) -> None:
        self.n += n

    def close(self) -> None:
        pass

    def __enter__(self) -> _NoProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # libraries take the progress bar from here
        try:
            return import_module("tqdm").tqdm
        except ImportError:
            return _NoProgress
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> Any:  # `list` is a function here
    return sorted({*globals(), "tqdm"})


whole(__name__)
