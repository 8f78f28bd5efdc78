"""Keeps NumPy's BLAS threads out of the way of the kernels' threads.

After a matrix product, the BLAS threads spin for the next one, by default for tens of milliseconds, and take a
processor from threads that have work: on two cores an LSTM's training step took 1.6 times as long for it, one of
multi-head attention 1.4 times. Here they are set to give up after 2¹⁷ cycles, less than a tenth of a millisecond, and
then to sleep. A product that follows sooner finds them awake as before.
"""

from __future__ import annotations

import os
import threading

import numpy

_VARIABLE, _CYCLES = "OPENBLAS_THREAD_TIMEOUT", "17"  # an exponent of two


def wait_briefly() -> bool:
    """Shortens how long OpenBLAS's threads spin. Returns whether it did.

    It changes nothing if the user has set OPENBLAS_THREAD_TIMEOUT, if NumPy does not bundle OpenBLAS, or if other
    Python threads are running: one of them may be in the middle of a product. The existing BLAS threads are ended, as
    before a fork; the next product starts new ones.
    """
    if _VARIABLE in os.environ or threading.active_count() > 1:
        return False
    done, folder = False, os.path.join(os.path.dirname(os.path.dirname(numpy.__file__)), "numpy.libs")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if not name.startswith("libscipy_openblas"):
            continue
        import ctypes

        library = ctypes.CDLL(os.path.join(folder, name))  # already loaded by NumPy: this is the same library
        read_settings = getattr(library, "openblas_read_env", None)
        end_threads = getattr(library, "blas_thread_shutdown_", None)
        if read_settings is None or end_threads is None:
            continue
        os.environ[_VARIABLE] = _CYCLES
        try:
            read_settings()
            end_threads()
        finally:
            del os.environ[_VARIABLE]
        done = True
    return done
