// Helpers of the readers of data files.
#pragma once

#include <filesystem>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Throws TrainError kBadInput: "FILE: PROBLEM".
[[noreturn]] inline void RefuseDataFile(const std::string& file, const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, file + ": " + problem);
}

// Throws kBadInput if `path` is a file, because the data's type reads a folder.
inline void RefuseFileForFolder(const std::string& path, const std::string& type) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  RefuseDataFile(path, "is a file, but data.type " + type +
                           " reads a folder; name the folder, or set the type of the file, such as "
                           "--set data.type=csv");
}

inline bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace dslaunch
