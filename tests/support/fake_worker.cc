// A worker for tests, which launch it instead of a training program. It does what its command line
// requests, always in this order: grandchild, pid file, printing, status steps, wait, end. It reads
// its rank and node from RANK and GROUP_RANK.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr char kUsage[] = R"(usage: fake_worker [option]...
what happens to it (the fault), on every rank unless one is named:
  --exit-code N         ends with N
  --kill-self SIG       sends itself a signal: a number or a name such as KILL, STOP, SEGV
  --after-ms M          waits before it
  --only-rank R         the fault is RANK R's alone; --crash-rank R is the same
  --only-node N         the fault is GROUP_RANK N's alone
what it does before, on every rank:
  --sleep-ms M          waits when it has no fault, then ends with 0
  --ignore-term         ignores SIGTERM
  --print-line TEXT     prints a line; repeatable
  --print-env NAME      prints NAME=VALUE, or "NAME is not set"; repeatable
  --print-hostname      prints "rank R runs on HOST"
  --stdout-mb N         prints N MiB in lines of 64 bytes
  --status-steps N      reports ready and N steps on DSLAUNCH_STATUS_FD
  --step-ms M           waits between them
  --pid-file DIR        writes DIR/rank_R.pid, and DIR/grandchild_R.pid for a grandchild
  --spawn-setsid-grandchild   leaves a process in a session of its own that sleeps for 10 minutes
  --grandchild-ignore-term    which ignores SIGTERM
)";

constexpr int kGrandchildLifeS = 600;

struct Options {
  int exit_code = 0;
  int kill_self = 0;
  long after_ms = 0;
  long sleep_ms = 0;
  long step_ms = 0;
  long stdout_mb = 0;
  long status_steps = 0;
  std::string only_rank, only_node, pid_dir;
  std::vector<std::string> lines, env_names;
  bool ignore_term = false;
  bool print_hostname = false;
  bool grandchild = false;
  bool grandchild_ignore_term = false;
};

[[noreturn]] void Usage(std::string_view problem) {
  std::fprintf(stderr, "fake_worker: %.*s\n%s", static_cast<int>(problem.size()), problem.data(),
               kUsage);
  std::exit(64);
}

int SignalNumber(const std::string& text) {
  if (std::isdigit(static_cast<unsigned char>(text[0]))) return std::atoi(text.c_str());
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* name = sigabbrev_np(signal);
    if (name != nullptr && text == name) return signal;
  }
  Usage("unknown signal " + text);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) Usage(std::string(name) + " needs a value");
      return argv[++i];
    };
    const auto number = [&] { return std::atol(value().c_str()); };
    if (name == "--exit-code")
      options.exit_code = static_cast<int>(number());
    else if (name == "--kill-self")
      options.kill_self = SignalNumber(value());
    else if (name == "--after-ms")
      options.after_ms = number();
    else if (name == "--only-rank" || name == "--crash-rank")
      options.only_rank = value();
    else if (name == "--only-node")
      options.only_node = value();
    else if (name == "--sleep-ms")
      options.sleep_ms = number();
    else if (name == "--ignore-term")
      options.ignore_term = true;
    else if (name == "--print-line")
      options.lines.push_back(value());
    else if (name == "--print-env")
      options.env_names.push_back(value());
    else if (name == "--print-hostname")
      options.print_hostname = true;
    else if (name == "--stdout-mb")
      options.stdout_mb = number();
    else if (name == "--status-steps")
      options.status_steps = number();
    else if (name == "--step-ms")
      options.step_ms = number();
    else if (name == "--pid-file")
      options.pid_dir = value();
    else if (name == "--spawn-setsid-grandchild")
      options.grandchild = true;
    else if (name == "--grandchild-ignore-term")
      options.grandchild_ignore_term = true;
    else
      Usage("unknown option " + std::string(name));
  }
  return options;
}

const char* Env(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

void SleepMs(long ms) {
  timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// Writes the pid file under another name and renames it, so that a test never reads an incomplete
// file.
void WritePid(const std::string& dir, const std::string& name) {
  if (dir.empty()) return;
  const std::string path = dir + "/" + name + "_" + Env("RANK", "0") + ".pid";
  const std::string partial = path + ".part";
  if (FILE* file = std::fopen(partial.c_str(), "w")) {
    std::fprintf(file, "%d\n", static_cast<int>(getpid()));
    std::fclose(file);
    std::rename(partial.c_str(), path.c_str());
  }
}

void Print(const Options& options) {
  for (const std::string& line : options.lines) std::printf("%s\n", line.c_str());
  for (const std::string& name : options.env_names) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr)
      std::printf("%s is not set\n", name.c_str());
    else
      std::printf("%s=%s\n", name.c_str(), value);
  }
  if (options.print_hostname) {
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    std::printf("rank %s runs on %s\n", Env("RANK", "0"), host);
  }
  for (long i = 0; i < options.stdout_mb * (1 << 14); ++i) {
    std::printf("%010ld %.*s\n", i, 52,
                "0123456789012345678901234567890123456789012345678901234567890123");
  }
  std::fflush(stdout);
}

// Starts a grandchild and returns once it is in its own session and, if requested, ignores SIGTERM.
void SpawnGrandchild(const Options& options) {
  int ready[2];
  if (pipe(ready) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);
    setsid();
    if (options.grandchild_ignore_term) std::signal(SIGTERM, SIG_IGN);
    WritePid(options.pid_dir, "grandchild");
    close(ready[0]);
    close(ready[1]);
    for (int s = 0; s < kGrandchildLifeS; ++s) SleepMs(1000);
    _exit(0);
  }
  close(ready[1]);
  waitpid(child, nullptr, 0);
  char byte;
  while (read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(ready[0]);
}

void ReportSteps(const Options& options) {
  const int fd = std::atoi(Env("DSLAUNCH_STATUS_FD", "-1"));
  if (fd < 0 || options.status_steps == 0) return;
  dprintf(fd, "{\"event\":\"ready\"}\n");
  for (long step = 1; step <= options.status_steps; ++step) {
    dprintf(fd,
            "{\"event\":\"step\",\"step\":%ld,\"total_steps\":%ld,\"loss\":%.4f,\"samples_per_s\":"
            "1000}\n",
            step, options.status_steps, 1.0 / static_cast<double>(step));
    if (options.step_ms > 0) SleepMs(options.step_ms);
  }
}

bool FaultIsMine(const Options& options) {
  if (options.exit_code == 0 && options.kill_self == 0) return false;
  if (!options.only_rank.empty() && options.only_rank != Env("RANK", "0")) return false;
  return options.only_node.empty() || options.only_node == Env("GROUP_RANK", "0");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.ignore_term) std::signal(SIGTERM, SIG_IGN);
  if (options.grandchild) SpawnGrandchild(options);
  WritePid(options.pid_dir, "rank");
  Print(options);
  ReportSteps(options);
  if (!FaultIsMine(options)) {
    SleepMs(options.sleep_ms);
    return 0;
  }
  SleepMs(options.after_ms);
  if (options.kill_self != 0) raise(options.kill_self);
  return options.exit_code;
}
