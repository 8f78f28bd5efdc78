import tensorgrad as torch

__doc__ = """Three models served over HTTP by FastAPI; requests that arrive together are computed together.

    pip install fastapi uvicorn
    python examples/serve.py                                     MLP, ConvNet and a small transformer, untrained
    python examples/serve.py --port 8000 --threads 1 --batch 16

    curl localhost:8000/mlp -H 'Content-Type: application/json' -d '{"input": [0.1, 0.2, ...]}'     784 numbers
    curl localhost:8000/transformer -H 'Content-Type: application/json' -d '{"input": [3, 14, 15]}'  up to 32 tokens
    curl localhost:8000/health
    curl localhost:8000/metrics                                  in the format that Prometheus reads

docs/serving.md says how many threads and processes a server needs.
"""

import asyncio
import queue
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import make_parser, positive, run, start

nn = torch.nn
TOKENS, LENGTH = 1000, 32


class Transformer(nn.Module):
    """Classifies a text of at most LENGTH tokens; token 0 fills up shorter ones, and nobody attends to it."""

    def __init__(self, layers=4, width=256, heads=4, classes=10):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        return self.head(self.layers(x, src_key_padding_mask=tokens == 0)[:, 0])


def make_models():
    """Returns the models by name. Put `load_state_dict(torch.load(file))` here to serve trained ones."""
    made = {
        "mlp": nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
        "convnet": nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 10),
        ),
        "transformer": Transformer(),
    }  # fmt: skip
    return {name: model.eval().requires_grad_(False) for name, model in made.items()}


def numbers(*shape):
    """Returns a function that makes a tensor of this shape from a request, or raises ValueError."""

    def read(values):
        try:
            x = torch.tensor(values, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ValueError("expected a list of numbers") from None
        if x.shape != shape or not x.isfinite().all():
            raise ValueError(f"expected finite numbers of shape {list(shape)}, got shape {list(x.shape)}")
        return x

    return read


def text(values):
    """Makes a tensor of LENGTH tokens from a request, or raises ValueError."""
    good = isinstance(values, list) and all(type(value) is int and 0 < value < TOKENS for value in values)
    if not good or not 0 < len(values) <= LENGTH:
        raise ValueError(f"expected 1 to {LENGTH} whole numbers from 1 to {TOKENS - 1}")
    return torch.tensor(values + [0] * (LENGTH - len(values)))


READ = {"mlp": numbers(784), "convnet": numbers(1, 28, 28), "transformer": text}


class Batcher:
    """Runs a model in one thread of its own, on all the inputs that have arrived meanwhile.

    There is no waiting for a batch to fill up: an input that comes alone is computed alone, and those that come while
    the model computes are the next batch. So batches grow with the load.
    """

    def __init__(self, model, largest=16, waiting=256):
        self.model, self.largest = model, largest
        self.waiting = queue.Queue(waiting)
        self.requests = self.batches = 0
        self.seconds, self.ended = 0.0, False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def submit(self, x):
        """Returns a Future of the output for the input `x`. Raises: queue.Full if too many are waiting."""
        future = Future()
        self.waiting.put_nowait((x, future))
        return future

    def gather(self):
        """Waits for an input. Returns it with those that wait behind it; an empty list at the end."""
        batch: list = [None if self.ended else self.waiting.get()]
        with suppress(queue.Empty):
            while batch[-1] is not None and len(batch) < self.largest:
                batch.append(self.waiting.get_nowait())
        if batch[-1] is None:
            self.ended = True
            batch.pop()
        return batch

    def work(self):
        while batch := self.gather():
            began = time.perf_counter()
            batch = [(x, future) for x, future in batch if future.set_running_or_notify_cancel()]
            if not batch:  # all the clients have gone
                continue
            try:
                with torch.inference_mode():
                    outputs = self.model(torch.stack([x for x, _ in batch])).tolist()
            except Exception as error:  # belongs to these requests; the thread goes on
                for _, future in batch:
                    future.set_exception(error)
                continue
            self.requests += len(batch)
            self.batches += 1
            self.seconds += time.perf_counter() - began
            for (_, future), output in zip(batch, outputs):
                future.set_result(output)

    def close(self):
        """Ends the thread when it has answered what waits."""
        self.waiting.put(None)
        self.thread.join()


def metrics(batchers):
    """What the batchers have done, in the text format of Prometheus."""
    kinds = {"requests": "answered requests", "batches": "runs of the model", "seconds": "time in the model"}
    lines = []
    for kind, meaning in kinds.items():
        lines += [f"# HELP model_{kind}_total {meaning}", f"# TYPE model_{kind}_total counter"]
        lines += [f'model_{kind}_total{{model="{name}"}} {getattr(b, kind)}' for name, b in batchers.items()]
    lines += ["# HELP model_waiting requests that wait", "# TYPE model_waiting gauge"]
    lines += [f'model_waiting{{model="{name}"}} {b.waiting.qsize()}' for name, b in batchers.items()]
    return "\n".join(lines) + "\n"


def make_app(batch=16):
    """Returns the application, for any ASGI server. The models are made when it starts."""
    from fastapi import Body, FastAPI, HTTPException
    from fastapi.responses import PlainTextResponse

    batchers = {}

    @asynccontextmanager
    async def lifespan(app):
        batchers.update({name: Batcher(model, batch) for name, model in make_models().items()})
        yield
        while batchers:
            batchers.popitem()[1].close()

    app = FastAPI(title="models", lifespan=lifespan)

    @app.get("/health")
    async def health():
        alive = bool(batchers) and all(one.thread.is_alive() for one in batchers.values())
        if not alive:
            raise HTTPException(503, "the models are not running")
        return {"models": list(batchers)}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics():
        return metrics(batchers)

    @app.post("/{name}")
    async def answer(name: str, input: Annotated[list, Body(embed=True)]):
        if name not in batchers:
            raise HTTPException(404, f"there is no model {name!r}, only {', '.join(batchers)}")
        try:
            future = batchers[name].submit(READ[name](input))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except queue.Full:
            raise HTTPException(503, "too many requests are waiting", {"Retry-After": "1"}) from None
        return {"output": await asyncio.wrap_future(future)}

    return app


def main():
    parser = make_parser(__doc__, "serve", threads=1, batch=16)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this computer only)")
    parser.add_argument("--port", type=positive, default=8000, help="port to listen on (%(default)s)")
    options = start(torch, parser)
    try:
        import uvicorn

        app = make_app(options.batch)
    except ImportError as error:
        sys.exit(f"{error}: this example needs FastAPI and a server: pip install fastapi uvicorn")
    torch.set_num_threads(options.threads)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    run(main)
