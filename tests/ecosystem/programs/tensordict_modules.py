"""tensordict: modules that read and write entries, a data class of tensors, parameters as a tree, files in memory."""

import json
import tempfile

import torch
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)


@tensorclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


data = TensorDict({"x": torch.randn(6, 4), "deep": {"target": torch.randn(6, 2)}}, batch_size=[6])
model = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(4, 8), in_keys=["x"], out_keys=["hidden"]),
    TensorDictModule(torch.tanh, in_keys=["hidden"], out_keys=["hidden"]),
    TensorDictModule(torch.nn.Linear(8, 2), in_keys=["hidden"], out_keys=[("deep", "output")]),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    found = model(data.clone())
    loss = (found["deep", "output"] - found["deep", "target"]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

parameters = TensorDict.from_module(model)
with torch.no_grad(), parameters.data.apply(lambda p: p * 0.5).to_module(model):
    halved = model(data.clone())["deep", "output"]
pairs = Pair(torch.arange(6.0).view(3, 2), torch.ones(3), batch_size=[3])
stacked = torch.stack([pairs, pairs.apply(lambda x: x * 2)], 1)
with tempfile.TemporaryDirectory() as folder:
    data.memmap(folder)
    loaded = TensorDict.load_memmap(folder)["deep", "target"].clone()
    state = model.state_dict()
    torch.save(state, f"{folder}/model.pt")
    model.load_state_dict(torch.load(f"{folder}/model.pt"))
numbers = {
    "halved": halved.tolist(),
    "loaded": loaded.tolist(),
    "stacked": stacked.left[:, 1].tolist(),
    "sums": [v.sum().item() for _, v in sorted(data.flatten_keys(".").items())],
    "parts": [part["x"].sum().item() for part in data.split(2)],
    "arithmetic": (data + 1)["x"].sum(0).tolist(),
}
print(json.dumps({"losses": losses, "numbers": numbers}))
