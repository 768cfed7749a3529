#include "trainer/profile/monitors.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "trainer/base/format.h"
#include "trainer/base/train_error.h"
#include "trainer/profile/event_file.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

void MakeFolder(const char* key, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw TrainError(ExitCode::kIo, std::string("engine.") + key + ".output_path: " + folder +
                                      ": cannot create the folder: " + error.message());
}

[[noreturn]] void FailWrite(const std::string& file) {
  throw TrainError(ExitCode::kIo, file + ": cannot be written: " + std::strerror(errno));
}

double WallTimeS() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

Monitors::Monitors(const MonitorsConfig& config) {
  if (config.csv) {
    csv_folder_ = config.csv->folder();
    MakeFolder("csv_monitor", csv_folder_);
  }
  if (!config.tensorboard) return;
  MakeFolder("tensorboard", config.tensorboard->folder());
  events_file_ = Format("%s/events.out.tfevents.%lld.%s.%d", config.tensorboard->folder().c_str(),
                        static_cast<long long>(WallTimeS()), HostName().c_str(), getpid());
  events_.open(events_file_, std::ios::binary | std::ios::app);
  WriteEvent(VersionEvent(WallTimeS()));
}

void Monitors::Write(int64_t samples, const std::vector<Scalar>& scalars) {
  for (const Scalar& scalar : scalars) {
    if (!csv_folder_.empty()) WriteCsv(samples, scalar);
    if (events_file_.empty()) continue;
    WriteEvent(ScalarEvent(WallTimeS(), samples, scalar.tag, static_cast<float>(scalar.value)));
  }
}

void Monitors::WriteCsv(int64_t samples, const Scalar& scalar) {
  std::string name = scalar.tag;
  std::ranges::replace(name, '/', '_');
  const std::string file = csv_folder_ + "/" + name + ".csv";
  std::ofstream& stream = csv_[scalar.tag];
  if (!stream.is_open()) {
    stream.open(file, std::ios::app);
    stream.precision(17);
    if (stream && stream.tellp() == 0) stream << "step," << name << "\n";
  }
  stream << samples << "," << scalar.value << "\n" << std::flush;
  if (!stream) FailWrite(file);
}

void Monitors::WriteEvent(const std::string& event) {
  events_ << EventRecord(event) << std::flush;
  if (!events_) FailWrite(events_file_);
}

std::unique_ptr<Monitors> MakeMonitors(const MonitorsConfig& config, int rank) {
  if (rank != 0 || !(config.csv || config.tensorboard)) return nullptr;
  return std::make_unique<Monitors>(config);
}

}  // namespace dslaunch
