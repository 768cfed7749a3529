// Where the weights of a model are.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

inline constexpr char kWeightsFile[] = "model.safetensors";

// The safetensors files that `path` stands for: itself, or in a folder model.safetensors or what
// model.safetensors.index.json names. Throws kBadInput, naming the file; pickles (.bin, .pt, .pth)
// are refused by their names.
std::vector<std::string> WeightFiles(const std::string& path);

}  // namespace dslaunch
