"""Tests training through dslaunch whose ranks, agents and supervisors are killed. It must continue from copies in
memory or from the disk, as if nothing had been killed. DSLAUNCH_TEST_FULL=1 kills more often."""

import collections
import json
import os
import random
import re
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TEST_DATA, LauncherCase, is_agent_binary, main, wait_until  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
RANKS, EVERY, SAVE_EVERY = 2, 10, 60
VICTIMS = ("rank", "ranks twice", "agent", "supervisor")
ROUNDS = 6 if FULL else 1  # each round kills every kind of victim once
STEPS = 700 * ROUNDS
SPARES = 2 * ROUNDS  # because a node is lost with its agent, and with its supervisor
QUICK = ["--heartbeat_s", "0.1", "--suspect_s", "0.6", "--dead_s", "2", "--grace", "1", "--restart_delay_s", "0.2"]
CONTINUES = re.compile(r"the ranks continue after step (\d+), from (copies in memory|the disk)(?:; (\d+) steps? (?:is|are) repeated)?")


class TrainingMemory(LauncherCase):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 32)
        print("seed", self.seed, flush=True)
        self.random = random.Random(self.seed)

    def train(self, name, **run):
        """Starts the training `name`, with spares; returns the Job."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "recipe.json").write_text(json.dumps({
            "model": {"type": "mlp", "hidden_size": 512}, "data": {"type": "idx", "path": str(TEST_DATA)},
            "run": {"steps": STEPS, "seed": 5, "device": "cpu", "metrics_jsonl": str(folder / "metrics.jsonl"),
                    "checkpoint_dir": str(folder / "saves"), "save_every": SAVE_EVERY, **run},
            "engine": {"train_batch_size": 64, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
                       "zero_optimization": {"stage": 1}}}))
        hosts = [f"n{i} slots=1{' spare=true' if i >= RANKS else ''}\n" for i in range(RANKS + SPARES)]
        (folder / "hosts").write_text("".join(hosts))
        return self.start("--launcher", "local", "--hostfile", folder / "hosts", "--max_restarts", 100, QUICK, "train",
                          folder / "recipe.json", env={"OMP_NUM_THREADS": "1"})

    def steps(self, name):
        """Returns (attempt, step, loss) of each step in the metrics file."""
        path = self.folder / name / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [(record["attempt"], record["step"], record["loss"]) for record in map(json.loads, lines) if "eval" not in record]

    def weights(self, name):
        folder = self.folder / name / "saves" / f"step_{STEPS:06d}"
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}

    def rank(self, number, but=()):
        """Returns the process of a rank, once there is one that is not in `but`."""
        def found():
            return next((process for process in self.leftovers() if process.name == "dslaunch-train" and process.pid not in but
                         and process.environ.get("RANK") == str(number)), None)
        wait_until(lambda: found() or not self.last_job.running(), 20)
        return found()

    def kill(self, victim):
        """Kills the processes of a victim. Returns the number of attempts that end by this."""
        number = self.random.randrange(RANKS)
        if victim == "ranks twice":  # kills the second process as soon as the next attempt has started it
            first = self.rank(number)
            os.kill(first.pid, signal.SIGKILL)
            second = self.rank(number, but={first.pid})
            os.kill(second.pid, signal.SIGKILL)
            return 2
        # The node of the last rank is killed, because it does not host the rendezvous.
        process = self.rank(RANKS - 1 if victim in ("agent", "supervisor") else number)
        pid = {"rank": process.pid, "supervisor": process.ppid}.get(victim) or next(
            other.pid for other in self.leftovers() if other.ppid == process.ppid and is_agent_binary(other))
        os.kill(pid, signal.SIGKILL)
        return 1

    def test_kills_of_any_process_change_no_step(self):
        job = self.train("undisturbed")
        self.assert_code(0, self.wait(job, 120), job)
        losses = {step: loss for _, step, loss in self.steps("undisturbed")}
        victims = self.random.sample(VICTIMS * ROUNDS, len(VICTIMS) * ROUNDS)
        job, attempt, made, killed = self.train("killed", memory_checkpoint=EVERY), 1, 0, {}
        for victim in victims:
            wanted = made + self.random.randint(EVERY, 3 * EVERY)
            wait_until(lambda: any(at == attempt and step >= wanted for at, step, _ in self.steps("killed")) or not job.running(), 60)
            if not job.running():
                break  # a fast machine may already have finished
            made = max(step for _, step, _ in self.steps("killed"))
            killed.update(dict.fromkeys(range(attempt + 1, attempt + 1 + self.kill(victim)), victim))
            attempt = max(killed)
        self.assert_code(0, self.wait(job, 120), job)
        self.assertGreater(len(killed), 1, job.output)
        with self.subTest(seed=self.seed, victims=victims):
            self.assertEqual({step: loss for _, step, loss in self.steps("killed")}, losses)
            self.assertEqual([], [(at, step) for at, step, loss in self.steps("killed") if loss != losses[step]])
            self.assertEqual(self.weights("killed").keys(), self.weights("undisturbed").keys())
            for name, content in self.weights("undisturbed").items():
                self.assertTrue(self.weights("killed")[name] == content, f"{name} differs")
            sources = self.check_starts(job, killed)
            print("attempts after kills of", list(killed.values()), "continued from", dict(sources), flush=True)
        self.assert_nothing_left()

    def check_starts(self, job, killed):
        """Checks the source from which each attempt continued: copies in memory if its nodes have them, with at most
        EVERY steps repeated, otherwise the disk."""
        made = collections.Counter(attempt for attempt, _, _ in self.steps("killed"))
        sources, attempt, nodes, copied_on = collections.Counter(), 1, "n0, n1", ""
        for line in job.stderr.splitlines():
            if begun := re.search(r"attempt (\d+): (.*) get ranks", line):
                if made[attempt] > EVERY:
                    copied_on = nodes
                attempt, nodes = int(begun[1]), begun[2]
                if killed.get(attempt) in ("agent", "supervisor"):
                    copied_on = ""
            if not (found := CONTINUES.search(line)):
                continue
            sources[found[2]] += 1
            # A node that has returned, or that has failed too often, may change which nodes get ranks.
            have_copies = nodes == copied_on
            self.assertEqual("copies in memory" if have_copies else "the disk", found[2], f"attempt {attempt}\n{job.output}")
            if have_copies:
                self.assertLessEqual(int(found[3] or 0), EVERY, line)
        self.assertGreater(sources.total(), 0, job.output)
        return sources


if __name__ == "__main__":
    main()
