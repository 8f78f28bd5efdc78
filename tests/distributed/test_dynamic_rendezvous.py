"""The rendezvous "c10d" as a library: machines that come late, leave and are lost, beside PyTorch's."""

import threading
import time
from datetime import timedelta
from importlib import import_module

import pytest

import tensorgrad.distributed as dist
from tensorgrad.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousTimeoutError,
    c10d_rendezvous_backend,
    dynamic_rendezvous,
    rendezvous_handler_registry,
)
from tensorgrad.distributed.elastic.rendezvous.rounds import Round
from tests.distributed.launch import free_port

LIBRARIES = ("tensorgrad", "torch")


def of(library, name):
    """A module of one of the libraries."""
    pytest.importorskip(library, reason="torch is not installed: nothing to compare with")
    return import_module(f"{library}.distributed.elastic.rendezvous{name}")


def handlers(count, least, most, library="tensorgrad", **more):
    """As many handlers, which meet at one endpoint."""
    endpoint, found = f"127.0.0.1:{free_port()}", []
    for _ in range(count):
        parameters = of(library, "").RendezvousParameters(
            "c10d", endpoint, "job", least, most, local_addr="127.0.0.1", **more
        )
        found.append(of(library, "").registry.get_rendezvous_handler(parameters))
    return found


class Meeting(threading.Thread):
    """A call of `next_rendezvous`."""

    def __init__(self, handler):
        super().__init__(daemon=True)
        self.handler, self.info, self.error = handler, None, None
        self.start()

    def run(self):
        try:
            self.info = self.handler.next_rendezvous()
        except Exception as error:
            self.error = error

    def result(self):
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.info.rank, self.info.world_size


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("library", LIBRARIES)
def test_machines_come_late_and_the_job_ends(library, monkeypatch):
    if library == "torch":  # else its rank 0 serves one store for all rounds, of which those that come late never hear
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    first, second, late, never = handlers(4, 2, 3, library, last_call_timeout=3, keep_alive_interval=5)
    meetings = [Meeting(first), Meeting(second)]
    assert sorted(meeting.result() for meeting in meetings) == [(0, 2), (1, 2)]
    for meeting in meetings:  # the store is theirs, and so is the ranks' store
        meeting.info.store.set(f"from {meeting.info.rank}", b"1")
    assert meetings[0].info.store.get(f"from {meetings[1].info.rank}") == b"1"
    addresses = {(m.info.bootstrap_store_info.master_addr, m.info.bootstrap_store_info.master_port) for m in meetings}
    assert len(addresses) == 1 and {first.get_backend(), first.get_run_id()} == {"c10d", "job"}
    meetings = [Meeting(late)]
    until(lambda: first.num_nodes_waiting() == 1)
    assert not first.is_closed()
    meetings += [Meeting(first), Meeting(second)]  # they leave the round, and meet in the next one
    assert sorted(meeting.result() for meeting in meetings) == [(0, 3), (1, 3), (2, 3)]
    assert first.num_nodes_waiting() == 0
    waits = Meeting(never)
    assert first.shutdown()
    until(second.is_closed)  # PyTorch's may still know what was there before
    # There is no room for it: that is no error if it waited already, which depends on who is faster.
    with pytest.raises((of(library, "").RendezvousClosedError, of(library, "").RendezvousGracefulExitError)):
        waits.result()
    assert all(handler.shutdown() for handler in (second, late, never))


def test_a_machine_that_is_lost_makes_room():
    first, lost, spare = handlers(3, 2, 2, keep_alive_interval=1)
    meetings = [Meeting(first), Meeting(lost)]
    assert sorted(meeting.result() for meeting in meetings) == [(0, 2), (1, 2)]
    waits = Meeting(spare)
    time.sleep(0.2)
    assert first.num_nodes_waiting() == 0  # there is no room for it
    lost._stop_beating()
    until(lambda: first.num_nodes_waiting() == 1)
    again = Meeting(first)
    assert sorted([again.result(), waits.result()]) == [(0, 2), (1, 2)]
    for handler in (first, lost, spare):
        handler.shutdown()


def test_a_machine_without_room_is_told_that_the_job_has_ended_well():
    first, second, spare = handlers(3, 2, 2, last_call_timeout=1, keep_alive_interval=5)
    meetings = [Meeting(first), Meeting(second)]
    assert sorted(meeting.result() for meeting in meetings) == [(0, 2), (1, 2)]
    waits = Meeting(spare)
    until(lambda: spare._node in first._change(lambda state: None)[0].spare)
    assert first.shutdown()
    with pytest.raises(of("tensorgrad", "").RendezvousGracefulExitError):
        waits.result()


def test_signs_of_life_end_with_the_handler():
    before, [handler] = threading.enumerate(), handlers(1, 1, 1, keep_alive_interval=1)
    assert Meeting(handler).result() == (0, 1)
    [thread] = [t for t in threading.enumerate() if t.name == "tensorgrad-rendezvous" and t not in before]
    del handler
    until(lambda: not thread.is_alive())


def test_too_few_machines():
    [handler] = handlers(1, 2, 2, join_timeout=1)
    with pytest.raises(RendezvousTimeoutError, match="1 of at least 2 nodes came within 1 s"):
        handler.next_rendezvous()
    assert Round.from_bytes(handler._backend.get_state()[0]).participants == {}


def test_a_round():
    round = Round()
    assert not round.join("b", 2, 2, False) and round.join("a", 2, 2, False)
    assert round.participants == {"a": 0, "b": 1}
    assert not round.join("c", 2, 2, True) and round.spare == ["c"] and not round.waiting
    round.remove("a")
    assert not round.join("c", 2, 2, True) and round.waiting == ["c"] and not round.spare
    round.remove("b")
    assert (round.number, round.complete) == (1, False)
    assert not round.join("c", 1, 2, False) and round.join("c", 1, 2, True) and round.participants == {"c": 0}
    assert Round.from_bytes(round.to_bytes()) == round
    for data in (b"", b"[]", b'{"other": 1}', b'{"number": "1"}', b"\x80"):
        with pytest.raises(RendezvousStateError, match="corrupt"):
            Round.from_bytes(data)


def outcome(function):
    try:
        return str(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", ["HashStore", "FileStore"])
def test_the_backend_is_that_of_pytorch(kind, tmp_path):
    found = []
    for library in LIBRARIES:
        module = of(library, ".c10d_rendezvous_backend")
        stores = import_module(f"{library}.distributed")
        store = stores.HashStore() if kind == "HashStore" else stores.FileStore(str(tmp_path / library), -1)
        backend = module.C10dRendezvousBackend(store, "job")
        steps = [backend.name, backend.get_state(), backend.set_state(b"one"), backend.set_state(b"two"),
                 backend.set_state(b"two", "no token"), backend.get_state()]  # fmt: skip
        steps.append(backend.set_state(b"two", steps[-1][1]))
        steps += [backend.set_state(b"three", steps[2][1]), outcome(lambda m=module: m.C10dRendezvousBackend(None, ""))]
        store.set("torch.rendezvous.job", "abc")
        steps.append(outcome(backend.get_state))
        found.append(steps)
    assert found[0] == found[1]


def test_settings_are_those_of_pytorch():
    found = []
    for library in LIBRARIES:
        module, api = of(library, ".dynamic_rendezvous"), of(library, "")
        store = import_module(f"{library}.distributed").HashStore()
        backend = of(library, ".c10d_rendezvous_backend").C10dRendezvousBackend(store, "job")

        def make(*numbers, run_id="job", module=module, store=store, backend=backend, **more):
            return module.DynamicRendezvousHandler.from_backend(run_id, store, backend, *numbers, **more)

        def given(module=module, api=api, store=store, backend=backend, **more):
            parameters = api.RendezvousParameters("c10d", "", "job", 1, 2, **more)
            return module.create_handler(store, backend, parameters).settings

        settings = given(join_timeout="7", last_call_timeout=3, keep_alive_interval=2)
        found.append([
            outcome(lambda: make(1, 1, run_id="")), outcome(lambda: make(0, 1)), outcome(lambda: make(2, 1)),
            outcome(lambda: module.RendezvousTimeout(close=timedelta(0))), outcome(lambda: given(join_timeout=-1)),
            outcome(lambda: given(keep_alive_interval=None)), settings.timeout.join, settings.timeout.last_call,
            settings.timeout.close, settings.timeout.heartbeat, settings.keep_alive_interval, settings.run_id,
            settings.keep_alive_max_attempt, settings.min_nodes, settings.max_nodes, make(1, 1).use_agent_store,
        ])  # fmt: skip
    assert found[0] == found[1]


def test_where_the_store_is(tmp_path):
    make = c10d_rendezvous_backend.create_backend
    path = str(tmp_path / "store")
    backend, store = make(RendezvousParameters("c10d", path, "job", 1, 1, store_type="file"))
    assert isinstance(store, dist.FileStore) and backend.set_state(b"1")[2]
    with pytest.raises(ValueError, match="Invalid store type"):
        make(RendezvousParameters("c10d", path, "job", 1, 1, store_type="etcd"))
    with pytest.raises(ValueError, match="positive"):
        make(RendezvousParameters("c10d", "localhost:0", "job", 1, 1, read_timeout=0))
    endpoint = f"127.0.0.1:{free_port()}"
    with pytest.raises(RendezvousConnectionError):
        make(RendezvousParameters("c10d", endpoint, "job", 1, 1, read_timeout=1, is_host=False))
    kept = make(RendezvousParameters("c10d", endpoint, "job", 1, 1))
    with pytest.raises(RendezvousConnectionError):
        make(RendezvousParameters("c10d", endpoint, "job", 1, 1, is_host=True))
    other, _ = make(RendezvousParameters("c10d", endpoint, "job", 1, 1))  # it is served already
    assert kept[0].set_state(b"1")[2] and other.get_state()[0] == b"1"


def test_a_handler_of_another_kind_of_backend():
    class Memory(dynamic_rendezvous.RendezvousBackend):
        name, stored, lost = "memory", None, 2

        def get_state(self):
            return self.stored

        def set_state(self, state, token=None):
            if self.lost:  # another machine was faster
                self.lost -= 1
                return (*self.stored, False) if self.stored else None
            self.stored = state, token
            return state, token, True

    rendezvous_handler_registry.register(
        "memory", lambda parameters: dynamic_rendezvous.create_handler(dist.HashStore(), Memory(), parameters)
    )
    handler = rendezvous_handler_registry.create_handler(
        RendezvousParameters("memory", "", "job", 1, 1, local_addr="127.0.0.1")
    )
    assert Meeting(handler).result() == (0, 1) and handler.get_backend() == "memory"
    handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        handler.next_rendezvous()
