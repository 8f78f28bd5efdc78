"""Attributions of captum for a small trained network: twelve methods."""

import json

import numpy as np
import torch
from captum.attr import (
    DeepLift,
    DeepLiftShap,
    FeatureAblation,
    FeaturePermutation,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerConductance,
    LayerGradCam,
    LayerIntegratedGradients,
    NeuronConductance,
    NoiseTunnel,
    Occlusion,
    Saliency,
    ShapleyValueSampling,
)
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 8), nn.ReLU(), nn.Linear(8, 3))
images, labels = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
x, base = images[:2], torch.zeros(2, 1, 8, 8)
torch.manual_seed(3), np.random.seed(3)
found = {
    "saliency": Saliency(model).attribute(x, target=1),
    "integrated": IntegratedGradients(model).attribute(x, base, target=1, n_steps=8),
    "convergence": IntegratedGradients(model).attribute(x, target=0, n_steps=8, return_convergence_delta=True)[1],
    "input": InputXGradient(model).attribute(x, target=1),
    "guided": GuidedBackprop(model).attribute(x, target=1),
    "deeplift": DeepLift(model).attribute(x, base, target=1),
    "deepliftshap": DeepLiftShap(model).attribute(x, images, target=1),
    "gradientshap": GradientShap(model).attribute(x, images, n_samples=3, target=1),
    "ablation": FeatureAblation(model).attribute(x, target=1),
    "permutation": FeaturePermutation(model).attribute(images, target=1),
    "occlusion": Occlusion(model).attribute(x, sliding_window_shapes=(1, 4, 4), strides=(1, 2, 2), target=1),
    "noise": NoiseTunnel(Saliency(model)).attribute(x, nt_type="smoothgrad", nt_samples=3, target=1),
    "conductance": LayerConductance(model, model[3]).attribute(x, target=1, n_steps=8),
    "gradcam": LayerGradCam(model, model[0]).attribute(x, target=1),
    "layer": LayerIntegratedGradients(model, model[3]).attribute(x, target=1, n_steps=8),
    "neuron": NeuronConductance(model, model[3]).attribute(x, (2,), target=1, n_steps=8),
    "shapley": ShapleyValueSampling(model).attribute(
        x, feature_mask=torch.arange(64).reshape(1, 1, 8, 8) // 16, target=1, n_samples=2
    ),
}
numbers = {name: values.detach().flatten()[:6].tolist() for name, values in found.items()}
print(json.dumps({"losses": losses, "numbers": numbers}))
