// What the environment asks of the stand-in device. Read once.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::standin {

struct Settings {
  int devices = 2;            // FAKE_CUDA_DEVICES, less what CUDA_VISIBLE_DEVICES hides
  uint64_t device_bytes = 0;  // STANDIN_BYTES: memory of each device
  int delay_us = 0;           // STANDIN_DELAY_US: operations begin up to so much later, at random
  uint64_t delay_seed = 1;    // STANDIN_DELAY_SEED
  bool peers_hang = false;    // STANDIN_HANG=1: a lost peer is not noticed, as over NVLink
  bool trace = false;         // STANDIN_TRACE=1: each operation is a line on stderr
  std::string step_operation = "aten::nll_loss_forward";  // STANDIN_STEP_OPERATION begins a step
  std::string counts_file;                                // STANDIN_COUNTS; ".RANK" is appended
  // STANDIN_IGNORE: a kind of wait that does nothing here, as if the trainer had left it out:
  // "wait" for collectives, or "synchronize" of the host by an event.
  std::string ignored;
  // STANDIN_NO_SYNC=10-20: in these steps a hidden wait is an error.
  int64_t no_sync_first = 0, no_sync_last = -1;
};

// An end of the process after a mistake, which no test takes for a success.
inline constexpr int kExitRace = 86, kExitTouched = 87, kExitCollective = 88;

const Settings& TheSettings();

}  // namespace dslaunch::standin
