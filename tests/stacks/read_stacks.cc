// Prints what agent/stacks reads from a process as JSON, and how long reading took.
//
// Usage: read_stacks PID [LOOKS]: prints the answer of the last of that many looks, 1 by default.
//        read_stacks PID --record FILE: writes a MemoryImage of a Python process.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agent/stacks/process_stacks.h"
#include "base/os/proc_text.h"
#include "tests/stacks/memory_image.h"

namespace {

nlohmann::json ToJson(const dslaunch::ProcessStacks& stacks) {
  nlohmann::json threads = nlohmann::json::array();
  for (const dslaunch::ThreadStack& thread : stacks.threads) {
    nlohmann::json frames = nlohmann::json::array();
    for (const dslaunch::PythonFrame& frame : thread.python.frames)
      frames.push_back({frame.function, frame.file, frame.line});
    threads.push_back({{"tid", thread.kernel.tid},
                       {"python_tid", thread.python.tid},
                       {"name", thread.kernel.name},
                       {"state", std::string(1, thread.kernel.state)},
                       {"call", thread.kernel.call},
                       {"target", thread.kernel.target},
                       {"has_gil", thread.python.has_gil},
                       {"signature", thread.signature},
                       {"frames", frames}});
  }
  return {{"python", stacks.python},
          {"no_python", stacks.no_python},
          {"threads", threads},
          {"torn", stacks.torn},
          {"cut", stacks.cut}};
}

int Record(pid_t pid, const std::string& path) {
  std::string text = dslaunch::ReadWhole("/proc/" + std::to_string(pid) + "/maps").value_or("");
  std::vector<dslaunch::FileMapping> maps = dslaunch::ParseMaps(text, 10'000);
  std::string head;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = dslaunch::TakeLine(rest);
    // Keeps the lines of the program, the library, and a module with the version in its path.
    const bool is_first = head.empty();
    if (is_first || line.find("/libpython3.") != line.npos ||
        (line.find("/lib-dynload/") != line.npos && head.find("/lib-dynload/") == head.npos))
      head += std::string(line) + "\n";
  }
  std::vector<pid_t> tids;
  head += "tids";
  for (const dslaunch::ThreadState& thread : dslaunch::ReadThreadStates(pid, 100).threads) {
    tids.push_back(thread.tid);
    head += " " + std::to_string(thread.tid);
  }
  dslaunch::ProcessMemory memory(pid);
  dslaunch::RecordingMemory recording(memory);
  const auto layout = dslaunch::FindLayout(maps, recording);
  if (!layout.ok() || !layout->has_value()) return 1;
  dslaunch::ReadPythonStacks(recording, **layout, tids);
  std::ofstream(path, std::ios::binary) << head << "\n\n" << recording.records();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  if (argc == 4) return Record(std::atoi(argv[1]), argv[3]);
  const auto process = dslaunch::ReadProcess(std::atoi(argv[1]));
  if (!process) return 1;
  dslaunch::StackReader reader;
  std::optional<dslaunch::ProcessStacks> stacks;
  nlohmann::json us = nlohmann::json::array();
  nlohmann::json cpu_us = nlohmann::json::array();
  const int looks = argc > 2 ? std::atoi(argv[2]) : 1;
  int torn = 0;
  for (int look = 0; look < looks; ++look) {
    const auto begun = std::chrono::steady_clock::now();
    const std::clock_t cpu_begun = std::clock();
    stacks = reader.Read(*process);
    us.push_back(std::chrono::duration_cast<std::chrono::microseconds>(
                     std::chrono::steady_clock::now() - begun)
                     .count());
    cpu_us.push_back(static_cast<double>(std::clock() - cpu_begun) * 1e6 / CLOCKS_PER_SEC);
    if (!stacks) return 1;
    if (stacks->torn) ++torn;
  }
  nlohmann::json answer = ToJson(*stacks);
  answer["us"] = us;
  answer["cpu_us"] = cpu_us;
  answer["torn_looks"] = torn;
  std::puts(answer.dump().c_str());
  return 0;
}
