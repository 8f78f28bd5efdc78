"""Several machines: who takes part, by plain data; two agents on one machine; and two hosts, by network namespaces."""

import os
import re
import shutil
import subprocess
import sys
import uuid

import pytest

from tensorgrad.distributed.elastic.membership import Membership, Settings
from tensorgrad.distributed.elastic.rendezvous.api import RendezvousError
from tensorgrad.distributed.elastic.rendezvous.connection import Rendezvous
from tests.distributed.jobs import eventually, launch
from tests.distributed.launch import HANG, environment, finished, needs_mpi, start_command
from tests.distributed.virtual_time import VirtualTime

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the agent's signals are POSIX's")


# --- decisions -------------------------------------------------------------------------------------------------------


def meet(settings, *names):
    members = Membership(settings, 0.0)
    for order, name in enumerate(names):
        assert members.join(name, order, 2, name, 0.0) == ""
    members.step(0.0)
    return members


def ids(members):
    return [id for id, *_ in members.plan.members]


def test_it_begins_when_all_are_there_or_after_the_last_call():
    members = meet(Settings(1, 3, 0, last_call=5.0), "a", "b")
    members.pulse("a", 1, 4.0)
    members.step(4.0)
    assert members.plan.state == "wait"
    members.step(5.0)
    assert members.plan.state == "run" and ids(members) == ["a", "b"]
    assert meet(Settings(1, 2, 0), "a", "b").plan.state == "run"


def test_it_ends_when_too_few_come():
    members = Membership(Settings(2, 2, 0, join_timeout=10.0, silence=99.0), 0.0)
    members.join("a", 0, 1, "a", 0.0)
    members.step(11.0)
    assert not members.plan.ok and members.plan.message == "1 of at least 2 nodes came within 10 seconds: a"


def test_a_late_node_is_taken_in_without_costing_a_restart():
    members = meet(Settings(1, 2, 3, last_call=0.0), "a")
    assert ids(members) == ["a"]
    members.join("b", 1, 2, "b", 1.0)
    members.step(1.0)
    assert members.plan.state == "wait"
    for name in "ab":
        members.pulse(name, 9, 1.5)
    members.step(1.5)
    assert (members.plan.state, ids(members), members.plan.restarts) == ("run", ["a", "b"], 0)


def test_one_too_many_waits_until_it_is_needed():
    members = meet(Settings(1, 2, 0), "a", "b", "c")
    assert ids(members) == ["a", "b"]
    members.leave("b", 1.0)
    for name in "ac":
        members.pulse(name, 9, 1.5)
    members.step(1.5)
    assert (members.plan.state, ids(members)) == ("run", ["a", "c"])


def test_failures_cost_restarts_until_none_are_left():
    members = meet(Settings(1, 1, 1), "a")
    members.failed(1, {"0": {}}, 1.0)
    assert (members.plan.state, members.plan.restarts) == ("wait", 1)
    members.failed(1, {"0": {}}, 1.0)  # an old round's: nothing
    members.pulse("a", 2, 1.5)
    members.step(1.5)
    assert (members.plan.state, members.plan.round) == ("run", 2)
    members.failed(2, {"0": {"x": 1}}, 2.0)
    assert (members.plan.state, members.plan.ok, members.plan.failures) == ("end", False, {"0": {"x": 1}})


def test_a_failure_that_a_lost_node_caused_costs_no_restart():
    members = meet(Settings(1, 2, 1, silence=5.0), "a", "b")
    members.failed(1, {"0": {}}, 10.0)
    members.pulse("a", 2, 11.0)
    members.nodes["b"].heard = 4.0
    members.step(11.0)
    assert (members.plan.state, ids(members), members.plan.restarts) == ("run", ["a"], 0)


def test_static_nodes_have_numbers_and_are_not_replaced():
    members = meet(Settings(2, 2, 3, static=True), "a")
    assert members.join("c", 0, 1, "c", 0.0) == "node rank 0 is taken by a"
    assert members.join("c", 2, 1, "c", 0.0) == "node rank 2 is not below the number of nodes, 2"
    members.join("b", 1, 1, "b", 0.0)
    members.step(0.0)
    members.leave("b", 1.0)
    assert not members.plan.ok and members.plan.message == "node 1 (b) has left"


# --- machines that meet, by a clock that only the test moves ---------------------------------------------------------


class Job(VirtualTime):
    """The machines of a job, which take turns at hearing what to do."""

    def __init__(self, *numbers, **more):
        super().__init__()
        self.settings, self.machines = Settings(*numbers, **more), []

    def come(self, rank=0, processes=1, settings=None):
        first, more = not self.machines, {"rank": rank, "is_host": "0" if self.machines else "1"}
        place = "127.0.0.1", 0 if first else self.machines[0].port
        settings = settings or self.settings
        machine = Rendezvous(place, "job", processes, settings, more, "127.0.0.1", self.clock)
        self.machines.append(machine)
        return machine

    def after(self, seconds, *machines):
        """Half seconds pass, in which these machines ask what to do; returns the state and the numbers in the end."""
        end = self.time + seconds
        while self.time < end:
            self.sleep(0.5)
            for machine in machines:
                machine.exchange()
        names = {machine.id: number for number, machine in enumerate(self.machines)}
        machines[0].exchange()  # the first one decides
        plan = machines[-1].exchange()
        return plan.state, [names[id] for id, *_ in plan.members], plan.restarts


def test_machines_meet_at_the_last_call():
    job = Job(1, 3, 0, last_call=5.0)
    first = job.come()
    assert job.after(4, first) == ("wait", [], 0)
    second = job.come()
    assert job.after(0.5, first, second) == ("wait", [], 0)
    assert job.after(1, first, second) == ("run", [0, 1], 0)


def test_a_machine_that_is_not_heard_of_is_replaced():
    job = Job(1, 2, 0, last_call=1.0, silence=15.0)
    first, second, third = job.come(), job.come(), job.come()
    assert job.after(40, first, second, third) == ("run", [0, 1], 0)
    assert job.after(14, first, third) == ("run", [0, 1], 0)
    assert job.after(3, first, third) == ("run", [0, 2], 0)


def test_a_late_machine_is_taken_in():
    job = Job(1, 2, 0, last_call=1.0)
    first = job.come()
    assert job.after(30, first) == ("run", [0], 0)
    second = job.come()
    assert job.after(2, first, second) == ("run", [0, 1], 0)


def test_failures_are_told_to_all():
    job = Job(2, 2, 1)
    first, second = job.come(), job.come(processes=3)
    assert job.after(1, first, second) == ("run", [0, 1], 0)
    second.report("failed", 1, failures={"1": {}})
    assert job.after(2, first, second) == ("run", [0, 1], 1)
    for machine in (first, second):
        machine.report("done", 2)
    assert job.after(1, first, second)[0] == "end"
    began = job.time
    first.wait_for_others()  # the second has not read the end
    assert 5 <= job.time - began < 6


def test_the_end_is_waited_for_no_longer_than_needed():
    job = Job(2, 2, 0)
    first, second = job.come(), job.come()
    job.after(1, first, second)
    first.membership.end(True)
    assert job.after(0.5, first, second)[0] == "end"
    second.wait_for_others()
    began = job.time
    first.wait_for_others()
    assert job.time == began


@pytest.mark.parametrize("who", [0, 1])
def test_a_machine_that_leaves(who):
    job = Job(1, 2, 3, last_call=1.0)
    machines = job.come(), job.come()
    assert job.after(2, *machines) == ("run", [0, 1], 0)
    machines[who].leave("was stopped")
    if who:
        assert job.after(2, machines[0]) == ("run", [0], 0)
    else:  # nobody else can decide
        plan = machines[1].exchange()
        assert (plan.state, plan.ok) == ("end", False)
        assert plan.message == "127.0.0.1, which serves the rendezvous, was stopped"


def test_machines_that_do_not_fit_are_refused():
    job = Job(2, 2, 0, static=True)
    first = job.come(0)
    with pytest.raises(RendezvousError, match="started with --nnodes 3:3, the job has 2:2"):
        job.come(1, settings=Settings(3, 3, 0, static=True))
    second, other = job.come(1), job.come(1)
    first.exchange()
    assert second.exchange().state == "run"
    with pytest.raises(RendezvousError, match="node rank 1 is taken"):
        other.exchange()


# --- agents ----------------------------------------------------------------------------------------------------------

SUM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1_000_000,), float(dist.get_rank() + 1))
dist.all_reduce(x)
assert (x == sum(range(1, dist.get_world_size() + 1))).all()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
os.write(1, (" ".join(os.environ[name] for name in names) + "\\n").encode())  # in one piece
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "fail" in sys.argv:
    raise ValueError("bad luck")
dist.barrier()
dist.destroy_process_group()
"""


def program(folder):
    (folder / "program.py").write_text(SUM)
    return folder / "program.py"


def node(port, *options, nodes="2", **variables):
    place = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "job")
    return launch("--nnodes", nodes, *place, *options, **variables)


@needs_mpi
@pytest.mark.together
@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_two_agents_and_a_restart(tmp_path, backend, port):
    path = program(tmp_path)
    if backend == "c10d":
        agents = [node(port, "--nproc-per-node", n, "--max-restarts", 1, path, "fail") for n in (1, 2)]
    else:
        static = ("--nnodes", 2, "--master-port", port, "--max-restarts", 1)
        agents = [launch(*static, "--node-rank", n, "--nproc-per-node", n + 1, path, "fail") for n in (1, 0)]
    results = [finished(agent) for agent in agents]
    assert [code for code, _, _ in results] == [0, 0], results
    lines = [line.split() for _, output, _ in results for line in output.splitlines()]
    assert sorted(int(line[0]) for line in lines if line[4] == "1") == [0, 1, 2]
    assert all(line[1] == "3" for line in lines)


@pytest.mark.together
def test_agents_that_disagree_are_told(tmp_path, port):
    path = program(tmp_path)
    first = node(port, path)
    second = node(port, path, nodes="3")
    told = eventually(lambda: [agent for agent in (first, second) if agent.poll()])[0]  # the one that did not decide
    other = second if told is first else first
    lines = finished(told)[2].splitlines()
    other.terminate()
    finished(other)
    assert len(lines) == 1 and re.search(r"started with --nnodes \d:\d, the job has \d:\d", lines[0]), lines


@pytest.mark.together
def test_a_node_that_comes_late_and_one_that_leaves(tmp_path, port):
    path = tmp_path / "program.py"
    path.write_text(
        "import os, pathlib, sys, time\nrounds = pathlib.Path(sys.argv[1])\n"
        "open(rounds, 'a').write(os.environ['WORLD_SIZE'])\n"
        "while rounds.read_text() != '1221': time.sleep(0.05)\n"
    )
    rounds = tmp_path / "rounds"
    options = ("--rdzv-conf", "last_call_timeout=0", "--no-python", sys.executable, "-S", path, rounds)
    first = node(port, *options, nodes="1:2")
    assert eventually(lambda: rounds.exists() and rounds.read_text() == "1")
    second = node(port, *options, nodes="1:2")
    assert eventually(lambda: rounds.read_text() == "122")
    second.terminate()
    assert finished(second)[0] == 128 + 15
    code, _, errors = finished(first)
    assert code == 0 and rounds.read_text() == "1221", errors


# --- two hosts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts():
    """Two network namespaces, connected by a cable: their names, and a function that reads the bytes sent."""
    ip, unshare = shutil.which("ip"), shutil.which("unshare")
    if ip is None or unshare is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root, iproute2 and util-linux")
    mark = uuid.uuid4().hex[:6]
    a, b, va, vb = f"tga{mark}", f"tgb{mark}", f"va{mark}", f"vb{mark}"

    def do(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=HANG)

    try:
        for words in (
            ("netns", "add", a), ("netns", "add", b),
            ("link", "add", va, "netns", a, "type", "veth", "peer", "name", vb, "netns", b),
            ("-n", a, "addr", "add", "10.77.0.1/24", "dev", va), ("-n", b, "addr", "add", "10.77.0.2/24", "dev", vb),
            *(("-n", name, "link", "set", link, "up") for name, link in ((a, va), (b, vb), (a, "lo"), (b, "lo"))),
        ):  # fmt: skip
            done = do(*words)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        for name, link in ((a, va), (b, vb)):  # until then a cable is not yet used: UCX would find no network
            state = "netns", "exec", name, "cat", f"/sys/class/net/{link}/operstate"
            assert eventually(lambda state=state: do(*state).stdout.strip() == "up")

        def sent():
            read = ["netns", "exec", a, "cat", f"/sys/class/net/{va}/statistics/tx_bytes"]
            return int(do(*read).stdout)

        yield [a, b], sent
    finally:
        for name in (a, b):
            do("netns", "del", name)


@needs_mpi
@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_two_hosts_reduce_over_the_network(hosts, tmp_path, backend):
    (first, second), sent = hosts
    before = sent()
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", backend, "--rdzv-id", "job"]
    options += ["--rdzv-endpoint", "10.77.0.1:29600"]
    # UCX knows by the kernel's boot id that these hosts could share memory.
    variables = environment(TENSORGRAD_JOB_SECRET="secret", UCX_TLS="tcp,self")
    agents = []
    for rank, name in ((1, second), (0, first)):
        command = [
            sys.executable,
            "-m",
            "tensorgrad.distributed.run",
            *options,
            "--node-rank",
            str(rank),
            str(program(tmp_path)),
        ]
        rename = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
        inside = ["unshare", "--uts", sys.executable, "-S", "-c", rename, f"host{rank}", *command]
        agents.append(start_command(["ip", "netns", "exec", name, *inside], env=variables))
    results = [finished(agent) for agent in agents]
    assert [code for code, _, _ in results] == [0, 0], results
    assert sorted(output.split()[0] for _, output, _ in results) == ["0", "1"]
    assert sent() - before > 1_500_000, "four million bytes are reduced, at least half of which must leave each host"
