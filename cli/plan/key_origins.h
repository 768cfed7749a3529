// The origin of each key of a recipe: a line of a file, or an option.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/exit_code.h"
#include "cli/plan/yaml_document.h"

namespace dslaunch {

struct KeyOrigin {
  std::string place;                    // "r.yaml:7:3", "r.yaml" or "--set run.seed=x"
  ExitCode code = ExitCode::kBadInput;  // kUsage for an option
};

// Keys are paths; see KeyPlaces.
class KeyOrigins {
 public:
  // Records the places of the keys in `file`, which supplies `root` ("" is the whole recipe).
  // Replaces what is recorded at and below `root`.
  void AddFile(const std::string& root, const std::string& file, const KeyPlaces& places);
  // Records that `option` gave `key` and all keys below it.
  void AddOption(const std::string& key, const std::string& option);

  // Returns the origin of the key, or of the innermost key around it that has one.
  KeyOrigin Of(std::string_view key) const;

 private:
  void Forget(const std::string& key);

  std::map<std::string, KeyOrigin> origins_;
};

}  // namespace dslaunch
