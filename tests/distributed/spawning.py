"""What `multiprocessing.spawn` does when processes end in different ways: `python spawning.py torch|tensorgrad`."""

import importlib
import json
import os
import re
import signal
import sys
import threading
import time


def raises(index, *args):
    if index == 1:
        raise KeyError("two\nlines", *args)


def raises_from(index):
    try:
        raise ValueError("first")
    except ValueError as error:
        raise RuntimeError("second") from error


class Odd(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, a, b):
        super().__init__("odd")
        self.lock = threading.Lock()


def raises_odd(index):
    raise Odd(1, 2)


def exits(index, code):
    if index == 0:
        sys.exit(code)
    time.sleep(600)


def exits_hard(index, code):
    os._exit(code)


def kills_itself(index, number):
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)
    time.sleep(600)


def interrupted(index):
    raise KeyboardInterrupt


def stubborn(index, path):
    if index == 1:
        waits(index, path)  # until the other one ignores SIGTERM
        sys.exit(4)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(path, "w").close()
    time.sleep(600)


def waits(index, path):
    while not os.path.exists(path):
        time.sleep(0.01)


def plain(text):
    """The text without numbers of processes, and frames of the library."""
    text = re.sub(r'  File "[^"]*[/\\]spawn\.py", line \d+, in \w+\n(    .*\n)+', "", text)
    return re.sub(r'File "[^"]*[/\\]', 'File "', text)


def outcome(function):
    try:
        return repr(function())
    except Exception as error:
        fields = ("error_index", "exit_code", "signal_name")
        bases = [kind.__name__ for kind in type(error).__mro__]
        told = {name: getattr(error, name, None) for name in fields}
        return [bases, plain(str(error)), told, plain(getattr(error, "msg", ""))]


def joined(context):
    while not context.join():
        pass
    return True


def main(name):
    library = importlib.import_module(f"{name}.multiprocessing")

    def run(function, *args, nprocs=2, method="fork", **options):
        return outcome(lambda: library.start_processes(function, args, nprocs, start_method=method, **options))

    found = {
        "raises": run(raises), "raises with arguments": run(raises, 5), "raises from": run(raises_from, nprocs=1),
        "raises odd": run(raises_odd, nprocs=1), "spawn": outcome(lambda: library.spawn(raises, nprocs=2)),
        "interrupted": run(interrupted), "none": run(raises, nprocs=0), "well": run(raises, nprocs=1),
        "wrong arguments": run(raises_from, 1, nprocs=1), "no method": run(raises, method="x"),
        "daemon": run(raises, daemon=True),
        **{f"exit {code!r}": run(exits, code) for code in (1, 3, 256 + 7, "text")},
        **{f"exit {code!r}": run(exits, code, nprocs=1) for code in (0, None)},
        **{f"hard exit {code}": run(exits_hard, code, nprocs=1) for code in (0, 1, 9, 200)},
        **{f"signal {n}": run(kills_itself, int(n), nprocs=1) for n in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV,
                                                                         signal.SIGABRT, 40)},
    }  # fmt: skip
    path = sys.argv[2]
    context = library.start_processes(waits, (path,), 2, join=False, start_method="fork")
    found["pids"] = context.pids() == [process.pid for process in context.processes]
    found["type"] = [kind.__name__ for kind in type(context).__mro__]
    found["join 0"] = [context.join(timeout=0), context.join(0.01)]
    open(path, "w").close()
    found["join"] = [joined(context), context.join(), [process.exitcode for process in context.processes]]
    context = library.start_processes(stubborn, (f"{path} stubborn",), 2, join=False, start_method="fork")
    found["grace period"] = outcome(lambda: [context.join(grace_period=1), context.join(grace_period=1)])
    found["codes"] = [process.exitcode for process in context.processes]
    found["after"] = outcome(context.join)
    context = library.start_processes(raises, nprocs=2, join=False, start_method="fork")
    pids = context.pids()
    try:
        joined(context)
    except library.ProcessRaisedException as error:
        found["pid"] = pids.index(error.error_pid)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
