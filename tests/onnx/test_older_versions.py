"""What operators were in older versions, and those that ONNX's own tests do not have: as onnxruntime computes them."""

import io

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.onnx.model import Graph, Model, Node, TensorData, ValueInfo, element_type
from tensorgrad.onnx.protobuf import model_message
from tests.onnx.compare import NEEDS

F = np.float32
RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(F)


def indices(*values):
    return np.array(values, np.int64)


IMAGES = normal(2, 3, 6, 5)
# operator (and domain), version, attributes, inputs, and how many outputs.
CASES = {
    "softmax of rows": ("Softmax", 11, {"axis": 1}, [normal(2, 3, 4)]),
    "log_softmax of rows": ("LogSoftmax", 7, {"axis": 2}, [normal(2, 3, 4)]),
    "hardmax of rows": ("Hardmax", 9, {"axis": 1}, [normal(2, 3, 4)]),
    "clip with attributes": ("Clip", 7, {"min": -0.5, "max": 0.25}, [normal(3, 4)]),
    "clip with one attribute": ("Clip", 10, {"max": 0.25}, [normal(3, 4)]),
    "pad with attributes": ("Pad", 10, {"pads": [0, 1, 2, 0], "value": 3.0}, [normal(3, 4)]),
    "pad by reflection": ("Pad", 8, {"pads": [0, 1, 2, 0], "mode": "reflect"}, [normal(3, 4)]),
    "slice with attributes": ("Slice", 9, {"starts": [1, -3], "ends": [3, -1], "axes": [0, 2]}, [normal(4, 2, 5)]),
    "slice without axes": ("Slice", 7, {"starts": [1], "ends": [3]}, [normal(4, 2, 5)]),
    "top k with an attribute": ("TopK", 9, {"k": 2, "axis": 0}, [normal(4, 5)], 2),
    "top k of version 10": ("TopK", 10, {}, [normal(4, 5), indices(3)], 2),
    "dropout of version 7": ("Dropout", 7, {"ratio": 0.7}, [normal(4, 5)]),
    "dropout of version 10": ("Dropout", 10, {"ratio": 0.7}, [normal(4, 5)]),
    "batch norm of version 7": ("BatchNormalization", 7, {}, [IMAGES, *normal(3, 3), abs(normal(3))]),
    "batch norm of version 9": ("BatchNormalization", 9, {"epsilon": 0.1}, [IMAGES, *normal(3, 3), abs(normal(3))]),
    "upsample with an attribute": ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 1.5]}, [IMAGES]),
    "upsample": ("Upsample", 9, {"mode": "linear"}, [IMAGES, np.array([1, 1, 2, 1.5], F)]),
    "resize of version 10": ("Resize", 10, {}, [IMAGES, np.array([1, 1, 0.5, 1.6], F)]),
    "squeeze with an attribute": ("Squeeze", 7, {"axes": [0, 2]}, [normal(1, 3, 1)]),
    "unsqueeze with an attribute": ("Unsqueeze", 11, {"axes": [0, 2]}, [normal(3, 2)]),
    "split with an attribute": ("Split", 11, {"axis": 1, "split": [1, 3]}, [normal(2, 4)], 2),
    "reduce_sum with an attribute": ("ReduceSum", 11, {"axes": [1], "keepdims": 0}, [normal(2, 4)]),
    "gemm": ("Gemm", 9, {"transB": 1, "alpha": 0.5}, [normal(2, 4), normal(3, 4), normal(3)]),
    "scatter": ("Scatter", 9, {"axis": 1}, [normal(1, 5), indices([1, 3]), normal(1, 2)]),
    "one hot": ("OneHot", 9, {"axis": 1}, [indices(1, 2, 0), indices(3), np.array([0, 5], F)]),
    "roi align of version 10": (
        "RoiAlign", 10, {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5},
        [IMAGES, np.array([[0, 0, 8, 8], [1, 2, 9, 7]], F), indices(0, 1)],
    ),
    "max roi pool": (
        "MaxRoiPool", 20, {"pooled_shape": [2, 3], "spatial_scale": 0.5},
        [IMAGES, np.array([[0, 0, 0, 8, 9], [1, 2, 3, 6, 7]], F)],
    ),
    "roi align of maxima": (
        "RoiAlign", 16, {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": "max"},
        [abs(IMAGES), np.array([[0, 0, 4, 4], [1, 1, 3, 5]], F), indices(0, 1)],
    ),
    "dft along an attribute": ("DFT", 17, {"axis": 1, "onesided": 1}, [normal(2, 6, 1)]),
    "global lp pool": ("GlobalLpPool", 18, {"p": 3}, [IMAGES]),
    "lp pool": ("LpPool", 18, {"kernel_shape": [2, 2], "p": 1, "strides": [2, 2]}, [IMAGES]),
    "local responses": ("LRN", 13, {"size": 3, "alpha": 0.5}, [IMAGES]),
    "quantized by channel": (
        "QuantizeLinear", 13, {"axis": 1},
        [normal(2, 3, 4), np.array([0.1, 0.2, 0.3], F), np.array([0, 3, -5], np.int8)],
    ),
    "dequantized by channel": (
        "DequantizeLinear", 13, {"axis": 0},
        [RANDOM.integers(0, 255, (3, 4)).astype(np.uint8), np.array([0.1, 0.2, 0.3], F), np.array([0, 3, 5], np.uint8)],
    ),
    "convolution of integers": (
        "ConvInteger", 10, {"pads": [1, 1, 1, 1], "strides": [2, 1]},
        [RANDOM.integers(0, 255, (1, 2, 5, 4)).astype(np.uint8), RANDOM.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8),
         np.array(7, np.uint8)],
    ),
    "features": ("ai.onnx.ml::ArrayFeatureExtractor", 15, {}, [normal(2, 5), indices(3, 1)]),
    "scaler": ("ai.onnx.ml::Scaler", 15, {"offset": [1.0, 2.0], "scale": [0.5, 4.0]}, [normal(3, 2)]),
    "normalizer L1": ("ai.onnx.ml::Normalizer", 15, {"norm": "L1"}, [normal(3, 4)]),
    "normalizer L2": ("ai.onnx.ml::Normalizer", 15, {"norm": "L2"}, [normal(3, 4)]),
    "normalizer MAX": ("ai.onnx.ml::Normalizer", 15, {"norm": "MAX"}, [abs(normal(3, 4))]),
    "imputer": (
        "ai.onnx.ml::Imputer", 15, {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")},
        [np.array([[1, np.nan], [np.nan, 2]], F)],
    ),
    "features together": (
        "ai.onnx.ml::FeatureVectorizer", 15, {"inputdimensions": [2, 3]}, [normal(2, 2), normal(2, 3)],
    ),
    "linear regression": (
        "ai.onnx.ml::LinearRegressor", 15,
        {"coefficients": [0.5, 1.0, -2.0, 3.0], "intercepts": [1.0, 2.0], "targets": 2}, [normal(3, 2)],
    ),
    "linear classes": (
        "ai.onnx.ml::LinearClassifier", 15,
        {"coefficients": [0.5, 1.0, -2.0, 3.0, 0.0, 1.0], "intercepts": [1.0, 2.0, 0.0], "classlabels_ints": [4, 5, 9],
         "post_transform": "SOFTMAX"}, [normal(5, 2)], 2,
    ),
    "labels": (
        "ai.onnx.ml::LabelEncoder", 15, {"keys_int64s": [1, 5], "values_floats": [0.5, 2.0], "default_float": -1.0},
        [indices(5, 1, 7)],
    ),
}  # fmt: skip


def graph_of(name, attributes, inputs, count):
    domain, _, operator = name.rpartition("::")
    names = [f"x{i}" for i in range(len(inputs))]
    node = Node(operator, names, [f"y{i}" for i in range(count)], attributes, domain)
    given = [ValueInfo(n, element_type(torch.from_numpy(a).dtype), a.shape) for n, a in zip(names, inputs, strict=True)]
    return Graph("g", [node], [], given, [ValueInfo(n, 0, None) for n in node.outputs])


def written(graph, version, **domains):
    opsets = {"": version, **domains}
    return b"".join(bytes(part) for part in model_message(Model(graph, opsets, 8)).parts)


def compared(data, inputs):
    """Runs a file by onnxruntime and here."""
    onnxruntime = pytest.importorskip("onnxruntime", reason=NEEDS)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options)
    expected = session.run(None, {f"x{i}": a for i, a in enumerate(inputs)})
    with torch.no_grad():
        found = torch.onnx.load(io.BytesIO(data))(*(torch.from_numpy(a) for a in inputs))
    return found if isinstance(found, tuple) else (found,), expected


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name):
    operator, version, attributes, inputs, *count = CASES[name]
    graph = graph_of(operator, attributes, inputs, *count or [1])
    domains = {"ai.onnx.ml": 3} if "::" in operator else {}
    found, expected = compared(written(graph, version, **domains), inputs)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (tuple(a.shape), str(a.dtype)) == (b.shape, f"torch.{b.dtype}")
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-5)


def test_sequences_as_onnxruntime():
    x = normal(4, 3)
    two = TensorData("one", indices(1).reshape(()))
    nodes = [
        Node("SplitToSequence", ["x0"], ["parts"], {"axis": 0}),
        Node("SequenceErase", ["parts", "one"], ["fewer"]),
        Node("SequenceAt", ["parts", "one"], ["part"]),
        Node("SequenceInsert", ["fewer", "part"], ["more"]),
        Node("ConcatFromSequence", ["more"], ["y0"], {"axis": 1}),
        Node("ConcatFromSequence", ["more"], ["y1"], {"axis": 1, "new_axis": 1}),
        Node("SequenceLength", ["more"], ["y2"]),
    ]
    graph = Graph("g", nodes, [two], [ValueInfo("x0", 1, x.shape)], [ValueInfo(f"y{i}", 0, None) for i in range(3)])
    found, expected = compared(written(graph, 17), [x])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("ways", [(0, 0, 0, 0), (1, 1, 0, 1), (0, 1, 1, 0), (1, 0, -1, 1)])
def test_scans_as_onnxruntime(ways):
    axis, backwards, kept_axis, kept_backwards = ways
    x, start = normal(3, 3), normal(3)
    body = Graph(
        "body", [Node("Add", ["state", "part"], ["next"]), Node("Mul", ["next", "next"], ["kept"])], [],
        [ValueInfo("state", 1, (3,)), ValueInfo("part", 1, (3,))],
        [ValueInfo("next", 1, (3,)), ValueInfo("kept", 1, (3,))],
    )  # fmt: skip
    attributes = {
        "body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [backwards],
        "scan_output_axes": [kept_axis], "scan_output_directions": [kept_backwards],
    }  # fmt: skip
    node = Node("Scan", ["x0", "x1"], ["y0", "y1"], attributes)
    graph = Graph("g", [node], [], [ValueInfo("x0", 1, (3,)), ValueInfo("x1", 1, (3, 3))],
                  [ValueInfo(n, 0, None) for n in node.outputs])  # fmt: skip
    found, expected = compared(written(graph, 16), [start, x])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("RandomNormal", {"shape": [3, 5], "dtype": 11}),
        ("RandomUniform", {"shape": [3, 5], "low": 2.0, "high": 3.0, "seed": 1.0}),
        ("RandomNormalLike", {"mean": 100.0}),
        ("RandomUniformLike", {"dtype": 11}),
        ("Multinomial", {"sample_size": 5, "seed": 3.0}),
        ("Bernoulli", {"seed": 2.0}),
    ],
)
def test_random_numbers_repeat_by_their_seed(operator, attributes):
    inputs = [] if "shape" in attributes else [abs(normal(3, 5)) % 1]
    graph = graph_of(operator, attributes, inputs, 1)
    loaded = torch.onnx.load(io.BytesIO(written(graph, 15)))
    torch.manual_seed(5)
    first = loaded(*(torch.from_numpy(a) for a in inputs))
    if "seed" not in attributes:
        torch.manual_seed(5)
    assert first.shape == (3, 5) and torch.equal(first, loaded(*(torch.from_numpy(a) for a in inputs)))
