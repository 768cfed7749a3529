// Provides the stdin of rank 0: a pipe, or a terminal that is also the rank's output. The agent
// uses the other end.
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

// The agent's end of rank 0's stdin. Blocks only for the disk. Used on the loop's thread.
class RankStdin : public std::enable_shared_from_this<RankStdin> {
 public:
  // Opens a named pipe in `folder`, the folder of the rank.
  static Result<std::shared_ptr<RankStdin>> OpenPipe(asio::io_context& loop,
                                                     const std::string& folder);
  // Opens a terminal. Its output is appended to FOLDER/stdout.log. The user's own terminal echoes
  // the input, so this terminal does not.
  static Result<std::shared_ptr<RankStdin>> OpenTerminal(asio::io_context& loop,
                                                         const std::string& folder,
                                                         TerminalSize size);
  ~RankStdin();

  // Returns the path that the rank's process must open.
  const std::string& path() const { return path_; }
  bool is_terminal() const { return log_.valid(); }

  // Writes input for the rank. Returns false, and does not use `data`, if too much earlier input is
  // unread.
  bool Write(std::string_view data);
  // Makes the rank read end of file after the input that was written.
  void End();
  // Writes the available output of the terminal to the log. Does nothing for a pipe.
  void Drain();
  // Stops reading and writing.
  void Close();

 private:
  explicit RankStdin(asio::io_context& loop) : end_(loop) {}
  void ReadOutput();
  void WritePending();
  void AddToLog(std::string_view output);

  std::string path_;
  asio::posix::stream_descriptor end_;  // agent's end of the pipe or terminal
  // The rank's end of a terminal. Reading would fail if no process had this end open before the
  // rank starts, so the agent keeps it open.
  UniqueFd ranks_end_;
  UniqueFd log_;      // log of the terminal's output; invalid for a pipe
  std::string sent_;  // bytes of the write in progress, which uses this buffer
  std::string pending_;
  bool ends_ = false;
};

}  // namespace dslaunch
