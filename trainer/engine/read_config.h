// Reads the configuration that a program passes to Initialize.
#pragma once

#include <cstdint>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "trainer/config/engine_config.h"

namespace dslaunch {

// Returns the configuration. `config` is the path of a DeepSpeed configuration, or JSON text that
// begins with '{'. Rank 0 prints the values chosen for "auto". Throws TrainError kBadInput if the
// configuration is not valid, or has settings that only recipes support.
EngineConfig ReadConfig(const std::string& config, const InitializeOptions& options,
                        const ProcessGroup& group, const ProgramLayout& program = {});

}  // namespace dslaunch
