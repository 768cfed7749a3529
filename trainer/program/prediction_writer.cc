#include "trainer/program/prediction_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

std::string PredictionLine(int64_t index, const Prediction& prediction) {
  nlohmann::ordered_json line = {{"index", index}};
  if (prediction.probability) {
    line["prediction"] = static_cast<int64_t>(prediction.value);
    line["probability"] = *prediction.probability;
  } else {
    line["prediction"] = prediction.value;
  }
  return line.dump() + "\n";
}

PredictionWriter::PredictionWriter(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  // Renaming would replace a device or a pipe by a file.
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    RefuseInput(path_ + ": is not a file; give another --output, or none for stdout");
  }
  temporary_ = path_ + ".tmp-" + std::to_string(getpid());
  file_.Reset(open(temporary_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file_) return;
  temporary_.clear();
  Fail("created");
}

PredictionWriter::~PredictionWriter() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void PredictionWriter::Write(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    WriteLine(lines.substr(0, end));
    lines.remove_prefix(end);
  }
  Publish();
}

void PredictionWriter::Finish() {
  if (!file_) return;
  Publish();
  if (fsync(file_.get()) < 0) Fail("written");
  if (close(file_.Release()) < 0) Fail("written");  // network file systems report errors here
}

void PredictionWriter::Fail(const char* what) const {
  throw TrainError(ExitCode::kIo, (path_.empty() ? "stdout" : path_) + ": cannot be " + what +
                                      ": " + std::strerror(errno));
}

void PredictionWriter::WriteLine(std::string_view line) {
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = write(file_ ? file_.get() : STDOUT_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      // If this fails too, the reader is left with a part of a line.
      [[maybe_unused]] const int cut = file_ ? ftruncate(file_.get(), written_) : 0;
      errno = error;
      Fail("written");
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  written_ += static_cast<int64_t>(line.size());
}

void PredictionWriter::Publish() {
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), path_.c_str()) < 0) Fail("created");
  temporary_.clear();
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  SyncFolder(folder.empty() ? "." : folder.string());
}

}  // namespace dslaunch
