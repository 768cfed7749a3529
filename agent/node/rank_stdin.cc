#include "agent/node/rank_stdin.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kMaxPendingBytes = 256 << 10;
constexpr size_t kReadBytes = 16 << 10;

Error Failure(const std::string& what) {
  return Error{ExitCode::kIo, "the stdin of rank 0: cannot " + what + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::shared_ptr<RankStdin>> RankStdin::OpenPipe(asio::io_context& loop,
                                                       const std::string& folder) {
  std::shared_ptr<RankStdin> input(new RankStdin(loop));
  const std::string path = folder + "/stdin";
  if (::mkfifo(path.c_str(), 0600) != 0) return Failure("make the pipe " + path);
  input->path_ = path;
  // Opening a pipe only for writing fails until the rank opens the pipe, so it is opened for
  // reading too.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return Failure("open the pipe " + path);
  input->end_.assign(fd.Release());
  return input;
}

Result<std::shared_ptr<RankStdin>> RankStdin::OpenTerminal(asio::io_context& loop,
                                                           const std::string& folder,
                                                           TerminalSize size) {
  std::shared_ptr<RankStdin> input(new RankStdin(loop));
  UniqueFd fd(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  std::array<char, 128> name{};
  if (!fd || ::grantpt(fd.get()) != 0 || ::unlockpt(fd.get()) != 0 ||
      ::ptsname_r(fd.get(), name.data(), name.size()) != 0)
    return Failure("open a terminal");
  input->ranks_end_.Reset(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!input->ranks_end_) return Failure("open the terminal " + std::string(name.data()));
  input->log_.Reset(::open((folder + "/stdout.log").c_str(),
                           O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!input->log_) return Failure("open " + folder + "/stdout.log");
  termios mode{};
  ::tcgetattr(input->ranks_end_.get(), &mode);
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  ::tcsetattr(input->ranks_end_.get(), TCSANOW, &mode);
  winsize shown{};
  shown.ws_col = size.columns;
  shown.ws_row = size.rows;
  ::ioctl(fd.get(), TIOCSWINSZ, &shown);
  input->path_ = name.data();
  input->end_.assign(fd.Release());
  input->ReadOutput();
  return input;
}

RankStdin::~RankStdin() { Close(); }

void RankStdin::Close() {
  if (!is_terminal() && end_.is_open()) ::unlink(path_.c_str());
  asio::error_code ignored;
  end_.close(ignored);
}

void RankStdin::ReadOutput() {
  end_.async_wait(asio::posix::stream_descriptor::wait_read,
                  [self = shared_from_this()](const asio::error_code& error) {
                    if (error || !self->end_.is_open()) return;
                    self->Drain();
                    self->ReadOutput();
                  });
}

void RankStdin::Drain() {
  if (!is_terminal() || !end_.is_open()) return;
  std::array<char, kReadBytes> buffer;
  ssize_t count;
  while ((count = ::read(end_.native_handle(), buffer.data(), buffer.size())) > 0)
    AddToLog({buffer.data(), static_cast<size_t>(count)});
}

void RankStdin::AddToLog(std::string_view output) {
  while (!output.empty()) {
    const ssize_t count = ::write(log_.get(), output.data(), output.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // a full disk loses output, as it does for any rank's log
    output.remove_prefix(static_cast<size_t>(count));
  }
}

bool RankStdin::Write(std::string_view data) {
  if (!end_.is_open() || ends_) return true;  // the rank reads no more input
  if (sent_.size() + pending_.size() >= kMaxPendingBytes) return false;
  pending_ += data;
  WritePending();
  return true;
}

void RankStdin::End() {
  ends_ = true;
  WritePending();
}

void RankStdin::WritePending() {
  if (!sent_.empty() || !end_.is_open()) return;
  if (pending_.empty()) {
    if (!std::exchange(ends_, false)) return;
    if (!is_terminal()) return Close();
    const char end_of_file = 4;  // character that Ctrl-D sends
    pending_.assign(1, end_of_file);
  }
  sent_.swap(pending_);
  asio::async_write(end_, asio::buffer(sent_),
                    [self = shared_from_this()](const asio::error_code& error, size_t) {
                      self->sent_.clear();
                      if (error || !self->end_.is_open()) return;
                      self->WritePending();
                    });
}

}  // namespace dslaunch
