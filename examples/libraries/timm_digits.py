"""A vision transformer or a convolutional network from timm learns handwritten digits, on tensorgrad.

    pip install --no-deps timm torchvision                       (they ask for torch, which is not needed)
    pip install pillow pyyaml huggingface_hub safetensors scikit-learn
    python -m tensorgrad.run examples/libraries/timm_digits.py --model vit_tiny_patch16_224

Any model of `timm.list_models()` that takes images of 32 x 32 pixels can be named. It prints what it learns.
"""

import argparse
import sys

try:
    import numpy as np
    import timm
    import torch
    from sklearn.datasets import load_digits
    from timm.data import Mixup
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from torchvision.transforms import v2
except ImportError as error:
    sys.exit(f"{error}: this example needs timm, torchvision and scikit-learn (its first lines say how)")

SMALL = {"vit_tiny_patch16_224": dict(img_size=32, patch_size=8, depth=4, embed_dim=64, num_heads=4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="test_resnet", help="a name of timm's (%(default)s)")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)  # which Mixup draws from
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels).float().reshape(-1, 1, 8, 8) / 16
    images = v2.functional.resize(images, [32, 32], antialias=True).repeat(1, 3, 1, 1)
    labels, order = torch.tensor(labels), torch.randperm(len(labels))
    test, train = order[:360], order[360:]
    augment = v2.Compose([v2.RandomAffine(10, (0.1, 0.1)), v2.Normalize([0.5] * 3, [0.5] * 3)])
    plain = v2.Normalize([0.5] * 3, [0.5] * 3)

    model = timm.create_model(options.model, num_classes=10, **SMALL.get(options.model, {}))
    optimizer = create_optimizer_v2(model, "adamw", lr=2e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, options.epochs, warmup_t=1, warmup_lr_init=2e-4)
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    for epoch in range(options.epochs):
        schedule.step(epoch)
        model.train()
        total = 0.0
        for some in train[torch.randperm(len(train))].split(32)[:-1]:
            batch, targets = mixup(augment(images[some]), labels[some])
            loss = torch.nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(some)
        model.eval()
        with torch.no_grad():
            right = (model(plain(images[test])).argmax(1) == labels[test]).float().mean().item()
        print(f"epoch {epoch + 1}, loss {total / len(train):.4f}, accuracy {right:.3f}", flush=True)


if __name__ == "__main__":
    main()
