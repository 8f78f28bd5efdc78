"""Programs for `torch.jit.script` of both libraries: objects of classes in modules, hooks, interfaces, and what
detectors of images use besides.
"""

import math
from collections import OrderedDict
from typing import Optional


def make(torch):
    """Programs by name: what is scripted, and lists of arguments."""
    nn, F, Tensor = torch.nn, torch.nn.functional, torch.Tensor
    _pair, BroadcastingList2 = torch.nn.modules.utils._pair, torch.jit.annotations.BroadcastingList2

    class Coder:
        """Boxes as steps from anchors, and back."""

        def __init__(self, weights: tuple[float, float], clip: float = math.log(1000.0 / 16)) -> None:
            self.weights = weights
            self.clip = clip

        def decode(self, codes: Tensor, anchors: list[Tensor]) -> Tensor:
            torch._assert(isinstance(anchors, (list, tuple)), "anchors are a list")
            total = 0
            for size in [a.size(0) for a in anchors]:
                total += size
            if total > 0:
                codes = codes.reshape(total, -1)
            return self.decode_single(codes, torch.cat(anchors))

        def decode_single(self, codes: Tensor, anchors: Tensor) -> Tensor:
            wx, wy = self.weights
            return anchors + torch.clamp(codes[:, 0::2] / wx, max=self.clip).sum() * codes / wy

    class Matcher:
        LOW = -1
        BETWEEN = -2

        __annotations__ = {"LOW": int, "BETWEEN": int}

        def __init__(self, high: float, low: float, again: bool = False) -> None:
            self.LOW = -1
            self.BETWEEN = -2
            torch._assert(low <= high, "low is not more than high")
            self.high = high
            self.low = low
            self.again = again

        def __call__(self, quality: Tensor) -> Tensor:
            if quality.numel() == 0:
                if quality.shape[0] == 0:
                    raise ValueError("no boxes")
                else:
                    raise ValueError("no anchors")
            values, matches = quality.max(dim=0)
            if self.again:
                all_matches = matches.clone()
            else:
                all_matches = None
            matches[values < self.low] = self.LOW
            matches[(values >= self.low) & (values < self.high)] = self.BETWEEN
            if self.again:
                if all_matches is None:
                    torch._assert(False, "all_matches is there")
                else:
                    self.restore(matches, all_matches, quality)
            return matches

        def restore(self, matches: Tensor, all_matches: Tensor, quality: Tensor) -> None:
            best, _ = quality.max(dim=1)
            where = torch.where(quality == best[:, None])[1]
            matches[where] = all_matches[where]

    class Sure(Matcher):
        def __init__(self, limit: float) -> None:
            super().__init__(limit, limit)

    class Levels:
        def __init__(self, low: int, high: int, eps: float = 1e-6):
            self.low = low
            self.high = high
            self.eps = eps

        def __call__(self, boxes: list[Tensor]) -> Tensor:
            sizes = torch.sqrt(torch.cat([b[:, 2] - b[:, 0] for b in boxes]).abs())
            found = torch.floor(4 + torch.log2(sizes) + torch.tensor(self.eps, dtype=sizes.dtype))
            return (torch.clamp(found, min=self.low, max=self.high).to(torch.int64) - self.low).to(torch.int64)

    class Images:
        def __init__(self, tensors: Tensor, sizes: list[tuple[int, int]]) -> None:
            self.tensors = tensors
            self.sizes = sizes

    def levels_of(sizes: list[tuple[int, int]]):
        if not sizes:
            raise ValueError("there are no images")
        largest = 0
        for size in sizes:
            largest = max(size[0], largest)
        low = -torch.log2(torch.tensor(1.0 / largest, dtype=torch.float32)).item()
        return [0.5, 2 ** float(largest)], Levels(int(low), int(low) + 3)

    def kept(boxes: Tensor, scores: Tensor, most: int) -> Tensor:
        if boxes.numel() > (8 if boxes.device.type == "cpu" else 100) and not torch.jit.is_tracing():
            return torch.argsort(scores, descending=True)[:most]
        return torch.arange(boxes.size(0))

    def similarity(one: Tensor, other: Tensor) -> Tensor:
        return one @ other.t()

    class Detector(nn.Module):
        __annotations__ = {
            "coder": Coder, "matcher": Matcher, "strict": Matcher, "cells": list[Tensor],
            "scales": Optional[list[float]], "levels": Optional[Levels],  # noqa: UP045
        }  # fmt: skip

        def __init__(self):
            super().__init__()
            self.coder, self.matcher, self.strict = Coder((10.0, 5.0)), Matcher(0.8, 0.2, True), Sure(0.5)
            self.scales = self.levels = None
            self.cells = [torch.ones(4), torch.zeros(4)]
            self.heads = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.similarity, self.warned = similarity, False

        @torch.jit.unused
        def eager(self, losses: dict[str, Tensor], found: list[dict[str, Tensor]]) -> dict[str, Tensor]:
            return losses

        def level(self, x: Tensor, at: int) -> Tensor:
            if at < 0:
                at += len(self.heads)
            out = x
            for i, head in enumerate(self.heads):
                if i == at:
                    out = head(x)
            return out

        def set_cells(self, like: Tensor):
            self.cells = [cell.to(dtype=like.dtype, device=like.device) for cell in self.cells]

        def labels(
            self,
            boxes,  # type: list[Tensor]
            targets,  # type: Optional[list[dict[str, Tensor]]]
        ):
            # type: (...) -> tuple[list[Tensor], int]
            if targets is None:
                raise ValueError("targets should not be None")
            if not all(["boxes" in t for t in targets]):
                raise ValueError("every target has boxes")
            found = []
            for _, (box, target) in enumerate(zip(boxes, targets)):
                matched = self.matcher(torch.sigmoid(similarity(target["boxes"], box)))
                found.append(matched == self.matcher.BETWEEN)
            return found, self.matcher.LOW

        def post(self, boxes: Tensor, sizes: list[tuple[int, int]]) -> list[dict[str, Tensor]]:
            result: list[dict[str, Tensor]] = []
            for i, (box, (height, width)) in enumerate(zip(boxes.split([1, boxes.size(0) - 1]), sizes)):
                scores = box.sum(1) * height / width
                keep = kept(box, scores, 3)
                result.append({"boxes": box[keep], "scores": scores[keep] + i})
            return result

        def forward(
            self,
            images: list[Tensor],
            targets: Optional[list[dict[str, Tensor]]] = None,  # noqa: UP045
        ) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], Tensor, list[Tensor]]:
            sizes: list[tuple[int, int]] = []
            for image in images:
                val = image.shape[-2:]
                torch._assert(len(val) == 2, f"two dimensions and not {image.shape[-2:]}")
                sizes.append((val[0], val[1]))
            images = Images(torch.stack(images), sizes)
            if targets is not None:
                for at, target in enumerate(targets):
                    wrong = target["boxes"] > 1e6
                    if wrong.any():
                        first: list[float] = target["boxes"][torch.where(wrong.any(dim=1))[0][0]].tolist()
                        torch._assert(False, f"a box is wrong: {first} at {at}")
            features = self.heads[0](images.tensors)
            if isinstance(features, Tensor):
                features = OrderedDict([("0", features)])
            features = list(features.values())
            if self.scales is None or self.levels is None:
                self.scales, self.levels = levels_of(images.sizes)
            mapper = self.levels
            if mapper is None:
                raise ValueError("there is a mapper")
            self.set_cells(features[0])
            boxes = [self.level(f, -1) for f in features[0].unbind(0)]
            places = mapper(boxes)
            decoded = self.coder.decode(torch.stack(boxes), [b * 0.5 + self.cells[0] for b in boxes])
            matches = self.strict(torch.sigmoid(self.similarity(decoded, boxes[0])))
            losses = {}
            found: list[dict[str, Tensor]] = []
            labels = []
            if targets is not None:
                labels, low = self.labels(boxes, targets)
                losses = {"sum": decoded.sum() / max(1, labels[0].sum()), "low": torch.tensor(low)}
            else:
                found = self.post(decoded, images.sizes)
            if torch.jit.is_scripting():
                if not self.warned:
                    self.warned = True
                return losses, found, places + matches.sum(), labels
            return self.eager(losses, found)

    def conditions(x: Optional[Tensor], n: int, flag: bool, names: list[str], text: str):  # noqa: UP045
        k, total = 0, 0
        while k < (n if flag else 2) and len([i for i in range(k)]) < 9:
            k += 1
            if k == 4:
                continue
            total += k
        parts: list[int] = []
        if x is not None and (x.sum() if flag else x.mean()) > 0:
            parts.append(x.dim())
        if x is None or (x.dim() if flag else 3) > 2:
            parts.append(7)
        else:
            parts.append(x.size(0) + 100)
        if not (x is not None and (2 if flag else n) < x.dim() + 1):
            parts.append(9)
        y = x * 2 if x is not None and (n if flag else 1) > 0 else torch.zeros(1)
        both = (n > 2 and (k if flag else 0) > 1) or (total if flag else n) == 1
        kinds = ("a", "b")
        return (
            k, total, parts, y, both, bool(names), not text, "c" if not names else names[0], text in kinds,
            text not in kinds, n in (1, 3), torch._C._get_tracing_state() is None,
        )  # fmt: skip

    def area(size: BroadcastingList2[int], scale: float = 1) -> float:
        return size[0] * size[1] * scale

    def pasted(mask, box, height: int, width: int):
        w, h = int(box[2] - box[0] + 1), int(box[3] - box[1] + 1)
        mask = F.interpolate(mask.expand((1, 1, -1, -1)), size=(max(h, 1), max(w, 1)), mode="nearest")[0][0]
        out = torch.zeros((height, width), dtype=mask.dtype, device=mask.device)
        x0, x1 = max(box[0], 0), min(box[2] + 1, width)
        y0, y1 = max(box[1], 0), min(box[3] + 1, height)
        out[y0:y1, x0:x1] = mask[(y0 - box[1]) : (y1 - box[1]), (x0 - box[0]) : (x1 - box[0])]
        return out, x0

    def pieces(mask, box):
        size = _pair(2)
        shape = (3, 2) + size
        once, (values, counts) = torch.unique(box), torch.unique(box, return_counts=True)
        empty = torch.empty((), dtype=torch.int64).fill_(4)
        stacked = torch.stack((mask[0], mask[1]) * len(size), dim=-1)
        padded = F.pad(mask, (len(size),) * 4)
        largest, order = mask.max(dim=1).values, mask.sort(1).indices
        total = 0
        for i, (a, (b, c)) in enumerate(zip([1, 2], zip([3, 4], [5.0, 6.0]))):
            total += int(i * a + b * c)
        return (
            torch.zeros(shape), area(3), area([2, 3], 2.0), size, once, values, counts, empty, stacked, padded, total,
            largest, order, pasted(mask, box, 6, 5), pasted(mask, box - 1, 4, 4), mask[:, [1, 0]],
            mask[..., None, :2].shape,
        )  # fmt: skip

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor, self.linear = 3.0, nn.Linear(4, 4)

        def forward(self, x, y: float):
            return self.linear(x) * y, x

    def doubled(self, input: tuple[Tensor, float]) -> tuple[Tensor, float]:
        return input[0] * 2, input[1] + self.factor

    def quiet(self, input: tuple[Tensor, float]) -> None:
        self.factor += 1.0

    def shifted(self, input: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> Tensor:
        return output[0] + input[0].sum() * self.factor

    def halved(self, input: tuple[Tensor], output: Tensor) -> Tensor:
        return output / 2

    def wrapped(self, input: tuple[Tensor, float]) -> tuple[Tensor, float]:
        return input[0] + 1, input[1] - self.inner.factor

    def seen(self, input: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return output[0], output[1], input[0]

    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = Inner(), nn.Linear(4, 4)
            self.layers = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
            self.inner.register_forward_pre_hook(doubled)
            self.inner.register_forward_pre_hook(quiet)
            self.inner.register_forward_hook(shifted)
            self.outer.register_forward_hook(halved)
            self.layers[1].register_forward_hook(halved)
            self.register_forward_pre_hook(wrapped)
            self.register_forward_hook(seen)

        def forward(self, x, y: float):
            x = self.outer(self.inner(x, y))
            return self.layers(x), self.outer.forward(x)

    @torch.jit.interface
    class Shape:
        def area(self, scale: float) -> float:
            pass

    class Square:
        def __init__(self, side: float):
            self.side = side

        def area(self, scale: float) -> float:
            return self.side * self.side * scale

    class Unit:
        def __init__(self):
            self.one = 1

        def area(self, scale: float) -> float:
            return scale

    @torch.jit.interface
    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            pass

    class Adder(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + 1

    class Doubler(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    class Interfaces(nn.Module):
        first: Layer
        second: Layer

        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = Adder(), Doubler(), Doubler()

        def run(self, layer: Layer, x: Tensor) -> Tensor:
            layers = torch.jit.annotate(list[Layer], [layer, self.second])
            return layers[0].forward(layers[1].forward(x))

        def forward(self, x, side: float):
            shapes = torch.jit.annotate(list[Shape], [Square(side), Unit()])
            total = 0.0
            for shape in shapes:
                total += shape.area(2.0)
            return self.run(self.first, x), self.second(x), self.run(self.second, x) + self.second.forward(x), total

    x = torch.arange(12.0).view(3, 4).sin()
    images = [x, x.cos(), x * 0.5]
    targets = [{"boxes": x + 1}, {"boxes": x.cos()}, {"boxes": x * 3}]
    mask, box = torch.arange(9.0).view(3, 3), torch.tensor([1, 0, 3, 4])
    return {
        "detectors": (Detector(), [(images,), (images, targets)]),
        "conditions": (conditions, [(x, 5, True, ["q"], "a"), (-x, 6, False, [], ""), (None, 3, True, ["b"], "c")]),
        "pieces": (pieces, [(mask, box)]),
        "hooks": (Hooked(), [(x, 2.0), (x, -1.0)]),
        "interfaces": (Interfaces(), [(x, 2.0)]),
    }
