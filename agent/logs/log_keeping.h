// Keeping the ranks' log files within bounds, and finding a time in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace dslaunch {

// The part of a file to give back to the disk: the offsets of what is left stay.
struct Hole {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// So that a file of `size` bytes, given back up to `given_back` so far, holds at most `max_bytes`
// and what fills its last block. Pure.
std::optional<Hole> DecideHole(uint64_t size, uint64_t given_back, uint64_t max_bytes,
                               uint64_t block_bytes);

// What a user should hear of a disk that runs full; nullopt: there is room. Pure.
std::optional<std::string> LowSpaceWarning(const std::string& node, const std::string& folder,
                                           uint64_t free_bytes, uint64_t total_bytes);

// Marks (see LogKeeping) with every second point in time of their older half left out. Pure.
std::string ThinMarks(std::string_view marks);

// Looks after the files of one node, one attempt after the other. Driven by its owner, on one
// thread. A full or slow disk makes it late or useless, never an error: the job goes on.
//
// In the attempt's folder it writes `marks`, by which a time is found in the logs: lines
// "UNIX_MS RANK STDOUT_BYTES STDERR_BYTES", in order of time, one a second for each rank that wrote
// something; 1 MiB at most, the older ones further apart. A line that is not of that form is to be
// ignored: it was cut by a full disk.
class LogKeeping {
 public:
  // `max_bytes` of each log file; 0: no limit. Below 1 MiB it counts as that, so that the last
  // lines of a failed rank are there.
  LogKeeping(std::string node, uint64_t max_bytes);

  // The files to look after from now on. `attempt_folder` has a folder for each rank.
  void StartAttempt(std::string attempt_folder);
  void AddRank(uint32_t rank, const std::string& folder);

  // Call it a few times a second. Returns what the user should hear, each once.
  std::vector<std::string> Turn(int64_t now_unix_ms);

  // A rank has ended, perhaps before Turn looked at the disk. The same.
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
    uint64_t marked_bytes = 0;  // of both, at the last mark
  };

  // True when it is a file and its size is known.
  static bool Measure(LogFile& file);
  void GiveBack(LogFile& file, std::vector<std::string>& notices);
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
