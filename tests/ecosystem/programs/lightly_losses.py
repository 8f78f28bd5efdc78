"""lightly: self-supervised losses, projection heads, momentum and view transforms train a small backbone."""

import copy
import json
import random
import warnings

import numpy as np
import torch
from lightly import loss as objectives
from lightly import transforms
from lightly.models import modules, utils
from PIL import Image
from shared.training import some, three_steps
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
a, b = torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)
losses, numbers = [], {}


def backbone():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def train(name, head, objective):
    torch.manual_seed(1)
    model = nn.Sequential(backbone(), head())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    numbers[name] = three_steps(optimizer, lambda: objective(model(a), model(b)))
    losses.extend(numbers[name])
    numbers[f"{name} weight"] = some(model[0][0].weight)


train("SimCLR", lambda: modules.SimCLRProjectionHead(32, 16, 8), objectives.NTXentLoss())
train(
    "SimCLR with memory",
    lambda: modules.SimCLRProjectionHead(32, 16, 8),
    objectives.NTXentLoss(memory_bank_size=(16, 8)),
)
train("Barlow twins", lambda: modules.BarlowTwinsProjectionHead(32, 16, 8), objectives.BarlowTwinsLoss())
train("VICReg", lambda: modules.BarlowTwinsProjectionHead(32, 16, 8), objectives.VICRegLoss())
train("DCL", lambda: modules.MoCoProjectionHead(32, 16, 8), objectives.DCLLoss())
train("SwAV", lambda: nn.Sequential(modules.SwaVProjectionHead(32, 16, 8), modules.SwaVPrototypes(8, 6)),
      lambda x, y: objectives.SwaVLoss()([x, y], []))  # fmt: skip
train("TiCo", lambda: modules.MoCoProjectionHead(32, 16, 8), objectives.TiCoLoss())
train(
    "MMCR", lambda: modules.MMCRProjectionHead(32, 16, 2, 8), lambda x, y: objectives.MMCRLoss()(x[:, None], y[:, None])
)

torch.manual_seed(1)
student, head = backbone(), modules.DINOProjectionHead(32, 16, 8, 12)
teacher, teacher_head = copy.deepcopy(student), modules.DINOProjectionHead(32, 16, 8, 12)
utils.deactivate_requires_grad(teacher), utils.deactivate_requires_grad(teacher_head)
dino = objectives.DINOLoss(output_dim=12, warmup_teacher_temp_epochs=2)
optimizer = torch.optim.SGD([*student.parameters(), *head.parameters()], lr=0.05)
numbers["DINO"] = three_steps(
    optimizer,
    lambda: dino([teacher_head(teacher(x)) for x in (a, b)], [head(student(x)) for x in (a, b)], epoch=0),
)
losses += numbers["DINO"]
utils.update_momentum(student, teacher, m=0.9)
numbers["teacher"] = some(teacher[0].weight)
numbers["schedule"] = [utils.get_weight_decay_parameters([head])[0][0].numel()]
random.seed(0), np.random.seed(0), torch.manual_seed(0)
image = Image.fromarray((np.arange(32 * 32 * 3) % 251).astype("uint8").reshape(32, 32, 3))
views = transforms.SimCLRTransform(input_size=16, gaussian_blur=0.0)(image)
numbers["views"] = [some(view) for view in views]
print(json.dumps({"losses": losses, "numbers": numbers}))
