"""Tests that a stopped and resumed run computes the same as an uninterrupted run, and that no kill leaves an invalid
checkpoint."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import tempfile
import time
import unittest
import zlib

import torch

from inputs import samples_of, write_idx_part, write_text
from spawn import Job, assert_refused, recipe, run, steps_of

BAD_INPUT, IO, UNAVAILABLE, PREEMPTED = 65, 74, 69, 85
OPTIMIZERS = {
    "adam": {"type": "Adam", "params": {"lr": 0.002, "weight_decay": 0.01}},
    "momentum": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "dampening": 0.1}},
    "plain": {"type": "SGD", "params": {"lr": 0.05}},
    "amsgrad": {"type": "AdamW", "params": {"torch_adam": True, "amsgrad": True},
                "param_groups": [{"names": ["*.bias"], "weight_decay": 0, "lr": 0.003}]},
    "adagrad": {"type": "Adagrad", "params": {"lr_decay": 0.01, "initial_accumulator_value": 0.1}},
    "rmsprop": {"type": "RMSprop", "params": {"lr": 1e-4, "momentum": 0.9, "centered": True}},
    "lamb": {"type": "Lamb", "params": {"weight_decay": 0.01}},
    "lion": {"type": "Lion", "params": {"lr": 1e-4}},
}
# Every schedule still changes after 10 steps, so a schedule that restarts would give other rates.
SCHEDULES = {
    "adam": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-3, "cycle_first_step_size": 12}},
    "momentum": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 12, "total_num_steps": 20}},
    "amsgrad": {"type": "WarmupLR", "params": {"warmup_num_steps": 15}},
    "adagrad": {"type": "CosineAnnealingWarmRestarts", "params": {"T_0": 7, "T_mult": 2}},
    "rmsprop": {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 1e-5, "lr_range_test_step_size": 5}},
    "lamb": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5, "total_num_steps": 20}},
    "lion": {"type": "StepLR", "params": {"step_size": 7}},
}
TORCH = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U8": torch.uint8}


def read_safetensors(file):
    """Reads a safetensors file, independently of the trainer. Returns its tensors by name."""
    with open(file, "rb") as stream:
        content = stream.read()
    size, = struct.unpack("<Q", content[:8])
    tensors = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        begin, end = entry["data_offsets"]
        data = bytearray(content[8 + size + begin:8 + size + end])
        tensors[name] = torch.frombuffer(data, dtype=TORCH[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def read_kind(folder, kind):
    """Returns a checkpoint's tensors of one kind, assembled from all ranks' files according to the manifest."""
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    files = {entry["name"]: read_safetensors(os.path.join(folder, entry["name"]))
             for entry in manifest["files"] if re.match(kind + r"(-\d{5}-of-\d{5})?\.safetensors$", entry["name"])}
    tensors = {}
    for tensor in manifest["tensors"]:
        if any(s["file"] in files for s in tensor["slices"]):
            parts = [files[s["file"]][tensor["name"]].flatten() for s in tensor["slices"]]
            assert [len(p) for p in parts] == [s["end"] - s["start"] for s in tensor["slices"]]
            tensors[tensor["name"]] = torch.cat(parts).reshape(tensor["shape"])
    return tensors


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.dir = os.path.join(self.folder, "checkpoints")

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def recipe(self, steps, optimizer="adam", engine=None, model="mlp", **run_keys):
        keys = dict({"steps": steps, "seed": 7, "metrics_jsonl": os.path.join(self.folder, "metrics.jsonl")}, **run_keys)
        return recipe(model, OPTIMIZERS[optimizer], engine, keys)

    def saving(self, steps, **keys):
        return self.recipe(steps, checkpoint_dir=self.dir, **keys)

    def good(self, wanted, world):
        """Runs to success. Returns rank 0's stdout and the metrics that this run appended."""
        file = wanted["run"]["metrics_jsonl"]
        before = os.path.getsize(file) if os.path.exists(file) else 0
        ranks = run(wanted, world)
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (0, ""))
        with open(file) as lines:
            lines.seek(before)
            return ranks[0].out, steps_of(lines)

    def assert_same(self, wanted, got, tolerance):
        self.assertEqual([m["step"] for m in wanted], [m["step"] for m in got])
        for a, b in zip(wanted, got):
            for key in ("loss", "grad_norm", "lr"):
                self.assertLessEqual(abs(a[key] - b[key]), tolerance * abs(a[key]), (a, b))
            self.assertEqual((a["samples"], a["epoch"]), (b["samples"], b["epoch"]))

    def check_resume(self, first_world, second_world, tolerance, **keys):
        _, whole = self.good(self.recipe(20, **keys), first_world)
        self.good(self.saving(10, **keys), first_world)
        out, rest = self.good(self.saving(20, **keys), second_world)
        self.assertIn("resuming from " + self.path("step_000010"), out)
        self.assert_same(whole[10:], rest, tolerance)

    def test_resumes_exactly_on_as_many_ranks(self):
        self.check_resume(2, 2, 0)

    def test_resumes_momentum(self):
        self.check_resume(1, 1, 0, optimizer="momentum")

    def test_resumes_every_optimizer_and_schedule(self):
        for name, scheduler in SCHEDULES.items():
            with self.subTest(optimizer=name, scheduler=scheduler["type"]):
                shutil.rmtree(self.dir, ignore_errors=True)
                self.check_resume(1, 1, 0, optimizer=name, engine={"scheduler": scheduler})

    def test_resumes_on_fewer_ranks(self):
        self.check_resume(4, 2, 1e-5)

    def test_resumes_on_more_ranks_within_accumulation(self):
        # An epoch has 13 1/3 micro-batches, so the first epoch ends within the fifth step.
        micro = samples_of("train") // 40 * 3
        engine = {"train_batch_size": 3 * micro, "gradient_accumulation_steps": 3}
        _, whole = self.good(self.recipe(8, engine=engine), 1)
        self.good(self.saving(4, engine=engine), 1)
        _, rest = self.good(self.saving(8, engine=engine), 3)
        self.assert_same(whole[4:], rest, 1e-5)

    def sources(self):
        """Returns a model and 60 samples for each type of data."""
        write_idx_part(self.folder, {"train": 60, "t10k": 8})
        text, csv = os.path.join(self.folder, "text.bin"), os.path.join(self.folder, "numbers.csv")
        write_text(text, 60 * 16 + 1)
        with open(csv, "w") as file:
            file.writelines("%d,%d,%d\n" % (i % 7, i % 11, i % 3) for i in range(60))
        with open(text, "rb") as words, open(os.path.join(self.folder, "tokens.bin"), "wb") as file:
            file.write(b"".join(struct.pack("<H", word) for word in words.read()))
        mlp = {"type": "mlp", "hidden_size": 8}
        gpt2 = {"type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 256,
                "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return {
            "idx": (mlp, {"type": "idx", "path": self.folder}),
            "csv": (mlp, {"type": "csv", "path": csv, "label_column": 2}),
            "text": (gpt2, {"type": "text", "path": text, "block_size": 16}),
            "tokens": (gpt2, {"type": "tokens", "path": os.path.join(self.folder, "tokens.bin"), "block_size": 16}),
            "plugin": (mlp, {"type": "plugin", "plugin": os.environ["DSLAUNCH_MISTAKEN_DATA"], "name": "mistaken",
                             "params": {"size": 60}}),
        }

    def test_reads_samples_once_with_other_batch_or_ranks(self):
        # The learning rate leaves the weights unchanged, so the sum of an epoch's losses does not depend on which rank
        # reads a sample.
        def losses(world, batch, before, **length):
            engine = {"train_batch_size": batch, "optimizer": {"type": "SGD", "params": {"lr": 1e-30}}}
            wanted = dict(self.saving(0, engine=engine), model=model, data=dict(data, shuffle=shuffle))
            del wanted["run"]["steps"]
            wanted["run"].update(length)
            _, metrics = self.good(wanted, world)
            total = 0
            for step in metrics:
                total += step["loss"] * (step["samples"] - before)
                before = step["samples"]
            return before, total
        for kind, (model, data) in self.sources().items():
            for world, batch, shuffle in (1, 12, True), (2, 12, False), (4, 8, True):
                with self.subTest(data=kind, world=world, batch=batch):
                    sums = []
                    for splits in False, True:
                        shutil.rmtree(self.dir, ignore_errors=True)
                        read, done = losses(1, 4, 0, steps=5) if splits else (0, 0)
                        read, left = losses(world, batch, read, epochs=1)
                        self.assertEqual(read, 60)
                        sums.append(done + left)
                    self.assertLess(abs(sums[1] - sums[0]), 1e-5 * sums[0])

    def test_writes_manifest_weights_and_state(self):
        self.good(self.saving(6, save_every=2), 2)
        self.assertEqual(sorted(os.listdir(self.dir)), ["latest", "lease.json", "step_000004", "step_000006"])
        with open(self.path("latest")) as file:
            self.assertEqual(file.read(), "step_000006")
        weights = read_safetensors(self.path("step_000006", "model.safetensors"))
        self.assertEqual({name: tuple(t.shape) for name, t in weights.items()},
                         {"fc1.weight": (128, 784), "fc1.bias": (128,), "fc2.weight": (10, 128), "fc2.bias": (10,)})
        state = read_safetensors(self.path("step_000006", "optimizer.safetensors"))
        self.assertEqual(sorted({name.split("/")[1] for name in state}), ["exp_avg", "exp_avg_sq"])
        self.assertEqual(state["optimizer/exp_avg/fc1.weight"].shape, (128, 784))
        with open(self.path("step_000006", "manifest.json")) as file:
            manifest = json.load(file)
        self.assertEqual((manifest["step"], manifest["samples_seen"], manifest["world_size"]), (6, 6 * 256, 2))
        for entry in manifest["files"]:
            with open(self.path("step_000006", entry["name"]), "rb") as file:
                content = file.read()
            self.assertEqual((len(content), zlib.crc32(content)), (entry["bytes"], entry["crc32"]), entry["name"])

    def test_ranks_write_parts_of_large_state(self):
        wide = lambda wanted: dict(wanted, model={"type": "mlp", "hidden_size": 2048},
                                   engine=dict(wanted["engine"], train_batch_size=384))
        self.good(wide(self.saving(2, optimizer="momentum")), 1)
        whole = {kind: read_kind(self.path("step_000002"), kind) for kind in ("model", "optimizer")}
        shutil.rmtree(self.dir)
        _, first = self.good(wide(self.recipe(4, optimizer="momentum")), 3)
        self.good(wide(self.saving(2, optimizer="momentum")), 3)
        folder = self.path("step_000002")
        self.assertEqual(sorted(os.listdir(folder)), sorted(
            ["manifest.json"] + ["%s-0000%d-of-00003.safetensors" % (kind, rank)
                                 for kind in ("model", "optimizer", "generator") for rank in (1, 2, 3)]))
        for kind in ("model", "optimizer"):
            tensors = read_kind(folder, kind)
            self.assertEqual(tensors.keys(), whole[kind].keys())
            for name, tensor in tensors.items():
                torch.testing.assert_close(tensor, whole[kind][name], rtol=1e-3, atol=1e-5)
            third = (2048 * 784 + 2048 + 2048 * 10 + 10) * 4 / 3
            for rank in (1, 2, 3):
                size = os.path.getsize(os.path.join(folder, "%s-0000%d-of-00003.safetensors" % (kind, rank)))
                self.assertLess(abs(size - third), 0.1 * third)
        _, rest = self.good(wide(self.saving(4, optimizer="momentum")), 3)
        self.assert_same(first[2:], rest, 1e-6)
        _, rest = self.good(wide(self.saving(4, optimizer="momentum", resume="step_000002")), 1)
        self.assert_same(first[2:], rest, 1e-5)

    def test_resumes_with_other_ranks_and_zero_stage(self):
        at_stage = lambda stage: {"train_batch_size": 384, "zero_optimization": {"stage": stage}}
        _, whole = self.good(self.recipe(8, engine=at_stage(0)), 1)
        for step, (world, stage) in enumerate(((3, 2), (2, 3), (1, 0), (2, 1)), 1):
            _, metrics = self.good(self.saving(2 * step, engine=at_stage(stage), async_save=world == 2), world)
            self.assert_same(whole[2 * step - 2:2 * step], metrics, 1e-5)

    def test_resumes_between_parameter_server_and_zero(self):
        at_stage = lambda stage: {"train_batch_size": 384, "zero_optimization": {"stage": stage}}
        server = {"train_batch_size": 384, "parallel": {"mode": "parameter_server", "servers": 1}}
        _, whole = self.good(self.recipe(20, engine=at_stage(0)), 2)
        for first, second, world in (server, at_stage(0), 2), (server, at_stage(3), 3), (at_stage(2), server, 2):
            with self.subTest(first=first, second=second):
                shutil.rmtree(self.dir, ignore_errors=True)
                self.good(self.saving(10, engine=first), 2)
                _, rest = self.good(self.saving(20, engine=second), world)
                self.assert_same(whole[10:], rest, 1e-5)

    def test_finished_run_trains_nothing(self):
        self.good(self.saving(3), 1)
        out, metrics = self.good(self.saving(3), 1)
        self.assertIn("nothing to train: 3 of 3 steps are done", out)
        self.assertEqual(metrics, [])

    def test_resumes_by_name_or_starts_with_none(self):
        self.good(self.saving(6, save_every=3), 1)
        _, by_name = self.good(self.saving(5, resume="step_000003"), 1)
        self.assertEqual([m["step"] for m in by_name], [4, 5])
        _, fresh = self.good(self.saving(2, resume="none"), 1)
        self.assertEqual([m["step"] for m in fresh], [1, 2])
        self.assertIn("step_000006", os.listdir(self.dir), "another run's checkpoints are not removed")
        out, _ = self.good(self.saving(3), 1)
        self.assertIn("step_000002", out, "the newest is the last one saved, not the highest step")

    def refused(self, wanted, code, *words, world=2):
        assert_refused(self, run(wanted, world), code, *words)

    def test_reports_and_skips_damaged_checkpoint(self):
        self.good(self.saving(6, save_every=3), 1)
        damaged = self.path("step_000006", "optimizer.safetensors")
        with open(damaged, "r+b") as file:
            file.seek(-1000, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1000, os.SEEK_END)
            file.write(bytes([byte[0] ^ 4]))
        self.refused(self.saving(7, resume="step_000006"), BAD_INPUT, damaged, "checksum")
        out, metrics = self.good(self.saving(7), 2)
        self.assertIn("resuming from " + self.path("step_000003") + "; skipped step_000006: " + damaged, out)
        self.assertEqual([m["step"] for m in metrics], [4, 5, 6, 7])
        self.assertIn("step_000003", os.listdir(self.dir), "a damaged checkpoint does not count among those kept")
        os.truncate(self.path("step_000007", "manifest.json"), 100)
        out, _ = self.good(self.saving(4), 1)
        self.assertRegex(out, r"resuming from \S+step_000003; skipped .*step_000007: .*manifest.json: its checksum")

    def test_fails_if_all_checkpoints_are_damaged(self):
        self.good(self.saving(3), 1)
        os.truncate(self.path("step_000003", "model.safetensors"), 100)
        self.refused(self.saving(5), BAD_INPUT, "model.safetensors", "--resume none")

    def test_rejects_another_model_optimizer_or_seed(self):
        self.good(self.saving(2), 1)
        self.refused(self.saving(4, model="cnn"), BAD_INPUT, "step_000002", "conv1.weight", "another model")
        self.refused(self.saving(4, optimizer="momentum"), BAD_INPUT, "the optimizer AdamW", "SGD")
        self.refused(self.saving(4, seed=8), BAD_INPUT, "seed 7", "--seed 7", "--load_module_only")
        in_order = self.saving(4)
        in_order["data"]["shuffle"] = False
        self.refused(in_order, BAD_INPUT, "data.shuffle true", "set data.shuffle=true", "--load_module_only")

    def test_resumes_with_other_optimizer_settings(self):
        self.good(self.saving(2, optimizer="momentum"), 1)
        out, _ = self.good(self.saving(4, optimizer="plain"), 2)
        self.assertRegex(out, r"this run does not need \d+ tensors of the optimizer's state, such as \S*momentum")
        out, metrics = self.good(self.saving(6, optimizer="momentum"), 2)
        self.assertRegex(out, r"the checkpoint lacks \d+ tensors of the optimizer's state, such as \S*momentum")
        self.assertEqual([m["step"] for m in metrics], [5, 6])

    def test_rejects_wrong_options(self):
        self.refused(self.recipe(2, save_every=1), BAD_INPUT, "run.save_every", "--checkpoint_dir")
        self.refused(self.saving(2, resume="../x"), BAD_INPUT, "run.resume", "../x")
        self.refused(self.saving(2, resume="step_000009"), BAD_INPUT, "step_000009", "none")
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        self.refused(dict(self.saving(2), run=dict(self.saving(2)["run"], checkpoint_dir=blocked + "/x")), IO, blocked,
                  world=1)

    def test_rejects_folders_that_are_not_shared(self):
        self.good(self.saving(2), 1)
        elsewhere = self.recipe(4, checkpoint_dir=os.path.join(self.folder, "empty"))
        with Job(elsewhere, 4, recipe_of_rank={rank: self.saving(4) for rank in (1, 2, 3)}) as job:
            for rank in job.finish(60):
                self.assertEqual(rank.code, BAD_INPUT, rank.err)
                self.assertIn("rank 0: none; ranks 1, 2, 3: step_000002", rank.err)
                self.assertIn("share", rank.err)

    def test_background_save_writes_same_files(self):
        kept = {}
        for name in ("sync", "async"):
            keys = dict(checkpoint_dir=os.path.join(self.folder, name), save_every=2, async_save=name == "async")
            _, metrics = self.good(self.recipe(6, **keys), 2)
            kept[name] = {"losses": [m["loss"] for m in metrics]}
            for tag in ("step_000004", "step_000006"):
                folder = os.path.join(self.folder, name, tag)
                for file in sorted(os.listdir(folder)):
                    if file != "manifest.json":
                        with open(os.path.join(folder, file), "rb") as stream:
                            kept[name][tag, file] = stream.read()
            with open(os.path.join(self.folder, name, "latest")) as file:
                self.assertEqual(file.read(), "step_000006")
        self.assertEqual(kept["sync"].keys(), kept["async"].keys())
        for key in kept["sync"]:
            self.assertEqual(kept["sync"][key], kept["async"][key], key)

    def test_failed_background_save_ends_run_with_cause(self):
        for background in (True, False):
            with self.subTest(background=background):
                wanted = self.saving(1_000_000, save_every=20, async_save=background)
                with Job(wanted, 2) as job:
                    job.wait_for(lambda: self.latest_step() >= 20, 60, "a checkpoint is there")
                    aside = os.path.join(self.folder, "aside-%s" % background)
                    os.rename(self.dir, aside)
                    open(self.dir, "w").close()
                    for rank in job.finish(60):
                        self.assertEqual(rank.code, IO, rank.err)
                        self.assertEqual(rank.err.count("\n"), 1, rank.err)
                        self.assertIn(self.dir, rank.err)
                        self.assertRegex(rank.err, "Not a directory|No such file")
                os.unlink(self.dir)
                out, _ = self.good(self.recipe(1, checkpoint_dir=aside), 1)
                self.assertIn("resuming from", out)

    def test_run_with_background_save_stops_on_request(self):
        with Job(self.saving(1_000_000, save_every=3, async_save=True), 2) as job:
            job.wait_for(lambda: self.latest_step() >= 3, 60, "a checkpoint is there")
            job.processes[1].send_signal(signal.SIGTERM)
            ranks = job.finish(60)
        self.assertEqual([rank.code for rank in ranks], [PREEMPTED, PREEMPTED])
        step = int(re.search(r"stopped after step (\d+)", ranks[0].err)[1])
        self.assertEqual(self.latest_step(), step)
        out, _ = self.good(self.saving(1), 1)
        self.assertRegex(out, r"resuming from \S+step_%06d\n" % step)

    def test_loads_only_the_weights(self):
        self.good(self.saving(5), 1)
        source = self.path("step_000005", "model.safetensors")
        keys = {"optimizer": "momentum", "seed": 11}
        _, wanted = self.good(self.recipe(3, init_weights=source, **keys), 1)
        out, got = self.good(self.saving(3, load_module_only=True, **keys), 1)
        self.assertIn("starting at step 1 with the weights only from " + self.path("step_000005"), out)
        self.assert_same(wanted, got, 0)
        self.assertIn("step_000005", os.listdir(self.dir), "it is another run's")
        out, _ = self.good(self.saving(5, load_module_only=True, **keys), 1)
        self.assertRegex(out, r"resuming from \S+step_000003-[0-9a-f]{8}; this command started the run, which continues")
        own = max(set(os.listdir(self.dir)) - {"latest"})
        self.assertRegex(own, r"^step_000005-[0-9a-f]{8}$")
        out, _ = self.good(self.saving(6, load_module_only=True, **dict(keys, seed=12)), 1)
        self.assertIn("starting at step 1 with the weights only from " + self.path(own), out)
        empty = self.recipe(3, checkpoint_dir=os.path.join(self.folder, "empty"), load_module_only=True)
        self.refused(empty, BAD_INPUT, "--load_module_only", "no checkpoint")
        self.refused(self.saving(3, load_module_only=True, resume="none"), BAD_INPUT, "load_module_only")

    def test_resume_none_keeps_other_checkpoints(self):
        self.good(self.saving(4, save_every=2), 1)
        before = {tag: os.stat(self.path(tag, "manifest.json")).st_ino for tag in ("step_000002", "step_000004")}
        out, _ = self.good(self.saving(2, resume="none", save_every=2), 2)
        self.assertRegex(out, r"starting at step 1: --resume none; .* named like step_000001-[0-9a-f]{8}")
        self.assertEqual(before, {tag: os.stat(self.path(tag, "manifest.json")).st_ino for tag in before})
        out, metrics = self.good(self.saving(4, resume="none", save_every=2), 1)
        self.assertRegex(out, r"resuming from \S+step_000002-[0-9a-f]{8}; this command started the run")
        self.assertEqual([m["step"] for m in metrics], [3, 4])
        out, metrics = self.good(self.saving(1, resume="none", seed=8), 1)
        self.assertEqual([m["step"] for m in metrics], [1], "another seed is another run")
        self.assertEqual(before, {tag: os.stat(self.path(tag, "manifest.json")).st_ino for tag in before})
        self.assertEqual(len([name for name in os.listdir(self.dir) if name.startswith("step_")]), 5)

    def test_only_one_of_several_jobs_gets_the_folder(self):
        """Starts the same command four times at once. One job must train, and the others must name it."""
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(Job(self.saving(1_000_000, save_every=5), 2)) for _ in range(4)]
            ended = lambda: [job for job in jobs if all(process.poll() is not None for process in job.processes)]
            jobs[0].wait_for(lambda: len(ended()) == 3 and self.latest_step() >= 5, 120, "three have ended, one has saved")
            trains, = [job for job in jobs if job not in ended()]
            for job in ended():
                for rank in job.finish():
                    self.assertEqual(rank.code, BAD_INPUT, rank.err)
                    self.assertEqual(rank.err.count("\n"), 1, rank.err)
                    self.assertIn("%s: a program on %s (pid %d) saves there" % (
                        self.dir, socket.gethostname(), trains.processes[0].pid), rank.err)
                    self.assertIn("give another folder", rank.err)
            step = self.latest_step()
            trains.wait_for(lambda: self.latest_step() > step, 60, "it goes on")
            trains.processes[1].send_signal(signal.SIGTERM)
            self.assertEqual([rank.code for rank in trains.finish()], [PREEMPTED, PREEMPTED])
        self.assertFalse([name for name in os.listdir(self.dir) if name.startswith("tmp-")])
        self.assertTrue(self.released())

    def released(self):
        """Returns whether the last job that owned the folder has released it."""
        with open(self.path("lease.json")) as file:
            return json.load(file)["released"]

    def test_takes_over_folder_of_killed_job(self):
        """Rank 0 of the killed job may have been killed during a save."""
        with Job(self.saving(1_000_000, save_every=1), 2) as job:
            job.wait_for(lambda: self.latest_step() >= 3, 60, "some saves are done")
            for process in job.processes:
                process.kill()
            job.finish()
        self.assertFalse(self.released())
        os.mkdir(self.path("tmp-step_000099-01234567"))
        step = self.latest_step()
        out, metrics = self.good(self.saving(step + 3), 2)
        self.assertRegex(out, r"resuming from \S+step_\d+.*; took the folder over: a program on \S+ \(pid %d\) has ended"
                         % job.processes[0].pid)
        self.assertIn("removed tmp-step_000099-01234567, left by an interrupted save", out)
        self.assertGreaterEqual(metrics[0]["step"], step + 1)
        self.assertEqual(self.latest_step(), step + 3)
        self.assertFalse([name for name in os.listdir(self.dir) if name.startswith("tmp-")])
        self.assertTrue(self.released())

    def test_suspended_job_loses_folder_to_later_job(self):
        """The job is suspended as by `scontrol suspend`. The next attempt of the same job stands for a job that has
        waited, because it need not wait.
        """
        env = {rank: {"DSLAUNCH_JOB_ID": "4f2a", "DSLAUNCH_ATTEMPT": "1"} for rank in range(2)}
        newer = {rank: {"DSLAUNCH_JOB_ID": "4f2a", "DSLAUNCH_ATTEMPT": "2"} for rank in range(2)}
        with Job(self.saving(1_000_000, save_every=5), 2, env_of_rank=env) as old:
            old.wait_for(lambda: self.latest_step() >= 5, 60, "a checkpoint is there")
            for process in old.processes:
                process.send_signal(signal.SIGSTOP)
            for process in old.processes:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            with Job(self.saving(self.latest_step() + 7, save_every=5), 2, env_of_rank=newer) as new:
                self.assertEqual([rank.code for rank in new.finish(60)], [0, 0])
            self.assertTrue(self.released())
            before = sorted(os.listdir(self.dir)), self.latest_step()
            for process in old.processes:
                process.send_signal(signal.SIGCONT)
            for rank in old.finish(60):
                self.assertEqual(rank.code, BAD_INPUT, rank.err)
                self.assertIn("no longer has the lease", rank.err)
                self.assertIn("has taken it, and has given it back", rank.err)
            self.assertEqual((sorted(os.listdir(self.dir)), self.latest_step()), before)

    def test_job_without_lease_stops_saving(self):
        env = {rank: {"DSLAUNCH_JOB_ID": "4f2a", "DSLAUNCH_ATTEMPT": "1"} for rank in range(2)}
        newer = {rank: {"DSLAUNCH_JOB_ID": "4f2a", "DSLAUNCH_ATTEMPT": "2"} for rank in range(2)}
        with Job(self.saving(1_000_000, save_every=5), 2, env_of_rank=env) as old:
            old.wait_for(lambda: self.latest_step() >= 5, 60, "a checkpoint is there")
            with Job(self.saving(1_000_000, save_every=5), 2, env_of_rank=newer) as new:
                for rank in old.finish(60):
                    self.assertEqual(rank.code, BAD_INPUT, rank.err)
                    self.assertIn("no longer has the lease", rank.err)
                    self.assertIn("job 4f2a on ", rank.err)
                step = self.latest_step()
                new.wait_for(lambda: self.latest_step() > step, 60, "the newer attempt goes on")
                new.processes[0].send_signal(signal.SIGTERM)
                self.assertEqual([rank.code for rank in new.finish(60)], [PREEMPTED, PREEMPTED])

    def test_resumes_after_kill_during_save(self):
        """Kills at any moment of a save. The next run must resume from the newest complete checkpoint, and no step
        may be lost."""
        seed = random.randrange(1 << 32)
        print("seed", seed)
        choose = random.Random(seed)
        steps_before = 0
        for round_number in range(6):
            with Job(self.saving(1_000_000, save_every=1), 2) as job:
                start = self.latest_step()
                job.wait_for(lambda: self.latest_step() >= start + 2, 60, "two saves are done")
                time.sleep(choose.random() * 0.05)
                job.processes[0].kill()
                ranks = job.finish(30)
            self.assertEqual([rank.code for rank in ranks], [-9, UNAVAILABLE])
            self.assertNotIn("skipped", ranks[0].out, "a torn checkpoint stood under a tag")
            if round_number > 0:
                resumed = int(re.search(r"resuming from \S+step_(\d+)\b", ranks[0].out, re.M)[1])
                self.assertGreaterEqual(resumed, steps_before)
            steps_before = self.latest_step()
        with open(os.path.join(self.folder, "metrics.jsonl")) as lines:
            steps = {json.loads(line)["step"] for line in lines}
        self.assertEqual(steps, set(range(1, max(steps) + 1)))
        tags = [name for name in os.listdir(self.dir) if name.startswith("step_")]
        self.assertLessEqual(len(tags), 3, tags)

    def latest_step(self):
        try:
            with open(self.path("latest")) as file:
                return int(file.read()[len("step_"):])
        except FileNotFoundError:
            return 0


class ComputeTimeTest(unittest.TestCase):
    def test_every_rank_reports_compute_time(self):
        for rank in run(recipe(run={"steps": 50, "seed": 1}), 2):
            status = [json.loads(line) for line in rank.status.splitlines()]
            steps = [line for line in status if line["event"] == "step"]
            self.assertEqual(steps[-1]["step"], 50)
            for line in steps:
                self.assertGreater(line["compute_s"], 0)
                self.assertLess(line["compute_s"], 5)

    def test_compute_time_excludes_waiting_for_slow_rank(self):
        """A stopped rank makes the other rank wait in the backward pass. That wait must not count as compute time."""
        with Job(recipe(run={"steps": 10_000_000, "seed": 1}), 2) as job:
            job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
            for _ in range(10):
                job.processes[1].send_signal(19)
                time.sleep(0.3)
                job.processes[1].send_signal(18)
                time.sleep(0.15)
            lines = [json.loads(line) for line in job.read(0, 2).splitlines()]
            times = sorted(line["compute_s"] for line in lines if "compute_s" in line)
            self.assertLess(times[-1], 0.2, "rank 0 counted its waiting")


if __name__ == "__main__":
    unittest.main()
