#include "trainer/base/status_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "proto/contract/worker_env.h"

namespace dslaunch {

StatusWriter::StatusWriter() {
  const char* const text = std::getenv(kStatusFdVariable);
  if (text == nullptr) return;
  const int fd = std::atoi(text);
  const int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFL) : -1;
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return;
  fd_ = DuplicateFd(fd);
}

void StatusWriter::Write(const StatusLine& line) const {
  if (!fd_) return;
  const std::string bytes = line.Format();
  // The pipe is full or its reader has ended, so the line is dropped.
  if (write(fd_.get(), bytes.data(), bytes.size()) < 0) return;
}

}  // namespace dslaunch
