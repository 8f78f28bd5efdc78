"""examples/serve.py: what its batcher promises, and the server itself where FastAPI is installed. Nothing is timed."""

import importlib
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tensorgrad as torch
from tests.docs.test_examples import EXAMPLES, run


@pytest.fixture(scope="module")
def serve():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(EXAMPLES)
        yield importlib.import_module("serve")


class Gate(torch.nn.Module):
    """Doubles its input; waits until it may, and remembers the sizes of the batches."""

    def __init__(self):
        super().__init__()
        self.may, self.began, self.sizes = threading.Event(), threading.Event(), []

    def forward(self, x):
        self.began.set()
        assert self.may.wait(60)
        self.sizes.append(len(x))
        if (x < 0).any():
            raise ValueError("negative")
        return 2 * x


@pytest.fixture
def gated(serve):
    """A batcher whose model has begun with a first input, and waits."""
    gate = Gate()
    batcher = serve.Batcher(gate, largest=4, waiting=6)
    first = batcher.submit(torch.tensor(1.0))
    assert gate.began.wait(60)
    yield gate, batcher, first
    gate.may.set()
    batcher.close()
    assert not batcher.thread.is_alive()


def test_what_arrives_while_the_model_runs_is_the_next_batch(gated):
    gate, batcher, first = gated
    futures = [first, *(batcher.submit(torch.tensor(float(i))) for i in range(2, 8))]
    with pytest.raises(queue.Full):
        batcher.submit(torch.tensor(8.0))
    gate.may.set()
    assert [future.result(60) for future in futures] == [2.0 * i for i in range(1, 8)]
    assert gate.sizes == [1, 4, 2]
    assert (batcher.requests, batcher.batches) == (7, 3)


def test_an_error_is_that_of_its_batch_and_the_next_one_is_computed(gated):
    gate, batcher, first = gated
    wrong = [batcher.submit(torch.tensor(x)) for x in (1.0, -1.0, 2.0, 3.0)]
    right = batcher.submit(torch.tensor(5.0))
    gate.may.set()
    assert first.result(60) == 2.0 and right.result(60) == 10.0
    assert {str(future.exception(60)) for future in wrong} == {"negative"}


def test_a_client_that_has_gone_is_left_out(gated):
    gate, batcher, _ = gated
    gone, stays = batcher.submit(torch.tensor(2.0)), batcher.submit(torch.tensor(3.0))
    assert gone.cancel()
    gate.may.set()
    assert stays.result(60) == 6.0 and gate.sizes == [1, 1]


def test_closing_answers_what_waits(serve):
    gate = Gate()
    batcher = serve.Batcher(gate, largest=4)
    futures = [batcher.submit(torch.tensor(1.0)) for _ in range(9)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    gate.may.set()
    closing.join(60)
    assert [future.result(0) for future in futures] == [2.0] * 9


def test_a_batch_gives_what_each_input_gives_alone(serve):
    torch.manual_seed(0)
    inputs = {
        "mlp": [torch.randn(784) for _ in range(3)],
        "convnet": [torch.randn(1, 28, 28) for _ in range(3)],
        "transformer": [serve.text([3, 14, 15]), serve.text([7] * 32), serve.text([9])],
    }
    for name, model in serve.make_models().items():
        alone = torch.cat([model(x[None]) for x in inputs[name]])
        torch.testing.assert_close(model(torch.stack(inputs[name])), alone, rtol=1e-4, atol=1e-5)
    longer = serve.text([3, 14, 15])
    longer[3:] = 5
    model = serve.make_models()["transformer"]
    assert not torch.allclose(model(longer[None]), model(serve.text([3, 14, 15])[None])), "the padding is not read"


WRONG = {
    "mlp": [[1.0], ["a"] * 784, [[1.0] * 784], [float("nan")] * 784, [], [1e400] * 784],
    "convnet": [[1.0] * 784, [[[1.0] * 28] * 27]],
    "transformer": [[], [0], [1.5], [1000], [1] * 33, ["a"], [True], [[1]]],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_refused(serve, name):
    for values in WRONG[name]:
        with pytest.raises(ValueError, match="expected"):
            serve.READ[name](values)


def test_without_fastapi_it_says_what_to_install(tmp_path):
    blocked = "import sys, runpy; sys.modules['uvicorn'] = None; sys.argv = sys.argv[1:]; sys.path[0] = ''"
    blocked += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    told = run("-c", blocked, EXAMPLES / "serve.py", "--out", tmp_path, expect=1)
    assert len(told.strip().splitlines()) == 1 and "pip install fastapi uvicorn" in told


# --- the server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(serve):
    pytest.importorskip("fastapi", reason="the extra test-tools (fastapi) is not installed")
    pytest.importorskip("httpx", reason="the extra test-tools (httpx) is not installed")
    from fastapi.testclient import TestClient

    torch.manual_seed(0)
    with TestClient(serve.make_app(batch=4)) as client:
        yield client


def test_each_model_answers_many_at_once_as_it_does_one(client, serve):
    torch.manual_seed(0)
    models = serve.make_models()
    inputs = {
        "mlp": torch.rand(784).tolist(),
        "convnet": torch.rand(1, 28, 28).tolist(),
        "transformer": [3, 14, 15],
    }
    with ThreadPoolExecutor(6) as pool:
        for name, values in inputs.items():
            expected = models[name](serve.READ[name](values)[None])[0]
            for answer in pool.map(lambda _: client.post(f"/{name}", json={"input": values}), range(12)):
                assert answer.status_code == 200
                torch.testing.assert_close(torch.tensor(answer.json()["output"]), expected, rtol=1e-4, atol=1e-5)
    lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert int(lines['model_requests_total{model="mlp"}']) >= 12
    assert int(lines['model_batches_total{model="mlp"}']) >= 3
    assert lines['model_waiting{model="mlp"}'] == "0"


def test_health_names_the_models(client):
    assert client.get("/health").json() == {"models": ["mlp", "convnet", "transformer"]}


@pytest.mark.parametrize("path, body, status", [
    ("/other", {"input": [1]}, 404), ("/mlp", {"input": [1]}, 422), ("/mlp", {"input": "text"}, 422),
    ("/mlp", {}, 422), ("/transformer", {"input": [0]}, 422), ("/convnet", {"input": [[[1]]]}, 422),
])  # fmt: skip
def test_what_is_refused_is_a_client_error(client, path, body, status):
    answer = client.post(path, json=body)
    assert answer.status_code == status and answer.json()["detail"]


def test_before_it_has_started_it_is_not_healthy(client, serve):
    from fastapi.testclient import TestClient

    assert TestClient(serve.make_app()).get("/health").status_code == 503
    assert client.get("/health").status_code == 200
