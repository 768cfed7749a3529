"""Tests the functions of dslaunch-train other than training steps: it evaluates, predicts, plans memory, and stops
early on request."""

import json
import math
import os
import random
import re
import shutil
import signal
import tempfile
import time
import unittest

from inputs import samples_of
from spawn import Job, assert_refused, recipe, run, steps_of

BAD_INPUT, PREEMPTED = 65, 85
TEXT = b"".join(b"line %d of a text that a very small model can learn by heart.\n" % (i % 7) for i in range(400))
GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
NO_DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
SAMPLES = samples_of("t10k")
ACCURACY = r"test accuracy \d\d\.\d\d%% \((\d+) of %d\), loss (\d+\.\d{4})" % SAMPLES


class ProgramCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def text_recipe(self, run_keys, engine=None, model=None, data=None, text=TEXT):
        with open(self.path("text"), "wb") as file:
            file.write(text)
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.003}}, engine={"train_batch_size": 12, **(engine or {})},
                        run={"seed": 3, **run_keys})
        return dict(wanted, model={**GPT2, **(model or {})},
                    data={"type": "text", "path": self.path("text"), "val_fraction": 0.1, **(data or {})})

    def metrics(self):
        with open(self.path("metrics.jsonl")) as lines:
            return steps_of(lines)

    def evaluations(self):
        with open(self.path("metrics.jsonl")) as lines:
            return [record for record in map(json.loads, lines) if "eval" in record]

    def good(self, wanted, world=1):
        """Runs to success and returns rank 0's stdout."""
        ranks = run(wanted, world)
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (0, ""))
        self.assertEqual([rank.out for rank in ranks[1:]], [""] * (world - 1))
        return ranks[0].out

    def good_metrics(self, wanted, world=1):
        if os.path.exists(self.path("metrics.jsonl")):
            os.unlink(self.path("metrics.jsonl"))
        self.good(dict(wanted, run=dict(wanted["run"], metrics_jsonl=self.path("metrics.jsonl"))), world)
        return self.metrics()

    def refused(self, wanted, *words, world=1):
        assert_refused(self, run(wanted, world), BAD_INPUT, *words)


class EvaluateTest(ProgramCase):
    def test_evaluates_each_sample_once_on_any_ranks(self):
        trained = self.good(recipe(run={"steps": 60, "seed": 7, "checkpoint_dir": self.path("c")}), 2)
        correct, loss = re.search(ACCURACY, trained).groups()
        before = sorted(os.listdir(self.path("c")))
        for world in (1, 3):
            # Seed, batch size and optimizer differ from the training, because only the weights matter.
            out = self.good(recipe(run={"mode": "evaluate", "seed": 8, "checkpoint_dir": self.path("c")},
                                   engine={"train_batch_size": 300}, optimizer={"type": "AdamW"}), world)
            self.assertRegex(out, "^weights from %s\n%s\n$" % (re.escape(self.path("c", "step_000060")), ACCURACY))
            again, loss_again = re.search(ACCURACY, out).groups()
            self.assertLessEqual(abs(int(again) - int(correct)), 2)  # tolerance for samples at the decision boundary
            self.assertLess(abs(float(loss_again) - float(loss)), 2e-4)
        self.assertEqual(sorted(os.listdir(self.path("c"))), before)
        weights = self.path("c", "step_000060", "model.safetensors")
        self.assertIn("(%s of %d)" % (correct, SAMPLES), self.good(recipe(run={"mode": "evaluate", "init_weights": weights}), 2))

    def test_writes_results_as_data(self):
        self.good(recipe(run={"steps": 4, "eval_every": 2, "seed": 7, "checkpoint_dir": self.path("c"),
                              "metrics_jsonl": self.path("metrics.jsonl")}), 2)
        records = self.evaluations()
        self.assertEqual([record["step"] for record in records], [2, 4])
        os.unlink(self.path("metrics.jsonl"))
        ranks = run(recipe(run={"mode": "evaluate", "checkpoint_dir": self.path("c"),
                                "metrics_jsonl": self.path("metrics.jsonl")}), 1)
        record, = self.evaluations()
        self.assertEqual(record["step"], 4)
        self.assertEqual(set(record["eval"]), {"loss", "accuracy", "correct", "samples"})
        self.assertLess(abs(record["eval"]["loss"] - records[1]["eval"]["loss"]), 1e-4)
        correct, loss = re.search(ACCURACY, ranks[0].out).groups()
        self.assertEqual(record["eval"]["correct"], int(correct))
        told = json.loads(ranks[0].status.splitlines()[-1])
        self.assertEqual((told["event"], told["step"], told["correct"]), ("eval", 4, int(correct)))

    def test_reports_skipped_checkpoints_and_weights(self):
        self.good(recipe(run={"steps": 4, "save_every": 2, "seed": 7, "checkpoint_dir": self.path("c")}))
        os.truncate(self.path("c", "step_000004", "model.safetensors"), 100)
        evaluates = self.good(recipe(run={"mode": "evaluate", "checkpoint_dir": self.path("c")}))
        self.assertIn("weights from %s; skipped step_000004: " % self.path("c", "step_000002"), evaluates.splitlines()[0])
        weights = self.path("c", "step_000002", "model.safetensors")
        both = run(recipe(run={"mode": "predict", "checkpoint_dir": self.path("c"), "init_weights": weights}), 1)[0]
        self.assertRegex(both.err, r"\Aweights from .*step_000002; skipped step_000004: .*; run.init_weights \(.*\) is not used\n\Z")
        other = run(recipe(run={"mode": "predict", "checkpoint_dir": self.path("none"), "init_weights": weights}), 1)[0]
        self.assertEqual(other.err, "weights from %s; no weights: no checkpoint in %s yet\n" % (weights, self.path("none")))

    def test_rejects_evaluation_without_weights(self):
        self.refused(recipe(run={"mode": "evaluate"}), "--checkpoint_dir", "--init_weights")
        self.refused(recipe(run={"mode": "evaluate", "checkpoint_dir": self.path("none")}), self.path("none"), world=2)

    def test_prints_perplexity_of_text(self):
        out = self.good(self.text_recipe({"steps": 30, "eval_every": 15}), 2)
        lines = re.findall(r"(?m)^(step 15: )?test perplexity (\S+), loss (\S+) \((\d+) tokens\)$", out)
        self.assertEqual(len(lines), 2, out)
        self.assertLess(float(lines[1][2]), float(lines[0][2]))
        for line in lines:
            self.assertLess(abs(math.exp(float(line[2])) - float(line[1])), 0.01 * float(line[1]))
            self.assertGreater(int(line[3]), 1000)
        # Without shuffling, the number of ranks must not change the results, although 3 ranks do not divide the samples
        # evenly.
        self.assertEqual(len({re.search(r"\((\d+) tokens\)", line)[1] for line in out.splitlines() if "tokens)" in line}), 1)

    def test_reports_missing_evaluation_data(self):
        wanted = self.text_recipe({"steps": 2, "eval_every": 1}, data={"val_fraction": 0})
        self.assertEqual(self.good(wanted).count("no evaluation data; give data.val_path or data.val_fraction"), 1)
        self.refused(dict(wanted, run={"mode": "evaluate", "init_weights": "x"}), self.path("text"), "data.val_fraction")


class PredictTest(ProgramCase):
    def answers(self, wanted, world=1, *said):
        """Runs to success and returns rank 0's stdout, which contains only the answers. Checks that stderr contains
        `said` after the line about the weights."""
        ranks = run(wanted, world)
        self.assertEqual([(rank.code, rank.out, rank.err) for rank in ranks[1:]], [(0, "", "")] * (world - 1))
        self.assertEqual(ranks[0].code, 0, ranks[0].err)
        weights, *rest = ranks[0].err.splitlines()
        self.assertRegex(weights, r"^weights from ")
        self.assertEqual(rest, list(said))
        return ranks[0].out

    def test_predicts_in_dataset_order_on_any_ranks(self):
        trained = self.good(recipe(run={"steps": 60, "seed": 7, "checkpoint_dir": self.path("c")}), 1)
        correct = int(re.search(ACCURACY, trained)[1])
        results = []
        for world in (1, 2, 3):
            wanted = recipe(run={"mode": "predict", "checkpoint_dir": self.path("c"), "predictions": self.path("p")},
                            engine={"train_batch_size": 6})
            self.assertEqual(self.answers(wanted, world, "%d predictions are written to %s" % (SAMPLES, self.path("p"))), "")
            with open(self.path("p")) as lines:
                results.append([json.loads(line) for line in lines])
            self.assertEqual(sorted(os.listdir(self.folder)), ["c", "p"])
        self.assertEqual([line["index"] for line in results[0]], list(range(SAMPLES)))
        from oracle import read_idx
        labels = read_idx("t10k-labels-idx1-ubyte").tolist()
        self.assertEqual(sum(line["prediction"] == label for line, label in zip(results[0], labels)), correct)
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                self.assertEqual(a["index"], b["index"])
                self.assertLess(abs(a["probability"] - b["probability"]), 1e-5)
                self.assertTrue(a["prediction"] == b["prediction"] or a["probability"] < 0.5)
        out = self.answers(recipe(run={"mode": "predict", "checkpoint_dir": self.path("c")}), 2)
        self.assertEqual([json.loads(line)["prediction"] for line in out.splitlines()],
                         [line["prediction"] for line in results[1]])

    def test_generates_text_from_prompt(self):
        self.good(self.text_recipe({"steps": 300, "checkpoint_dir": self.path("c")},
                                   engine={"train_batch_size": 32}, model={"n_embd": 32}))
        prompt = {"mode": "predict", "checkpoint_dir": self.path("c"), "prompt": "line 3 of a", "max_new_tokens": 30}
        memory = "the keys and values of 1 text of up to 16 tokens take 8.0 KiB"
        likeliest = self.answers(self.text_recipe(dict(prompt, temperature=0), model={"n_embd": 32}), 2, memory)
        self.assertEqual(len(likeliest.encode()), 11 + 30 + 1)
        self.assertTrue(likeliest.startswith("line 3 of a text that"), likeliest)
        kept = self.text_recipe(dict(prompt, temperature=0, predictions=self.path("p")), model={"n_embd": 32})
        self.assertEqual(self.answers(kept, 2, memory, "the text is written to " + self.path("p")), "")
        with open(self.path("p")) as file:
            self.assertEqual(file.read(), likeliest)
        drawn = [self.answers(self.text_recipe(dict(prompt, seed=seed, temperature=3), model={"n_embd": 32}), 1, memory)
                 for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_reads_exported_hugging_face_weights(self):
        out = self.good(self.text_recipe({"steps": 5, "export_hf": self.path("hf")}), 2)
        self.assertEqual(sorted(os.listdir(self.path("hf"))), ["config.json", "model.safetensors"])
        again = self.good(self.text_recipe({"mode": "evaluate", "init_weights": self.path("hf")}), 2)
        self.assertEqual(again.splitlines()[-1], [line for line in out.splitlines() if line.startswith("test")][0])


class DivergenceTest(ProgramCase):
    """Tests that a run that no longer learns exits with 65, reports the divergence, and keeps its good checkpoints."""

    def diverges(self, engine, optimizer, *words, steps=60, world=2):
        wanted = recipe(optimizer=optimizer, engine={"train_batch_size": 240, **engine},
                        run={"steps": steps, "seed": 7, "save_every": 1, "checkpoint_dir": self.path("c"),
                             "metrics_jsonl": self.path("metrics.jsonl")})
        self.refused(wanted, "try a lower learning rate", *words, world=world)
        return self.metrics()  # excludes the step that ended the run

    def test_bf16_run_ends_when_it_diverges(self):
        steps = self.diverges({"bf16": {"enabled": True}, "gradient_clipping": 0}, {"type": "SGD", "params": {"lr": 1e36}},
                              "training has diverged: the loss of rank ", "5 steps in a row made no update")
        self.assertEqual([step["skipped"] for step in steps[-4:]], [True] * 4)
        good = steps[-5]["step"]
        self.assertEqual(sorted(name for name in os.listdir(self.path("c")) if name.startswith("step"))[-1], "step_%06d" % good)

    def test_static_loss_scale_run_ends_when_it_overflows(self):
        steps = self.diverges({"fp16": {"enabled": True, "loss_scale": 2 ** 60}}, {"type": "SGD", "params": {"lr": 0.01}},
                              "5 steps in a row, from step 1 on, made no update, because a gradient is not finite")
        self.assertEqual([step["skipped"] for step in steps], [True] * 4)
        self.assertFalse([name for name in os.listdir(self.path("c")) if name.startswith("step")])

    def test_amp_o3_run_ends_when_it_diverges(self):
        # The learning rate exceeds fp16's range.
        for optimizer in ("SGD", "Lion"):
            with self.subTest(optimizer=optimizer):
                shutil.rmtree(self.path("c"), ignore_errors=True)
                steps = self.diverges({"amp": {"enabled": True, "opt_level": "O3"}}, {"type": optimizer, "params": {"lr": 1e6}},
                                      "training has diverged")
                self.assertLess(len(steps), 30)


class PreemptionTest(ProgramCase):
    def saving(self, steps, text=False, **keys):
        keys = {"steps": steps, "seed": 7, "checkpoint_dir": self.path("c"), "metrics_jsonl": self.path("metrics.jsonl"), **keys}
        if text:
            # The text model uses dropout, whose random numbers must continue too.
            return self.text_recipe(keys, engine={"gradient_accumulation_steps": 2})
        return recipe(optimizer={"type": "Adam", "params": {"lr": 0.001}}, engine={"train_batch_size": 240}, run=keys)

    def lines(self):
        try:
            with open(self.path("metrics.jsonl")) as lines:
                return sum(1 for _ in lines)
        except FileNotFoundError:
            return 0

    def check_stopped(self, ranks, reason):
        """Checks that all ranks stopped for `reason`. Returns the step after which they stopped."""
        steps = set()
        for number, rank in enumerate(ranks):
            self.assertEqual(rank.code, PREEMPTED, rank.err)
            match = re.match(r"dslaunch-train: rank %d: stopped after step (\d+) of \d+: (.*); the checkpoint is saved in %s; "
                             r"start again to continue\n$" % (number, re.escape(self.path("c"))), rank.err)
            self.assertTrue(match, rank.err)
            self.assertRegex(match[2], reason)
            steps.add(int(match[1]))
        step, = steps
        with open(self.path("c", "latest")) as latest:
            self.assertEqual(latest.read(), "step_%06d" % step)
        self.assertNotIn("test ", ranks[0].out, "it evaluated although it was to stop")
        return step

    def check_sigterm(self, victims, world, reason, text, tolerance=0):
        with Job(self.saving(1_000_000, text), world) as job:
            job.wait_for(lambda: self.lines() >= 20, 60, "the first steps are done")
            for victim in victims:
                job.processes[victim].send_signal(signal.SIGTERM)
            step = self.check_stopped(job.finish(8), reason)
        self.assertEqual(self.metrics()[-1]["step"], step)
        self.good(self.saving(step + 10, text), world)
        stopped = self.metrics()
        shutil.rmtree(self.path("c"))
        os.unlink(self.path("metrics.jsonl"))
        self.good(self.saving(step + 10, text), world)
        for a, b in zip(stopped, self.metrics(), strict=True):
            self.assertEqual([a[key] for key in ("step", "epoch", "samples", "tokens")],
                             [b[key] for key in ("step", "epoch", "samples", "tokens")])
            for key in ("loss", "grad_norm"):
                self.assertLessEqual(abs(a[key] - b[key]), tolerance * b[key], (a, b))

    def test_all_ranks_stop_when_one_gets_sigterm(self):
        self.check_sigterm([1], 2, r"^SIGTERM \(rank 1\)$", text=True)

    def test_stops_when_all_ranks_get_sigterm(self):
        # The tolerance is needed because three ranks may sum in another order.
        self.check_sigterm([0, 1, 2], 3, r"^SIGTERM \(rank [012]\)$", text=False, tolerance=1e-4)

    def test_stops_soon_without_metrics(self):
        """Without metrics, the ranks exchange nothing after most steps."""
        wanted = self.saving(100_000_000)
        del wanted["run"]["metrics_jsonl"]
        with Job(wanted, 2) as job:
            job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
            time.sleep(0.5)
            job.processes[1].send_signal(signal.SIGTERM)
            job.processes[1].send_signal(signal.SIGTERM)
            self.check_stopped(job.finish(8), r"^SIGTERM \(rank 1\)$")

    def test_stop_interrupts_long_evaluation(self):
        wanted = self.saving(1_000_000, text=True, eval_every=1)
        wanted["data"]["val_fraction"] = 0.99
        wanted["engine"]["train_batch_size"] = 2
        with open(self.path("text"), "wb") as file:
            file.write(TEXT * 100)
        with Job(wanted, 1) as job:
            job.wait_for(lambda: self.lines() >= 1, 60, "the first step is done")
            job.processes[0].send_signal(signal.SIGTERM)
            self.assertEqual(self.check_stopped(job.finish(8), "SIGTERM"), 1)

    def test_ranks_have_no_new_privileges(self):
        with Job(recipe(run={"steps": 100_000_000, "seed": 1}), 1) as job:
            job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
            with open("/proc/%d/status" % job.processes[0].pid) as file:
                self.assertIn("NoNewPrivs:\t1\n", file.read())

    def test_stops_at_time_limit(self):
        ranks = run(self.saving(100_000_000, time_limit_s=1), 2, timeout_s=60)
        self.check_stopped(ranks, r"^run.time_limit_s$")
        self.refused(recipe(run={"steps": 5, "time_limit_s": 1}), "run.time_limit_s", "--checkpoint_dir")

    def test_sigterm_ends_run_without_checkpoints_at_once(self):
        with Job(recipe(run={"steps": 100_000_000, "seed": 1}), 1) as job:
            job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
            job.processes[0].send_signal(signal.SIGTERM)
            self.assertEqual(job.finish(8)[0].code, -signal.SIGTERM)


class TrainingTest(ProgramCase):
    def test_weighs_each_token_equally(self):
        """Each rank has 11 samples in micro-batches of 2, 3 per step, so the second step's last micro-batch has only
        one sample. Its tokens must have the same weight as in a single micro-batch."""
        for world in (1, 2):
            text = random.Random(5).randbytes(11 * world * 16 + 1)

            def metrics(micro, accumulation, normalization):
                engine = {"train_batch_size": 6 * world, "train_micro_batch_size_per_gpu": micro,
                          "gradient_accumulation_steps": accumulation}
                return self.good_metrics(
                    self.text_recipe({"steps": 2, "loss_normalization": normalization}, engine, NO_DROPOUT,
                                     {"val_fraction": 0, "shuffle": False}, text), world)

            whole, parts, means = metrics(6, 1, "micro_batch"), metrics(2, 3, "tokens"), metrics(2, 3, "micro_batch")
            self.assertEqual([step["tokens"] for step in whole], [6 * world * 16, 11 * world * 16])
            for a, b in zip(whole, parts, strict=True):
                for key in ("loss", "grad_norm"):
                    self.assertLess(abs(a[key] - b[key]), 1e-5 * a[key], (key, world))
            self.assertGreater(abs(whole[1]["grad_norm"] - means[1]["grad_norm"]), 1e-4 * whole[1]["grad_norm"])

    def test_weighs_each_sample_equally(self):
        """Each rank has 11 rows of a table, in micro-batches of 2 or in one micro-batch per step. Each row must have
        the same weight."""
        for world in (1, 2):
            draw = random.Random(6)
            with open(self.path("rows.csv"), "w") as file:
                for _ in range(11 * world):
                    file.write(",".join(f"{draw.gauss(0, 1):.4f}" for _ in range(5)) + f",{draw.randrange(3)}\n")

            def metrics(micro, accumulation, normalization):
                return self.good_metrics(recipe(
                    data={"type": "csv", "path": self.path("rows.csv"), "shuffle": False},
                    engine={"train_batch_size": 6 * world, "train_micro_batch_size_per_gpu": micro,
                            "gradient_accumulation_steps": accumulation},
                    run={"steps": 2, "seed": 1, "loss_normalization": normalization}), world)

            whole, parts, means = metrics(6, 1, "micro_batch"), metrics(2, 3, "samples"), metrics(2, 3, "micro_batch")
            self.assertEqual([step["samples"] for step in whole], [6 * world, 11 * world])
            for a, b in zip(whole, parts, strict=True):
                for key in ("loss", "grad_norm"):
                    self.assertLess(abs(a[key] - b[key]), 1e-5 * a[key], (key, world))
            self.assertGreater(abs(whole[1]["grad_norm"] - means[1]["grad_norm"]), 1e-4 * whole[1]["grad_norm"])

    def test_reports_micro_batches_left_out_of_last_step(self):
        with open(self.path("rows.csv"), "w") as file:
            file.write("0.5,1\n" * 11)

        def out(**length):
            return self.good(recipe(data={"type": "csv", "path": self.path("rows.csv")}, run=length,
                                    engine={"train_batch_size": 8, "gradient_accumulation_steps": 4}), 1)

        self.assertIn("the last 2 of the run's micro-batches do not make a step of 4 and are left out", out(epochs=1))
        self.assertNotIn("left out", out(steps=2))

    def test_reports_warm_up_longer_than_run(self):
        def engine(name, **params):
            return {"train_batch_size": 240, "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
                    "scheduler": {"type": name, "params": {"warmup_type": "linear", **params}}}

        out = self.good(recipe(engine=engine("WarmupLR"), run={"steps": 11}), 1)
        self.assertIn("the warm-up of 1000 steps (scheduler.params.warmup_num_steps) is not over after the run's 11: the "
                      "learning rate of the last step is 0.0045", out)
        self.assertNotIn("warm-up", self.good(recipe(engine=engine("WarmupLR", warmup_num_steps=5), run={"steps": 11}), 1))

    def test_writes_metrics_of_steps_and_memory(self):
        first, *_, last = self.good_metrics(self.text_recipe({"steps": 5}), 2)
        self.assertEqual((last["step"], last["samples"], last["tokens"]), (5, 60, 60 * 16))
        self.assertGreater(last["tokens_per_s"], 0)
        self.assertEqual((first["loss_scale"], first["skipped"]), (1, False))
        memory = last["memory"]
        self.assertEqual(set(memory), {"parameters", "gradients", "buckets", "optimizer", "buffers", "activations", "peak_rss"})
        self.assertEqual(memory["optimizer"], 2 * memory["parameters"])
        self.assertGreater(memory["peak_rss"], 50 << 20)

    def test_reports_skipped_steps(self):
        wanted = recipe(engine={"fp16": {"enabled": True, "initial_scale_power": 30, "hysteresis": 1}},
                        run={"steps": 20, "seed": 7, "metrics_jsonl": self.path("metrics.jsonl")})
        out = self.good(wanted, 2)
        skipped = [step["step"] for step in self.metrics() if step["skipped"]]
        self.assertGreater(len(skipped), 0)
        self.assertLess(len(skipped), 20)
        self.assertEqual([int(step) for step in re.findall(r"(?m)^step (\d+) was skipped: .*loss scale", out)], skipped)
        self.assertEqual(self.metrics()[0]["loss_scale"], 2 ** 30)

    def test_predicts_measured_memory(self):
        small = {"reduce_bucket_size": 3000, "stage3_param_persistence_threshold": 100}
        for engine in ({}, {"bf16": {"enabled": True}}, {"gradient_accumulation_steps": 2},
                       *({"bf16": {"enabled": True}, "zero_optimization": {"stage": stage, **small}} for stage in (1, 2, 3))):
            with self.subTest(engine=engine):
                out = self.good(self.text_recipe({"steps": 3}, engine={**engine, "memory_breakdown": True}), 2)
                rows = re.findall(r"(?m)^  (parameters|gradients|buckets|optimizer and masters|buffers) +(\S+ \S+) +(\S+ \S+)$", out)
                self.assertEqual(len(rows), 5, out)
                self.assertRegex(out, r"(?m)^  activations +[1-9]\d*\.\d KiB$")
                for name, predicted, actual in rows:
                    if name == "buckets" and "zero_optimization" in engine:  # the plan is only an upper bound
                        self.assertLessEqual(float(actual.split()[0]), float(predicted.split()[0]), out)
                    else:
                        self.assertEqual(predicted, actual, (name, out))
        plan = self.good(self.text_recipe({"mode": "plan_memory"}), 2)
        self.assertRegex(plan, r"(?m)^  parameters +\d+\.\d KiB$")
        self.assertRegex(plan, r"(?m)^  passes +\d+\.\d KiB$")
        self.assertRegex(plan, r"(?m)^2 ranks, 2 on a node: .* together; this machine has .* GiB, which is enough$")
        self.assertNotIn("training", plan)

    def test_plans_memory_of_any_number_of_ranks(self):
        engine = {"train_batch_size": None, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
        out = self.path("plan.jsonl")
        for ranks in (1, 4, 1000):
            wanted = self.text_recipe({"mode": "plan_memory", "ranks": ranks, "ranks_per_node": 8, "metrics_jsonl": out}, engine)
            del wanted["engine"]["train_batch_size"]
            self.assertIn(f"{ranks} rank", self.good(wanted, 1))
        with open(out) as lines:
            plans = [json.loads(line)["plan"] for line in lines]
        self.assertEqual([plan["ranks"] for plan in plans], [1, 4, 1000])
        self.assertEqual(plans[0]["optimizer"], 4 * plans[1]["optimizer"])
        self.refused(recipe(run={"steps": 1, "ranks": 4}), "run.ranks", "plan_memory")

    def test_compare_precision_reports_progress(self):
        ranks = run(recipe(engine={"train_batch_size": 240}, run={"mode": "compare_precision", "steps": 3}), 2)
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (0, ""))
            steps = [line for line in map(json.loads, rank.status.splitlines()) if line["event"] == "step"]
            self.assertEqual((steps[-1]["step"], steps[-1]["total_steps"]), (9, 9))

    def test_log_level_warning_omits_notices(self):
        engine = {"train_batch_size": 240}
        self.assertIn("training mlp", self.good(recipe(engine=engine, run={"steps": 3}), 2))
        quiet = self.good(recipe(engine=dict(engine, log_level="warning", steps_per_print=3), run={"steps": 3}), 2)
        self.assertRegex(quiet, r"\Astep 3/3: [^\n]*\ntest accuracy [^\n]*\n\Z")

    def test_compares_replicas(self):
        self.good(recipe("cnn", engine={"train_batch_size": 48}, run={"steps": 6, "check_replicas_every": 2}), 3)

    def test_deterministic_runs_are_bitwise_equal(self):
        wanted = recipe("cnn", run={"steps": 5, "seed": 1, "deterministic": True})
        runs = [[(step["loss"], step["grad_norm"]) for step in self.good_metrics(wanted, 2)] for _ in range(2)]
        self.assertEqual(runs[0], runs[1])


if __name__ == "__main__":
    unittest.main()
