"""Operators that torchvision and torchaudio bring compiled, against direct computations, and their derivatives.

`tests/ecosystem/programs/torchvision_ops.py` compares them with torchvision's own.
"""

import io
import itertools
import math

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.compat import compiled_libraries
from tensorgrad.compat.torchaudio_operators import OPERATORS as AUDIO
from tensorgrad.compat.torchvision_images import OPERATORS as IMAGES
from tensorgrad.compat.torchvision_operators import OPERATORS as VISION

SEEDS = range(4)


def bilinear(plane, y, x):
    """The value of an image plane between pixels; 0 more than a pixel outside."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = int(y), int(x)
    below, right = min(i + 1, height - 1), min(j + 1, width - 1)
    top = plane[i, j] * (1 - x + j) + plane[i, right] * (x - j)
    return top * (1 - y + i) + (plane[below, j] * (1 - x + j) + plane[below, right] * (x - j)) * (y - i)


def aligned_bin(plane, box, scale, bins, i, j, samples, aligned):
    shift = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (v * scale - shift for v in box)
    height, width = y2 - y1, x2 - x1
    if not aligned:
        height, width = max(height, 1.0), max(width, 1.0)
    step_y, step_x = height / bins[0], width / bins[1]
    rows, columns = (samples,) * 2 if samples > 0 else (math.ceil(step_y), math.ceil(step_x))
    total = sum(
        bilinear(plane, y1 + (i + (a + 0.5) / rows) * step_y, x1 + (j + (b + 0.5) / columns) * step_x)
        for a in range(rows)
        for b in range(columns)
    )
    return total / max(rows * columns, 1)


def whole_pixels(box, scale, bins, i, j, shape, inclusive):
    x1, y1, x2, y2 = (math.floor(v * scale + 0.5) for v in box)
    edges = []
    for first, last, count, k, size in ((y1, y2, bins[0], i, shape[0]), (x1, x2, bins[1], j, shape[1])):
        step, limit = max(last - first + inclusive, 1) / count, size - (not inclusive)
        edges.append(
            [min(max(math.floor(k * step) + first, 0), limit), min(max(math.ceil((k + 1) * step) + first, 0), limit)]
        )
    return edges


def case(seed, channels_per_bin=False):
    """Images, boxes inside and partly outside, the bins, a scale and a number of samples."""
    random = np.random.RandomState(seed)
    images, height, width = random.randint(1, 3), random.randint(2, 9), random.randint(2, 9)
    bins = (random.randint(1, 4), random.randint(1, 4))
    channels = 2 * bins[0] * bins[1] if channels_per_bin else 2
    x = random.randn(images, channels, height, width)
    corners = random.uniform(-3, 8, (4, 2))
    boxes = np.concatenate([random.randint(0, images, (4, 1)), corners, corners + random.uniform(0.5, 9, (4, 2))], 1)
    return x, boxes, bins, float(random.choice([1.0, 0.5])), int(random.choice([-1, 1, 2]))


def every(x, boxes, bins, value):
    """An array of `value(plane's image, channel, box, i, j)` for all boxes and bins."""
    return lambda channels: np.array(
        [
            [
                [[value(x[int(b[0])], c, b[1:], i, j) for j in range(bins[1])] for i in range(bins[0])]
                for c in range(channels)
            ]
            for b in boxes
        ]
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align(seed, aligned):
    x, boxes, bins, scale, samples = case(seed)
    expected = every(
        x, boxes, bins, lambda image, c, box, i, j: aligned_bin(image[c], box, scale, bins, i, j, samples, aligned)
    )(2)
    images, rows = torch.tensor(x, requires_grad=True), torch.tensor(boxes)
    call = lambda images: VISION["roi_align"](images, rows, scale, *bins, samples, aligned)
    np.testing.assert_allclose(call(images).detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(call, images) and torch.autograd.gradgradcheck(call, images, fast_mode=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_position_sensitive(seed):
    x, boxes, bins, scale, samples = case(seed, channels_per_bin=True)

    def channel(c, i, j):
        return (c * bins[0] + i) * bins[1] + j

    def mean(image, c, box, i, j):
        (top, bottom), (left, right) = whole_pixels(box, scale, bins, i, j, image.shape[1:], 0)
        return image[channel(c, i, j), top:bottom, left:right].mean() if bottom > top and right > left else 0.0

    aligned = every(
        x,
        boxes,
        bins,
        lambda image, c, box, i, j: aligned_bin(image[channel(c, i, j)], box, scale, bins, i, j, samples, True),
    )(2)
    images, rows = torch.tensor(x, requires_grad=True), torch.tensor(boxes)
    for name, more, expected in (
        ("ps_roi_align", (samples,), aligned),
        ("ps_roi_pool", (), every(x, boxes, bins, mean)(2)),
    ):
        out, channels = VISION[name](images, rows, scale, *bins, *more)
        np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-10, atol=1e-12)
        assert channels.dtype is torch.int32
        assert channels[0].flatten().tolist() == list(range(x.shape[1]))
        call = lambda images: VISION[name](images, rows, scale, *bins, *more)[0]
        assert torch.autograd.gradcheck(call, images) and torch.autograd.gradgradcheck(call, images, fast_mode=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_roi_pool(seed):
    x, boxes, bins, scale, _ = case(seed)
    x = np.round(x * 2)  # with ties: the first in reading order counts

    def best(image, c, box, i, j):
        (top, bottom), (left, right) = whole_pixels(box, scale, bins, i, j, image.shape[1:], 1)
        if bottom <= top or right <= left:
            return 0.0, -1
        at = image[c, top:bottom, left:right].argmax()
        row, column = divmod(int(at), right - left)
        return image[c, top + row, left + column], (top + row) * image.shape[2] + left + column

    expected = every(x, boxes, bins, best)(2)
    images, rows = torch.tensor(x, requires_grad=True), torch.tensor(boxes)
    out, indices = VISION["roi_pool"](images, rows, scale, *bins)
    assert np.array_equal(out.detach().numpy(), expected[..., 0])
    assert indices.dtype is torch.int32 and np.array_equal(indices.numpy(), expected[..., 1])
    distinct = torch.tensor(np.random.RandomState(seed).permutation(x.size).reshape(x.shape) * 1.0, requires_grad=True)
    call = lambda images: VISION["roi_pool"](images, rows, scale, *bins)[0]
    assert torch.autograd.gradcheck(call, distinct) and torch.autograd.gradgradcheck(call, distinct, fast_mode=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_nms(seed):
    random = np.random.RandomState(seed)
    boxes = np.sort(random.uniform(0, 10, (25, 2, 2)), axis=1).reshape(25, 4)
    scores, threshold = np.round(random.rand(25), 1), float(random.choice([0.1, 0.4, 0.7]))
    kept: list = []
    for i in sorted(range(25), key=lambda i: -scores[i]):

        def overlap(j):
            width = max(0, min(boxes[i][2], boxes[j][2]) - max(boxes[i][0], boxes[j][0]))
            height = max(0, min(boxes[i][3], boxes[j][3]) - max(boxes[i][1], boxes[j][1]))
            sizes = [(b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[i], boxes[j])]
            return width * height / (sum(sizes) - width * height)

        if all(overlap(j) <= threshold for j in kept):
            kept.append(i)
    assert VISION["nms"](torch.tensor(boxes), torch.tensor(scores), threshold).tolist() == kept
    assert VISION["nms"](torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_deform_conv2d(seed):
    random = np.random.RandomState(seed)
    groups, offset_groups, use_mask = int(random.choice([1, 2])), int(random.choice([1, 2])), bool(seed % 2)
    rows, columns = random.randint(1, 4, 2)
    stride, pad, dilation = random.randint(1, 3, 2), random.randint(0, 3, 2), random.randint(1, 3, 2)
    x = random.randn(2, 4, 7, 8)
    weight, bias = random.randn(2, 4 // groups, rows, columns), random.randn(2)
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip((7, 8), (rows, columns), stride, pad, dilation)
    ]
    offset = random.randn(2, offset_groups * 2 * rows * columns, *out) * 2
    mask = random.rand(2, offset_groups * rows * columns, *out)
    taps = [int(v) for v in (*stride, *pad, *dilation)]
    inputs = [torch.tensor(v, requires_grad=True) for v in (x, weight, offset, mask, bias)]

    def call(*inputs):
        return VISION["deform_conv2d"](*inputs, *taps, groups, offset_groups, use_mask)

    expected = np.zeros((2, 2, *out))
    for n, o, i, j, c, a, b in itertools.product(
        range(2), range(2), range(out[0]), range(out[1]), range(4 // groups), range(rows), range(columns)
    ):
        channel = o * groups // 2 * (4 // groups) + c
        group, tap = channel * offset_groups // 4, a * columns + b
        at = group * rows * columns + tap
        y = i * stride[0] - pad[0] + a * dilation[0] + offset[n, 2 * at, i, j]
        z = j * stride[1] - pad[1] + b * dilation[1] + offset[n, 2 * at + 1, i, j]
        plane = np.pad(x[n, channel], 1)  # beyond the border, an image fades to zero within one pixel
        value = bilinear(plane, y + 1, z + 1) if -1 < y < 7 and -1 < z < 8 else 0.0
        expected[n, o, i, j] += value * weight[o, c, a, b] * (mask[n, at, i, j] if use_mask else 1)
    expected += bias[:, None, None]
    np.testing.assert_allclose(call(*inputs).detach().numpy(), expected, rtol=1e-9, atol=1e-10)
    if seed < 2:
        used = inputs if use_mask else [v.requires_grad_(k != 3) for k, v in enumerate(inputs)]
        assert torch.autograd.gradcheck(call, used, fast_mode=True)
        assert torch.autograd.gradgradcheck(call, used, fast_mode=True)


def test_shapes_without_data():
    x, boxes = torch.empty(2, 8, 5, 6, device="meta"), torch.empty(3, 5, device="meta")
    assert VISION["roi_align"](x, boxes, 1.0, 2, 3, 2, True).shape == (3, 8, 2, 3)
    assert [r.shape for r in VISION["roi_pool"](x, boxes, 1.0, 2, 2)] == [(3, 8, 2, 2)] * 2
    assert VISION["ps_roi_align"](x, boxes, 1.0, 2, 2, 2)[0].shape == (3, 2, 2, 2)
    weight, offset = torch.empty(4, 8, 3, 3, device="meta"), torch.empty(2, 18, 3, 4, device="meta")
    mask, bias = torch.empty(2, 9, 3, 4, device="meta"), torch.empty(4, device="meta")
    assert VISION["deform_conv2d"](x, weight, offset, mask, bias, 1, 1, 0, 0, 1, 1, 1, 1, True).shape == (2, 4, 3, 4)


@pytest.mark.parametrize("name, given, told", [
    ("nms", (torch.zeros(3, 5), torch.zeros(3), 0.5), "4 elements in dimension 1, got 5"),
    ("nms", (torch.zeros(3, 4), torch.zeros(2), 0.5), "same number of elements"),
    ("roi_align", (torch.zeros(1, 1, 4, 4), torch.zeros(2, 4), 1.0, 1, 1, 1, True), r"Tensor\[K, 5\]"),
    ("roi_align", (torch.zeros(1, 1, 4, 4), torch.zeros(2, 5).double(), 1.0, 1, 1, 1, True), "same type"),
    ("ps_roi_pool", (torch.zeros(1, 3, 4, 4), torch.zeros(2, 5), 1.0, 2, 2), "multiple of pooling height"),
    ("roi_pool", (torch.zeros(1, 1, 4, 4), torch.full((2, 5), 3.0), 1.0, 2, 2), "of images 3 to 3, of 1"),
    ("deform_conv2d", (torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 2, 2), torch.zeros(1, 4, 3, 3),
                       torch.zeros(1, 0, 3, 3), torch.zeros(1), 1, 1, 0, 0, 1, 1, 1, 1, False), "got: 4 expected: 8"),
    ("qnms", (), "no quantized tensors"),
])  # fmt: skip
def test_what_does_not_fit_says_so(name, given, told):
    with pytest.raises((RuntimeError, IndexError, NotImplementedError), match=told):
        VISION[name](*given)


def test_autocast_computes_in_float32_and_keeps_the_dtype():
    x, boxes = torch.randn(1, 2, 6, 6).bfloat16(), torch.tensor([[0, 0.0, 0.0, 4.0, 4.0]])
    with torch.autocast("cpu"):
        assert VISION["roi_align"](x, boxes, 1.0, 2, 2, 2, True).dtype is torch.bfloat16
        assert VISION["nms"](boxes[:, 1:].bfloat16(), torch.ones(1).bfloat16(), 0.5).tolist() == [0]


# --- images ----------------------------------------------------------------------------------------------------------


def tensor_of(pillow_image, kind, **options):
    file = io.BytesIO()
    pillow_image.save(file, kind, **options)
    return torch.from_numpy(np.frombuffer(file.getvalue(), np.uint8).copy())


def test_png_files_keep_every_pixel(tmp_path):
    for channels in (1, 3):
        image = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
        file = IMAGES["encode_png"](image, 6)
        assert torch.equal(IMAGES["decode_png"](file), image) and torch.equal(IMAGES["decode_image"](file), image)
        path = str(tmp_path / "image.png")
        IMAGES["write_file"](path, file)
        assert torch.equal(IMAGES["read_file"](path), file)


def test_modes_of_png():
    image_of = pytest.importorskip("PIL.Image", reason="Pillow is not installed").fromarray
    pixels = np.random.RandomState(0).randint(0, 256, (4, 5, 4), np.uint8)
    colors = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
    file = tensor_of(image_of(pixels), "PNG")
    for mode, expected in ((0, colors), (4, colors), (3, colors[:3])):
        assert torch.equal(IMAGES["decode_png"](file, mode), expected)
    gray, alpha = IMAGES["decode_png"](file, 2)
    assert torch.equal(alpha, colors[3]) and torch.equal(IMAGES["decode_png"](file, 1)[0], gray)
    brightness = pixels[..., :3] @ np.array([0.2989, 0.587, 0.1141])
    assert np.abs(gray.numpy() - brightness).max() <= 1
    deep = np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000
    assert np.array_equal(IMAGES["decode_png"](tensor_of(image_of(deep), "PNG")).numpy()[0], deep)


def test_jpeg_gif_and_webp():
    image_of = pytest.importorskip("PIL.Image", reason="Pillow is not installed").fromarray
    smooth = np.add.outer(np.arange(16), np.arange(24))[..., None].repeat(3, 2).astype(np.uint8) * 5
    colors = torch.from_numpy(smooth.transpose(2, 0, 1).copy())
    file = IMAGES["encode_jpeg"](colors, 95)
    assert (IMAGES["decode_jpeg"](file).int() - colors.int()).abs().max() < 8
    assert IMAGES["decode_image"](file, 1).shape == (1, 16, 24)
    frames = [image_of(smooth), image_of(255 - smooth)]
    assert IMAGES["decode_gif"](tensor_of(frames[0], "GIF")).shape == (3, 16, 24)
    moving = tensor_of(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert IMAGES["decode_image"](moving).shape == (2, 3, 16, 24)
    assert torch.equal(IMAGES["decode_webp"](tensor_of(frames[0], "WEBP", lossless=True)), colors)


@pytest.mark.parametrize("name, given, told", [
    ("decode_png", (torch.zeros(3),), "uint8 data type"), ("decode_jpeg", (torch.zeros(0).byte(),), "non-empty"),
    ("decode_image", (torch.arange(20).byte(),), "Unsupported image file"),
    ("decode_png", (torch.arange(20).byte(),), "not png"),
    ("encode_png", (torch.zeros(2, 3, 3).byte(),), "1 or 3, got: 2"),
    ("encode_jpeg", (torch.zeros(3, 3, 3),), "should be uint8"), ("read_file", ("/no/such/file",), "No such file"),
])  # fmt: skip
def test_files_that_are_none(name, given, told):
    with pytest.raises(RuntimeError, match=told):
        IMAGES[name](*given)


def test_a_damaged_file_is_an_error():
    file = IMAGES["encode_png"](torch.randint(0, 256, (3, 20, 20), dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="decode_png"):
        IMAGES["decode_png"](file[: len(file) // 2])


# --- sound -----------------------------------------------------------------------------------------------------------


def test_recursive_filters():
    signal = pytest.importorskip("scipy.signal", reason="scipy is not installed")
    x, a = np.random.RandomState(0).randn(2, 3, 50), np.array([[1.0, -0.5, 0.25]] * 3)
    padded = torch.zeros(2, 3, 52, dtype=torch.float64)
    AUDIO["_lfilter_core_loop"](torch.tensor(x), torch.tensor(a[:, ::-1].copy()), padded)
    np.testing.assert_allclose(padded[..., 2:].numpy(), signal.lfilter([1.0], a[0], x), rtol=1e-12, atol=1e-12)


def paths_of(labels, frames, blank):
    """All sequences of labels of some frames that spell `labels`: repeats merged, then blanks removed."""
    for path in itertools.product({*labels, blank}, repeat=frames):
        if [label for label, _ in itertools.groupby(path) if label != blank] == list(labels):
            yield path


@pytest.mark.parametrize("labels", [[1, 2], [1, 1], [2]])
def test_alignment_is_the_best_path(labels):
    p = torch.randn(1, 5, 3, dtype=torch.float64).log_softmax(-1)
    found, same = AUDIO["forced_align"](p, torch.tensor([labels]), torch.tensor([5]), torch.tensor([len(labels)]), 0)
    best = max(paths_of(labels, 5, 0), key=lambda path: sum(p[0, t, label].item() for t, label in enumerate(path)))
    assert found[0].tolist() == list(best) and same is p
    with pytest.raises(RuntimeError, match="too long for CTC"):
        AUDIO["forced_align"](p[:, :1], torch.tensor([[1, 1]]), torch.tensor([1]), torch.tensor([2]), 0)


def test_transducer_loss_sums_all_paths():
    logits, labels = torch.randn(1, 3, 3, 4, dtype=torch.float64, requires_grad=True), [1, 2]
    log_p = logits.log_softmax(-1)
    total = []
    for says in itertools.combinations(range(4), 2):  # when labels are said, among the first 4 of 5 moves
        t = u = 0
        moves = log_p.new_zeros(())
        for k in range(5):
            if k in says:
                moves, u = moves + log_p[0, t, u, labels[u]], u + 1
            else:
                moves, t = moves + log_p[0, t, u, 0], t + 1
        total.append(moves)
    expected = -torch.stack(total).logsumexp(0)
    (gradient,) = torch.autograd.grad(expected, logits)
    given = (torch.tensor([labels]).int(), torch.tensor([3]).int(), torch.tensor([2]).int(), 0)
    loss, made = AUDIO["rnnt_loss_forward"](logits, *given, -1.0, True)
    torch.testing.assert_close(loss[0], expected.detach())
    torch.testing.assert_close(made, gradient)
    assert AUDIO["rnnt_loss_forward"](logits, *given, 0.01, True)[1].abs().max() <= 0.01


# --- loading ---------------------------------------------------------------------------------------------------------


def test_known_libraries_are_recognized_by_their_path():
    for path, name in (
        ("site/torchvision/_C_stable.so", "torchvision"),
        ("a/torchaudio/lib/libtorchaudio.abi3.so", "torchaudio"),
    ):
        assert compiled_libraries.operators(path)[0] == name
    assert compiled_libraries.operators("/other/_C.so") is None
    torch.ops.load_library("/site/torchvision/image.so")
    assert torch.ops.image.decode_png.default.name() == "image::decode_png"
    with pytest.raises(OSError, match="other"):
        torch.ops.load_library("/other/_C.so")
