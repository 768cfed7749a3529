"""Runs as a rank of the soak. Arguments: FOLDER (on the disk that all hosts share) and SECONDS.

A rank holds the lock on its number. An earlier attempt's rank with the same number may still hold the lock for SECONDS.
The rank waits for FOLDER/go, reports its end, and exits with 0. On SIGTERM it exits with 143.
"""

import fcntl
import os
import pathlib
import signal
import sys
import time

folder, patience_s = pathlib.Path(sys.argv[1]), float(sys.argv[2])
rank = os.environ["RANK"]
name = f"{os.environ['DSLAUNCH_ATTEMPT']}.{rank}.{os.environ['WORLD_SIZE']}"

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
signal.signal(signal.SIGINT, signal.SIG_IGN)
(folder / f"up.{name}").touch()
with open(folder / f"owner.{rank}", "a") as owner:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                (folder / f"two_owners.{name}").touch()
                break
        time.sleep(0.05)
    while not (folder / "go").exists():
        time.sleep(0.05)
    (folder / f"done.{name}").touch()
