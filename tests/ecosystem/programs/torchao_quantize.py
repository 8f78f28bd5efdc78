"""torchao: a network is trained, then its weights become 8-bit integers, alone or with its activations."""

import copy
import json

import torch
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(24, 32), torch.randint(0, 4, (24,))
losses = []
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# The largest weight of a row lies between two integers: its last bit, which training leaves open, would decide.
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_((parameter * 1024).round() / 1024)
model.eval()
numbers = {"float": model(x[:3]).flatten().tolist()}
with torch.no_grad():
    for name, config in (("weights", Int8WeightOnlyConfig()), ("both", Int8DynamicActivationInt8WeightConfig())):
        small = copy.deepcopy(model)
        quantize_(small, config)
        weight = small[0].weight
        numbers[name] = small(x[:3]).flatten().tolist()
        numbers[f"{name}, integers"] = weight.qdata[0].tolist()
        numbers[f"{name}, scales"] = weight.scale.flatten().tolist()
        again = nn.Sequential(*(copy.deepcopy(layer) for layer in small))
        again.load_state_dict(small.state_dict(), assign=True)
        numbers[f"{name}, again"] = again(x[:3]).flatten().tolist()
        numbers[f"{name}, back"] = weight.dequantize()[0].tolist()
        numbers[f"{name}, parameters"] = [isinstance(p, nn.Parameter) and p.requires_grad for p in small.parameters()]
print(json.dumps({"losses": losses, "numbers": numbers}))
