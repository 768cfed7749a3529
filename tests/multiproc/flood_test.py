"""Tests ranks that write much more than is read: memory must be bounded and files complete. Also tests full disks."""

import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, TWO_BY_TWO, Job, LauncherCase, is_agent_binary, main  # noqa: E402

FLOOD_S = 5
MB_PER_S = 50   # rate of each of the 4 ranks
MEMORY_MB = 200
LINE_BYTES = 500
LINES_AT_ONCE = 500

# Writes numbered lines at a steady rate. The numbers later show whether a line is missing or out of order.
WRITER = f"""import os, sys, time
seconds, bytes_per_s = float(sys.argv[1]), float(sys.argv[2])
begin, written, number = time.monotonic(), 0, 0
while time.monotonic() < begin + seconds:
    block = b"".join(b"%0{LINE_BYTES - 1}d\\n" % i for i in range(number, number + {LINES_AT_ONCE}))
    number += {LINES_AT_ONCE}
    written += len(block)
    while block:
        block = block[os.write(1, block):]
    time.sleep(max(0, begin + written / bytes_per_s - time.monotonic()))
"""

# Exits with the error number of the failed write, as a program that checks its output does.
FILLER = """import os, sys
try:
    while True:
        os.write(1, b"x" * 65535 + b"\\n")
except OSError as error:
    sys.exit(error.errno)
"""


def peak_memory_mb(pid):
    """Returns the peak resident memory of a process in MB; 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) / 1024
    except (OSError, TypeError):
        return 0


class Flood(LauncherCase):
    def flood(self, seconds, mb_per_s):
        """Runs the writers with all output shown; returns (lines read, {process: peak MB}, seconds)."""
        env = {**self.base_environment(), MARK: self.mark}
        read_end, write_end = os.pipe()
        argv = [DSLAUNCH, *TWO_BY_TWO, "--show", "all", "--log_dir", str(self.folder / "logs"),
                "python3", "-c", WRITER, str(seconds), str(mb_per_s * 1e6)]
        begin = time.time()
        job = Job(lambda **files: self.popen(argv, env, str(self.folder), **{**files, "stdout": write_end}), self.folder)
        self.last_job = job
        os.close(write_end)
        lines = []
        reader = threading.Thread(target=self.count_lines, args=(read_end, lines))
        reader.start()
        peaks = {}
        while job.running() and time.time() < begin + 10 * seconds + 30:
            for process in self.leftovers():
                if process.name == "dslaunch" or is_agent_binary(process):
                    key = f"{process.name} {process.pid}"
                    peaks[key] = max(peaks.get(key, 0), peak_memory_mb(process.pid))
            time.sleep(0.1)
        self.assert_code(0, self.wait(job, 30), job)
        reader.join(30)
        return lines[0], peaks, job.ended_at - begin

    def count_lines(self, descriptor, lines):
        count = 0
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 20):
                count += data.count(b"\n")
        lines.append(count)

    def check_files(self):
        """Checks that every rank's file has each number once and in order. Returns the total number of bytes."""
        total = 0
        for rank in range(4):
            path, = (self.folder / "logs").glob(f"**/rank_{rank}/stdout.log")
            with open(path, "rb") as file:
                for number, line in enumerate(file):
                    if len(line) != LINE_BYTES or int(line) != number:
                        self.fail(f"rank {rank}, line {number}: {line!r}")
            total += path.stat().st_size
        return total

    def test_memory_stays_bounded_at_200_mb_per_second(self):
        lines, peaks, took_s = self.flood(FLOOD_S, MB_PER_S)
        total = self.check_files()
        print(f"{total / 1e6:.0f} MB in {took_s:.1f} s, {lines} of {total // LINE_BYTES} lines were shown, "
              f"memory: {', '.join(f'{name} {mb:.0f} MB' for name, mb in peaks.items())}", flush=True)
        self.assertGreaterEqual(len(peaks), 5, "dslaunch, two supervisors and two agents")
        for name, mb in peaks.items():
            self.assertLess(mb, MEMORY_MB, name)
        # A slow machine may write less, but not so little that the test proves nothing.
        self.assertGreater(total, 4 * MB_PER_S * FLOOD_S * 1e6 / 4)
        self.assert_nothing_left()


class FullDisk(LauncherCase):
    """Runs jobs whose log folder is on a file system of 4 MB, or whose /dev/shm has 1 MB."""

    def run_on_small_disk(self, *program):
        disk = self.folder / "disk"
        disk.mkdir()
        return self.run_with(disk, "4m", *TWO_BY_TWO, "--grace", "1", "--log_dir", str(disk), *program)

    def run_with(self, disk, size, *arguments):
        unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
        script = f'mount -t tmpfs -o size={size} tmpfs "$1" && shift && exec "$@"'
        argv = [*unshare, "bash", "-c", script, "-", str(disk), DSLAUNCH, *map(str, arguments)]
        env = {**self.base_environment(), MARK: self.mark}
        job = Job(lambda **files: self.popen(argv, env, str(self.folder), **files), self.folder)
        self.last_job = job
        return self.wait(job, 60), job

    def test_rank_that_checks_writes_fails_on_full_disk(self):
        code, job = self.run_on_small_disk("python3", "-c", FILLER)
        self.assert_code(28, code, job)  # ENOSPC is 28
        self.assert_prints(job, r"rank [0-3]\b.*exited with code 28")
        self.assert_presentable(job)
        self.assert_nothing_left()

    def test_sigbus_is_explained_by_full_dev_shm(self):
        program = ("import mmap, os; file = os.open('/dev/shm/full', os.O_RDWR | os.O_CREAT); "
                   "os.ftruncate(file, 4 << 20); mmap.mmap(file, 4 << 20).write(bytes(4 << 20))")
        code, job = self.run_with("/dev/shm", "1m", "-n", 1, "python3", "-c", program)
        self.assert_code(135, code, job)
        self.assert_prints(job, "was killed by SIGBUS", r"/dev/shm is full \(0 of 1 MiB are free\)")

    def test_ranks_that_ignore_a_full_disk_succeed(self):
        code, job = self.run_on_small_disk("bash", "-c", "head -c 8000000 /dev/zero 2>/dev/null; exit 0")
        self.assert_code(0, code, job)
        self.assert_prints(job, "only 0 KiB are free where the logs go .*lines of ranks may be missing.*--log_dir")
        self.assert_presentable(job)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
