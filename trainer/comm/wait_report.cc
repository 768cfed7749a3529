#include "trainer/comm/wait_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "proto/contract/status_line.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {

WaitReport::WaitReport() {
  const char* const text = std::getenv(kStatusFdVariable);
  if (text == nullptr) return;
  const int fd = std::atoi(text);
  const int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFL) : -1;
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return;
  fd_ = DuplicateFd(fd);
}

void WaitReport::Report(const std::optional<Exchange>& exchange,
                        std::chrono::milliseconds waited) const {
  if (!fd_) return;
  StatusLine line;
  line.event = StatusLine::Event::kWait;
  if (exchange) line.exchange = exchange->what + " (" + std::to_string(exchange->number) + ")";
  line.waits_s = std::chrono::duration<double>(waited).count();
  const std::string bytes = line.Format();
  if (write(fd_.get(), bytes.data(), bytes.size()) < 0) return;  // its reader is gone or behind
}

}  // namespace dslaunch
