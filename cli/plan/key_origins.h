// Records the origin of each key of a recipe, which is a line of a file or an option.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/exit_code.h"
#include "cli/plan/yaml_document.h"

namespace dslaunch {

struct KeyOrigin {
  std::string place;  // origin such as "r.yaml:7:3", "r.yaml" or "--set run.seed=x"
  ExitCode code = ExitCode::kBadInput;  // exit code of an error about the key; kUsage for an option
};

// Maps the keys of a recipe to their origins. Keys are paths, such as "run.steps".
class KeyOrigins {
 public:
  // Records the places of the keys in `file`, which supplies `root` ("" is the whole recipe).
  // Replaces the origins recorded at and below `root`.
  void AddFile(const std::string& root, const std::string& file, const KeyPlaces& places);
  // Records that `option` supplied `key` and all keys below it.
  void AddOption(const std::string& key, const std::string& option);

  // Returns the origin of `key`, or of the innermost enclosing key that has an origin.
  KeyOrigin Of(std::string_view key) const;

 private:
  // Removes the origins of `key` and of all keys below it.
  void Forget(const std::string& key);

  std::map<std::string, KeyOrigin> origins_;
};

}  // namespace dslaunch
