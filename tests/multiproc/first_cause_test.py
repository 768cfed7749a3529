"""Tests the first cause of failing scripts whose culprit is known: one rank of four fails, and the other ranks are its
victims.

PyTorch scripts end as PyTorch advises, with `try: main() finally: dist.destroy_process_group()`. So the culprit closes
its connections before it ends, and its victims end first. With DSLAUNCH_TEST_FULL=1 all scripts run 20 times; otherwise
those of SHORT run once, with three ranks.
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import ROOT, TWO_BY_TWO, LauncherCase, main  # noqa: E402

ORACLE_PYTHON = pathlib.Path(os.environ.get("DSLAUNCH_ORACLE_PYTHON", ROOT / ".deps" / "oracle" / "bin" / "python3"))
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
REPETITIONS = 20 if FULL else 1
SHORT = {"an exception", "an exit code", "a data loader's worker that raises", "an exception and a slow end",
         "an error file", "an abrupt exit", "NCCL's words"}
RANKS = TWO_BY_TWO if FULL else ["--launcher", "local", "--num_nodes", 3, "--num_gpus", 1]
CULPRIT = 2

HEAD = """import atexit, os, signal, subprocess, sys, threading, time
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")

def step():
    dist.all_reduce(torch.ones(10))

def steps(count):
    for _ in range(count):
        step()
        time.sleep(0.01)
"""
# The culprit runs {fails} after some steps; the other ranks continue.
FINALLY = HEAD + """
def main():
    steps(5)
    if rank == 2:
        {fails}
    steps(1000)

try:
    main()
finally:
    dist.destroy_process_group()
"""
PLAIN = HEAD + """
steps(5)
if rank == 2:
    {fails}
steps(1000)
"""
# Maps each name to (script, text in the evidence of the first cause, exit code).
CORPUS = {
    "an exception": (FINALLY.format(fails='raise ValueError("bad batch 17")'), "bad batch 17", 1),
    "an assertion": (FINALLY.format(fails='assert rank != 2, "loss is nan"'), "loss is nan", 1),
    "a wrong shape": (FINALLY.format(fails="torch.ones(3, 4) @ torch.ones(3, 4)"), "mat1 and mat2", 1),
    "a missing file": (FINALLY.format(fails='open("/nowhere/data.bin")'), "/nowhere/data.bin", 1),
    "no memory": (FINALLY.format(fails="torch.empty(1 << 60)"), "memory", 1),
    "a MemoryError": (FINALLY.format(fails='raise MemoryError("host")'), "MemoryError", 1),
    "a chain of exceptions": (FINALLY.format(fails="""try:
            {}["lr"]
        except KeyError as error:
            raise RuntimeError("training failed") from error"""), "KeyError", 1),
    "a program that fails": (FINALLY.format(fails='subprocess.check_call(["false"])'), "CalledProcessError", 1),
    "an exit code": (FINALLY.format(fails="sys.exit(3)"), "", 3),
    "an interrupt": (FINALLY.format(fails="os.kill(os.getpid(), signal.SIGINT); time.sleep(1)"), "", 130),
    "a data loader's worker that raises": (FINALLY.format(fails="""class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): raise OSError("shard 3 is truncated")
        list(torch.utils.data.DataLoader(Data(), num_workers=1))"""), "shard 3 is truncated", 1),
    "a data loader's worker that is killed": (FINALLY.format(fails="""class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)
        list(torch.utils.data.DataLoader(Data(), num_workers=1))"""), "DataLoader worker", 1),
    "an exception and a slow end": (FINALLY.format(
        fails='atexit.register(time.sleep, 30); raise ValueError("bad batch 17")'), "bad batch 17", 1),
    "an error file": (FINALLY.replace("\ntry:\n    main()", """
from torch.distributed.elastic.multiprocessing.errors import record
main = record(main)
try:
    main()""").format(fails='raise ValueError("bad batch 17")'), "bad batch 17", 1),
    "an exception without finally": (PLAIN.format(fails='raise ValueError("bad batch 17")'), "bad batch 17", 1),
    "an abrupt exit": (PLAIN.format(fails="os._exit(7)"), "", 7),
    "a crash": (PLAIN.format(fails="os.kill(os.getpid(), signal.SIGSEGV)"), "", 139),
    "an abort": (PLAIN.format(fails="os.abort()"), "", 134),
    "a hang, then a kill": (PLAIN.format(fails="time.sleep(2); os.kill(os.getpid(), signal.SIGKILL)"), "", 137),
    # The ranks end as with NCCL, and print NCCL's message, so no GPU is needed.
    "NCCL's words": ("""import os, sys, time
if os.environ["RANK"] == "2":
    time.sleep(0.8)
    raise ValueError("bad batch 17")
time.sleep(0.2)
sys.exit("torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error")
""", "bad batch 17", 1),
}

# Ranks in C++ that are connected as by Gloo, each with rank 0. The culprit closes its connections while it unwinds,
# before it ends.
CPP = r"""
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using std::this_thread::sleep_for;
using std::chrono::milliseconds;

struct Group {
  std::vector<int> peers;
  Group(int rank, int size) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(std::getenv("MASTER_PORT"))));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int own = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 'x';
    if (rank != 0) {  // until rank 0 itself answers: the agent holds its port before
      while (connect(own, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || recv(own, &byte, 1, 0) != 1) {
        close(own);
        sleep_for(milliseconds(10));
        own = socket(AF_INET, SOCK_STREAM, 0);
      }
      peers.push_back(own);
      return;
    }
    const int yes = 1;
    setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(own, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    if (bind(own, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) throw std::runtime_error("bind");
    listen(own, size);
    for (int i = 1; i < size; ++i) {
      peers.push_back(accept(own, nullptr, nullptr));
      send(peers.back(), &byte, 1, MSG_NOSIGNAL);
    }
  }
  ~Group() {
    for (const int peer : peers) close(peer);
    sleep_for(milliseconds(300));
  }
  void Step() {
    char byte = 'x';
    for (const int peer : peers) send(peer, &byte, 1, MSG_NOSIGNAL);
    for (const int peer : peers)
      if (recv(peer, &byte, 1, 0) != 1) throw std::runtime_error("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]");
  }
};

void Run() {
  const int rank = std::stoi(std::getenv("RANK"));
  Group group(rank, std::stoi(std::getenv("WORLD_SIZE")));
  for (int step = 0; step < 1000; ++step) {
    if (step == 5 && rank == 2) {
      FAILS
    }
    group.Step();
    sleep_for(milliseconds(10));
  }
}

int main() {
  try {
    Run();
  } catch (const std::exception&) {  // so that the group is left first
    throw;
  }
}
"""
# Maps each name to (code that fails, text in the evidence, exit code).
CPP_CORPUS = {
    "an exception of C++": ('throw std::runtime_error("bad batch 17");', "bad batch 17", 134),
    "a failed check of C++": ("std::vector<int>().at(3);", "range_check", 134),
    "an exit code of C++": ("std::exit(7);", "", 7),
    "a crash of C++": ("raise(SIGSEGV);", "", 139),
}
CPP_SHORT = {"an exception of C++"}


def check_corpus(case, scripts, run):
    """Checks that each script's culprit is named. run(name) returns (exit code, Job, output of --json)."""
    for repetition in range(1, REPETITIONS + 1):
        named = 0
        for name, (_, evidence, exit_code) in scripts.items():
            with case.subTest(script=name, repetition=repetition):
                code, job, end = run(name)
                case.assertEqual(CULPRIT, end["cause"]["rank"], job.output)
                case.assertIn(evidence, end["cause"]["evidence"], job.output)
                case.assertFalse(end["cause"]["victim"], job.output)
                case.assertEqual(exit_code, code, job.output)
                named += 1
        print(f"{type(case).__name__}, repetition {repetition}: the culprit is named in {named} of {len(scripts)} scripts",
              flush=True)


class FirstCauseOfCpp(LauncherCase):
    def test_reports_failed_rank_instead_of_its_victims(self):
        scripts = {name: case for name, case in CPP_CORPUS.items() if FULL or name in CPP_SHORT}
        for name, (fails, _, _) in scripts.items():
            source = self.folder / f"{name}.cc"
            source.write_text(CPP.replace("FAILS", fails))
            subprocess.run(["c++", "-std=c++17", "-O1", source, "-o", self.folder / name, "-pthread"], check=True)

        def run(name):
            code, job = self.run_job(*RANKS, "--json", self.folder / name)
            self.assert_nothing_left()
            return code, job, json.loads(job.stdout.strip().splitlines()[-1])

        check_corpus(self, scripts, run)


class FirstCause(LauncherCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.skipTest(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")

    def run_script(self, script):
        path = self.folder / "script.py"
        path.write_text(script)
        code, job = self.run_job(*RANKS, "--json", ORACLE_PYTHON, path, timeout_s=120,
                                 env={"OMP_NUM_THREADS": "1"})
        self.assert_nothing_left()
        return code, job, json.loads(job.stdout.strip().splitlines()[-1])

    def test_reports_failed_rank_instead_of_its_victims(self):
        scripts = {name: case for name, case in CORPUS.items() if FULL or name in SHORT}
        check_corpus(self, scripts, lambda name: self.run_script(scripts[name][0]))

    def test_shows_each_error_if_only_victims_are_known(self):
        code, job, end = self.run_script(FINALLY.format(fails="return"))
        self.assertEqual(1, code, job.output)
        self.assertTrue(end["cause"]["victim"], job.output)
        self.assertIn("its connection to another rank ended, and no rank left an error of its own", job.stderr)
        self.assertIn("rank 2 succeeded", job.stderr)


if __name__ == "__main__":
    main()
