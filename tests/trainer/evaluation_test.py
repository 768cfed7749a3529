"""Tests that the evaluations printed by a run equal those of --eval_only on the checkpoints of the same steps.
Covers every mode in which the ranks' weights or buffers differ, after every step of a period."""

import csv
import glob
import json
import os
import re
import shutil
import tempfile
import unittest

from spawn import Job, recipe, run

STEPS = 5  # more than the longest period, which is 3 steps
APART = {"broadcast_buffers": False}
STALE = {"mode": "parameter_server", "servers": 2, "staleness": 1}


def parallel(mode, **keys):
    return {"parallel": {"mode": mode, **keys}}


def one_bit(kind, **params):
    return {"optimizer": {"type": kind, "params": {"lr": 0.01, **params}}}


def stages(zero=0):
    return {"pipeline": {"stages": 2, "partition": "uniform"}, "zero_optimization": {"stage": zero}}


# Engine keys and number of ranks of each mode.
MODES = {
    "LocalSGD": (parallel("local_sgd", inner_steps=3), 2),
    "LocalSGD, own buffers, 3 ranks": ({**parallel("local_sgd", inner_steps=2), **APART}, 3),
    "LocalSGD with masters": ({**parallel("local_sgd", inner_steps=3), "bf16": {"enabled": True}}, 2),
    "DiLoCo": (parallel("diloco", inner_steps=3), 2),
    "DiLoCo with masters, own buffers": ({**parallel("diloco", inner_steps=2), "bf16": {"enabled": True}, **APART}, 2),
    "0/1 Adam": (one_bit("ZeroOneAdam", var_freeze_step=1, local_step_scaler=2, local_step_clipper=4), 2),
    "0/1 Adam, own buffers": ({**one_bit("ZeroOneAdam", var_freeze_step=2, local_step_scaler=2, local_step_clipper=4),
                               **APART}, 2),
    "1-bit Adam, own buffers": ({**one_bit("OneBitAdam", freeze_step=2), **APART}, 2),
    "1-bit LAMB, own buffers": ({**one_bit("OneBitLamb", freeze_step=2), **APART}, 2),
    "PowerSGD": (parallel("powersgd", start_powerSGD_iter=2), 2),
    "PowerSGD, own buffers": ({**parallel("powersgd", start_powerSGD_iter=2), **APART}, 2),
    "own buffers": (APART, 2),
    "own buffers, bf16": ({**APART, "bf16": {"enabled": True}}, 2),
    "own buffers, ZeRO 1": ({**APART, "zero_optimization": {"stage": 1}}, 2),
    "own buffers, ZeRO 2": ({**APART, "zero_optimization": {"stage": 2}}, 2),
    "own buffers, ZeRO 3": ({**APART, "zero_optimization": {"stage": 3}}, 2),
    "parameter server, own buffers": ({**parallel("parameter_server"), **APART}, 2),
    "stale parameter server": ({"parallel": STALE}, 3),
    "stale parameter server, own buffers": ({"parallel": STALE, **APART}, 3),
    "pipeline": (stages(), 2),
    "pipeline of two replicas": (stages(), 4),
    "pipeline of two replicas, own buffers": ({**stages(), **APART}, 4),
    "pipeline of two replicas, own buffers, ZeRO 1": ({**stages(1), **APART}, 4),
}


class EvaluationTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def whole(self, engine, folder, **run_keys):
        wanted = recipe(engine={"train_batch_size": 24, **engine},
                        run={"steps": STEPS, "seed": 3, "checkpoint_dir": os.path.join(folder, "saved"), "save_every": 1,
                             "keep_checkpoints": STEPS + 1, **run_keys})
        wanted["model"] = {"type": "plugin", "path": os.environ["DSLAUNCH_NORMED_MODEL"]}
        if "optimizer" not in engine:
            wanted["engine"]["optimizer"] = {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}
        return wanted

    def evaluations(self, file):
        """Returns the results in the metrics file, with all digits, by step."""
        with open(file) as lines:
            records = [json.loads(line) for line in lines]
        return {record["step"]: record["eval"] for record in records if "eval" in record}

    def printed(self, out):
        """Returns the printed results, by step."""
        found = re.findall(r"^(?:step (\d+): )?test (.*)$", out, re.M)
        return {int(step or STEPS): text for step, text in found}

    def check(self, engine, ranks):
        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            metrics = os.path.join(folder, "metrics.jsonl")
            for each in (trained := run(self.whole(engine, folder, eval_every=1, metrics_jsonl=metrics), ranks)):
                self.assertEqual((each.code, each.err), (0, ""))
            # Every digit is equal if the same number of ranks divides the samples. With stale servers, only the servers
            # divide them.
            stale = engine.get("parallel", {}).get("staleness") is not None
            evaluators = engine["parallel"]["servers"] if stale else ranks
            shown, written = self.printed(trained[0].out), self.evaluations(metrics)
            self.assertEqual(sorted(shown), list(range(1, STEPS + 1)), trained[0].out)
            self.assertEqual(sorted(written), sorted(shown))
            self.assertEqual(len(set(written[step]["loss"] for step in written)), STEPS, "each step changes them")
            for step in shown:
                again = os.path.join(folder, "again_%d.jsonl" % step)
                evaluated = run(self.whole(engine, folder, mode="evaluate", resume="step_%06d" % step, metrics_jsonl=again),
                                evaluators)
                self.assertEqual((evaluated[0].code, evaluated[0].err), (0, ""))
                self.assertEqual(self.printed(evaluated[0].out), {STEPS: shown[step]}, "step %d" % step)
                self.assertEqual(self.evaluations(again), {step: written[step]}, "step %d" % step)

    def test_evaluation_does_not_change_training(self):
        """After an evaluation, each rank must get its own weights and buffers back."""
        for mode in ("LocalSGD, own buffers, 3 ranks", "DiLoCo with masters, own buffers", "0/1 Adam, own buffers",
                     "pipeline of two replicas, own buffers"):
            engine, ranks = MODES[mode]
            losses = []
            for keys in {}, {"eval_every": 1}:
                with self.subTest(mode=mode), tempfile.TemporaryDirectory(dir=self.dir) as folder:
                    file = os.path.join(folder, "metrics.jsonl")
                    for each in run(self.whole(engine, folder, metrics_jsonl=file, **keys), ranks):
                        self.assertEqual((each.code, each.err), (0, ""))
                    with open(file) as lines:
                        losses.append([record["loss"] for record in map(json.loads, lines) if "loss" in record])
            self.assertEqual(losses[0], losses[1], mode)

    def test_all_outputs_have_same_numbers(self):
        """Compares the outputs that monitors read, the job's status (ps, top, --json) and the report."""
        engine = {**MODES["LocalSGD"][0], "csv_monitor": {"enabled": True, "output_path": self.dir, "job_name": "it"}}
        place = {"DSLAUNCH_RANK_DIR": self.dir}
        metrics = os.path.join(self.dir, "run.jsonl")
        wanted = self.whole(engine, self.dir, eval_every=1, metrics_jsonl=metrics)
        with Job(wanted, 2, env_of_rank={0: place}) as job:
            ranks = job.finish()
        self.assertEqual([each.code for each in ranks], [0, 0], ranks[0].err)
        written = self.evaluations(metrics)
        self.assertEqual(self.evaluations(os.path.join(self.dir, "metrics.jsonl")), written, "of the report")
        for step, results in written.items():
            self.assertRegex(self.printed(ranks[0].out)[step], r"\b%.4f\b" % results["loss"])
        file, = glob.glob(os.path.join(self.dir, "it", "Eval_Samples_loss.csv"))
        with open(file) as rows:
            values = [float(row[1]) for row in list(csv.reader(rows))[1:]]
        self.assertEqual(len(values), STEPS)
        for value, step in zip(values, sorted(written), strict=True):
            self.assertAlmostEqual(value, written[step]["loss"], delta=1e-6 * value)
        status = [json.loads(line) for line in ranks[0].status.splitlines()]
        last = [line for line in status if line.get("event") == "eval"][-1]
        for name, value in written[STEPS].items():
            self.assertAlmostEqual(last[name], value, delta=1e-6 * abs(value), msg=name)


def add_tests():
    for number, (mode, (engine, ranks)) in enumerate(MODES.items()):
        name = "test_%02d_%s" % (number, re.sub(r"\W+", "_", mode))
        setattr(EvaluationTest, name, lambda self, engine=engine, ranks=ranks: self.check(engine, ranks))


add_tests()

if __name__ == "__main__":
    unittest.main()
