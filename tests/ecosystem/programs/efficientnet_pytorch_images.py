"""efficientnet-pytorch: a small network of its blocks, and features at several depths."""

import json
import sys
import tempfile

import torch
from efficientnet_pytorch import EfficientNet
from efficientnet_pytorch.utils import BlockDecoder, GlobalParams, efficientnet_params
from shared.training import saved_and_loaded, some, three_steps
from torch import nn

torch.set_default_dtype(torch.float64)  # RMSprop divides by what may be rounding alone
torch.manual_seed(0)
blocks = BlockDecoder.decode(
    ["r1_k3_s11_e1_i32_o8_se0.25", "r2_k3_s22_e3_i8_o12_se0.25", "r1_k5_s22_e3_i12_o16_se0.25"]
)
options = GlobalParams(
    batch_norm_momentum=0.99, batch_norm_epsilon=1e-3, dropout_rate=0.2, drop_connect_rate=0.2, num_classes=5,
    width_coefficient=1.0, depth_coefficient=1.0, depth_divisor=8, min_depth=None, image_size=32, include_top=True,
)  # fmt: skip
images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
model = EfficientNet(blocks, options)
losses = three_steps(
    torch.optim.RMSprop(model.parameters(), lr=1e-3), lambda: nn.functional.cross_entropy(model(images), labels)
)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
model = saved_and_loaded(model, EfficientNet(blocks, options), folder)
numbers = {
    "loaded": some(model(images)),
    "features": some(model.extract_features(images)),
    "b0": list(efficientnet_params("efficientnet-b0")),
}
for name, value in model.extract_endpoints(images).items():
    numbers[name] = [*value.shape, *some(value)]
model.set_swish(memory_efficient=False)
numbers["swish"] = some(model(images))
whole = EfficientNet.from_name("efficientnet-b0", num_classes=3, in_channels=1).eval()
numbers["whole"] = [sum(p.numel() for p in whole.parameters()), *whole(torch.randn(1, 1, 64, 64)).shape]
print(json.dumps({"losses": losses, "numbers": numbers}))
