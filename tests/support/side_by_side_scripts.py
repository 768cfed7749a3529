"""Runs 30 small scripts, as users write them, under torchrun, deepspeed, mpirun and dslaunch, and records the results:
exit code, values that the ranks received, ranks whose output is shown, and processes that are left.

tests/bench/launchers runs all and writes docs/side-by-side.md. tests/multiproc/side_by_side_test.py compares
dslaunch's column with the page.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 2
LIMIT_S = 120

# note(...) writes a line of this rank, which becomes part of the comparison.
HEAD = """import os, signal, subprocess, sys, time
rank = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
def note(*words):
    with open(os.path.join(os.environ["NOTES"], str(rank)), "a") as file:
        file.write(" ".join(str(word) for word in words) + "\\n")
def up():
    open(os.path.join(os.environ["NOTES"], f"up.{rank}"), "w").close()
print(f"rank {rank} speaks", flush=True)
"""
WAITS = """
def on(number, frame):
    for other in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):  # the first rank's end may send one more
        signal.signal(getattr(signal, other), signal.SIG_IGN)
    note(signal.Signals(number).name)
    {then}
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
    if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
        signal.signal(getattr(signal, name), on)
up()
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    time.sleep(0.05)
"""
LEAVES = WAITS.format(then="sys.exit(128 + number)", seconds=60)
TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
"""


@dataclasses.dataclass(frozen=True)
class Script:
    name: str
    source: str
    why: str = ""  # why dslaunch differs from the others; empty if there is no relevant difference
    signal: str = ""            # sent to the launcher once all ranks are up
    stdin: bytes = None  # bytes for stdin; None: stdin is /dev/null
    arguments: tuple = ()       # the script's arguments
    options: dict = dataclasses.field(default_factory=dict)  # {launcher: its options}; a launcher without an entry gets no options
    nohup: bool = False  # whether SIGHUP is ignored at the start
    module: bool = False  # whether the script is run with -m
    torch: bool = False  # whether the script needs torch.distributed's variables


SCRIPTS = (
    Script("both ranks succeed", "note('ok')"),
    Script("rank 1 exits with 3", "sys.exit(3 if rank == 1 else 0)",
           "torchrun ends with 1 for every failure"),
    Script("rank 1 raises an exception", "if rank == 1: raise ValueError('bad batch')\ntime.sleep(1)"),
    Script("sys.exit with a text", "sys.exit('no data' if rank == 1 else 0)"),
    Script("rank 1 crashes (SIGSEGV)", "if rank == 1: os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(1)",
           "dslaunch and mpirun end with 128 + signal, as a shell does"),
    Script("rank 1 is killed (SIGKILL)", "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(1)",
           "dslaunch and mpirun end with 128 + signal, as a shell does"),
    Script("rank 1 aborts", "if rank == 1: os.abort()\ntime.sleep(1)",
           "dslaunch and mpirun end with 128 + signal, as a shell does"),
    Script("rank 0 is ready earlier", "time.sleep(0 if rank == 0 else 1); note('ok')"),
    Script("rank 1 fails after rank 0 is ready", "time.sleep(0 if rank == 0 else 1); sys.exit(5 * rank)",
           "torchrun ends with 1 for every failure"),
    Script("rank 1 fails, rank 0 saves on SIGTERM", "if rank == 1: time.sleep(1); sys.exit(7)\n" + LEAVES,
           "torchrun ends with 1 for every failure"),
    Script("rank 1 fails, rank 0 ignores SIGTERM",
           "if rank == 1: time.sleep(1); sys.exit(7)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
           "torchrun ends with 1 for every failure, and kills after 30 s; dslaunch after --grace (10 s)",
           options={"dslaunch": ["--grace", "2"]}),
    Script("a process that a rank leaves behind", "subprocess.Popen(['sleep', '77'], start_new_session=True)",
           "dslaunch ends what ranks leave behind"),
    Script("Ctrl-C", LEAVES, "dslaunch ends with 130, or with 85 if all ranks do", signal="SIGINT"),
    Script("SIGTERM", LEAVES, "dslaunch ends with 128 + signal, as a shell does", signal="SIGTERM"),
    Script("SIGHUP", LEAVES, "dslaunch ends with 128 + signal; its ranks get SIGTERM", signal="SIGHUP"),
    Script("SIGUSR1", LEAVES,
           "dslaunch and mpirun pass it on to the ranks; now and then mpirun itself crashes (SIGSEGV)", signal="SIGUSR1"),
    Script("SIGKILL", LEAVES, "dslaunch's ranks do not outlive it", signal="SIGKILL"),
    Script("Ctrl-C, ranks that save and exit with 85", WAITS.format(then="sys.exit(85)", seconds=60),
           "in dslaunch 85 of all ranks is no failure", signal="SIGINT"),
    Script("nohup and SIGHUP", WAITS.format(then="sys.exit(1)", seconds=4) + "note('to the end')",
           "signals that are ignored at the start stay ignored in dslaunch", signal="SIGHUP", nohup=True),
    Script("stdin", "note(repr(sys.stdin.read(5)))",
           "ranks of torchrun and deepspeed share it, and chance decides who reads it; dslaunch and mpirun give it to rank "
           "0", stdin=b"hello"),
    Script("RANK, LOCAL_RANK, WORLD_SIZE",
           "note(*(os.environ.get(name, '-') for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')))",
           "mpirun sets OMPI_* only"),
    Script("MASTER_ADDR and MASTER_PORT are set", "note('MASTER_ADDR' in os.environ, 'MASTER_PORT' in os.environ)",
           "mpirun sets OMPI_* only"),
    Script("OMP_NUM_THREADS", "note(os.environ.get('OMP_NUM_THREADS', '-') != '-')",
           "dslaunch divides the node's cores; torchrun sets 1"),
    Script("arguments with spaces and quotes", "note(repr([a for a in sys.argv[1:] if 'local' not in a]))",
           arguments=("a b", "it's", "--lr=1e-3", "")),
    Script("--local_rank", "note(any(a.startswith('--local') for a in sys.argv))",
           "deepspeed gives it to every script, dslaunch to those that name such an option"),
    Script("run as a module", "note(__name__, len(sys.argv))", "deepspeed adds --local_rank", module=True, arguments=("one",)),
    Script("10,000 lines at once", "for i in range(10000): print(f'line {i} of {rank}')\nnote('ok')"),
    Script("all_reduce over Gloo", TORCH + "t = torch.ones(1); dist.all_reduce(t); note(t.item())\n"
           "dist.destroy_process_group()", "mpirun sets no MASTER_ADDR", torch=True),
    Script("an exception before destroy_process_group", TORCH + "try:\n    if rank == 1: raise ValueError('bad batch 17')\n"
           "    dist.all_reduce(torch.ones(1))\nfinally:\n    dist.destroy_process_group()",
           "", torch=True),
)
assert len(SCRIPTS) == 29


class Launchers:
    def __init__(self, dslaunch, python, deepspeed_python=None, mpirun=None):
        self._python = str(python)
        self._argv = {
            "torchrun": [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)],
            "deepspeed": [str(deepspeed_python), "-m", "deepspeed.launcher.runner", "--num_gpus", str(RANKS)],
            "mpirun": [str(mpirun), "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)],
            "dslaunch": [str(dslaunch), "--launcher", "local", "--num_gpus", str(RANKS)]}

    def command(self, launcher, script, path):
        argv = [*self._argv[launcher], *script.options.get(launcher, ())]
        if launcher == "mpirun":
            argv.append(self._python)
        if script.module:
            argv += ["--module" if launcher == "deepspeed" else "-m", path.stem]
        else:
            argv.append(str(path))
        return [*argv, *script.arguments]

    def run(self, launcher, script):
        """Runs the script under the launcher and returns, in a few words, what a user observes."""
        with tempfile.TemporaryDirectory() as folder:
            return self._run(launcher, script, pathlib.Path(folder))

    def _run(self, launcher, script, folder):
        path = folder / "train.py"
        path.write_text(HEAD + script.source)
        notes = folder / "notes"
        notes.mkdir()
        env = {name: value for name, value in os.environ.items()
               if name not in ("OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
        env.update(NOTES=str(notes), PYTHONPATH=str(folder), DS_ACCELERATOR="cpu", PYTHON_EXEC=self._python,
                   XDG_STATE_HOME=str(folder / "state"))
        begin = (lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if script.nohup else None
        # Output goes to a file, because a pipe would stay open until processes that are left have exited.
        with open(folder / "output", "wb") as output:
            child = subprocess.Popen(self.command(launcher, script, path), cwd=folder, env=env, preexec_fn=begin,
                                     stdin=subprocess.DEVNULL if script.stdin is None else subprocess.PIPE,
                                     stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            if script.stdin is not None:
                child.stdin.write(script.stdin)
                child.stdin.close()
            if script.signal:
                self._wait_until(lambda: len(list(notes.glob("up.*"))) == RANKS or child.poll() is not None, LIMIT_S)
                os.kill(child.pid, getattr(signal, script.signal))
                if script.signal == "SIGUSR1":
                    time.sleep(1.5)
                    if child.poll() is None:
                        child.send_signal(signal.SIGTERM)
                if script.signal == "SIGKILL":
                    child.wait()
                    time.sleep(3)
                    left = self._left(notes)
                    return "ranks continue" if left else "ranks are ended"
            child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"hangs for {LIMIT_S} s"
        finally:
            left = self._left(notes)
            self._end(notes)
            if child.poll() is None:
                child.kill()
                child.wait()
        return self._describe(child.returncode, (folder / "output").read_text(errors="replace"), notes, left)

    @staticmethod
    def _describe(code, output, notes, left):
        told = [(notes / str(rank)).read_text().split("\n")[:-1] if (notes / str(rank)).exists() else []
                for rank in range(RANKS)]
        words = [f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"]
        if any(told):
            texts = ["; ".join(lines) or "-" for lines in told]
            words.append(texts[0] if len(set(texts)) == 1 else ", ".join(f"{i}: {t}" for i, t in enumerate(texts)))
        shown = [str(rank) for rank in range(RANKS) if f"rank {rank} speaks" in output]
        if code == 0:  # the output of a failed job is not compared, because it includes the failed rank's last lines
            words.append("shows " + (" and ".join(shown) if shown else "none"))
        if left:
            words.append("processes left")
        return "; ".join(words)

    @staticmethod
    def _wait_until(condition, timeout_s):
        end = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)

    @staticmethod
    def _left(notes):
        """Returns the run's processes that are still alive after one second."""
        end = time.monotonic() + 1
        while True:
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    environ = pathlib.Path("/proc", pid, "environ").read_bytes()
                    state = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if f"NOTES={notes}\0".encode() in environ and state != "Z" and int(pid) != os.getpid():
                    found.append(int(pid))
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def _end(self, notes):
        for pid in self._left(notes):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


LAUNCHERS = ("torchrun", "deepspeed", "mpirun", "dslaunch")
PAGE_HEAD = """# Side by side: torchrun, deepspeed, mpirun and dslaunch

Four launchers run 30 scripts, each with two ranks on one machine. `tests/bench/launchers` runs them again and writes this page. A
test checks the column of dslaunch. A cell has the launcher's exit code and what the ranks wrote: `0:` is rank 0, `1:` is rank 1, and
without a number both ranks wrote the same. If the launcher succeeded, the cell also names the ranks whose output is on the terminal
(`shows`). [What differs](coming-from.md#what-differs) explains more.

| script | torchrun | deepspeed | mpirun | dslaunch | why |
| --- | --- | --- | --- | --- | --- |
"""


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def page(cells):
    """Returns the text of docs/side-by-side.md. `cells`: {script's name: {launcher: text}}."""
    rows = "".join("| " + " | ".join([script.name, *(escaped(cells[script.name][one]) for one in LAUNCHERS), script.why])
                   + " |\n" for script in SCRIPTS)
    return PAGE_HEAD + rows


def cells_of(text):
    """Returns the cells of a page, as {script's name: {launcher: text}}. The inverse of page()."""
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(" | ")]
        name = words[0].removeprefix("| ")
        if len(words) == 6 and any(script.name == name for script in SCRIPTS):
            found[name] = dict(zip(LAUNCHERS, words[1:5]))
    return found


if __name__ == "__main__":
    sys.exit("run tests/bench/launchers")
