"""Run by test_rpc.py in several processes, with tensorgrad or torch: calls of functions in other processes.

python rpc_cases.py LIBRARY
"""

import importlib
import json
import operator
import sys

LIBRARY = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in ("tensorgrad", "torch") else "tensorgrad"
torch = importlib.import_module(LIBRARY)
rpc = importlib.import_module(f"{LIBRARY}.distributed.rpc")


class Counter:
    def __init__(self, start):
        self.count = start

    def add(self, n):
        self.count += n
        return self.count

    def me(self):
        return self


def scaled(x, factor=1):
    return x * factor


def fails(text):
    raise ValueError(text)


def of_reference(reference):
    return reference.to_here().add(1), reference.is_owner(), reference.owner_name()


def forwarded(to, n):
    return rpc.rpc_sync(to, scaled, args=(n,), kwargs={"factor": 10})


@rpc.functions.async_execution
def added_later(to, x, y):
    return rpc.rpc_async(to, operator.add, args=(x, y)).then(lambda future: future.wait() + 1)


def told(error):
    name = type(error).__name__
    return name, str(error).splitlines()[0].removeprefix(f"{name}: ")


def observe():
    """What process 0 sees."""
    other, third = "worker1", "worker2"
    yield rpc.get_worker_info().name, rpc.get_worker_info(other).id
    yield rpc.rpc_sync(other, scaled, args=(torch.arange(3), 2)).tolist()
    yield rpc.rpc_sync(1, scaled, args=(3,)), rpc.rpc_sync(rpc.get_worker_info(third), scaled, args=(4,))
    yield rpc.rpc_sync("worker0", scaled, args=(5,), kwargs={"factor": 2})
    futures = [rpc.rpc_async(f"worker{n % 3}", scaled, args=(n, n)) for n in range(12)]
    yield (
        [future.wait() for future in futures],
        rpc.rpc_async(other, scaled, args=(1,)).then(lambda f: f.value() + 5).wait(),
    )
    for call in (
        lambda: rpc.rpc_sync(other, fails, args=("no",)),
        lambda: rpc.rpc_async(third, fails, args=("3",)).wait(),
    ):
        try:
            call()
        except Exception as error:
            yield told(error)
    yield rpc.rpc_sync(other, forwarded, args=(third, 7)), rpc.rpc_sync(other, added_later, args=(third, 1, 2))
    counter = rpc.remote(other, Counter, args=(5,))
    yield counter.is_owner(), counter.owner_name(), counter.owner().id, counter.to_here().count
    yield counter.rpc_sync().add(2), counter.rpc_async().add(3).wait(), counter.remote().add(1).to_here()
    yield rpc.rpc_sync(other, of_reference, args=(counter,)), rpc.rpc_sync(third, of_reference, args=(counter,))
    yield counter.to_here().count
    own = rpc.RRef(Counter(1))
    yield own.is_owner(), own.local_value().add(1), own.to_here() is own.local_value()
    yield rpc.rpc_sync(third, of_reference, args=(own,)), own.local_value().count
    try:
        counter.local_value()
    except RuntimeError as error:
        yield type(error).__name__
    broken = rpc.remote(other, fails, args=("made",))
    try:
        broken.to_here()
    except Exception as error:
        yield told(error)


def main():
    import os

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=200)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    seen = list(observe()) if rank == 0 else None
    rpc.shutdown()
    if rank == 0:
        print(json.dumps(seen))


if __name__ == "__main__":
    sys.modules["rpc_cases"] = sys.modules["__main__"]
    for value in (Counter, scaled, fails, of_reference, forwarded, added_later):
        value.__module__ = "rpc_cases"
    main()
