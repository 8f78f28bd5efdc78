"""piq: an image is improved by measures of quality, and every measure that needs no download is taken."""

import json

import piq
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
target = torch.rand(2, 3, 192, 192)
image = (target + 0.1 * torch.randn_like(target)).clamp(0, 1)
learned = image.clone().requires_grad_()
optimizer = torch.optim.Adam([learned], lr=0.01)
losses = []
for loss in (piq.MDSILoss(), piq.SSIMLoss(), piq.VIFLoss(), piq.GMSDLoss(), piq.HaarPSILoss(), piq.TVLoss()):
    losses += three_steps(
        optimizer, lambda loss=loss: loss(learned.clamp(0, 1), *([] if isinstance(loss, piq.TVLoss) else [target]))
    )
numbers = {
    name: [getattr(piq, name)(image, target).item()]
    for name in ("psnr", "ssim", "multi_scale_ssim", "vif_p", "fsim", "vsi", "gmsd", "haarpsi", "mdsi", "dss",
                 "information_weighted_ssim", "srsim", "multi_scale_gmsd")
}  # fmt: skip
numbers["total_variation"] = [piq.total_variation(image).item()]
numbers["learned"] = some(learned)
features, others = torch.rand(40, 8), torch.rand(40, 8)
numbers["features"] = [piq.FID()(features, others).item(), piq.KID()(features, others).item(),
                       piq.PR()(features, others)[0].item()]  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
