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

// Writes lines to a file or to stdout, where a reader sees them at once. A process that is killed
// leaves only whole lines, because each line is written separately. Throws TrainError kIo, naming
// the file, if the output cannot be written.
class PredictionWriter {
 public:
  // Prepares to write to the file `path`; to stdout if `path` is empty. The file appears with the
  // first lines and then replaces an existing file, so a run that fails earlier does not change
  // that file. Throws kBadInput if `path` exists and is not a file.
  explicit PredictionWriter(std::string path);
  ~PredictionWriter();  // removes a file without lines
  PredictionWriter(const PredictionWriter&) = delete;
  PredictionWriter& operator=(const PredictionWriter&) = delete;

  // Writes lines, each with its newline. If a line cannot be written as a whole, throws, and the
  // file ends with the previous line.
  void Write(std::string_view lines);
  // Waits until the file is on disk, and closes it. Does nothing for stdout.
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
