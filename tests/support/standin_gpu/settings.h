// Settings of the stand-in device from the environment. Read once.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::standin {

struct Settings {
  int devices = 2;            // FAKE_CUDA_DEVICES, minus those that CUDA_VISIBLE_DEVICES hides
  uint64_t device_bytes = 0;  // STANDIN_BYTES: memory of each device
  int delay_us = 0;           // STANDIN_DELAY_US: operations begin later by up to this, at random
  uint64_t delay_seed = 1;    // STANDIN_DELAY_SEED
  bool peers_hang = false;    // STANDIN_HANG=1: a lost peer is not noticed, like over NVLink
  bool trace = false;         // STANDIN_TRACE=1: prints a line for each operation on stderr
  std::string step_operation = "aten::nll_loss_forward";  // STANDIN_STEP_OPERATION begins a step
  std::string counts_file;                                // STANDIN_COUNTS; ".RANK" is appended
  // STANDIN_IGNORE: a kind of wait that has no effect, as if the trainer had omitted it: "wait" for
  // collectives, or "synchronize" of the host with an event.
  std::string ignored;
  // STANDIN_NO_SYNC=10-20: in these steps a hidden wait is an error.
  int64_t no_sync_first = 0, no_sync_last = -1;
};

// Exit codes after a mistake, which no test takes for success.
inline constexpr int kExitRace = 86, kExitTouched = 87, kExitCollective = 88;

const Settings& TheSettings();

}  // namespace dslaunch::standin
