"""lpips: an image is drawn towards another by the learned distance, whose weights come with the package."""

import json

import lpips
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
target, image = torch.rand(1, 3, 64, 64) * 2 - 1, torch.zeros(1, 3, 64, 64, requires_grad=True)
losses, numbers = [], {}
for net in ("alex", "squeeze"):
    distance = lpips.LPIPS(net=net, pnet_rand=True, verbose=False)
    with torch.no_grad():
        image.uniform_(-1, 1)
    losses += three_steps(torch.optim.SGD([image], lr=50.0), lambda distance=distance: distance(image, target).sum())
    with torch.no_grad():
        numbers[net] = [*some(distance.lin0.model[-1].weight), distance(image, target, normalize=True).item()]
spatial = lpips.LPIPS(net="alex", pnet_rand=True, spatial=True, verbose=False)
numbers["map"] = some(spatial(image, target))
print(json.dumps({"losses": losses, "numbers": numbers}))
