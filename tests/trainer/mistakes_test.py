"""Tests mistakes that only several ranks together can make, or that appear only while training. Each must end with
one clear line."""

import json
import os
import shutil
import tempfile
import unittest

from inputs import write_idx_part, write_text
from spawn import Job, recipe, run

BAD_INPUT, INTERNAL = 65, 70
MISTAKEN_MODEL = os.environ["DSLAUNCH_MISTAKEN_MODEL"]


class MistakesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        write_idx_part(cls.folder, {"train": 1024, "t10k": 64})

    def mistaken(self, params, engine=None):
        wanted = recipe(engine=engine, data={"path": self.folder})
        wanted["model"] = {"type": "plugin", "path": MISTAKEN_MODEL, "params": params}
        return wanted

    def check(self, ranks, *words, code=BAD_INPUT):
        """Checks that every rank reports the same cause in one line."""
        for number, rank in enumerate(ranks):
            self.assertEqual(rank.code, code, rank.err)
            self.assertRegex(rank.err, r"^dslaunch-train: rank %d: .*\n$" % number)
            for word in words:
                self.assertIn(word, rank.err)

    def test_correct_model_succeeds(self):
        for rank in run(self.mistaken({}), 2):
            self.assertEqual((rank.code, rank.err), (0, ""))

    def test_reports_parameter_without_gradient(self):
        # Tests with and without the engine's own accumulators, because different code then sums the gradients.
        for engine in ({}, {"bf16": {"enabled": True}, "gradient_accumulation_steps": 2}):
            for world in (1, 2):
                with self.subTest(engine=engine, world=world):
                    strict = dict(engine, zero_optimization={"ignore_unused_parameters": False})
                    self.check(run(self.mistaken({"ignores_spare": 1}, strict), world),
                               "the parameter spare.weight got no gradient", "does not depend on it")
                    for rank in run(self.mistaken({"ignores_spare": 1}, engine), world):
                        self.assertEqual((rank.code, rank.err), (0, ""))

    def test_reports_step_and_rank_of_nan_loss(self):
        self.check(run(self.mistaken({"nan_step": 3, "nan_rank": 1}), 2), "step 3", "nan", "rank 1")

    def test_reports_rank_whose_weights_drift(self):
        wanted = self.mistaken({"drift_step": 8, "drift_rank": 2}, {"train_batch_size": 48})
        wanted["run"] = {"steps": 20, "check_replicas_every": 3}
        self.check(run(wanted, 4), "the weights of rank 2 differ from those of the other ranks after step 9, and were equal "
                   "after step 6", "--resume TAG", code=INTERNAL)

    def test_rejects_different_models_on_ranks(self):
        same = recipe(data={"path": self.folder}, engine={"train_batch_size": 240})
        smaller, other = json.loads(json.dumps(same)), json.loads(json.dumps(same))
        smaller["model"]["hidden_size"] = 64
        other["model"]["type"] = "cnn"
        for different, parameter in ((smaller, "fc1.weight"), (other, "conv1.weight")):
            with self.subTest(parameter=parameter):
                with Job(same, 3, recipe_of_rank={2: different}) as job:
                    self.check(job.finish(30), parameter, "rank 2")

    def test_rejects_data_smaller_than_global_batch(self):
        self.check(run(recipe(data={"path": self.folder}, engine={"train_batch_size": 1026}), 2), "1024", "1026",
                   "train_batch_size")
        text = os.path.join(self.folder, "text.txt")
        write_text(text, 8 * 32 + 1)
        wanted = recipe(engine={"train_batch_size": 16})
        wanted["model"] = {"type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 32, "vocab_size": 256}
        wanted["data"] = {"type": "text", "path": text, "block_size": 32}
        self.check(run(wanted, 2), "8 ", "16", "train_batch_size")


if __name__ == "__main__":
    unittest.main()
