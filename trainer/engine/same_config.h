// Compares the configurations of the ranks of a pipeline. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// `settings` has the SharedSettings (engine_config.h) of each rank. Returns "" if they agree, else
// a sentence with the first setting in which they differ and the value of each rank.
std::string ConfigDisagreement(const std::vector<std::string>& settings);

}  // namespace dslaunch
