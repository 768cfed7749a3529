// The supervisor's end of a worker's status pipe: whole lines out, whatever the worker does.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// Cuts a byte stream into whole lines. A line longer than kMaxStatusLineBytes is dropped, so at
// most that much is ever held back.
class StatusLines {
 public:
  // The lines that `bytes` completes, each with its newline.
  std::string Feed(std::string_view bytes);

 private:
  std::string partial_;
  bool dropping_ = false;  // inside a line that is too long
};

// Reads a status pipe as fast as it is written, so that no worker ever waits for it.
// Single-threaded; may be destroyed at any time.
class StatusPipe {
 public:
  using OnLines = std::function<void(std::string lines)>;

  StatusPipe(asio::io_context& io, UniqueFd read_end, OnLines on_lines);
  ~StatusPipe();
  StatusPipe(const StatusPipe&) = delete;
  StatusPipe& operator=(const StatusPipe&) = delete;

  // Takes what is in the pipe now, one pipe's worth at most: the last words of a worker that has
  // ended.
  void Drain();

 private:
  struct Impl;
  static void Read(const std::shared_ptr<Impl>& impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace dslaunch
