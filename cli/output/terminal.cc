#include "cli/output/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "base/text/sanitize.h"
#include "cli/output/shown_width.h"

namespace dslaunch {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::string_view kEraseLineAbove = "\x1b[A\x1b[K";
constexpr size_t kBlockingWriteBytes =
    4096;  // a pipe that polls as writable accepts this many bytes without blocking
constexpr size_t kWriteBytes = 64 * 1024;
constexpr winsize kDefaultSize = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};

bool SameTerminal(int a, int b) {
  struct stat stat_a, stat_b;
  return ::isatty(a) == 1 && ::isatty(b) == 1 && ::fstat(a, &stat_a) == 0 &&
         ::fstat(b, &stat_b) == 0 && stat_a.st_rdev == stat_b.st_rdev &&
         stat_a.st_ino == stat_b.st_ino;
}

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t' || c == '\n'; });
}

winsize SizeOf(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultSize;
  if (size.ws_row == 0) size.ws_row = kDefaultSize.ws_row;
  return size;
}

// Sanitizes `text` line by line, either for a terminal or for another reader.
std::string MadeSafe(std::string_view text, bool for_terminal, bool keep_colors) {
  std::string made;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    made += !for_terminal ? WithoutEscapes(line)
            : keep_colors ? SanitizeKeepingColors(line)
                          : SanitizeForTerminal(line);
    if (end == text.size()) return made;
    made += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void OpenStandardFds() {
  std::signal(SIGPIPE, SIG_IGN);
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      ::open("/dev/null", O_RDWR);  // open() uses the lowest free number, which is fd
    }
  }
}

Terminal::Terminal(int out_fd, int err_fd, const char* term, const char* no_color)
    : writable_(::epoll_create1(EPOLL_CLOEXEC)) {
  Open(out_, out_fd);
  Open(err_, err_fd);
  same_ = SameTerminal(out_fd, err_fd);
  const std::string_view kind = term == nullptr ? "" : term;
  const bool can_redraw = !kind.empty() && kind != "dumb";
  has_live_line_ = err_.is_terminal && can_redraw;
  has_colors_ = can_redraw && (no_color == nullptr || *no_color == '\0');
}

Terminal::~Terminal() {
  SetLive({});
  Flush();
}

void Terminal::Open(Stream& stream, int fd) {
  stream.fd = fd;
  stream.is_terminal = ::isatty(fd) == 1;
  struct stat status;
  if (::fstat(fd, &status) != 0) {
    stream.dead = true;
  } else if (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode)) {
    // O_NONBLOCK on the given descriptor would affect every process that shares it, such as the
    // user's shell, so the file is opened again.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    stream.own.Reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
}

void Terminal::AddLine(Stream& stream, std::string_view line) {
  if (stream.dead) return;
  std::string made;
  if (!IsPlain(line)) line = made = MadeSafe(line, stream.is_terminal, has_colors_);
  if (stream.Pending() + line.size() > kMaxPendingBytes) {
    ++stream.dropped_lines;
    return;
  }
  if (stream.is_terminal) EraseLive();
  if (stream.dropped_lines > 0) {
    stream.text +=
        "dslaunch: " + std::to_string(stream.dropped_lines) +
        " lines are not shown here, as this output was not read; the log files have them\n";
    stream.dropped_lines = 0;
  }
  stream.text += line;
  stream.text += '\n';
}

void Terminal::Err(std::string_view message) { ErrLine(SanitizeMessage(message)); }

// Erases the live lines. A terminal that became narrower has wrapped these lines, so they occupy
// more rows than before.
void Terminal::EraseLive() {
  if (drawn_widths_.empty()) return;
  const int width = columns();
  int rows = 0;
  for (const int drawn : drawn_widths_) rows += std::max(0, drawn - 1) / width + 1;
  std::string& text = (same_ ? out_ : err_).text;
  text += kEraseLine;
  for (int row = 1; row < rows; ++row) text += kEraseLineAbove;
  drawn_widths_.clear();
}

void Terminal::KeepLive() {
  live_.clear();
  drawn_widths_.clear();
}

void Terminal::SetLive(const std::vector<std::string>& lines) {
  if (!has_live_line_) return;
  std::vector<std::string> safe;
  for (const std::string& line : lines)
    safe.push_back(has_colors_ ? SanitizeKeepingColors(line) : SanitizeForTerminal(line));
  const bool is_resized = !drawn_widths_.empty() && columns() != drawn_columns_;
  if (safe == live_ && !is_resized) return;
  EraseLive();
  live_ = std::move(safe);
}

void Terminal::DrawLive(Stream& stream) {
  const winsize size = SizeOf(err_.fd);
  const size_t most = std::max<size_t>(1, size.ws_row - 1u);
  drawn_columns_ = size.ws_col;
  for (size_t i = 0; i < live_.size(); ++i) {
    if (live_.size() > most && i + 1 == most) i = live_.size() - 1;
    const std::string line = FitToWidth(live_[i], size.ws_col);
    if (!drawn_widths_.empty()) stream.text += '\n';
    stream.text += line;
    drawn_widths_.push_back(ShownWidth(line));
  }
}

void Terminal::Flush() {
  Stream& stream = same_ ? out_ : err_;
  if (!live_.empty() && drawn_widths_.empty() && stream.Pending() < kMaxPendingBytes)
    DrawLive(stream);
  Write(out_);
  Write(err_);
}

void Terminal::Drain(Deadline deadline) {
  Flush();
  while (Pending() > 0 && !deadline.Expired()) {
    pollfd fds[2];
    for (int i = 0; i < 2; ++i) {
      const Stream& stream = i == 0 ? out_ : err_;
      fds[i] = {stream.Pending() == 0 ? -1 : stream.WriteFd(), POLLOUT, 0};
    }
    ::poll(fds, 2, deadline.PollMs());
    Flush();
  }
}

void Terminal::Write(Stream& stream) {
  const int fd = stream.WriteFd();
  const size_t most = stream.own ? kWriteBytes : kBlockingWriteBytes;
  while (!stream.dead && stream.Pending() > 0) {
    pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const ssize_t count =
        ::write(fd, stream.text.data() + stream.taken, std::min(most, stream.Pending()));
    if (count >= 0) {
      stream.taken += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      stream.dead = true;
      stream.error_number = errno;
    }
  }
  if (stream.dead) stream.taken = stream.text.size();
  // Moving the rest after each write would cost more than the writes, so the written part is erased
  // only when at least half is written.
  if (stream.taken >= stream.Pending()) {
    stream.text.erase(0, stream.taken);
    stream.taken = 0;
  }
  Watch(stream);
}

// Watches the stream only while bytes are pending, because a closed reader would keep the
// descriptor readable. epoll refuses regular files, which always accept all bytes.
void Terminal::Watch(Stream& stream) {
  const bool wanted = stream.Pending() > 0;
  if (wanted == stream.watched) return;
  epoll_event event{.events = EPOLLOUT, .data = {}};
  const int done = ::epoll_ctl(writable_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
                               stream.WriteFd(), &event);
  stream.watched = wanted && done == 0;
}

Result<void> Terminal::OutResult() const {
  const int error_number = out_.error_number;
  if (error_number == 0 || error_number == EPIPE || error_number == EIO) return {};
  return Error{ExitCode::kIo, std::string("cannot write to stdout: ") +
                                  std::strerror(error_number) +
                                  "; what is missing there of a job is in its log files"};
}

int Terminal::columns() const { return SizeOf(err_.fd).ws_col; }

int Terminal::rows() const { return SizeOf(err_.fd).ws_row; }

}  // namespace dslaunch
