"""doctr: networks that find and read text on pages, trained three steps; saved and loaded; its page predictor."""

import json
import os
import sys
import tempfile

os.environ["USE_TORCH"] = "1"
import numpy as np
import torch
from doctr import models
from doctr.models.classification import mobilenet_v3_small
from shared.training import saved_and_loaded, some

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
words = torch.rand(2, 3, 32, 64, generator=torch.Generator().manual_seed(1))
pages = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
boxes = [{"words": np.array([[0.1, 0.1, 0.6, 0.3], [0.2, 0.5, 0.9, 0.8]], np.float32)} for _ in range(2)]
READ = {
    "crnn": lambda: models.crnn_mobilenet_v3_small(pretrained=False, pretrained_backbone=False, vocab="abcdef"),
    "vitstr": lambda: models.vitstr_small(
        pretrained=False, pretrained_backbone=False, vocab="abcdef", input_shape=(3, 32, 64)
    ),
    "parseq": lambda: models.parseq(
        pretrained=False, pretrained_backbone=False, vocab="abcdef", input_shape=(3, 32, 64), max_length=6
    ),
}  # fmt: skip
FOUND = {
    "db": lambda: models.db_mobilenet_v3_large(pretrained=False, pretrained_backbone=False),
    "linknet": lambda: models.linknet_resnet18(pretrained=False, pretrained_backbone=False),
    "fast": lambda: models.fast_tiny(pretrained=False, pretrained_backbone=False),
}


def trained(name, made, batch, targets):
    torch.manual_seed(0)
    np.random.seed(0)
    model = made().train()
    model.rng = np.random.default_rng(0)  # of permutations, which is seeded by nothing otherwise
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(batch, targets)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    again = saved_and_loaded(model, made(), folder, f"{name}.pt")
    with torch.no_grad():
        out = again(batch, return_model_output=True)
    numbers[name] = some(out["out_map"])


for name, made in READ.items():
    trained(name, made, words, ["abc", "fed"])
for name, made in FOUND.items():
    trained(name, made, pages, boxes)
torch.manual_seed(0)
net = mobilenet_v3_small(pretrained=False, num_classes=4).eval()
with torch.no_grad():
    numbers["classes"] = some(net(words))
print(json.dumps({"losses": losses, "numbers": numbers}))
