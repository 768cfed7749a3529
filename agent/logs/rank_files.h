// Reads the ranks' report files (proto/contract/rank_files.h) from a job's folder on its node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Limit of the number of files that one inspection lists.
inline constexpr size_t kMaxRankFiles = 20'000;

// A part of a file: offset and size in bytes.
using FilePiece = std::pair<uint64_t, uint64_t>;

// Returns the parts of a file of `file_bytes` bytes to read. These are the whole file, or equal
// parts at equal distances from the file's beginning to its end, with at most `max_bytes` (or one
// small part) in total. The parts are in order, do not overlap, and fit into one message each.
// Pure.
std::vector<FilePiece> PiecesToRead(uint64_t file_bytes, uint64_t max_bytes);

// Returns the complete lines of a part of a file. Removes the text after the last line ending and,
// if the part does not begin at a line, the text up to its first line ending.
std::string WholeLines(std::string piece, bool begins_with_line);

// Reads all report files, part by part. Accepts regular files only, never follows a link, and never
// waits for a writer. Blocks on the disk. Thread-compatible.
class RankFileReader {
 public:
  // `folder` is BASE/JOB_ID/nodes/NODE. `max_bytes` limits the total size of all parts.
  RankFileReader(const std::string& folder, uint64_t max_bytes);

  // Returns the next part of the files. Only the very last part has `end` set; after it, returns
  // nullopt.
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
  uint64_t metrics_bytes_ = 0;  // limit of the bytes from each metrics file
  UniqueFd fd_;
  pb::RankFilePart part_;  // fields that all parts of the open file share
  std::vector<FilePiece> pieces_;
  size_t next_piece_ = 0;
  bool ended_ = false;
};

}  // namespace dslaunch
