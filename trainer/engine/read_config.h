// The configuration that a program gives.
#pragma once

#include <cstdint>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "trainer/config/engine_config.h"

namespace dslaunch {

// `config` is the path of a DeepSpeed configuration, or JSON text, which begins with '{'. `stages`
// of a pipeline are those that the program says; 0: it says nothing. Rank 0 prints what was taken
// for "auto".
EngineConfig ReadConfig(const std::string& config, const InitializeOptions& options,
                        const ProcessGroup& group, int64_t stages = 0);

}  // namespace dslaunch
