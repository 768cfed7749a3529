// Provides the stdin of rank 0: a pipe, or a terminal that is the rank's output too. The agent
// holds the other end.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

struct TerminalSize {
  uint16_t columns = 80;
  uint16_t rows = 24;
};

// The stdin of rank 0. Used on the loop's thread. Blocks only for the disk.
class RankStdin : public std::enable_shared_from_this<RankStdin> {
 public:
  // Opens a pipe in `folder`, the folder of the rank.
  static Result<std::shared_ptr<RankStdin>> OpenPipe(asio::io_context& loop,
                                                     const std::string& folder);
  // Opens a terminal. Output to the terminal is appended to FOLDER/stdout.log. The terminal does
  // not echo, because the user's own terminal does.
  static Result<std::shared_ptr<RankStdin>> OpenTerminal(asio::io_context& loop,
                                                         const std::string& folder,
                                                         TerminalSize size);
  ~RankStdin();

  const std::string& path() const { return path_; }  // path that the rank's process opens
  bool is_terminal() const { return log_.valid(); }

  // Writes input for the rank. Returns false, without taking `data`, if too much earlier input is
  // unread.
  bool Write(std::string_view data);
  // Makes the rank read end of file after the input that was written.
  void End();
  // Writes the terminal's output so far to the log. Does nothing for a pipe.
  void Drain();
  // Stops reading and writing.
  void Close();

 private:
  explicit RankStdin(asio::io_context& loop) : end_(loop) {}
  void ReadOutput();
  void WritePending();
  void AddToLog(std::string_view output);

  std::string path_;
  asio::posix::stream_descriptor end_;  // the agent's end
  // The rank's end of a terminal. It is kept open so that reading does not fail before the rank
  // starts.
  UniqueFd ranks_end_;
  UniqueFd log_;      // log of the terminal's output; invalid for a pipe
  std::string sent_;  // bytes of the write in progress, which refers to this buffer
  std::string pending_;
  bool ends_ = false;
};

}  // namespace dslaunch
