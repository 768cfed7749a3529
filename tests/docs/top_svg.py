"""Draws docs/top.svg: a screen of dslaunch top in tmux, as a picture.

python3 tests/docs/top_svg.py docs/top.svg

The job is real, of two nodes that are this machine. Its GPUs are those of tests/support/nvidia_smi.
"""

import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DSLAUNCH_BUILD_DIR", ROOT / "build")).resolve()
DSLAUNCH = str(BUILD / "bin" / "dslaunch")
COLUMNS, ROWS = 100, 24
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


def styled_runs(line, attributes):
    """Returns (text, SGR attributes) of a line of `tmux capture-pane -e`. Changes `attributes`, those at its beginning, to
    those at its end."""
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


def svg(screen):
    """Returns a picture of a screen of `tmux capture-pane -p -e`."""
    width = round(COLUMNS * CELL_WIDTH + 2 * MARGIN)
    height = ROWS * CELL_HEIGHT + 2 * MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="14">',
             f'<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>']
    at_begin = set()
    for row, line in enumerate(screen.splitlines()):
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


def capture(folder):
    """Returns the screen of dslaunch top beside a job that has run for some seconds."""
    (folder / "train.py").write_text(TRAINER, encoding="utf-8")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "FAKE_NVIDIA_GPUS": "8",
                   "PATH": f"{ROOT}/tests/support/nvidia_smi:{os.environ['PATH']}"}
    job = subprocess.Popen([DSLAUNCH, "--launcher", "local", "--num_nodes", "2", "--num_gpus", "4", "--show", "none",
                            "train.py"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tmux = ["tmux", "-L", "dslaunch-" + uuid.uuid4().hex, "-f", "/dev/null"]
    try:
        time.sleep(5)
        subprocess.run([*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "env", "TERM=screen-256color",
                        "XDG_STATE_HOME=" + environment["XDG_STATE_HOME"], DSLAUNCH, "top", "last"], check=True)
        time.sleep(8)
        return subprocess.run([*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        (folder / "end").touch()
        job.wait(60)


def main():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(sys.argv[1]).write_text(svg(capture(pathlib.Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
