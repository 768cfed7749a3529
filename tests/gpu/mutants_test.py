"""Tests that the stand-in GPU detects missing synchronization.
Each cell runs with one kind of wait ignored, as if the trainer lacked that wait, and must fail. Otherwise the cell
succeeds."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "trainer"))
from inputs import write_text  # noqa: E402
from spawn import Job, recipe  # noqa: E402

RACE, TOUCHED, COLLECTIVE = 86, 87, 88
GPT2 = {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 256,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CPU = {"device": "cpu", "pin_memory": True}


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, **more}}


RELEASED = zero(3, stage3_param_persistence_threshold=0)
PIPELINE = {"pipeline": {"stages": 2}, "gradient_accumulation_steps": 2}
# Each row is the ignored wait, the engine with that wait, and the exit code of the first rank that detects the error.
MUTANTS = (
    ("wait", zero(0), RACE),
    ("wait", zero(1), RACE),
    ("wait", zero(2), RACE),
    ("wait", RELEASED, RACE),
    ("wait", zero(3, stage3_param_persistence_threshold=0, offload_param=CPU), RACE),
    ("wait", PIPELINE, RACE),
    ("synchronize", zero(0), TOUCHED),
    ("synchronize", zero(2, offload_optimizer=CPU), TOUCHED),
)


class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.text = os.path.join(folder.name, "text.txt")
        write_text(self.text, 20000)

    def ends(self, engine, **environment):
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.001}}, engine={"train_batch_size": 8, **engine},
                        run={"steps": 4, "seed": 7, "device": "cuda"})
        wanted = dict(wanted, model=GPT2, data={"type": "text", "path": self.text})
        with Job(wanted, 2, env_of_rank={rank: environment for rank in range(2)}) as job:
            job.wait_for(lambda: any(process.poll() for process in job.processes) or
                         all(process.poll() == 0 for process in job.processes), 60, "a rank ended as a mistake")
            return [process.poll() for process in job.processes], job.read(0, 1) + job.read(1, 1)

    def test_detects_each_missing_wait(self):
        for ignored, engine, expected in MUTANTS:
            with self.subTest(ignored=ignored, engine=engine):
                codes, errors = self.ends(engine, STANDIN_IGNORE=ignored)
                self.assertIn(expected, codes, errors)

    def test_succeeds_with_all_waits(self):
        for engine in {str(engine): engine for _, engine, _ in MUTANTS}.values():
            with self.subTest(engine=engine):
                codes, errors = self.ends(engine)
                self.assertEqual((codes, errors), ([0, 0], ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
