// Finds the files of a DeepSpeed checkpoint by their names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch {

struct DeepSpeedFiles {
  std::string model;  // mp_rank_00_model_states.pt; empty if the file is missing
  std::map<int64_t, std::string> models;          // model file of each rank at stage 3
  std::map<int64_t, std::string> optimizer;       // optimizer file of each rank at stages 1 to 3
  std::map<int64_t, std::string> bf16_optimizer;  // optimizer files whose names begin with bf16_
  // Model file of a tensor-parallel rank other than 0; empty if there is no such file.
  std::string tensor_parallel;

  // Returns whether each rank has a model file of its own.
  bool partitioned() const { return model.empty() && !models.empty(); }
  // Returns the model file, or the first rank's model file if each rank has one; empty without
  // model files.
  std::string first_model() const { return partitioned() ? models.begin()->second : model; }
};

// Returns the name of a rank's model file at stage 3.
std::string DeepSpeedModelFile(int64_t rank);
// Returns the name of a rank's optimizer file at stages 1 to 3.
std::string DeepSpeedOptimizerFile(int64_t rank, bool bf16);

// Sorts the names of a folder's files by kind, and ignores names of other files. Throws kBadInput,
// naming `folder` and the file, for layouts that are not supported: experts, and layer files of a
// pipeline. Pure.
DeepSpeedFiles SortDeepSpeedFiles(const std::vector<std::string>& names, const std::string& folder);

// Returns whether `name` can be a file of a DeepSpeed checkpoint, including layouts that are not
// supported.
bool IsDeepSpeedFile(const std::string& name);

}  // namespace dslaunch
