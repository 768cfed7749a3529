// Keeps the last events of a history (simulated run of a job), or prints all events as they happen.
#pragma once

#include <cstdio>
#include <deque>
#include <string>

namespace dslaunch::sim {

enum class Tracing { kNone, kKept, kPrinted };

class Trace {
 public:
  explicit Trace(Tracing tracing) : tracing_(tracing) {}

  // Returns whether lines are used. If not, callers need not compose them.
  bool on() const { return tracing_ != Tracing::kNone; }

  void Add(int64_t at_ms, const std::string& party, const std::string& what) {
    std::string line = std::to_string(at_ms) + " ms  " + party + ": " + what;
    if (tracing_ == Tracing::kPrinted) std::printf("%s\n", line.c_str());
    lines_.push_back(std::move(line));
    if (lines_.size() > kKept) lines_.pop_front();
  }

  std::string Last() const {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }

 private:
  static constexpr size_t kKept = 40;

  const Tracing tracing_;
  std::deque<std::string> lines_;
};

}  // namespace dslaunch::sim
