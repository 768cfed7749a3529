"""Runs as a rank of the kill matrix. Arguments: FOLDER (on the disk that all hosts share) and MODE.

Each rank starts a grandchild in its own session, writes FOLDER/up.RANK, and then waits:
wait      for FOLDER/go, and exits with 0
half      for FOLDER/half only, in ranks with an even number
teardown  for FOLDER/half only, in all ranks; the grandchildren ignore SIGTERM, so the teardown takes the whole grace
On SIGTERM a rank writes the time into FOLDER/term.RANK and exits. More arguments: `wipe` empties the grandchild's
environment, so that only a cgroup or its parents show its job. With `lines` the rank writes lines all the time, and
ignores a full disk. With `copies` it writes into both files of DSLAUNCH_MEMORY_FDS all the time.
"""

import contextlib
import os
import signal
import sys
import time

folder, mode, *more = sys.argv[1:]
rank = os.environ["RANK"]


def stamp(name):
    with open(f"{folder}/.{name}.{rank}", "w") as file:
        file.write(repr(time.time()))
    os.rename(f"{folder}/.{name}.{rank}", f"{folder}/{name}.{rank}")


def on_term(*_):
    stamp("term")
    os._exit(0)


def start_grandchild():
    ready, started = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if mode == "teardown":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.execve("/bin/sleep", ["matrix-grandchild", "600"], {} if "wipe" in more else dict(os.environ))
        os.close(started)
        os.read(ready, 1)  # waits for end of file at the exec, before which the process looks like a rank
        os._exit(0)
    os.close(started)
    os.read(ready, 1)
    os.wait()


start_grandchild()
signal.signal(signal.SIGTERM, on_term)
stamp("up")
waits_for = "half" if mode == "teardown" or (mode == "half" and int(rank) % 2 == 0) else "go"
while not os.path.exists(f"{folder}/{waits_for}"):
    if "lines" in more:
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), b"a line\n")
    if "copies" in more:
        for fd in os.environ["DSLAUNCH_MEMORY_FDS"].split(","):
            os.pwrite(int(fd), os.urandom(1 << 20), 0)
    else:
        time.sleep(0.03)
