"""Reads back the files that `SummaryWriter` writes, and compares them with PyTorch's."""

import importlib
import io
import subprocess
import sys

import numpy as np
import pytest

import tensorgrad as tg

try:
    import tensorboard
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    from tensorgrad.utils.tensorboard import FileWriter, SummaryWriter
except ImportError:
    tensorboard = None

needs_tensorboard = pytest.mark.skipif(tensorboard is None, reason="the package tensorboard is not installed")
rng = np.random.default_rng(0)


def events(folder):
    """Returns all events in a directory tree, in order, without the first of each file."""
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        yield from list(LegacyEventFileLoader(str(path)).Load())[1:]


def values(folder):
    return [(event.step, value) for event in events(folder) for value in event.summary.value]


def picture(value):
    """Returns the image of an entry as an array (height, width, channels)."""
    Image = pytest.importorskip("PIL.Image", reason="pillow, which reads the pictures, is not installed")
    array = np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)))
    assert (value.image.height, value.image.width) == array.shape[:2]
    return array


def plain(event):
    """Converts an event to plain data: images are decoded, tensors become arrays, times are left out."""
    told = [event.step, event.file_version, event.session_log.status]
    for value in event.summary.value:
        what = value.WhichOneof("value")
        content = getattr(value, what) if what else None
        if what == "image":
            content = picture(value).tolist()
        elif what == "tensor":
            content = make_ndarray(content).tolist()
        told.append((value.tag, value.metadata.SerializeToString(), what, content))
    return told


def oracle():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of this test and is not installed")
    importlib.import_module("torch.utils.tensorboard")
    return torch


def both(tmp_path, story, **options):
    """Writes the same story with both libraries, and asserts that the same data is read back."""
    torch = oracle()
    told = []
    for lib in (tg, torch):
        folder = tmp_path / lib.__name__
        with lib.utils.tensorboard.SummaryWriter(str(folder), **options) as writer:
            story(lib, writer)
        files = {
            str(path.relative_to(folder)): path.read_text() if path.suffix != ".png" else None
            for path in folder.rglob("*.*")
            if path.suffix in (".tsv", ".pbtxt", ".png")
        }
        told.append(([plain(event) for event in events(folder)], files))
    assert told[0] == told[1]
    return told[0][0]


STORIES = {
    "scalars": lambda lib, w: [
        w.add_scalar("loss", 0.5, 3), w.add_scalar("loss", lib.tensor([2.5]), 4.9), w.add_scalar("loss", np.float32(3)),
        w.add_scalar("loss", 1, 3, new_style=True), w.add_scalar("x", 0.1, new_style=True, double_precision=True),
    ],
    "several scalars": lambda lib, w: [
        w.add_scalars("a/b", {"c": 1, "d": lib.tensor(2.0)}, i, walltime=7.0) for i in range(2)
    ],
    "histograms": lambda lib, w: [
        w.add_histogram("h", lib.arange(50.0) - 20, 1), w.add_histogram("h", np.linspace(0, 1, 60), bins=7),
        w.add_histogram("h", np.linspace(-1, 1, 60), bins="auto"), w.add_histogram("h", lib.arange(9), max_bins=30),
        w.add_histogram("h", np.linspace(0, 1, 60), bins=12, max_bins=5), w.add_histogram("h", lib.zeros(3)),
        w.add_histogram("h", np.arange(100), bins=50, max_bins=7),
        w.add_histogram_raw("raw", 0.0, 2.0, 3, 3.0, 5.0, [1.0, 2.0], [1, 2], 5),
    ],
    "texts": lambda lib, w: [w.add_text("t", "**bold** ü", 2), w.add_text("t", "")],
    "settings": lambda lib, w: w.add_hparams(
        {"lr": 0.1, "n": 3, "name": "adam", "on": True, "none": None}, {"hparam/loss": 1.5, "acc": lib.tensor(2.0)},
        {"lr": [0.1, 0.2], "name": ["adam", "sgd"]}, run_name="one", global_step=4,
    ),
    "settings by a logger of its own": lambda lib, w: [
        w._get_file_writer().add_summary(entry, 2)
        for entry in importlib.import_module(f"{lib.__name__}.utils.tensorboard.summary").hparams({"a": 1}, {"m": 0.5})
    ],
    "sounds": lambda lib, w: w.add_audio("s", np.linspace(-1, 1, 400).reshape(1, 400), 1, sample_rate=8000),
    "tensors": lambda lib, w: [
        w.add_tensor("t", lib.arange(6).reshape(2, 3), 1), w.add_tensor("t", lib.tensor([True, False])),
        w.add_tensor("t", lib.tensor([1.5, 2.5], dtype=lib.float64)), w.add_tensor("t", lib.tensor([1 + 2j])),
        w.add_tensor("t", lib.tensor(3.0)),
    ],
    "precision and recall": lambda lib, w: [
        w.add_pr_curve("p", np.array([0, 1, 1, 0, 1]), np.array([0.1, 0.9, 0.4, 0.6, 1.0]), 1),
        w.add_pr_curve("p", lib.tensor([1, 0, 1]), lib.tensor([0.25, 0.5, 0.75]), num_thresholds=5),
        w.add_pr_curve("p", np.array([1, 0]), np.array([0.2, 0.8]), num_thresholds=500, weights=2.0),
        w.add_pr_curve_raw("p", *(np.arange(6.0).reshape(6, 1) + np.arange(4)), num_thresholds=4),
    ],
    "charts": lambda lib, w: [
        w.add_custom_scalars_multilinechart(["a", "b"], "group", "title"),
        w.add_custom_scalars_marginchart(["a", "b", "c"]),
        w.add_custom_scalars({"x": {"y": ["Multiline", ["a"]], "z": ["Margin", ["a", "b", "c"]]}}),
    ],
    "meshes": lambda lib, w: w.add_mesh(
        "m", lib.rand(1, 4, 3) * 0, colors=lib.ones(1, 4, 3), faces=lib.tensor([[[0, 1, 2]]]), config_dict={"a": {}},
    ),
    "pictures": lambda lib, w: [
        w.add_image("i", lib.arange(60.0).reshape(3, 4, 5) / 50, 1),
        w.add_image("i", np.ones((4, 5, 1)), 1, None, "HWC"),
        w.add_image("i", np.arange(20, dtype=np.uint8).reshape(4, 5), dataformats="HW"),
        w.add_image("i", np.arange(80, dtype=np.uint8).reshape(5, 4, 4), dataformats="WHC"),
        w.add_images("i", lib.arange(11 * 12.0).reshape(11, 1, 3, 4) / 100),
        w.add_images("i", np.arange(2 * 3 * 12, dtype=np.uint8).reshape(2, 3, 4, 3), dataformats="NHWC"),
    ],
    "boxes": lambda lib, w: w.add_image_with_boxes(
        "i", lib.zeros(3, 30, 40), lib.tensor([[5, 6, 20, 25.0]])
    ),
    "points": lambda lib, w: [
        w.add_embedding(lib.arange(10.0).reshape(5, 2), list("abcde"), lib.ones(5, 3, 4, 6), 2, "a/b%"),
        w.add_embedding(lib.arange(4).reshape(2, 2), [[1, "x"], [2, "y"]], metadata_header=["n", "text"]),
    ],
}  # fmt: skip


@needs_tensorboard
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_same_as_pytorch(tmp_path, story):
    told = both(tmp_path, story)
    assert told or story is STORIES["points"]


@needs_tensorboard
def test_beginning_again(tmp_path):
    told = both(tmp_path, lambda lib, w: w.add_scalar("a", 1.0, 8), purge_step=5)
    assert told[0][:2] == [5, "brain.Event:2"] and told[1][2] == 1


@needs_tensorboard
def test_errors(tmp_path):
    torch = oracle()
    attempts = [
        lambda lib, w: w.add_scalar("a", lib.ones(2)),
        lambda lib, w: w.add_scalar("a", [1]),
        lambda lib, w: w.add_scalar("a", "text"),
        lambda lib, w: w.add_histogram("a", lib.ones(0)),
        lambda lib, w: w.add_histogram("a", lib.tensor(1e30)),
        lambda lib, w: w.add_histogram_raw("a", 0, 1, 2, 3, 4, [1, 2], [1]),
        lambda lib, w: w.add_image("a", lib.ones(2, 3)),
        lambda lib, w: w.add_image("a", lib.ones(2, 3), dataformats="HH"),
        lambda lib, w: w.add_images("a", lib.ones(1, 2, 3, 3)),
        lambda lib, w: w.add_audio("a", lib.ones(2, 3)),
        lambda lib, w: w.add_hparams({"a": 1}, [1]),
        lambda lib, w: w.add_hparams({"a": [1]}, {}),
        lambda lib, w: w.add_hparams({"a": 1}, {}, {"a": ["x"]}),
        lambda lib, w: w.add_embedding(lib.ones(2, 2), ["a"]),
        lambda lib, w: w.add_embedding(lib.ones(2, 2), label_img=lib.ones(3, 3, 2, 2), global_step=1),
        lambda lib, w: w.add_embedding(lib.ones(2), global_step=2),
        lambda lib, w: w.add_custom_scalars_marginchart(["a"]),
    ]
    with (
        torch.utils.tensorboard.SummaryWriter(str(tmp_path / "theirs")) as theirs,
        SummaryWriter(str(tmp_path / "mine")) as mine,
    ):
        for attempt in attempts:
            with pytest.raises(Exception) as error:
                attempt(torch, theirs)
            with pytest.raises(error.type):
                attempt(tg, mine)
    assert values(tmp_path / "mine") == []


@needs_tensorboard
def test_onnx_graphs_are_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotImplementedError, match="ONNX is not supported"):
        writer.add_onnx_graph("x")


class Branches(tg.nn.Module):
    """Two inputs, a branch, a view, an in-place write, a constant, a submodule called twice, two results."""

    def __init__(self):
        super().__init__()
        self.body = tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.BatchNorm1d(4), tg.nn.ReLU(), tg.nn.Dropout())
        self.scale = tg.nn.Parameter(tg.ones(4))

    def forward(self, x, y):
        hidden = self.body(self.body(x)) * self.scale
        hidden[0] += 1
        return {"sum": hidden.T.sum(0) + tg.ones(3), "others": [y.detach().exp()]}


def graphs(folder):
    """Returns the graphs in a directory, as read by TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder)).Reload()
    assert accumulator.Tags()["graph"] and accumulator.Tags()["run_metadata"] == ["step1"]
    return accumulator.Graph(), accumulator.RunMetadata("step1")


@needs_tensorboard
def test_a_graph_is_the_call(tmp_path):
    model = Branches().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, (tg.ones(3, 4), tg.ones(2)))
    assert all(module.training for module in model.modules())
    assert all(tg.equal(value, before[name]) for name, value in model.state_dict().items())
    made, times = graphs(tmp_path)
    nodes = {node.name: node for node in made.node}
    assert len(nodes) == len(made.node) and all(i in nodes for node in made.node for i in node.input)
    kinds = [node.op for node in made.node]
    assert kinds.count("IO Node") == 4 and kinds.count("linear") == kinds.count("relu") == 2
    assert kinds.count("Parameter") == 1 + 2 + 4 and "Constant" in kinds
    linear = nodes["Branches/Sequential[body]/Linear[0]/linear"]
    assert list(linear.input) == [
        "input/input.0", "Branches/Sequential[body]/Linear[0]/weight", "Branches/Sequential[body]/Linear[0]/bias"
    ]  # fmt: skip
    assert [d.size for d in linear.attr["_output_shapes"].list.shape[0].dim] == [3, 4]
    results = [nodes[f"output/output.{i}"].input[0] for i in (0, 1)]
    reached, todo = set(), list(results)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += nodes[name].input
    assert {"input/input.0", "input/input.1", "Branches/Sequential[body]/Linear[0]/linear"} <= reached
    timed = [each.node_name for each in times.step_stats.dev_stats[0].node_stats]
    assert timed and set(timed) <= set(nodes) and len(set(timed)) == len(timed)


@needs_tensorboard
def test_a_graph_of_each_kind_of_model(tmp_path):
    models = [
        (tg.nn.Linear(2, 1), tg.ones(1, 2)), (tg.nn.LSTM(2, 3), tg.ones(4, 1, 2)),
        (tg.nn.TransformerEncoderLayer(4, 2, 8), tg.ones(3, 1, 4)), (tg.nn.Conv2d(1, 2, 3), (tg.ones(1, 1, 5, 5),)),
        (lambda x, y: (x @ y, x + 1), (tg.ones(2, 2), tg.ones(2, 2))),
    ]  # fmt: skip
    for i, (model, given) in enumerate(models):
        with SummaryWriter(tmp_path / str(i)) as writer:
            writer.add_graph(model, given)
        made, _ = graphs(tmp_path / str(i))
        names = [node.name for node in made.node]
        assert len(set(names)) == len(names) and any(name.startswith("output/") for name in names)
        assert all(source in names for node in made.node for source in node.input)


@needs_tensorboard
def test_a_model_that_fails_leaves_everything_as_it_was(tmp_path, capsys):
    model = tg.nn.Linear(2, 1).train()
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(RuntimeError):
            writer.add_graph(model, tg.ones(1, 3))
        assert model.training and tg.is_grad_enabled()
        assert type(model).__call__ is tg.nn.Module.__call__ and (model(tg.ones(1, 2)).grad_fn is not None)
        writer.add_graph(model, tg.ones(1, 2), verbose=True)
    assert "input/input.0" in capsys.readouterr().out


@needs_tensorboard
def test_flush_close_and_writing_on(tmp_path):
    writer = SummaryWriter(tmp_path, filename_suffix=".mine")
    assert writer.get_logdir() == tmp_path
    writer.add_scalar("a", 1.0, 1)
    writer.flush()
    assert [(step, value.tag) for step, value in values(tmp_path)] == [(1, "a")]
    writer.close()
    writer.close()
    writer.add_scalar("a", 2.0, 2)
    writer.close()
    assert sorted(step for step, _ in values(tmp_path)) == [1, 2]
    assert all(path.name.endswith(".mine") for path in tmp_path.iterdir())


@needs_tensorboard
def test_the_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SummaryWriter(comment="_lr1").close()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_lr1") and list(folder.iterdir())


@needs_tensorboard
def test_halves(tmp_path):
    """PyTorch's own files cannot be compared: it writes single-precision bits for half precision."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("t", tg.tensor([1.5, -0.25], dtype=tg.float16))
    ((_, value),) = values(tmp_path)
    assert make_ndarray(value.tensor).tolist() == [1.5, -0.25]


@needs_tensorboard
def test_what_has_a_graph_or_few_bits(tmp_path):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes, which gives NumPy bfloat16, is not installed")
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("t", tg.tensor([1.5, -0.25], dtype=tg.bfloat16))
        writer.add_histogram("h", tg.ones(4).bfloat16(), 1)
        writer.add_scalar("s", tg.tensor(1.5, dtype=tg.bfloat16), requires := 2)
        writer.add_scalar("s", tg.tensor(2.5, requires_grad=True), requires)
    (_, tensor), (_, histogram), (_, one), (_, two) = values(tmp_path)
    assert make_ndarray(tensor.tensor).tolist() == [1.5, -0.25]
    assert histogram.histo.num == 4 and (one.simple_value, two.simple_value) == (1.5, 2.5)


@needs_tensorboard
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png(channels):
    from tensorgrad.utils.tensorboard.images import png

    Image = pytest.importorskip("PIL.Image", reason="pillow, which reads the pictures, is not installed")
    array = rng.integers(0, 256, (7, 5, channels), dtype=np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png(array)))).reshape(array.shape) == array).all()


@needs_tensorboard
def test_video(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pillow, which writes the film, is not installed")
    films = np.zeros((3, 4, 3, 6, 8), np.uint8)  # three films of four pictures, in two rows
    films[2, 1] = 255
    with SummaryWriter(tmp_path) as writer:
        writer.add_video("v", films, 1, fps=5)
    ((_, value),) = values(tmp_path)
    gif = Image.open(io.BytesIO(value.image.encoded_image_string))
    assert gif.n_frames >= 3 and gif.size == (16, 12) and gif.info["duration"] == 200
    gif.seek(1)
    frame = np.asarray(gif.convert("RGB"))
    assert (frame[6:, :8] == 255).all() and (frame[:6] == 0).all()
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(N, T, C, H, W\)"):
        SummaryWriter(tmp_path).add_video("v", films[0])


@needs_tensorboard
def test_boxes_with_labels(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for labels, rescale in ((["cat"], 1), (None, 1), (None, 2)):
            writer.add_image_with_boxes(
                "i", tg.ones(3, 40, 60), tg.tensor([[5, 5, 50, 30]]), None, None, rescale, labels=labels
            )
    drawn, bare, larger = (picture(value) for _, value in values(tmp_path))
    assert drawn.shape == bare.shape == (40, 60, 3) and larger.shape == (80, 120, 3)
    assert (drawn[10, 5] == [255, 0, 0]).all() and (bare[:, :, 1] == 0).sum() < (drawn[:, :, 1] < 100).sum()


@needs_tensorboard
def test_figures(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib, which draws the figures, is not installed")
    from matplotlib.figure import Figure

    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("f", Figure(figsize=(2, 1), dpi=50), 1)
        writer.add_figure("f", [Figure(figsize=(2, 1), dpi=50)] * 2, 2)
    assert [picture(value).shape for _, value in values(tmp_path)] == [(50, 100, 3), (50, 200, 3)]


@needs_tensorboard
def test_sounds_that_are_too_loud(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.warns(UserWarning, match="are clipped to that range"):
        writer.add_audio("s", tg.tensor([0.0, 2.0]))


@needs_tensorboard
def test_a_file_writer_alone(tmp_path):
    writer = FileWriter(tmp_path)
    assert writer.get_logdir() == str(tmp_path)
    writer.close()


def test_without_the_package():
    program = (
        "import sys; sys.modules['tensorboard'] = None\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "import tensorgrad.utils.tensorboard\n"
        "from tensorgrad.utils.tensorboard.writer import SummaryWriter as S\n"
        "for attempt in ('from tensorgrad.utils.tensorboard import SummaryWriter', 'S(\"x\")'):\n"
        "    try: exec(attempt)\n"
        "    except ModuleNotFoundError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = result.stdout.splitlines()
    assert first == second and first.startswith("torch.utils.tensorboard needs the package tensorboard: pip install")


def test_importing_loads_nothing():
    program = (
        "import sys, tensorgrad.utils.tensorboard.writer; print('tensorboard' in sys.modules, 'PIL' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False False"


def test_hparams_of_the_summary_module():
    """Loggers of libraries (stable-baselines3's) write them themselves."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorgrad.utils.tensorboard.summary import hparams as ours

    theirs = pytest.importorskip("torch.utils.tensorboard.summary", reason="torch is not installed").hparams
    given = {"lr": 0.1, "name": "sgd", "big": True}
    for mine, other in zip(ours(given, metric_dict={"loss": 0.0}), theirs(given, metric_dict={"loss": 0.0})):
        assert [v.tag for v in mine.value] == [v.tag for v in other.value]
        assert mine.value[0].metadata.plugin_data.plugin_name == other.value[0].metadata.plugin_data.plugin_name
