// Writes a trace of the exchanges of each tensor, for chrome://tracing and Perfetto.
#pragma once

#include <chrono>
#include <fstream>
#include <map>
#include <string>

namespace dslaunch::horovod {

// Writes a trace in which each tensor has a row with its exchanges over time. Not thread-safe.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens the trace. Writes nothing if `file` is empty. Throws TrainError kIo, naming the file, if
  // the file cannot be written.
  explicit Timeline(const std::string& file);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  bool enabled() const { return out_.is_open(); }
  void Add(const std::string& tensor, const std::string& what, Clock::time_point from,
           Clock::time_point to);

 private:
  void Write(const std::string& event);
  int64_t Microseconds(Clock::time_point time) const;

  const Clock::time_point start_ = Clock::now();
  std::ofstream out_;
  bool first_ = true;
  std::map<std::string, int> rows_;
};

}  // namespace dslaunch::horovod
