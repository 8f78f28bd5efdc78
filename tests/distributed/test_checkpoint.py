"""Checkpoints: both ways with PyTorch, and the old one stays whole when saving fails."""

import signal

import pytest

import tensorgrad as torch
import tensorgrad.distributed.checkpoint as dcp

resource = pytest.importorskip("resource", reason="needs limits on the sizes of files")


def state(t, fill):
    return {"model": {"weight": t.full((3, 2), fill), "none": t.empty(0, 3)}, "list": [1, t.ones(2)], "epoch": fill}


@pytest.mark.parametrize("writer", ["tensorgrad", "torch"])
def test_each_library_reads_what_the_other_wrote(tmp_path, writer):
    other = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.distributed.checkpoint")
    pairs = [(torch, dcp), (other, theirs)]
    (t, source), (u, target) = pairs if writer == "tensorgrad" else pairs[::-1]
    source.save(state(t, 2.5), checkpoint_id=tmp_path, no_dist=True)
    found = state(u, 0.0)
    target.load(found, checkpoint_id=tmp_path, no_dist=True)
    assert found["model"]["weight"].tolist() == [[2.5, 2.5]] * 3 and found["epoch"] == 2.5


def test_a_full_disk_costs_nothing(tmp_path):
    dcp.save(state(torch, 1.0), checkpoint_id=tmp_path, no_dist=True)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(dcp.CheckpointException, match=r"write: rank 0: OSError: .*distcp"):
            dcp.save(state(torch, 2.0), checkpoint_id=tmp_path, no_dist=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    found = state(torch, 0.0)
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    assert found["epoch"] == 1.0 and len(list(tmp_path.iterdir())) == 2
