#include "trainer/compat/horovod/timeline.h"

#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"

namespace dslaunch::horovod {

using nlohmann::json;

Timeline::Timeline(const std::string& file) {
  if (file.empty()) return;
  out_.open(file, std::ios::trunc);
  if (!out_) {
    throw TrainError(ExitCode::kIo, "the timeline " + file +
                                        " cannot be written; give a file in a folder that exists "
                                        "(HOROVOD_TIMELINE, --timeline_filename)");
  }
  out_ << "[";
}

Timeline::~Timeline() {
  if (enabled()) out_ << "\n]\n";
}

int64_t Timeline::Microseconds(Clock::time_point time) const {
  return std::chrono::duration_cast<std::chrono::microseconds>(time - start_).count();
}

void Timeline::Write(const std::string& event) {
  out_ << (first_ ? "\n" : ",\n") << event;
  first_ = false;
}

void Timeline::Add(const std::string& tensor, const std::string& what, Clock::time_point from,
                   Clock::time_point to) {
  if (!enabled()) return;
  const auto [row, is_new] = rows_.try_emplace(tensor, static_cast<int>(rows_.size()) + 1);
  const auto text = [](const json& event) {
    return event.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  if (is_new) {
    Write(text({{"name", "process_name"},
                {"ph", "M"},
                {"pid", row->second},
                {"args", {{"name", tensor}}}}));
  }
  Write(text({{"name", what},
              {"ph", "X"},
              {"pid", row->second},
              {"tid", 0},
              {"ts", Microseconds(from)},
              {"dur", Microseconds(to) - Microseconds(from)}}));
  out_.flush();
}

}  // namespace dslaunch::horovod
