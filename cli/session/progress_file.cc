#include "cli/session/progress_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <ranges>
#include <utility>

#include "base/deadline.h"
#include "base/os/ownership.h"
#include "cli/session/job_record.h"
#include "proto/contract/status_line.h"

namespace dslaunch {
namespace {

constexpr char kName[] = "progress";
// The file contains "RANKS STEP TOTAL COPIED_STEP COPIED_UNIX_MS\n", padded with blanks to a fixed
// size, so that one write replaces the whole content.
constexpr int kRankDigits = 10;
constexpr int kStepDigits = 20;
constexpr size_t kBytes = kRankDigits + 4 * kStepDigits + 5;

}  // namespace

ProgressFile::ProgressFile(const std::string& folder, bool in_log_dir) {
  if (folder.empty()) return;
  const Result<UniqueFd> opened = OpenFrontEndFolder(folder, in_log_dir, IfMissing::kMake);
  if (!opened.ok()) return;
  file_.Reset(
      ::openat(opened->get(), kName, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
}

void ProgressFile::OnRunning(int ranks) {
  progress_.ranks = ranks;
  // After a restart, steps may be lower and ranks may be missing, so any rank may lead.
  leading_rank_ = UINT32_MAX;
  copied_steps_.clear();
  Write();
}

void ProgressFile::OnStatus(const pb::WorkerStatus& status) {
  const std::optional<StatusLine> line = StatusLine::Parse(status.line());
  if (line && line->event == StatusLine::Event::kCopied) return OnCopy(status.rank(), line->step);
  // Copies of the last attempt stay valid until the ranks continue from a different state.
  if (line && line->event == StatusLine::Event::kRestored && !line->from_memory)
    progress_.copied_step = -1;
  if (!line || line->event != StatusLine::Event::kStep || status.rank() > leading_rank_) return;
  leading_rank_ = status.rank();
  progress_.step = line->step;
  progress_.total_steps = line->total_steps;
  if (line->step < progress_.copied_step) progress_.copied_step = -1;
  Write();
}

void ProgressFile::OnCopy(uint32_t rank, int64_t step) {
  copied_steps_[rank] = step;
  if (std::cmp_less(copied_steps_.size(), progress_.ranks)) return;
  const int64_t oldest = std::ranges::min(copied_steps_ | std::views::values);
  if (oldest == progress_.copied_step) return;
  progress_.copied_step = oldest;
  progress_.copied_unix_ms = UnixMs();
  Write();
}

void ProgressFile::Write() {
  if (!file_) return;
  std::array<char, kBytes + 1> text{};
  std::snprintf(text.data(), text.size(), "%*d %*lld %*lld %*lld %*lld\n", kRankDigits,
                progress_.ranks, kStepDigits, static_cast<long long>(progress_.step), kStepDigits,
                static_cast<long long>(progress_.total_steps), kStepDigits,
                static_cast<long long>(progress_.copied_step), kStepDigits,
                static_cast<long long>(progress_.copied_unix_ms));
  [[maybe_unused]] const ssize_t written = ::pwrite(file_.get(), text.data(), kBytes, 0);
}

JobProgress ReadProgress(const std::string& folder, bool in_log_dir) {
  JobProgress progress;
  const Result<UniqueFd> opened = OpenFrontEndFolder(folder, in_log_dir, IfMissing::kFail);
  if (!opened.ok() || !opened->valid()) return progress;
  const Result<UniqueFd> file = OpenOwnFile(*opened, kName, folder + "/" + kName, ::geteuid());
  std::array<char, kBytes + 1> text{};
  if (!file.ok() || !file->valid() ||
      ::pread(file->get(), text.data(), kBytes, 0) != static_cast<ssize_t>(kBytes))
    return progress;
  long long step = -1;
  long long total = 0, copied_step = -1, copied_ms = 0;
  if (std::sscanf(text.data(), "%d %lld %lld %lld %lld", &progress.ranks, &step, &total,
                  &copied_step, &copied_ms) != 5)
    return JobProgress();
  progress.step = step;
  progress.total_steps = total;
  progress.copied_step = copied_step;
  progress.copied_unix_ms = copied_ms;
  return progress;
}

}  // namespace dslaunch
