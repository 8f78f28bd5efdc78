"""Models of torchvision, small: three steps each; a detector, too; one is saved and loaded."""

import json
import os
import sys
import tempfile

import torch
import torchvision
from torch import nn
from torchvision import models
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign

CLASSIFIERS = {
    "convnext": lambda: models.ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=4),
    "efficientnet": lambda: models.EfficientNet(
        [models.efficientnet.MBConvConfig(4, 3, 2, 8, 16, 1, 1.0, 1.0)], 0.2, num_classes=4, last_channel=32
    ),
    "maxvit": lambda: models.MaxVit((64, 64), 8, 4, [8, 16], [1, 1], 8, 0.1, num_classes=4),
    "mobilenet_v2": lambda: models.MobileNetV2(4, 0.25, [[1, 8, 1, 1], [4, 16, 2, 2]]),
    "regnet": lambda: models.RegNet(models.regnet.BlockParams.from_init_params(2, 16, 8, 2.0, 8), num_classes=4),
    "resnet": lambda: models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=4),
    "shufflenet": lambda: models.ShuffleNetV2([1, 1, 1], [8, 16, 16, 16, 32], num_classes=4),
    "squeezenet": lambda: models.squeezenet1_1(num_classes=4),
    "swin": lambda: models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4], num_classes=4),
    "vit": lambda: models.VisionTransformer(64, 16, 2, 2, 32, 64, dropout=0.1, num_classes=4),
}  # fmt: skip


def steps(model, loss_of, lr=0.01):
    """Returns the losses of three steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def backbone():
    features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
    features.out_channels = 16
    return features


def detector(kind, **more):
    anchors = AnchorGenerator(((8, 16, 32),), ((0.5, 1.0, 2.0),))
    pool = MultiScaleRoIAlign(["0"], 7, 2)
    return kind(backbone(), 3, min_size=64, max_size=64, rpn_anchor_generator=anchors, box_roi_pool=pool, **more)


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
numbers = {}
for name, make in CLASSIFIERS.items():
    torch.manual_seed(0)
    model, images = make(), torch.randn(4, 3, 64, 64)
    numbers[name] = steps(model, lambda m: nn.functional.cross_entropy(m(images), torch.arange(4)))
    if name == "resnet":
        file = os.path.join(folder, "resnet.pt")
        if not os.path.exists(file):
            torch.save({"model": model.state_dict(), "version": torchvision.__version__}, file)
        again = make()
        again.load_state_dict(torch.load(file)["model"])
        torch.testing.assert_close(again.eval()(images), model.eval()(images), rtol=1e-3, atol=1e-3)

torch.manual_seed(0)
masks = torch.zeros(1, 64, 64, dtype=torch.uint8)
masks[:, 10:40, 10:40] = 1
target = {"boxes": torch.tensor([[10.0, 10.0, 40.0, 40.0]]), "labels": torch.tensor([1]), "masks": masks}
image = torch.rand(3, 64, 64)
for name, kind, more in (
    ("faster_rcnn", FasterRCNN, {}),
    ("mask_rcnn", MaskRCNN, {"mask_roi_pool": MultiScaleRoIAlign(["0"], 14, 2)}),
):
    torch.manual_seed(1)
    model = detector(kind, **more)
    numbers[name] = steps(model, lambda m: sum(m([image, image], [target, target]).values()))
    with torch.no_grad():
        found = model.eval()([image])[0]
    numbers[f"{name} found"] = [len(found["boxes"]), found["scores"].sum().item(), found["boxes"].mean().item()]

torch.manual_seed(2)
segmentation = models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=2)
image = torch.randn(2, 3, 64, 64)
numbers["lraspp"] = steps(
    segmentation, lambda m: nn.functional.cross_entropy(m(image)["out"], torch.zeros(2, 64, 64).long())
)
losses = [loss for name, values in numbers.items() if " " not in name for loss in values]
print(json.dumps({"losses": losses, "numbers": numbers}))
