"""Starts the processes of a job on one machine or several, watches them, and starts them again when one fails.

multiprocessing/errors.py  what is reported of a process that failed
multiprocessing/           where output goes; signals
membership.py              which machines take part, decided by one of them: plain data, no network
rendezvous.py              a machine's connection to the others, over a store
logs.py                    files of output, and their copies on the console
workers.py                 the processes of this machine
worker.py                  what runs in each of them
agent.py                   the loop that holds it together
"""

from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("agent", "membership", "multiprocessing", "rendezvous", "workers"))
