// What all ranks of a pipeline must have configured alike, or they would wait for each other, or
// train different models. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// `settings` has SharedSettings of each rank. Empty where they agree, else one sentence that names
// the first setting in which they differ, and which rank has what.
std::string ConfigDisagreement(const std::vector<std::string>& settings);

}  // namespace dslaunch
