// Reads a worker's status pipe and emits only whole lines, whatever the worker writes.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// Splits a byte stream into whole lines. Drops lines longer than kMaxStatusLineBytes, so at most
// that many bytes are buffered.
class StatusLines {
 public:
  // Returns the lines that `bytes` completes, each with its newline; empty if `bytes` completes no
  // line.
  std::string Feed(std::string_view bytes);

 private:
  std::string partial_;
  bool dropping_ = false;  // whether the current line is too long and is dropped
};

// Reads a status pipe as fast as it is written, so that a worker never blocks on the pipe.
// Single-threaded; may be destroyed at any time.
class StatusReader {
 public:
  using OnLines = std::function<void(std::string lines)>;

  StatusReader(asio::io_context& io, UniqueFd read_end, OnLines on_lines);
  ~StatusReader();
  StatusReader(const StatusReader&) = delete;
  StatusReader& operator=(const StatusReader&) = delete;

  // Reads the bytes that are in the pipe now, at most a pipe's capacity, to get the last lines of a
  // worker that has exited.
  void Drain();

 private:
  struct Impl;
  static void Read(const std::shared_ptr<Impl>& impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace dslaunch
