// Finds the tensors of a model in another program's checkpoint. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/config/model_family.h"

namespace dslaunch {

struct MatchedNames {
  std::map<std::string, std::string> in_checkpoint;  // key: the model's name
  // Tensors that the model has once but the checkpoint twice. Key: the second name in the
  // checkpoint; value: the key of WeightNames::copies.
  std::map<std::string, std::string> copies;
  std::vector<std::string> missing;  // names in the model only, sorted
  std::vector<std::string> extra;    // names in the checkpoint only, sorted
  std::string prefix;  // beginning of all names in the checkpoint that the model's names lack
  std::vector<std::string> wrappers;  // parts of names that wrappers of modules add ("_orig_mod")
};

// Matches `model` with `checkpoint`, both without optimizer state. A prefix that the model's names
// lack ("module.") and the names of torch.compile's, FSDP's and activation checkpoints' wrappers
// are dropped from the checkpoint's names. `names` are the model's family's. `aliases` has further
// names of the checkpoint's tensors, each with the name in `checkpoint`. Tensors with
// WeightNames::ignored_endings are left out.
MatchedNames MatchNames(const std::vector<std::string>& model,
                        const std::vector<std::string>& checkpoint,
                        const std::map<std::string, std::string>& aliases,
                        const WeightNames& names);

// Returns a clause about everything that was dropped: "names are read without "module."". "" if
// nothing was.
std::string DescribeDropped(const MatchedNames& matched);

}  // namespace dslaunch
