"""Starting a job from Python; PyTorch's module of this name."""

from tensorgrad.distributed.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
