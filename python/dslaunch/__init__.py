"""Connects a Python program to the dslaunch that started it. Outside of a job, these functions do nothing.

    import dslaunch

    reporter = dslaunch.Reporter()
    for step in range(1, steps + 1):
        loss = train(step)
        reporter.step(step, total_steps=steps, loss=loss)
        if dslaunch.stop_requested():   # dslaunch stop, Ctrl-C, a time limit, a preempted node
            save()
            dslaunch.exit_saved()       # exit code 85: start the job again to continue

Needs only the standard library. Call functions on the main thread, and use a Reporter on one thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import pathlib
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, NoReturn

from . import links, memory
from .memory import MemoryCopy

__all__ = ["EXIT_SAVED", "Job", "MemoryCopy", "Reporter", "current_job", "exit_saved", "stop_requested"]

# The exit code of a rank that has saved its state and stopped. If all ranks of a job exit with it, the job is to be
# started again.
EXIT_SAVED = 85

_MAX_LINE_BYTES = 4096  # limit of a status line; the agent ignores longer lines
_MIN_INTERVAL_S = 0.1
_THREADS_FINISH_S = 0.05


@dataclass(frozen=True)
class Job:
    """The place of this process in its job."""

    job_id: str
    attempt: int  # number of this start of all ranks, from 1
    rank: int
    world_size: int
    local_rank: int
    # Private folder of this start of this rank, whose files `dslaunch report` reads; None if there is none.
    rank_dir: pathlib.Path | None


def current_job(environment: Mapping[str, str] = os.environ) -> Job | None:
    """Returns the job of this process; None if dslaunch has not started this process."""
    if not environment.get("DSLAUNCH_JOB_ID"):
        return None

    def number(name: str, otherwise: int) -> int:
        try:
            return int(environment.get(name, ""))
        except ValueError:
            return otherwise

    rank_dir = environment.get("DSLAUNCH_RANK_DIR")
    return Job(environment["DSLAUNCH_JOB_ID"], number("DSLAUNCH_ATTEMPT", 1), number("RANK", 0), number("WORLD_SIZE", 1),
               number("LOCAL_RANK", 0), pathlib.Path(rank_dir) if rank_dir else None)


class Reporter:
    """Reports progress to the launcher and to `dslaunch report`, and makes copies of the state in memory.

    Reports never block and never fail.

    Call step() on every rank, because the launcher determines from the steps which rank hangs.
    """

    def __init__(self) -> None:
        self._job = current_job()
        self._status = _open_status() if self._job else None
        self._metrics: Any = None
        if self._job and self._job.rank_dir:
            try:
                self._metrics = open(self._job.rank_dir / "metrics.jsonl", "a", encoding="utf-8", buffering=1)
            except OSError:
                pass
        self._told_at = -math.inf
        self._window_at = time.monotonic()
        self._window_step: int | None = None
        self._copies = _open_copies(self._job) if self._job else None
        self._reached_step = self._copies.noted_step() if self._copies else None

    def ready(self) -> None:
        """Reports that the program is set up and begins to train."""
        self._tell({"event": "ready"})

    def step(self, step: int, *, total_steps: int = 0, loss: float | None = None, samples_per_s: float | None = None,
             tokens_per_s: float | None = None, **numbers: float) -> None:
        """Reports the number of completed optimizer steps, from 1. Call this after each step.

        Rates are totals over all ranks. Other `numbers`, such as lr and grad_norm, are for the report. At most
        ten reports per second are sent, and always the report of step `total_steps`.
        """
        if self._job is None:
            return
        if self._copies is not None:
            self._copies.note_step(step)
        now = time.monotonic()
        if now - self._told_at < _MIN_INTERVAL_S and step != total_steps:
            return
        self._told_at = now
        values = {"loss": loss, "samples_per_s": samples_per_s, "tokens_per_s": tokens_per_s}
        given = {name: _finite(value) for name, value in values.items() if value is not None}
        self._tell({"event": "step", "step": step, "total_steps": total_steps, **given})
        steps = step - self._window_step if self._window_step is not None else step
        if steps > 0:
            others = {name: _finite(value) for name, value in numbers.items()}
            self._keep({"step": step, "steps": steps, "attempt": self._job.attempt,
                        "step_s": (now - self._window_at) / steps, **given, **others})
        self._window_step, self._window_at = step, now

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Reports that training waits in this block while a checkpoint of `step` is saved.

        The report is used for the goodput and for the age of the checkpoint.

            with reporter.saving(step):
                torch.save(...)
        """
        self._tell({"event": "save", "step": step})
        yield
        self._tell({"event": "saved", "step": step})
        self._window_at = time.monotonic()  # the time of saving does not count as time of a step

    def evaluated(self, step: int, **results: float) -> None:
        """Reports the results of an evaluation, such as accuracy=0.87. Call it on one rank.

        The newest results are the `result` of dslaunch --json.
        """
        if self._job is None:
            return
        numbers = {name: _finite(value) for name, value in results.items()}
        self._tell({"event": "eval", "step": step, **numbers})
        self._keep({"step": step, "attempt": self._job.attempt, "eval": numbers})
        self._window_at = time.monotonic()  # the time of an evaluation does not count as time of a step

    def save_in_memory(self, step: int, state: Any) -> bool:
        """Copies the state after `step` into memory of this node, which outlives this process.

        Call this on every rank. Needs dslaunch --memory_checkpoint K, which requests a copy every K steps. At other
        steps, and outside of a job, nothing is done. `state` is bytes, or dicts, lists and tuples of numbers, texts,
        bytes, numpy arrays and torch tensors, such as a state_dict(); other types raise TypeError. The last two copies
        are kept, and no call waits for a disk. Returns whether a copy was made. Also returns False if the node has too
        little memory, which is printed once.
        """
        if self._copies is None or self._job is None or step % _memory_interval() != 0:
            return False
        try:
            why = memory.write_state(self._copies, step, state)
        except OSError as error:
            why = f"the memory for a copy cannot be enlarged: {error.strerror}"
        if why:
            print(f"dslaunch: rank {self._job.rank}: continuing without memory checkpoints: {why}", file=sys.stderr, flush=True)
            self._copies = None
            return False
        self._tell({"event": "copied", "step": step})
        return True

    def load_from_memory(self, after_step: int = 0, timeout_s: float = 300) -> MemoryCopy | None:
        """Returns the newest state beyond `after_step` of which every rank has an intact copy, or None.

        If the result is None, load a checkpoint from the disk instead. Collective: call it on every rank, before
        the first step. A copy that was made with another number of ranks is not used. In the first attempt of a
        job, returns None at once. Raises RuntimeError if a rank does not call this within `timeout_s`, or is
        lost.
        """
        if self._job is None or self._job.attempt == 1 or not _memory_interval():
            return None
        with links.RankExchange(self._job.rank, self._job.world_size, self._job.attempt, timeout_s) as exchange:
            agreed = memory.agree(self._copies, exchange, after_step)
        if isinstance(agreed, str):
            if self._job.rank == 0:
                print(f"dslaunch: no copy in memory to continue from: {agreed}", file=sys.stderr, flush=True)
            return None
        (step, _), content = agreed
        copy = MemoryCopy(step, memory.read_state(content))
        if self._job.rank == 0:
            reached = {} if self._reached_step is None else {"reached_step": self._reached_step}
            self._tell({"event": "restored", "step": step, "source": "memory", **reached})
        return copy

    def _tell(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        if self._status is None or len(data) > _MAX_LINE_BYTES:
            return
        try:
            os.write(self._status, data)  # written as a whole or not at all, because the line is shorter than PIPE_BUF
        except BlockingIOError:
            pass
        except OSError:
            self._status = None  # the agent has closed the pipe

    def _keep(self, line: dict[str, Any]) -> None:
        if self._metrics is None:
            return
        try:
            self._metrics.write(json.dumps(line) + "\n")
        except OSError:
            self._metrics = None  # a full disk ends the report, but not the training


def stop_requested() -> bool:
    """Returns whether this process received SIGTERM or SIGINT, which `dslaunch stop`, Ctrl-C and --time_limit send.

    From the first call on, these signals do not end the process, so save and exit soon: SIGKILL follows after
    --grace. The ranks receive the signal within milliseconds of each other, but not at the same step. So they
    must agree before they leave a loop in which they wait for each other (examples/python/train.py).
    """
    if current_job() is None:
        return False
    if not _Stop.handled:
        _Stop.handled = True
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _Stop.request)
    return _Stop.requested


def exit_saved() -> NoReturn:
    """Ends this process with EXIT_SAVED. All ranks of a job that is to be started again must call this."""
    sys.exit(EXIT_SAVED)


class _Stop:
    handled = False
    requested = False

    @staticmethod
    def request(_signal: int, _frame: object) -> None:
        _Stop.requested = True


# Waits, so that threads of PyTorch can finish before the interpreter ends. Such a thread (of Gloo after the last
# collective) must still release a Python tensor, and waits for the interpreter's lock. Up to Python 3.13, such a thread
# is unwound when the interpreter ends, and C++ then raises SIGABRT.
def _let_threads_finish() -> None:
    if "torch.distributed" in sys.modules:
        time.sleep(_THREADS_FINISH_S)


if current_job() is not None:
    atexit.register(_let_threads_finish)


def _finite(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _memory_interval() -> int:
    """Returns the number of steps between copies in memory; 0 without --memory_checkpoint."""
    try:
        return int(os.environ.get("DSLAUNCH_MEMORY_CHECKPOINT", "0"))
    except ValueError:
        return 0


def _open_copies(job: Job) -> memory.Copies | None:
    if not _memory_interval():
        return None
    try:
        first, second = (int(fd) for fd in os.environ["DSLAUNCH_MEMORY_FDS"].split(","))
        # dslaunch gives rank 0 a loopback address only if all nodes are this machine.
        is_alone = os.environ.get("MASTER_ADDR", "").startswith("127.")
        ranks_here = job.world_size if is_alone else int(os.environ["LOCAL_WORLD_SIZE"])
        return memory.Copies((first, second), memory.Place(job.attempt, job.rank, job.world_size, ranks_here))
    except (KeyError, ValueError, OSError):
        return None


def _open_status() -> int | None:
    """Opens the status pipe again. The new descriptor does not block, and other users of the pipe are not affected."""
    try:
        return os.open(f"/proc/self/fd/{int(os.environ['DSLAUNCH_STATUS_FD'])}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (KeyError, ValueError, OSError):
        return None
