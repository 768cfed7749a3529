// Disk space for the logs. A rank whose output does not fit may exit without an error message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace dslaunch {

struct LogSpace {
  uint64_t free_bytes = 0;  // available to this user
  uint64_t total_bytes = 0;
};

// Returns nullopt if the file system does not report its space.
std::optional<LogSpace> ReadLogSpace(const std::string& folder);

// Fails with kIo if the disk is full, because the output of ranks would be lost from the first line
// on. Pure.
Result<void> CheckLogSpace(const std::string& node, const std::string& folder,
                           const std::optional<LogSpace>& space);

// Returns a message for the user after ranks have exited, for whatever reason, if the disk is full;
// otherwise nullopt. Pure.
std::optional<std::string> FullDiskNotice(const std::string& node, const std::string& folder,
                                          const std::optional<LogSpace>& space);

// Returns the evidence for a rank that failed without an error message, if the disk is full;
// otherwise nullopt. Pure.
std::optional<std::string> FullDiskEvidence(const std::string& folder,
                                            const std::optional<LogSpace>& space);

}  // namespace dslaunch
