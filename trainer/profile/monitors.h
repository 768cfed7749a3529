// The files of csv_monitor and tensorboard of an engine configuration. On rank 0 only.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// A number over the samples that were trained on; DeepSpeed's names: "Train/Samples/train_loss".
// Those of evaluations begin with "Eval/Samples/".
struct Scalar {
  std::string tag;
  double value = 0;
};

// Writes each scalar into all files that the configuration names:
//   csv          FOLDER/Train_Samples_train_loss.csv, whose first line is
//                "step,Train_Samples_train_loss"; appended to
//   tensorboard  FOLDER/events.out.tfevents.TIME.HOST.PID
// Every write is flushed to the file, so that the values can be read during training. Throws kIo,
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
  std::map<std::string, std::ofstream> csv_;  // by tag
  std::string events_file_;
  std::ofstream events_;
};

// Null where the configuration names none, and on other ranks than 0. Throws kIo.
std::unique_ptr<Monitors> MakeMonitors(const MonitorsConfig& config, int rank);

}  // namespace dslaunch
