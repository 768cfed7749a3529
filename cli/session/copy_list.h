// Files and folders that nodes get before the job starts (--copy, --copy_dir).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct CopyList {
  std::string key;                     // digest of all entries without their times
  std::vector<pb::CopyEntry> entries;  // each folder before its content
  std::vector<std::string> sources;    // absolute path of each entry
  size_t num_files = 0;
  uint64_t bytes = 0;

  // Returns the path of `path`, absolute or relative to `cwd`, below the folder of the copies;
  // empty if it is not copied.
  std::string PlaceOf(const std::string& path, const std::string& cwd) const;
};

// `files` and `folders` are as typed, relative to `cwd`, which is absolute. Entries below `cwd`
// keep their path from there; others are stored under their last name. Links within a folder stay
// links. Reads all content, for its checksums. Errors name the file: kBadInput if it is missing, of
// the wrong kind, a link that leaves its folder, or has the same name as another one; kIo if it
// cannot be read.
Result<std::shared_ptr<const CopyList>> ListCopies(const std::vector<std::string>& files,
                                                   const std::vector<std::string>& folders,
                                                   const std::string& cwd);

}  // namespace dslaunch
