"""`torch.distributed.rpc`: functions that other processes of a job run, and references to values that they keep.

agent.py        the connections of a process: sends calls, and runs those that arrive
calls.py        what programs call: `init_rpc`, `rpc_sync`, `rpc_async`, `shutdown`
references.py   `remote` and `RRef`: values that stay in the process that made them
options.py      settings

Functions and arguments travel pickled: a process of the job may run anything in another one. The connections are open
to processes that have the job's store only.
"""

from tensorgrad.distributed.rpc import functions
from tensorgrad.distributed.rpc.agent import WorkerInfo
from tensorgrad.distributed.rpc.calls import get_worker_info, init_rpc, is_available, rpc_async, rpc_sync, shutdown
from tensorgrad.distributed.rpc.options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions
from tensorgrad.distributed.rpc.references import PyRRef, RRef, remote

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo", "functions",
    "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip
