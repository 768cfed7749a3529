#include "agent/logs/log_keeping.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/logs/log_space.h"
#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLowSpaceBytes = kGiB;
constexpr uint64_t kLowSpacePercent = 5;
constexpr int64_t kMarkEveryMs = 1000;
constexpr int64_t kSpaceEveryMs = 10'000;
constexpr uint64_t kMaxMarksBytes = kMiB;

uint64_t BlockBytes(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_blksize > 0 ? static_cast<uint64_t>(info.st_blksize)
                                                      : 4096;
}

// Returns the time at the beginning of a line of the file `marks`.
std::string_view TimeOf(std::string_view mark) { return mark.substr(0, mark.find(' ')); }

// Replaces the content of a file atomically, so that concurrent readers see the old or the new
// content.
void Replace(const std::string& path, const std::string& content) {
  const std::string partial = path + ".part";
  UniqueFd fd(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return;
  const ssize_t written = write(fd.get(), content.data(), content.size());
  if (written == static_cast<ssize_t>(content.size()))
    rename(partial.c_str(), path.c_str());
  else
    unlink(partial.c_str());
}

}  // namespace

std::optional<Hole> DecideHole(uint64_t size, uint64_t given_back, uint64_t max_bytes,
                               uint64_t block_bytes) {
  if (max_bytes == 0 || size <= max_bytes) return std::nullopt;
  const uint64_t end = (size - max_bytes) / block_bytes * block_bytes;
  if (end <= given_back) return std::nullopt;
  return Hole{given_back, end};
}

std::optional<std::string> LowSpaceWarning(const std::string& node, const std::string& folder,
                                           uint64_t free_bytes, uint64_t total_bytes) {
  if (free_bytes >= kLowSpaceBytes || free_bytes / kLowSpacePercent >= total_bytes / 100)
    return std::nullopt;
  return node + ": only " + std::to_string(free_bytes / kMiB) +
         " MiB are free where the logs go (" + folder +
         "), and output beyond that is dropped; free space there (dslaunch ps --prune removes old "
         "jobs' logs) or choose another folder with --log_dir";
}

std::string ThinMarks(std::string_view marks) {
  std::string thinned;
  std::string_view time;
  bool keep = false;
  std::string_view rest = marks;
  while (rest.size() > marks.size() / 2) {
    const std::string_view line = TakeLine(rest);
    if (TimeOf(line) != time) keep = !keep;
    time = TimeOf(line);
    if (keep) thinned.append(line).push_back('\n');
  }
  return thinned.append(rest);
}

LogKeeping::LogKeeping(std::string node, uint64_t max_bytes)
    : node_(std::move(node)), max_bytes_(max_bytes == 0 ? 0 : std::max(max_bytes, kMiB)) {}

void LogKeeping::StartAttempt(std::string attempt_folder) {
  attempt_folder_ = std::move(attempt_folder);
  ranks_.clear();
}

void LogKeeping::AddRank(uint32_t rank, const std::string& folder) {
  RankLogs& logs = ranks_.emplace_back();
  logs.rank = rank;
  logs.out.path = folder + "/stdout.log";
  logs.err.path = folder + "/stderr.log";
}

std::vector<std::string> LogKeeping::Turn(int64_t now_unix_ms) {
  std::vector<std::string> notices;
  if (attempt_folder_.empty()) return notices;
  for (RankLogs& logs : ranks_) {
    for (LogFile* file : {&logs.out, &logs.err}) {
      if (Measure(*file)) FreeOldPart(*file, notices);
    }
  }
  // A task whose last run is in the future would be suppressed for long. The clock was set back in
  // that case, so the task is due.
  const auto is_due = [&](int64_t& last, int64_t interval) {
    if (now_unix_ms >= last && now_unix_ms < last + interval) return false;
    last = now_unix_ms;
    return true;
  };
  if (is_due(marked_at_ms_, kMarkEveryMs)) Mark(now_unix_ms);
  if (is_due(space_checked_at_ms_, kSpaceEveryMs)) CheckSpace(notices);
  return notices;
}

std::vector<std::string> LogKeeping::OnRankEnd() {
  std::vector<std::string> notices;
  if (attempt_folder_.empty() || full_warned_) return notices;
  if (auto full = FullDiskNotice(node_, attempt_folder_, ReadLogSpace(attempt_folder_))) {
    full_warned_ = space_warned_ = true;
    notices.push_back(*std::move(full));
  }
  CheckSpace(notices);
  return notices;
}

bool LogKeeping::Measure(LogFile& file) {
  if (!file.fd)
    file.fd.Reset(open(file.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file.fd || fstat(file.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  file.size = static_cast<uint64_t>(info.st_size);
  file.given_back = std::min(file.given_back, file.size);  // smaller if the file was truncated
  return true;
}

void LogKeeping::FreeOldPart(LogFile& file, std::vector<std::string>& notices) {
  if (cannot_give_back_ || file.size <= max_bytes_) return;
  const auto hole = DecideHole(file.size, file.given_back, max_bytes_, BlockBytes(file.fd.get()));
  if (!hole) return;
  if (fallocate(file.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(hole->begin),
                static_cast<off_t>(hole->end - hole->begin)) == 0) {
    file.given_back = hole->end;
  } else if (errno == EOPNOTSUPP || errno == ENOSYS) {
    cannot_give_back_ = true;
    notices.push_back(node_ + ": the file system of " + attempt_folder_ +
                      " cannot free parts of a file, so the logs there grow without limit; "
                      "choose another folder with --log_dir");
  }
}

void LogKeeping::Mark(int64_t now_unix_ms) {
  std::string marks;
  for (RankLogs& logs : ranks_) {
    const uint64_t bytes = logs.out.size + logs.err.size;
    if (bytes == logs.marked_bytes) continue;
    logs.marked_bytes = bytes;
    marks += std::to_string(now_unix_ms) + " " + std::to_string(logs.rank) + " " +
             std::to_string(logs.out.size) + " " + std::to_string(logs.err.size) + "\n";
  }
  if (marks.empty()) return;
  const std::string path = attempt_folder_ + "/marks";
  const UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || write(fd.get(), marks.data(), marks.size()) < 0)
    return;  // the disk is full, so there is no mark
  struct stat info {};
  if (fstat(fd.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) > kMaxMarksBytes)
    Replace(path, ThinMarks(ReadWhole(path).value_or("")));
}

void LogKeeping::CheckSpace(std::vector<std::string>& notices) {
  if (space_warned_) return;
  const std::optional<LogSpace> space = ReadLogSpace(attempt_folder_);
  if (!space) return;
  const auto warning =
      LowSpaceWarning(node_, attempt_folder_, space->free_bytes, space->total_bytes);
  if (!warning) return;
  space_warned_ = true;
  notices.push_back(*warning);
}

}  // namespace dslaunch
