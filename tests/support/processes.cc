#include "tests/support/processes.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

// Returns the fields of /proc/PID/stat after the name; empty if the process does not exist.
std::vector<std::string> StatFields(pid_t pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(stat.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

}  // namespace

bool WaitFor(milliseconds limit, const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::After(limit);
  while (!condition()) {
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

std::string ReadFile(const std::string& path) { return ReadWhole(path).value_or(""); }

pid_t AwaitPidFile(const std::string& path) {
  WaitFor(milliseconds(10'000), [&path] { return std::filesystem::exists(path); });
  return std::atoi(ReadFile(path).c_str());
}

char StateOf(pid_t pid) {
  const std::vector<std::string> fields = StatFields(pid);
  return fields.empty() ? '-' : fields[0][0];
}

bool IsGone(pid_t pid) {
  const char state = StateOf(pid);
  return state == '-' || state == 'Z' || state == 'X';
}

std::string NewJobId() {
  static int count = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(now) + "-" +
         std::to_string(++count);
}

std::vector<pid_t> PidsOfJob(const std::string& job_id) {
  const std::string wanted =
      std::string(1, '\0') + "DSLAUNCH_JOB_ID=" + job_id + std::string(1, '\0');
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); })) continue;
    const std::string environ = std::string(1, '\0') + ReadFile(entry.path().string() + "/environ");
    const pid_t pid = std::atoi(name.c_str());
    if (environ.find(wanted) != std::string::npos && !IsGone(pid)) pids.push_back(pid);
  }
  return pids;
}

milliseconds CpuTime(pid_t pid) {
  const std::vector<std::string> fields = StatFields(pid);
  if (fields.size() < 13) return milliseconds(0);
  const long ticks = std::atol(fields[11].c_str()) + std::atol(fields[12].c_str());
  return milliseconds(ticks * 1000 / sysconf(_SC_CLK_TCK));
}

}  // namespace dslaunch
