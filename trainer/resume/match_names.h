// Matches the tensors of a model with those in another program's checkpoint. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/config/model_family.h"

namespace dslaunch {

struct MatchedNames {
  // Names in the checkpoint, keyed by the model's names.
  std::map<std::string, std::string> in_checkpoint;
  // Tensors that the checkpoint has twice and the model has once. The key is the second name in the
  // checkpoint, the value is a key of WeightNames::copies.
  std::map<std::string, std::string> copies;
  std::vector<std::string> missing;   // sorted names that only the model has
  std::vector<std::string> extra;     // sorted names that only the checkpoint has
  std::string prefix;                 // prefix that only the checkpoint's names have
  std::vector<std::string> wrappers;  // parts of names that wrappers added, such as "_orig_mod"
};

// Matches the names in `model` with the names in `checkpoint`, both without optimizer state. From
// the checkpoint's names, removes a prefix that the model's names lack ("module.") and the parts
// that wrappers of torch.compile, FSDP and activation checkpoints add. `names` belongs to the
// model's family. `aliases` maps further names of the checkpoint's tensors to their names in
// `checkpoint`. Tensors with WeightNames::ignored_endings are omitted.
MatchedNames MatchNames(const std::vector<std::string>& model,
                        const std::vector<std::string>& checkpoint,
                        const std::map<std::string, std::string>& aliases,
                        const WeightNames& names);

// Returns a clause about the removed parts of names, such as: names are read without "module."; ""
// if nothing was removed.
std::string DescribeDropped(const MatchedNames& matched);

}  // namespace dslaunch
