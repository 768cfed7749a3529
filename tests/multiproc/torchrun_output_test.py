"""Compares --tee and --redirects with torchrun: the same script and options run under both launchers.

These must be equal: each line on the terminal, on the same stream, and each log file that torchrun writes, byte for
byte.
These differ on purpose:
- The prefix of a line: torchrun writes [default0]: before lines that it tees and none before others; dslaunch writes
[NODE:RANK] before all lines.
- Log files: torchrun writes those of teed and redirected streams only; dslaunch writes all of them.
- The folder of a rank: DIR/ID_*/attempt_0/LOCAL_RANK in torchrun, DIR/JOB/.../rank_RANK in dslaunch.
- Without any of these options torchrun shows all ranks, and dslaunch shows rank 0 (--show all shows all). --tee 0
selects
no stream, as if it were not given.
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import ROOT, LauncherCase, main  # noqa: E402

ORACLE_PYTHON = pathlib.Path(os.environ.get("DSLAUNCH_ORACLE_PYTHON", ROOT / ".deps" / "oracle" / "bin" / "python3"))
RANKS = 2
TORCHRUN_ATTEMPTS = 5
STREAMS = ("stdout", "stderr")
# Each line is one write, because ranks whose streams torchrun does not tee share torchrun's streams.
SCRIPT = """import os
rank = os.environ["LOCAL_RANK"]
for fd, name in (1, "stdout"), (2, "stderr"):
    for line in range(40):
        os.write(fd, f"line {line} of {name} of rank {rank} \\u00f6 [x]\\n".encode())
"""
LINE = re.compile(r"(?m)^(.*?)(line \d+ of std\w+ of rank \d .*)$")
CASES = (
    ["--tee", "3"],
    ["-t", "3"],
    ["-t", "1"],
    ["--tee", "0:3,1:2"],
    ["--redirects", "3"],
    ["-r", "0:1,1:3", "--tee", "1:1"],
    ["--tee=3", "--local-ranks-filter", "1"],
)


def lines_of(text):
    """Returns (set of prefixes, sorted lines of the script without their prefixes)."""
    found = LINE.findall(text)
    return {prefix for prefix, _ in found}, sorted(line for _, line in found)


def files_below(folder, rank_folder):
    """Returns {(rank, stream): content} of a job's log files."""
    return {(rank, stream): path.read_bytes() for rank in range(RANKS) for stream in STREAMS
            for path in folder.glob(f"**/{rank_folder.format(rank)}/{stream}.log")}


class TorchrunOutput(LauncherCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.skipTest(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")
        self.script = self.folder / "lines.py"
        self.script.write_text(SCRIPT)

    def torchrun(self, options, folder, env):
        words = [str(ORACLE_PYTHON), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
                 "--log-dir", str(folder), *options, str(self.script)]
        done = subprocess.run(words, env={**self.base_environment(), "OMP_NUM_THREADS": "1", **env}, cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout, done.stderr, files_below(folder, "attempt_0/{}")

    def dslaunch(self, options, folder, env):
        code, job = self.run_job("--nproc-per-node", str(RANKS), "--log-dir", folder, *options, self.script, env=env)
        self.assert_code(0, code, job)
        return job.stdout, job.stderr, files_below(folder, "rank_{}")

    def whole_lines_of_torchrun(self, number, options, env):
        """Returns (stdout, stderr, files) of torchrun. Runs it again if its threads mixed lines of two ranks."""
        for attempt in range(TORCHRUN_ATTEMPTS):
            *theirs, files = self.torchrun(options, self.folder / f"torchrun{number}.{attempt}", env)
            if all(text.count("[x]") == len(LINE.findall(text)) for text in theirs):
                return *theirs, files
        self.fail(f"torchrun mixed lines {TORCHRUN_ATTEMPTS} times")

    def compare(self, number, options, env=None):
        *theirs, their_files = self.whole_lines_of_torchrun(number, options, env or {})
        *ours, our_files = self.dslaunch(options, self.folder / f"dslaunch{number}", env or {})
        for name, text, expected in zip(STREAMS, ours, theirs):
            prefixes, lines = lines_of(text)
            their_prefixes, their_lines = lines_of(expected)
            self.assertEqual(their_lines, lines, name)
            for prefix in prefixes:
                self.assertRegex(prefix, r"^\[[^\]]+:\d\] $")
            self.assertLessEqual(their_prefixes, {"", "[default0]:", "[default1]:"})
        for place, content in their_files.items():
            self.assertEqual(content, our_files.get(place), place)
        self.assertEqual(RANKS * len(STREAMS), len(our_files))
        return their_files, ours

    def test_lines_and_files_equal_those_of_torchrun(self):
        for number, options in enumerate(CASES):
            with self.subTest(options=options):
                self.compare(number, options)

    def test_tee_map_selects_the_same_lines_and_files(self):
        files, (stdout, stderr) = self.compare("map", ["--tee", "0:3,1:2"])
        self.assertEqual({(0, "stdout"), (0, "stderr"), (1, "stderr")}, set(files))
        self.assertEqual(80, len(lines_of(stdout)[1]))
        self.assertEqual(80, len(lines_of(stderr)[1]))

    def test_pet_variable_selects_the_same_lines_and_files(self):
        files, (stdout, _) = self.compare("variable", [], {"PET_TEE": "3"})
        self.assertEqual(RANKS * len(STREAMS), len(files))
        self.assertEqual(80, len(lines_of(stdout)[1]))

    def test_default_shows_rank_0(self):
        for options in ([], ["--tee", "0"]):
            with self.subTest(options=options):
                stdout, stderr, files = self.dslaunch(options, self.folder / f"default{len(options)}", {})
                for text in (stdout, stderr):
                    self.assertEqual({"0"}, {line.split("of rank ")[1][0] for line in lines_of(text)[1]})
                self.assertEqual(RANKS * len(STREAMS), len(files))


if __name__ == "__main__":
    main()
