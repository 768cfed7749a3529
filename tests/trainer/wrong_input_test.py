"""Tests that wrong input ends with one clear line on stderr and its documented exit code, before any rank waits for
another."""

import gzip
import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest

import spawn
from inputs import samples_of
from spawn import recipe, run

BAD_INPUT, USAGE, IO, UNAVAILABLE = 65, 64, 74, 69


class WrongInputTest(unittest.TestCase):
    def check(self, wanted, code, *words, world=1):
        for rank in run(wanted, world, timeout_s=20):
            self.assertEqual(rank.code, code, rank.err)
            self.assertEqual(rank.out, "")
            self.assertEqual(rank.err.count("\n"), 1, rank.err)
            for word in words:
                self.assertIn(word, rank.err)

    def copy_of_data(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for name in os.listdir(spawn.WHOLE_DATA):
            os.symlink(os.path.join(spawn.WHOLE_DATA, name), os.path.join(folder, name))
        return folder

    def replaced(self, name, content):
        folder = self.copy_of_data()
        os.unlink(os.path.join(folder, name))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
        return recipe(data={"path": folder})

    def test_reports_missing_data_folder(self):
        self.check(recipe(data={"path": "/nowhere/at/all"}), BAD_INPUT, "/nowhere/at/all", "data.path", world=2)

    def test_reports_missing_file(self):
        folder = self.copy_of_data()
        os.unlink(os.path.join(folder, "t10k-labels-idx1-ubyte.gz"))
        self.check(recipe(data={"path": folder}), BAD_INPUT, "t10k-labels-idx1-ubyte")

    def test_reports_truncated_gzip(self):
        name = "train-images-idx3-ubyte.gz"
        with open(os.path.join(spawn.WHOLE_DATA, name), "rb") as file:
            content = file.read()
        self.check(self.replaced(name, content[:len(content) // 2]), BAD_INPUT, name)

    def test_reports_labels_that_do_not_match_images(self):
        name = "train-labels-idx1-ubyte.gz"
        self.check(self.replaced(name, gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 1]))), BAD_INPUT, name,
                   "2 labels", "60000 images")

    def test_reports_unknown_key_with_suggestion(self):
        self.check(recipe(engine={"gradient_cliping": 1.0}), BAD_INPUT, "engine.gradient_cliping",
                   'did you mean "gradient_clipping"')

    def test_reports_unsupported_deepspeed_key(self):
        self.check(recipe(engine={"zero_optimization": {"stage": 2, "zero_quantized_weights": True}}), BAD_INPUT,
                   "engine.zero_optimization.zero_quantized_weights")

    def test_reports_parameter_group_without_match(self):
        optimizer = {"type": "AdamW", "param_groups": [{"names": ["*.biass"], "weight_decay": 0}]}
        self.check(recipe(optimizer=optimizer), BAD_INPUT, "engine.optimizer.param_groups[0]", "fc1.weight, fc1.bias",
                   world=2)

    def test_reports_inconsistent_batch_sizes(self):
        self.check(recipe(engine={"train_batch_size": 33, "train_micro_batch_size_per_gpu": 17}), BAD_INPUT,
                   "train_batch_size 33", "train_micro_batch_size_per_gpu 17", "2 ranks", world=2)

    def test_reports_dataset_smaller_than_batch(self):
        samples = samples_of("train")
        self.check(recipe(engine={"train_batch_size": samples + 1}), BAD_INPUT, str(samples), str(samples + 1))

    def test_reports_metrics_file_that_is_not_writable(self):
        self.check(recipe(run={"steps": 1, "metrics_jsonl": "/nowhere/m.jsonl"}), IO, "/nowhere/m.jsonl")

    def test_reports_loss_that_is_not_finite(self):
        wanted = recipe(optimizer={"type": "SGD", "params": {"lr": 1e30}}, engine={"gradient_clipping": 0})
        for rank in run(wanted, 2):
            self.assertEqual(rank.code, BAD_INPUT, rank.err)
            self.assertRegex(rank.err, r"^dslaunch-train: rank \d: step \d: the loss of rank 0 is -?(nan|inf) .*lower learning rate\n$")

    def test_reports_missing_network_interface(self):
        holder, port = spawn.held_port()
        self.addCleanup(holder.close)
        env = dict(spawn.environment(0, 1, 1, port), GLOO_SOCKET_IFNAME="nosuchif0", DSLAUNCH_RECIPE=json.dumps(recipe()))
        self.check_line(self.start(env), USAGE, "GLOO_SOCKET_IFNAME", "nosuchif0")

    def test_reports_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            env = dict(spawn.environment(0, 2, 2, port), DSLAUNCH_RECIPE=json.dumps(recipe()))
            self.check_line(self.start(env), UNAVAILABLE, "127.0.0.1:%d" % port, "MASTER_PORT")

    def test_reports_missing_recipe(self):
        self.check_line(self.start(spawn.environment(0, 1, 1, 1)), USAGE, "no recipe", "DSLAUNCH_RECIPE")

    def start(self, env):
        return subprocess.run([spawn.TRAIN], env=env, capture_output=True, text=True, timeout=30)

    def check_line(self, ended, code, *words):
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertRegex(ended.stderr, r"^dslaunch-train: rank 0: .*\n$")
        for word in words:
            self.assertIn(word, ended.stderr)


if __name__ == "__main__":
    unittest.main()
