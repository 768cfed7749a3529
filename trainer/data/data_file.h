// Implements functions that the readers of data files share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "trainer/base/train_error.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Throws TrainError kBadInput with the message "FILE: PROBLEM".
[[noreturn]] inline void RefuseDataFile(const std::string& file, const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, file + ": " + problem);
}

// Throws kBadInput if `path` is a file, because data of type `type` is read from a folder.
inline void RefuseFileForFolder(const std::string& path, const std::string& type) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  RefuseDataFile(path, "is a file, but data.type " + type +
                           " reads a folder; name the folder, or set the type of the file, such as "
                           "--set data.type=csv");
}

// Throws std::out_of_range unless `index` is from 0 to size - 1.
inline void CheckSampleIndex(int64_t index, int64_t size) {
  if (index < 0 || index >= size) throw std::out_of_range("no sample " + std::to_string(index));
}

// Returns the number of samples (or tokens), out of `count`, that val_fraction reserves for
// evaluation.
inline int64_t ValidationCount(const DataConfig& data, int64_t count) {
  return static_cast<int64_t>(static_cast<double>(count) * data.val_fraction);
}

inline bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace dslaunch
