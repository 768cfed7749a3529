// Checks the disk space for the logs. A rank whose output does not fit on the disk may exit without
// an error message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace dslaunch {

struct LogSpace {
  uint64_t free_bytes = 0;  // space that is available to this user
  uint64_t total_bytes = 0;
};

// Returns the disk space of the file system that contains `folder`; nullopt if it cannot be read.
std::optional<LogSpace> ReadLogSpace(const std::string& folder);

// Fails with kIo if the disk is full, because all output of the ranks would be lost. Pure.
Result<void> CheckLogSpace(const std::string& node, const std::string& folder,
                           const std::optional<LogSpace>& space);

// Returns a message for the user if the disk is full; otherwise nullopt. Used after ranks have
// exited for any reason. Pure.
std::optional<std::string> FullDiskNotice(const std::string& node, const std::string& folder,
                                          const std::optional<LogSpace>& space);

// Returns evidence for a rank that failed without an error message if the disk is full; otherwise
// nullopt. Pure.
std::optional<std::string> FullDiskEvidence(const std::string& folder,
                                            const std::optional<LogSpace>& space);

}  // namespace dslaunch
