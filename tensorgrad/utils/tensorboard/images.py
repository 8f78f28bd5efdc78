"""Images for TensorBoard: encodes arrays with any order of dimensions, figures and videos in memory."""

from __future__ import annotations

import io
import math
import struct
import sys
import zlib
from typing import Any

import numpy as np

from tensorgrad.utils.tensorboard.messages import array_of, messages

COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG color type: gray, gray with alpha, RGB, RGB with alpha


def image(tag: str, picture: Any, dataformats: str = "CHW") -> Any:
    """An entry for one image, or for several in a grid.

    Args:
        picture: values from 0 to 255 for uint8, otherwise from 0 to 1; values outside the range are clipped.
        dataformats: the order of the dimensions, as the letters H, W, C and N.
    """
    return _entry(tag, as_bytes(to_hwc(array_of(picture), dataformats)))


def image_with_boxes(
    tag: str, picture: Any, boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: list | None = None
) -> Any:
    """An image with red boxes, each `(xmin, ymin, xmax, ymax)`, and a label at the lower left corner of each."""
    Image, ImageDraw = _pillow("add_image_with_boxes")
    drawn = Image.fromarray(as_bytes(to_hwc(array_of(picture), dataformats)))
    draw = ImageDraw.Draw(drawn)
    for i, (left, top, right, bottom) in enumerate(array_of(boxes).reshape(-1, 4).tolist()):
        draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], fill="red", width=2)
        if labels is not None:
            _, _, width, height = draw.textbbox((0, 0), labels[i])
            draw.rectangle([(left, bottom - height), (left + width, bottom)], fill="red")
            draw.text((left, bottom - height), labels[i], fill="black")
    width, height = drawn.size
    if rescale != 1:
        drawn = drawn.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    return _entry(tag, np.asarray(drawn))


def video(tag: str, films: Any, fps: float = 4) -> Any:
    """Videos of shape `(N, T, C, H, W)`, side by side in one GIF."""
    Image, _ = _pillow("add_video")
    array = array_of(films)
    if array.ndim != 5:
        raise ValueError(f"add_video: expected a tensor of shape (N, T, C, H, W), but got {array.shape}")
    array = as_bytes(array)
    columns = 2 ** math.ceil(math.log2(max(1, len(array))) / 2)
    frames = [grid(array[:, t], columns).transpose(1, 2, 0) for t in range(array.shape[1])]
    pictures = [Image.fromarray(frame) for frame in frames]
    file = io.BytesIO()
    pictures[0].save(
        file, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0
    )  # fmt: skip
    height, width, channels = frames[0].shape
    kind = messages().Summary
    content = kind.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())
    return kind(value=[kind.Value(tag=tag, image=content)])


def _entry(tag: str, array: np.ndarray) -> Any:
    height, width, channels = array.shape
    kind = messages().Summary
    content = kind.Image(height=height, width=width, colorspace=channels, encoded_image_string=png(array))
    return kind(value=[kind.Value(tag=tag, image=content)])


def _pillow(name: str) -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"{name} needs the package pillow: pip install pillow", name="PIL") from None
    return Image, ImageDraw


# --- arrays --------------------------------------------------------------------------------------------------------


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Converts values to uint8, from 0 to 255."""
    if array.dtype == np.uint8:
        return array
    return (array.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)


def to_hwc(array: np.ndarray, dataformats: str) -> np.ndarray:
    """Converts an image to (height, width, channels); a batch (N) becomes a grid with rows of eight.

    Raises: AssertionError if the letters do not fit the array, or one is repeated.
    """
    letters = dataformats.upper()
    if len(set(letters)) != len(letters):
        raise AssertionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if array.ndim != len(letters):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, input_format: "
            f"{dataformats}"
        )
    wanted = {2: "HW", 3: "HWC", 4: "NCHW"}.get(len(letters))
    if wanted is None or set(wanted) != set(letters):
        raise AssertionError(
            f"dataformats should have the letters HW, CHW or NCHW in any order, but got {dataformats!r}"
        )
    array = array.transpose([letters.index(letter) for letter in wanted])
    if wanted == "NCHW":
        return grid(array, 8).transpose(1, 2, 0)
    if wanted == "HW":
        array = array[..., None]
    return array.repeat(3, axis=2) if array.shape[2] == 1 else array


def grid(pictures: np.ndarray, columns: int) -> np.ndarray:
    """Arranges images (N, C, H, W) in a grid, as one image (3, rows · H, columns · W); unused cells are black.

    Raises: AssertionError unless there are one or three channels.
    """
    n, channels, height, width = pictures.shape
    if channels not in (1, 3):
        raise AssertionError(f"Input should be a 4D numpy array with 3 channels, but got shape {pictures.shape}")
    columns = max(1, min(n, columns))
    rows = -(-n // columns)
    canvas = np.zeros((rows * columns, 3, height, width), pictures.dtype)
    canvas[:n] = pictures
    canvas = canvas.reshape(rows, columns, 3, height, width).transpose(2, 0, 3, 1, 4)
    return canvas.reshape(3, rows * height, columns * width)


def png(array: np.ndarray) -> bytes:
    """Encodes bytes (H, W, C) as a PNG file.

    Source: PNG specification, third edition (W3C 2025); each row is stored as its difference from the one above
    (filter 2).
    """
    height, width, channels = array.shape
    if channels not in COLOURS:
        raise ValueError(f"expected an image with 1 to 4 channels, but got shape {array.shape}")
    rows = array.reshape(height, width * channels)
    differences = np.empty((height, 1 + width * channels), np.uint8)
    differences[:, 0] = 2
    differences[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=differences[1:, 1:])  # wraps around modulo 256, as PNG requires

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    data = zlib.compress(differences.tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def figure_to_image(figures: Any, close: bool = True) -> np.ndarray:
    """Renders a Matplotlib figure as (C, H, W), or a list of them as (N, C, H, W).

    With `close`, the figures are closed in pyplot afterwards.
    """
    if isinstance(figures, list):
        return np.stack([figure_to_image(figure, close) for figure in figures])
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "add_figure needs the package matplotlib: pip install matplotlib", name="matplotlib"
        ) from None
    canvas = FigureCanvasAgg(figures)
    canvas.draw()
    picture = np.array(canvas.buffer_rgba())[..., :3].transpose(2, 0, 1)
    if close and "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figures)
    return picture
