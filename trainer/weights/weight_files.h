// The files that hold the weights of a model.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

inline constexpr char kWeightsFile[] = "model.safetensors";

// The safetensors files of `path`: the file itself; of a folder model.safetensors, or the files
// that model.safetensors.index.json names. Throws kBadInput, naming the file. Pickles (.bin, .pt,
// .pth) are refused by name.
std::vector<std::string> WeightFiles(const std::string& path);

}  // namespace dslaunch
