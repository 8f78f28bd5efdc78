"""One process of a group, for `benchmarks.distributed`: reads commands as lines of JSON; rank 0 answers with one line.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python -m benchmarks.rank torch

The commands are the functions in COMMANDS. All ranks get the same commands in the same order.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
import traceback
import tracemalloc
from typing import Any

from benchmarks import emulated
from benchmarks.rows import models

WARM_UP = 3  # repetitions before the measured ones
BATCH = {"MLP": 256, "wide MLP": 256, "ConvNet": 64, "GPT": 12, "ResNet-18": 64, "GPT, 5 M": 16}  # of all ranks


class Rank:
    """A library in a process, its group (if there are several processes), and the models that were built."""

    def __init__(self, library: str) -> None:
        self.torch = importlib.import_module(library)
        self.torch.set_num_threads(1)
        self.dist = importlib.import_module(f"{library}.distributed")
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if self.size > 1:
            self.dist.init_process_group("gloo")
        self.models: dict[tuple, Any] = {}

    def wait_for_all(self) -> None:
        """A barrier, so that all ranks begin a measurement together."""
        if self.size > 1:
            self.dist.barrier()

    # --- commands ---

    def all_reduce(self, elements: int, count: int) -> dict:
        """The seconds that an all-reduce of float32 takes: one figure for each of `count` repetitions."""
        tensor, times = self.torch.zeros(elements), []
        for _ in range(WARM_UP + count):
            self.wait_for_all()
            start = time.perf_counter()
            self.dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
        return {"times": times[WARM_UP:]}

    def sums(self, elements: int, count: int) -> dict:
        """Like `all_reduce`, but the way in which DistributedDataParallel adds up gradients, if that is another one."""
        if self.torch.__name__ != "tensorgrad":
            return self.all_reduce(elements, count)
        from tensorgrad.distributed.collectives.reductions import start_sums, sums_in_place

        group, times = self.dist.group.WORLD, []
        if not sums_in_place(group):
            return self.all_reduce(elements, count)
        tensor = self.torch.zeros(elements)
        for _ in range(WARM_UP + count):
            self.wait_for_all()
            start = time.perf_counter()
            start_sums([tensor._array], 1 / self.size, group, watched=False).wait()
            times.append(time.perf_counter() - start)
        return {"times": times[WARM_UP:]}

    def slept(self, forward: float, backward: float, update: float, ready: list, count: int) -> dict:
        """The seconds of steps with DistributedDataParallel in which ranks sleep instead of computing.

        So more ranks than cores communicate as they would with a core each.

        Args:
            forward, backward, update, ready: what `backward` returned.

        Returns:
            `times`, and `busy`, the seconds of processor time in a step.
        """
        torch, key = self.torch, ("slept", str(ready))
        if key not in self.models:
            if self.size == 1 and not self.dist.is_initialized():
                self.dist.init_process_group("gloo", store=self.dist.HashStore(), rank=0, world_size=1)
            network = emulated.model(torch, [size for size, _ in ready], [at for _, at in ready])
            self.models[key] = torch.nn.parallel.DistributedDataParallel(network)
            self.models[key].require_backward_grad_sync = self.size > 1  # alone, it would copy gradients to buckets
        network, times, began = self.models[key], [], time.process_time()
        x = torch.zeros(1, requires_grad=True)
        emulated.precise_sleep()
        for _ in range(WARM_UP + count):
            self.wait_for_all()
            start = time.perf_counter()
            network.zero_grad()
            emulated.sleep_until(start + forward)
            loss = network(x)
            network.module.began = time.perf_counter()
            loss.backward()
            emulated.sleep_until(time.perf_counter() + update + backward - ready[-1][1])
            times.append(time.perf_counter() - start)
        busy = (time.process_time() - began) / (WARM_UP + count)
        return {"times": times[WARM_UP:], "busy": busy}

    def parameters(self, model: str) -> dict:
        """How many elements the gradients of a model have together."""
        return {"elements": sum(parameter.numel() for parameter in self._built(model, 1)[0].parameters())}

    def step(self, model: str, how: str, count: int, batch: int = 0) -> dict:
        """The seconds of training steps, `count` of them.

        Args:
            how: "alone": the whole batch in this process; "ddp": this rank's share, gradients reduced; "local": this
                rank's share, gradients not reduced.
            batch: of all ranks together; 0: the model's in BATCH.
        """
        step, times = self._prepared(model, how, batch or BATCH[model]), []
        warm_up = WARM_UP if count > WARM_UP else 1
        for _ in range(warm_up + count):
            self.wait_for_all()
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return {"times": times[warm_up:]}

    def backward(self, model: str, ranks: int, batch: int = 0, buckets: bool = False, count: int = 20) -> dict:
        """What the simulator needs of a model: seconds of forward, of backward, and when each gradient is complete.

        The model is in DistributedDataParallel, with this process alone in its group: communication does not count.

        Args:
            ranks: how many share the batch.
            batch: of all of them together; 0: the model's in BATCH.
            buckets: whether copying the gradients to buckets counts, as between machines.
            count: of measured steps.

        Returns:
            `forward`, `backward` and `update` in seconds, and `ready`: for each parameter, in the order of arrival, its
            bytes and the seconds since backward began. Medians of several steps.
        """
        network, loss_of, optimizer = self._built(model, (batch or BATCH[model]) // ranks)
        alone = [self.dist.new_group([rank]) for rank in range(self.size)][self.rank]
        parameters = list(network.parameters())
        arrivals: dict[int, list[float]] = {number: [] for number in range(len(parameters))}
        start = [0.0]
        for number, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(
                lambda _, number=number: arrivals[number].append(time.perf_counter() - start[0])
            )
        network = self.torch.nn.parallel.DistributedDataParallel(network, process_group=alone)
        network.require_backward_grad_sync = buckets
        phases: list[tuple[float, float, float]] = []
        warm_up = WARM_UP if count > WARM_UP else 1
        for _ in range(warm_up + count):
            self.wait_for_all()
            optimizer.zero_grad()
            began = time.perf_counter()
            loss = loss_of(network)
            start[0] = time.perf_counter()
            loss.backward()
            end = time.perf_counter()
            optimizer.step()
            phases.append((start[0] - began, end - start[0], time.perf_counter() - end))
        forward, backward, update = (statistics.median(column) for column in zip(*phases[warm_up:]))
        ready = [
            (parameter.numel() * parameter.element_size(), statistics.median(arrivals[number][warm_up:]))
            for number, parameter in enumerate(parameters)
        ]
        ready.sort(key=lambda item: item[1])
        return {"forward": forward, "backward": backward, "update": update, "ready": ready}

    def memory(self, how: str, width: int) -> dict:
        """The bytes that this rank holds after a training step of a deep MLP with Adam, and at its highest point.

        Args:
            how: "ddp", "zero" (ZeroRedundancyOptimizer) or "fsdp" (fully_shard).
            width: of its eight layers.
        """
        torch, nn = self.torch, self.torch.nn
        tracemalloc.start()
        network = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(8)))
        count = sum(parameter.numel() for parameter in network.parameters())
        if how == "fsdp":
            from tensorgrad.distributed.fsdp import fully_shard

            for layer in network:
                fully_shard(layer)
            fully_shard(network)
        else:
            network = nn.parallel.DistributedDataParallel(network)
        if how == "zero":
            from tensorgrad.distributed.optim import ZeroRedundancyOptimizer

            optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=1e-3)
        else:
            optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        x = torch.randn(8, width)
        for number in range(3):
            if number == 2:
                tracemalloc.reset_peak()
            network(x).square().mean().backward()
            optimizer.step()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {"held": held, "peak": peak, "parameters": 4 * count}

    # --- models ---

    def _prepared(self, model: str, how: str, batch: int) -> Any:
        key = model, how, batch
        if key not in self.models:
            network, loss_of, optimizer = self._built(model, batch if how == "alone" else batch // self.size)
            if how == "ddp":
                network = self.torch.nn.parallel.DistributedDataParallel(network)

            def step() -> None:
                optimizer.zero_grad()
                loss_of(network).backward()
                optimizer.step()

            step()
            self._settle(step)
            self.models[key] = step
        return self.models[key]

    def _settle(self, step: Any) -> None:
        """Runs the step until all that it uses is loaded. All ranks do it together."""
        for _ in range(4):
            self.wait_for_all()
            step()

    def _built(self, name: str, batch: int) -> tuple[Any, Any, Any]:
        """A model, a function that computes its loss on a batch, and an optimizer."""
        torch = self.torch
        torch.manual_seed(0)
        if name in ("GPT", "GPT, 5 M"):
            size = {"context": 64} if name == "GPT" else {"layers": 6, "width": 256, "heads": 8, "context": 128}
            network, shape = models.gpt(torch, **size), (batch, size["context"])
            x, y = torch.randint(65, shape), torch.randint(65, (shape[0] * shape[1],))
        else:
            if name == "ConvNet":
                network, x = models.convnet(torch), torch.randn(batch, 1, 28, 28)
            elif name == "ResNet-18":
                network, x = models.resnet18(torch), torch.randn(batch, 3, 32, 32)
            else:
                network, x = models.mlp(torch, hidden=1024 if name == "wide MLP" else 128), torch.randn(batch, 784)
            y = torch.randint(10, (batch,))

        def loss_of(network: Any) -> Any:
            output = network(x)
            return torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), y)

        return network, loss_of, torch.optim.SGD(network.parameters(), lr=0.01)


COMMANDS = ("all_reduce", "sums", "parameters", "step", "slept", "backward", "memory")


def main() -> None:
    """Answers commands until the input ends."""
    rank = Rank(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print does not disturb the answers
    for line in sys.stdin:
        command = json.loads(line)
        try:
            what = command.pop("do")
            if what not in COMMANDS:
                raise ValueError(f"unknown command {what}")
            answer = getattr(rank, what)(**command)
        except Exception:
            answer = {"error": traceback.format_exc(limit=-3)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if rank.size > 1:
        rank.dist.destroy_process_group()


if __name__ == "__main__":
    main()
