#include "cli/session/session_stdin.h"

#include <unistd.h>

#include <utility>

namespace dslaunch {

void SessionStdin::Open(bool forwards, JobOutput& output) {
  if (!forwards) {
    if (!notice_.empty()) watch_.emplace(loop_, STDIN_FILENO, [this] { LogNotice(); });
    return;
  }
  if (::isatty(STDIN_FILENO) == 1) output.SetReadsInput();
  forwarder_.emplace(
      loop_, STDIN_FILENO,
      [this](const std::string& data, bool end, std::function<void(bool)> then) {
        if (!data.empty()) LogNotice();
        send_(node_, data, end, std::move(then));
      },
      [&output] { output.OnEnter(); });
}

void SessionStdin::OnEvent(size_t index, const pb::NodeEvent& event) {
  if (!forwarder_) return;
  if (event.has_started() && event.started().first_rank() == 0 && event.started().pids_size() > 0) {
    node_ = index;
    forwarder_->Start();
  } else if (event.has_restarting() ||
             (event.has_worker_ended() && event.worker_ended().rank() == 0)) {
    forwarder_->Stop();
  }
}

void SessionStdin::LogNotice() {
  if (!notice_.empty() && !std::exchange(notice_logged_, true)) log_(notice_);
}

}  // namespace dslaunch
