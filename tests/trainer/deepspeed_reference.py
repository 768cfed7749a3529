"""Implements DeepSpeed's algorithms that PyTorch lacks, as references written directly from the formulas."""

import math

import torch


class Lamb(torch.optim.Optimizer):
    """Computes LAMB as DeepSpeed's kernel does, with state in double precision."""

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
    """Computes AdamW without bias correction, which PyTorch lacks."""

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


# DeepSpeed's schedules by their formulas. t is last_batch_iteration, which is -1 before the first step().

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
    """Returns the learning rate and the momentum."""
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


SCHEDULES = {"WarmupLR": warmup_lr, "WarmupDecayLR": warmup_decay_lr, "WarmupCosineLR": warmup_cosine_lr,
             "LRRangeTest": lr_range_test}


class LossScaler:
    """Implements the dynamic loss scaler of DeepSpeed's ZeRO stages."""

    def __init__(self, initial_scale_power=16, loss_scale_window=1000, hysteresis=2, consecutive_hysteresis=False,
                 min_loss_scale=1, raise_error_at_min_scale=True):
        self.scale = 2.0 ** initial_scale_power
        self.window, self.full, self.refills = loss_scale_window, hysteresis, consecutive_hysteresis
        self.lowest, self.raises = min_loss_scale, raise_error_at_min_scale
        self.iteration, self.last_overflow, self.hysteresis = 0, -1, hysteresis

    def update(self, overflow):
        """Advances by one attempted update. Returns whether DeepSpeed raises an error."""
        raised = False
        if overflow:
            if self.full == 1 or self.hysteresis == 1:
                raised = self.scale == self.lowest and self.raises
                if not raised:
                    self.scale = max(self.scale / 2, self.lowest)
            else:
                self.hysteresis -= 1
            self.last_overflow = self.iteration
        else:
            if self.refills:
                self.hysteresis = self.full
            stable = self.iteration - self.last_overflow - 1
            if stable > 0 and stable % self.window == 0:
                self.hysteresis = self.full
                self.scale *= 2
        self.iteration += 1
        return raised


def scaler_trace(config, overflows):
    """Returns the scale after each attempted update, and whether DeepSpeed raised an error."""
    config = dict(config)
    dynamic, static_scale = config.pop("dynamic"), config.pop("static_scale")
    if not dynamic:
        return [[static_scale, False] for _ in overflows]
    scaler, trace = LossScaler(**config), []
    for overflow in overflows:
        raised = scaler.update(overflow)
        trace.append([scaler.scale, raised])
    return trace
