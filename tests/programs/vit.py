"""A small vision transformer: patches, a class token, learned positions, nn.MultiheadAttention, label smoothing."""

import torch
from torch import nn


class PatchEmbedding(nn.Module):
    """Cuts images into patches and projects each to a vector: a convolution whose stride is its size."""

    def __init__(self, image_size, patch_size, channels, dim):
        super().__init__()
        self.n_patches = (image_size // patch_size) ** 2
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, mlp_dim, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, image_size=16, patch_size=4, channels=3, classes=5, dim=32, depth=2, heads=4, dropout=0.1):
        super().__init__()
        self.patches = PatchEmbedding(image_size, patch_size, channels, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embedding = nn.Parameter(torch.empty(1, self.patches.n_patches + 1, dim))
        nn.init.trunc_normal_(self.pos_embedding, std=0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[EncoderBlock(dim, heads, 2 * dim, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)
        nn.init.zeros_(self.head.bias)
        nn.init.xavier_uniform_(self.head.weight)

    def forward(self, x):
        x = self.patches(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(x + self.pos_embedding)
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


def augment(images):
    """Mirrors half of the images and shifts all of them by up to two pixels."""
    flip = torch.rand(len(images), 1, 1, 1) < 0.5
    images = torch.where(flip, images.flip(-1), images)
    dy, dx = torch.randint(-2, 3, (2,)).tolist()
    return torch.roll(images, shifts=(dy, dx), dims=(2, 3))


def main(steps=20):
    torch.manual_seed(7)
    centres = torch.rand(5, 3, 1, 1)
    labels = torch.randint(5, (80,))
    images = (centres[labels] + 0.3 * torch.randn(80, 3, 16, 16)).clamp(0, 1)

    model = VisionTransformer()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=max(steps, 2) + 1)
    losses = []
    for _ in range(steps):
        idx = torch.randperm(len(images))[:16]
        logits = model(augment(images[idx]))
        loss = criterion(logits, labels[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
