"""segmentation-models-pytorch: each architecture on a small encoder learns with one of the losses; one is saved."""

import json
import sys
import tempfile

import segmentation_models_pytorch as smp
import torch
from shared.training import saved_and_loaded, some, three_steps

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # batch norm of few values makes much of the last digit
images, masks = torch.randn(2, 3, 64, 64), torch.randint(3, (2, 64, 64))
losses_of = [
    smp.losses.DiceLoss("multiclass"), smp.losses.JaccardLoss("multiclass"), smp.losses.FocalLoss("multiclass"),
    smp.losses.SoftCrossEntropyLoss(smooth_factor=0.1),
    smp.losses.TverskyLoss("multiclass"),
]  # fmt: skip
NETS = {
    "Unet": {}, "UnetPlusPlus": {}, "Linknet": {}, "FPN": {}, "PSPNet": {}, "MAnet": {}, "DeepLabV3": {},
    "DeepLabV3Plus": {}, "UPerNet": {}, "Segformer": {},
}  # fmt: skip
losses, numbers = [], {}


def make(name, seed=0):
    torch.manual_seed(seed)
    small = dict(decoder_channels=(32, 24, 16, 16, 8)) if name in ("Unet", "UnetPlusPlus", "MAnet") else {}
    return getattr(smp, name)("mobilenet_v2", encoder_weights=None, classes=3, **small)


for i, name in enumerate(NETS):
    model = make(name)
    objective = losses_of[i % len(losses_of)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    numbers[name] = three_steps(optimizer, lambda model=model, loss=objective: loss(model(images), masks))
    losses += numbers[name]
    if name == "Unet":
        again = saved_and_loaded(model, make(name, 1), sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
        with torch.no_grad():
            found = again(images)
            torch.testing.assert_close(found, model.eval()(images))
        numbers["masks"] = some(found)
        counts = smp.metrics.get_stats(found.argmax(1), masks, mode="multiclass", num_classes=3)
        numbers["scores"] = [
            measure(*counts, reduction=way).item()
            for measure in (smp.metrics.iou_score, smp.metrics.f1_score, smp.metrics.accuracy)
            for way in ("micro", "macro", "micro-imagewise")
        ]
print(json.dumps({"losses": losses, "numbers": numbers}))
