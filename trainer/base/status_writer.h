// Writes lines to the status pipe (proto/contract/status_line.h) from any part of a program.
#pragma once

#include "base/unique_fd.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

// Writes to a duplicate of the pipe whose descriptor is in DSLAUNCH_STATUS_FD. Does nothing if the
// variable is not set. Never blocks: a line is lost if the pipe is full.
class StatusWriter {
 public:
  StatusWriter();
  void Write(const StatusLine& line) const;

 private:
  UniqueFd fd_;
};

}  // namespace dslaunch
