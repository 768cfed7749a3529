// Who gave each key of a recipe: a line of a file, or an option.
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

// Keys are named by their paths, as KeyPlaces has them.
class KeyOrigins {
 public:
  // Of `file`, which stands for the key `root` ("" is the whole recipe), with the places in it.
  // What was known of `root` and below is forgotten.
  void AddFile(const std::string& root, const std::string& file, const KeyPlaces& places);
  // `option` gave the value of `key` and all below it.
  void AddOption(const std::string& key, const std::string& option);

  // Of the key; where it is missing, or has no origin of its own, of what it would be in.
  KeyOrigin Of(std::string_view key) const;

 private:
  void Forget(const std::string& key);

  std::map<std::string, KeyOrigin> origins_;
};

}  // namespace dslaunch
