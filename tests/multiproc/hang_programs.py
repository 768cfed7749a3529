"""Programs that hang, or only seem to hang: ranks of a Python program that exchange data.

By default torch.distributed is a stand-in of a few lines in a folder with torch's layout. Its exchanges block in recv()
of a TCP socket, and its ranks start in 0.1 s. With DSLAUNCH_TEST_FULL it is PyTorch with Gloo.
"""

import json
import os
import pathlib
import socket
import threading
import time

STANDIN = '''"""A stand-in for torch.distributed: each exchange gathers a byte at rank 0 and sends one back."""
import os, socket, time

peers = []

def init_process_group(backend):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    path = os.environ["FOLDER"] + "/peer_port"
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        with open(path + ".new", "w") as file:
            file.write(str(listener.getsockname()[1]))
        os.rename(path + ".new", path)
        peers.extend(listener.accept()[0] for _ in range(size - 1))
    else:
        while not os.path.exists(path):
            time.sleep(0.02)
        peers.append(socket.create_connection(("127.0.0.1", int(open(path).read()))))

def all_reduce(tensor=None):
    if os.environ["RANK"] == "0":
        for peer in peers:
            if not peer.recv(1):
                time.sleep(3600)
        for peer in peers:
            peer.send(b"x")
    else:
        peers[0].send(b"x")
        peers[0].recv(1)

def barrier():
    return all_reduce()

def broadcast(tensor=None, src=0):
    return all_reduce()
'''

# Every rank runs this text. The last line that is marked `# HERE` is the line at which the culprit hangs.
BEGIN = '''import os, signal, subprocess, sys, threading, time
if os.environ.get("STANDIN"):
    sys.path.insert(0, os.environ["STANDIN"])
import torch.distributed as dist
rank = int(os.environ["RANK"])
folder = os.environ["FOLDER"]

def tensor():
    if os.environ.get("STANDIN"):
        return None
    import torch
    return torch.ones(4)

def begins():
    open(f"{folder}/hangs.{rank}", "w").close()

'''
MAIN = '''
def main():
    dist.init_process_group("gloo")
    for step in range(3):
        dist.all_reduce(tensor())
    if rank == 1:
        load_batch()
    dist.all_reduce(tensor())
    print("finished", flush=True)

if __name__ == "__main__":
    main()
'''

# Maps each name to the code that rank 1 runs while the other ranks wait.
HANGS = {
    "sleeping loader": '''
def load_batch():
    begins()
    time.sleep(3600)  # HERE
''',
    "FIFO without a writer": '''
def load_batch():
    os.mkfifo(f"{folder}/fifo")
    begins()
    open(f"{folder}/fifo").read()  # HERE
''',
    "full pipe": '''
def load_batch():
    read_end, write_end = os.pipe()
    begins()
    os.write(write_end, b"x" * 1_000_000)  # HERE
''',
    "GIL held by C": '''
import ctypes

def load_batch():
    begins()
    ctypes.PyDLL(None).sleep(3600)  # HERE
''',
    "deadlocked fork": '''
lock = threading.Lock()

def load_batch():
    lock.acquire()
    child = os.fork()
    begins()
    if child == 0:
        lock.acquire()
    os.waitpid(child, 0)  # HERE
''',
    "lock in a thread": '''
def load_batch():
    lock = threading.Lock()
    lock.acquire()
    begins()
    lock.acquire()  # HERE
''',
    "wait for a dead process": '''
import multiprocessing

def load_batch():
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=os._exit, args=(0,))
    child.start()
    child.join()
    begins()
    queue.get()  # HERE
''',
    "stuck child": '''
def load_batch():
    begins()
    subprocess.run(["sleep", "3600"])  # HERE
''',
    "stopped": '''
def load_batch():
    begins()
    os.kill(os.getpid(), signal.SIGSTOP)
''',
    "another exchange": '''
def load_batch():
    begins()
    dist.barrier()  # HERE
''',
    "endless loop": '''
def load_batch():
    begins()
    number = 0
    while number >= 0:
        number += 1  # HERE
''',
}
# A process in a frozen cgroup sleeps at the end of a system call, whichever call the kernel shows. FREEZER: a folder of
# cgroup v2 without processes.
FROZEN_HANG = {
    "frozen cgroup": '''
def load_batch():
    begins()
    with open(os.environ["FREEZER"] + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    with open(os.environ["FREEZER"] + "/cgroup.freeze", "w") as file:
        file.write("1")
''',
}
# Only CPU time shows that these run, so they are judged after five times the limit.
COMPUTING = {"endless loop"}
# These hangs need PyTorch.
TORCH_HANGS = {
    "stuck loader worker": '''
import torch.utils.data

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        begins()
        time.sleep(3600)  # HERE

def load_batch():
    next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))
''',
}

TORCH_HANGS["store wait"] = '''
def load_batch():
    begins()
    dist.distributed_c10d._get_default_store().wait(["never"])  # HERE
'''

# Ranks of PyTorch with Gloo that write Flight Recorder's records when their pipe is written to, as NCCL's monitor
# thread does. They add the ranks of each group, which Gloo does not record.
FLIGHT_MONITOR = '''
import pickle

def watch_pipe():
    path = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + str(rank) + ".pipe"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    import torch
    while True:
        time.sleep(0.2)
        try:
            asked = os.read(pipe, 128)
        except BlockingIOError:
            continue
        if asked:
            print("preparing to dump debug info", file=sys.stderr, flush=True)
            dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, True, False))
            dump["pg_config"] = {group.group_name: {"name": group.group_name, "desc": group.group_desc,
                                                    "ranks": str(dist.get_process_group_ranks(group))}
                                 for group in dist.distributed_c10d._world.pg_map}
            with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "wb") as file:
                pickle.dump(dump, file, protocol=2)

def main():
    dist.init_process_group("gloo")
    threading.Thread(target=watch_pipe, daemon=True).start()
    for step in range(3):
        dist.all_reduce(tensor())
    import torch
    torch._C._distributed_c10d._dump_fr_trace(True, True, False)  # the first dump takes seconds on a busy machine
    begins()
    exchange()

'''
# Maps each name to an exchange after which all ranks wait, so their stacks do not show the cause.
FLIGHT_HANGS = {
    "skipped exchange": '''
def exchange():
    works = [dist.all_reduce(tensor(), async_op=True) for step in range(1 if rank == 1 else 2)]
    for work in works:
        work.wait()
    threading.Event().wait()
''',
    "crossed groups": '''
def exchange():
    groups = [dist.new_group(list(range(dist.get_world_size()))) for number in range(2)]
    for group in groups if rank == 1 else reversed(groups):
        dist.barrier(group=group)
''',
    "fewer messages": '''
def exchange():
    for message in range(2):
        if rank == 0:
            dist.recv(tensor(), 1)
        elif rank == 1 and message == 0:
            dist.send(tensor(), 0)
    dist.barrier()
''',
    "another operation": '''
def exchange():
    work = dist.broadcast(tensor(), 0, async_op=True) if rank == 1 else dist.all_reduce(tensor(), async_op=True)
    work.wait()
    threading.Event().wait()
''',
}

# All ranks wait at one line, and only NCCL's RAS reports which rank lags. RAS_STATUS is its status for a job whose rank
# 1 lags.
RAS_HANG = '''
def main():
    dist.init_process_group("gloo")
    for step in range(3):
        dist.all_reduce(tensor())
    groups = [dist.new_group(list(range(dist.get_world_size()))) for number in range(2)]
    begins()
    for group in groups if rank == 1 else reversed(groups):
        dist.barrier(group=group)

main()
'''
RAS_STATUS = json.dumps({"communicators": [{"size": 2, "ranks": [
    {"rank": rank, "collective_counts": {"AllReduce": 9 - rank}} for rank in range(2)], "missing_ranks": []}]})


class ScriptedRas:
    """Answers every client with RAS_STATUS, as NCCL's RAS does."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "localhost:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, client.makefile("rw") as stream:
                for answer in ("SERVER PROTOCOL 2\n", "OK\n", "OK\n", RAS_STATUS + "\n"):
                    if not stream.readline():
                        break
                    stream.write(answer)
                    stream.flush()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class Freezer:
    """Makes a cgroup for FREEZER. Its path is None if no cgroup can be made."""

    def __init__(self):
        self.path = None
        for mount in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            path = pathlib.Path(mount, f"dslaunch-freezer-{os.getpid()}")
            try:
                if not pathlib.Path(mount, "cgroup.procs").exists():
                    continue
                path.mkdir()
            except OSError:
                continue
            self.path = path
            return

    def close(self):
        for _ in range(100):
            try:
                if self.path is not None:
                    (self.path / "cgroup.freeze").write_text("0")
                    self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


# A program in C whose rank 0 waits for a byte from rank 1, which reads a FIFO without a writer.
NATIVE_HANG = r"""
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  char byte = 'x';
  chdir(getenv("FOLDER"));
  if (atoi(getenv("RANK")) == 0) {
    bind(fd, (struct sockaddr*)&address, size);
    listen(fd, 1);
    getsockname(fd, (struct sockaddr*)&address, &size);
    FILE* port = fopen("port.new", "w");
    fprintf(port, "%d", ntohs(address.sin_port));
    fclose(port);
    rename("port.new", "port");
    int peer = accept(fd, NULL, NULL);
    send(peer, &byte, 1, 0);
    return recv(peer, &byte, 1, 0) != 1;
  }
  FILE* port;
  while ((port = fopen("port", "r")) == NULL) usleep(10000);
  int number = 0;
  fscanf(port, "%d", &number);
  address.sin_port = htons(number);
  connect(fd, (struct sockaddr*)&address, size);
  recv(fd, &byte, 1, 0);
  mkfifo("fifo", 0600);
  int fifo = open("fifo", O_RDWR);
  fclose(fopen("hangs.1", "w"));
  return read(fifo, &byte, 1) != 1;
}
"""

# Maps each name to a whole program that runs for `SECONDS`, in which some ranks are silent for a legitimate reason.
HEALTHY = {
    "evaluation on rank 0": '''
def work(until):
    while time.time() < until:
        sum(range(500_000))
        time.sleep(0.02)

def main():
    dist.init_process_group("gloo")
    dist.all_reduce(tensor())
    if rank == 0:
        work(time.time() + SECONDS)
    dist.barrier()

main()
''',
    "compilation in children": '''
def main():
    dist.init_process_group("gloo")
    dist.all_reduce(tensor())
    if rank == 1:
        subprocess.run([sys.executable, "-c", "import time\\nend = time.time() + SECONDS\\n"
                        "while time.time() < end: sum(range(100_000)); time.sleep(0.02)"])
    dist.barrier()

main()
''',
    "saving on rank 0": '''
def main():
    dist.init_process_group("gloo")
    dist.all_reduce(tensor())
    if rank == 0:
        with open(f"{folder}/checkpoint", "wb") as file:
            end = time.time() + SECONDS
            while time.time() < end:
                file.write(b"x" * 10_000)
                file.flush()
                time.sleep(0.05)
    dist.barrier()

main()
''',
    "slow output": '''
def main():
    dist.init_process_group("gloo")
    dist.all_reduce(tensor())
    if rank == 0:
        end = time.time() + SECONDS
        while time.time() < end:
            print("file", flush=True)
            time.sleep(0.3)
    dist.barrier()

main()
''',
    "imports before the first exchange": '''
def main():
    end = time.time() + SECONDS
    while time.time() < end:
        open(sys.executable, "rb").read(100_000)
        time.sleep(0.05)
    dist.init_process_group("gloo")
    dist.all_reduce(tensor())

main()
''',
    "idle service": '''
import selectors, socket

def main():
    listener = socket.create_server(("127.0.0.1", 0))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.select(SECONDS)

main()
''',
    "all asleep for a reason": '''
time.sleep(SECONDS)
''',
}


def write_standin(folder):
    """Writes the stand-in below `folder`; returns the value of STANDIN."""
    package = pathlib.Path(folder) / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from torch.distributed.distributed_c10d import *\n")
    (package / "distributed_c10d.py").write_text(STANDIN)
    return str(package.parents[1])


def hang_program(name):
    """Returns (text, line): the program, and the number of the line marked `# HERE`, or None."""
    text = BEGIN + {**HANGS, **FROZEN_HANG, **TORCH_HANGS}[name] + MAIN
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# HERE")]
    return text, marked[-1] if marked else None


def healthy_program(name, seconds):
    return BEGIN + HEALTHY[name].replace("SECONDS", str(seconds))


def flight_program(name):
    return BEGIN + FLIGHT_MONITOR + FLIGHT_HANGS[name] + "\nif __name__ == '__main__':\n    main()\n"


def ras_program():
    return BEGIN + RAS_HANG


# A program in C with MPI, whose waiting ranks spin. The last line that is marked `// HERE` is the line at which rank 1
# hangs.
MPI_PROGRAM = r"""
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank;
static MPI_Comm other;
static volatile unsigned long counter;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void begins(void) {
  char name[32];
  snprintf(name, sizeof name, "hangs.%d", rank);
  fclose(fopen(name, "w"));
}

BODY

__attribute__((noinline)) void train(void) {
  for (int step = 0; step < 3; ++step) MPI_Barrier(MPI_COMM_WORLD);
BEFORE
  if (rank == 1) load_batch();
  MPI_Barrier(MPI_COMM_WORLD);
  ++counter;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  if (chdir(getenv("FOLDER")) != 0) return 1;
  train();
  return MPI_Finalize();
}
"""
# Maps each name to the code that rank 1 runs.
MPI_HANGS = {
    "sleeping loader": "  begins();\n  sleep(3600);  // HERE",
    "FIFO without a writer": "  mkfifo(\"fifo\", 0600);\n  begins();\n  open(\"fifo\", O_RDONLY);  // HERE",
    "full pipe": "  int ends[2];\n  static char bytes[1 << 20];\n  pipe(ends);\n  begins();\n"
                 "  write(ends[1], bytes, sizeof bytes);  // HERE",
    "deadlocked fork": "  pthread_mutex_lock(&mutex);\n  begins();\n  pid_t child = fork();\n"
                       "  if (child == 0) pthread_mutex_lock(&mutex);\n  waitpid(child, NULL, 0);  // HERE",
    "lock in a thread": "  pthread_mutex_lock(&mutex);\n  begins();\n  pthread_mutex_lock(&mutex);  // HERE",
    "wait for a dead process": "  int ends[2];\n  char byte;\n  pipe(ends);\n  if (fork() == 0) _exit(0);\n  wait(NULL);\n"
                               "  begins();\n  read(ends[0], &byte, 1);  // HERE",
    "stuck child": "  begins();\n  system(\"sleep 3600\");  // HERE",
    "stopped": "  begins();\n  raise(SIGSTOP);",
    "endless loop": "  begins();\n  for (;;) ++counter;  // HERE",
    "file lock": "  int first = open(\"lock\", O_CREAT | O_RDWR, 0600);\n  flock(first, LOCK_EX);\n  begins();\n"
                 "  flock(open(\"lock\", O_RDWR), LOCK_EX);  // HERE",
    "frozen cgroup": "  char path[256];\n  begins();\n  snprintf(path, sizeof path, \"%s/cgroup.procs\", getenv(\"FREEZER\"));\n"
                     "  FILE* file = fopen(path, \"w\");\n  fprintf(file, \"%d\", getpid());\n  fclose(file);\n"
                     "  snprintf(path, sizeof path, \"%s/cgroup.freeze\", getenv(\"FREEZER\"));\n"
                     "  file = fopen(path, \"w\");\n  fprintf(file, \"1\");\n  fclose(file);",
}
# In these, all ranks are in MPI and spin.
MPI_WAITS = {
    "receive without a sender": "  begins();\n  MPI_Recv(&counter, 1, MPI_LONG, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // HERE",
    "skipped exchange": "  int one = 1, sum;\n  begins();\n"
                        "  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other);  // HERE",
    "another exchange": "  int one = 1;\n  begins();\n  MPI_Bcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);  // HERE",
    "other shape": "  static int many[1 << 20];\n  begins();\n  MPI_Recv(many, 1 << 20, MPI_INT, 0, 0, MPI_COMM_WORLD, "
                   "MPI_STATUS_IGNORE);\n  MPI_Recv(many, 1 << 20, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // HERE",
    "crossed groups": "  begins();\n  MPI_Barrier(other);  // HERE",
}
# Maps each name to the code of rank 0 before the barrier in which it waits.
MPI_BEFORE = {"other shape": "  if (rank == 0) MPI_Send((int*)&counter, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);"}


def mpi_program(name):
    """Returns (text, line), as hang_program does."""
    body = "__attribute__((noinline)) void load_batch(void) {\n" + {**MPI_HANGS, **MPI_WAITS}[name] + "\n  ++counter;\n}"
    text = MPI_PROGRAM.replace("BODY", body).replace("BEFORE", MPI_BEFORE.get(name, ""))
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("// HERE")]
    return text, marked[-1] if marked else None


# In these hangs, the data set of a plugin (hanging_data.cc) hangs in `dslaunch train`.
TRAIN_SOURCE = pathlib.Path(__file__).resolve().parent / "hanging_data.cc"
TRAIN_HANGS = ["sleeping loader", "FIFO without a writer", "full pipe", "lock in a thread", "deadlocked fork", "wait for a dead process",
               "stuck child", "stopped", "endless loop", "frozen cgroup", "silent service", "stuck loader worker", "file lock",
               "semaphore", "pause", "poll without an event"]


def train_recipe(library):
    """Returns the recipe of a small model that reads the plugin's data."""
    return {"model": {"type": "mlp", "hidden_size": 16, "num_classes": 4},
            "data": {"type": "plugin", "plugin": str(library), "name": "hanging"},
            "run": {"epochs": 1000, "seed": 1},
            "engine": {"train_batch_size": 16, "optimizer": {"type": "Adam", "params": {"lr": 0.02}}}}


def train_line(name):
    """Returns the number of the line at which rank 1 hangs, or None."""
    for number, line in enumerate(TRAIN_SOURCE.read_text().splitlines(), 1):
        if line.endswith("// HERE: " + name):
            return number
    return None
