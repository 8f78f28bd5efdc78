"""Pictures other than the graph: SVG and its colors, files, strides, curves, heat maps, the summary's page."""

import copy
import itertools
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import nn, viz
from tensorgrad.viz import charts, convert, heat, memory, svg
from tensorgrad.viz.picture import Page as ShownPage
from tensorgrad.viz.picture import Picture, open_page, write
from tests.support.chromium import Chromium, needs_chromium

SVG = "{http://www.w3.org/2000/svg}"
BROWSER = next(filter(None, map(shutil.which, convert.BROWSERS)), None)


def parsed(picture):
    """Parses a picture, and checks that it is well-formed XML with the elements for screen readers."""
    root = ElementTree.fromstring(picture._repr_svg_())
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    named = {root.get("aria-labelledby"): f"{SVG}title", root.get("aria-describedby"): f"{SVG}desc"}
    for name, tag in named.items():
        (found,) = [e for e in root.iter() if e.get("id") == name]
        assert found.tag == tag and found.text
    width, height = (float(v) for v in root.get("viewBox").split()[2:])
    assert (width, height) == (float(root.get("width")), float(root.get("height")))
    return root


def texts(root):
    return [e.text for e in root.iter(f"{SVG}text")]


def inside(root):
    """Returns whether all texts (by estimated width), boxes and lines are within the picture."""
    width, height = (float(v) for v in root.get("viewBox").split()[2:])
    for e in root.iter(f"{SVG}rect"):
        if e.get("class") != "tg-surface":
            x, y, wide, high = (float(e.get(name)) for name in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + wide <= width and y + high <= height
    for e in root.iter(f"{SVG}text"):
        wide = svg.text_width(e.text or "", float(e.get("font-size", 12)), mono=e.get("class") == "tg-mono")
        left = float(e.get("x")) - {"middle": wide / 2, "end": wide}.get(e.get("text-anchor"), 0)
        assert left >= 0 and left + wide <= width + 2 and 0 <= float(e.get("y")) <= height, e.text
    for e in root.iter(f"{SVG}polyline"):
        for x, y in (map(float, place.split(",")) for place in e.get("points").split()):
            assert 0 <= x <= width and 0 <= y <= height
    return True


# --- SVG and colors --------------------------------------------------------------------------------------------------


def test_text_is_escaped_everywhere():
    nasty = "<script>&\"'\x00\ud800\uffff]]>"
    markup = svg.document(10, 10, svg.text(1, 2, nasty, data_name=nasty), title=nasty, description=nasty)
    root = ElementTree.fromstring(markup)
    shown = "<script>&\"'\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}]]>"
    (text,) = root.iter(f"{SVG}text")
    assert text.text == shown == text.get("data-name") == next(root.iter(f"{SVG}title")).text


def test_pictures_on_one_page_do_not_share_names():
    documents = [svg.document(10, 10, svg.text(1, 2, n), title="T", description="D") for n in (1, 2)]
    names = [set(re.findall(r'id="([^"]+)"', d)) for d in documents]
    assert len(names[0]) == 2 and not names[0] & names[1]


def test_numbers():
    assert [svg.number(v) for v in (1e-9, -1e-9, 12.346, -5, 1e15)] == ["0", "0", "12.35", "-5", "1000000000000000"]
    assert [svg.short(v) for v in (1234.5, 999999, 1e6, float("inf"), 0)] == ["1234", "999999", "1e+06", "inf", "0"]
    assert [svg.count(v) for v in (0, 999, 1000, 999_499, 999_999)] == ["0", "999", "1.00 k", "999 k", "1.00 M"]
    assert svg.size(1023) == "1023 B" and svg.size(1024) == "1.00 KiB" and svg.size(2**40) == "1.00 TiB"


TEXT_ON = {name: ("surface", "panel") for name in ("ink", "muted", "accent", *svg.SERIES)}
TEXT_ON |= {name: ("surface", "panel", f"{name}-soft") for name in ("warm", "good", "bad")}
TEXT_ON["ink"] += ("accent-soft", "warm-soft", "good-soft", "bad-soft")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", TEXT_ON)
def test_text_can_be_read(name, dark):
    for behind in TEXT_ON[name]:
        assert svg.contrast(svg.PALETTE[name][dark], svg.PALETTE[behind][dark]) >= 4.5, behind
    assert svg.contrast(svg.PALETTE["edge"][dark], svg.PALETTE["surface"][dark]) >= 3  # lines that mean something


def mixed(first, second, share):
    """Mixes two colors like `color-mix(in srgb, ...)`."""
    parts = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (first, second)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in zip(*parts))


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_on_colours_can_be_read(dark):
    value = {name: pair[dark] for name, pair in svg.PALETTE.items()}
    for name in ("accent", "warm"):
        assert svg.contrast(value["ink"], mixed(value[name], value["surface"], heat.STRONGEST / 100)) >= 4.5
    for name in svg.SERIES:  # the cells of `strides`
        behind = mixed(value[name], value["surface"], memory.TINT)
        assert svg.contrast(value["ink"], behind) >= 4.5 and svg.contrast(value["muted"], behind) >= 4.5
    assert mixed("#ff0000", "#0000ff", 0.75) == "#bf0040"
    assert svg.contrast("#000000", "#ffffff") == pytest.approx(21) and svg.contrast("#777777", "#777777") == 1


def test_colours_have_two_values_and_can_be_resolved():
    assert svg.resolved(f"a{svg.colour('ink')}b") == f"a{svg.PALETTE['ink'][0]}b"
    assert svg.resolved(f"a{svg.colour('accent-soft')}b", dark=True) == f"a{svg.PALETTE['accent-soft'][1]}b"
    with pytest.raises(KeyError):
        svg.colour("nonsense")
    style = svg.theme()
    assert style.count("--tg-ink:") == 4 and '[data-jp-theme-light="false"]' in style


def test_files_show_in_programs_without_css_variables():
    circles = [svg.element("circle", r=1, fill=svg.colour("warm"), stroke=svg.colour("edge")), "<circle fill='none'/>"]
    image = svg.document(10, 10, circles, title="T", style=f".x{{color:{svg.colour('bad')}}}")
    root = ElementTree.fromstring(svg.portable(image))
    values = [e.get(name) for e in root.iter() for name in ("fill", "stroke") if e.get(name)]
    light = {name: pair[0] for name, pair in svg.PALETTE.items()}
    assert values == [light["ink"], light["surface"], light["warm"], light["edge"], "none"]
    style = root.find(f"{SVG}style").text
    assert f'.tg [fill="{light["warm"]}"]{{fill:var(--tg-warm,' in style
    assert f".x{{color:{light['bad']};color:var(--tg-bad," in style
    pairs = {}
    for pair in svg.PALETTE.values():  # each light color has one dark color, or the rules would conflict
        assert pairs.setdefault(pair[0], pair[1]) == pair[1]


# --- files -----------------------------------------------------------------------------------------------------------


def dot():
    circle = svg.element("circle", cx=30, cy=20, r=15, fill=svg.colour("accent"))
    return Picture(svg.document(60, 40, circle, title="Dot", description="A dot."), "Dot")


def pixels(content):
    """Decodes a PNG image of 8-bit RGB or RGBA to (width, height, rows of RGB), independently of the tested code."""
    from io import BytesIO

    pil = pytest.importorskip("PIL.Image", reason="reads the PNG")
    return np.asarray(pil.open(BytesIO(content)).convert("RGB"))


def test_saving(tmp_path):
    picture = dot()
    content = picture.save(tmp_path / "dot.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(content.encode()).tag == f"{SVG}svg" and content.startswith("<?xml")
    page = picture.save(str(tmp_path / "dot.HTML")).read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and picture.svg in page
    with pytest.raises(ValueError, match=r"\.svg, \.html, \.png or \.pdf, but got 'dot.gif'"):
        picture.save("dot.gif")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dot.HTML", "dot.svg"]
    assert repr(picture) == "<Picture: Dot>"


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write(path, "old")

    import tensorgrad.serialization.archive as archive

    monkeypatch.setattr(archive.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_without_a_converter_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "CONVERTERS", {name: lambda *_: None for name in convert.CONVERTERS})
    with pytest.raises(RuntimeError, match="writing PNG needs a converter: run `pip install cairosvg`") as caught:
        dot().save(tmp_path / "dot.png")
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())

    def fails(*_):
        raise OSError("no memory")

    monkeypatch.setattr(convert, "CONVERTERS", {"One": fails, "Two": lambda *_: b"made"})
    assert dot().save(tmp_path / "dot.png").read_bytes() == b"made"
    monkeypatch.setattr(convert, "CONVERTERS", {"One": fails})
    with pytest.raises(RuntimeError, match="cannot write PDF: One: no memory"):
        dot().save(tmp_path / "dot.pdf")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", convert.CONVERTERS)
def test_png_and_pdf(name, dark, tmp_path, monkeypatch):
    """Every installed converter draws the same picture, in the requested colors."""
    only = convert.CONVERTERS[name]
    if only(svg.resolved(dot().svg), "png", dark) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(convert, "CONVERTERS", {name: only})
    picture = dot()
    image = pixels(picture.save(tmp_path / "dot.png", dark=dark).read_bytes())
    assert image.shape == (40 * convert.SCALE, 60 * convert.SCALE, 3)
    for place, colour in (((40, 60), "accent"), ((40, 10), "surface")):
        assert "#" + bytes(image[place].tolist()).hex() == svg.PALETTE[colour][dark]
    if not dark:
        assert picture.save(tmp_path / "dot.pdf").read_bytes().startswith(b"%PDF-")


def test_cutting_an_image():
    rows = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    data = b"".join(b"\x00" + row.tobytes() for row in rows)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    packed = (struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in parts)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(packed)
    assert np.array_equal(pixels(convert.cropped(png, 3, 2)), rows[:2, :3])
    with pytest.raises(ValueError, match="at least 6 × 2 pixels"):
        convert.cropped(png, 6, 2)


def test_showing_opens_a_page(monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", opened.append)
    dot().show()
    open_page("<!DOCTYPE html>")
    nn.summary(nn.ReLU(), (2,)).show()
    viz.heatmap(tg.eye(2)).show()
    assert len(opened) == 4 and all(address.startswith("file:///") for address in opened)
    assert len([*tmp_path.rglob("picture.html")]) == 4


# --- strides ---------------------------------------------------------------------------------------------------------

VIEWS = {
    "transposed": lambda: tg.arange(12.0).reshape(3, 4).t()[::2],
    "expanded": lambda: tg.tensor([1, 2, 3]).expand(4, 3),
    "permuted": lambda: tg.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
    "diagonal": lambda: tg.arange(16.0).reshape(4, 4).diagonal(),
    "scalar": lambda: tg.arange(6.0)[4],
    "overlapping": lambda: tg.arange(8.0).unfold(0, 3, 1),
    "all in one": lambda: tg.tensor(2.5).expand(2, 3, 4),
    "five": lambda: tg.zeros(2, 1, 2, 2, 2, dtype=tg.bool),
    "complex": lambda: tg.ones(2, 2, dtype=tg.complex64).t(),
    "row": lambda: tg.arange(5)[1:4],
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_cell_says_who_is_there(name):
    """Each value is in the cell given by NumPy's memory addresses."""
    tensor = VIEWS[name]()
    geometry = memory.Geometry.of(tensor)
    seen = geometry.seen(geometry.window())
    array = tensor.numpy()
    start = tensor.untyped_storage().data_ptr()
    expected = {}
    for index in np.ndindex(array.shape):
        place = array[index[:-1]][index[-1] :].__array_interface__["data"][0] if index else tensor.data_ptr()
        expected.setdefault((place - start) // array.itemsize, []).append(index)
    assert {place: sorted(indices) for place, indices in seen.items()} == expected
    root = parsed(viz.strides(tensor, name))
    assert inside(root)
    words = texts(root)
    for place, indices in expected.items():
        assert f"@{place}" in words
        label = f"×{len(indices)}" if len(indices) > 1 else ",".join(map(str, indices[0])) or "( )"
        assert label in words
    grey = [e for e in root.iter(f"{SVG}rect") if e.get("fill") == svg.colour("panel")]
    assert len(grey) == geometry.cells - len(expected)


def test_steps_are_drawn():
    words = texts(parsed(viz.strides(VIEWS["transposed"](), "x.t()[::2]")))
    assert {"dim 0: +2", "dim 1: +4", "dim 0 ↓ +2 cells\u2003\u2003dim 1 → +4 cells"} <= set(words)
    assert "6 elements use 6 of 12 cells, one cell each." in words
    words = texts(parsed(viz.strides(VIEWS["expanded"]())))
    assert "dim 0: +0" in words and any("up to 4 elements share a cell" in w for w in words)
    assert any("it is contiguous" in w for w in texts(parsed(viz.strides(tg.arange(6).reshape(2, 3)))))
    starts = [e.get("d") for e in parsed(viz.strides(VIEWS["row"]())).iter(f"{SVG}path")]
    assert len(starts) == 1


def test_large_empty_and_absent_values():
    big = tg.arange(1_000_000).reshape(1000, 1000)[500:, ::2]
    root = parsed(viz.strides(big, "big"))
    words = texts(root)
    assert inside(root) and "… 500 rows" in words and "… 500" in words and "0,46" in words
    assert "Cells 499,998 to 500,093 are shown; 47 of them are used." in words and "500000" in words
    assert len(root.findall(f".//{SVG}rect")) < 600
    assert "no elements" in texts(parsed(viz.strides(tg.empty(0, 3))))
    meta = texts(parsed(viz.strides(tg.empty(2, 3, device="meta").t())))
    assert "@5" in meta and "1,1" in meta
    huge = tg.ones(1).expand(10**6, 10**6)
    assert "share a cell" in " ".join(texts(parsed(viz.strides(huge))))
    assert "… 999,994 more" in texts(parsed(viz.strides(tg.zeros(1).expand(10**6, 2, 2))))
    with pytest.raises(TypeError, match="expected a Tensor, but got list"):
        viz.strides([1, 2])


def test_a_picture_changes_nothing():
    x = tg.ones(2, 3, requires_grad=True)
    viz.strides(x.t(), "x")
    viz.heatmap(x)
    assert x.requires_grad and x._version == 0 and x.grad_fn is None


# --- curves ----------------------------------------------------------------------------------------------------------


def test_lines_lie_where_their_values_say():
    root = parsed(viz.curves({"a": [0.0, 10.0, 5.0], "b": [2, 2, 2]}, title="T", y_label="loss"))
    assert inside(root)
    a, b = ([tuple(map(float, p.split(","))) for p in e.get("points").split()] for e in root.iter(f"{SVG}polyline"))
    assert [x for x, _ in a] == [x for x, _ in b] and a[1][0] - a[0][0] == pytest.approx(a[2][0] - a[1][0], abs=0.02)
    low, high, middle = (y for _, y in a)
    assert low > middle > high and middle == pytest.approx((low + high) / 2, abs=0.02)
    assert b[0][1] == pytest.approx(low + (high - low) * 0.2, abs=0.02)
    words = texts(root)
    assert {"T", "loss", "step", "a 5", "b 2", "0", "10"} <= set(words)
    ticks = {w: float(e.get("y")) for e, w in zip(root.iter(f"{SVG}text"), words) if e.get("text-anchor") == "end"}
    assert ticks["0"] - 4 == pytest.approx(low, abs=0.02) and ticks["10"] - 4 == pytest.approx(high, abs=0.02)
    assert "a goes from 0 to 5; lowest 0 at step 0, highest 10 at 1." in root.find(f"{SVG}desc").text


@pytest.mark.parametrize("smooth", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("log", [False, True])
def test_a_name_stands_with_its_value_where_its_line_ends(smooth, log):
    """The value next to a line is the height of its end, however the line was processed."""
    rng = np.random.default_rng(0)
    lines = {"a": rng.uniform(0.1, 1, 50), "b": rng.uniform(3, 9, 20), "c": [20.0], "d": [40.0, 30.0]}
    root = parsed(viz.curves(lines, smooth=smooth, log=log))
    drawn = [e for e in root.iter() if e.get("stroke-width") == "2" or e.tag == f"{SVG}circle"]
    ends = [float(e.get("cy") or e.get("points").split()[-1].split(",")[1]) for e in drawn]
    named = [e for e in root.iter(f"{SVG}text") if e.get("font-weight") == "600"]
    values = {e.text.split()[0]: float(e.text.split()[1]) for e in named}
    scale = np.log if log else np.asarray
    slope, start = np.polyfit(scale([values["d"], values["c"]]), [ends[3], ends[2]], 1)
    assert ends == pytest.approx([slope * scale(values[name]) + start for name in "abcd"], abs=0.1)
    for name, end in zip("abcd", ends):  # shorter lines get a dotted line to their names
        (label,) = [e for e in named if e.text.startswith(name)]
        assert float(label.get("y")) - 4 == pytest.approx(end, abs=20)
    led = [e for e in root.iter(f"{SVG}line") if e.get("stroke-dasharray")]
    assert [float(e.get("y1")) for e in led] == pytest.approx(ends[1:], abs=0.01)


def test_a_logarithmic_scale():
    root = parsed(viz.curves([100.0, 10.0, 1.0, 0.0], log=True))
    heights = [float(p.split(",")[1]) for p in next(root.iter(f"{SVG}polyline")).get("points").split()]
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.02) and heights[3] > heights[2]
    assert {"1", "10", "100"} <= set(texts(root))


def test_what_curves_accepts():
    def values(data, **options):
        return {name: (x.tolist(), y.tolist()) for name, (x, y) in charts.lines_of(data, **options).items()}

    one = {"": ([0.0, 1.0], [3.0, 1.0])}
    losses = [tg.tensor(3.0, requires_grad=True), 1]
    for data in ([3, 1], (3.0, 1.0), np.array([3, 1]), tg.tensor([3, 1]), losses, iter([3, 1]), [[0, 3], [1, 1]]):
        assert values(data) == one
    assert values({"a": [3, 1]}, x=[5, 7]) == {"a": ([5.0, 7.0], [3.0, 1.0])}
    assert values(tg.tensor([[1.0, 2, 3], [4, 5, 6]])) == {"0": ([0, 1, 2], [1, 2, 3]), "1": ([0, 1, 2], [4, 5, 6])}
    assert values([1.0, float("nan"), None, 4.0]) == {"": ([0.0, 3.0], [1.0, 4.0])}
    for bad, error in (([], ValueError), ({}, ValueError), ([float("nan")], ValueError), (["a"], TypeError)):
        with pytest.raises(error, match="curves"):
            charts.lines_of(bad)
    with pytest.raises(ValueError, match="x and y of equal length"):
        charts.lines_of([1, 2], x=[1])
    with pytest.raises(ValueError, match="expected 0 <= smooth < 1, but got 1"):
        viz.curves([1, 2], smooth=1)


ROWS = [{"epoch": 1, "loss": 2.5, "acc": 0.1}, {"epoch": 2, "acc": 0.5, "loss": None}, {"epoch": 3, "loss": 1.5}]
ROWS[2]["acc"] = 0.9


def test_data_frames():
    pandas = pytest.importorskip("pandas", reason="makes the data frame")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3, None]}, index=[5, 7])
    lines = {name: (x.tolist(), y.tolist()) for name, (x, y) in charts.lines_of(frame, x=frame.index).items()}
    assert lines == {"a": ([5, 7], [1, 2]), "b": ([5], [3])}
    assert charts.lines_of(frame["a"])[""][1].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", "epoch,loss,acc,note\n1,2.5,0.1,a\n2,,0.5,b\n3,1.5,0.9,c\n"),
        ("log.tsv", "epoch\tloss\tacc\n1\t2.5\t0.1\n2\t\t0.5\n3\t1.5\t0.9\n"),
        ("log.jsonl", "\n".join(map(json.dumps, ROWS)) + "\n\n"),
        ("log.json", json.dumps(ROWS, indent=1)),
    ],
)  # fmt: skip
def test_logs(name, content, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    lines = charts.lines_of(path)
    assert {k: (x.tolist(), y.tolist()) for k, (x, y) in lines.items()} == {
        "loss": ([1, 3], [2.5, 1.5]), "acc": ([1, 2, 3], [0.1, 0.5, 0.9]),
    }  # fmt: skip
    assert {"loss 1.5", "acc 0.9"} <= set(texts(parsed(viz.curves(str(path)))))


def test_a_log_without_numbers(tmp_path):
    (tmp_path / "log.csv").write_text("step,name\n1,a\n2,b\n")
    with pytest.raises(ValueError, match="at least one numeric column, but found none"):
        viz.curves(tmp_path / "log.csv")


def test_smoothing_is_adams_average():
    values = np.random.default_rng(0).normal(size=50)
    weights = [0.9 ** np.arange(n, -1, -1) for n in range(50)]
    expected = [np.average(values[: n + 1], weights=w) for n, w in enumerate(weights)]
    assert charts.smoothed(values, 0.9) == pytest.approx(expected)
    root = parsed(viz.curves(values, smooth=0.9))
    faint, bold = root.iter(f"{SVG}polyline")
    assert faint.get("stroke-opacity") == "0.3" and bold.get("stroke-opacity") is None


def test_long_lines_keep_their_extremes():
    values = np.zeros(100_000)
    values[[31_415, 92_653]] = 5, -3
    x, y = charts.thinned(np.arange(100_000.0), values, 1000)
    assert len(x) <= 1000 and {31_415, 92_653} <= set(x.astype(int)) and (np.diff(x) > 0).all()
    assert y.max() == 5 and y.min() == -3


@pytest.mark.parametrize(
    "data",
    [
        [0.5], [1, 1, 1], [float("inf"), 1.0, 2.0], [1e-30, 2e-30], [1e30, -1e30], [1e9, 1e9 + 1],
        {f"a rather long name {i}": [i, i + 0.01] for i in range(25)}, {"x" * 200: [1, 2]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("log", [False, True])
def test_unusual_lines_stay_inside(data, log):
    assert inside(parsed(viz.curves(data, log=log, title="Unusual")))


def test_names_do_not_overlap():
    root = parsed(viz.curves({str(i): [0, 1 + i / 1000] for i in range(12)}))
    places = sorted(float(e.get("y")) for e in root.iter(f"{SVG}text") if e.get("font-weight") == "600")
    assert len(places) == 12 and min(b - a for a, b in itertools.pairwise(places)) >= 14


def test_weights_over_time():
    history = {10 * i: tg.linspace(-1, 1, 101) * (i + 1) for i in range(3)}
    root = parsed(viz.weights(history, title="Layer"))
    bands = [[tuple(map(float, p.split(","))) for p in e.get("points").split()] for e in root.iter(f"{SVG}polygon")]
    widths = [[abs(band[i][1] - band[-1 - i][1]) for i in range(3)] for band in bands]
    for band, share in zip(widths, (1.0, 0.9, 0.5)):  # all values, 90 %, 50 %
        assert band == pytest.approx([share * widths[0][2] * (i + 1) / 3 for i in range(3)], abs=0.05)
    assert {"all values", "90 %", "50 %", "median 0"} <= set(texts(root)) and inside(root)
    assert "At step 20: from -3 to 3, median 0." in root.find(f"{SVG}desc").text
    assert inside(parsed(viz.weights([tg.zeros(3), tg.tensor([1.0, float("nan")])])))
    with pytest.raises(ValueError, match="at least one finite number to draw"):
        viz.weights([])


# --- heat maps -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The contents of a page, as needed for an automated accessibility check."""

    VOID = frozenset(("meta", "link", "br", "hr", "img", "input", "col"))

    def __init__(self, markup):
        super().__init__()
        self.open, self.all, self.text, self.problems = [], [], {}, []
        self.feed(markup)
        self.close()
        if self.open:
            self.problems.append(f"not closed: {[tag for tag, _ in self.open]}")

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.all.append((tag, attributes))
        if tag not in self.VOID:
            self.open.append((tag, attributes))
        self.problems += [f"{tag} has {name}" for name in attributes if name.startswith("on")]

    def handle_startendtag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))
        if tag not in self.VOID and not any(t == "svg" for t, _ in self.open):
            self.problems.append(f"<{tag}/> closes nothing in HTML")

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.problems.append(f"</{tag}> where {self.open[-1:]} is open")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and data.strip():
            self.text.setdefault(self.open[-1][0], []).append(data.strip())

    def of(self, tag):
        return [attributes for name, attributes in self.all if name == tag]

    def check(self, page=True):
        """Checks the accessibility of the page. Raises: AssertionError if there is a problem."""
        assert not self.problems
        names = [a["id"] for _, a in self.all if "id" in a]
        assert len(names) == len(set(names))
        assert not self.of("script") and not self.of("link")
        assert not [a for _, a in self.all if "src" in a or "href" in a]
        assert all(a.get("scope") in ("col", "row") for a in self.of("th"))
        if self.of("table"):
            assert len(self.of("caption")) == len(self.of("table"))
            assert any(a["scope"] == "col" for a in self.of("th")) and any(a["scope"] == "row" for a in self.of("th"))
            frames = [a for a in self.of("div") if a.get("class") == "scroll"]
            assert len(frames) == len(self.of("table"))  # tables wider than the page can be scrolled with the keyboard
            assert all(a["role"] == "region" and a["aria-label"] and a["tabindex"] == "0" for a in frames)
        if page:
            assert self.of("html")[0]["lang"] == "en" and self.text["title"] and len(self.of("main")) == 1
            assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in self.of("meta")
            assert "user-scalable" not in str(self.all)


def summary_page():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    return nn.summary(model, (1, 1, 8, 8))


PAGES = (summary_page, lambda: nn.summary(nn.ReLU()), lambda: viz.heatmap(tg.randn(3, 4), "w"))


@pytest.mark.parametrize("made", PAGES, ids=["summary", "not run", "heat map"])
def test_pages_are_accessible(made, tmp_path):
    shown = made()
    page = Page(shown.save(tmp_path / "page.html").read_text(encoding="utf-8"))
    page.check()
    assert len(page.text["h1"]) == 1
    Page(shown._repr_html_()).check(page=False)
    picture = Page(dot().html())
    picture.check()
    assert [a["role"] for a in picture.of("svg")] == ["img"]


def test_colours_of_the_summary_can_be_read(tmp_path):
    """Checks every text color in the stylesheet against every background, in light and dark mode."""
    style = re.search(r"<style>(.*)</style>", summary_page().save(tmp_path / "page.html").read_text())[1]
    named = r"var\(--tg-([a-z0-9-]+)"
    front = {m for m in re.findall(rf"[;{{]color:{named}", style)}
    bars = {"accent", "warm", "good"}
    behind = set(re.findall(rf"background:{named}", style)) - bars
    assert {"ink", "muted"} <= front and {"surface", "panel"} <= behind
    for dark in (False, True):
        for a, b in itertools.product(front, behind):
            assert svg.contrast(svg.PALETTE[a][dark], svg.PALETTE[b][dark]) >= 4.5, (a, b, dark)
        for bar in bars:
            assert svg.contrast(svg.PALETTE[bar][dark], svg.PALETTE["surface"][dark]) >= 3


def test_the_page_says_what_the_summary_says(tmp_path):
    summary = summary_page()
    page = Page(summary.save(tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.text["h1"] == ["Summary of Sequential"] and page.text["caption"] == ["Layers"]
    shown = " ".join(itertools.chain(*page.text.values()))
    for layer in summary.layers:
        assert layer.kind in shown
    assert "[1, 2, 6, 6]" in page.text["td"] and "239" in page.text["td"]
    assert len(page.of("tr")) == len(summary.layers) + 1
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Tanh()))
    assert "Layers, down to depth 1 (2 more inside)" in nn.summary(model, depth=1)._repr_html_()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_browser_has_nothing_to_complain_about(tmp_path):
    page = summary_page().save(tmp_path / "page.html")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr and "Summary of Sequential</h1>" in result.stdout


# Rules of surrounding pages for elements by type: the properties that JupyterLab's stylesheet sets in its output areas,
# and some that are common on other sites.
HOST = """
body { font: 13px/1.9 serif; letter-spacing: 1px; text-align: justify; }
.output dl dt { float: left; clear: left; width: 20%; font-weight: bold; }
.output dl dd { padding-left: 20%; margin: 0 0 1em; }
.output dl, .output p { margin-bottom: 1em; } .output dl:not(.none), .output p { max-width: 30em; }
.output table { table-layout: fixed; font-size: 11px; margin: 0 auto 1em; border: none; display: block; }
.output:not(.markdown) td, .output:not(.markdown) th, .output:not(.markdown) tr {
  text-align: right; vertical-align: middle; padding: .5em; line-height: normal; white-space: normal; border: none;
}
.output tbody tr:nth-child(odd) { background: lime; } .output caption { caption-side: bottom; color: lime; }
.output span { text-transform: uppercase; word-break: break-all; } .output h1 { font-size: 40px; }
"""


@needs_chromium
@pytest.mark.parametrize("made", PAGES, ids=["summary", "not run", "heat map"])
def test_a_notebooks_own_style_changes_nothing(made, tmp_path):
    """Every element of a fragment has the same position and colors as on a page without rules; no two texts overlap."""
    fragment = made()._repr_html_()
    look = """(() => { const root = document.querySelector('.tg'), at = root.getBoundingClientRect(), found = [];
      for (const e of root.querySelectorAll('*')) {
        const b = e.getBoundingClientRect(), s = getComputedStyle(e);
        found.push([e.tagName, b.x - at.x, b.y - at.y, b.width, b.height, s.color, s.backgroundColor, s.fontSize]);
      } return found })()"""
    overlaps = """(() => { const boxes = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) { if (walk.currentNode.parentElement.closest('style')) continue;
        const r = document.createRange(); r.selectNodeContents(walk.currentNode);
        for (const b of r.getClientRects()) if (b.width > 1) boxes.push([walk.currentNode.textContent, b]); }
      return boxes.flatMap(([t, a], i) => boxes.slice(i + 1).filter(([, b]) => a.left < b.right - 1 &&
        b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1).map(([u]) => [t, u])) })()"""
    looks = []
    with Chromium() as browser:
        for style in ("body { font: 16px sans-serif }", HOST):
            path = tmp_path / "page.html"
            path.write_text(
                f"<!DOCTYPE html><meta charset=utf-8><style>{style}</style><div class=output>{fragment}</div>"
            )
            page = browser.open(path, width=900)
            looks.append(page.run(look))
            assert page.run(overlaps) == []
    assert looks[0] == looks[1]


def test_the_path_of_a_page_is_a_path_and_a_page(tmp_path):
    loss = (tg.ones(2, requires_grad=True) * 2).sum()
    path = viz.explore(loss, tmp_path / "a.html")
    assert path == tmp_path / "a.html" and hash(path) == hash(tmp_path / "a.html") and isinstance(path, ShownPage)
    assert path.parent == tmp_path and path.with_suffix(".txt").name == "a.txt" and os.fspath(path) == str(path)
    assert pickle.loads(pickle.dumps(path)) == path and copy.deepcopy(path) == path
    assert path.resolve().exists() and "a.html" in repr(path) and str(path) == str(tmp_path / "a.html")
    assert getattr(path.parent, "_repr_html_", lambda: None)() is None
    frame = Page(path._repr_html_())
    assert not frame.problems and frame.of("iframe")[0]["srcdoc"] == path.read_text("utf-8")
    path.unlink()
    assert path._repr_html_() is None


@needs_chromium
def test_a_notebook_shows_the_explorer_in_place(tmp_path):
    w = tg.tensor([1.0, -2.0], requires_grad=True)
    path = viz.explore((w * w).sum(), tmp_path / "a.html", names={"w": w})
    (tmp_path / "book.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><p>{path._repr_html_()}", "utf-8")
    with Chromium() as browser:
        page = browser.open(tmp_path / "book.html")
        inside = "document.querySelector('iframe').contentDocument"
        page.wait(f"{inside}.getElementById('status')?.textContent.startsWith('Step 1 of ')")
        page.run(f"{inside}.getElementById('next').click()")
        assert page.run(f"{inside}.getElementById('status').textContent").startswith("Step 2 of ")
        assert not page.errors and page.run("document.querySelector('iframe').clientHeight") > 300


def test_heat_map_cells():
    page = Page(viz.heatmap(tg.tensor([[1.0, -0.5], [0.0, float("nan")]]), "w")._repr_html_())
    kinds = [a.get("class") for a in page.of("td")][1:]  # without the corner
    assert kinds == ["p9", "m5", None, "nan"] and page.text["td"] == ["1", "-0.5", "0", "nan"]
    assert page.text["caption"] == ["w torch.float32 (2, 2)"]
    page = Page(viz.heatmap(tg.tensor([float("inf"), 1.0, True]))._repr_html_())
    assert [a.get("class") for a in page.of("td")][1:] == ["p9", "p9", "p9"]
    assert len(Page(viz.heatmap(tg.zeros(9, 2, 2))._repr_html_()).of("table")) == heat.TABLES
    assert "the first 16 × 16" in viz.heatmap(tg.zeros(20, 30))._repr_html_()
    for value in (3, 1 + 2j, [True, False], [[]], [0.5]):
        tensor = tg.tensor(value)
        Page(viz.heatmap(tensor)._repr_html_()).check(page=False)
    with pytest.raises(TypeError, match="expected a Tensor"):
        viz.heatmap([1])
    with pytest.raises(NotImplementedError):
        viz.heatmap(tg.ones(2, device="meta"))
    with pytest.raises(ValueError, match=r"ends with .html"):
        viz.heatmap(tg.ones(2)).save("a.png")


def test_notebooks_show_text_unless_asked():
    x, module = tg.ones(2, 2), nn.Linear(2, 2)
    assert not hasattr(x, "_repr_html_") and not hasattr(module, "_repr_html_")
    viz.notebook()
    try:
        Page(x._repr_html_()).check(page=False)
        Page(module._repr_html_()).check(page=False)
        assert tg.ones(100, 100)._repr_html_() is None and tg.ones(2, device="meta")._repr_html_() is None
        assert nn.LazyLinear(2)._repr_html_() is None and tg.empty(0)._repr_html_() is None
    finally:
        viz.notebook(False)
    viz.notebook(False)
    assert not hasattr(x, "_repr_html_") and not hasattr(module, "_repr_html_")
