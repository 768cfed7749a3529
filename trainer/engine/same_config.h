// Compares the configurations of the ranks of a pipeline. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns "" if the settings of all ranks agree, else a sentence with the first setting that
// differs and its value on each rank. `settings` has the SharedSettings (engine_config.h) of each
// rank.
std::string ConfigDisagreement(const std::vector<std::string>& settings);

}  // namespace dslaunch
