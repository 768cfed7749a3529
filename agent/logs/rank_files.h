// What ranks left for a report (proto/contract/rank_files.h), read from a job's folder on its node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Files that one inspection lists.
inline constexpr size_t kMaxRankFiles = 20'000;

// A file's offset and how many bytes from there.
using FilePiece = std::pair<uint64_t, uint64_t>;

// What to read of a file of `file_bytes` bytes, at most `max_bytes` (or one small piece) in all:
// the whole, or pieces of equal size from its beginning to its end, equally far from each other.
// In order, without overlap, none longer than one message takes. Pure.
std::vector<FilePiece> PiecesToRead(uint64_t file_bytes, uint64_t max_bytes);

// The lines of a piece: of one that does not begin with a line what is before the first end of a
// line is left out, and in any case what is behind the last one.
std::string WholeLines(std::string piece, bool begins_with_line);

// Reads all files part by part. Takes regular files only, never follows a link, and never waits
// for a writer. Blocks for the disk. Thread-compatible.
class RankFileReader {
 public:
  // FOLDER is BASE/JOB_ID/nodes/NODE.
  RankFileReader(const std::string& folder, uint64_t max_bytes);

  // The next part; the last one has `end`, after which there is none.
  std::optional<pb::RankFilePart> Next();

 private:
  struct File {
    uint64_t attempt = 0;
    uint32_t rank = 0;
    pb::RankFilePart::Kind kind = pb::RankFilePart::METRICS;
    std::string path;
    uint64_t bytes = 0;
  };

  void Open(const File& file);

  std::vector<File> files_;
  size_t next_file_ = 0;
  uint32_t left_out_ = 0;
  uint64_t bytes_left_ = 0;
  uint64_t metrics_bytes_ = 0;  // for each file of metrics
  UniqueFd fd_;
  pb::RankFilePart part_;  // of the open file
  std::vector<FilePiece> pieces_;
  size_t next_piece_ = 0;
  bool ended_ = false;
};

}  // namespace dslaunch
