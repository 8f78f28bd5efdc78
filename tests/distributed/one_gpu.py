"""NCCL on a real GPU, of which one is enough: `python -m tests.distributed.one_gpu [seconds]`.

It prints a line for each check: every operation in a group of one rank, training with one rank, training with two ranks
(DistributedDataParallel, fully_shard, tensor parallelism), and the table of collectives beside PyTorch's gloo group.
The exit status is the number of checks that failed, or had no time.
"""

import json
import subprocess
import sys
import time

from tensorgrad.system.ports import ReservedPort
from tests.distributed.launch import HERE, run
from tests.distributed.test_groups import compare

SECONDS = 120.0  # for all checks together


def text(error):
    """The end of what the ranks of a failed check printed."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took more than {error.timeout:.0f} s; {(error.stderr or b'')[-2000:]!r}"
    return f"{type(error).__name__}: {str(error)[-4000:]}"


def table_beside_gloo(left):
    """Compares what each case of the table finds; one line for each difference."""
    theirs = [json.loads(output) for _, output, _ in run(2, [HERE / "table.py", "torch"], timeout=left())]
    with ReservedPort() as second:
        program = [HERE / "table.py", "tensorgrad", second.number]
        results = run(2, program, timeout=left(), DEVICE="cuda", TRACE="1")
    differences = []
    for rank, ((_, output, _), wanted) in enumerate(zip(results, theirs)):
        found = json.loads(output.replace('"nccl"', '"gloo"'))
        for name in wanted:
            try:
                compare(name, found[name], wanted[name])
            except (AssertionError, KeyError) as error:
                differences.append(f"rank {rank}, {name}: {str(error)[:300]}")
    assert not differences, "\n".join(differences)


def main():
    """Runs the checks, one after the other."""
    began, limit = time.monotonic(), float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS

    def left():
        return max(1.0, limit - (time.monotonic() - began))

    checks = {
        "every operation, one rank": lambda: run(1, [HERE / "nccl_alone.py"], timeout=left(), DEVICE="cuda"),
        "training, one rank": lambda: run(1, [HERE / "gpu_cases.py"], timeout=left(), DEVICE="cuda"),
        "training, two ranks": lambda: run(2, [HERE / "gpu_cases.py"], timeout=left(), DEVICE="cuda"),
        "collectives beside gloo, two ranks": lambda: table_beside_gloo(left),
    }
    failed = 0
    for name, check in checks.items():
        start = time.monotonic()
        try:
            check()
            result = "passed"
        except (AssertionError, subprocess.TimeoutExpired, ValueError) as error:
            failed, result = failed + 1, f"FAILED\n{text(error)}"
        print(f"{name}: {time.monotonic() - start:.1f} s, {result}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
