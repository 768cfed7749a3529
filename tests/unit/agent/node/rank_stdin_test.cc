#include "agent/node/rank_stdin.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::rank_stdin_test {
namespace {

class RankStdinTest : public testing::Test {
 protected:
  void RunUntil(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    while (!done() && !deadline.Expired()) {
      loop_.restart();
      loop_.run_for(milliseconds(10));
    }
  }

  // Opens the pipe as the supervisor does for the rank.
  static UniqueFd Open(const RankStdin& input, int mode) {
    UniqueFd fd(::open(input.path().c_str(), mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    EXPECT_TRUE(fd);
    return fd;
  }

  std::string Log() const {
    std::ifstream file(dir_.path() + "/stdout.log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  TempDir dir_;
  asio::io_context loop_;
};

std::string Read(int fd) {
  std::string text(64, '\0');
  const ssize_t count = ::read(fd, text.data(), text.size());
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

TEST_F(RankStdinTest, PipeDeliversBytesThenEndOfFile) {
  const auto input = RankStdin::OpenPipe(loop_, dir_.path());
  ASSERT_TRUE(input.ok()) << input.error().message;
  EXPECT_TRUE((*input)->Write("early, "));
  const UniqueFd rank = Open(**input, O_RDONLY);
  EXPECT_TRUE((*input)->Write("late"));
  (*input)->End();
  std::string text;
  RunUntil([&] { return (text += Read(rank.get())) == "early, late"; });
  EXPECT_EQ(text, "early, late");
  RunUntil([&] { return !std::filesystem::exists((*input)->path()); });
  EXPECT_EQ(::read(rank.get(), text.data(), 1), 0) << "end of file";
}

// Writes more than the pipe holds, in pieces, while earlier pieces wait. The order must be kept,
// and the memory of waiting pieces must stay valid.
TEST_F(RankStdinTest, KeepsOrderWhilePipeIsFull) {
  const auto input = RankStdin::OpenPipe(loop_, dir_.path());
  ASSERT_TRUE(input.ok()) << input.error().message;
  const UniqueFd rank = Open(**input, O_RDONLY);
  std::string expected, got;
  for (int i = 0; i < 5; ++i) {
    const std::string piece(size_t{64} << 10, static_cast<char>('a' + i));
    ASSERT_TRUE((*input)->Write(piece));
    loop_.restart();
    loop_.poll();
    expected += piece;
  }
  (*input)->End();
  RunUntil([&] {
    for (std::string text; !(text = Read(rank.get())).empty();) got += text;
    return got.size() >= expected.size();
  });
  EXPECT_TRUE(got == expected) << got.size() << " of " << expected.size() << " bytes";
}

TEST_F(RankStdinTest, RefusesInputThatRankDoesNotRead) {
  const auto input = RankStdin::OpenPipe(loop_, dir_.path());
  ASSERT_TRUE(input.ok());
  const UniqueFd rank = Open(**input, O_RDONLY);
  const std::string piece(64 << 10, 'x');
  int taken = 0;
  while (taken < 1000 && (*input)->Write(piece)) ++taken;
  EXPECT_LT(taken, 20);
  EXPECT_GT(taken, 1);
  (*input)->Close();
  EXPECT_TRUE((*input)->Write(piece)) << "input without a reader may be dropped";
}

TEST_F(RankStdinTest, TerminalCarriesInputAndOutput) {
  const auto input = RankStdin::OpenTerminal(loop_, dir_.path(), {.columns = 71, .rows = 9});
  ASSERT_TRUE(input.ok()) << input.error().message;
  const UniqueFd rank = Open(**input, O_RDWR);
  ASSERT_EQ(::isatty(rank.get()), 1);
  winsize size{};
  ASSERT_EQ(::ioctl(rank.get(), TIOCGWINSZ, &size), 0);
  EXPECT_EQ(size.ws_col, 71);
  EXPECT_TRUE((*input)->Write("typed\n"));
  std::string text;
  RunUntil([&] { return !(text += Read(rank.get())).empty(); });
  EXPECT_EQ(text, "typed\n");
  ASSERT_EQ(::write(rank.get(), "shown\r\n", 7), 7);
  RunUntil([&] { return !Log().empty(); });
  EXPECT_EQ(Log(), "shown\r\n") << "and no echo";
  ASSERT_EQ(::write(rank.get(), "last", 4), 4);
  (*input)->Drain();
  EXPECT_EQ(Log(), "shown\r\nlast");
}

}  // namespace
}  // namespace dslaunch::rank_stdin_test
