// Lists the files and folders that nodes get before the job starts (--copy, --copy_dir).
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
  std::vector<pb::CopyEntry> entries;  // copied files and folders; each folder precedes its content
  std::vector<std::string> sources;    // absolute path of each entry's source on this machine
  size_t num_files = 0;
  uint64_t bytes = 0;

  // Returns the path below the folder of the copies at which `path`, absolute or relative to `cwd`,
  // is stored; empty if `path` is not copied.
  std::string PlaceOf(const std::string& path, const std::string& cwd) const;
};

// Lists the copies and reads all their content, for the checksums. `files` and `folders` are as
// typed, relative to `cwd`, which is absolute. Entries below `cwd` keep their path relative to
// `cwd`; others are stored under their last name. Links within a folder stay links. Errors name the
// file. They are kBadInput if the file is missing, of the wrong kind, a link that leaves its
// folder, or has the same name as another file. They are kIo if the file cannot be read.
Result<std::shared_ptr<const CopyList>> ListCopies(const std::vector<std::string>& files,
                                                   const std::vector<std::string>& folders,
                                                   const std::string& cwd);

}  // namespace dslaunch
