"""The worker processes of one iterator, seen from the main process: start, send, receive, notice deaths, stop."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import time
import weakref
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tensorgrad.system import forks
from tensorgrad.utils.data import channel, worker

PATIENCE = 5.0  # seconds that a worker has to finish its batch before it is terminated

_starting = forks.lock()  # held while a worker's own end of its pipe is open here
_ours: weakref.WeakSet[Connection] = weakref.WeakSet()  # the main process's ends


def _forked() -> None:
    """In a forked process: lets go of the main process's ends, or no worker would see them end."""
    for connection in list(_ours):
        connection.close()
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def context_of(chosen: Any) -> Any:
    """The multiprocessing context to use: the loader's, else the program's (`set_start_method`), else the default.

    The default is fork on Linux, whatever Python's version, and Python's own elsewhere. PyTorch programs count on
    fork: they define data sets, and lambdas in them, in scripts without `if __name__ == "__main__"`, or in notebooks;
    and a forked worker starts in milliseconds and shares the data set's memory until someone writes to it.

    It is safe as far as this package goes: its locks and its generator are whole in the child (`system/forks.py`), a
    worker uses no threads for its kernels, and OpenBLAS lets its threads go before a fork and starts new ones after.
    What is not safe, and was seen to hang: a fork while another thread of the program is inside of a matrix product
    that OpenBLAS has spread over several threads. Such a program chooses "spawn", as does one whose data set needs
    the GPU.
    """
    if chosen is not None:
        return chosen
    method = multiprocessing.get_start_method(allow_none=True)
    default = "fork" if sys.platform == "linux" else multiprocessing.get_all_start_methods()[0]
    return multiprocessing.get_context(method or default)


class Crew:
    """Workers 0 to `n - 1`, each at the other end of its own pipe.

    Raises: what pickling raises, with a text that names the culprit, if the context needs to pickle the data set.
    """

    def __init__(self, context: Any, orders: worker.Orders) -> None:
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        self._method = context.get_start_method()
        self._ready: set[int] = set()  # workers that have reported
        self._heard = [0] * orders.num_workers  # when each was last listened to, as a count of answers
        self._stop = weakref.finalize(self, _stop, os.getpid(), self.processes, self.connections)
        self._stop.atexit = False  # at exit multiprocessing terminates them, in an order that is right for all
        if self._method == "fork":
            with contextlib.suppress(ImportError):
                import threadpoolctl  # noqa: F401 (so that not every worker has to import it for `set_num_threads`)
        elif "__main__" in sys.modules:
            # Spawned processes know the main program by this name. multiprocessing sets it when it is imported, which
            # is too early for a program that `runpy` runs.
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
            mine, its = context.Pipe(duplex=True)
            _ours.add(mine)
            try:
                process = context.Process(target=worker.main, args=(its, orders, number), daemon=True)
                process.start()
            except BaseException:
                mine.close()
                raise
            finally:
                its.close()  # so that the pipe ends here when the worker does
        self.processes.append(process)
        self.connections.append(mine)

    @property
    def stopped(self) -> bool:
        """Whether the workers are gone."""
        return not self._stop.alive

    def stop(self, patience: float = PATIENCE) -> None:
        """Ends the workers: gives them `patience` seconds to finish what they do, then terminates them."""
        if self._stop.detach():
            _stop(os.getpid(), self.processes, self.connections, patience)

    def dismiss(self, number: int) -> None:
        """Lets one worker go, which has nothing left to do."""
        self.connections[number].close()

    def send(self, number: int, task: tuple) -> None:
        """Gives a worker a task. If it is dead, that shows when its answer is due."""
        packed = channel.dumps(task)
        try:
            channel.send(self.connections[number], packed)
        except ConnectionError:
            pass
        except BaseException:  # such as KeyboardInterrupt: half of a message may be in the pipe
            self.stop(patience=0)
            raise

    def receive(self, numbers: list[int], timeout: float) -> tuple[int, tuple]:
        """The next answer of any of these workers, waiting for it: the worker's number and the answer.

        Raises: RuntimeError if one of them has died, or after `timeout` seconds (0: never).
        """
        limit = time.monotonic() + timeout if timeout else None
        while True:
            number = self._speaker(numbers, None if limit is None else max(0.0, limit - time.monotonic()))
            if number is None:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            try:
                answer = channel.loads(channel.receive(self.connections[number]))
            except (EOFError, ConnectionError):
                raise self._death(number) from None
            except Exception as error:
                self.stop(patience=0)
                raise RuntimeError(f"DataLoader: what worker {number} sent cannot be read here: {error}") from error
            except BaseException:  # half of a message may have been read
                self.stop(patience=0)
                raise
            self._heard[number] = 1 + max(self._heard)
            if answer[2] != worker.READY:
                return number, answer
            self._ready.add(number)

    def _speaker(self, numbers: list[int], timeout: float | None) -> int | None:
        """The worker whose answer to read, or whose pipe has ended: of those that have one, who waited longest."""
        pipes = {self.connections[n]: n for n in numbers}
        ends = {self.processes[n].sentinel: n for n in numbers}
        ready = wait([*pipes, *ends], timeout)
        speakers = [pipes[what] for what in ready if what in pipes]
        if speakers:
            return min(speakers, key=self._heard.__getitem__)
        if ready:
            raise self._death(ends[ready[0]])
        return None

    def _death(self, number: int) -> RuntimeError:
        """The error to raise for a worker that is gone; the others are stopped."""
        process = self.processes[number]
        process.join(PATIENCE)
        code = process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            how = f"killed by {name}" + (", as happens when memory runs out" if name == "SIGKILL" else "")
        else:
            how = f"exit code {code}: its own output says why"
        text = f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly ({how})"
        if number not in self._ready and self._method != "fork":
            text += (
                f". It could not even start: with the start method {self._method!r} a worker first imports the main "
                "program, which must be a file, define the data set at its top level, and do its own work under "
                "`if __name__ == '__main__':` only"
            )
        self.stop(patience=0)
        return RuntimeError(text)


def _stop(owner: int, processes: list[Any], connections: list[Connection], patience: float = PATIENCE) -> None:
    if os.getpid() != owner:  # a forked process's copy of the crew: the workers are not its children
        return
    for connection in connections:
        connection.close()
    limit = time.monotonic() + patience
    try:
        for process in processes:
            process.join(max(0.0, limit - time.monotonic()))
    finally:
        for end in ("terminate", "kill"):
            for process in processes:
                if process.is_alive():
                    getattr(process, end)()
                    process.join(1)


def _explained(error: Exception, orders: worker.Orders, method: str) -> Exception | None:
    """The error of a start, saying which part of the loader cannot be pickled; None if it was something else."""
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
                    f"DataLoader: {name} ({kind}) cannot be sent to a worker process, as the start method {method!r} "
                    f"needs: {error}. Define it, and all that it holds, at the top level of a module, or use the start "
                    "method 'fork' where there is one."
                )
    return None
