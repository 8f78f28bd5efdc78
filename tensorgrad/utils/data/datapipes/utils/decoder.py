"""Handlers that decode files by their extensions. Each is called with an extension and bytes; None: not its kind."""

from __future__ import annotations

import io
import json
import os.path
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch

__all__ = [
    "Decoder",
    "ImageHandler",
    "MatHandler",
    "audiohandler",
    "basichandlers",
    "extension_extract_fn",
    "handle_extension",
    "imagehandler",
    "mathandler",
    "videohandler",
]


def basichandlers(extension: str, data: bytes) -> Any:
    """Decodes texts, numbers, JSON, pickles and files of `torch.save`.

    >>> from tensorgrad.utils.data.datapipes.utils.decoder import basichandlers
    >>> basichandlers("json", b"[1, 2]"), basichandlers("zzz", b"")
    ([1, 2], None)
    """
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "id"):
        try:
            return int(data)
        except ValueError:
            return None
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle"):
        return pickle.loads(data)
    if extension == "pt":
        return torch.load(io.BytesIO(data))
    return None


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Callable[[str, bytes], Any]:
    """Returns the handler that calls `f` for these extensions, which spaces separate.

    >>> from tensorgrad.utils.data.datapipes.utils.decoder import handle_extension
    >>> handle_extension("up upper", bytes.upper)("up", b"a")
    b'A'
    """
    endings = [ending.split(".") for ending in extensions.lower().split()]

    def handler(key: str, data: bytes) -> Any:
        extension = key.lower().split(".")
        return f(data) if any(extension[-len(ending) :] == ending for ending in endings) else None

    return handler


imagespecs: dict[str, tuple[str, str | None, str]] = {
    "l8": ("numpy", "uint8", "l"),
    "rgb8": ("numpy", "uint8", "rgb"),
    "rgba8": ("numpy", "uint8", "rgba"),
    "l": ("numpy", "float", "l"),
    "rgb": ("numpy", "float", "rgb"),
    "rgba": ("numpy", "float", "rgba"),
    "torchl8": ("torch", "uint8", "l"),
    "torchrgb8": ("torch", "uint8", "rgb"),
    "torchrgba8": ("torch", "uint8", "rgba"),
    "torchl": ("torch", "float", "l"),
    "torchrgb": ("torch", "float", "rgb"),
    "torch": ("torch", "float", "rgb"),
    "torchrgba": ("torch", "float", "rgba"),
    "pill": ("pil", None, "l"),
    "pil": ("pil", None, "rgb"),
    "pilrgb": ("pil", None, "rgb"),
    "pilrgba": ("pil", None, "rgba"),
}


class ImageHandler:
    """Decodes images with the package pillow: to arrays (`"rgb"`), tensors (`"torchrgb"`) or images (`"pil"`)."""

    def __init__(self, imagespec: str) -> None:
        if imagespec not in imagespecs:
            raise AssertionError(f"unknown image specification: {imagespec}")
        self.imagespec = imagespec.lower()

    def __call__(self, extension: str, data: bytes) -> Any:
        if extension.lower() not in ["jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"]:
            return None
        try:
            import PIL.Image
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "Package `PIL` is required to be installed for default image decoder. Please use `pip install Pillow` "
                "to install the package"
            ) from error
        kind, number, mode = imagespecs[self.imagespec]
        with io.BytesIO(data) as stream:
            image = PIL.Image.open(stream).convert(mode.upper())
        if kind == "pil":
            return image
        array = np.array(image)
        if number == "float":
            array = array.astype(np.float32) / 255
        if kind == "numpy":
            return array
        return torch.tensor(array.transpose(2, 0, 1) if array.ndim == 3 else array[None])


def imagehandler(imagespec: str) -> ImageHandler:
    """Returns an `ImageHandler`."""
    return ImageHandler(imagespec)


def videohandler(extension: str, data: bytes) -> Any:
    """Decodes videos with torchvision."""
    if extension not in ["mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"]:
        return None
    return _in_a_file(data, f".{extension}", lambda path: _imported("torchvision.io").read_video(path))


def audiohandler(extension: str, data: bytes) -> Any:
    """Decodes sounds with torchaudio."""
    if extension not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    return _in_a_file(data, f".{extension}", lambda path: _imported("torchaudio").load(path))


def _imported(name: str) -> Any:
    import importlib

    return importlib.import_module(name)


def _in_a_file(data: bytes, suffix: str, read: Callable[[str], Any]) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"file{suffix}")
        with open(path, "wb") as file:
            file.write(data)
        return read(path)


class MatHandler:
    """Decodes MATLAB's files with SciPy."""

    def __init__(self, **loadmat_kwargs: Any) -> None:
        self.loadmat_kwargs = loadmat_kwargs

    def __call__(self, extension: str, data: bytes) -> Any:
        if extension != "mat":
            return None
        return _imported("scipy.io").loadmat(io.BytesIO(data), **self.loadmat_kwargs)


def mathandler(**loadmat_kwargs: Any) -> MatHandler:
    """Returns a `MatHandler`."""
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname: str) -> str:
    """Returns a path's extension, without the dot.

    >>> from tensorgrad.utils.data.datapipes.utils.decoder import extension_extract_fn
    >>> extension_extract_fn("a/b.tar.gz")
    'gz'
    """
    return os.path.splitext(pathname)[1].removeprefix(".")


class Decoder:
    """Decodes the values of a dictionary from paths to open files or bytes, by the first handler that can."""

    def __init__(self, *handler: Callable, key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable) -> None:
        """Adds handlers, which are asked first."""
        self.handlers = [*handler, *self.handlers]

    def decode1(self, key: str, data: Any) -> Any:
        """Decodes one file."""
        if not data:
            return data
        for handler in self.handlers:
            result = handler(key, data)
            if result is not None:
                return result
        return data

    def decode(self, data: dict[str, Any]) -> dict[str, Any]:
        """Decodes all files."""
        return {path: self._read(path, file) for path, file in data.items()}

    __call__ = decode

    def _read(self, path: str, file: Any) -> Any:
        content = file.read() if hasattr(file, "read") else file
        if hasattr(file, "close"):
            file.close()
        return self.decode1(self.key_fn(path), content)
