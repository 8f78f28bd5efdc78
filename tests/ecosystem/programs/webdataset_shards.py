"""webdataset: samples written as shards with tensors in them, shuffled, decoded and batched by loaders, train."""

import json
import os
import sys
import tempfile

import torch
import webdataset as wds
from shared.training import some
from torch import nn

torch.manual_seed(0)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
shards = os.path.join(folder, "digits-%06d.tar")
if not os.path.exists(shards % 0):
    with wds.ShardWriter(shards, maxcount=16, verbose=0) as sink:
        for i in range(48):
            sink.write({"__key__": f"sample{i:04d}", "x.pth": torch.randn(5) + i % 3, "y.cls": i % 3,
                        "note.json": {"at": i}})  # fmt: skip
urls = os.path.join(folder, "digits-{000000..000002}.tar")
data = wds.WebDataset(urls, shardshuffle=False).shuffle(20, initial=20, seed=1).decode().to_tuple("x.pth", "y.cls")
torch.manual_seed(1)  # as much was drawn, or not, where the shards were there
model = nn.Linear(5, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
losses, seen = [], []
for x, y in wds.WebLoader(data.batched(16), batch_size=None, num_workers=0):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), torch.as_tensor(y))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seen += torch.as_tensor(y).tolist()
pipeline = wds.DataPipeline(
    wds.SimpleShardList(urls), wds.split_by_worker, wds.tarfile_to_samples(), wds.decode(), wds.to_tuple("x.pth", "note.json"),
    wds.map_tuple(lambda x: x * 2, lambda note: note["at"]), wds.batched(10),
)  # fmt: skip
loader = wds.WebLoader(pipeline, batch_size=None, num_workers=2).unbatched().shuffle(0).batched(12)
places = sorted(int(i) for _, notes in loader for i in notes)
numbers = {"seen": sorted(seen), "weight": some(model.weight), "places": places}
numbers["total"] = [sum(x.sum().item() for x, _ in pipeline)]
print(json.dumps({"losses": losses, "numbers": numbers}))
