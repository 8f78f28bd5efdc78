"""The models for training and inference rows, written for both libraries."""

from __future__ import annotations


def mlp(torch, inputs: int = 784, hidden: int = 128, outputs: int = 10):
    """A network with two linear layers."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def convnet(torch):
    """A network for 28×28 digits: three blocks of convolution, batch norm, ReLU and pooling, then a linear layer."""
    nn = torch.nn
    layers = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 3 * 3, 10))


def vit(torch, width: int = 128, heads: int = 2):
    """A vision transformer with one layer for 28×28 digits, in patches of 4×4."""
    nn = torch.nn

    class VisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, width, 4, stride=4)
            self.first = nn.Parameter(torch.zeros(1, 1, width))
            self.positions = nn.Parameter(torch.randn(1, 50, width) * 0.02)
            self.layer = nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 10)

        def forward(self, images):
            tokens = self.patches(images).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.first.expand(len(images), -1, -1), tokens], 1) + self.positions
            return self.head(self.norm(self.layer(tokens))[:, 0])

    return VisionTransformer()


def resnet18(torch, width: int = 64):
    """ResNet-18 in its variant for 32×32 images: a 3×3 stem, and no pooling after it."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            self.skip = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return torch.relu(self.body(x) + self.skip(x))

    layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for inputs, outputs, stride in ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2)):
        layers += [Block(inputs * width, outputs * width, stride), Block(outputs * width, outputs * width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def gpt(
    torch,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    context: int = 64,
    characters: int = 65,
    tied: bool = False,
):
    """A character model with `layers` blocks of causal attention and a two-layer network.

    With `tied`, the embedding and the output layer share their weight.
    """
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            n, t, _ = x.shape
            parts = self.qkv(self.norm1(x)).split(width, 2)
            q, k, v = (part.view(n, t, heads, width // heads).transpose(1, 2) for part in parts)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(n, t, width))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
            if tied:
                self.head.weight = self.tokens.weight

        def forward(self, numbers):
            x = self.tokens(numbers) + self.positions(torch.arange(numbers.shape[1], device=numbers.device))
            return self.head(self.norm(self.blocks(x)))

    return GPT()


def lstm(torch, characters: int = 65, embedded: int = 64, width: int = 128):
    """A character model with one LSTM layer."""
    nn = torch.nn

    class Characters(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(characters, embedded)
            self.lstm = nn.LSTM(embedded, width, batch_first=True)
            self.head = nn.Linear(width, characters)

        def forward(self, numbers):
            return self.head(self.lstm(self.embedding(numbers))[0])

    return Characters()
