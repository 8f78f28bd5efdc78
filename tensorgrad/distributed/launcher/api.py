"""Starting a job from Python: `elastic_launch(config, function)(*arguments)`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tensorgrad.distributed.elastic.local_agent import Agent
from tensorgrad.distributed.elastic.membership import Settings
from tensorgrad.distributed.elastic.multiprocessing import LogsSpecs
from tensorgrad.distributed.elastic.rendezvous.connection import DEFAULT_PORT, split_endpoint

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """How a job is started.

    Args:
        min_nodes, max_nodes: how many machines take part.
        nproc_per_node: how many processes this machine starts.
        logs_specs: where their output goes.
        run_id: the name of the job.
        role: the name of the processes.
        rdzv_endpoint: `host:port` where the machines meet.
        rdzv_backend: "c10d" or "static".
        rdzv_configs: more for the meeting, such as `rank`, `join_timeout`, `last_call_timeout`.
        rdzv_timeout: `join_timeout`, if not -1.
        max_restarts: how often all processes are started again after a failure.
        monitor_interval: seconds between two looks at the processes.
        start_method: of `multiprocessing`, for functions.
        log_line_prefix_template: what stands before lines that are copied to the console.
        local_addr: how others reach this machine.
        signals_to_handle: signals that end the job.
        shutdown_timeout: seconds that processes have to end by themselves; None is 30.
        event_log_handler: where the agent's events go: "console", "null", or a name among the handlers of
            `torch.distributed.elastic.events`.
        metrics_cfg: accepted; the agent publishes no metrics.
        numa_options, virtual_local_rank, duplicate_stdout_filters, duplicate_stderr_filters: not included.

    Raises:
        ValueError: a value is none of these.

    >>> from tensorgrad.distributed.launcher import LaunchConfig
    >>> LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0").nproc_per_node
    2
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.min_nodes <= self.max_nodes:
            raise ValueError(f"expected 0 < min_nodes <= max_nodes, got {self.min_nodes} and {self.max_nodes}")
        if self.nproc_per_node < 1:
            raise ValueError(f"nproc_per_node must be at least 1, got {self.nproc_per_node}")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts must not be negative, got {self.max_restarts}")
        for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"):
            if getattr(self, name):
                raise ValueError(f"LaunchConfig: {name} is not included")
        if self.rdzv_timeout != -1:
            self.rdzv_configs = {"join_timeout": self.rdzv_timeout, **self.rdzv_configs}

    def place(self) -> tuple[tuple[str, int], Settings]:
        """Where the machines meet, and how long they wait for each other."""
        if self.rdzv_backend not in ("c10d", "static"):
            raise ValueError(f"the rendezvous backend {self.rdzv_backend!r} is not included: use 'c10d' or 'static'")
        static, configs = self.rdzv_backend == "static", self.rdzv_configs
        if static and self.min_nodes != self.max_nodes:
            raise ValueError("the static rendezvous needs a fixed number of nodes; use --rdzv-backend c10d")
        host, port = split_endpoint(self.rdzv_endpoint, 29500 if static else DEFAULT_PORT)
        if self.max_nodes == 1 and not static:
            host = "127.0.0.1" if host == "localhost" else host
        silence = float(configs.get("keep_alive_interval", 5)) * float(configs.get("keep_alive_max_attempt", 3))
        return (host, port), Settings(
            self.min_nodes, self.max_nodes, self.max_restarts, static,
            float(configs.get("join_timeout", configs.get("timeout", 600))),
            float(configs.get("last_call_timeout", 30)), silence,
        )  # fmt: skip


def launch_agent(config: LaunchConfig, entrypoint: Any, args: list[Any], health_check_server: Any = None) -> dict:
    """Runs a job on this machine, and returns what functions returned, by global rank.

    Args:
        config: how.
        entrypoint: a function, or a command.
        args: its arguments.
        health_check_server: not included.

    Raises:
        ChildFailedError: a process failed, after all restarts.
        RendezvousError: the machines did not meet.
    """
    if health_check_server is not None:
        raise ValueError("launch_agent: health_check_server is not included")
    if not config.run_id:
        config.run_id = uuid.uuid4().hex
    if callable(entrypoint):
        name = getattr(entrypoint, "__qualname__", str(entrypoint))
        return Agent(config, name, entrypoint, tuple(args)).run()
    command = [str(entrypoint), *map(str, args)]
    name = next((os.path.basename(part) for part in command if part.endswith(".py")), command[-1])
    return Agent(config, name, command, ()).run()


class elastic_launch:
    """Makes a function start as a job: every call runs it in the processes of `config`, and returns their results.

    Args:
        config: a `LaunchConfig`.
        entrypoint: a function that can be pickled (or any, with `start_method="fork"`), or a command.
        health_check_server: not included.

    >>> from tensorgrad.distributed.launcher import LaunchConfig, elastic_launch
    >>> config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", monitor_interval=0.01)
    >>> elastic_launch(config, abs)(-3)
    {0: 3, 1: 3}
    """

    def __init__(
        self, config: LaunchConfig, entrypoint: Callable | str | None, health_check_server: Any = None
    ) -> None:
        self._config, self._entrypoint, self._health_check_server = config, entrypoint, health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)
