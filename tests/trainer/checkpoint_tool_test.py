"""Tests `dslaunch-train checkpoint` ls, verify and export, which `dslaunch checkpoint` runs."""

import json
import os
import re
import shutil
import tempfile
import time
import unittest
import zlib

import torch
import transformers
from safetensors.torch import load_file

from spawn import TRAIN, recipe, run, start_once

BAD_INPUT, USAGE, IO = 65, 64, 74
TEXT = b"".join(b"line %d of a text that is easy.\n" % (i % 7) for i in range(200))
GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 256, "n_layer": 2, "n_head": 2}

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class CheckpointToolTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Trains on two ranks in bf16 and saves two checkpoints."""
        cls.trained = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.trained)
        with open(os.path.join(cls.trained, "text"), "wb") as file:
            file.write(TEXT)
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.01}},
                        engine={"train_batch_size": 8, "bf16": {"enabled": True}},
                        run={"steps": 6, "save_every": 3, "seed": 1, "checkpoint_dir": os.path.join(cls.trained, "c")})
        wanted.update(model=GPT2, data={"type": "text", "path": os.path.join(cls.trained, "text")})
        cls.started_ms = time.time() * 1000
        for rank in run(wanted, 2):
            assert (rank.code, rank.err) == (0, ""), rank.err

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.dir = os.path.join(self.folder, "c")
        shutil.copytree(os.path.join(self.trained, "c"), self.dir)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def tool(self, *words, code=0):
        done = start_once.run([TRAIN, "checkpoint", *words])
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 0:
            self.assertEqual(done.stderr, "")
        else:
            self.assertRegex(done.stderr, r"\Adslaunch: checkpoint: .*\n\Z")
        return done

    def flip(self, name, offset=-100):
        with open(self.path(name), "r+b") as file:
            file.seek(offset, os.SEEK_END)
            byte = file.read(1)
            file.seek(offset, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))

    def test_ls_lists_checkpoints(self):
        table = self.tool("ls", self.dir).stdout.splitlines()
        self.assertEqual(len(table), 3, table)
        for line, step, latest in ((table[1], 3, False), (table[2], 6, True)):
            words = line.split()
            self.assertEqual(words[:2], ["step_00000%d" % step, str(step)])
            self.assertEqual("latest" in words, latest)
            self.assertEqual(words[-1], "whole")
            self.assertIn("bf16", words)
        entries = json.loads(self.tool("ls", self.dir, "--json").stdout)
        self.assertEqual([e["tag"] for e in entries], ["step_000003", "step_000006"])
        self.assertNotEqual(entries[0]["loss"], entries[1]["loss"])
        for entry in entries:
            files = [self.path(entry["tag"], f) for f in os.listdir(self.path(entry["tag"])) if f != "manifest.json"]
            self.assertEqual(entry["bytes"], sum(map(os.path.getsize, files)))
            self.assertEqual((entry["world_size"], entry["zero_stage"], entry["dtype"]), (2, 0, "bf16"))
            self.assertEqual((entry["pipeline_stages"], entry["program"]), (1, "dslaunch"))
            self.assertTrue(0 < entry["loss"] < 6 and entry["run_id"], entry)
            self.assertGreater(entry["elements"], 256 * 256)
            self.assertTrue(self.started_ms - 1000 <= entry["saved_unix_ms"] <= time.time() * 1000)
            self.assertEqual((entry["state"], entry["problem"]), ("whole", None))

    def test_ls_reports_damaged_and_missing_checkpoints(self):
        os.truncate(self.path("step_000006", "manifest.json"), 50)
        os.unlink(self.path("step_000003", "model-00002-of-00002.safetensors"))
        entries = json.loads(self.tool("ls", self.dir, "--json").stdout)
        self.assertEqual([e["state"] for e in entries], ["damaged", "damaged"])
        self.assertIn("model-00002-of-00002.safetensors", entries[0]["problem"])
        self.assertIn("manifest.json: its checksum is wrong", entries[1]["problem"])
        self.assertIn("damaged: ", self.tool("ls", self.dir).stdout)
        self.assertIn("nowhere", self.tool("ls", self.path("nowhere"), code=BAD_INPUT).stderr)
        self.assertIn("is a checkpoint", self.tool("ls", self.path("step_000003"), code=BAD_INPUT).stderr)
        os.mkdir(self.path("empty"))
        self.assertEqual(self.tool("ls", self.path("empty")).stdout, "")

    def test_verify_finds_damaged_files(self):
        out = self.tool("verify", self.dir).stdout
        self.assertEqual(len(re.findall(r"^complete: \S+step_00000[36] \(6 files, ", out, re.M)), 2, out)
        self.tool("verify", self.path("step_000003"))
        self.flip("step_000006/optimizer-00001-of-00002.safetensors")
        os.truncate(self.path("step_000006", "generator-00002-of-00002.safetensors"), 9)
        done = self.tool("verify", self.dir, code=BAD_INPUT)
        self.assertIn("damaged: " + self.path("step_000006", "optimizer-00001-of-00002.safetensors") + ": its checksum",
                      done.stdout)
        self.assertIn("generator-00002-of-00002.safetensors has 9 bytes", done.stdout)
        self.assertIn("complete: " + self.path("step_000003"), done.stdout)
        self.assertIn("1 of 2 checkpoints are damaged", done.stderr)
        self.tool("verify", self.path("step_000003"))
        self.tool("verify", self.path("step_000006"), code=BAD_INPUT)
        os.unlink(self.path("step_000003", "manifest.json"))
        self.assertIn("manifest.json", self.tool("verify", self.path("step_000003"), code=BAD_INPUT).stdout)
        self.assertIn("holds no checkpoint", self.tool("verify", self.folder, code=BAD_INPUT).stderr)

    def forge(self, tag, change):
        """Changes the content of a manifest and gives it a correct checksum."""
        with open(self.path(tag, "manifest.json"), "rb") as file:
            manifest = json.loads(file.read())
        del manifest["crc32"]
        change(manifest)
        rest = json.dumps(manifest, ensure_ascii=False)[1:].encode() + b"\n"
        with open(self.path(tag, "manifest.json"), "wb") as file:
            file.write(b'{"crc32":"%08x",\n' % zlib.crc32(rest) + rest)

    def test_rejects_hostile_checkpoint(self):
        escape, reverse = "\x1b]0;title\x07\x1b[31m", "\u202e"

        def rename_tensor(manifest):
            manifest["tensors"][0]["name"] = "a" + escape + reverse + "\nforged: line"

        def outside(manifest):
            manifest["files"][0]["name"] = "../step_000006/" + manifest["files"][0]["name"]

        def bomb(manifest):
            tensor = manifest["tensors"][0]
            tensor["shape"] = [1 << 40]
            tensor["slices"] = [dict(tensor["slices"][0], start=0, end=1 << 40)]

        changes = {
            "dtype": (lambda m: m.update(dtype="bf16" + escape), "dtype is not a plain word"),
            "tensor": (rename_tensor, "differs from its record"),
            "tensor dtype": (lambda m: m["tensors"][0].update(dtype=escape), "dtype is unknown"),
            "file": (outside, "is not a plain file name"),
            "bomb": (bomb, "is beyond the end of the file"),
            "serial": (lambda m: m.update(serial=(1 << 63) - 1), "serial is"),
        }
        os.rename(self.path("step_000006"), self.path("step_6" + escape + reverse + "\nforged"))
        for name, (change, words) in changes.items():
            with self.subTest(name):
                shutil.copytree(os.path.join(self.trained, "c", "step_000003"), self.path("step_000003"), dirs_exist_ok=True)
                self.forge("step_000003", change)
                verified = self.tool("verify", self.dir, code=BAD_INPUT)
                exported = self.tool("export", self.path("step_000003"), os.path.join(self.folder, "hf"), code=BAD_INPUT)
                for done in (self.tool("ls", self.dir), self.tool("ls", self.dir, "--json"), verified, exported):
                    for text in (done.stdout, done.stderr):
                        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f\u202e]")
                        self.assertNotRegex(text, "(?m)^forged")
                self.assertIn(words, verified.stdout)
                self.assertIn(words, exported.stderr)

    def test_transformers_loads_export(self):
        for dtype, wanted in ((None, torch.float32), ("fp32", torch.float32), ("bf16", torch.bfloat16),
                              ("fp16", torch.float16)):
            with self.subTest(dtype=dtype):
                out = os.path.join(self.folder, "hf-%s" % dtype)
                self.tool("export", self.path("step_000006"), out, *(["--dtype", dtype] if dtype else []))
                tensors = load_file(os.path.join(out, "model.safetensors"))
                self.assertEqual({t.dtype for t in tensors.values()}, {wanted})
                model, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
                self.assertFalse(report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"])
                self.assertEqual(model.config.n_embd, 256)
                self.assertTrue(torch.equal(model.transformer.h[1].mlp.c_fc.weight,
                                            tensors["transformer.h.1.mlp.c_fc.weight"].to(model.dtype)))
        whole = load_file(os.path.join(self.folder, "hf-None", "model.safetensors"))
        for dtype in ("bf16", "fp16"):
            half = load_file(os.path.join(self.folder, "hf-" + dtype, "model.safetensors"))
            for name, tensor in whole.items():
                self.assertTrue(torch.equal(tensor.to(half[name].dtype), half[name]), name)
        with open(self.path("step_000006", "manifest.json")) as file:
            self.assertEqual(set(whole), {t["name"] for t in json.load(file)["tensors"] if "/" not in t["name"]})

    def test_folder_of_checkpoints_means_latest(self):
        whole, newest = (os.path.join(self.folder, name) for name in ("whole", "newest"))
        printed = self.tool("export", self.dir, whole).stdout
        self.assertIn(self.path("step_000006"), printed)
        self.tool("export", self.path("step_000006"), newest)
        with open(os.path.join(whole, "model.safetensors"), "rb") as a, open(os.path.join(newest, "model.safetensors"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertIn(self.path("step_000006"), self.tool("convert", self.dir, os.path.join(self.folder, "other")).stdout)
        self.assertRegex(self.tool("diff", self.dir, self.path("step_000006")).stdout, "(?i)equal|same|no difference")
        with open(self.path("latest"), "w") as file:
            file.write("../c/step_000003")
        self.assertIn("is not a checkpoint", self.tool("export", self.dir, whole, "--force", code=BAD_INPUT).stderr)

    def test_export_overwrites_only_with_force(self):
        out = os.path.join(self.folder, "once")
        weights = os.path.join(out, "model.safetensors")
        self.tool("export", self.path("step_000006"), out)
        before = os.stat(weights).st_ino
        refused = self.tool("export", self.path("step_000006"), out, "--dtype", "bf16", code=USAGE)
        self.assertIn(f"{weights} is there already; give another folder, or --force", refused.stderr)
        self.assertEqual(before, os.stat(weights).st_ino)
        self.tool("export", self.path("step_000006"), out, "--dtype", "bf16", "--force")
        self.assertEqual({torch.bfloat16}, {t.dtype for t in load_file(weights).values()})

    def test_export_rejects_damaged_checkpoint(self):
        out = os.path.join(self.folder, "hf")
        self.assertIn("dslaunch checkpoint ls", self.tool("export", self.folder, out, code=BAD_INPUT).stderr)
        self.flip("step_000006/model-00001-of-00002.safetensors")
        error = self.tool("export", self.path("step_000006"), out, code=BAD_INPUT).stderr
        self.assertIn("model-00001-of-00002.safetensors: its checksum is wrong", error)
        self.assertFalse(os.path.exists(out), "nothing is exported from what is damaged")
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        self.assertIn(blocked, self.tool("export", self.path("step_000003"), blocked + "/x", code=IO).stderr)
        self.tool("export", code=USAGE)


if __name__ == "__main__":
    unittest.main()
