"""What torchdata's loader calls when it starts and stops workers. Deaths are noticed by whoever waits for a worker."""


def _set_worker_signal_handlers() -> None:
    """Does nothing: Python reports a worker's signals."""


def _set_SIGCHLD_handler() -> None:
    """Does nothing: a loader that waits for a worker asks whether it lives."""


def _set_worker_pids(loader: int, pids: tuple[int, ...]) -> None:
    """Does nothing: see `_set_SIGCHLD_handler`."""


def _remove_worker_pids(loader: int) -> None:
    """Does nothing: see `_set_SIGCHLD_handler`."""
