"""`torch.futures`: values that are set, or computed, later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tensorgrad.devices import device as check_device
from tensorgrad.system import forks

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


def _copy_of_error(error: BaseException) -> BaseException:
    """The error of a callback as PyTorch raises it: RuntimeError; more special ones of that kind are kept."""
    if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
        return error
    made = RuntimeError(f"Got the following error when running the callback: {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def _check_callable(name: str, callback: Any) -> None:
    if not callable(callback):
        raise TypeError(f"{name}(): expected a function, but got {type(callback).__name__}")


class Future(Generic[T]):
    """A value that somebody sets later, and that others can wait for.

    Args:
        devices: the devices of the tensors in the value; checked, but not used.

    >>> future = torch.futures.Future()
    >>> twice = future.then(lambda f: f.value() * 2)
    >>> future.set_result(21)
    >>> twice.wait()
    42
    """

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        for device in devices or ():
            check_device(device)
        self._condition = threading.Condition(forks.lock())
        self._is_set = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Returns whether there is a value or an error.

        >>> torch.futures.Future().done()
        False
        """
        return self._is_set

    def wait(self) -> T:
        """Waits for the value, and returns it.

        Raises:
            Exception: the one that was set instead.

        >>> future = torch.futures.Future()
        >>> future.set_result(3)
        >>> future.wait()
        3
        """
        with self._condition:
            self._condition.wait_for(lambda: self._is_set)
        return self.value()

    def value(self) -> T:
        """Returns the value of a future that is done.

        Raises:
            RuntimeError: it is not done.
            Exception: the one that was set instead.

        >>> torch.futures.Future().value()
        Traceback (most recent call last):
            ...
        RuntimeError: Future.value(): there is no value yet; call wait() first
        """
        if not self._is_set:
            raise RuntimeError("Future.value(): there is no value yet; call wait() first")
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Returns a future of what a function makes of this one. It is called when this one is done.

        Args:
            callback: receives this future; if it raises an error, so does `wait()` of the new one.

        >>> future = torch.futures.Future()
        >>> future.set_result(3)
        >>> future.then(lambda f: f.value() + 1).wait()
        4
        """
        _check_callable("then", callback)
        made: Future = Future()

        def run() -> None:
            try:
                result = callback(self)
            except Exception as error:
                made._end(None, _copy_of_error(error))
            else:
                made._end(result, None)

        self._when_done(run)
        return made

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Calls a function with this future when it is done. Its errors are logged.

        >>> future = torch.futures.Future()
        >>> future.add_done_callback(lambda f: print(f.value()))
        >>> future.set_result(3)
        3
        """
        _check_callable("add_done_callback", callback)

        def run() -> None:
            try:
                callback(self)
            except Exception as error:
                import logging  # takes a hundredth of a second, and is rarely needed

                logging.getLogger(__name__).error("%s", _copy_of_error(error))

        self._when_done(run)

    def set_result(self, result: T) -> None:
        """Sets the value, and calls the callbacks.

        Raises:
            RuntimeError: the future is done already.

        >>> future = torch.futures.Future()
        >>> future.set_result(3)
        >>> future.done()
        True
        """
        self._end(result, None)

    def set_exception(self, result: Exception) -> None:
        """Sets an error, which `wait()` and `value()` raise, and calls the callbacks.

        Raises:
            AssertionError: it is not an exception.
            RuntimeError: the future is done already.

        >>> future = torch.futures.Future()
        >>> future.set_exception(ValueError("no"))
        >>> future.wait()
        Traceback (most recent call last):
            ...
        ValueError: no
        """
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._end(None, result)

    def _end(self, result: Any, error: BaseException | None) -> None:
        with self._condition:
            if self._is_set:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future can only be marked "
                    "completed once."
                )
            self._result, self._error, self._is_set = result, error, True
            self._condition.notify_all()
        self._announce()

    def _when_done(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if self._is_set:
            self._announce()

    def _announce(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread took it
                return
            callback()


class LazyFuture(Future):
    """A value that the first `wait()` computes, in the thread that waits; so is what `then` makes of it.

    Functions given to `then` may therefore start further communication: all processes wait in the same order.

    Args:
        compute: waits, and returns the value.
        is_ready: tells whether `compute` could return at once.
        when_ready: takes a function to be called as soon as it could.

    >>> from tensorgrad.futures import LazyFuture
    >>> future = LazyFuture(lambda: 3, lambda: True, lambda callback: callback())
    >>> future.then(lambda f: f.value() + 1).wait()
    4
    """

    def __init__(
        self,
        compute: Callable[[], Any],
        is_ready: Callable[[], bool],
        when_ready: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__()
        self._compute: Callable[[], Any] | None = compute
        self._is_ready, self._when_ready = is_ready, when_ready

    def wait(self) -> Any:
        """Computes the value if nobody has, and returns it."""
        with self._condition:
            compute, self._compute = self._compute, None
            if compute is not None:
                try:
                    self._result = compute()
                except Exception as error:
                    self._error = error
                self._is_set = True
        return super().value()

    value = wait

    def done(self) -> bool:
        """Returns whether `wait` could return at once."""
        return self._is_set or self._is_ready()

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Returns a future of what a function makes of this one, when somebody waits for it."""
        _check_callable("then", callback)

        def compute() -> Any:
            self.wait()
            try:
                return callback(self)
            except Exception as error:
                raise _copy_of_error(error) from error.__cause__

        return LazyFuture(compute, self._is_ready, self._when_ready)

    def _when_done(self, callback: Callable[[], None]) -> None:
        self._when_ready(callback)

    def _end(self, result: Any, error: BaseException | None) -> None:
        raise RuntimeError("the value of this Future is computed by an operation; it cannot be set")


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """Returns a future of the list of some futures, which is done when they all are.

    Raises:
        Exception: on `wait()`, that of one of the futures.

    >>> first, second = torch.futures.Future(), torch.futures.Future()
    >>> both = torch.futures.collect_all([first, second])
    >>> first.set_result(1), second.set_result(2), both.done()
    (None, None, True)
    >>> [future.value() for future in both.wait()]
    [1, 2]
    """
    found = list(futures)
    for future in found:
        if not isinstance(future, Future):
            raise TypeError(f"collect_all(): expected a list of Future, but got {type(future).__name__}")
    if not found:
        every: Future[list[Future]] = Future()
        every.set_result([])
        return every

    def when_all(callback: Callable[[], None]) -> None:
        lock, left = forks.lock(), [len(found)]

        def one() -> None:
            with lock:
                left[0] -= 1
                last = not left[0]
            if last:
                callback()

        for future in found:
            future._when_done(one)

    if any(isinstance(future, LazyFuture) for future in found):

        def compute() -> list[Future]:
            for future in found:
                future.wait()
            return found

        return LazyFuture(compute, lambda: all(future.done() for future in found), when_all)

    every = Future()

    def finish() -> None:
        error = next((future._error for future in found if future._error is not None), None)
        every._end(None if error else found, error)

    when_all(finish)
    return every


def wait_all(futures: list[Future]) -> list[Any]:
    """Waits for all futures, and returns their values.

    Raises:
        Exception: that of the first future that has one.

    >>> future = torch.futures.Future()
    >>> future.set_result(1)
    >>> torch.futures.wait_all([future, future])
    [1, 1]
    """
    return [future.wait() for future in collect_all(futures).wait()]
