// Reads the settings of the stand-in device from the environment, once per process.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::standin {

struct Settings {
  int devices = 2;            // FAKE_CUDA_DEVICES, less the devices that CUDA_VISIBLE_DEVICES hides
  uint64_t device_bytes = 0;  // STANDIN_BYTES: memory of each device, in bytes
  int delay_us = 0;  // STANDIN_DELAY_US: longest random delay before an operation, in microseconds
  uint64_t delay_seed = 1;  // STANDIN_DELAY_SEED: seed of the random delays
  bool peers_hang = false;  // STANDIN_HANG=1: a lost peer is not detected, as over NVLink
  bool trace = false;       // STANDIN_TRACE=1: prints a line for each operation on stderr
  std::string step_operation = "aten::nll_loss_forward";  // STANDIN_STEP_OPERATION begins a step
  std::string counts_file;  // STANDIN_COUNTS: output file of counts; ".RANK" is appended
  // STANDIN_IGNORE: a kind of wait that has no effect, as if the trainer had omitted it. "wait":
  // waits for collectives; "synchronize": waits of the host for an event.
  std::string ignored;
  // STANDIN_NO_SYNC, such as 10-20: the steps in which a hidden wait is an error.
  int64_t no_sync_first = 0, no_sync_last = -1;
};

// Exit codes after a detected mistake. No test accepts them as success.
inline constexpr int kExitRace = 86, kExitTouched = 87, kExitCollective = 88;

const Settings& TheSettings();

}  // namespace dslaunch::standin
