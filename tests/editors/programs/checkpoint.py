"""Saving and loading, linear algebra with named results, NumPy, dtypes and devices."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return int(checkpoint["epoch"])


def spectrum(matrix: torch.Tensor) -> tuple[torch.Tensor, float]:
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    low = torch.linalg.eigh(matrix @ matrix.mT).eigenvalues
    assert torch.allclose(u @ torch.diag(s) @ vh, matrix, atol=1e-4)
    ordered = s.sort(descending=True)
    middle, index = torch.median(low, dim=0)
    return ordered.values, middle.item() + index.item()


def main() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    print(torch.load(buffer, weights_only=False))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = torch.from_numpy(array).clone().to(torch.float64)
    x[x > 2] = 0
    x[:, 1:] += 1
    rows: list[list[float]] = x.tolist()
    print(spectrum(x), rows, x.numpy().dtype, x.element_size(), torch.finfo(x.dtype).eps, torch.get_default_dtype())
    half = torch.zeros(2, 3, dtype=torch.float16, device=torch.device("cpu")).to("cpu", torch.float32, copy=True)
    print(half.shape == x.shape, half.stride(), torch.where(x > 0, x, -x).amax(dim=(0, 1)), x.max().item(), len(x))
    a, b = torch.unbind(x, dim=0)
    print(torch.einsum("i,j->ij", a, b), torch.stack([a, b]).sum(dim=0, keepdim=True), (a > b).any(), ~(a > b))
    path = Path("checkpoint.pt")
    save(path, model, optimizer, 3)
    print(load(path, model, optimizer))
    path.unlink()


if __name__ == "__main__":
    main()
