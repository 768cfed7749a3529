// Writes predictions as JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

struct Prediction {
  double value = 0;  // a class or token if there is a probability, else any number
  std::optional<double> probability;
};

// Returns {"index":0,"prediction":7,"probability":0.98} and a newline.
std::string PredictionLine(int64_t index, const Prediction& prediction);

// Writes lines that a reader of the file, or of stdout, sees at once. A process that is killed
// leaves whole lines, because each is written by itself. Errors are TrainError kIo and name the
// file.
class PredictionWriter {
 public:
  // An empty `path` means stdout. Throws kBadInput if `path` exists and is not a file. The file
  // appears with the first lines, and then replaces an older one, so that a run that fails earlier
  // leaves the older file.
  explicit PredictionWriter(std::string path);
  ~PredictionWriter();  // removes a file without lines
  PredictionWriter(const PredictionWriter&) = delete;
  PredictionWriter& operator=(const PredictionWriter&) = delete;

  // Writes lines, each with its newline. If one cannot be written as a whole, the file ends with
  // the line before it.
  void Write(std::string_view lines);
  // Waits until the file is on disk.
  void Finish();

 private:
  [[noreturn]] void Fail(const char* what) const;
  void WriteLine(std::string_view line);
  void Publish();  // gives the file its name

  const std::string path_;
  std::string temporary_;  // name of the file until it has lines
  UniqueFd file_;
  int64_t written_ = 0;  // bytes of whole lines
};

}  // namespace dslaunch
