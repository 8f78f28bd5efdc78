import tensorgrad as torch

__doc__ = """A PyTorch checkpoint served over HTTP, with only NumPy installed.

    python examples/inference.py                                 then open the printed address, and draw a digit
    python examples/inference.py --checkpoint out/cnn.pt         a checkpoint of examples/mnist/cnn.py
    python examples/inference.py --measure                       memory and time to the first answer, and PyTorch's

examples/weights/digits.pt was trained on scikit-learn's digits and saved by PyTorch 2.13. Programs send requests like
this:

    curl http://127.0.0.1:8000/read -d '{"pixels": [[0, 0, 0.3, ...], ...]}'
    {"digit": 3, "probabilities": [0.0, 0.001, ...]}

Measured with --measure 7: the first answer after 0.50 s, with 53 MB, under tensorgrad; after 1.03 s, with 238 MB, under
PyTorch. README.md describes the machine.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import make_parser, positive, run, start
from picture import save_bars

nn = torch.nn
HERE = Path(__file__).resolve().parent
LARGEST_REQUEST = 100_000  # bytes; much more than the pixels of a digit need
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Draw a digit</title>
<style>body{font:18px sans-serif;max-width:24em;margin:2em auto}canvas{width:100%;border:1px solid;touch-action:none;
image-rendering:pixelated;background:white}</style>
<h1>Draw a digit</h1><canvas id="c" width="SIDE" height="SIDE" aria-label="drawing area"></canvas>
<p><button id="clear">Clear</button> <output id="says" aria-live="polite">Draw with the pointer.</output></p>
<script>
const side = SIDE, pen = c.getContext("2d");
let ink = Array.from({length: side}, () => Array(side).fill(0));
function paint() { ink.forEach((row, y) => row.forEach((v, x) => {
  pen.fillStyle = `rgb(${255 * (1 - v)} ${255 * (1 - v)} ${255 * (1 - v)})`; pen.fillRect(x, y, 1, 1); })); }
async function ask() {
  const answer = await (await fetch("read", {method: "POST", body: JSON.stringify({pixels: ink})})).json();
  says.value = answer.error || `${answer.digit} (${(100 * answer.probabilities[answer.digit]).toFixed(0)} % sure)`; }
c.onpointermove = event => { if (!event.buttons) return;
  const px = event.offsetX / c.clientWidth * side - .5, py = event.offsetY / c.clientHeight * side - .5;
  ink.forEach((row, y) => row.forEach((v, x) => {
    row[x] = Math.max(v, Math.min(1, 1.4 - Math.hypot(x - px, y - py) / (side / 12))); })); paint(); };
c.onpointerup = ask;
clear.onclick = () => { ink.forEach(row => row.fill(0)); paint(); says.value = ""; };
</script></html>"""


def load_network(file, device):
    """Loads a network of examples/mnist/cnn.py from `file`. Returns it, and the side of its images in pixels.

    `torch.load` reads PyTorch's files as data: nothing in them is executed, so even an untrusted file is safe.
    """
    state = torch.load(file, map_location=device)
    try:
        state = state["model"]
        width, features = len(state["0.0.weight"]), state["4.weight"].shape[1]
    except (KeyError, TypeError):
        raise ValueError(f"{file} does not contain a network of examples/mnist/cnn.py") from None

    def block(inputs, outputs):
        convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    blocks = block(1, width), block(width, 2 * width), block(2 * width, 4 * width)
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(features, 10)).to(device)
    model.load_state_dict(state)
    return model.eval(), {4 * width: 8, 36 * width: 28}[features]


def read(model, side, pixels, device="cpu"):
    """Classifies `pixels`, rows of numbers from 0 (paper) to 1 (ink). Raises: ValueError for anything else."""
    try:
        image = torch.tensor(pixels, dtype=torch.float32, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("expected pixels as a list of rows of numbers") from None
    if image.shape != (side, side) or not 0 <= image.min() <= image.max() <= 1:
        raise ValueError(f"expected {side} rows of {side} numbers from 0 to 1, got shape {list(image.shape)}")
    with torch.no_grad():
        probabilities = model(image[None, None]).softmax(dim=1)[0]
    return {"digit": probabilities.argmax().item(), "probabilities": [round(p, 4) for p in probabilities.tolist()]}


def make_server(model, side, options):
    """Creates an HTTP server: GET / returns the page to draw on, POST /read classifies an image."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, kind, text):
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            if self.path == "/":
                self.answer(200, "text/html; charset=utf-8", PAGE.replace("SIDE", str(side)))
            else:
                self.send_error(404)

        def do_POST(self):
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/read" or not 0 < length <= LARGEST_REQUEST:
                return self.send_error(404 if self.path != "/read" else 413)
            try:
                request = json.loads(self.rfile.read(length))
                pixels = request["pixels"] if isinstance(request, dict) and "pixels" in request else None
                status, content = 200, read(model, side, pixels, options.device)
            except ValueError as error:  # includes json's own error
                status, content = 400, {"error": str(error)}
            self.answer(status, "application/json", json.dumps(content))

    return HTTPServer((options.host, options.port), Handler)


def peak_memory():
    """The peak memory of this process, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) / 1000
    import resource  # Unix only

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def measure(library, options):
    """Measures the median time from process start to the first answer, in seconds, and the memory in MB.

    The process runs this file, with its first line changed to import `library`.
    """
    times, memory = [], []
    _, rest = Path(__file__).read_text().split("\n", 1)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "inference.py"
        copy.write_text(f"import {library} as torch\n{rest}")
        command = [sys.executable, str(copy), "--answer", "--checkpoint", str(Path(options.checkpoint).resolve())]
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        for _ in range(options.measure):
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, "--out", folder], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
            )
            memory.append(float(process.stdout.readline() or "nan"))
            times.append(time.perf_counter() - began)
            process.communicate()
            if process.returncode:
                raise ValueError(f"the measurement under {library} failed; see its output above")
    return statistics.median(times), statistics.median(memory)


def compare(options):
    """Measures both libraries, and prints and draws the results."""
    found = {library: measure(library, options) for library in ("tensorgrad", "torch")}
    for library, (seconds, memory) in found.items():
        print(f"{library:10s}  first answer after {seconds:.2f} s, {memory:.0f} MB")
    panels = {"Seconds to the first answer": 0, "Memory in MB": 1}
    bars = {title: {library: values[i] for library, values in found.items()} for title, i in panels.items()}
    save_bars(bars, options.out / "inference.svg")
    print(f"picture: {options.out / 'inference.svg'}")


def main():
    parser = make_parser(__doc__, "inference")
    weights = HERE / "weights" / "digits.pt"
    parser.add_argument("--checkpoint", metavar="FILE", default=weights, help="what to serve (the included one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this computer only)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (%(default)s)")
    parser.add_argument("--measure", metavar="ROUNDS", type=positive, nargs="?", const=5, help="compare with PyTorch")
    parser.add_argument("--answer", action="store_true", help="answer once, print the memory in MB and stop")
    options = start(torch, parser)
    if options.measure:
        return compare(options)
    model, side = load_network(options.checkpoint, options.device)
    if options.answer:
        read(model, side, [[0.0] * side] * side, options.device)
        return print(f"{peak_memory():.1f}", flush=True)
    with make_server(model, side, options) as server:
        print(
            f"serving {options.checkpoint} at http://{options.host}:{server.server_port}/ (Ctrl-C to stop)", flush=True
        )
        server.serve_forever()


if __name__ == "__main__":
    run(main)
