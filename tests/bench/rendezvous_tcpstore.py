"""Runs the comparison for tests/bench/rendezvous: agents that meet at a torch.distributed.TCPStore as its users do.

  rendezvous_tcpstore.py AGENTS

The store is in this process. The agents share a few other processes and have a connection each. To join, an agent sets
its own key, takes a number, and waits for the last agent. A barrier works as in torch.distributed.elastic, with a
counter and a key that the last agent sets. The agents of a process make requests one after the other, so there are as
many simultaneous requests as processes. That keeps the store busy without a thread for each agent. Prints one JSON
object."""

import json
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
import time

from torch.distributed import TCPStore

HOST = "127.0.0.1"
PROCESSES = 4
BARRIERS = ("start", "finish", "teardown")
LIMIT_S = 60
TIMED_OUT = 75  # exit code on timeout
ESTABLISHED = "01"
# Each end of a connection resolves the other's name, which takes 5 s if no name server answers.
os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
CLEAR_REFS, RESET_PEAK = pathlib.Path("/proc/self/clear_refs"), "5"


# --- A process of some of the agents.

def barrier(stores, name, agents):
    for store in stores:
        if store.add(f"{name}/counter", 1) == agents:
            store.set(f"{name}/done", b"1")
    for store in stores:
        store.wait([f"{name}/done"])


def join(stores, first, agents):
    for agent, store in enumerate(stores, first):
        store.set(f"agent/{agent}", f"10.1.0.{agent} 29500")
    barrier(stores, "join", agents)


def be_agents(pipe, first, end, agents):
    port = pipe.recv()
    stores = [TCPStore(HOST, port, is_master=False, wait_for_workers=False) for _ in range(first, end)]
    pipe.send("connected")
    pipe.recv()
    join(stores, first, agents)
    joined = time.monotonic()
    for name in BARRIERS:
        barrier(stores, name, agents)
    pipe.send((joined, time.monotonic()))  # this clock is the same in all processes
    pipe.recv()  # so that no connection ends before all agents are done


# --- The process of the store.

def memory(which):
    """Returns this process's VmRSS or VmHWM in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return int(line.split()[1]) * 1024


def count_connections(port):
    rows = [line.split() for table in ("tcp", "tcp6")
            for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def start_agents(agents):
    """Starts the processes of the agents; returns the pipes to them."""
    context = multiprocessing.get_context("fork")  # because importing PyTorch takes seconds
    bounds = [agents * part // PROCESSES for part in range(PROCESSES + 1)]
    pipes = []
    for first, end in zip(bounds, bounds[1:]):
        ours, theirs = context.Pipe()
        context.Process(target=be_agents, args=(theirs, first, end, agents), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    return pipes


def be_store(agents):
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(TIMED_OUT))
    signal.alarm(LIMIT_S)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pipes = start_agents(agents)
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)

    def tell_all(what):
        for pipe in pipes:
            pipe.send(what)

    def hear_all():
        return [pipe.recv() for pipe in pipes]

    CLEAR_REFS.write_text(RESET_PEAK)
    rss_before = memory("VmRSS")
    begin = time.monotonic()
    tell_all(store.port)
    hear_all()
    connect_s = time.monotonic() - begin
    connections = count_connections(store.port) - 1  # one connection is the store's own
    if connections != agents:
        sys.exit(f"{connections} connections instead of {agents}")
    rss_connected = memory("VmRSS")
    begin = time.monotonic()
    tell_all("join")
    joined, done = (max(times) for times in zip(*hear_all()))
    print(json.dumps({"agents": agents, "connections": connections, "connect_s": connect_s, "assigned_s": joined - begin,
                      "total_s": done - begin, "rss_bytes": rss_connected - rss_before,
                      "peak_rss_bytes": memory("VmHWM") - rss_before}))
    tell_all("end")


if __name__ == "__main__":
    be_store(int(sys.argv[1]))
