"""Torchvision's compiled operators: values, gradients, and three steps of a deformable convolution on boxes."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from torchvision import ops

torch.manual_seed(0)
corners = torch.rand(30, 2) * 20
boxes = torch.cat([corners, corners + 2 + torch.rand(30, 2) * 10], 1)
scores = torch.rand(30)
numbers = {
    "nms": ops.nms(boxes, scores, 0.3).tolist(),
    "batched_nms": ops.batched_nms(boxes, scores, torch.arange(30) % 3, 0.3).tolist(),
    "box_iou": ops.box_iou(boxes[:4], boxes[4:8]).tolist(),
    "giou": ops.generalized_box_iou(boxes[:4], boxes[4:8]).tolist(),
}
pooled = {
    "roi_align": (ops.RoIAlign((3, 2), 0.5, -1), 4),
    "roi_align aligned": (ops.RoIAlign((3, 2), 0.5, 2, aligned=True), 4),
    "roi_pool": (ops.RoIPool((3, 2), 0.5), 4),
    "ps_roi_align": (ops.PSRoIAlign((3, 2), 0.5, -1), 12),
    "ps_roi_pool": (ops.PSRoIPool((3, 2), 0.5), 12),
}
for name, (pool, channels) in pooled.items():
    images = torch.randn(2, channels, 18, 18, requires_grad=True)
    out = pool(images, [boxes[:3].clamp(max=28), boxes[3:5].clamp(max=28)])
    (out * torch.arange(out.numel()).reshape(out.shape) / out.numel()).sum().backward()
    numbers[name] = out.flatten()[:40].tolist()
    numbers[f"{name} gradient"] = images.grad.sum((0, 2)).flatten().tolist()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2d(3, 2 * 2 * 9, 3, padding=1)
        self.mask = nn.Conv2d(3, 2 * 9, 3, padding=1)
        self.deform = ops.DeformConv2d(4, 6, 3, padding=1, groups=2)
        self.first = nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(6 * 4, 3)

    def forward(self, images, boxes):
        maps = self.deform(self.first(images), self.offset(images), self.mask(images).sigmoid())
        return self.head(ops.roi_align(maps, boxes, (2, 2), 0.5).flatten(1))


model, images = Net(), torch.randn(2, 3, 16, 16)
some = [boxes[:3].clamp(max=31), boxes[3:6].clamp(max=31)]
optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
for _ in range(3):
    optimizer.zero_grad()
    loss = ops.sigmoid_focal_loss(model(images, some), torch.eye(3).repeat(2, 1), reduction="mean")
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "net.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Net()
again.load_state_dict(torch.load(file))
torch.testing.assert_close(again(images, some), model(images, some), rtol=1e-3, atol=1e-3)
print(json.dumps({"losses": losses, "numbers": numbers}))
