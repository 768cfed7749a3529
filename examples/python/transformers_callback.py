"""dslaunch for the Trainer of Hugging Face's transformers: its progress and its evaluations, and a checkpoint on request.

    callback = DslaunchCallback()
    trainer = Trainer(..., callbacks=[callback])
    trainer.train()
    if callback.stopped: dslaunch.exit_saved()

Here it trains a tiny random model. `python3 transformers_callback.py OUTPUT_FOLDER STEPS`, alone or under dslaunch; a run
that was asked to stop is continued by the same command.
"""

import os
import sys

import dslaunch
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class DslaunchCallback(TrainerCallback):
    def __init__(self):
        self.reporter = dslaunch.Reporter()
        self.stopped = False
        self.numbers = {}  # of the last log

    def on_train_begin(self, args, state, control, **kwargs):
        dslaunch.stop_requested()  # from here on SIGTERM does not end the process
        self.reporter.ready()

    def on_step_end(self, args, state, control, **kwargs):
        self.reporter.step(state.global_step, total_steps=state.max_steps, **self.numbers)
        stop = dslaunch.stop_requested()
        if args.world_size > 1:  # all ranks stop after the same step
            flag = torch.tensor(float(stop), device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            stop = bool(flag)
        if stop:
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **kwargs):
        names = {"loss": "loss", "learning_rate": "lr", "grad_norm": "grad_norm"}  # Trainer's and dslaunch report's
        self.numbers.update((names[name], logs[name]) for name in names if name in (logs or {}))

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        results = {name.removeprefix("eval_"): value for name, value in (metrics or {}).items()
                   if isinstance(value, (int, float))}
        if state.is_world_process_zero:
            self.reporter.evaluated(state.global_step, **results)


class RandomTokens(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = torch.randint(64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main(folder, steps):
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    callback = DslaunchCallback()
    arguments = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=4, logging_steps=5, report_to=[],
                                  save_strategy="no", use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model, arguments, train_dataset=RandomTokens(), eval_dataset=RandomTokens(), callbacks=[callback])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder) if os.path.isdir(folder) else None)
    if callback.stopped:
        dslaunch.exit_saved()
    trainer.evaluate()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
