"""What the ranks of the kill matrix run: FOLDER (on the disk that all hosts share) and MODE.

Each rank starts a grandchild in a session of its own, writes FOLDER/up.RANK, and then waits:
  wait      for FOLDER/go, and ends with 0
  half      with an even rank: for FOLDER/half only
  teardown  every rank for FOLDER/half only; the grandchildren ignore SIGTERM, so the teardown takes the whole grace
On SIGTERM it writes the time into FOLDER/term.RANK and ends. `wipe` as another argument empties the grandchild's
environment, so that nothing but a cgroup or its parents tells whose it is; with `lines` the rank writes some all the time,
and does not mind a full disk.
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
        os.read(ready, 1)  # end of file: until then it could be taken for a rank
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
    time.sleep(0.03)
