// Finds the files of a DeepSpeed checkpoint by their names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch {

struct DeepSpeedFiles {
  std::string model;                         // mp_rank_00_model_states.pt; empty if there is none
  std::map<int64_t, std::string> models;     // at stage 3: the file of each rank
  std::map<int64_t, std::string> optimizer;  // at stages 1 to 3: the file of each rank
  std::map<int64_t, std::string> bf16_optimizer;  // files whose names begin with bf16_
  std::string
      tensor_parallel;  // a file of a tensor-parallel rank other than 0; empty if there is none

  // Whether each rank has a model file of its own.
  bool partitioned() const { return model.empty() && !models.empty(); }
  // Returns the model file, or the first rank's; empty if there is none.
  std::string first_model() const { return partitioned() ? models.begin()->second : model; }
};

std::string DeepSpeedModelFile(int64_t rank);                 // at stage 3
std::string DeepSpeedOptimizerFile(int64_t rank, bool bf16);  // at stages 1 to 3

// Sorts the names of a folder's files; others are ignored. Throws kBadInput, naming `folder` and
// the file, for layouts that are not read: experts, layer files of a pipeline. Pure.
DeepSpeedFiles SortDeepSpeedFiles(const std::vector<std::string>& names, const std::string& folder);

// Whether `name` can be a file of a DeepSpeed checkpoint, also of one that is not read.
bool IsDeepSpeedFile(const std::string& name);

}  // namespace dslaunch
