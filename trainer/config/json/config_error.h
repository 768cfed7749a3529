// Defines the error for a configuration. The error keeps its parts, so that a caller that has the
// lines of the keys can add the line.
#pragma once

#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// An error with code kBadInput whose what() is "<source>: <message>".
class ConfigError : public TrainError {
 public:
  // Creates an error. `key` is the path of the key in the source, such as
  // "optimizer.param_groups[0].lr"; empty if the error is about the whole text. `message` names the
  // key too.
  ConfigError(const std::string& source, std::string key, std::string message)
      : TrainError(ExitCode::kBadInput, source + ": " + message),
        source_(source),
        key_(std::move(key)),
        message_(std::move(message)) {}

  const std::string& source() const { return source_; }
  const std::string& key() const { return key_; }
  const std::string& message() const { return message_; }

 private:
  std::string source_;
  std::string key_;
  std::string message_;
};

}  // namespace dslaunch
