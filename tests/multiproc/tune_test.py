"""Tests dslaunch tune with real trials on this machine.

Searches are interrupted after their first trials, because the time of a trial depends on other programs on this
machine. With DSLAUNCH_TEST_FULL=1 whole searches run too."""

import json
import os
import shutil
import signal
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, ROOT, TRAIN, LauncherCase, main  # noqa: E402

WHOLE_SEARCHES = unittest.skipUnless(os.environ.get("DSLAUNCH_TEST_FULL") == "1", "needs DSLAUNCH_TEST_FULL=1")
TWO_RANKS = ["--launcher", "local", "--num_gpus", "2", "--device", "cpu"]
RECIPE = {
    "model": {"type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2},
    "data": {"type": "text", "path": str(ROOT / "README.md")},
    "run": {"steps": 50},
    "engine": {"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}},
}
INTERRUPTED, USAGE, BAD_INPUT, UNAVAILABLE = 130, 64, 65, 69


class Tune(LauncherCase):
    def setUp(self):
        super().setUp()
        self.write(RECIPE)
        # One thread per rank, because two threads for each of two ranks make trials on few cores slow and their times
        # random.
        self.environment = {"OMP_NUM_THREADS": "1"}

    def write(self, recipe):
        (self.folder / "r.json").write_text(json.dumps(recipe))

    def tune(self, *options, launch=TWO_RANKS, code=0):
        got, job = self.run_job(launch, "tune", "r.json", "-o", "found.yaml", *options, env=self.environment,
                                timeout_s=240)
        self.assert_code(code, got, job)
        self.assert_presentable(job)
        self.assert_nothing_left()
        return job

    def tune_until(self, text, *options):
        """Interrupts a search when it has printed `text`. Checks that the search ends as interrupted."""
        job = self.start(TWO_RANKS, "tune", "r.json", "-o", "found.yaml", *options, env=self.environment)
        self.wait_for_output(job, text, timeout_s=120)
        job.signal(signal.SIGINT)
        self.assert_code(INTERRUPTED, self.wait(job, 30), job)
        self.assert_nothing_left()
        return job

    def train_found(self):
        code, trained = self.run_job(TWO_RANKS, "train", "found.yaml", "--steps", 3, timeout_s=60)
        self.assert_code(0, code, trained)
        self.assert_prints(trained, r"steps of 16 = ")

    def state(self):
        return json.loads((self.folder / "found.yaml.tune").read_text())["trials"]

    @WHOLE_SEARCHES
    def test_recipe_that_is_found_trains(self):
        job = self.tune("--budget", "60")
        self.assert_prints(job, r"micro-batch +ZeRO +recompute +offload +pipeline +tensor", r"the recipe; ",
                           r"(?m)^the search ended after", r"trial 2: .*\(predicted [\d.]+ ms\)")
        self.train_found()

    def test_search_is_resumed_without_repeating_trials(self):
        self.tune_until("trial 2: ")
        before = self.state()
        job = self.tune_until(f"trial {len(before) + 1}: ", "--json")
        self.assertIn(f"{len(before)} finished trials are taken from found.yaml.tune", job.stderr)
        after = self.state()
        self.assertGreater(len(after), len(before))
        for old, new in zip(before, after):
            self.assertEqual(old["steps_s"], new["steps_s"][:len(old["steps_s"])])
        self.assertEqual(after, json.loads(job.stdout)["trials"])

    def test_interrupt_ends_trial_and_prints_what_was_found(self):
        job = self.tune_until("trial 2: ")
        self.assert_prints(job, r"(?m)^the search ended after .*: it was interrupted$", "the recipe is in found.yaml")
        self.assertGreaterEqual(len(self.state()), 2)
        self.train_found()

    def test_terminate_before_any_trial_leaves_nothing(self):
        job = self.start(TWO_RANKS, "tune", "r.json", "-o", "found.yaml", env=self.environment)
        self.wait_for_files(job, "state/dslaunch/jobs/*", 1)
        job.signal(signal.SIGTERM)
        self.assert_code(143, self.wait(job, 30), job)
        self.assert_nothing_left()
        self.assertFalse((self.folder / "found.yaml").exists())

    def test_killed_search_leaves_no_job(self):
        job = self.start(TWO_RANKS, "tune", "r.json", "-o", "found.yaml", env=self.environment)
        self.wait_for_output(job, "trial 1: ", timeout_s=60)
        job.signal(signal.SIGKILL)
        self.wait(job, 10)
        self.assert_nothing_left(within_s=30)

    def tree_with_trainer(self, script):
        """Returns the path of a dslaunch whose trainer is a shell script. The script finds the real trainer in
        $TRAINER."""
        tree = self.folder / "tree"
        (tree / "bin").mkdir(parents=True)
        for name in ("dslaunch", "dslaunch-agent"):
            shutil.copy2(BUILD / "bin" / name, tree / "bin" / name)
        (tree / "lib").symlink_to(BUILD / "lib")
        (tree / "share").symlink_to(BUILD / "share")
        trainer = tree / "bin" / "dslaunch-train"
        trainer.write_text(f"#!/bin/sh\nTRAINER={TRAIN}\n" + script)
        trainer.chmod(0o755)
        return tree / "bin" / "dslaunch"

    def test_out_of_memory_and_failures_are_rows(self):
        dslaunch = self.tree_with_trainer("""
case "$DSLAUNCH_RECIPE" in
  *'"stage":1'*'"mode":"trial"'*) echo "dslaunch-train: rank $RANK: out of memory: of the test" >&2; exit 69 ;;
  *'"stages":2'*'"mode":"trial"'*) echo "dslaunch-train: rank $RANK: no pipelines here" >&2; exit 70 ;;
esac
exec "$TRAINER" "$@"
""")
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen([str(dslaunch), *argv[1:]], *rest, **files)
        job = self.tune_until("out of memory: of the test", "--json")
        trials = json.loads(job.stdout)["trials"]
        zero_1 = [trial for trial in trials if trial["zero_stage"] == 1]
        self.assertTrue(zero_1, trials)
        for trial in zero_1:
            self.assertEqual("out_of_memory", trial["end"], trial)
            self.assertIn("out of memory: of the test", trial["cause"])
        for trial in trials:
            if trial["pipeline"] == 2:
                self.assertEqual("failed", trial["end"], trial)
                self.assertIn("no pipelines here", trial["cause"])
        self.assertIn("measured", [trial["end"] for trial in trials])

    def test_rejects_wrong_input_in_one_line(self):
        for launch, options, code, says in (
                (TWO_RANKS, ["--budget", "0"], USAGE, "--budget must be seconds"),
                (TWO_RANKS, ["--set", "engine.train_batch_size=3"], BAD_INPUT, "no whole solution"),
                (TWO_RANKS, ["--set", "data.path=missing.txt"], BAD_INPUT, "missing.txt"),
                (TWO_RANKS + ["--detach"], [], USAGE, "leave --detach out"),
                (["--no_ssh", "--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1"], [], USAGE,
                 "give it a hostfile"),
                (["--nnodes", "1:2", "--launcher", "local"], [], USAGE, "")):
            with self.subTest(options or launch):
                job = self.tune(*options, launch=launch, code=code)
                self.assertEqual("", job.stdout)
                last = job.stderr.strip().splitlines()[-1]
                self.assertTrue(last.startswith("dslaunch: "), job.stderr)
                self.assertIn(says, last)

    def test_keeps_files_of_other_programs(self):
        (self.folder / "found.yaml").write_text("mine\n")
        job = self.tune(code=USAGE)
        self.assertIn("found.yaml exists and is not from a search", job.stderr)
        self.assertEqual("mine\n", (self.folder / "found.yaml").read_text())
        (self.folder / "found.yaml.tune").write_text("{}")
        self.assertIn("is no state of dslaunch tune", self.tune(code=BAD_INPUT).stderr)

    def test_rejects_state_of_another_recipe(self):
        self.tune_until("trial 1: ")
        self.write({**RECIPE, "engine": {**RECIPE["engine"], "train_batch_size": 8}})
        self.assertIn("another recipe", self.tune(code=BAD_INPUT).stderr)

    @WHOLE_SEARCHES
    def test_autotuning_run_trains_with_what_it_finds(self):
        code, job = self.run_job(TWO_RANKS, "--autotuning", "run", "train", "r.json", "--steps", 4, timeout_s=240,
                                 env=self.environment)
        self.assert_code(0, code, job)
        self.assert_prints(job, r"(?m)^the search ended after", r"training gpt2 .* 4 steps of 16")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
