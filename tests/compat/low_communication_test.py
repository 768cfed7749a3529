"""Tests ranks that exchange less than every gradient of every step.
Compares them with PyTorch's own averaging, PowerSGD and DDP, and with DeepSpeed's own 1-bit optimizers. Also resumes
them from checkpoints."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from style_program import run

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ORACLE_PYTHON = os.environ.get("DSLAUNCH_ORACLE_PYTHON") or ROOT / ".deps" / "oracle" / "bin" / "python3"
# DeepSpeed 0.19.8 no longer has 1-bit optimizers.
DEEPSPEED_PYTHON = os.environ.get("DSLAUNCH_DEEPSPEED_PYTHON") or ROOT / ".deps" / "deepspeed-0.19.6" / "bin" / "python3"
SGD = {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}
POWER = {"mode": "powersgd", "start_powerSGD_iter": 3, "min_compression_rate": 1}
ONE_BIT = {"OneBitAdam": {"freeze_step": 6},
           "ZeroOneAdam": {"var_freeze_step": 12, "var_update_scaler": 4, "local_step_scaler": 2, "local_step_clipper": 4},
           "OneBitLamb": {"freeze_step": 6, "coeff_beta": 0.5}}


def config(parallel=None, optimizer=None, **keys):
    return dict({"train_batch_size": 24, "gradient_clipping": 0, "optimizer": optimizer or SGD},
                **({"parallel": parallel} if parallel else {}), **keys)


def one_bit(name):
    return config(optimizer={"type": name, "params": dict(ONE_BIT[name], lr=0.01, weight_decay=0.01)})


class LowCommunicationTest(unittest.TestCase):
    def steps(self, settings, ranks, **variables):
        """Returns [loss, gradient norm] of each step."""
        ended = run("config", ranks, STYLE_CONFIG=json.dumps(settings), **variables)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), (settings, ended.stdout))
        return [[float(number) for number in line.split()] for line in ended.stdout.splitlines()
                if not line.startswith("dslaunch:")]

    def losses(self, settings, ranks):
        steps = self.steps(settings, ranks)
        self.assertEqual(len(steps), 20)
        return [loss for loss, _ in steps]

    def references(self, case, all_options, python=ORACLE_PYTHON):
        """Returns the losses of each of these options, with 2 ranks. One program runs all of them, because importing
        PyTorch takes seconds."""
        ended = subprocess.run([python, HERE / "reference_program.py", case, "2", *map(json.dumps, all_options)],
                               capture_output=True, text=True, timeout=400, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        losses = [float(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("loss ")]
        self.assertEqual(len(losses), 20 * len(all_options), ended.stdout)
        return [losses[begin:begin + 20] for begin in range(0, len(losses), 20)]

    def assert_close(self, own, others, tolerance, what):
        for step, (mine, theirs) in enumerate(zip(own, others, strict=True), 1):
            self.assertLessEqual(abs(mine - theirs), tolerance * max(1, abs(theirs)),
                                 "%s, step %d: %s and %s" % (what, step, own, others))

    def test_exchange_after_every_step_matches_ddp(self):
        for ranks in 2, 4:
            ddp = self.losses(config(), ranks)
            diloco = {"mode": "diloco", "inner_steps": 1, "outer_lr": 1, "outer_momentum": 0}
            self.assert_close(self.losses(config(diloco), ranks), ddp, 1e-6, "diloco")
            self.assert_close(self.losses(config({"mode": "local_sgd", "inner_steps": 1}), ranks), ddp, 1e-6, "local_sgd")

    def test_local_sgd_and_diloco_match_pytorch(self):
        own, references = [{"mode": "local_sgd", "inner_steps": 4}], [{"inner_steps": 4}]
        for nesterov in True, False:
            own.append({"mode": "diloco", "inner_steps": 3, "outer_nesterov": nesterov})
            references.append({"inner_steps": 3, "outer": {"lr": 0.7, "momentum": 0.9, "nesterov": nesterov}})
        for parallel, reference in zip(own, self.references("apart", references), strict=True):
            self.assert_close(self.losses(config(parallel), 2), reference, 1e-5, parallel)

    def test_powersgd_matches_pytorch_hook(self):
        options = [{"matrix_approximation_rank": rank, "start_powerSGD_iter": 3, "min_compression_rate": 1} for rank in (1, 4)]
        for own, reference in zip(options, self.references("powersgd", options), strict=True):
            self.assert_close(self.losses(config(dict(own, mode="powersgd")), 2), reference, 1e-4, own)

    def test_powersgd_of_full_rank_matches_ddp(self):
        # With min_compression_rate 0, gradients are compressed although that saves nothing.
        full = dict(POWER, matrix_approximation_rank=32, min_compression_rate=0)
        self.assert_close(self.losses(config(full), 2), self.losses(config(), 2), 1e-5, "full rank")

    def test_one_bit_optimizers_match_deepspeed(self):
        if not os.path.exists(DEEPSPEED_PYTHON):
            self.skipTest("DeepSpeed 0.19.6 is not installed: packaging/fetch-deepspeed --version 0.19.6")
        options = [dict(params, type=name, lr=0.01, weight_decay=0.01) for name, params in ONE_BIT.items()]
        for own in options:
            if own["type"] == "ZeroOneAdam":
                own["var_freeze_step"] -= 1  # DeepSpeed's variance is constant from the second update after this step
        references = self.references("deepspeed_optimizer", options, DEEPSPEED_PYTHON)
        for name, reference in zip(ONE_BIT, references, strict=True):
            self.assert_close(self.losses(one_bit(name), 2), reference, 1e-3, name)

    def test_one_rank_matches_ddp(self):
        ddp = self.losses(config(), 1)
        self.assert_close(self.losses(config({"mode": "local_sgd", "inner_steps": 4}), 1), ddp, 1e-6, "local_sgd")
        self.assert_close(self.losses(config(POWER), 1), ddp, 1e-6, "powersgd")

    def test_gradients_in_16_bit_stay_close(self):
        ddp = self.losses(config(), 2)
        for dtype, tolerance in ("fp16", 5e-3), ("bf16", 4e-2):
            own = self.losses(config(communication_data_type=dtype), 2)
            self.assertNotEqual(own, ddp)
            self.assert_close(own, ddp, tolerance, dtype)

    def test_resumed_run_matches_uninterrupted_run(self):
        cases = [config(dict(POWER, matrix_approximation_rank=1)),
                 config({"mode": "local_sgd", "inner_steps": 4}),
                 config({"mode": "diloco", "inner_steps": 5})] + [one_bit(name) for name in ONE_BIT]
        for settings in cases:
            whole = self.steps(settings, 2)
            for until in 11, 15:  # in the middle of an interval, and at its end
                with tempfile.TemporaryDirectory() as folder:
                    first = self.steps(settings, 2, STYLE_CHECKPOINTS=folder, STYLE_UNTIL=str(until))
                    then = self.steps(settings, 2, STYLE_CHECKPOINTS=folder, STYLE_UNTIL="20")
                    for step, (own, expected) in enumerate(zip(first + then, whole, strict=True), 1):
                        self.assert_close(own, expected, 1e-6, "%s, step %d" % (settings, step))

    def test_resumes_with_another_number_of_ranks(self):
        for settings in [config({"mode": "diloco", "inner_steps": 5})] + [one_bit(name) for name in ONE_BIT]:
            with tempfile.TemporaryDirectory() as folder:
                first = self.steps(settings, 2, STYLE_CHECKPOINTS=folder, STYLE_UNTIL="13")
                rest = self.steps(settings, 4, STYLE_CHECKPOINTS=folder, STYLE_UNTIL="20")
                self.assertEqual(len(first + rest), 20)
                for loss, norm in rest:
                    self.assertTrue(loss < 6 and norm < 100, (settings, rest))


if __name__ == "__main__":
    unittest.main()
