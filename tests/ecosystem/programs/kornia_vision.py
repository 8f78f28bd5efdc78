"""Kornia: filters, geometry, colors, augmentations with parameters, losses and features; three steps of a registration."""

import json
import os
import sys
import tempfile
import warnings

import kornia as K
import torch
from kornia import augmentation as A
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
image = torch.rand(2, 3, 24, 32)
gray = image.mean(1, keepdim=True)
angle, center = torch.tensor([20.0, -10.0]), torch.tensor([[16.0, 12.0]] * 2)
matrix = K.geometry.get_rotation_matrix2d(center, angle, torch.ones(2, 2))
points = torch.tensor([[[0.0, 0], [31, 0], [31, 23], [0, 23]]] * 2)
moved = points + torch.tensor([[[1.0, 2], [-2, 1], [-1, -3], [2, -1]]])
DONE = {
    "gaussian_blur2d": lambda: K.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5)),
    "median_blur": lambda: K.filters.median_blur(image, (3, 3)),
    "bilateral_blur": lambda: K.filters.bilateral_blur(image, (3, 3), 0.1, (1.5, 1.5)),
    "sobel": lambda: K.filters.sobel(image),
    "canny": lambda: K.filters.canny(gray)[0],
    "laplacian": lambda: K.filters.laplacian(image, 3),
    "unsharp_mask": lambda: K.filters.unsharp_mask(image, (3, 3), (1.0, 1.0)),
    "rgb_to_hsv": lambda: K.color.rgb_to_hsv(image),
    "rgb_to_lab": lambda: K.color.rgb_to_lab(image),
    "rgb_to_ycbcr": lambda: K.color.rgb_to_ycbcr(image),
    "warp_affine": lambda: K.geometry.warp_affine(image, matrix, (24, 32)),
    "warp_perspective": lambda: K.geometry.warp_perspective(
        image, K.geometry.get_perspective_transform(points, moved), (24, 32)
    ),
    "rotate": lambda: K.geometry.rotate(image, angle),
    "resize": lambda: K.geometry.resize(image, (12, 16), antialias=True),
    "pyrdown": lambda: K.geometry.pyrdown(image),
    "elastic": lambda: K.geometry.elastic_transform2d(image, torch.rand(2, 2, 24, 32) * 2 - 1),
    "quaternion": lambda: K.geometry.axis_angle_to_rotation_matrix(torch.randn(3, 3)),
    "homography": lambda: K.geometry.find_homography_dlt(points, moved),
    "equalize": lambda: K.enhance.equalize(image),
    "adjust_hue": lambda: K.enhance.adjust_hue(image, 0.3),
    "equalize_clahe": lambda: K.enhance.equalize_clahe(image, grid_size=(2, 2)),
    "dilation": lambda: K.morphology.dilation(image, torch.ones(3, 3)),
    "harris": lambda: K.feature.harris_response(gray),
    "distance_transform": lambda: K.contrib.distance_transform((gray > 0.5).float()),
    "connected_components": lambda: K.contrib.connected_components((gray > 0.5).float(), 20),
    "ssim": lambda: K.metrics.ssim(image, image.flip(-1), 5),
    "dice": lambda: K.losses.dice_loss(torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8))),
    "focal": lambda: K.losses.focal_loss(torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8)), 0.5, reduction="mean"),
    "patches": lambda: K.contrib.extract_tensor_patches(image, (8, 8), (8, 8)),
}
numbers = {}
for name, do in DONE.items():
    torch.manual_seed(1)
    out = do().float()
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item() if out.numel() > 1 else 0.0]
RANDOM = {
    "ColorJiggle": A.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=1.0),
    "RandomAffine": A.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), p=1.0),
    "RandomCrop": A.RandomCrop((16, 16), p=1.0),
    "RandomErasing": A.RandomErasing(p=1.0),
    "RandomHorizontalFlip": A.RandomHorizontalFlip(p=0.5),
    "RandomPerspective": A.RandomPerspective(0.3, p=1.0),
    "RandomResizedCrop": A.RandomResizedCrop((16, 16), p=1.0),
    "RandomMixUpV2": A.RandomMixUpV2(p=1.0),
    "RandomGaussianNoise": A.RandomGaussianNoise(p=1.0),
    "RandomElasticTransform": A.RandomElasticTransform(p=1.0),
}
for name, augment in RANDOM.items():
    torch.manual_seed(2)
    out = augment(image)
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item()]
torch.manual_seed(3)
both = A.AugmentationSequential(
    A.RandomAffine(10, p=1.0), A.RandomHorizontalFlip(p=1.0), data_keys=["input", "mask", "keypoints"]
)
pictures, masks, keypoints = both(image, (gray > 0.5).float(), torch.rand(2, 4, 2) * 20)
numbers["together"] = [pictures.mean().item(), masks.mean().item(), keypoints.data.flatten().tolist()]


class Registration(nn.Module):
    def __init__(self):
        super().__init__()
        self.angle = nn.Parameter(torch.tensor([5.0]))
        self.shift = nn.Parameter(torch.zeros(1, 2))

    def forward(self, x):
        return K.geometry.translate(K.geometry.rotate(x, self.angle), self.shift)


model, image = Registration().double(), image.double()
target = K.geometry.rotate(image[:1], torch.tensor([15.0]).double())
optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.5), []
for _ in range(3):
    optimizer.zero_grad()
    loss = K.losses.ssim_loss(model(image[:1]), target, 5)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "registration.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Registration().double()
again.load_state_dict(torch.load(file))
torch.testing.assert_close(again(image), model(image), rtol=1e-3, atol=1e-3)
print(json.dumps({"losses": losses, "numbers": numbers}))
