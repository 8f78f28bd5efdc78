"""shap: what inputs contribute to a network's outputs, by gradients, by DeepLIFT and by asking it."""

import json
import warnings

import numpy as np
import shap
import torch
from shared.training import three_steps
from torch import nn

warnings.simplefilter("ignore")

torch.manual_seed(0)
np.random.seed(0)
x = torch.randn(40, 5)
y = (x[:, 0] * 2 - x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 2))
losses = three_steps(torch.optim.Adam(net.parameters(), 0.01, eps=1e-4), lambda: nn.functional.cross_entropy(net(x), y))
images = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 2))
pictures = torch.randn(12, 1, 8, 8)


def called(values):
    with torch.no_grad():
        return net(torch.tensor(values, dtype=torch.float32)).softmax(-1).numpy()


deep = shap.DeepExplainer(net, x[:20]).shap_values(x[20:24])
deep_images = shap.DeepExplainer(images, pictures[:8]).shap_values(pictures[8:10], check_additivity=False)
gradients = shap.GradientExplainer(net, x[:20]).shap_values(x[20:24], nsamples=10, rseed=1)
inner = shap.GradientExplainer((net, net[2]), x[:20]).shap_values(x[20:22], nsamples=5, rseed=1)
kernel = shap.KernelExplainer(called, x[:8].numpy()).shap_values(x[20:22].numpy(), nsamples=60, silent=True)
numbers = {
    "deep": np.asarray(deep).tolist(), "images": [float(np.abs(deep_images).sum()), float(np.asarray(deep_images).sum())],
    "gradients": np.asarray(gradients).tolist(), "inner": np.asarray(inner).tolist(),
    "kernel": np.asarray(kernel).tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
