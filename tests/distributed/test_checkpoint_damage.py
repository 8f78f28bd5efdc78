"""A process killed while it saves costs nothing, and damaged or hostile files give one clear error."""

import contextlib
import os
import pickle
import random
import signal
import sys
import time
import zipfile

import pytest

import tensorgrad as torch
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad.distributed.checkpoint import filesystem, metadata, metadata_file
from tensorgrad.distributed.checkpoint.format_utils import dcp_to_torch_save
from tests.distributed.launch import HANG, HERE, end, needs_mpi, start


def state(fill):
    values = {"weight": torch.full((3, 2), fill), "bias": torch.full((5,), fill, dtype=torch.float64)}
    return {"model": values, "list": [torch.full((2,), fill), {"a": fill}], "step": fill}


def check(folder, *fills):
    """Loads the checkpoint, which must be one of these as a whole; returns which."""
    found = state(0.0)
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    assert str(found) == str(state(found["step"])) and found["step"] in fills
    return found["step"]


def killed_at(event, folder):
    """Saves in a child that is killed at this operation on files; returns whether it got so far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(name, arguments):
            nonlocal seen
            if name in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod"):
                seen += 1
                if seen == event:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        with contextlib.suppress(BaseException):
            dcp.save(state(2.0), checkpoint_id=folder, no_dist=True)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_killed_at_any_moment_of_saving(tmp_path):
    dcp.save(state(1.0), checkpoint_id=tmp_path, no_dist=True)
    event, found = 1, []
    while killed_at(event, tmp_path):
        found.append(check(tmp_path, 1.0, 2.0))
        dcp.save(state(1.0), checkpoint_id=tmp_path, no_dist=True)
        assert len(list(tmp_path.iterdir())) == 2, "files are left"
        event += 1
    assert len(found) >= 6 and found == sorted(found) and found[0] == 1.0
    assert check(tmp_path, 2.0)


@pytest.mark.together
@needs_mpi
@pytest.mark.parametrize(("seed", "size", "killed"), [(0, 2, [1]), (1, 2, [0, 1])])
def test_ranks_killed_while_they_save(tmp_path, port, seed, size, killed):
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size}
    ranks = [start([HERE / "checkpoint_kills.py", tmp_path], RANK=rank, **where) for rank in range(size)]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "saved\n", rank.stderr.read()
        time.sleep(random.Random(seed).uniform(0.02, 0.3))  # any moment will do
        for rank in killed:
            ranks[rank].kill()
        for number, rank in enumerate(ranks):
            errors = rank.communicate(timeout=HANG)[1]
            if number not in killed:
                assert "rank 1" in errors.splitlines()[-1], errors
    finally:
        for rank in ranks:
            end(rank)
    found = {"x": torch.zeros(1001), "y": torch.zeros(1000), "step": -1}
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    assert found["step"] >= 0 and (found["x"] == found["step"]).all() and (found["y"] == found["step"]).all()


class Calls:
    """What a hostile pickle has: a function to call."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "checkpoint"
    dcp.save(state(1.0), checkpoint_id=folder, no_dist=True)
    return folder


def refused(folder, file, match="."):
    """Loading must give one line that names the file, and change nothing."""
    found = state(0.0)
    with pytest.raises(dcp.CheckpointException, match=match) as caught:
        dcp.load(found, checkpoint_id=folder, no_dist=True)
    assert str(folder / file) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises((pickle.UnpicklingError, OSError, dcp.CheckpointException), match=match):
        dcp_to_torch_save(folder, folder.parent / "all.pt")
    return found


def test_damaged_and_hostile_files(saved, tmp_path):
    written = {path.name: path.read_bytes() for path in saved.iterdir()}
    (data,) = (name for name in written if name.endswith(".distcp"))

    def restore():
        for name, content in written.items():
            (saved / name).write_bytes(content)

    for name in written:
        for length in {0, 1, len(written[name]) // 2, len(written[name]) - 1}:
            (saved / name).write_bytes(written[name][:length])
            refused(saved, name, "is damaged or not part of a checkpoint")
        restore()
        (saved / name).unlink()
        refused(saved, name, "does not exist|No such file")
        restore()
    executed = tmp_path / "executed"
    (saved / ".metadata").write_bytes(pickle.dumps(Calls(executed)))
    refused(saved, ".metadata", "system")
    restore()
    (saved / data).write_bytes(pickle.dumps(Calls(executed)).ljust(len(written[data]), b"\0"))
    refused(saved, data)
    restore()
    with zipfile.ZipFile(saved / "evil.zip", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Calls(executed), 2))
        archive.writestr("archive/version", "3\n")
    content = (saved / "evil.zip").read_bytes()
    known = filesystem.FileSystemReader(saved).read_metadata()
    for index, info in known.storage_data.items():
        if index.offset is None:
            info.offset, info.length = 0, len(content)
    (saved / data).write_bytes(content.ljust(len(written[data]), b"\0"))
    (saved / ".metadata").write_bytes(metadata_file.dumps(known))
    refused(saved, data)
    assert not executed.exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "..", "", "c:secret", "x\0y", "a\\b"])
def test_names_of_files_elsewhere(saved, name):
    (saved.parent / "secret").write_bytes(b"x" * 10_000)
    known = filesystem.FileSystemReader(saved).read_metadata()
    for info in known.storage_data.values():
        info.relative_path = name
    (saved / ".metadata").write_bytes(metadata_file.dumps(known))
    refused(saved, ".metadata", "the file name")


def test_wrong_places_and_sizes(saved):
    def change(function, match, file=".metadata"):
        known = filesystem.FileSystemReader(saved).read_metadata()
        function(known)
        (saved / ".metadata").write_bytes(metadata_file.dumps(known))
        refused(saved, file, match)
        (saved / ".metadata").write_bytes(original)

    original = (saved / ".metadata").read_bytes()
    (data,) = (path.name for path in saved.glob("*.distcp"))
    weight = metadata.MetadataIndex("model.weight", (0, 0))

    def resize(entry, size):
        entry.size = torch.Size(size)
        entry.chunks[0].sizes = torch.Size(size)

    change(lambda m: setattr(m.storage_data[weight], "offset", -1), "the place of")
    change(lambda m: setattr(m.storage_data[weight], "length", 3), "the place of")
    change(lambda m: setattr(m.storage_data[weight], "offset", 2**60), "are needed", data)
    change(lambda m: setattr(m.storage_data[weight], "length", 2**60), "are needed", data)
    change(lambda m: setattr(m.storage_data[weight], "offset", m.storage_data[weight].offset + 1), "damaged", data)
    change(lambda m: m.storage_data.pop(weight), "the place of")
    change(lambda m: resize(m.state_dict_metadata["model.weight"], (2**40, 2)), "the place of")
    change(lambda m: setattr(m.state_dict_metadata["model.weight"].chunks[0], "sizes", torch.Size((4, 2))), "reaches")
    change(
        lambda m: setattr(m.state_dict_metadata["model.weight"].chunks[0], "sizes", torch.Size((2, 2))), "do not fill"
    )
    change(lambda m: setattr(m.state_dict_metadata["model.weight"].properties, "dtype", torch.int32), "dtype", data)


def test_paths_of_keys(saved):
    """Only in `dcp_to_torch_save` do they come from the file."""
    known = filesystem.FileSystemReader(saved).read_metadata()
    original = known.planner_data
    for name, path, error in [
        ("list.0", ("list", 2**50), False), ("list.0", ("list", -1), False), ("step", ("model",), True),
        ("step", ("list", "x", 3), True),
    ]:  # fmt: skip
        known.planner_data = original | {name: path}
        (saved / ".metadata").write_bytes(metadata_file.dumps(known))
        with pytest.raises(pickle.UnpicklingError, match="metadata") if error else contextlib.nullcontext():
            dcp_to_torch_save(saved, saved.parent / "all.pt")


def test_random_changes_of_bytes(saved):
    """Every byte counts: a file that was changed is refused, or gives what was saved."""
    rng = random.Random(0)
    for path in list(saved.iterdir()):
        original = path.read_bytes()
        for _ in range(80):
            changed = bytearray(original)
            for _ in range(rng.choice([1, 1, 3])):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            path.write_bytes(changed)
            try:
                check(saved, 1.0)
            except dcp.CheckpointException as error:
                assert "\n" not in str(error) and len(str(error)) < 2000
        path.write_bytes(original)
