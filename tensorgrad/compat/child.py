"""Importing this installs `tensorgrad.compat`: what a process that `multiprocessing` starts does first."""

from tensorgrad.compat import install

install()
