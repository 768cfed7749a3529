"""Runs dslaunch-style-program."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import start_once  # noqa: E402

PROGRAM = os.path.join(os.environ["DSLAUNCH_BUILD_DIR"], "tests", "dslaunch-style-program")
TIMEOUT_S = 120


def run(case, ranks, **variables):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH", "HOROVOD_")) and k not in ("RANK", "WORLD_SIZE")}
    return start_once.run([PROGRAM, case, str(ranks)], env=dict(kept, OMP_NUM_THREADS="1", **variables), timeout=TIMEOUT_S)
