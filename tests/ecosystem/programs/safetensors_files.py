"""safetensors' files: what is trained is saved and loaded, whole, in slices, and shared tensors once."""

import json
import os
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids))


model, ids = Tied(), torch.arange(16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(ids), ids.roll(1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "model.safetensors")
types = os.path.join(folder, "types.safetensors")
each = {
    str(dtype).partition(".")[2]: torch.arange(6).reshape(2, 3).to(dtype)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                  torch.int8, torch.uint8, torch.bool, torch.complex64)
}  # fmt: skip
if not os.path.exists(file):
    save_model(model, file)
    save_file(each, types, metadata={"format": "pt"})
other = Tied()
missing, unexpected = load_model(other, file)
assert not missing and not unexpected and other.head.weight is other.embedding.weight
torch.testing.assert_close(other(ids), model(ids), rtol=1e-4, atol=1e-5)
read = load_file(types)
assert {name: tensor.dtype for name, tensor in read.items()} == {name: tensor.dtype for name, tensor in each.items()}
assert all(torch.equal(read[name], each[name]) for name in each)
assert torch.equal(load(save({"a": each["float32"]}))["a"], each["float32"])
with safe_open(types, framework="pt", device="cpu") as opened:
    assert opened.metadata() == {"format": "pt"} and sorted(opened.keys()) == sorted(each)
    part = opened.get_slice("int64")[:, 1:]
try:
    save_file({"a": model.head.weight, "b": model.embedding.weight}, os.path.join(folder, "shared.safetensors"))
    raise AssertionError("shared memory was not noticed")
except RuntimeError as error:
    assert "share memory" in str(error)
print(json.dumps({"losses": losses, "numbers": {"part": part.tolist(), "weight": model.head.weight[0].tolist()}}))
