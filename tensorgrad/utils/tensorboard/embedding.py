"""High-dimensional points for TensorBoard's projector, which reads them from tables next to the event files."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.utils.tensorboard.images import as_bytes, grid, png
from tensorgrad.utils.tensorboard.messages import array_of


def folder_of(tag: str, step: int) -> str:
    """Returns the directory for the tables of a tag, relative to the run's directory."""
    for sign in "%/\\":  # % first: it marks the others
        tag = tag.replace(sign, f"%{ord(sign):02x}")
    return f"{step:05d}/{tag}"


def write(
    root: Path, tag: str, step: int, points: Any, metadata: list | None, pictures: Any, header: list | None
) -> Any:
    """Writes the tables. Returns the entry for the projector's list.

    Args:
        root: the run's directory.
        tag, step: the name and step of the entry.
        points: one point per row.
        metadata: a label for each point, or a list of labels if there is a `header`.
        pictures: a picture for each point, of shape (N, C, H, W), with values from 0 to 1.
        header: the names of the labels.

    Raises:
        AssertionError: If there are not as many labels or pictures as points.
        NotADirectoryError: If there is a file in place of the directory.
    """
    from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo

    table = array_of(points)
    if table.ndim != 2:
        raise AssertionError(
            f"mat should be 2D, where mat.size(0) is the number of data points, but got shape {table.shape}"
        )
    if metadata is not None and len(metadata) != len(table):
        raise AssertionError("#labels should equal with #data points")
    if pictures is not None and len(pictures) != len(table):
        raise AssertionError("#images should equal with #data points")
    if header and metadata and len(header) != len(metadata[0]):
        raise AssertionError("len of header must be equal to the number of columns in metadata")
    sub = folder_of(tag, step)
    folder = root / sub
    if folder.is_file():
        raise NotADirectoryError(f"Path: `{folder}` exists, but is a file. Cannot proceed.")
    if folder.is_dir():
        warnings.warn("Embedding dir exists, did you set global_step for add_embedding()?", stacklevel=3)
    folder.mkdir(parents=True, exist_ok=True)

    info = EmbeddingInfo(tensor_name=f"{tag}:{step:05d}", tensor_path=f"{sub}/tensors.tsv")
    _write_rows(folder / "tensors.tsv", table.tolist())
    if metadata is not None:
        info.metadata_path = f"{sub}/metadata.tsv"
        _write_rows(folder / "metadata.tsv", [header, *metadata] if header else [[label] for label in metadata])
    if pictures is not None:
        array = array_of(pictures)
        info.sprite.image_path = f"{sub}/sprite.png"
        info.sprite.single_image_dim.extend([array.shape[3], array.shape[2]])
        (folder / "sprite.png").write_bytes(png(_sprite(array)))
    return info


def _write_rows(path: Path, rows: list) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8", newline="\n")


def _sprite(pictures: np.ndarray) -> np.ndarray:
    """Combines all pictures into one, in a square grid on a square canvas."""
    columns = math.ceil(math.sqrt(len(pictures)))
    together = as_bytes(grid(pictures, columns)).transpose(1, 2, 0)
    height, width, _ = together.shape
    canvas = np.zeros((max(height, width), width, 3), np.uint8)
    canvas[:height] = together
    return canvas
