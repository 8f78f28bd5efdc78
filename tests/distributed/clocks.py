"""Clocks for programs of several processes: a timeout passes when it is to, not when the machine is slow."""

import time

from tensorgrad.distributed.work import SIGN_AFTER
from tensorgrad.system.clock import Clock

HOUR = 3600.0


def hurry(group, when=lambda: True):
    """Who waits for an operation of this group has soon waited long enough to say so, and for an hour `when` it may."""
    ahead = 0.0

    def sleep(seconds):
        nonlocal ahead
        time.sleep(seconds)
        if ahead < HOUR:
            ahead = HOUR if ahead and when() else SIGN_AFTER

    group.clock = Clock(lambda: time.monotonic() + ahead, sleep)
