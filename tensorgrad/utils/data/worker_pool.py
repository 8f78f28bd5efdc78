"""The worker processes of one iterator, as the main process handles them: start, send, receive, detect deaths, stop."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tensorgrad.system import forks
from tensorgrad.utils.data import channel, worker

PATIENCE = 5.0  # seconds that a worker has to finish its batch before it is terminated
LONGEST = 3600.0  # seconds of one wait; the system counts milliseconds in 32 bits

_starting = forks.lock()  # held while the worker's end of its pipe is open in this process
_ours: weakref.WeakSet[Connection] = weakref.WeakSet()  # the main process's ends of the pipes


def _forked() -> None:
    """Closes the main process's ends in a forked process; otherwise workers would never see them closed."""
    for connection in list(_ours):
        connection.close()
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def context_of(chosen: Any) -> Any:
    """Returns the multiprocessing context: the loader's, else the program's (`set_start_method`), else the default.

    The default is fork on Linux, with every version of Python, and Python's own default elsewhere. PyTorch programs
    rely on fork: they define data sets, with lambdas in them, in notebooks or in scripts without
    `if __name__ == "__main__"`. A forked worker also starts in milliseconds, and shares the data set's memory until one
    of the processes writes to it.

    As far as this package is concerned, forking is safe: its locks and its generator are in a valid state in the child
    (`system/forks.py`), a worker uses no threads for its kernels, and OpenBLAS stops its threads before a fork and
    starts new ones afterwards. One case is not safe, and has been seen to hang: a fork while another thread of the
    program is in a matrix product that OpenBLAS runs on several threads. Such a program should choose "spawn", as
    should one whose data set needs the GPU.
    """
    if chosen is not None:
        return chosen
    method = multiprocessing.get_start_method(allow_none=True)
    default = "fork" if sys.platform == "linux" else multiprocessing.get_all_start_methods()[0]
    return multiprocessing.get_context(method or default)


class WorkerPool:
    """Workers 0 to `n - 1`, each connected by its own pipe. Time passes by `clock`, and in `wait`.

    Raises: whatever pickling raises, with a message that names the part at fault, if the context has to pickle the data
    set.
    """

    def __init__(
        self,
        context: Any,
        orders: worker.Orders,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[..., list] = wait,
    ) -> None:
        self.clock, self.wait = clock, wait
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        self._method = context.get_start_method()
        self._ready: set[int] = set()  # workers that have sent READY
        self._last_read = [0] * orders.num_workers  # when each worker was last read from, as a count of answers
        self._hanging: set[int] = set()  # workers that were waited for in vain: they get no more time
        self._stop = weakref.finalize(self, _stop, os.getpid(), self.processes, self.connections, self._hanging)
        self._stop.atexit = False  # at exit, multiprocessing terminates them itself, in a safe order
        if self._method != "fork" and "__main__" in sys.modules:
            # Spawned processes use this name for the main program. multiprocessing sets it when it is imported, which
            # is too early for a program that is run by `runpy`.
            sys.modules["__mp_main__"] = sys.modules["__main__"]
        try:
            for number in range(orders.num_workers):
                self._start(context, orders, number)
        except BaseException as error:
            self.stop(patience=0)
            if isinstance(error, TypeError | AttributeError | pickle.PicklingError):
                explained = _explained(error, orders, self._method)
                if explained is not None:
                    raise explained from error
            raise

    def _start(self, context: Any, orders: worker.Orders, number: int) -> None:
        with _starting:
            mine, theirs = context.Pipe(duplex=True)
            _ours.add(mine)
            try:
                process = context.Process(target=worker.main, args=(theirs, orders, number), daemon=True)
                process.start()
            except BaseException:
                mine.close()
                raise
            finally:
                theirs.close()  # so that this end sees the pipe closed when the worker exits
        self.processes.append(process)
        self.connections.append(mine)

    @property
    def stopped(self) -> bool:
        """Whether the workers have been stopped."""
        return not self._stop.alive

    def stop(self, patience: float = PATIENCE) -> None:
        """Stops the workers: gives them `patience` seconds to finish their work, then terminates them."""
        if self._stop.detach():
            _stop(os.getpid(), self.processes, self.connections, self._hanging, patience)

    def dismiss(self, number: int) -> None:
        """Lets one worker exit that has nothing left to do."""
        self.connections[number].close()

    def send(self, number: int, task: tuple) -> None:
        """Sends a worker a task. If the worker is dead, `receive` reports it."""
        packed = channel.dumps(task)
        try:
            channel.send(self.connections[number], packed)
        except ConnectionError:
            pass
        except BaseException:  # KeyboardInterrupt, for example: half of a message may be in the pipe
            self.stop(patience=0)
            raise

    def receive(self, numbers: list[int], timeout: float, since: float) -> tuple[int, tuple]:
        """Waits for the next answer from any of these workers. Returns the worker's number and the answer.

        Raises: RuntimeError if one of them has died, or `timeout` seconds after `since` (0 means no limit).
        """
        while True:
            left = max(0.0, since + timeout - self.clock()) if timeout else None
            number = self._readable(numbers, None if left is None else min(left, LONGEST))
            if number is None and left is not None and left > LONGEST:
                continue
            if number is None:
                self._hanging.update(numbers)
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            self._hanging.discard(number)
            try:
                answer = channel.loads(channel.receive(self.connections[number]))
            except (EOFError, ConnectionError):
                raise self._death(number) from None
            except Exception as error:
                self.stop(patience=0)
                raise RuntimeError(f"DataLoader: cannot unpickle the answer of worker {number}: {error}") from error
            except BaseException:  # half of a message may have been read
                self.stop(patience=0)
                raise
            self._last_read[number] = 1 + max(self._last_read)
            if answer[2] != worker.READY:
                return number, answer
            self._ready.add(number)

    def _readable(self, numbers: list[int], timeout: float | None) -> int | None:
        """Returns the worker to read from (it has answered or closed its pipe): the one that has waited longest."""
        pipes = {self.connections[n]: n for n in numbers}
        ends = {self.processes[n].sentinel: n for n in numbers}
        ready = self.wait([*pipes, *ends], timeout)
        candidates = [pipes[what] for what in ready if what in pipes]
        if candidates:
            return min(candidates, key=self._last_read.__getitem__)
        if ready:
            raise self._death(ends[ready[0]])
        return None

    def _death(self, number: int) -> RuntimeError:
        """Stops all workers, and returns the error to raise for the one that has died."""
        process = self.processes[number]
        process.join(PATIENCE)
        code = process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            how = f"killed by {name}" + (", as happens when memory runs out" if name == "SIGKILL" else "")
        else:
            how = f"exit code {code}; see its output for the reason"
        text = f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly ({how})"
        if number not in self._ready and self._method != "fork":
            text += (
                f". It failed to start: with the start method {self._method!r}, each worker first imports the main "
                "program. The program must be a file, define the data set at its top level, and do all other work "
                "under `if __name__ == '__main__':`"
            )
        self.stop(patience=0)
        return RuntimeError(text)


def _stop(
    owner: int, processes: list[Any], connections: list[Connection], hanging: set[int], patience: float = PATIENCE
) -> None:
    if os.getpid() != owner:  # this is a forked process's copy of the pool; the workers are not its children
        return
    for connection in connections:
        connection.close()
    limit = time.monotonic() + patience
    try:
        for number, process in enumerate(processes):
            if number not in hanging:
                process.join(max(0.0, limit - time.monotonic()))
    finally:
        for end in ("terminate", "kill"):
            for process in processes:
                if process.is_alive():
                    getattr(process, end)()
                    process.join(1)


def _explained(error: Exception, orders: worker.Orders, method: str) -> Exception | None:
    """Returns an error that names the part of the loader that cannot be pickled; None for any other cause."""
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        part = getattr(orders, name)
        try:
            ForkingPickler.dumps(part)
        except Exception as reason:
            if str(reason) == str(error):
                kind = (
                    part.__qualname__ if callable(part) and hasattr(part, "__qualname__") else type(part).__qualname__
                )
                return type(error)(
                    f"DataLoader: {name} ({kind}) cannot be pickled, which the start method {method!r} requires: "
                    f"{error}. Define it, and everything it refers to, at the top level of a module, or use the start "
                    "method 'fork' where it is available."
                )
    return None
