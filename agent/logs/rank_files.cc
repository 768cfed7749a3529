#include "agent/logs/rank_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/logs/job_logs.h"
#include "proto/contract/rank_files.h"

namespace dslaunch {
namespace {

constexpr uint64_t kPieceBytes = 64 * 1024;  // limit of the data in one message
constexpr uint64_t kSampleBytes = 4 * 1024;  // size of a part of a metrics file, a few lines
// Minimum for the metrics of each rank, however many.
constexpr uint64_t kLeastMetricsBytes = 64 * 1024;
constexpr uint64_t kMaxObjectBytes = 8 << 20;  // limit of the size of run.json and profile.json

constexpr std::pair<const char*, pb::RankFilePart::Kind> kNames[] = {
    {kMetricsFileName, pb::RankFilePart::METRICS},
    {kRunInfoName, pb::RankFilePart::RUN},
    {kProfileFileName, pb::RankFilePart::PROFILE},
    {kTraceFileName, pb::RankFilePart::TRACE},
};

std::string ReadPiece(int fd, const FilePiece& piece) {
  std::string data(piece.second, '\0');
  size_t size = 0;
  while (size < data.size()) {
    const ssize_t read =
        ::pread(fd, data.data() + size, data.size() - size, static_cast<off_t>(piece.first + size));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) break;  // the file became shorter while it was read
    size += static_cast<size_t>(read);
  }
  data.resize(size);
  return data;
}

}  // namespace

std::vector<FilePiece> PiecesToRead(uint64_t file_bytes, uint64_t max_bytes) {
  std::vector<FilePiece> pieces;
  if (file_bytes <= max_bytes) {
    for (uint64_t at = 0; at < file_bytes; at += kPieceBytes)
      pieces.emplace_back(at, std::min(kPieceBytes, file_bytes - at));
    return pieces;
  }
  const uint64_t size = std::min(kSampleBytes, file_bytes);
  const uint64_t count = std::max<uint64_t>(max_bytes / kSampleBytes, 1);
  for (uint64_t i = 0; i < count; ++i) {
    const double part = count == 1 ? 1 : static_cast<double>(i) / static_cast<double>(count - 1);
    const auto at = static_cast<uint64_t>(part * static_cast<double>(file_bytes - size));
    const uint64_t behind = pieces.empty() ? 0 : pieces.back().first + pieces.back().second;
    if (at >= behind) pieces.emplace_back(at, size);
  }
  return pieces;
}

std::string WholeLines(std::string piece, bool begins_with_line) {
  // Erases all bytes without a line ending, because npos + 1 is 0.
  piece.erase(piece.rfind('\n') + 1);
  if (!begins_with_line) piece.erase(0, piece.find('\n') + 1);
  return piece;
}

RankFileReader::RankFileReader(const std::string& folder, uint64_t max_bytes)
    : bytes_left_(max_bytes) {
  uint64_t metrics = 0;
  for (const RankFolder& rank : ListRankFolders(folder)) {
    for (const auto& [name, kind] : kNames) {
      const std::string path = rank.path + "/" + name;
      struct stat status {};
      if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      if (files_.size() == kMaxRankFiles) {
        ++left_out_;
        continue;
      }
      metrics += kind == pb::RankFilePart::METRICS ? 1 : 0;
      files_.push_back(
          {rank.attempt, rank.rank, kind, path, static_cast<uint64_t>(status.st_size)});
    }
  }
  // Small files need bytes too, so only half of the bytes are for metrics.
  metrics_bytes_ = std::max(max_bytes / 2 / std::max<uint64_t>(metrics, 1), kLeastMetricsBytes);
}

void RankFileReader::Open(const File& file) {
  part_.Clear();
  part_.set_attempt(file.attempt);
  part_.set_rank(file.rank);
  part_.set_kind(file.kind);
  part_.set_path(file.path);
  part_.set_file_bytes(file.bytes);
  pieces_.clear();
  next_piece_ = 0;
  if (file.kind == pb::RankFilePart::TRACE) return;
  fd_.Reset(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    part_.set_incomplete(true);
    return;
  }
  const bool is_metrics = file.kind == pb::RankFilePart::METRICS;
  const uint64_t most = std::min(bytes_left_, is_metrics ? metrics_bytes_ : kMaxObjectBytes);
  part_.set_incomplete(file.bytes > most);
  if (file.bytes <= most || (is_metrics && most >= kSampleBytes))
    pieces_ = PiecesToRead(file.bytes, most);
}

std::optional<pb::RankFilePart> RankFileReader::Next() {
  if (next_piece_ < pieces_.size()) {
    const FilePiece piece = pieces_[next_piece_++];
    std::string data = ReadPiece(fd_.get(), piece);
    if (part_.incomplete()) data = WholeLines(std::move(data), piece.first == 0);
    bytes_left_ -= std::min<uint64_t>(bytes_left_, data.size());
    pb::RankFilePart part = part_;
    part.set_data(std::move(data));
    return part;
  }
  if (next_file_ < files_.size()) {
    Open(files_[next_file_++]);
    return part_;  // announces the file before its content
  }
  if (ended_) return std::nullopt;
  ended_ = true;
  pb::RankFilePart end;
  end.set_end(true);
  end.set_files_left_out(left_out_);
  return end;
}

}  // namespace dslaunch
