"""Optimizers, learning rate schedules and the loss scaler, number for number: against PyTorch where PyTorch has them, and
against straight transcriptions of DeepSpeed's formulas where it has not."""

import json
import math
import os
import random
import subprocess
import unittest

import torch

STEPS = 50
UPDATES = 400


def trace(questions):
    answer = subprocess.run([os.environ["DSLAUNCH_OPTIM_TRACE"]], text=True, capture_output=True, timeout=120,
                            input="".join(json.dumps(question) + "\n" for question in questions))
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == len(questions), answer.stderr
    return [json.loads(line) for line in lines]


class Lamb(torch.optim.Optimizer):
    """LAMB as DeepSpeed's kernel computes it, in double precision, one element after the other."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, eps_inside_sqrt=False,
                 weight_decay=0, max_coeff=10, min_coeff=0.01):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay))
        self.rest = bias_correction, betas, eps, eps_inside_sqrt, max_coeff, min_coeff
        self.count = 0

    @torch.no_grad()
    def step(self):
        correct, (b1, b2), eps, inside, upper, lower = self.rest
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                g, w = p.grad.double(), p.double()
                state["m"] = b1 * state.get("m", 0) + (1 - b1) * g
                state["v"] = b2 * state.get("v", 0) + (1 - b2) * g * g
                size = (state["v"] + eps).sqrt() if inside else state["v"].sqrt() + eps
                update = state["m"] / size + group["weight_decay"] * w
                a, b = w.norm().item(), update.norm().item()
                trust = min(max(a / b, lower), upper) if a and b else 1
                scale = math.sqrt(1 - b2 ** self.count) / (1 - b1 ** self.count) if correct else 1
                p.copy_(w - group["lr"] * scale * trust * update)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay))
        self.betas = betas

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m, g = state.get("m", 0), p.grad.double()
                p.copy_(p.double() * (1 - group["lr"] * group["weight_decay"])
                        - group["lr"] * torch.sign(b1 * m + (1 - b1) * g))
                state["m"] = b2 * m + (1 - b2) * g


class PlainAdam(torch.optim.Optimizer):
    """AdamW without bias correction, which PyTorch does not have."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr))
        self.rest = betas, eps, weight_decay

    @torch.no_grad()
    def step(self):
        (b1, b2), eps, decay = self.rest
        for group in self.param_groups:
            for p in group["params"]:
                state, g = self.state[p], p.grad.double()
                state["m"] = b1 * state.get("m", 0) + (1 - b1) * g
                state["v"] = b2 * state.get("v", 0) + (1 - b2) * g * g
                p.copy_(p.double() - group["lr"] * (state["m"] / (state["v"].sqrt() + eps) + decay * p.double()))


# (section, class, its arguments)
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
    """The parameters after 50 updates; groups: arguments of the biases' (one-dimensional tensors') own group."""
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

    def test_fifty_steps_of_each(self):
        answers = trace([{"optimizer": section, "steps": STEPS} for section, _, _ in OPTIMIZERS])
        for answer, (section, kind, arguments) in zip(answers, OPTIMIZERS):
            with self.subTest(section=section):
                self.check(answer, train(lambda groups: kind(groups, **arguments)), str(section))

    def test_groups_and_schedule(self):
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


# DeepSpeed's schedules as the formulas have them; t is last_batch_iteration, -1 before the first step().

def warm(t, steps, kind):
    steps = max(2, steps)
    if t >= steps:
        return None
    return math.log(t + 1) / math.log(steps) if kind == "log" else t / steps


def warmup_lr(t, base, warmup_min_lr=0.0, warmup_max_lr=None, warmup_num_steps=1000, warmup_type="log"):
    if t < 0:
        return warmup_min_lr
    gamma = warm(t, warmup_num_steps, warmup_type)
    top = base if warmup_max_lr is None else warmup_max_lr
    return warmup_min_lr + (top - warmup_min_lr) * (1 if gamma is None else gamma)


def warmup_decay_lr(t, base, total_num_steps, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000,
                    warmup_type="log"):
    if t < 0:
        return warmup_min_lr
    gamma = warm(t, warmup_num_steps, warmup_type)
    if gamma is None:
        gamma = max(0, (total_num_steps - t) / max(1, total_num_steps - max(2, warmup_num_steps)))
    return warmup_min_lr + (warmup_max_lr - warmup_min_lr) * gamma


def warmup_cosine_lr(t, base, total_num_steps, warmup_min_ratio=0.0, warmup_num_steps=1000, cos_min_ratio=0.0001,
                     warmup_type="log"):
    if t < 0:
        return 0
    gamma = warm(t, warmup_num_steps, warmup_type)
    if gamma is not None:
        return base * (warmup_min_ratio + (1 - warmup_min_ratio) * gamma)
    steps = max(2, warmup_num_steps)
    p = min(1, (t - steps + 1) / max(1, total_num_steps - steps))
    return base * max(0, cos_min_ratio + (1 - cos_min_ratio) * (1 + math.cos(math.pi * p)) / 2)


def one_cycle(t, cycle_min_lr, cycle_max_lr, cycle_first_step_size=2000, cycle_second_step_size=None,
              cycle_first_stair_count=0, cycle_second_stair_count=None, decay_step_size=0, decay_lr_rate=0,
              cycle_min_mom=0.8, cycle_max_mom=0.9, decay_mom_rate=0):
    """Learning rate and momentum."""
    if t < 0:
        return cycle_min_lr, cycle_min_mom
    first = cycle_first_step_size
    second = first if cycle_second_step_size is None else cycle_second_step_size
    total = first + second
    if t >= total:
        k = (t - total + 1) / decay_step_size if decay_step_size else 0
        return cycle_min_lr / (1 + decay_lr_rate * k), cycle_max_mom * (1 + decay_mom_rate * k)
    n = (t + 1) % total
    stairs = cycle_first_stair_count
    if n > first and cycle_second_stair_count is not None:
        stairs = cycle_second_stair_count
    height = n / first if n <= first else (total - n) / second
    if stairs:
        height = math.floor(n * stairs / first if n <= first else (total - n) * stairs / second) / stairs
    return (cycle_min_lr + (cycle_max_lr - cycle_min_lr) * height,
            cycle_max_mom - (cycle_max_mom - cycle_min_mom) * height)


def lr_range_test(t, base, lr_range_test_min_lr=1e-3, lr_range_test_step_size=2000, lr_range_test_step_rate=1.0,
                  lr_range_test_staircase=False):
    interval = (t + 1) / lr_range_test_step_size
    return lr_range_test_min_lr * (1 + lr_range_test_step_rate * (
        math.floor(interval) if lr_range_test_staircase else interval))


DEEPSPEED = {"WarmupLR": warmup_lr, "WarmupDecayLR": warmup_decay_lr, "WarmupCosineLR": warmup_cosine_lr,
             "LRRangeTest": lr_range_test}
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

    def test_deepspeeds(self):
        for rates, (kind, params) in zip(self.rates(DEEPSPEED_CASES), DEEPSPEED_CASES):
            with self.subTest(kind=kind, params=params):
                self.check(rates, [[DEEPSPEED[kind](t, BASE, **params)] for t in range(-1, UPDATES - 1)], kind)

    def test_one_cycle(self):
        cases = [("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.5, **params}) for params in ONE_CYCLE_CASES]
        for rates, (_, params) in zip(self.rates(cases), cases):
            with self.subTest(params=params):
                self.check(rates, [one_cycle(t, **params) for t in range(-1, UPDATES - 1)], "OneCycle")

    def test_pytorchs(self):
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


def scaler_trace(config, overflows):
    """DeepSpeed's dynamic loss scaler: (scale, whether it raised) after each try."""
    scale = 2.0 ** config["initial_scale_power"] if config["dynamic"] else config["static_scale"]
    iteration, last, hysteresis, trace_ = 0, -1, config["hysteresis"], []
    for overflow in overflows:
        raised = False
        if config["dynamic"] and overflow:
            if config["hysteresis"] == 1 or hysteresis == 1:
                raised = scale == config["min_loss_scale"] and config["raise_error_at_min_scale"]
                if not raised:
                    scale = max(scale / 2, config["min_loss_scale"])
            else:
                hysteresis -= 1
            last = iteration
        elif config["dynamic"]:
            if config["consecutive_hysteresis"]:
                hysteresis = config["hysteresis"]
            stable = iteration - last - 1
            if stable > 0 and stable % config["loss_scale_window"] == 0:
                hysteresis = config["hysteresis"]
                scale *= 2
        iteration += 1
        trace_.append([scale, raised])
    return trace_


class LossScalerTest(unittest.TestCase):
    def test_traces(self):
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
