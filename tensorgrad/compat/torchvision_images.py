"""Reading and writing images, as torchvision's compiled part does: `torch.ops.image`, by Pillow.

Images are uint8 (16-bit grayscale: uint16), (C, H, W); files are one-dimensional uint8 tensors of their bytes. Pillow
uses the same JPEG library as torchvision, so that pixels and files are the same.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.tensor import Tensor

UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)
CHANNELS = {GRAY: 1, GRAY_ALPHA: 2, RGB: 3, RGB_ALPHA: 4}
STARTS = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG", "gif": b"GIF8", "webp": b"RIFF"}
# What libpng makes of red, green and blue when it is told 0.2989 and 0.587; they sum up to 2 ** 15.
GRAY_OF_RGB = (9794, 19235, 3739)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images are read and written by Pillow: pip install pillow") from error
    return Image


def _bytes(data: Tensor) -> bytes:
    """Returns the bytes of a file. Raises: RuntimeError if it is not a one-dimensional uint8 tensor."""
    if data.dtype is not torch.uint8:
        raise RuntimeError(f"Input tensor must have uint8 data type, got {data.dtype}")
    if data.dim() != 1 or not data.numel():
        raise RuntimeError(f"Input tensor must be 1-dimensional and non-empty, got {data.dim()} dims")
    return data.cpu().numpy().tobytes()


def _opened(data: Tensor, kind: str) -> Any:
    """Returns Pillow's image of a file of one kind. Raises: RuntimeError if it is none."""
    content = _bytes(data)
    if not content.startswith(STARTS[kind]):
        raise RuntimeError(f"Content is not {kind}! It starts with {content[:4]!r}")
    try:
        return _pillow().open(io.BytesIO(content), formats=[kind.upper()])
    except Exception as error:
        raise RuntimeError(f"decode_{kind}: {error}") from error


def _pixels(image: Any, kind: str) -> np.ndarray:
    """Returns the pixels, (H, W) or (H, W, C). Raises: RuntimeError if the file is cut off or damaged."""
    try:
        return np.asarray(image)
    except Exception as error:
        raise RuntimeError(f"decode_{kind}: {error}. The file is probably damaged.") from error


def _tensor(pixels: np.ndarray) -> Tensor:
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return torch.from_numpy(np.array(planes, order="C"))


def _turned(image: Any, wanted: bool) -> Any:
    """Returns the image as its EXIF orientation says, if that is wanted."""
    if not wanted:
        return image
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _in_mode(pixels: np.ndarray, mode: int) -> np.ndarray:
    """Returns pixels (H, W) or (H, W, C) with the channels of a mode: gray from colors, an alpha that is opaque."""
    if mode == UNCHANGED:
        return pixels
    channels = pixels if pixels.ndim == 3 else pixels[..., None]
    opaque = np.full_like(channels[..., :1], np.iinfo(channels.dtype).max)
    color, alpha = (channels[..., :-1], channels[..., -1:]) if channels.shape[2] in (2, 4) else (channels, opaque)
    if mode in (GRAY, GRAY_ALPHA) and color.shape[2] == 3:
        gray = (color.astype(np.int64) @ np.array(GRAY_OF_RGB)) >> 15
        color = gray[..., None].astype(channels.dtype)
    elif mode in (RGB, RGB_ALPHA) and color.shape[2] == 1:
        color = np.repeat(color, 3, axis=2)
    return np.concatenate([color, alpha], axis=2) if mode in (GRAY_ALPHA, RGB_ALPHA) else color


def decode_png(data: Tensor, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Returns the image in a PNG file. Without a mode, an image with a palette is the numbers of its colors.

    Raises: RuntimeError if it is not a PNG file, or if it has colors of 16 bits, which Pillow cannot read.
    """
    image = _opened(data, "png")
    start = _bytes(data)[24:26]
    if len(start) == 2 and start[0] == 16 and start[1] != 0:  # bits, and kind of color
        raise RuntimeError("decode_png: colors of 16 bits are not supported (grayscale of 16 bits is)")
    if image.mode == "P" and mode != UNCHANGED:
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    pixels = _pixels(_turned(image, apply_exif_orientation), "png")
    if pixels.dtype == np.int32:  # how older versions of Pillow have 16 bits
        pixels = pixels.astype(np.uint16)
    return _tensor(_in_mode(pixels, mode))


def decode_jpeg(data: Tensor, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Returns the image in a JPEG file. Raises: RuntimeError if it is none, or for a mode with alpha."""
    image = _opened(data, "jpeg")
    if mode in (GRAY_ALPHA, RGB_ALPHA):
        raise RuntimeError("The provided mode is not supported for JPEG files")
    if mode == GRAY and image.mode == "RGB":
        image.draft("L", image.size)  # brightness as the file has it
    wanted = {GRAY: "L", RGB: "RGB"}.get(mode, image.mode)
    try:
        image = image if image.mode == wanted else image.convert(wanted)
    except OSError as error:
        raise RuntimeError(f"decode_jpeg: {error}. The file is probably damaged.") from error
    pixels = _pixels(_turned(image, apply_exif_orientation), "jpeg")
    return _tensor(255 - pixels if image.mode == "CMYK" else pixels)  # as in the file, where 0 is full ink


def decode_gif(data: Tensor) -> Tensor:
    """Returns the image in a GIF file, (3, H, W), or its images, (N, 3, H, W), if there are several."""
    image = _opened(data, "gif")
    frames = []
    for i in range(getattr(image, "n_frames", 1)):
        image.seek(i)
        frames.append(_tensor(_pixels(image.convert("RGB"), "gif")))
    return torch.stack(frames) if len(frames) > 1 else frames[0]


def decode_webp(data: Tensor, mode: int = UNCHANGED) -> Tensor:
    """Returns the image in a WebP file, with alpha if it has one or the mode says so."""
    image = _opened(data, "webp")
    if mode in (GRAY, GRAY_ALPHA):
        raise RuntimeError("The provided mode is not supported for WEBP files")
    return _tensor(_in_mode(_pixels(image, "webp"), mode))


def decode_image(data: Tensor, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Returns the image in a JPEG, PNG, GIF or WebP file. Raises: RuntimeError if it is none of these."""
    if data.dtype is not torch.uint8:
        raise RuntimeError("Expected a torch.uint8 tensor")
    if data.dim() != 1 or not data.numel():
        raise RuntimeError("Expected a non empty 1-dimensional tensor")
    content = _bytes(data[:12])
    kind = next((kind for kind, start in STARTS.items() if content.startswith(start)), "")
    if kind == "jpeg":
        return decode_jpeg(data, mode, apply_exif_orientation)
    if kind == "png":
        return decode_png(data, mode, apply_exif_orientation)
    if kind == "gif":
        return decode_gif(data)
    if kind == "webp":
        return decode_webp(data, mode)
    raise RuntimeError("Unsupported image file. Only jpeg, png, webp and gif are currently supported.")


def _image(image: Tensor) -> Any:
    """Returns Pillow's image of a tensor. Raises: RuntimeError if it is not one of 1 or 3 channels of uint8."""
    if image.device.type != "cpu":
        raise RuntimeError("Input tensor should be on CPU")
    if image.dtype is not torch.uint8:
        raise RuntimeError("Input tensor dtype should be uint8")
    if image.dim() != 3:
        raise RuntimeError("Input data should be a 3-dimensional tensor")
    if image.shape[0] not in (1, 3):
        raise RuntimeError(f"The number of channels should be 1 or 3, got: {image.shape[0]}")
    pixels = image.detach().numpy()
    return _pillow().fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def _file(image: Any, kind: str, **options: Any) -> Tensor:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return torch.from_numpy(np.frombuffer(out.getbuffer(), np.uint8).copy())


def encode_png(image: Tensor, compression_level: int = 6) -> Tensor:
    """Returns a PNG file of an image (1 or 3, H, W)."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError("Compression level should be between 0 and 9")
    return _file(_image(image), "PNG", compress_level=compression_level)


def encode_jpeg(image: Tensor, quality: int = 75) -> Tensor:
    """Returns a JPEG file of an image (1 or 3, H, W). `quality` is from 1 to 100."""
    if not 1 <= quality <= 100:
        raise RuntimeError("Image quality should be a positive number between 1 and 100")
    return _file(_image(image), "JPEG", quality=quality)


def read_file(path: str) -> Tensor:
    """Returns the bytes of a file."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{path}'") from error
    if not content:
        raise RuntimeError(f"Expected a non empty file: '{path}'")
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())


def write_file(path: str, data: Tensor) -> None:
    """Writes bytes into a file."""
    if data.dtype is not torch.uint8:
        raise RuntimeError("Input tensor dtype should be uint8")
    if data.dim() != 1:
        raise RuntimeError("Input data should be a 1-dimensional tensor")
    content = data.cpu().numpy().tobytes()
    with open(path, "wb") as file:
        file.write(content)


OPERATORS = {
    f.__name__: f
    for f in (
        decode_gif, decode_image, decode_jpeg, decode_png, decode_webp, encode_jpeg, encode_png, read_file, write_file,
    )
}  # fmt: skip
