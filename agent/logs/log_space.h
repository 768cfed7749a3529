// Room for the logs on their disk: a rank whose output does not fit may end without a word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace dslaunch {

struct LogSpace {
  uint64_t free_bytes = 0;  // for this user
  uint64_t total_bytes = 0;
};

// nullopt: the file system does not say.
std::optional<LogSpace> ReadLogSpace(const std::string& folder);

// kIo: nothing can be started, since its output would be lost from the first line on. Pure.
Result<void> CheckLogSpace(const std::string& node, const std::string& folder,
                           const std::optional<LogSpace>& space);

// What to tell the user where ranks have ended, however they did; nullopt: the disk is not full.
// Pure.
std::optional<std::string> FullDiskNotice(const std::string& node, const std::string& folder,
                                          const std::optional<LogSpace>& space);

// What to say of a rank that failed without a word; nullopt: the disk is not full. Pure.
std::optional<std::string> FullDiskEvidence(const std::string& folder,
                                            const std::optional<LogSpace>& space);

}  // namespace dslaunch
