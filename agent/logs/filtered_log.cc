#include "agent/logs/filtered_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 256 << 10;

}  // namespace

FilteredLog::FilteredLog(asio::io_context& loop, std::string node, const pb::FilteredLogs& what)
    : loop_(loop),
      node_(std::move(node)),
      ranks_(what.ranks()),
      tags_{what.tag_template(), what.role()} {
  texts_[0].assign(what.stdout_texts().begin(), what.stdout_texts().end());
  texts_[1].assign(what.stderr_texts().begin(), what.stderr_texts().end());
}

void FilteredLog::FollowRank(uint32_t rank, uint32_t local_rank, const std::string& folder) {
  if (!tail_) {
    attempt_ = std::make_shared<int>();
    tail_.emplace(loop_, [this] { OnReadable(); });
  }
  const std::filesystem::path attempt = std::filesystem::path(folder).parent_path();
  for (const bool is_stderr : {false, true}) {
    if (texts_[is_stderr].empty() || !ranks_.Has(rank, local_rank, is_stderr)) continue;
    const char* const name = is_stderr ? "stderr.log" : "stdout.log";
    if (!out_[is_stderr]) {
      out_[is_stderr].Reset(::open((attempt / (std::string("filtered_") + name)).c_str(),
                                   O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    }
    files_.push_back({is_stderr,
                      LineTag(tags_, node_, static_cast<int>(rank), static_cast<int>(local_rank)),
                      LineAssembler()});
    tail_->AddFile(static_cast<int>(files_.size() - 1), folder + "/" + name);
  }
}

// Copies one chunk, and posts itself for the next chunk, so that other handlers of the loop run in
// between.
void FilteredLog::OnReadable() {
  const std::optional<LogTail::Chunk> chunk = tail_->Next(kChunkBytes);
  if (!chunk) return;
  Copy(*chunk);
  asio::post(loop_, [this, attempt = std::weak_ptr(attempt_)] {
    if (!attempt.expired()) OnReadable();
  });
}

void FilteredLog::EndAttempt() {
  if (!tail_) return;
  tail_->RetireFiles();
  while (const std::optional<LogTail::Chunk> chunk = tail_->Next(kChunkBytes)) Copy(*chunk);
  for (File& file : files_) {
    file.lines.Finish(SinkFor(file));
    Write(file.is_stderr);
  }
  tail_.reset();
  attempt_.reset();
  files_.clear();
  for (UniqueFd& out : out_) out.Reset();
}

void FilteredLog::Copy(const LogTail::Chunk& chunk) {
  File& file = files_[static_cast<size_t>(chunk.id)];
  const LineAssembler::Sink sink = SinkFor(file);
  if (chunk.skipped_bytes > 0) {
    file.lines.Finish(sink);
    pending_ += file.tag + "... " + std::to_string(chunk.skipped_bytes) +
                " bytes were not searched, because the output was too fast\n";
  }
  file.lines.Append(chunk.data, sink);
  Write(file.is_stderr);
}

LineAssembler::Sink FilteredLog::SinkFor(const File& file) {
  return [this, &file](std::string_view line) {
    const bool has_any = std::ranges::any_of(texts_[file.is_stderr], [&](const std::string& text) {
      return line.find(text) != std::string_view::npos;
    });
    if (has_any) pending_.append(file.tag).append(line).append("\n");
  };
}

void FilteredLog::Write(bool is_stderr) {
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t count =
        ::write(out_[is_stderr].get(), pending_.data() + done, pending_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  pending_.clear();
}

}  // namespace dslaunch
