"""Modules and functions for `torch.jit.script` of both libraries, each with inputs."""

import math
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple, Optional


class Color(Enum):
    RED = 1
    BLUE = 2


class Layout(str, Enum):
    ROWS = "rows"
    COLUMNS = "columns"


def make(torch):
    """Programs by name: what is scripted, and lists of arguments."""
    nn, F, Tensor = torch.nn, torch.nn.functional, torch.Tensor

    class Boxes(NamedTuple):
        boxes: Tensor
        scores: Tensor
        labels: Optional[Tensor]  # noqa: UP045

    def clip(x, limit: float = 1.0):
        if bool(x.sum() > limit):
            return x * 0
        return x

    def loops(x, n: int):
        total = 0
        for i in range(1, n, 2):
            if i == 5:
                continue
            if i > 9:
                break
            total += i
        while total > 7:
            total -= 3
            x = x + total
        a, b = 1, 2
        for _ in range(3):
            a, b = b, a + b
        return x, total, a, b

    def booleans(x, flag: bool):
        signs = x > 0
        made = torch.full([2], flag), torch.full([2], True), torch.full_like(x, True), torch.where(signs, True, flag)
        return made, signs + flag, signs * flag, x - flag, signs.masked_fill(signs, flag)

    def numbers(n: int, t: float, flag: bool):
        made = (
            2**n, n**2.0, 7 // 2, -7 // 2, 7 % 3, -7 % 3, n / 2, n * t, -n, abs(-3), max(3, n), min(t, 2.0), int(2.7),
            float(n), divmod(7, 2), sum([1, 2]), sorted([3, 1, 2]), n & 6, n | 1, n ^ 2, n << 2, n >> 1, not flag,
            math.sqrt(t), math.floor(t), math.pi, round(2.5), bool(n), n == 3, n != 3, 1 < n < 4, t >= 2.0 or flag,
            n > 2 and not flag, n if flag else 7, math.log(t), math.inf, math.ceil(t),
        )  # fmt: skip
        return made

    def slices(x):
        # as programs of torch.fx are written
        shape = x.shape
        kept = shape[slice(None, -1, None)]
        made = x.reshape(kept + (1, -1)), x[slice(1, 3)], x[slice(None, None, 2), 1], x[slice(2)], shape[slice(1)]
        w = x.t()
        products = (
            torch.functional.tensordot(x, w, ([1], [0]), out=None), torch.tensordot(x, w, dims=1),
            torch.tensordot(x, x, ([0, 1], [0, 1])), torch.tensordot(x, x, dims=([1], [1])),
        )  # fmt: skip
        return made, products

    def strings(a: str, n: int, t: float):
        parts = a.split(",")
        text = f"{a}:{n}|{t}"
        if a < "b" and "x" not in a:
            text += "<"
        joined = "-".join(parts).upper() + str(n) + a[1:] + a[0] + a[-1]
        listed = [c + "." for c in parts]
        return (
            parts, text, joined, listed, "{} of {}".format(a, n), "%d of %s" % (n, a), a.find("b"), a.replace("a", "é"),  # noqa: UP031, UP032
            a.startswith("a"), a.strip(), len(a), a == "q", "tab\t\"quoted\" \\ 'é'\n",
        )  # fmt: skip

    def containers(x, n: int):
        xs: list[int] = []
        table: dict[str, Tensor] = {}
        for i in range(n):
            xs.append(i * i)
            table[str(i)] = x * i
        xs[0] = 7
        xs += [5]
        xs.insert(1, 3)
        last = xs.pop()
        keys = [k + "!" for k in table.keys()]  # noqa: SIM118
        total = x
        for key, value in table.items():
            if key != "1":
                total = total + value
        pairs = [(i, v) for i, v in enumerate(xs)]
        both = [a + b for a, b in zip(xs, [10, 20, 30])]
        del table["0"]
        numbers = {"a": 1, "b": 2}
        numbers["a"] += 5
        found = numbers.get("c", 9) + numbers["a"]
        return xs, last, keys, total, pairs[1], both, len(table), "1" in table, 25 in xs, xs[1:3], xs[-1], found

    def optionals(x, y: Optional[Tensor] = None, n: Optional[int] = None):  # noqa: UP045
        if y is not None:
            x = x + y
        count = 0
        if n is not None and n > 2:
            count = n * 2
        else:
            n = 1
        if y is None or n == 5:
            return x, count
        z: Optional[Tensor] = None  # noqa: UP045
        if count > 0:
            z = y * 2
        assert z is not None, "z is there"
        return z + x, count

    def indices(x, i: int):
        y = x.clone()
        y[0] = 3.0
        y[1, 1:] = x[0, 1:] * 2
        y[x > 2] = 0.0
        y[2] += 1
        rows = torch.tensor([0, 2])
        return (
            y, x[i], x[-1, 0], x[1:, ::2], x[:, None].shape, x[..., 0], x[rows], x[rows, 1], x[:, rows[:1]],
            x[None, 1:, ..., 1], x[x > 1], x.shape[0], x.size(1), x.shape, x.dtype == torch.float32,
        )  # fmt: skip

    def operators(x):
        largest, where = x.max(1)
        return (
            largest, where, x.sum(), x.sum(1, keepdim=True), x.mean(dim=0), torch.cat([x, x], 1), torch.stack((x, x)),
            x.view(-1), x.reshape(2, 6), x.permute(1, 0), x.t() @ x, x.transpose(0, 1), x.topk(2), x.sort(1)[0],
            torch.where(x > 0, x, -x), x.chunk(2, 1), x.split([1, 3], 1), x.unbind(0)[1], 2 - x, 1 / (x + 10), x**2,
            x // 2, x.to(torch.float64), x.long(), torch.zeros(2, 3), torch.ones([2], dtype=torch.int32),
            x.new_zeros(2),
            torch.arange(4), torch.full([2], 3.0), torch.tensor([1.5, 2.0]), x.masked_fill(x > 0, 0.0),
            x.clamp(-1.0, 1.0),
            x.expand(2, -1, -1), x.squeeze(), x.unsqueeze(0).shape, x.numel(), x.dim(), x.argmax(1), torch.norm(x),
            F.relu(x), F.softmax(x, dim=1), F.log_softmax(x, 1), F.gelu(x), F.layer_norm(x, [4]), F.normalize(x),
            F.leaky_relu(x, 0.2), F.pad(x, [1, 1]), x.flatten(), ~(x > 0), x.float().item() if x.numel() == 1 else 0.5,
            torch.einsum("ij,kj->ik", x, x), torch.sqrt(x.abs()), x.T, x.repeat(2, 1), float(x[0, 0]), int(x[0, 1]),
            x.type_as(where), x.gather(1, where[:, None]), torch.linspace(0, 1, 3), torch.eye(2), x.std(), x.exp(),
        )  # fmt: skip

    def losses(x, target):
        return (
            F.cross_entropy(x, target),
            F.nll_loss(x, target, reduction="sum"),
            F.mse_loss(x, x * 2),
            F.l1_loss(x, -x),
            F.l1_loss(x, -x, size_average=False),
            F.kl_div(x, x.softmax(1), reduction="batchmean"),
            F.kl_div(x, x, log_target=True),
            F.huber_loss(x, -x, delta=0.5),
            F.huber_loss(x, -x, weight=x),
            F.smooth_l1_loss(x, -x, beta=0.0),
            F.binary_cross_entropy(x.sigmoid(), x.softmax(1), x[0]),
            F.poisson_nll_loss(x, x.abs(), full=True),
            F.hinge_embedding_loss(x, x.sign()),
            F.margin_ranking_loss(x[0], x[1], x[2].sign()),
            F.cosine_embedding_loss(x, x + 1, target - 1, 0.1),
            F.triplet_margin_loss(x, x + 1, x - 2),
            F.multi_margin_loss(x, target, p=2),
            F.soft_margin_loss(x, x.sign()),
            F.multilabel_soft_margin_loss(x, x.sigmoid(), reduction="none"),
        )

    class Counter:
        def __init__(self, start: int):
            self.count = start
            self.seen = [start]

        def add(self, more: int) -> int:
            self.count += more
            self.seen.append(more)
            return self.count

    def objects(x, n: int):
        counter = Counter(n)
        counter.add(2)
        total = counter.add(3)
        found = Boxes(x, scores=x * total, labels=None)
        kept = found.scores + found.boxes
        labels = found.labels
        if labels is not None:
            kept = kept + labels
        boxes, scores, _ = found
        return counter.count, counter.seen, kept, scores - boxes, found

    class MLP(nn.Module):
        width: Final[int]

        def __init__(self):
            super().__init__()
            self.width = 4
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.norm, self.drop = nn.LayerNorm(4), nn.Dropout(0.0)
            self.out = nn.Linear(4, 2, bias=False)
            self.scale = 2.0
            self.names = {"a": 1}

        def half(self, x):
            return x / 2

        @torch.jit.export
        def doubled(self, x, times: int = 2):
            return self.half(x) * times

        @torch.jit.unused
        def never(self, x):
            return x.numpy()

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x) * (i + 1)
            if self.training:
                x = self.drop(x)
            if x.shape[-1] != self.width:
                x = self.never(x)
            return self.out(self.norm(self.half(x))) * self.scale * self.names["a"]

    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3, groups=2, stride=2, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            )  # fmt: skip
            self.head = nn.Linear(4, 3)
            self.skip = None

        def forward(self, x):
            x = self.features(x)
            if self.skip is not None:
                x = self.skip(x)
            return F.log_softmax(self.head(torch.flatten(x, 1)), dim=-1)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(8, 5)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, last = self.gru(y)
            again, _ = self.lstm(x, (h, c))
            return z, h, c, last, again

    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4)
            self.tanh, self.relu = nn.RNNCell(3, 4), nn.RNNCell(3, 4, bias=False, nonlinearity="relu")
            self.long, self.rnn, self.short = nn.LSTM(3, 4, proj_size=2), nn.RNN(3, 4, 2), nn.GRU(3, 2)

        def forward(self, x):
            h, c = self.lstm(x)
            h, c = self.lstm(x + 1, (h, c))
            one = self.gru(x)
            found = [one, self.gru(x, h), self.tanh(x), self.relu(x, one), self.tanh(x[0]), self.gru(x[0], one[0])]
            (a, b), (d, e) = self.lstm(x[0]), self.lstm(x[0], (h[0], c[0]))
            y, (s, t) = self.long(x)
            return h, c, found, a, b, d, e, y, s, t, self.rnn(x), self.short(x[:, None])

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = nn.MultiheadAttention(8, 2)
            self.first = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True)
            self.other = nn.MultiheadAttention(8, 4, kdim=6, vdim=5, batch_first=True)

        def forward(self, x, hidden):
            future = torch.ones(x.size(0), x.size(0)).triu(1) > 0
            y, weights = self.plain(x, x, x, attn_mask=future)
            z, none = self.first(x, x, x, need_weights=False, key_padding_mask=hidden)
            heads = self.first(x, x, x, average_attn_weights=False)
            mixed = self.other(x, x[..., :6], x[..., 1:6], key_padding_mask=hidden)
            numbers = future.float() * -2
            single = self.plain(x[:, 0], x[:, 0], x[:, 0], attn_mask=numbers)
            causal = self.plain(x, x, x, attn_mask=future, is_causal=True, need_weights=False)
            return y, weights, z, none is None, heads, mixed, single, causal[0]

    class Layer(nn.TransformerEncoderLayer):
        def _ff_block(self, x: Tensor) -> Tensor:
            return self.linear2(self.activation(self.linear1(x))) * 2

    class Transformers(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8))
            self.before = nn.TransformerEncoderLayer(8, 2, 16, 0.0, nn.SiLU(), norm_first=True)
            self.own = Layer(8, 2, 16, 0.0)
            self.whole = nn.Transformer(8, 2, 1, 2, 16, 0.0, norm_first=True)
            self.embedding = nn.Embedding(10, 8)

        def forward(self, tokens, hidden):
            x = self.embedding(tokens)
            future = torch.triu(torch.full([x.size(1), x.size(1)], -math.inf), 1)
            whole = self.whole(x, x + 1, tgt_mask=torch.zeros(2, 2), src_key_padding_mask=hidden.t())
            return (
                self.encoder(x), self.encoder(x, src_key_padding_mask=hidden), self.encoder(x, future),
                self.encoder(x, future, is_causal=True), self.before(x), self.own(x, hidden[:, :2]), whole,
            )  # fmt: skip

    class Sizes(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = (
                nn.ConvTranspose2d(2, 2, 3, 2, 1),
                nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
            )
            self.pool, self.norm = nn.MaxPool2d(2, return_indices=True), nn.InstanceNorm2d(2, affine=True)
            self.shuffle, self.pad = nn.PixelUnshuffle(2), nn.CircularPad2d(1)
            self.scale = (2.0, 1.5)

        @property
        def twice(self) -> float:
            return self.scale[0] * 2

        def forward(self, x, scale: Optional[float] = None):  # noqa: UP045
            pooled, where = self.pool(x)
            grid = F.affine_grid(torch.eye(2, 3)[None].expand(2, 2, 3), [2, 2, 3, 5], align_corners=False)
            sizes = [
                F.interpolate(x, scale_factor=2.0), F.interpolate(x, size=[3, 5], mode="bilinear"),
                F.interpolate(x, scale_factor=self.scale, mode="bicubic", align_corners=True),
                F.interpolate(x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True),
                F.interpolate(x, size=(3, 4), mode="area"), F.interpolate(x, size=[3, 5], mode="nearest-exact"),
                F.interpolate(x, size=[2, 3], mode="bilinear", antialias=True), F.interpolate(x[0], 5, mode="linear"),
                F.interpolate(x[:, :, None], size=(1, 3, 4), mode="trilinear"),
            ]  # fmt: skip
            if scale is not None:
                sizes.append(F.interpolate(x, size=None, scale_factor=scale))
            for low, high in ((0, 1), (1, None)):
                sizes.append(x[low:high] * self.twice)
            return (
                pooled, where, self.up(x, output_size=[8, 16]), self.up(x), self.down(x), self.norm(x), self.shuffle(x),
                self.pad(x), sizes, F.grid_sample(x, grid, align_corners=False), F.local_response_norm(x, 2),
                F.grid_sample(x, grid, "nearest", "border"), F.adaptive_max_pool2d(x, 2), F.lp_pool2d(x.abs(), 2.0, 2),
                F.max_pool2d(x, 2, stride=1), F.softsign(x), F.instance_norm(x), F.pad(x, (1, 1, 2, 0), "reflect"),
                any([s.dim() == 3 for s in sizes]), any(s.shape[-1] > 100 for s in sizes),
            )  # fmt: skip

    class Pools(nn.Module):
        """Pooling with random windows (here given), and its inverse."""

        def __init__(self):
            super().__init__()
            places = torch.arange(8.0).view(2, 2, 2) / 8
            self.sized = nn.FractionalMaxPool2d(2, output_size=(2, 5), _random_samples=places)
            self.scaled = nn.FractionalMaxPool2d((2, 3), None, (0.5, 0.6), True, places)
            self.random = nn.FractionalMaxPool3d(2, output_ratio=0.5)
            self.pool, self.line = nn.MaxPool2d(2, return_indices=True), nn.MaxPool1d(3, 2, 1, return_indices=True)
            self.volume = nn.MaxPool3d((1, 2, 2), return_indices=True)
            self.fitted = nn.AdaptiveMaxPool2d((2, 3), return_indices=True)

        def forward(self, x, places):
            pooled, where = self.pool(x)
            line, line_where = self.line(x[0])
            volume, volume_where = self.volume(x[None])
            one, one_where = F.adaptive_max_pool1d(x[0], 3, return_indices=True)
            found, found_where = F.fractional_max_pool2d(x, 2, 2, return_indices=True, _random_samples=places)
            return (
                self.sized(x), self.scaled(x), self.random(x.repeat(1, 2, 1, 1)[None]).shape, self.fitted(x),
                F.max_unpool2d(pooled, where, (2, 2), stride=2), F.max_unpool2d(pooled, where, 2),
                F.max_unpool2d(pooled, where, 2, 2, 0, [5, 9]), F.max_unpool2d(pooled, where, 2, output_size=x.size()),
                F.max_unpool1d(line, line_where, 3, 2, 1, [8]),
                F.max_unpool3d(volume, volume_where, (1, 2, 2)), one, one_where, found, found_where,
                F.fractional_max_pool2d(x[0], 2, output_ratio=0.5, _random_samples=places[:1]),
                F.fractional_max_pool3d(x.repeat(1, 2, 1, 1), (2, 2, 2), output_size=[2, 2, 4]).shape,
                F.adaptive_max_pool3d(x, (1, 2, 4)),
            )  # fmt: skip

    class Early(nn.Module):
        """Loops over modules, and over a tuple of several types, that leave the function."""

        layout: Layout
        other: Layout

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)])
            self.stack = nn.Sequential(nn.Tanh(), nn.Linear(4, 4))
            self.layout, self.other = Layout.ROWS, Layout.COLUMNS

        def until(self, x, limit: float):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if bool(x.sum() > limit):
                    return x, i
            return x * 0, -1

        def first(self, x):
            for layer in self.stack:
                return layer(x)

        def pairs(self, x, n: int):
            total = 0
            for one, other in zip(self.layers, self.stack):
                for k in range(n):
                    if k == 2:
                        continue
                    if k > 3:
                        break
                    x = other(one(x))
                    total += k
                if total > 5:
                    return x, total
            return x, total + 100

        def checked(self, x):
            for layer in self.layers:
                if x.dim() != 2:
                    raise ValueError("two dimensions")
                x = layer(x)
            return x

        def large(self, parts: tuple[int, float, bool]) -> float:
            for part in parts:
                if part > 1:
                    return float(part)
            return 0.0

        def forward(self, x, limit: float, n: int):
            parts = (n, limit) + (True,)
            if self.layout != Layout.ROWS or self.other == Layout.ROWS:
                x = x * 2
            return self.until(x, limit), self.first(x), self.pairs(x, n), self.checked(x), self.large(parts)

    class Overloaded(nn.Module):
        @torch.jit._overload_method
        def forward(self, x: Tensor) -> Tensor:
            pass

        @torch.jit._overload_method
        def forward(self, x: list[Tensor]) -> Tensor:  # noqa: F811
            pass

        def forward(self, x):  # noqa: F811
            if isinstance(x, Tensor):
                parts = [x]
            else:
                parts = x
            return torch.cat(parts, 1)

    class Forms(nn.Module):
        def __init__(self):
            super().__init__()
            self.join = Overloaded()

        def forward(self, x):
            torch._assert(x.dim() == 2, f"two dimensions, not {x.dim()}")
            named = OrderedDict([("a", x), ("b", x * 2)])
            named["c"] = self.join([x, x])
            listed: list[float] = x[0].tolist()
            bags = (
                F.embedding_bag(x.long() % 3, x, mode="sum"),
                F.embedding_bag(x[0].long() % 3, x, torch.tensor([0, 2])),
            )
            pair = (x, x + 1) * 2
            return self.join(x), named["c"], list(named.keys()), listed, torch.stack(pair), x.abs().byte(), bags

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.color = 0, Color.RED
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x):
            self.count += 1
            self.total += x
            with torch.no_grad():
                fixed = x * 2
            if self.color == Color.BLUE:
                x = x - 1
            return x * self.count, self.total + fixed, self.count

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.limit, self.names = 0.5, {0: "cat", 1: "dog"}
            self.register_buffer("offsets", torch.arange(2.0))

        def iou(self, box, boxes):
            low, high = torch.max(box[:2], boxes[:, :2]), torch.min(box[2:], boxes[:, 2:])
            inside = (high - low).clamp(min=0).prod(1)
            area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
            return inside / ((box[2:] - box[:2]).prod() + area - inside)

        def keep(self, boxes: Tensor, scores: Tensor, most: int = 100) -> list[int]:
            order = torch.argsort(scores, descending=True)
            kept: list[int] = []
            while order.numel() > 0:
                if len(kept) >= most:
                    break
                first = int(order[0].item())
                kept.append(first)
                if order.numel() == 1:
                    break
                rest = order[1:]
                order = rest[self.iou(boxes[first], boxes[rest]) <= self.limit]
            return kept

        def forward(self, boxes, scores, labels: Optional[Tensor] = None, most: int = 100):  # noqa: UP045
            found: list[Boxes] = []
            texts: dict[str, int] = {}
            for i, name in self.names.items():
                chosen = torch.nonzero(scores[:, i] > 0.2).squeeze(1)
                if chosen.numel() == 0:
                    continue
                kept = self.keep(boxes[chosen], scores[chosen, i], most)
                places = torch.tensor(kept)
                if labels is not None:
                    found.append(Boxes(boxes[chosen][places], scores[chosen, i][places], labels + i))
                else:
                    found.append(Boxes(boxes[chosen][places] + self.offsets[i], scores[chosen, i][places], None))
                texts[name.upper()] = len(kept)
            if len(found) == 0:
                raise ValueError(f"nothing was found among {boxes.shape[0]} boxes")
            return found[0], texts, [b.boxes.shape[0] == 1 for b in found]

    x = torch.tensor([[1.0, -2.0, 3.0, 0.5], [4.0, 0.0, -1.0, 2.5], [2.0, 2.5, 1.0, -3.0]])
    image = torch.arange(128.0).view(2, 2, 4, 8).sin()
    words = torch.tensor([[1, 2, 3], [4, 5, 0]])
    hidden, sequence = words == 0, torch.arange(48.0).view(2, 3, 8).sin()
    corner = torch.arange(24.0).view(12, 2).cos() * 2
    boxes, scores = torch.cat([corner, corner + 2], 1), torch.arange(24.0).view(12, 2).sin().abs()
    return {
        "clip": (clip, [(x,), (-x,), (x, 100.0)]),
        "loops": (loops, [(x, 4), (x, 20)]),
        "booleans": (booleans, [(x, True), (x, False)]),
        "numbers": (numbers, [(3, 2.5, True), (2, 0.5, False)]),
        "strings": (strings, [("ab,c", 3, 2.5), ("x", -1, 1e-7)]),
        "containers": (containers, [(x, 4), (x, 6)]),
        "optionals": (optionals, [(x,), (x, x, 3), (x, x, 5)]),
        "indices": (indices, [(x, 0), (x, -1)]),
        "operators": (operators, [(x,)]),
        "slices": (slices, [(x,)]),
        "losses": (losses, [(x, torch.tensor([0, 3, 1]))]),
        "objects": (objects, [(x, 2)]),
        "MLP": (MLP(), [(x,)]),
        "ConvNet": (ConvNet().eval(), [(image,)]),
        "ConvNet in training": (ConvNet(), [(image,)]),
        "recurrent": (Recurrent(), [(x[:, :3].expand(2, 3, 3).contiguous(),)]),
        "cells": (Cells(), [(x[:, :3],)]),
        "attention": (Attention(), [(sequence, hidden), (sequence[:, :, :], hidden)]),
        "transformers": (Transformers(), [(words, hidden)]),
        "transformers in evaluation": (Transformers().eval().requires_grad_(False), [(words, hidden)]),
        "sizes": (Sizes(), [(image,), (image, 1.5)]),
        "pools": (Pools().eval(), [(image, torch.arange(8.0).view(2, 2, 2).cos().abs())]),
        "early": (Early(), [(x, 1.0, 3), (x, -9.0, 6), (-x, 100.0, 0)]),
        "forms": (Forms(), [(x,)]),
        "steps": (Steps(), [(x[0, :2],), (x[1, :2],)]),
        "detector": (Detector(), [(boxes, scores), (boxes, scores, torch.arange(3), 2)]),
    }
