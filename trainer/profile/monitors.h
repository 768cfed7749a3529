// The files of an engine configuration's csv_monitor and tensorboard. Used on rank 0 only.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// A value plotted over the number of trained samples. Tags are DeepSpeed's:
// "Train/Samples/train_loss"; those of evaluations begin with "Eval/Samples/".
struct Scalar {
  std::string tag;
  double value = 0;
};

// Writes each scalar to all files that the configuration names:
//   csv          FOLDER/Train_Samples_train_loss.csv, appended to; its first line is
//   "step,Train_Samples_train_loss"
//   tensorboard  FOLDER/events.out.tfevents.TIME.HOST.PID
// Every write is flushed to the file, so that values can be read during training. Throws kIo,
// naming the key and the file.
class Monitors {
 public:
  explicit Monitors(const MonitorsConfig& config);

  bool any() const { return !csv_folder_.empty() || events_.is_open(); }
  void Write(int64_t samples, const std::vector<Scalar>& scalars);

 private:
  void WriteCsv(int64_t samples, const Scalar& scalar);
  void WriteEvent(const std::string& event);

  std::string csv_folder_;
  std::map<std::string, std::ofstream> csv_;  // keyed by tag
  std::string events_file_;
  std::ofstream events_;
};

// Returns null if the configuration names none, and on other ranks than 0. Throws kIo.
std::unique_ptr<Monitors> MakeMonitors(const MonitorsConfig& config, int rank);

}  // namespace dslaunch
