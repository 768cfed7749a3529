"""Compares optimizers, learning rate schedules and the loss scaler number by number: with PyTorch if it implements
them, otherwise with deepspeed_reference.py."""

import json
import os
import random
import subprocess
import unittest

import torch

from deepspeed_reference import SCHEDULES, Lamb, Lion, PlainAdam, one_cycle, scaler_trace

STEPS = 50
UPDATES = 400


def trace(questions):
    answer = subprocess.run([os.environ["DSLAUNCH_OPTIM_TRACE"]], text=True, capture_output=True, timeout=120,
                            input="".join(json.dumps(question) + "\n" for question in questions))
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == len(questions), answer.stderr
    return [json.loads(line) for line in lines]


# (section, class, arguments of the class)
OPTIMIZERS = [
    ({"type": "Adam", "params": {"lr": 0.01}}, torch.optim.AdamW, dict(lr=0.01, weight_decay=0)),
    ({"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": False}}, torch.optim.Adam,
     dict(lr=0.01, weight_decay=0.1)),
    ({"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}},
     torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ({"type": "AdamW", "params": {"torch_adam": True}}, torch.optim.AdamW, {}),
    ({"type": "Adam", "params": {"torch_adam": True, "amsgrad": True, "lr": 0.01}}, torch.optim.AdamW,
     dict(amsgrad=True, lr=0.01)),
    ({"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "bias_correction": False}}, PlainAdam,
     dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)),
    ({"type": "SGD"}, torch.optim.SGD, {}),
    ({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}},
     torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    ({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": True}}, torch.optim.SGD,
     dict(lr=0.1, momentum=0.9, nesterov=True)),
    ({"type": "Adagrad"}, torch.optim.Adagrad, {}),
    ({"type": "Adagrad", "params": {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1,
                                    "initial_accumulator_value": 0.5, "eps": 1e-5}},
     torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.01, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-5)),
    ({"type": "RMSprop"}, torch.optim.RMSprop, {}),
    ({"type": "RMSprop", "params": {"alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.9, "centered": True}},
     torch.optim.RMSprop, dict(alpha=0.9, eps=1e-4, weight_decay=0.1, momentum=0.9, centered=True)),
    ({"type": "Lamb", "params": {"lr": 0.01}}, Lamb, dict(lr=0.01)),
    ({"type": "Lamb", "params": {"lr": 0.01, "betas": [0.8, 0.95], "weight_decay": 0.1, "eps_inside_sqrt": True,
                                 "bias_correction": False, "max_coeff": 0.5, "min_coeff": 0.2}},
     Lamb, dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, eps_inside_sqrt=True, bias_correction=False, max_coeff=0.5,
                min_coeff=0.2)),
    ({"type": "Lion", "params": {"lr": 0.001}}, Lion, dict(lr=0.001)),
    ({"type": "Lion", "params": {"lr": 0.001, "betas": [0.9, 0.99], "weight_decay": 0.1}}, Lion,
     dict(lr=0.001, betas=(0.9, 0.99), weight_decay=0.1)),
]


def train(make, schedule=None, groups=None):
    """Returns the parameters after 50 updates. `groups`: arguments of a separate group for the biases
    (one-dimensional tensors)."""
    torch.manual_seed(11)
    parameters = [torch.randn(7, 5), torch.randn(5), torch.zeros(4)]
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = make([{"params": parameters[:1]}, {"params": parameters[1:], **(groups or {})}])
    scheduler = schedule(optimizer) if schedule else None
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


class OptimizerTest(unittest.TestCase):
    def check(self, got, expected, what):
        torch.testing.assert_close(torch.tensor(got, dtype=torch.float32), expected, rtol=1e-5, atol=1e-6, msg=what)

    def test_fifty_steps_match_reference(self):
        answers = trace([{"optimizer": section, "steps": STEPS} for section, _, _ in OPTIMIZERS])
        for answer, (section, kind, arguments) in zip(answers, OPTIMIZERS):
            with self.subTest(section=section):
                self.check(answer, train(lambda groups: kind(groups, **arguments)), str(section))

    def test_groups_and_schedule_match_pytorch(self):
        sections = [
            {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.3}},
            {"type": "SGD", "params": {"lr": 0.01, "weight_decay": 0.3, "momentum": 0.9}},
            {"type": "Lamb", "params": {"lr": 0.01, "weight_decay": 0.3}},
        ]
        kinds = [torch.optim.AdamW, lambda *a, **k: torch.optim.SGD(*a, momentum=0.9, **k), Lamb]
        questions = [{
            "optimizer": {**section, "param_groups": [{"max_dims": 1, "weight_decay": 0, "lr": 0.05}]},
            "scheduler": {"type": "CosineAnnealingLR", "params": {"T_max": 30, "eta_min": 0.001}},
            "steps": STEPS} for section in sections]
        for answer, section, kind in zip(trace(questions), sections, kinds):
            with self.subTest(section=section):
                expected = train(lambda groups: kind(groups, lr=0.01, weight_decay=0.3),
                                 lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 30, 0.001),
                                 {"weight_decay": 0, "lr": 0.05})
                self.check(answer, expected, str(section))


DEEPSPEED_CASES = [
    ("WarmupLR", {}),
    ("WarmupLR", {"warmup_min_lr": 0.01, "warmup_num_steps": 100}),
    ("WarmupLR", {"warmup_max_lr": 0.3, "warmup_num_steps": 1, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_max_lr": 0.3, "warmup_num_steps": 77, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 300, "warmup_num_steps": 50}),
    ("WarmupDecayLR", {"total_num_steps": 350, "warmup_num_steps": 50, "warmup_min_lr": 0.1, "warmup_max_lr": 1,
                       "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 20, "warmup_num_steps": 50}),
    ("WarmupCosineLR", {"total_num_steps": 300, "warmup_num_steps": 50}),
    ("WarmupCosineLR", {"total_num_steps": 250, "warmup_num_steps": 99, "warmup_min_ratio": 0.2, "cos_min_ratio": 0.1,
                        "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 10, "warmup_num_steps": 50}),
    ("LRRangeTest", {}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 30, "lr_range_test_step_rate": 4,
                     "lr_range_test_staircase": True}),
]
ONE_CYCLE_CASES = [
    {},
    {"cycle_first_step_size": 100},
    {"cycle_first_step_size": 60, "cycle_second_step_size": 130, "decay_step_size": 20, "decay_lr_rate": 0.5,
     "decay_mom_rate": 0.01, "cycle_min_mom": 0.7, "cycle_max_mom": 0.85},
    {"cycle_first_step_size": 100, "cycle_second_step_size": 0, "decay_step_size": 10, "decay_lr_rate": 0.1},
    {"cycle_first_step_size": 90, "cycle_first_stair_count": 7},
    {"cycle_first_step_size": 90, "cycle_second_step_size": 111, "cycle_first_stair_count": 9,
     "cycle_second_stair_count": 5},
]
TORCH_CASES = [
    ("StepLR", {"step_size": 30}),
    ("StepLR", {"step_size": 7, "gamma": 0.97}),
    ("CosineAnnealingLR", {"T_max": 100}),
    ("CosineAnnealingLR", {"T_max": 37, "eta_min": 0.01}),
    ("CosineAnnealingLR", {"T_max": 400, "eta_min": 0.001}),
    ("CosineAnnealingWarmRestarts", {"T_0": 50}),
    ("CosineAnnealingWarmRestarts", {"T_0": 10, "T_mult": 2, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7, "T_mult": 3}),
]
BASE = 0.2


class ScheduleTest(unittest.TestCase):
    def rates(self, cases):
        return trace([{"optimizer": {"type": "Adam", "params": {"lr": BASE}},
                       "scheduler": {"type": kind, "params": params}, "lr": UPDATES} for kind, params in cases])

    def check(self, got, expected, what):
        self.assertEqual(len(got), UPDATES)
        for update, (a, b) in enumerate(zip(got, expected, strict=True)):
            for x, y in zip(a, b, strict=True):
                self.assertLessEqual(abs(x - y), 1e-9, "%s at update %d: %s instead of %s" % (what, update, a, b))

    def test_deepspeed_schedules_match_formulas(self):
        for rates, (kind, params) in zip(self.rates(DEEPSPEED_CASES), DEEPSPEED_CASES):
            with self.subTest(kind=kind, params=params):
                self.check(rates, [[SCHEDULES[kind](t, BASE, **params)] for t in range(-1, UPDATES - 1)], kind)

    def test_one_cycle_matches_formula(self):
        cases = [("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.5, **params}) for params in ONE_CYCLE_CASES]
        for rates, (_, params) in zip(self.rates(cases), cases):
            with self.subTest(params=params):
                self.check(rates, [one_cycle(t, **params) for t in range(-1, UPDATES - 1)], "OneCycle")

    def test_pytorch_schedules_match_pytorch(self):
        for rates, (kind, params) in zip(self.rates(TORCH_CASES), TORCH_CASES):
            with self.subTest(kind=kind, params=params):
                optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
                scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, **params)
                expected = []
                for _ in range(UPDATES):
                    expected.append([optimizer.param_groups[0]["lr"]])
                    optimizer.step()
                    scheduler.step()
                self.check(rates, expected, kind)


class LossScalerTest(unittest.TestCase):
    def test_random_traces_match_reference(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        dice = random.Random(seed)
        questions = []
        for _ in range(300):
            share = dice.choice([0, 0.02, 0.2, 0.7, 1])
            questions.append({
                "scaler": {"dynamic": dice.random() < 0.9, "static_scale": dice.choice([1, 128.0]),
                           "initial_scale_power": dice.choice([0, 4, 16]), "loss_scale_window": dice.choice([1, 2, 5, 20]),
                           "hysteresis": dice.choice([1, 2, 3]), "consecutive_hysteresis": dice.random() < 0.5,
                           "min_loss_scale": dice.choice([1, 3, 0.25]),
                           "raise_error_at_min_scale": dice.random() < 0.5},
                "overflows": [int(dice.random() < share) for _ in range(200)]})
        for question, got in zip(questions, trace(questions)):
            self.assertEqual(got, scaler_trace(question["scaler"], question["overflows"]), (seed, question))


if __name__ == "__main__":
    unittest.main()
