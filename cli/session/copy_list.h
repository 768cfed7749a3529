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
  std::string key;                     // of all entries but their times
  std::vector<pb::CopyEntry> entries;  // folders before what is in them
  std::vector<std::string> sources;    // of each entry, absolute
  size_t num_files = 0;
  uint64_t bytes = 0;

  // The path below the folder of the copies of what is at `path` here, absolute or relative to
  // `cwd`; empty: it is none of them.
  std::string PlaceOf(const std::string& path, const std::string& cwd) const;
};

// `files` and `folders` as typed, relative to `cwd`, which is absolute. What is below `cwd` keeps
// its path from there; the rest lies under its last name. Links within a folder stay links. Reads
// all content, for its checksums. Errors name the file: kBadInput, it is missing, of the wrong
// kind, a link that leaves its folder, or two would have one name; kIo, it cannot be read.
Result<std::shared_ptr<const CopyList>> ListCopies(const std::vector<std::string>& files,
                                                   const std::vector<std::string>& folders,
                                                   const std::string& cwd);

}  // namespace dslaunch
