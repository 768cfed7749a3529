// Counts threads and descriptors of this process, so that a test can check for leaks.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/deadline.h"

namespace dslaunch {

inline size_t OpenDescriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Counts dslaunch's own threads, including the main thread. gRPC's threads have their own names;
// dslaunch's threads have the program's name.
inline size_t OwnThreads() {
  const auto name_of = [](const std::filesystem::path& task) {
    std::ifstream file(task / "comm");
    std::string name;
    std::getline(file, name);
    return name;
  };
  const std::string program = name_of("/proc/self");
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    count += name_of(task.path()) == program ? 1 : 0;
  return count;
}

struct HeldResources {
  size_t threads = 0;
  size_t descriptors = 0;
  static HeldResources Now() { return {OwnThreads(), OpenDescriptors()}; }
};

// Waits up to 10 s until the process has no more threads and descriptors than `before`, because
// ended threads may take a moment to disappear. Returns the last counts.
inline HeldResources AwaitNoMoreThan(const HeldResources& before) {
  const Deadline deadline = Deadline::After(milliseconds(10'000));
  HeldResources now = HeldResources::Now();
  while ((now.threads > before.threads || now.descriptors > before.descriptors) &&
         !deadline.Expired()) {
    std::this_thread::sleep_for(milliseconds(10));
    now = HeldResources::Now();
  }
  return now;
}

}  // namespace dslaunch
