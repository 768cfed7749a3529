"""Runs dslaunch-style-program."""

import os
import subprocess

PROGRAM = os.path.join(os.environ["DSLAUNCH_BUILD_DIR"], "tests", "dslaunch-style-program")
TIMEOUT_S = 120


def run(case, ranks, **variables):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH", "HOROVOD_")) and k not in ("RANK", "WORLD_SIZE")}
    return subprocess.run([PROGRAM, case, str(ranks)], env=dict(kept, OMP_NUM_THREADS="1", **variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
