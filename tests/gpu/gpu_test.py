"""Tests dslaunch-train on a GPU against the CPU, on an NVIDIA GPU or on the stand-in of tests/support/standin_gpu.
Skipped without a GPU, or if this trainer was built without CUDA."""

import json
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "trainer"))
from gpu_case import SKIPPED, gpus, is_standin, why_not  # noqa: E402
from spawn import Job, recipe, run_with_metrics, steps_of  # noqa: E402

UNAVAILABLE, TIMED_OUT = 69, 75
TEXT = b"".join(b"line %d of a text that a very small model can learn by heart.\n" % (i % 7) for i in range(400))
GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
STEPS = 30  # more than the warm-up of a graph


class GpuCase(unittest.TestCase):
    def setUp(self):
        file = tempfile.NamedTemporaryFile()
        self.addCleanup(file.close)
        file.write(TEXT)
        file.flush()
        self.text = file.name

    def gpt2(self, device, engine=None, **model):
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.0078125}},
                        engine={"train_batch_size": 12, **(engine or {})},
                        run={"steps": STEPS, "seed": 3, "device": device})
        return dict(wanted, model={**GPT2, **model}, data={"type": "text", "path": self.text})

    def run_on(self, device, wanted):
        with_device = dict(wanted, run=dict(wanted["run"], device=device))
        ranks, steps = run_with_metrics(with_device, 1)
        self.assertEqual("computes on" in ranks[0].out, device == "cuda", ranks[0].out)
        return [step["loss"] for step in steps], [step["grad_norm"] for step in steps]

    def assert_close(self, ours, theirs, relative):
        for a, b in zip(ours, theirs, strict=True):
            self.assertLessEqual(abs(a - b), relative * abs(b), (ours, theirs))


class Training(GpuCase):
    def test_matches_cpu(self):
        for stage in (0, 1, 2):
            with self.subTest(stage=stage):
                wanted = self.gpt2("cpu", {"zero_optimization": {"stage": stage}})
                wanted["run"]["steps"] = 12  # the losses rise again later, and rounding errors grow
                for ours, theirs in zip(self.run_on("cuda", wanted), self.run_on("cpu", wanted)):
                    self.assert_close(ours, theirs, 1e-3)

    def test_graph_matches_steps_without_graph(self):
        for engine in ({"bf16": {"enabled": True}}, {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
                       {"train_batch_size": 24, "gradient_accumulation_steps": 2}):
            for dropout in (0, 0.1) if "gradient_accumulation_steps" not in engine else (0,):
                with self.subTest(engine=engine, dropout=dropout):
                    wanted = self.gpt2("cuda", engine, resid_pdrop=dropout)
                    plain, _ = self.run_on("cuda", wanted)
                    wanted["engine"]["cuda_graph"] = True
                    graphed, _ = self.run_on("cuda", wanted)
                    if dropout:
                        # A recording has one seed for the whole step, unlike steps without a graph, so the random
                        # numbers differ.
                        self.assertNotEqual(graphed, plain)
                        self.assertAlmostEqual(sum(plain[-5:]) / 5, sum(graphed[-5:]) / 5, delta=0.1 * plain[-1])
                    else:
                        self.assert_close(graphed, plain, 1e-3)

    def test_fp16_with_loss_scale_matches_cpu(self):
        wanted = self.gpt2("cpu", {"fp16": {"enabled": True, "initial_scale_power": 10}})
        wanted["run"]["steps"] = 12  # 16-bit rounding dominates later
        losses, _ = self.run_on("cuda", wanted)
        self.assertLess(losses[-1], 0.6 * losses[0])
        self.assert_close(losses, self.run_on("cpu", wanted)[0], 2e-3)

    def test_image_model_matches_cpu(self):
        wanted = recipe(model="cnn", run={"steps": 10, "seed": 7})
        self.assert_close(self.run_on("cuda", wanted)[0], self.run_on("cpu", wanted)[0], 2e-2)


class Profile(GpuCase):
    STEPS, RECORDED = 16, 3

    def profile_of(self, **environment):
        """Returns the profile, and the metrics of the last steps.
        The last steps include the recorded ones. Only the profile makes them wait for the device."""
        wanted = self.gpt2("cuda", {"steps_per_print": self.STEPS})
        wanted["run"].update(steps=self.STEPS, profile={"wait": 9, "warmup": 1, "active": self.RECORDED})
        with tempfile.TemporaryDirectory() as folder:
            with Job(wanted, 1, env_of_rank={0: {"DSLAUNCH_RANK_DIR": folder, **environment}}) as job:
                ended = job.finish()[0]
            self.assertEqual((ended.code, ended.err), (0, ""))
            with open(os.path.join(folder, "profile.json")) as file:
                profile = json.load(file)
            with open(os.path.join(folder, "metrics.jsonl")) as lines:
                last = next(one for one in steps_of(lines) if one["step"] > 9 + self.RECORDED)
        self.assertGreater(last["steps"], self.RECORDED + 1, last)
        return profile, last

    def test_profile_lasts_until_device_is_done(self):
        """The host issues all work of the steps long before the device is done."""
        if not is_standin():
            self.skipTest("a model so small keeps no GPU busy; its kernels are counted")
        profile, metrics = self.profile_of(STANDIN_DELAY_US="300")
        print("profile of %.3f s, a step of %.3f s" % (profile["wall_s"], metrics["step_s"]), flush=True)
        self.assertGreater(profile["wall_s"], 0.3 * self.RECORDED * metrics["step_s"])

    def test_profile_has_all_kernels_of_its_steps(self):
        if is_standin():
            self.skipTest("the stand-in's operations are not recorded as a device's")
        profile, _ = self.profile_of()
        calls = {row["name"]: row["calls"] for row in profile["operators"]}
        for name in ("cross_entropy_gradient_float", "layer_norm_gradients", "gelu_gradient_float"):
            layers = {"layer_norm_gradients": 2 * GPT2["n_layer"] + 1, "gelu_gradient_float": GPT2["n_layer"]}.get(name, 1)
            self.assertEqual(calls.get(name), self.RECORDED * layers, name)


class Checkpoints(GpuCase):
    """Tests that a job may resume on another kind of device."""

    def test_resumes_on_other_device(self):
        for first, second in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
            for stage in (0, 3):
                with self.subTest(first=first, second=second, stage=stage), tempfile.TemporaryDirectory() as folder:
                    wanted = self.gpt2(first, {"zero_optimization": {"stage": stage}})
                    wanted["run"].update(steps=8)
                    straight, _ = self.run_on(second, wanted)
                    wanted["run"].update(checkpoint_dir=folder, steps=4)
                    self.run_on(first, wanted)
                    wanted["run"].update(steps=8)
                    rest, _ = self.run_on(second, wanted)
                    self.assert_close(rest, straight[4:], 1e-4)


class Trouble(GpuCase):
    def test_reports_out_of_memory(self):
        if not is_standin():
            self.skipTest("a GPU's memory is as large as it is")
        wanted = self.gpt2("cuda", n_embd=256)
        with Job(wanted, 1, env_of_rank={0: {"STANDIN_BYTES": "20000000"}}) as job:
            ended = job.finish()[0]
        self.assertEqual(ended.code, UNAVAILABLE, ended.err)
        self.assertRegex(ended.err, r"^dslaunch-train: rank 0: out of memory: .*--plan_memory.*\n$")

    def test_times_out_if_lost_peer_is_not_detected(self):
        """Loses a rank without a sign of its end, as over NVLink, so only the timeout can end the job."""
        if not is_standin():
            self.skipTest("whether a GPU notices depends on how it is connected")
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        wanted = recipe(run={"steps": 10_000_000, "seed": 1, "device": "cuda", "collective_timeout_s": 3})
        with Job(wanted, 2, env_of_rank={0: {"STANDIN_HANG": "1"}}) as job:
            job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
            job.processes[1].kill()
            ended = job.finish(60)[0]
        # The first collective that needs the lost rank may be on the CPU.
        self.assertIn(ended.code, (TIMED_OUT, UNAVAILABLE), ended.err)
        self.assertRegex(ended.err, r"^dslaunch-train: rank 0: another rank (did not answer in time|was lost).*\n$")

    def test_rejects_more_ranks_than_gpus(self):
        count = gpus()
        with Job(self.gpt2("cuda", {"train_batch_size": 12 * (count + 1)}), count + 1,
                 env_of_rank={rank: {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))}
                              for rank in range(count + 1)}) as job:
            job.wait_for(lambda: job.processes[count].poll() is not None, 60, "the last rank ended")
            self.assertEqual(job.processes[count].returncode, UNAVAILABLE)
            self.assertTrue(re.search(f"local rank {count} has no GPU", job.read(count, 1)), job.read(count, 1))


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
