// Finds the files that contain the weights of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dslaunch {

inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kWeightIndexFile[] = "model.safetensors.index.json";

// Returns the safetensors files of `path`: the file itself, or a folder's model.safetensors, or the
// files that the folder's model.safetensors.index.json names. Throws kBadInput, naming the file, if
// there are no such files. Rejects pickles (.bin, .pt, .pth) by name.
std::vector<std::string> WeightFiles(const std::string& path);

// Returns the file of each tensor that an index (model.safetensors.index.json) names. Files are
// plain names in the index's folder. Throws kBadInput, naming the index, if the index is malformed.
std::map<std::string, std::string> ReadWeightIndex(const std::string& path);

// Returns whether `name` is a plain file name. Any other path in an index could lead to any file of
// this machine.
bool IsPlainFileName(const std::string& name);

}  // namespace dslaunch
