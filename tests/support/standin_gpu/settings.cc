#include "tests/support/standin_gpu/settings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/standin_gpu/memory.h"
#include "tests/support/standin_gpu/race_checker.h"

namespace dslaunch::standin {
namespace {

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Returns how many of `devices` devices CUDA_VISIBLE_DEVICES allows.
int Visible(int devices) {
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return devices;
  const std::string list(text);
  if (list.empty() || list == "-1") return 0;
  return std::min(devices, 1 + static_cast<int>(std::ranges::count(list, ',')));
}

Settings Read() {
  Settings settings;
  settings.devices = Visible(std::min(
      kMaxDevices,
      static_cast<int>(Number("FAKE_CUDA_DEVICES", static_cast<uint64_t>(settings.devices)))));
  settings.device_bytes = std::min<uint64_t>(kRegionBytes, Number("STANDIN_BYTES", kRegionBytes));
  settings.delay_us = static_cast<int>(Number("STANDIN_DELAY_US", 0));
  settings.delay_seed = Number("STANDIN_DELAY_SEED", settings.delay_seed);
  settings.peers_hang = Number("STANDIN_HANG", 0) != 0;
  settings.trace = Number("STANDIN_TRACE", 0) != 0;
  if (const char* const kind = std::getenv("STANDIN_IGNORE")) settings.ignored = kind;
  if (const char* const name = std::getenv("STANDIN_STEP_OPERATION")) {
    settings.step_operation = name;
  }
  if (const char* const file = std::getenv("STANDIN_COUNTS")) {
    const char* const rank = std::getenv("RANK");
    settings.counts_file = std::string(file) + "." + (rank == nullptr ? "0" : rank);
  }
  if (const char* const range = std::getenv("STANDIN_NO_SYNC")) {
    if (std::sscanf(range, "%ld-%ld", &settings.no_sync_first, &settings.no_sync_last) != 2) {
      std::fprintf(stderr, "standin: STANDIN_NO_SYNC is \"%s\", not FIRST-LAST\n", range);
      std::_Exit(2);
    }
  }
  return settings;
}

}  // namespace

const Settings& TheSettings() {
  static const auto* const settings = new Settings(Read());
  return *settings;
}

}  // namespace dslaunch::standin
