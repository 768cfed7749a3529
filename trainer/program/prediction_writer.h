// Writes predictions as JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/durable_file.h"

namespace dslaunch {

struct Prediction {
  double value = 0;  // a class or token if there is a probability, else any number
  std::optional<double> probability;
};

// Returns {"index":0,"prediction":7,"probability":0.98} and a newline.
std::string PredictionLine(int64_t index, const Prediction& prediction);

// Writes predictions to a file that appears only when complete. Errors are TrainError kIo and name
// the file.
class PredictionWriter {
 public:
  // An empty `path` means stdout.
  explicit PredictionWriter(std::string path);
  ~PredictionWriter();  // removes an unfinished file
  PredictionWriter(const PredictionWriter&) = delete;
  PredictionWriter& operator=(const PredictionWriter&) = delete;

  void Write(const std::string& lines);
  // Renames the temporary file to its name; replaces an existing file.
  void Finish();

 private:
  std::string path_;
  std::string temporary_;
  std::optional<NewFile> file_;
};

}  // namespace dslaunch
