// Writes the file of DeepSpeed's option --save_pid, which contains the pid of the process to signal
// on a node.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/error.h"

namespace dslaunch {

// A file that contains a pid, and that is removed when the object is destroyed. Move-only.
class PidFile {
 public:
  // Returns "/tmp/PID.deepspeed", where PID is the front end's pid.
  static std::string PathFor(uint32_t front_end_pid);

  // Creates `path`. Replaces an existing file if it belongs to this user and the process that the
  // file names has exited; otherwise fails with kIo, naming the file.
  static Result<PidFile> Create(const std::string& path, pid_t pid);

  PidFile(PidFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  PidFile& operator=(PidFile&&) = delete;
  ~PidFile();

  const std::string& path() const { return path_; }

 private:
  explicit PidFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // path of the file; empty after a move
};

}  // namespace dslaunch
