// Writes to the status pipe (proto/contract/status_line.h) from any part of a program.
#pragma once

#include "base/unique_fd.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

// Writes on a copy of the pipe that DSLAUNCH_STATUS_FD names; does nothing without one. Never
// blocks; a line that the pipe does not take is lost.
class StatusWriter {
 public:
  StatusWriter();
  void Write(const StatusLine& line) const;

 private:
  UniqueFd fd_;
};

}  // namespace dslaunch
