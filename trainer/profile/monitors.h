// The files of csv_monitor and tensorboard of an engine configuration. On rank 0 only.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// A number over the samples that were trained on; DeepSpeed's names: "Train/Samples/train_loss".
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

}  // namespace dslaunch
