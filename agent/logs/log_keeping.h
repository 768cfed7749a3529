// Limits the size of the ranks' log files, and records times so that logs can be searched by time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace dslaunch {

// A range of a file whose disk space is to be freed. The offsets of the other bytes do not change.
struct Hole {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Returns the range to free so that a file of `size` bytes occupies at most `max_bytes` plus the
// rest of its last block. The first `given_back` bytes are already freed. Returns nullopt if no
// range must be freed. Pure.
std::optional<Hole> DecideHole(uint64_t size, uint64_t given_back, uint64_t max_bytes,
                               uint64_t block_bytes);

// Returns a warning for the user if the disk is nearly full; otherwise nullopt. Pure.
std::optional<std::string> LowSpaceWarning(const std::string& node, const std::string& folder,
                                           uint64_t free_bytes, uint64_t total_bytes);

// Returns the lines of a file `marks` without every second time in its older half (see LogKeeping).
// Pure.
std::string ThinMarks(std::string_view marks);

// Maintains the log files of one node, in one attempt after the other. Used by one thread. A full
// or slow disk may delay or disable the maintenance, but the job continues without an error.
//
// Writes a file `marks` to the attempt's folder, which relates times to offsets in the logs. Its
// lines are "UNIX_MS RANK STDOUT_BYTES STDERR_BYTES" in order of time, one per second for each rank
// that wrote output. It is at most 1 MiB, with larger intervals between older marks. Readers ignore
// malformed lines, which a full disk may have truncated.
class LogKeeping {
 public:
  // `max_bytes` limits the size of each log file; 0 means no limit. Values below 1 MiB count as 1
  // MiB, so that the last lines of a failed rank are kept.
  LogKeeping(std::string node, uint64_t max_bytes);

  // Starts to maintain the files of an attempt. `attempt_folder` contains a folder for each rank.
  void StartAttempt(std::string attempt_folder);
  void AddRank(uint32_t rank, const std::string& folder);

  // Does the work that is due. Returns new messages for the user, each message only once.
  // Precondition: called a few times per second.
  std::vector<std::string> Turn(int64_t now_unix_ms);

  // Checks the disk when a rank has exited, which may be before the next Turn(). Returns new
  // messages for the user, each message only once.
  std::vector<std::string> OnRankEnd();

 private:
  struct LogFile {
    std::string path;
    UniqueFd fd;
    uint64_t size = 0;
    uint64_t given_back = 0;
  };
  struct RankLogs {
    uint32_t rank = 0;
    LogFile out;
    LogFile err;
    uint64_t marked_bytes = 0;  // total size of stdout.log and stderr.log at the last mark
  };

  // Updates the file's size. Returns false if the file is not a regular file or its size cannot be
  // read.
  static bool Measure(LogFile& file);
  void FreeOldPart(LogFile& file, std::vector<std::string>& notices);
  void Mark(int64_t now_unix_ms);
  void CheckSpace(std::vector<std::string>& notices);

  const std::string node_;
  const uint64_t max_bytes_;
  std::string attempt_folder_;
  std::vector<RankLogs> ranks_;
  int64_t marked_at_ms_ = 0;
  int64_t space_checked_at_ms_ = 0;
  bool space_warned_ = false;
  bool full_warned_ = false;
  bool cannot_give_back_ = false;
};

}  // namespace dslaunch
