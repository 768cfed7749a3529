"""Starts the ranks of a job as an agent does: one process each, with its position in environment variables."""

import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import start_once  # noqa: E402
from free_ports import held_port  # noqa: E402

WHOLE_DATA = "/usr/share/datasets/fashion-mnist"
# Data of recipes. By default only a part is used, because decompressing the whole would dominate a short run.
DATA = os.environ.get("TEST_DATA", WHOLE_DATA)
TRAIN = os.environ["DSLAUNCH_TRAIN"]
UNAVAILABLE = 69  # exit code of a rank that lost another rank
DEVICE = os.environ.get("TEST_DEVICE")  # device of recipes that do not set a device


class Rank:
    """Result of one rank: its exit code (negative for a signal), its output, and the lines of its status pipe."""

    def __init__(self, code, out, err, status):
        self.code, self.out, self.err, self.status = code, out, err, status


def recipe(model="mlp", optimizer=None, engine=None, run=None, data=None):
    """Returns a recipe as the launcher would pass it."""
    result = {
        "model": {"type": model},
        "data": {"type": "idx", "path": DATA},
        "run": run or {"steps": 20, "seed": 7},
        "engine": {"train_batch_size": 256, "optimizer": optimizer or {"type": "SGD", "params": {"lr": 0.05}}},
    }
    result["data"].update(data or {})
    result["engine"].update(engine or {})
    return result


def device_of(text):
    """Returns run.device of a recipe, which may have any value; None if it is missing."""
    try:
        return json.loads(text)["run"].get("device")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def on_test_device(recipe_json):
    """Returns the recipe, with DEVICE unless it sets a device itself."""
    if DEVICE is None or not isinstance(recipe_json, dict) or not isinstance(recipe_json.get("run"), dict):
        return recipe_json
    return {**recipe_json, "run": {"device": DEVICE, **recipe_json["run"]}}


def environment(rank, world, local_world, port):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH"))}
    env.update({
        "RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % local_world), "LOCAL_WORLD_SIZE": str(local_world),
        "GROUP_RANK": str(rank // local_world), "GROUP_WORLD_SIZE": str(world // local_world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    })
    return env


class Job:
    """The started ranks of a job. A context manager that kills remaining ranks at its end."""

    def __init__(self, recipe_json, world, local_world=None, recipe_of_rank=None, env_of_rank=None, fds_of_rank=None):
        self.holder, port = held_port()
        self.processes, self.files = [], []
        for rank in range(world):
            text = json.dumps(on_test_device((recipe_of_rank or {}).get(rank, recipe_json)))
            env = environment(rank, world, local_world or world, port)
            if device_of(text) != "cuda":
                env["CUDA_VISIBLE_DEVICES"] = ""  # because compared results are computed on the CPU
            env.update((env_of_rank or {}).get(rank, {}))
            out, err, status = (tempfile.TemporaryFile("w+") for _ in range(3))
            self.files.append((out, err, status))
            env["DSLAUNCH_RECIPE"] = text
            env["DSLAUNCH_STATUS_FD"] = str(status.fileno())
            fds = [status.fileno(), *(fds_of_rank or {}).get(rank, [])]
            self.processes.append(start_once.start([TRAIN], env, out, err, pass_fds=fds))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for files in self.files:
            for file in files:
                file.close()
        self.holder.close()

    def read(self, rank, stream):
        """Returns the output of `rank` so far. `stream`: 0 for stdout, 1 for stderr, 2 for the status pipe."""
        file = self.files[rank][stream]
        return os.pread(file.fileno(), 1 << 24, 0).decode()

    def wait_for(self, condition, timeout_s, what):
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError("after %g s still not: %s\n%s" % (
                    timeout_s, what, "".join(self.read(r, 1) for r in range(len(self.processes)))))
            time.sleep(0.01)

    def finish(self, timeout_s=120):
        """Waits for every rank and returns the Rank of each."""
        self.wait_for(lambda: all(p.poll() is not None for p in self.processes), timeout_s, "all ranks ended")
        return [Rank(p.returncode, self.read(r, 0), self.read(r, 1), self.read(r, 2))
                for r, p in enumerate(self.processes)]


def run(recipe_json, world=1, local_world=None, timeout_s=120):
    with Job(recipe_json, world, local_world) as job:
        return job.finish(timeout_s)


def assert_refused(case, ranks, code, *words):
    """Asserts that every rank exited with `code` and printed one line, which contains `words`."""
    for rank in ranks:
        case.assertEqual(rank.code, code, rank.err)
        case.assertEqual(rank.err.count("\n"), 1, rank.err)
        for word in words:
            case.assertIn(word, rank.err)


def assert_killed_and_lost(case, ranks, victim):
    """Asserts that `victim` was killed and that all other ranks report the loss."""
    for number, rank in enumerate(ranks):
        if number == victim:
            case.assertEqual(rank.code, -signal.SIGKILL)
        else:
            case.assertEqual(rank.code, UNAVAILABLE, rank.err)
            case.assertIn("another rank was lost", rank.err)


def steps_of(lines):
    """Returns the steps among the lines of a metrics.jsonl, without its evaluations."""
    return [record for record in map(json.loads, lines) if "eval" not in record]


def run_with_metrics(recipe_json, world, local_world=None):
    """Runs to success and returns (ranks, metrics of every step)."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "metrics.jsonl")
        whole = dict(recipe_json, run=dict(recipe_json["run"], metrics_jsonl=file))
        ranks = run(whole, world, local_world)
        for rank in ranks:
            assert rank.code == 0 and rank.err == "", (rank.code, rank.err)
        with open(file) as lines:
            return ranks, steps_of(lines)
