"""Starts the processes of a job on one machine or several, watches them, and starts them again when one fails.

multiprocessing/errors.py  what is reported of a process that failed
multiprocessing/api.py     several processes without an agent: `start_processes`
output.py                  where users want output to go
membership.py              which machines take part, decided by one of them: plain data, no network
distributed/elastic/rendezvous/connection.py      a machine's connection to the others, over a store
rendezvous/                PyTorch's interface of such connections
events/ metrics/ timer/    what happens to a job, numbers that programs publish, and limits of time for blocks of code
logs.py                    files of output, and their copies on the console
workers.py                 the processes of this machine
worker.py                  what runs in each of them
local_agent.py             the loop that holds it together
agent/                     PyTorch's names of such loops
"""

from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("agent", "events", "membership", "metrics", "multiprocessing", "rendezvous", "timer", "workers"))
