// Writes checkpoints as DeepSpeed's universal checkpoints, which DeepSpeed loads on any number of
// ranks and at any ZeRO stage by `"checkpoint": {"load_universal": true}`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// Receives the bytes written so far and in all.
using ProgressFn = std::function<void(uint64_t written, uint64_t all)>;

// Writes the weights and the optimizer's state of `checkpoint` into the new folder `out`.
void WriteUniversal(const Checkpoint& checkpoint, const std::string& out,
                    const ProgressFn& progress);

}  // namespace dslaunch
