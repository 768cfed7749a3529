"""Makes the pictures of the documentation from real jobs, of two nodes that are this machine.

python3 tests/docs/pictures.py [top] [failed-job] [report]

docs/top.svg        a screen of dslaunch top in tmux
docs/failed-job.svg a screen with a job that fails
docs/report.png     the page of dslaunch report about a training run of which a rank was killed, in Chromium
"""

import html
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from test_hosts import processes_where  # noqa: E402

BUILD = pathlib.Path(os.environ.get("DSLAUNCH_BUILD_DIR", ROOT / "build")).resolve()
COLUMNS, ROWS = 100, 24
WIDE_COLUMNS = 122
REPORT_WIDTH, REPORT_HEIGHT = 1200, 2900  # width and height in pixels
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 12  # pixels of 14 px of a monospaced font

TRAINER = r"""
import json, os, pathlib, time
rank = int(os.environ["RANK"])
memory = bytearray((180 + rank) << 20)
memory[::4096] = b"x" * len(memory[::4096])
status = os.fdopen(int(os.environ["DSLAUNCH_STATUS_FD"]), "w", buffering=1)
for step in range(1204, 5000):
    time.sleep(0.25)
    if step % 10 == 0:
        print(f"step {step}: loss {2.4 - step / 10000:.4f}, learning rate 3.0e-4", flush=True)
    print(json.dumps({"event": "step", "step": step, "total_steps": 5000, "loss": 2.4 - step / 10000,
                      "tokens_per_s": 51200, "compute_s": 0.23 if rank == 6 else 0.17}), file=status)
    if pathlib.Path("end").exists():
        break
"""

FAILING = r"""
import os, sys, time
rank = int(os.environ["RANK"])
for step in range(100, 400, 100):
    time.sleep(0.3)
    print(f"step {step}: loss {2.4 - step / 1000:.2f}", flush=True)
    if rank == 3 and step == 300:
        sys.exit("FileNotFoundError: No such file or directory: 'shard_3.bin'")
time.sleep(60)
"""


def styled_runs(line, attributes):
    """Returns the (text, SGR attributes) of a line of `tmux capture-pane -e`.
    `attributes` are those at the beginning of the line, and are changed to those at its end."""
    runs = []
    for piece in re.findall(r"\x1b\[[0-9;]*m|[^\x1b]+", line):
        if not piece.startswith("\x1b"):
            runs.append((piece, frozenset(attributes)))
            continue
        for code in piece[2:-1].split(";"):
            if code in ("", "0"):
                attributes.clear()
            elif code == "39":
                attributes -= {code for code in attributes if code.startswith("3")}
            else:
                attributes.add(code)
    return runs


def svg(screen, columns=COLUMNS):
    """Returns a picture of a screen of `tmux capture-pane -p -e`."""
    width = round(columns * CELL_WIDTH + 2 * MARGIN)
    lines = screen.rstrip().splitlines()
    height = len(lines) * CELL_HEIGHT + 2 * MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="14">',
             f'<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>']
    at_begin = set()
    for row, line in enumerate(lines):
        column = 0
        for text, attributes in styled_runs(line, at_begin):
            x, top = MARGIN + column * CELL_WIDTH, MARGIN + row * CELL_HEIGHT
            column += len(text)
            color = "#ff7b72" if "31" in attributes else "#d7dae0"
            if "7" in attributes:
                parts.append(f'<rect x="{x:.1f}" y="{top}" width="{len(text) * CELL_WIDTH:.1f}" '
                             f'height="{CELL_HEIGHT}" fill="{color}"/>')
                color = "#16181d"
            if not text.strip():
                continue
            style = ' font-weight="bold"' if "1" in attributes else ""
            style += ' text-decoration="underline"' if "4" in attributes else ""
            parts.append(f'<text x="{x:.1f}" y="{top + 14}" fill="{color}"{style} xml:space="preserve" '
                         f'textLength="{len(text) * CELL_WIDTH:.1f}">{html.escape(text)}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def screen_of(argv, seconds, environment, folder, columns=COLUMNS):
    """Returns the screen of a terminal that has run a command for this many seconds."""
    tmux = ["tmux", "-L", "dslaunch-" + uuid.uuid4().hex, "-f", "/dev/null"]
    try:
        subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(ROWS), "-c", str(folder), "env",
                        "TERM=screen-256color", *(f"{name}={environment[name]}" for name in ("HOME", "XDG_STATE_HOME", "PATH")),
                        *argv], check=True)
        time.sleep(seconds)
        return subprocess.run([*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def environment_in(folder):
    """Returns an environment in which logs are in ~ and `dslaunch` is in PATH."""
    return {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": "", "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}


def top(folder):
    """Returns a picture of dslaunch top, beside a job that has run for some seconds."""
    (folder / "train.py").write_text(TRAINER, encoding="utf-8")
    environment = environment_in(folder)
    job = subprocess.Popen(["dslaunch", "--launcher", "local", "--num_nodes", "2", "--num_gpus", "4", "--show", "none",
                            "train.py"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5)
        return svg(screen_of(["dslaunch", "top", "last"], 8, environment, folder)).encode()
    finally:
        (folder / "end").touch()
        job.wait(60)


def failed_job(folder):
    """Returns a picture of a command and its output when a rank fails."""
    (folder / "train.py").write_text(FAILING, encoding="utf-8")
    command = "dslaunch --launcher local --num_nodes 2 --num_gpus 2 train.py"
    shell = f'printf "%s\n" "$ {command}"; {command}; printf "$ "; exec sleep 60'
    screen = screen_of(["sh", "-c", shell], 6, environment_in(folder), folder, columns=WIDE_COLUMNS)
    return svg(screen.replace(str(folder), "~"), WIDE_COLUMNS).encode()


def report(folder):
    """Returns a picture of the page about a run in which a rank is killed."""
    environment = environment_in(folder)
    job = subprocess.Popen(["dslaunch", "--launcher", "local", "--num_nodes", "2", "--num_gpus", "2", "--max_restarts", "1",
                            "train", "fashion_mnist", "--steps", "1200", "--checkpoint_dir", "checkpoints",
                            "--set", "run.save_every=100"],
                           cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    checkpoints = folder / "checkpoints"
    while job.poll() is None and len(list(checkpoints.glob("*"))) < 4:
        time.sleep(0.1)
    for process in processes_where(lambda process: process.environ.get("RANK") == "3" and
                                   process.environ.get("HOME") == str(folder)):
        os.kill(process.pid, signal.SIGKILL)
    if job.wait(600) != 0:
        sys.exit("the training run failed")
    page = folder / "report.html"
    subprocess.run(["dslaunch", "report", "last", "-o", page], check=True, env=environment)
    picture = folder / "report.png"
    alone = ["unshare", "-n"] if os.geteuid() == 0 else []
    subprocess.run([*alone, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                    f"--user-data-dir={folder}/chromium", f"--screenshot={picture}", "--hide-scrollbars",
                    f"--window-size={REPORT_WIDTH},{REPORT_HEIGHT}", "--virtual-time-budget=5000", page.as_uri()],
                   check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)})
    return picture.read_bytes()


PICTURES = {"top": ("top.svg", top), "failed-job": ("failed-job.svg", failed_job), "report": ("report.png", report)}


def main():
    for name in sys.argv[1:] or PICTURES:
        if name not in PICTURES:
            sys.exit(f"no picture '{name}'; there are {', '.join(PICTURES)}")
        file, make = PICTURES[name]
        with tempfile.TemporaryDirectory() as folder:
            (ROOT / "docs" / file).write_bytes(make(pathlib.Path(folder)))
        print(f"wrote docs/{file}")


if __name__ == "__main__":
    main()
