#include "trainer/program/prediction_writer.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

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
  temporary_ = path_ + ".tmp-" + std::to_string(getpid());
  file_.emplace(temporary_);
}

PredictionWriter::~PredictionWriter() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void PredictionWriter::Write(const std::string& lines) {
  if (file_) return file_->Write(lines.data(), lines.size());
  // Flushes after each batch, because a reader may take a part of a line for a whole line.
  if (std::fwrite(lines.data(), 1, lines.size(), stdout) == lines.size() &&
      std::fflush(stdout) == 0) {
    return;
  }
  throw TrainError(ExitCode::kIo,
                   std::string("stdout: cannot be written: ") + std::strerror(errno));
}

void PredictionWriter::Finish() {
  if (!file_) {
    if (std::fflush(stdout) == 0) return;
    throw TrainError(ExitCode::kIo,
                     std::string("stdout: cannot be written: ") + std::strerror(errno));
  }
  file_->Finish();
  if (std::rename(temporary_.c_str(), path_.c_str()) < 0) {
    throw TrainError(ExitCode::kIo, path_ + ": cannot be created: " + std::strerror(errno));
  }
  temporary_.clear();
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  SyncFolder(folder.empty() ? "." : folder.string());
}

}  // namespace dslaunch
