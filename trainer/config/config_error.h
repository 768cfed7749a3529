// What is wrong with a configuration, in parts: who knows where its keys stand can say more than
// its source.
#pragma once

#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// kBadInput, and its sentence is "<source>: <said>".
class ConfigError : public TrainError {
 public:
  // `key` is the path of the key within the source, "optimizer.param_groups[0].lr"; empty: the
  // whole of it. `said` names the key too.
  ConfigError(const std::string& source, std::string key, std::string said)
      : TrainError(ExitCode::kBadInput, source + ": " + said),
        source_(source),
        key_(std::move(key)),
        said_(std::move(said)) {}

  const std::string& source() const { return source_; }
  const std::string& key() const { return key_; }
  const std::string& said() const { return said_; }

 private:
  std::string source_;
  std::string key_;
  std::string said_;
};

}  // namespace dslaunch
