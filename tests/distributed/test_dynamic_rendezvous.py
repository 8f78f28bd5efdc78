"""The rendezvous "c10d" as a library: machines that come late, leave and are lost, beside PyTorch's."""

import random
import threading
from datetime import timedelta
from importlib import import_module

import pytest

import tensorgrad.distributed as dist
from tensorgrad.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousTimeoutError,
    c10d_rendezvous_backend,
    dynamic_rendezvous,
    rendezvous_handler_registry,
)
from tensorgrad.distributed.elastic.rendezvous.rounds import Round
from tests.distributed.jobs import eventually
from tests.distributed.launch import HANG
from tests.distributed.virtual_time import Machines

LIBRARIES = ("tensorgrad", "torch")


def of(library, name):
    """A module of one of the libraries."""
    pytest.importorskip(library, reason="torch is not installed: nothing to compare with")
    return import_module(f"{library}.distributed.elastic.rendezvous{name}")


def handlers(count, least, most, port, library="tensorgrad", **more):
    """As many handlers, which meet at one endpoint."""
    found = []
    for _ in range(count):
        parameters = of(library, "").RendezvousParameters(
            "c10d", f"127.0.0.1:{port}", "job", least, most, local_addr="127.0.0.1", **more
        )
        found.append(of(library, "").registry.get_rendezvous_handler(parameters))
    return found


class Meeting(threading.Thread):
    """A function that waits for other machines."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function, self.found, self.error = function, None, None
        self.start()

    def run(self):
        try:
            self.found = self.function()
        except Exception as error:
            self.error = error

    def result(self):
        self.join(HANG)
        assert not self.is_alive(), "the machines do not meet"
        if self.error is not None:
            raise self.error
        return self.found


def until(condition):
    assert eventually(condition), "nothing happens"


# --- by the clock of the machine -------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_machines_come_late_and_the_job_ends(library, monkeypatch, port):
    if library == "torch":  # else its rank 0 serves one store for all rounds, of which those that come late never hear
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    first, second, late, never = handlers(4, 2, 3, port, library, last_call_timeout=1, keep_alive_interval=5)

    def meet(handler, size):
        """As agents do: again, whenever a machine waits, until there are as many as wanted."""
        while True:
            info = handler.next_rendezvous()
            until(lambda: info.world_size == size or handler.num_nodes_waiting() > 0)
            if info.world_size == size:
                return info

    meetings = [Meeting(lambda handler=handler: meet(handler, 2)) for handler in (first, second)]
    found = [meeting.result() for meeting in meetings]
    assert sorted(info.rank for info in found) == [0, 1]
    for info in found:  # the store is theirs, and so is the ranks' store
        info.store.set(f"from {info.rank}", b"1")
    assert found[0].store.get(f"from {found[1].rank}") == b"1"
    addresses = {(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in found}
    assert len(addresses) == 1 and {first.get_backend(), first.get_run_id()} == {"c10d", "job"}
    meetings = [Meeting(lambda: meet(late, 3))]
    until(lambda: first.num_nodes_waiting() == 1)
    assert not first.is_closed()
    # They leave the round, and meet in the next one.
    meetings += [Meeting(lambda handler=handler: meet(handler, 3)) for handler in (first, second)]
    assert sorted(meeting.result().rank for meeting in meetings) == [0, 1, 2]
    assert first.num_nodes_waiting() == 0
    waits = Meeting(never.next_rendezvous)
    assert first.shutdown()
    until(second.is_closed)  # PyTorch's may still know what was there before
    # There is no room for it: that is no error if it waited already, which depends on who is faster.
    with pytest.raises((of(library, "").RendezvousClosedError, of(library, "").RendezvousGracefulExitError)):
        waits.result()
    assert all(handler.shutdown() for handler in (second, late, never))


# --- by a clock that only the test moves -----------------------------------------------------------------------------


def ranks(infos):
    return sorted((info.rank, info.world_size) for info in infos)


@pytest.mark.parametrize(("come", "begin"), [((0, 5), 15), ((0, 5, 14.9), 14.9), ((0, 300), 310), ((0, 1, 2, 3), 3)])
def test_the_last_call(come, begin):
    """A round begins when all are there, or when no more have come for some time after there were enough."""
    machines = Machines(2, 4, last_call_timeout=10)

    def machine(moment):
        machines.sleep(moment)
        info = machines.handler().next_rendezvous()
        return info, machines.time

    found = machines.run(*(lambda moment=moment: machine(moment) for moment in come))
    assert ranks(info for info, _ in found) == [(rank, len(come)) for rank in range(len(come))]
    for _, time in found:
        assert begin <= time <= begin + 1  # they look in intervals of up to 0.25 seconds


def test_a_late_machine_waits_until_the_others_make_room():
    machines, told = Machines(2, 3, last_call_timeout=10), []

    def early():
        handler = machines.handler()
        first = handler.next_rendezvous()
        machines.works(handler, lambda: handler.num_nodes_waiting())
        told.append(machines.time)
        return first, handler.next_rendezvous()

    def late():
        machines.sleep(100)
        return machines.handler().next_rendezvous()

    *pairs, last = machines.run(early, early, late)
    assert ranks(first for first, _ in pairs) == [(0, 2), (1, 2)]
    assert ranks([second for _, second in pairs] + [last]) == [(0, 3), (1, 3), (2, 3)]
    assert all(100 <= time < 102 for time in told)


def test_too_few_machines():
    machines = Machines(3, 3, join_timeout=600)
    handlers = [machines.handler() for _ in range(2)]
    found = machines.run(*(handler.next_rendezvous for handler in handlers))
    assert [type(error) for error in found] == [RendezvousTimeoutError] * 2 and 600 <= machines.time < 601
    assert "of at least 3 nodes came within 600 s" in str(found[0])
    assert Round.from_bytes(handlers[0]._backend.get_state()[0]).participants == {}


def test_a_machine_that_is_lost_makes_room():
    machines = Machines(2, 2, keep_alive_interval=5, keep_alive_max_attempt=3)

    def stays():
        handler = machines.handler()
        first = handler.next_rendezvous()
        machines.works(handler, lambda: machines.time > 40 or handler.num_nodes_waiting())
        noticed = machines.time
        return first, noticed, handler.next_rendezvous()

    def is_lost():  # without a word
        return machines.handler().next_rendezvous()

    def spare():  # for which there is no room at first
        machines.sleep(1)
        return machines.handler().next_rendezvous()

    (first, noticed, second), lost, other = machines.run(stays, is_lost, spare)
    assert ranks([first, lost]) == [(0, 2), (1, 2)] and ranks([second, other]) == [(0, 2), (1, 2)]
    assert 15 <= noticed <= 17


def test_machines_that_were_asleep_together_do_not_take_each_other_for_lost():
    machines = Machines(2, 2, keep_alive_interval=5, keep_alive_max_attempt=3)

    def machine():
        handler = machines.handler()
        handler.next_rendezvous()
        machines.works(handler, lambda: machines.time > 20)
        machines.sleep(1000)  # as laptops do: nobody could give a sign of life
        machines.works(handler, lambda: machines.time > 1100)
        return handler._change(lambda state: len(state.participants))[1]

    assert machines.run(machine, machine) == [2, 2]


def test_a_machine_without_room_is_told_that_the_job_has_ended_well():
    machines = Machines(2, 2)

    def member():
        handler = machines.handler()
        info = handler.next_rendezvous()
        machines.works(handler, lambda: machines.time > 30)
        return info, handler.shutdown()

    def spare():
        machines.sleep(1)
        return machines.handler().next_rendezvous()

    def too_late():
        machines.sleep(50)
        return machines.handler().next_rendezvous()

    *members, without_room, late = machines.run(member, member, spare, too_late)
    assert ranks(info for info, _ in members) == [(0, 2), (1, 2)] and all(ended for _, ended in members)
    assert isinstance(without_room, RendezvousGracefulExitError) and isinstance(late, RendezvousClosedError)


@pytest.mark.parametrize("seed", range(20))
def test_machines_that_come_and_go_at_any_time(seed):
    """In each round ranks are 0, 1, ... once each; and in the end all that live work together, if there is room."""
    rng = random.Random(seed)
    least = rng.randint(1, 3)
    most, count, end = least + rng.randint(0, 2), least + rng.randint(0, 4), 200
    machines = Machines(least, most, last_call_timeout=rng.choice([1, 10]), keep_alive_interval=rng.choice([1, 3]))
    rounds, dead = {}, set()

    def machine(comes, dies):
        machines.sleep(comes)
        handler = machines.handler()
        while True:
            info = handler.next_rendezvous()
            state = handler._change(lambda state: None)[0]
            rounds.setdefault(state.number, []).append((info.rank, info.world_size))
            while not dead & set(state.participants):  # or else its processes fail
                machines.sleep(0.5)
                if dies < machines.time < end:
                    dead.add(handler._node)
                    return None
                handler._change(handler._beat)
                if machines.time > end:
                    handler.shutdown()
                    return state.number, info.world_size
                if handler.num_nodes_waiting():
                    break

    living = rng.randint(least, count)
    moments = [(rng.uniform(0, 60), rng.uniform(0, 90) if k >= living else end + 1) for k in range(count)]
    found = machines.run(*(lambda moment=moment: machine(*moment) for moment in moments))
    for members in rounds.values():
        assert {size for _, size in members} <= set(range(least, most + 1))
        assert len({size for _, size in members}) == 1 and len(dict(members)) == len(members), rounds
    last = [result for result in found if isinstance(result, tuple)]
    living = count - len(dead)
    assert len(last) == min(living, most) and set(last) == {(max(rounds), len(last))}, (moments, rounds)
    others = [result for result in found if isinstance(result, Exception)]
    assert len(others) == living - len(last)
    assert {type(error) for error in others} <= {RendezvousClosedError, RendezvousGracefulExitError}


# --- parts -----------------------------------------------------------------------------------------------------------


def test_signs_of_life_end_with_the_handler(port):
    before, [handler] = threading.enumerate(), handlers(1, 1, 1, port, keep_alive_interval=1)
    assert handler.next_rendezvous().world_size == 1
    [thread] = [t for t in threading.enumerate() if t.name == "tensorgrad-rendezvous" and t not in before]

    def count(handler=handler):
        return handler._change(lambda state: state.pulses[handler._node])[1]

    first = count()
    until(lambda count=count: count() > first)
    del handler, count
    until(lambda: not thread.is_alive())


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


def test_where_the_store_is(tmp_path, port):
    make = c10d_rendezvous_backend.create_backend
    path = str(tmp_path / "store")
    backend, store = make(RendezvousParameters("c10d", path, "job", 1, 1, store_type="file"))
    assert isinstance(store, dist.FileStore) and backend.set_state(b"1")[2]
    with pytest.raises(ValueError, match="Invalid store type"):
        make(RendezvousParameters("c10d", path, "job", 1, 1, store_type="etcd"))
    with pytest.raises(ValueError, match="positive"):
        make(RendezvousParameters("c10d", "localhost:0", "job", 1, 1, read_timeout=0))
    endpoint = f"127.0.0.1:{port}"
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
    info = handler.next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1) and handler.get_backend() == "memory"
    handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        handler.next_rendezvous()
