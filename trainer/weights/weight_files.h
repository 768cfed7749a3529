// The files that hold the weights of a model.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

inline constexpr char kWeightsFile[] = "model.safetensors";

// Returns the safetensors files of `path`: the file itself, or a folder's model.safetensors, or the
// files that its model.safetensors.index.json names. Throws kBadInput, naming the file. Refuses
// pickles (.bin, .pt, .pth) by name.
std::vector<std::string> WeightFiles(const std::string& path);

}  // namespace dslaunch
