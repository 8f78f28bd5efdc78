"""The gallery: a card for each example, with a picture that a short run of it drew while the site was built.

Pictures are kept in build/gallery and drawn again when the example's file changes. An example that needs a package that
is not installed, takes too long or draws nothing has a card without a picture. The variable GALLERY names those whose
pictures are drawn, as in `GALLERY="xor.py graph.py" make docs`; without it all are.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
KEPT = ROOT / "build" / "gallery"
LIMIT = 60  # seconds of one run
ROW = re.compile(r"^\| \[([\w/]+\.py)\]\([^)]*\) \| (.*?) \|(.*?)\|$", re.MULTILINE)
# How each is run, a few seconds long, and which of its pictures the card has.
RUNS = {
    "xor.py": ("", "xor.svg"), "graph.py": ("", "graph.svg"), "mnist/cnn.py": ("--epochs 2", "cnn.svg"),
    "vae.py": ("--epochs 8", "vae_plane.png"), "gan.py": ("--steps 300", "gan_digits.png"),
    "neural_ode.py": ("--steps 100", "neural_ode.svg"), "maml.py": ("--steps 300", "maml.svg"),
    "private.py": ("--steps 100", "private.svg"), "pinn.py": ("--steps 200", "pinn.svg"),
    "laplace.py": ("", "laplace.svg"), "quantize.py": ("--epochs 3", "quantize.svg"),
    "rl.py": ("--rounds 15", "rl.svg"), "lstm.py": ("--steps 100", "lstm.svg"), "gpt.py": ("--steps 30", "gpt.svg"),
    "diffusion.py": ("--epochs 5", "diffusion_digits.png"),
    "mnist/vit.py": ("--epochs 1 --truncate_train 512", "vit_attention.png"),
}  # fmt: skip


def rows() -> list[tuple[str, str]]:
    """The examples with what they show, as the table of examples/README.md has them."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    return [(name, about) for name, about, _ in ROW.findall(text)]


def drawn() -> list[str]:
    """The examples whose pictures are drawn."""
    return os.environ["GALLERY"].split() if "GALLERY" in os.environ else [*RUNS]


def picture(name: str) -> Path | None:
    """The picture that an example drew; None if there is none."""
    if name not in RUNS:
        return None
    arguments, file = RUNS[name]
    told = hashlib.sha256((EXAMPLES / name).read_bytes() + repr(RUNS[name]).encode()).hexdigest()[:16]
    kept = KEPT / f"{told}{Path(file).suffix}"
    if kept.exists():
        return kept
    KEPT.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(EXAMPLES / name), *arguments.split(), "--out", folder]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=LIMIT,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired:
            return None
        made = Path(folder, file)
        if done.returncode or not made.exists():
            return None
        shutil.copy(made, kept)
    return kept


class Gallery(SphinxDirective):
    """Shows the cards. Examples are run only when pages are written as HTML."""

    def run(self) -> list[nodes.Node]:
        """Returns one grid."""
        found = rows()
        pictures: dict[str, Path | None] = {}
        if self.env.app.builder.name == "html":
            with ThreadPoolExecutor(2) as pool:
                pictures = dict(zip(drawn(), pool.map(picture, drawn()), strict=True))
        cards = []
        for name, about in found:
            file, shown = pictures.get(name), ""
            if file is not None:
                target = Path(self.env.app.outdir, "gallery", name.replace("/", "-").replace(".py", file.suffix))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
                shown = f'<img src="gallery/{target.name}" alt="What {name} draws" loading="lazy">'
            about = html.escape(about).replace("`", "")
            address = f"./{sources.page_of(EXAMPLES / name)}#L-1"
            cards.append(f'<a href="{address}">{shown}<b>{name}</b><span>{about}</span></a>')
        return [nodes.raw("", f'<div class="gallery">{"".join(cards)}</div>', format="html")]


def setup(app) -> dict:
    """Called by Sphinx: registers the directive."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "version": "1"}
