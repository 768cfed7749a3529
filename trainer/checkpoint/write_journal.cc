#include "trainer/checkpoint/write_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/base/format.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using nlohmann::json;

constexpr off_t kMaxBytes = 16 << 20;

[[noreturn]] void FailIo(const std::string& path) {
  throw TrainError(ExitCode::kIo, path + ": cannot be written: " + std::strerror(errno));
}

// Returns the text of a journal; "" if the file cannot be read or is larger than kMaxBytes.
std::string ReadText(int fd) {
  struct stat info;
  if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_size > kMaxBytes) return "";
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t bytes = pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

std::string WorkLine(const std::string& work) {
  return json(work).dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace

std::optional<std::map<std::string, FileSum>> ParseWriteJournal(const std::string& text,
                                                                const std::string& work) {
  const std::string first = WorkLine(work) + "\n";
  if (work.empty() || !text.starts_with(first)) return std::nullopt;
  std::map<std::string, FileSum> files;
  for (size_t start = first.size(), end; (end = text.find('\n', start)) != std::string::npos;
       start = end + 1) {
    const json line = json::parse(text.begin() + static_cast<ptrdiff_t>(start),
                                  text.begin() + static_cast<ptrdiff_t>(end), nullptr,
                                  /*allow_exceptions=*/false);
    const bool valid = line.is_array() && line.size() == 3 && line[0].is_string() &&
                       line[1].is_number_unsigned() && line[2].is_number_unsigned();
    if (valid)
      files[line[0].get<std::string>()] = {line[1].get<uint64_t>(), line[2].get<uint32_t>()};
  }
  return files;
}

WriteJournal::WriteJournal(const std::string& folder, const std::string& work)
    : path_(folder + "/" + kWriteJournal),
      fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (!fd_) FailIo(path_);
  // Some network file systems do not support locks, so other errors are ignored.
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
    RefuseInput("another process writes into " + folder + " and holds " + path_ +
                "; wait for its end, or give another folder");
  }
  if (auto files = ParseWriteJournal(ReadText(fd_.get()), work)) {
    files_ = *std::move(files);
    return;
  }
  if (ftruncate(fd_.get(), 0) < 0) FailIo(path_);
  Append(WorkLine(work));
}

bool WriteJournal::Continues(const std::string& folder, const std::string& work) {
  const std::string path = folder + "/" + kWriteJournal;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  return fd && ParseWriteJournal(ReadText(fd.get()), work);
}

std::optional<FileSum> WriteJournal::Completed(const std::string& name,
                                               const std::string& path) const {
  const auto found = files_.find(name);
  if (found == files_.end()) return std::nullopt;
  try {
    if (SumFile(path) == found->second) return found->second;
  } catch (const TrainError&) {
    // A file that cannot be read is written again, so the error is ignored.
  }
  return std::nullopt;
}

void WriteJournal::Add(const std::string& name, const FileSum& sum) {
  Append(json{name, sum.bytes, sum.crc32}.dump());
  files_[name] = sum;
}

void WriteJournal::Append(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t written = write(fd_.get(), text.data(), text.size());
  if (written >= 0 && written < static_cast<ssize_t>(text.size())) {
    errno = ENOSPC;
    FailIo(path_);
  }
  if (written < 0 || fsync(fd_.get()) < 0) FailIo(path_);
}

void WriteJournal::Remove() {
  if (unlink(path_.c_str()) < 0 && errno != ENOENT) FailIo(path_);
}

TrainError UnfinishedWrite(const TrainError& cause, uint64_t bytes, bool continues) {
  if (cause.code() != ExitCode::kIo) return cause;
  return {cause.code(), std::string(cause.what()) + "; " + BytesText(static_cast<int64_t>(bytes)) +
                            " were to be written" +
                            (continues ? "; the same command continues" : "")};
}

void CheckRoom(const std::string& folder, uint64_t needed_bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || needed_bytes <= space.available) return;
  throw TrainError(
      ExitCode::kIo,
      folder + ": the disk is too small: " + BytesText(static_cast<int64_t>(needed_bytes)) +
          " are needed, " + BytesText(static_cast<int64_t>(space.available)) + " are free");
}

}  // namespace dslaunch
