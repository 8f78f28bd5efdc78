"""How many processors Linux control groups leave to a process, and that as many threads are used."""

import os
from pathlib import Path

import pytest

from tensorgrad import settings
from tensorgrad.system import cgroups

# The contents of /proc/self/cgroup, files below /sys/fs/cgroup, and the processors (None: no limit).
V1 = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"
GROUPS = {
    "absent": (None, {}, None),
    "empty": ("", {"cpu.max": "100000 100000"}, None),
    "2, no limit": ("0::/", {"cpu.max": "max 100000"}, None),
    "2, a half": ("0::/", {"cpu.max": "50000 100000"}, 1),
    "2, exactly two": ("0::/", {"cpu.max": "200000 100000"}, 2),
    "2, one and a bit": ("0::/", {"cpu.max": "100001 100000"}, 2),
    "2, another period": ("0::/", {"cpu.max": "30000 10000"}, 3),
    "2, the least of those around": ("0::/a/b/c", {"a/b/c/cpu.max": "max 100000", "a/b/cpu.max": "400000 100000",
                                                   "a/cpu.max": "300000 100000", "cpu.max": "800000 100000"}, 3),
    "2, the group is not shown": ("0::/docker/123", {"cpu.max": "150000 100000"}, 2),
    "2, seen from inside": ("0::/../../x", {"x/cpu.max": "700000 100000"}, 7),
    "2, memory alone": ("0::/", {"memory.max": "4096"}, None),
    "1": ("4:cpu:/", {V1[0]: 200000, V1[1]: 100000}, 2),
    "1, no limit": ("4:cpu:/", {V1[0]: -1, V1[1]: 100000}, None),
    "1, no period": ("4:cpu:/", {V1[0]: 200000}, None),
    "1, a period of nothing": ("4:cpu:/", {V1[0]: 200000, V1[1]: 0}, None),
    "1, together": ("3:cpu,cpuacct:/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": 550000,
                                         "cpu,cpuacct/a/cpu.cfs_period_us": 100000}, 6),
    "1, together, by one name": ("3:cpuacct,cpu:/", {V1[0]: 500000, V1[1]: 100000}, 5),
    "1, nested": ("9:memory:/z\n4:cpu:/a/b", {"cpu/a/b/cpu.cfs_quota_us": 800000, "cpu/a/b/cpu.cfs_period_us": 100000,
                                              "cpu/a/cpu.cfs_quota_us": 400000, "cpu/a/cpu.cfs_period_us": 100000}, 4),
    "1, another controller": ("4:cpuset:/", {V1[0]: 100000, V1[1]: 100000}, None),
    "both": ("4:cpu:/m\n0::/u", {"cpu/m/cpu.cfs_quota_us": 300000, "cpu/m/cpu.cfs_period_us": 100000,
                                 "unified/u/cpu.max": "200000 100000"}, 2),
    "nonsense": ("0::/\n:\nnonsense\n1:cpu", {"cpu.max": "?"}, None),
    "one number": ("0::/", {"cpu.max": "100000"}, None),
    "no number": ("0::/", {"cpu.max": ""}, None),
    "below zero": ("0::/", {"cpu.max": "-5 100000"}, None),
    "a folder": ("0::/", {"cpu.max/x": "1 1"}, None),
    "no text": ("0::/", {"cpu.max": b"\xff\xfe 100000"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_processors(name, tmp_path, monkeypatch):
    groups, files, expected = GROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    if groups is not None:
        (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for path, value in files.items():
        file = Path(tmp_path, "sys/fs/cgroup", path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value if isinstance(value, bytes) else f"{value}\n".encode())
    found = cgroups.processors(str(tmp_path))
    assert found == expected
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cgroups, "processors", lambda: found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    assert settings._default_threads() == min(4, expected or 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")  # an explicit setting wins
    assert settings._default_threads() == 64
