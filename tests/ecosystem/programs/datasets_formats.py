"""datasets: tables given as tensors, mapped, split, shuffled, saved and streamed into a data loader that trains."""

import json
import os
import sys
import tempfile

import datasets
import numpy as np
import torch
from datasets import Dataset, load_from_disk
from shared.training import some
from torch import nn

datasets.disable_progress_bars()
torch.manual_seed(0)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
path = os.path.join(folder, "table")
random = np.random.default_rng(0)
rows = {"x": random.normal(size=(60, 4)).astype("float32").tolist(), "y": (np.arange(60) % 3).tolist(),
        "text": [f"row {i}" for i in range(60)], "image": random.integers(0, 255, (60, 2, 3)).tolist()}  # fmt: skip
if not os.path.exists(path):
    made = Dataset.from_dict(rows).with_format("torch")
    made = made.map(lambda batch: {"norm": batch["x"].norm(dim=1)}, batched=True, batch_size=20)
    made.save_to_disk(path)
data = load_from_disk(path).with_format("torch")
split = data.train_test_split(test_size=12, seed=3)
loader = torch.utils.data.DataLoader(split["train"].with_format("torch", columns=["x", "y", "norm"]), batch_size=16)
model = nn.Linear(4, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
losses = []
for batch in loader:
    optimizer.zero_grad()
    loss = (nn.functional.cross_entropy(model(batch["x"]), batch["y"], reduction="none") * batch["norm"]).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
numbers = {"weight": some(model.weight), "norms": data["norm"][:4].tolist()}
numbers["dtypes"] = [str(data[0][name].dtype) for name in ("x", "y", "image", "norm")]
numbers["shapes"] = [list(data[:5]["x"].shape), list(data[7:9]["image"].shape)]
stream = data.to_iterable_dataset(num_shards=4).shuffle(seed=2, buffer_size=10).with_format("torch")
workers = torch.utils.data.DataLoader(stream.select_columns(["x", "y"]), batch_size=10, num_workers=2)
numbers["streamed"] = [sum(batch["y"].sum().item() for batch in workers), sum(b["x"].sum().item() for b in workers)]
doubled = data.with_format("torch", dtype=torch.float64, columns=["x"])
numbers["double"] = [str(doubled[0]["x"].dtype), *doubled[3]["x"].tolist()]
numbers["filtered"] = [len(data.filter(lambda row: row["y"] == 1)), *data.sort("norm")["norm"][:3].tolist()]
numbers["predicted"] = data.map(lambda b: {"out": model(b["x"]).argmax(1)}, batched=True)["out"][:12].tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
