// What readers of data files share.
#pragma once

#include <filesystem>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Throws TrainError kBadInput: "FILE: PROBLEM".
[[noreturn]] inline void RefuseDataFile(const std::string& file, const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, file + ": " + problem);
}

inline bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace dslaunch
