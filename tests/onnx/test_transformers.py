"""Encoders and decoders of any length: onnxruntime computes what they do, and so does what is read again."""

import io

import numpy as np
import pytest

import tensorgrad as torch
from tests.onnx import transformers
from tests.onnx.compare import check


def ids(*shape):
    return torch.randint(0, transformers.WORDS, shape)


def cache(batch, length, heads=4):
    return [(torch.randn(batch, heads, length, 4), torch.randn(batch, heads, length, 4)) for _ in range(2)]


def padding(batch, count):
    mask = torch.ones(batch, count).long()
    mask[0, count - 1 :] = 0
    return mask


def text(batch, count):
    return ids(batch, count), padding(batch, count), torch.randint(0, 2, (batch, count))


TEXT, CACHE = {0: "batch", 1: "time"}, [({0: "batch", 2: "past"}, {0: "batch", 2: "past"}) for _ in range(2)]
# name -> arguments of several sizes, and what varies
MODELS = {
    "Bert": ([text(2, 5), text(1, 9), text(3, 2)], (TEXT, TEXT, TEXT)),
    "Gpt": ([(ids(2, 3), cache(2, 4)), (ids(1, 1), cache(1, 9)), (ids(2, 5), cache(2, 0))], (TEXT, CACHE)),
    "Llama": (
        [(ids(2, 3), cache(2, 4, 2)), (ids(1, 1), cache(1, 9, 2)), (ids(2, 5), cache(2, 0, 2))], (TEXT, CACHE),
    ),
    "T5": (
        [(ids(2, 5), ids(2, 3)), (ids(1, 9), ids(1, 12)), (ids(3, 2), ids(3, 4))],
        ({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
    ),
    "Vit": ([(torch.randn(n, 3, 16, 16),) for n in (2, 1, 5)], ({0: "batch"},)),
    "Whisper": (
        [
            (torch.randn(2, 6, 20), ids(2, 3), cache(2, 4)), (torch.randn(1, 6, 11), ids(1, 1), cache(1, 7)),
            (torch.randn(1, 6, 8), ids(1, 4), cache(1, 0)),
        ],
        ({0: "batch", 2: "sound"}, TEXT, CACHE),
    ),
}  # fmt: skip


def made(name):
    torch.manual_seed(0)
    return getattr(transformers, name)().eval()


@pytest.mark.parametrize("name", MODELS)
def test_transformers_of_any_length(name):
    given, sizes = MODELS[name]
    model = made(name)
    exported = check(model, *given[:1], *given[1:], dynamic_shapes=sizes)
    again = torch.onnx.load(io.BytesIO(bytes(exported)))
    for args in given:
        with torch.no_grad():
            expected, found = model(*args), again(*flat(args))
        found = found if isinstance(found, list | tuple) else [found]
        for a, b in zip(flat(found), flat(expected), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


def test_masks_are_in_files_though_the_example_hides_nothing(tmp_path):
    model, example = made("Padded"), (ids(2, 5), torch.ones(2, 5).long())
    others = [(ids(*shape), padding(*shape)) for shape in ((2, 5), (1, 9), (3, 2))]
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time")}
    check(model, example, *others, dynamic_shapes=(sizes, sizes))
    names = {name: {0: "batch", 1: "time"} for name in ("ids", "mask")}
    torch.onnx.export(
        model, example, tmp_path / "mask.onnx", dynamo=False, input_names=list(names), dynamic_axes=names
    )  # fmt: skip
    program = torch.export.export(model, example, dynamic_shapes=(sizes, sizes))
    torch.export.save(program, tmp_path / "mask.pt2")
    torch.jit.trace(model, example).save(tmp_path / "mask.pt")
    read = [torch.onnx.load(tmp_path / "mask.onnx"), torch.export.load(tmp_path / "mask.pt2").module()]
    for given in others:
        expected = model(*given)
        assert not torch.allclose(expected, model(given[0], torch.ones_like(given[1])))
        for program in (*read, *([torch.jit.load(tmp_path / "mask.pt")] if given[0].shape == (2, 5) else [])):
            np.testing.assert_allclose(program(*given).detach().numpy(), expected.detach().numpy(), atol=1e-5)


def flat(value):
    """The tensors in lists and tuples."""
    return [t for part in value for t in flat(part)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("name", ["Gpt", "Llama"])
def test_a_token_at_a_time_gives_what_all_at_once_give(name):
    """The exported file, with its cache, beside the model that sees the whole text."""
    pytest.importorskip("onnxruntime", reason="runs exported models (extra test-tools)")
    heads = 2 if name == "Llama" else 4
    (first, *_), sizes = MODELS[name]
    model, words = made(name), ids(1, 8)
    program = torch.onnx.export(model, first, dynamic_shapes=sizes)
    with torch.no_grad():
        expected, _ = model(words, cache(1, 0, heads))
    kept, scores = cache(1, 0, heads), []
    for at in range(8):
        score, *kept = program(words[:, at : at + 1], kept)
        kept = list(zip(kept[::2], kept[1::2], strict=True))
        scores.append(score)
    np.testing.assert_allclose(torch.cat(scores, 1).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
