#include "tests/support/standin_gpu/counts.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/support/standin_gpu/settings.h"

namespace dslaunch::standin {
namespace {

using NumberAndBytes = std::pair<uint64_t, uint64_t>;

struct Step {
  int64_t number = 0;
  uint64_t launches = 0;
  std::map<std::string, uint64_t> waits;
  std::map<std::string, NumberAndBytes> copies, collectives;
};

struct Counts {
  std::mutex mutex;
  Step step;
};

Counts& TheCounts() {
  static auto* const counts = new Counts;
  return *counts;
}

void Write(const Step& step) {
  const std::string& path = TheSettings().counts_file;
  if (path.empty()) return;
  const nlohmann::json line = {{"step", step.number},
                               {"launches", step.launches},
                               {"waits", step.waits},
                               {"copies", step.copies},
                               {"collectives", step.collectives}};
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", line.dump().c_str());
  std::fclose(file);
}

void Add(std::map<std::string, NumberAndBytes>& to, const char* name, uint64_t bytes) {
  NumberAndBytes& values = to[name];
  ++values.first;
  values.second += bytes;
}

}  // namespace

void CountLaunch(const char* name) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  if (name == TheSettings().step_operation) {
    [[maybe_unused]] static const int registered = std::atexit([] { Write(TheCounts().step); });
    Write(counts.step);
    const int64_t next = counts.step.number + 1;
    counts.step = Step();
    counts.step.number = next;
  }
  ++counts.step.launches;
}

void CountWait(const char* why, bool hidden) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  ++counts.step.waits[why];
  const int64_t step = counts.step.number;
  TORCH_CHECK(!hidden || step < TheSettings().no_sync_first || step > TheSettings().no_sync_last,
              "standin: ", why, " waits for the device in step ", step,
              ", which STANDIN_NO_SYNC forbids");
}

void CountCopy(const char* direction, uint64_t bytes) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  Add(counts.step.copies, direction, bytes);
}

void CountCollective(const char* name, uint64_t bytes) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  Add(counts.step.collectives, name, bytes);
}

}  // namespace dslaunch::standin
