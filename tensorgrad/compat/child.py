"""Importing this module calls `tensorgrad.compat.install`: done first in processes that `multiprocessing` starts."""

from tensorgrad.compat import install

install()
