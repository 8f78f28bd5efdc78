"""Remote calls: results, errors and references are PyTorch's."""

import importlib.util
import json
import os
import pickle
from pathlib import Path

import pytest

import tensorgrad as torch
from tests.distributed.launch import ROOT, run
from tests.support.processes import output_of

rpc = torch.distributed.rpc
CASES = Path(__file__).parent / "rpc_cases.py"


def seen(library):
    """What process 0 of three sees."""
    results = run(3, [CASES, library], PYTHONPATH=f"{ROOT}:{CASES.parent}")
    return json.loads(results[0][1].strip().splitlines()[-1])


def test_calls_between_processes():
    found = seen("tensorgrad")
    assert found[:4] == [["worker0", 1], [0, 2, 4], [3, 4], 10]
    assert found[4] == [[n * n for n in range(12)], 6]
    assert [kind for kind, _ in found[5:7]] == ["ValueError"] * 2
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: nothing to compare with")
    assert found == seen("torch")


def test_without_a_beginning_it_says_so():
    for call in (
        lambda: rpc.rpc_sync("a", abs, (1,)), rpc.shutdown, rpc.get_worker_info, lambda: rpc.RRef(1),
        lambda: rpc.remote("a", abs, (1,)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()


ALONE = """
import os
import pickle
import time
import tensorgrad as torch
from tensorgrad.distributed.rpc import references

rpc = torch.distributed.rpc
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
for turn in range(2):
    rpc.init_rpc("alone", rank=0, world_size=1)
"""


def test_values_go_with_their_last_reference():
    output_of(f"""{ALONE}
    values = references.agent().values
    first = rpc.RRef([1])
    second = rpc.remote("alone", sorted, args=([2, 1],))
    assert second.to_here() == [1, 2] and len(values) == 2
    copy = pickle.loads(pickle.dumps(first))
    assert copy.local_value() is first.local_value() and list(values.values())[0].count == 2
    del first, second
    while len(values) > 1:
        time.sleep(0)
    assert copy.to_here() == [1]
    del copy
    while values:
        time.sleep(0)
    rpc.shutdown()
""")


def test_wrong_calls():
    output_of(f"""{ALONE}
    for call, kind in (
        (lambda: rpc.rpc_sync("nobody", abs, (1,)), ValueError), (lambda: rpc.rpc_sync(7, abs, (1,)), ValueError),
        (lambda: rpc.rpc_sync("alone", 3), TypeError), (lambda: rpc.init_rpc("again"), RuntimeError),
        (lambda: rpc.init_rpc("again", backend="x"), TypeError),
        (lambda: rpc.init_rpc("again", rpc_backend_options=3), TypeError),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError("no error")
    rpc.shutdown()
""")


def test_a_stranger_is_not_served():
    """Who connects and does not know the secret of the job has nothing unpickled."""
    output_of(f"""{ALONE}
    import os, pickle, threading
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    class Evil:
        def __reduce__(self):
            return os.putenv, ("STRANGER", "1")

    agent = references.agent()
    before = len(agent._pool._threads)
    try:
        with Client(agent._listener.address, "AF_INET", authkey=b"guess") as connection:
            connection.send_bytes(bytes(8) + pickle.dumps(Evil()))
            connection.recv_bytes()
    except (AuthenticationError, EOFError, OSError):
        pass
    else:
        raise AssertionError("it was served")
    assert len(agent._pool._threads) == before
    assert rpc.rpc_sync("alone", abs, (-1,)) == 1
    rpc.shutdown()
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_has_no_agent():
    """Its parent's threads do not run in it: a call would wait for ever."""
    output_of(f"""{ALONE}
    import os

    kept = rpc.RRef([1])
    if not (child := os.fork()):
        try:
            rpc.rpc_sync("alone", abs, (-1,))
        except RuntimeError as error:
            os._exit("has not been initialized" not in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rpc.rpc_sync("alone", abs, (-1,)) == 1 and kept.to_here() == [1]
    rpc.shutdown()
""")


def test_options():
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=5, init_method="tcp://127.0.0.1:1")
    assert (options.rpc_timeout, options.init_method, options.num_worker_threads) == (5, "tcp://127.0.0.1:1", 16)
    with pytest.raises(NotImplementedError, match="the GPU of the same number"):
        rpc.TensorPipeRpcBackendOptions(device_maps={"worker1": {0: 1}})
    with pytest.raises(ValueError, match="got device type cpu"):
        options.set_devices(["cpu"])
    assert repr(rpc.BackendType.TENSORPIPE) == "BackendType.TENSORPIPE" and repr(rpc.WorkerInfo("a", 1))


def test_marked_functions_stay_picklable():
    assert pickle.loads(pickle.dumps(rpc.functions.async_execution)) is rpc.functions.async_execution
