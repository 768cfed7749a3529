#include "cli/output/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace dslaunch::terminal_test {
namespace {

using testing::HasSubstr;

// Returns all bytes until no more arrive for `wait_ms`.
std::string ReadAll(int fd, int wait_ms = 50) {
  std::string text;
  char buffer[65536];
  pollfd ready{fd, POLLIN, 0};
  while (::poll(&ready, 1, wait_ms) > 0 && (ready.revents & POLLIN) != 0) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    reader.Reset(fds[0]);
    writer.Reset(fds[1]);
  }
  UniqueFd reader, writer;
};

struct Pty {
  explicit Pty(int columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    int main_fd, user_fd;
    EXPECT_EQ(::openpty(&main_fd, &user_fd, nullptr, nullptr, &size), 0);
    main.Reset(main_fd);
    user.Reset(user_fd);
    termios mode;
    ::tcgetattr(user_fd, &mode);
    mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    ::tcsetattr(user_fd, TCSANOW, &mode);
  }
  UniqueFd main, user;
};

TEST(Terminal, WritesOnlyPlainLinesToPipes) {
  Pipe out, err;
  Terminal terminal(out.writer.get(), err.writer.get(), "xterm");
  EXPECT_FALSE(terminal.has_live_line());
  terminal.SetLive({"step 1"});
  terminal.Out("one");
  terminal.Err("two");
  terminal.Out("");
  terminal.Flush();
  EXPECT_EQ(ReadAll(out.reader.get()), "one\n\n");
  EXPECT_EQ(ReadAll(err.reader.get()), "two\n");
}

TEST(Terminal, KeepsLiveLineBelowOtherLines) {
  Pty pty(12);
  Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
  ASSERT_TRUE(terminal.has_live_line());
  terminal.SetLive({"step 1/100 loss"});
  terminal.Flush();
  // Only 11 of the 12 columns are used.
  EXPECT_EQ(ReadAll(pty.main.get()), "step 1/100 ");
  terminal.Out("a");
  terminal.Err("b");
  terminal.Out("c");
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[Ka\nb\nc\nstep 1/100 ");
  terminal.SetLive({"step 2"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[Kstep 2");
  terminal.SetLive({"step 2"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "");
  terminal.SetLive({});
  terminal.Out("end");
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[Kend\n");
}

TEST(Terminal, ErasesLiveLineAtEnd) {
  Pty pty(80);
  {
    Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
    terminal.SetLive({"step 1"});
    terminal.Flush();
  }
  EXPECT_EQ(ReadAll(pty.main.get()), "step 1\r\x1b[K");
}

void Resize(const Pty& pty, int columns) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  ASSERT_EQ(::ioctl(pty.user.get(), TIOCSWINSZ, &size), 0);
}

TEST(Terminal, RedrawsLiveLinesTogether) {
  Pty pty(80);
  Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
  terminal.SetLive({"one", "two", "three"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "one\ntwo\nthree");
  terminal.SetLive({"one", "2"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[K\x1b[A\x1b[K\x1b[A\x1b[Kone\n2");
  terminal.KeepLive();
  terminal.Out("below");
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "below\n");
}

TEST(Terminal, ShowsLastOfTooManyLiveLines) {
  Pty pty(80);
  Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
  std::vector<std::string> lines(100, "rank");
  lines.back() = "step 1";
  terminal.SetLive(lines);
  terminal.Flush();
  const std::string shown = ReadAll(pty.main.get());
  EXPECT_EQ(std::ranges::count(shown, '\n'), 22);
  EXPECT_THAT(shown, testing::EndsWith("\nstep 1"));
}

// The terminal has wrapped the live line into two lines before it is erased.
TEST(Terminal, RedrawsLiveLineAfterResize) {
  Pty pty(40);
  Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
  terminal.SetLive({"step 1/100 of a long line with a bar"});
  terminal.Flush();
  ReadAll(pty.main.get());
  Resize(pty, 20);
  EXPECT_EQ(terminal.columns(), 20);
  terminal.SetLive({"step 1/100 of a long line with a bar"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[K\x1b[A\x1b[Kstep 1/100 of a lon");
  Resize(pty, 60);
  terminal.SetLive({"step 1/100 of a long line with a bar"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "\r\x1b[Kstep 1/100 of a long line with a bar");
}

TEST(Terminal, KeepsColorsForTerminalsWithColors) {
  const std::string line = "\x1b[1;31mred \x1b[2Jend";
  const struct {
    const char* term;
    const char* no_color;
    bool passes;
  } cases[] = {{"xterm", nullptr, true},
               {"xterm", "", true},
               {"xterm", "1", false},
               {"dumb", nullptr, false},
               {nullptr, nullptr, false}};
  for (const auto& c : cases) {
    Pty pty(80);
    Terminal terminal(pty.user.get(), pty.user.get(), c.term, c.no_color);
    terminal.Out(line);
    terminal.Err("dslaunch: " + line);
    terminal.Flush();
    EXPECT_EQ(ReadAll(pty.main.get()),
              (c.passes ? "\x1b[1;31mred end\x1b[0m\n" : std::string("red end\n")) +
                  "dslaunch: red end\n");
  }
}

TEST(Terminal, RedirectedStdoutDoesNotAffectLiveLine) {
  Pty pty(80);
  Pipe out;
  Terminal terminal(out.writer.get(), pty.user.get(), "xterm");
  terminal.SetLive({"step 1"});
  terminal.Out("line");
  terminal.Flush();
  EXPECT_EQ(ReadAll(out.reader.get()), "line\n");
  EXPECT_EQ(ReadAll(pty.main.get()), "step 1");
}

TEST(Terminal, DumbTerminalHasNoLiveLine) {
  for (const char* term : {static_cast<const char*>(nullptr), "", "dumb"}) {
    Pty pty(80);
    Terminal terminal(pty.user.get(), pty.user.get(), term);
    EXPECT_FALSE(terminal.has_live_line());
    terminal.SetLive({"step 1"});
    terminal.Out("line");
    terminal.Flush();
    EXPECT_EQ(ReadAll(pty.main.get()), "line\n");
  }
}

TEST(Terminal, RemovesControlSequences) {
  Pty pty(80);
  Terminal terminal(pty.user.get(), pty.user.get(), "dumb");
  terminal.Out(
      "\x1b[31mred\x1b[0m \xc3\xb6\t\xe2\x80\xae"
      "x");
  terminal.Err(
      "\x1b]52;c;cm0=\x07two\nlines\x9b"
      "2J\r");
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()),
            "red \xc3\xb6\tx\ntwo\n  lines\xef\xbf\xbd"
            "2J\n");
}

TEST(Terminal, IndentsFurtherLinesOfMessage) {
  Pipe out, err;
  Terminal terminal(out.writer.get(), err.writer.get(), "xterm");
  terminal.Err("dslaunch: node1: it said\rdslaunch: a\ndslaunch: 2 ranks succeeded\n  indented\n");
  terminal.ErrLine("a rank's own\r\xff");
  terminal.Flush();
  EXPECT_EQ(ReadAll(err.reader.get()),
            "dslaunch: node1: it saiddslaunch: a\n  dslaunch: 2 ranks succeeded\n  indented\n"
            "a rank's own\r\xff\n");
}

TEST(Terminal, SanitizesLiveLine) {
  Pty pty(80);
  Terminal terminal(pty.user.get(), pty.user.get(), "xterm");
  terminal.SetLive({"step\x1b[2J 1\r\n"});
  terminal.Flush();
  EXPECT_EQ(ReadAll(pty.main.get()), "step 1");
}

TEST(Terminal, RemovesOnlyEscapeSequencesForPipes) {
  Pipe out, err;
  Terminal terminal(out.writer.get(), err.writer.get(), "xterm");
  terminal.Out("\x1b[31mred\x1b[0m \xff\x07\x1b]0;title\nnext\t\xe2\x80\xae");
  terminal.Err("\x1b[1mbold");
  terminal.Flush();
  EXPECT_EQ(ReadAll(out.reader.get()), "red \xff\x07\nnext\t\xe2\x80\xae\n");
  EXPECT_EQ(ReadAll(err.reader.get()), "bold\n");
}

TEST(Terminal, IgnoresClosedReader) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe out, err;
  out.reader.Reset();
  Terminal terminal(out.writer.get(), err.writer.get(), "xterm");
  for (int i = 0; i < 3; ++i) {
    terminal.Out("lost");
    terminal.Err("kept");
    terminal.Flush();
  }
  EXPECT_EQ(terminal.Pending(), 0u);
  EXPECT_EQ(ReadAll(err.reader.get()), "kept\nkept\nkept\n");
}

TEST(Terminal, IgnoresClosedDescriptorsAndFullDisks) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Terminal terminal(987, full.get(), nullptr);
  terminal.Out("x");
  terminal.Err("y");
  terminal.Drain(Deadline::After(milliseconds(2000)));
  EXPECT_EQ(terminal.Pending(), 0u);
}

TEST(Terminal, ReportsFullStdout) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Terminal terminal(full.get(), 987, nullptr);
  EXPECT_TRUE(terminal.OutResult().ok());
  terminal.Out("x");
  terminal.Drain(Deadline::After(milliseconds(2000)));
  const Result<void> result = terminal.OutResult();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ExitCode::kIo);
  EXPECT_THAT(result.error().message, HasSubstr("No space left on device"));
}

// Writes far more than fits while nothing is read, and then reads. Lines must be whole, the loss
// must be reported, and no write may block.
void CheckStalledReader(int reader, int writer) {
  Terminal terminal(writer, writer, "dumb");
  const std::string line(1000, 'x');
  const auto start = Clock::now();
  for (int i = 0; i < 10'000; ++i) {
    terminal.Out(line);
    if (i % 100 == 0) terminal.Flush();
  }
  terminal.Drain(Deadline::After(milliseconds(100)));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_GT(terminal.Pending(), 0u);
  EXPECT_LE(terminal.Pending(), Terminal::kMaxPendingBytes);
  std::string text;
  while (terminal.Pending() > 0) {
    text += ReadAll(reader, 0);
    terminal.Flush();
  }
  text += ReadAll(reader);
  terminal.Out("back");
  terminal.Flush();
  text += ReadAll(reader);
  EXPECT_THAT(text.substr(text.size() - 200), HasSubstr(" lines are not shown here"));
  EXPECT_EQ(text.substr(text.size() - 6), "\nback\n");
  const size_t whole = text.find("dslaunch: ") / (line.size() + 1);
  EXPECT_EQ(text.substr(0, text.find("dslaunch: ")).size(), whole * (line.size() + 1));
}

TEST(Terminal, StalledPipeReaderDoesNotBlock) {
  Pipe out;
  CheckStalledReader(out.reader.get(), out.writer.get());
}

TEST(Terminal, StalledTerminalDoesNotBlock) {
  Pty pty(80);
  CheckStalledReader(pty.main.get(), pty.user.get());
}

TEST(Terminal, KeepsUsersDescriptorBlocking) {
  Pipe out;
  Terminal terminal(out.writer.get(), out.writer.get(), "dumb");
  EXPECT_EQ(::fcntl(out.writer.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(OpenStandardFds, OpensDevNullForClosedDescriptors) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(0);
    ::close(2);
    OpenStandardFds();
    const int next = ::open("/dev/null", O_RDONLY);
    const bool writable = ::write(2, "x", 1) == 1;
    ::_exit(next > 2 && writable ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace dslaunch::terminal_test
