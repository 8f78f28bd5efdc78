"""Six transformers as libraries write them, small: encoders, decoders with their caches as inputs, and both."""

import math

import tensorgrad as torch
from tensorgrad import nn

WIDTH, HEADS, WORDS = 16, 4, 23


class Attention(nn.Module):
    """Attention to `memory`, or to `x` itself. Returns the keys and values too: what a cache keeps."""

    def __init__(self, kept=HEADS, bias=True):
        super().__init__()
        self.kept, self.size = kept, WIDTH // HEADS
        self.q, self.out = nn.Linear(WIDTH, WIDTH, bias), nn.Linear(WIDTH, WIDTH, bias)
        self.k, self.v = nn.Linear(WIDTH, kept * self.size, bias), nn.Linear(WIDTH, kept * self.size, bias)

    def forward(self, x, memory=None, bias=None, past=None, turn=None):
        source = x if memory is None else memory
        q = self.q(x).unflatten(2, (HEADS, self.size)).transpose(1, 2)
        k, v = (part(source).unflatten(2, (self.kept, self.size)).transpose(1, 2) for part in (self.k, self.v))
        if turn is not None:
            q, k = turn(q), turn(k)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        new = k, v
        if self.kept != HEADS:  # several heads share keys and values
            k, v = (t.repeat_interleave(HEADS // self.kept, 1) for t in new)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), new


def hidden_later(count, before):
    """What is added to scores so that positions do not see later ones."""
    seen = torch.arange(before + count)[None] <= torch.arange(before, before + count)[:, None]
    return torch.zeros(count, before + count).masked_fill(~seen, -math.inf)


def mlp(activation):
    return nn.Sequential(nn.Linear(WIDTH, 32), activation, nn.Linear(32, WIDTH))


class Bert(nn.Module):
    """Embeddings of words, positions and segments; padding is hidden."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, WIDTH) for n in (WORDS, 40, 2))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(
            nn.ModuleList([Attention(), nn.LayerNorm(WIDTH), mlp(nn.GELU()), nn.LayerNorm(WIDTH)]) for _ in range(2)
        )
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids, mask, kinds):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])) + self.kinds(kinds))
        bias = (1 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
        for attention, first, feed, second in self.layers:
            x = first(x + attention(x, bias=bias)[0])
            x = second(x + feed(x))
        return x, self.pooler(x[:, 0]).tanh()


class Padded(nn.Module):
    """Attention as libraries write it: the mask is made by indices, and left out if it hides nothing, but not while the
    program is exported, or traced.
    """

    def __init__(self):
        super().__init__()
        self.words, self.qkv = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, ids, mask):
        batch, count = ids.shape
        seen = None
        if torch.compiler.is_exporting() or torch.jit.is_tracing() or not mask.all():
            rows, columns = torch.arange(batch)[:, None, None, None], torch.arange(count)[None, None, None]
            seen = mask.bool()[rows, columns] & (torch.arange(count)[None, None, :, None] >= 0)
        parts = self.qkv(self.words(ids)).unflatten(2, (HEADS, -1)).transpose(1, 2).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(*parts, attn_mask=seen)


class Gpt(nn.Module):
    """Learned positions; the head is the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), mlp(nn.GELU("tanh"))])
            for _ in range(2)
        )

    def forward(self, ids, cache):
        count, before = ids.shape[1], cache[0][0].shape[2]
        x = self.words(ids) + self.places(torch.arange(before, before + count))
        bias, kept = hidden_later(count, before), []
        for (first, attention, second, feed), past in zip(self.layers, cache, strict=True):
            y, new = attention(first(x), bias=bias, past=past)
            x = x + y
            x = x + feed(second(x))
            kept.append(new)
        return self.norm(x) @ self.words.weight.t(), kept


class Llama(nn.Module):
    """Rotated positions, one pair of keys and values for two heads, gates."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, False)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "first": nn.RMSNorm(WIDTH), "attention": Attention(2, bias=False), "second": nn.RMSNorm(WIDTH),
                "gate": nn.Linear(WIDTH, 32, False), "up": nn.Linear(WIDTH, 32, False),
                "down": nn.Linear(32, WIDTH, False),
            }) for _ in range(2)
        )  # fmt: skip
        self.register_buffer("speeds", 10000.0 ** -(torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS)))

    def forward(self, ids, cache):
        count, before = ids.shape[1], cache[0][0].shape[2]
        angles = torch.arange(before, before + count)[:, None] * self.speeds
        cos, sin = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

        def turn(t):
            one, other = t.chunk(2, -1)
            return t * cos + torch.cat([-other, one], -1) * sin

        x, bias, kept = self.words(ids), hidden_later(count, before), []
        for layer, past in zip(self.layers, cache, strict=True):
            y, new = layer["attention"](layer["first"](x), bias=bias, past=past, turn=turn)
            x = x + y
            y = layer["second"](x)
            x = x + layer["down"](nn.functional.silu(layer["gate"](y)) * layer["up"](y))
            kept.append(new)
        return self.head(self.norm(x)), kept


class T5(nn.Module):
    """An encoder and a decoder with biases for relative positions."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.near, self.far = nn.Embedding(8, HEADS), nn.Embedding(8, HEADS)
        self.encoder = nn.ModuleList(nn.ModuleList([nn.RMSNorm(WIDTH), Attention(bias=False)]) for _ in range(2))
        self.decoder = nn.ModuleList(
            nn.ModuleList([nn.RMSNorm(WIDTH), Attention(bias=False), nn.RMSNorm(WIDTH), Attention(bias=False)])
            for _ in range(2)
        )
        self.feed, self.norm = mlp(nn.ReLU()), nn.RMSNorm(WIDTH)

    def bias(self, table, count, both):
        steps = torch.arange(count)[None] - torch.arange(count)[:, None]
        exact, place = (2, 4 * (steps > 0).long()) if both else (4, torch.zeros_like(steps))
        away = steps.abs() if both else -steps.clamp(max=0)
        coarse = exact + (torch.log(away.clamp(min=1) / exact) / math.log(8) * exact).long()
        bucket = place + torch.where(away < exact, away, coarse.clamp(max=2 * exact - 1))
        return table(bucket).permute(2, 0, 1)[None]

    def forward(self, source, target):
        x, y = self.words(source), self.words(target)
        bias = self.bias(self.near, source.shape[1], True)
        for norm, attention in self.encoder:
            x = x + attention(norm(x), bias=bias)[0]
            x = x + self.feed(x)
        bias = self.bias(self.far, target.shape[1], False) + hidden_later(target.shape[1], 0)
        for first, attention, second, crossed in self.decoder:
            y = y + attention(first(y), bias=bias)[0]
            y = y + crossed(second(y), memory=x)[0]
            y = y + self.feed(y)
        return self.norm(y) @ self.words.weight.t()


class Vit(nn.Module):
    """Patches of an image, and a token for its class."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, WIDTH, 4, 4), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places, self.norm = nn.Parameter(torch.randn(1, 17, WIDTH)), nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 5)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Whisper(nn.Module):
    """Sound is encoded by convolutions and a layer; the decoder has a cache, and looks at the encoder's result."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv1d(6, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.encoder = nn.ModuleList([nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), mlp(nn.GELU())])
        self.words, self.places, self.norm = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), Attention()]) for _ in range(2)
        )
        self.feed = mlp(nn.GELU())

    def forward(self, sound, ids, cache):
        x = nn.functional.gelu(self.two(nn.functional.gelu(self.one(sound)))).transpose(1, 2)
        first, attention, second, feed = self.encoder
        x = x + attention(first(x))[0]
        x = x + feed(second(x))
        count, before = ids.shape[1], cache[0][0].shape[2]
        y = self.words(ids) + self.places(torch.arange(before, before + count))
        bias, kept = hidden_later(count, before), []
        for (first, attention, second, crossed), past in zip(self.layers, cache, strict=True):
            z, new = attention(first(y), bias=bias, past=past)
            y = y + z
            y = y + crossed(second(y), memory=x)[0]
            kept.append(new)
        return self.norm(y + self.feed(y)) @ self.words.weight.t(), kept
