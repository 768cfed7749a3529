// The stdin of rank 0: a pipe, or a terminal that is its output too. The agent holds the other end.
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

// Used on the loop's thread. Blocks only for the disk.
class RankStdin : public std::enable_shared_from_this<RankStdin> {
 public:
  // Opens a pipe in `folder`, the folder of the rank.
  static Result<std::shared_ptr<RankStdin>> OpenPipe(asio::io_context& loop,
                                                     const std::string& folder);
  // Opens a terminal. What is written to it is appended to FOLDER/stdout.log. It does not echo,
  // because the user's own terminal does.
  static Result<std::shared_ptr<RankStdin>> OpenTerminal(asio::io_context& loop,
                                                         const std::string& folder,
                                                         TerminalSize size);
  ~RankStdin();

  const std::string& path() const { return path_; }  // path that the rank's process opens
  bool is_terminal() const { return log_.valid(); }

  // Returns false if earlier input has not been read yet; the amount is limited.
  bool Write(std::string_view data);
  // Makes the rank read end of file after what was written.
  void End();
  // Writes a terminal's output so far to the log.
  void Drain();
  // Stops reading and writing.
  void Close();

 private:
  explicit RankStdin(asio::io_context& loop) : end_(loop) {}
  void ReadOutput();
  void WritePending();
  void AddToLog(std::string_view output);

  std::string path_;
  asio::posix::stream_descriptor end_;  // this side's end
  // The rank's end of a terminal, kept open so that end of file is not an error.
  UniqueFd ranks_end_;
  UniqueFd log_;      // log of a terminal's output
  std::string sent_;  // bytes of the write under way, which refers to them
  std::string pending_;
  bool ends_ = false;
};

}  // namespace dslaunch
