"""Modules to export, made of one of the two libraries."""


def make(torch):
    """Modules by name, each with its arguments."""
    nn, F = torch.nn, torch.nn.functional

    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)
            self.linear = nn.Linear(4, 3)
            self.scale = torch.ones(3)

        def forward(self, images):
            x = F.max_pool2d(F.relu(self.norm(self.conv(images))), 2).mean((2, 3))
            return self.linear(x) * self.scale + torch.tensor([1.0, 2.0, 3.0])

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.norm = nn.LayerNorm(4)
            self.drop = nn.Dropout(0.5)

        def forward(self, tokens, *, scale):
            return {"out": self.drop(self.norm(self.embed(tokens))) * scale, "tokens": tokens}

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            out, (h, c) = self.lstm(x)
            return out[:, -1], h, c

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.register_buffer("bias", torch.zeros(3, 3), persistent=False)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            q, k, v = (t.view(2, 3, 2, 4).transpose(1, 2) for t in (q, k, v))
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
            return self.out(x.transpose(1, 2).contiguous().view(2, 3, 8))

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x, y):
            self.count.add_(x)
            y.mul_(2)
            return x, y, self.count, self.count + 1

    class Views(nn.Module):
        def forward(self, x):
            y = x * 1
            column = y.unsqueeze(0).transpose(0, 1)
            column.add_(1.5)
            y.mul_(2)
            return y, column

    class Factories(nn.Module):
        def forward(self, x):
            made = [torch.arange(4), torch.arange(1, 4), torch.arange(0, 8, 2), torch.linspace(0, 1, 3), torch.eye(3),
                    torch.logspace(0, 1, 3), torch.eye(3, 2), torch.full((2,), 1.5), torch.zeros(2, 3),
                    torch.full_like(x, 2.0), x.new_zeros(3), x.new_full((2,), 3.0), torch.tril_indices(3, 3),
                    torch.hann_window(4)]  # fmt: skip
            drawn = [torch.randint(3, (2,)), torch.randint(1, 3, (2,)), torch.normal(0.0, 1.0, (2,)), torch.rand(2),
                     torch.randperm(3)]  # fmt: skip
            made += [t * 0 for t in drawn]
            return (*made, torch.tensor(3.0))

    mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(-1))
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    return {
        "MLP": (mlp, (torch.randn(5, 3),), {}),
        "ConvNet in training": (ConvNet(), (torch.randn(2, 1, 8, 8),), {}),
        "ConvNet": (ConvNet().eval(), (torch.randn(2, 1, 8, 8),), {}),
        "embedding": (Embedding().eval(), (tokens,), {"scale": 2.0}),
        "embedding in training": (Embedding(), (tokens,), {"scale": 2.0}),
        "LSTM": (Recurrent().eval(), (torch.randn(2, 5, 3),), {}),
        "attention": (Attention(), (torch.randn(2, 3, 8),), {}),
        "transformer layer": (
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (torch.randn(2, 3, 8),), {},
        ),
        "counter": (Counter(), (torch.ones(2), torch.ones(2)), {}),
        "views": (Views(), (torch.randn(3),), {}),
        "factories": (Factories(), (torch.randn(3),), {}),
    }  # fmt: skip


# The operators are PyTorch's, in its order. The others differ in what the library's own modules and functions call:
# reshape and flatten are `view`, fused attention and LSTMs are taken apart in another way.
AS_EXPORTED = (
    "MLP", "ConvNet in training", "ConvNet", "embedding", "embedding in training", "counter", "views", "LSTM",
    "factories",
)  # fmt: skip
DECOMPOSED = ("MLP", "ConvNet in training", "ConvNet", "embedding", "embedding in training", "counter", "views")


def targets(program):
    """The functions that a program calls, in order."""
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
