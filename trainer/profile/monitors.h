// Writes the files of csv_monitor and tensorboard in an engine configuration. Used on rank 0 only.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// A value to plot over the number of trained samples. Tags are DeepSpeed's, such as
// "Train/Samples/train_loss"; tags of evaluations begin with "Eval/Samples/".
struct Scalar {
  std::string tag;
  double value = 0;
};

// Writes each scalar to all outputs that the configuration names:
//   csv          appends to FOLDER/Train_Samples_train_loss.csv, whose first line is
//                "step,Train_Samples_train_loss"
//   tensorboard  FOLDER/events.out.tfevents.TIME.HOST.PID
// Every write is flushed to the file, so that values can be read during training. Throws kIo,
// naming the key and the file, if a file cannot be written.
class Monitors {
 public:
  explicit Monitors(const MonitorsConfig& config);

  bool any() const { return !csv_folder_.empty() || events_.is_open(); }
  void Write(int64_t samples, const std::vector<Scalar>& scalars);

 private:
  void WriteCsv(int64_t samples, const Scalar& scalar);
  void WriteEvent(const std::string& event);

  std::string csv_folder_;
  std::map<std::string, std::ofstream> csv_;  // open CSV files by tag
  std::string events_file_;
  std::ofstream events_;
};

// Returns the monitors of rank 0; null on other ranks, and if the configuration names no monitors.
// Throws kIo if a file cannot be created.
std::unique_ptr<Monitors> MakeMonitors(const MonitorsConfig& config, int rank);

}  // namespace dslaunch
