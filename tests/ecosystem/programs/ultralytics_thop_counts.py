"""ultralytics-thop: operations and parameters of models, counted by hooks on their modules."""

import copy
import json

import torch
from shared.training import some, three_steps
from thop import clever_format, profile
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.up = (
            nn.Conv2d(3, 8, 3, padding=1, groups=1),
            nn.BatchNorm2d(8),
            nn.Upsample(scale_factor=2),
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.pool(self.up(nn.functional.relu(self.norm(self.conv(x))))).flatten(1))


model, images, labels = Block(), torch.randn(4, 3, 16, 16), torch.arange(4)
losses = three_steps(
    torch.optim.SGD(model.parameters(), lr=0.1), lambda: nn.functional.cross_entropy(model(images), labels)
)
before = some(model.eval()(images))
numbers = {"before": before, "after": [], "lists": []}
for name, (module, inputs) in {
    "block": (model, (images[:1],)), "conv": (nn.Conv1d(4, 8, 3, stride=2), (torch.randn(1, 4, 20),)),
    "transposed": (nn.ConvTranspose2d(3, 6, 4, stride=2), (images[:1],)), "lstm": (nn.LSTM(5, 7, num_layers=2, bidirectional=True), (torch.randn(6, 1, 5),)),
    "gru": (nn.GRU(5, 7, batch_first=True), (torch.randn(1, 6, 5),)), "attention": (nn.MultiheadAttention(8, 2), (torch.randn(5, 1, 8),) * 3),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16), (torch.randn(5, 1, 8),)), "shared": (nn.Sequential(*[nn.Linear(4, 4)] * 3, nn.Softmax(-1)), (torch.randn(2, 4),)),
}.items():  # fmt: skip
    operations, parameters = profile(copy.deepcopy(module), inputs=inputs, verbose=False)
    numbers[name] = [operations, parameters]
    numbers["lists"] += clever_format([operations, parameters], "%.3f")
numbers["after"] = some(model(images))
counted = profile(
    model, inputs=(images[:1],), custom_ops={Block: lambda m, x, y: None}, verbose=False, ret_layer_info=True
)
numbers["layers"] = [*counted[:2], *sorted(counted[2])]
print(json.dumps({"losses": losses, "numbers": numbers}))
