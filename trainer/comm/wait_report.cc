#include "trainer/comm/wait_report.h"

#include <string>

namespace dslaunch {

void WaitReport::Report(const std::optional<Exchange>& exchange,
                        std::chrono::milliseconds waited) const {
  StatusLine line;
  line.event = StatusLine::Event::kWait;
  if (exchange) line.exchange = exchange->what + " (" + std::to_string(exchange->number) + ")";
  line.waits_s = std::chrono::duration<double>(waited).count();
  status_.Write(line);
}

}  // namespace dslaunch
