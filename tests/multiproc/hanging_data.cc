// Plugin for tests/multiproc/hang_test.py and tests/bench/hangs: a data set that hangs on rank 1 in
// its fifth batch, in the way that the environment variable HANG names. The line at which the rank
// then hangs ends with "// HERE: NAME".
#include <ATen/ATen.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "dslaunch/plugin.h"

namespace {

std::string InFolder(const std::string& name) { return std::getenv("FOLDER") + ("/" + name); }

void Begins() { std::ofstream(InFolder("hangs.1")).flush(); }

volatile unsigned long g_counter = 0;
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

[[gnu::noinline]] void LoadBatch(const std::string& hang) {
  int ends[2] = {-1, -1};
  char byte = 0;
  static char bytes[1 << 20];
  Begins();
  if (hang == "sleeping loader") {
    sleep(3600);  // HERE: sleeping loader
  } else if (hang == "FIFO without a writer") {
    mkfifo(InFolder("fifo").c_str(), 0600);
    open(InFolder("fifo").c_str(), O_RDONLY);  // HERE: FIFO without a writer
  } else if (hang == "full pipe") {
    if (pipe(ends) == 0) write(ends[1], bytes, sizeof bytes);  // HERE: full pipe
  } else if (hang == "lock in a thread") {
    pthread_mutex_lock(&g_mutex);
    pthread_mutex_lock(&g_mutex);  // HERE: lock in a thread
  } else if (hang == "deadlocked fork") {
    pthread_mutex_lock(&g_mutex);
    const pid_t child = fork();
    if (child == 0) pthread_mutex_lock(&g_mutex);
    waitpid(child, nullptr, 0);  // HERE: deadlocked fork
  } else if (hang == "wait for a dead process") {
    if (pipe(ends) != 0) return;
    if (fork() == 0) _exit(0);
    wait(nullptr);
    read(ends[0], &byte, 1);  // HERE: wait for a dead process
  } else if (hang == "stuck child") {
    system("sleep 3600");  // HERE: stuck child
  } else if (hang == "stopped") {
    raise(SIGSTOP);
  } else if (hang == "endless loop") {
    while (true) ++g_counter;  // HERE: endless loop
  } else if (hang == "frozen cgroup") {
    const std::string cgroup = std::getenv("FREEZER");
    std::ofstream(cgroup + "/cgroup.procs") << getpid() << std::flush;
    std::ofstream(cgroup + "/cgroup.freeze") << 1 << std::flush;
  } else if (hang == "silent service") {
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    recv(ends[0], &byte, 1, 0);  // HERE: silent service
  } else if (hang == "stuck loader worker") {
    std::thread([] { sleep(3600); }).join();  // HERE: stuck loader worker
  } else if (hang == "file lock") {
    const int first = open(InFolder("lock").c_str(), O_CREAT | O_RDWR, 0600);
    flock(first, LOCK_EX);
    flock(open(InFolder("lock").c_str(), O_RDWR), LOCK_EX);  // HERE: file lock
  } else if (hang == "semaphore") {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    sem_wait(&semaphore);  // HERE: semaphore
  } else if (hang == "pause") {
    pause();  // HERE: pause
  } else if (hang == "poll without an event") {
    if (pipe(ends) != 0) return;
    pollfd awaited = {.fd = ends[0], .events = POLLIN, .revents = 0};
    poll(&awaited, 1, -1);  // HERE: poll without an event
  }
  ++g_counter;
}

class Hanging : public dslaunch::Dataset {
 public:
  explicit Hanging(const dslaunch::DatasetInput&) {}

  int64_t size() const override { return 64; }

  dslaunch::Batch Fetch(std::span<const int64_t> indices) const override {
    constexpr int kHealthyFetches = 5;
    const char* const hang = std::getenv("HANG");
    const char* const rank = std::getenv("RANK");
    if (hang != nullptr && rank != nullptr && std::atoi(rank) == 1 && ++fetches_ > kHealthyFetches)
      LoadBatch(hang);
    const auto count = static_cast<int64_t>(indices.size());
    return {at::ones({count, 8}), at::zeros({count}, at::kLong)};
  }

 private:
  mutable std::atomic<int> fetches_ = 0;
};

}  // namespace

DSLAUNCH_DATASET(hanging, Hanging)
