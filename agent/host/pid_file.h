// --save_pid: DeepSpeed's file that says which process of a node to signal.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/error.h"

namespace dslaunch {

// A file with a pid in it, removed with the object. Move-only.
class PidFile {
 public:
  // "/tmp/PID.deepspeed", with the front end's pid.
  static std::string PathFor(uint32_t front_end_pid);

  // Makes `path`. One that is there is replaced if it is this user's and the process it names is
  // gone; otherwise that is kIo, naming the file.
  static Result<PidFile> Create(const std::string& path, pid_t pid);

  PidFile(PidFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  PidFile& operator=(PidFile&&) = delete;
  ~PidFile();

  const std::string& path() const { return path_; }

 private:
  explicit PidFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved away
};

}  // namespace dslaunch
