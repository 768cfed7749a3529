#include "cli/job_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace dslaunch {
namespace {

using std::chrono::seconds;

constexpr size_t kLineBytes = 100;
constexpr size_t kLinesOfChunk = 2600;

struct Ends {
  UniqueFd reader, writer;
};

Ends Pipe() {
  int fds[2];
  EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Ends SocketPair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

pb::LogChunk Chunk(uint32_t rank) {
  const std::string line = std::string(kLineBytes - 1, 'x') + "\n";
  pb::LogChunk chunk;
  chunk.set_rank(rank);
  for (size_t i = 0; i < kLinesOfChunk; ++i) chunk.mutable_data()->append(line);
  return chunk;
}

// A rank that has its next chunk at once when the last was taken.
class Source {
 public:
  Source(JobOutput& output, pb::LogChunk chunk, int count)
      : output_(output), chunk_(std::move(chunk)), left_(count) {}

  void Start() {
    if (left_ == 0) return;
    output_.Log("node", chunk_, [this] {
      --left_;
      Start();
    });
  }
  int left() const { return left_; }

 private:
  JobOutput& output_;
  const pb::LogChunk chunk_;
  int left_;
};

// Reads until end of file.
std::string ReadToEnd(int fd) {
  std::string text;
  std::string buffer(1 << 20, '\0');
  ssize_t count;
  while ((count = ::read(fd, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<size_t>(count));
  return text;
}

class JobOutputTest : public testing::Test {
 protected:
  // Runs the loop until `done` or the time is up.
  void RunUntil(const std::function<bool()>& done, milliseconds limit) {
    const Deadline deadline = Deadline::After(limit);
    while (!done() && !deadline.Expired()) {
      loop_.restart();
      handled_ += loop_.run_one_for(milliseconds(50));
    }
  }

  // What a reader gets that starts after the sources, until they have given everything.
  std::string Read(Ends ends, uint32_t sources, int chunks) {
    std::string text;
    std::thread reader;
    {
      Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
      JobOutput output(loop_, terminal);
      std::vector<std::unique_ptr<Source>> ranks;
      for (uint32_t rank = 0; rank < sources; ++rank)
        ranks.push_back(std::make_unique<Source>(output, Chunk(rank), chunks));
      for (const auto& rank : ranks) rank->Start();
      reader = std::thread([&] { text = ReadToEnd(ends.reader.get()); });
      RunUntil(
          [&] {
            return terminal.Pending() == 0 &&
                   std::ranges::all_of(ranks, [](const auto& rank) { return rank->left() == 0; });
          },
          seconds(60));
    }
    ends.writer.Reset();
    reader.join();
    return text;
  }

  asio::io_context loop_;
  size_t handled_ = 0;
};

size_t LinesOf(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Asking every few ms whether there is room would take half a minute.
TEST_F(JobOutputTest, AReaderGetsWhatItCanTake) {
  for (const auto& ends : {&Pipe, &SocketPair}) {
    const auto begin = Clock::now();
    const std::string text = Read(ends(), 1, 400);
    EXPECT_LT(Clock::now() - begin, seconds(10)) << "100 MB";
    EXPECT_EQ(LinesOf(text), 400 * kLinesOfChunk);
  }
}

// Nothing is dropped, although together the sources have more than may be pending.
TEST_F(JobOutputTest, ManySourcesTakeTurns) {
  EXPECT_EQ(LinesOf(Read(Pipe(), 40, 2)), 40 * 2 * kLinesOfChunk);
}

TEST_F(JobOutputTest, AFileTakesAllAtOnce) {
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Terminal terminal(null.get(), null.get(), nullptr);
  JobOutput output(loop_, terminal);
  Source source(output, Chunk(0), 10);
  source.Start();
  EXPECT_EQ(source.left(), 0);
  EXPECT_EQ(terminal.Pending(), 0u);
}

TEST_F(JobOutputTest, AStalledReaderHoldsUpItsSourcesAndCostsNothing) {
  const Ends ends = Pipe();
  Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
  JobOutput output(loop_, terminal);
  Source source(output, Chunk(0), 100);
  source.Start();
  RunUntil([] { return false; }, seconds(1));
  EXPECT_GT(source.left(), 90);
  EXPECT_LE(handled_, 20u) << "things done in a second of waiting";
}

TEST_F(JobOutputTest, ALineIsNotCutWhileTheReaderLags) {
  Ends ends = Pipe();
  std::string text;
  std::thread reader;
  {
    Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
    JobOutput output(loop_, terminal);
    pb::LogChunk piece;
    piece.set_rank(1);
    piece.set_data("one ");
    output.Log("node", Chunk(0), [] {});
    output.Log("node", piece, [] {});
    RunUntil([] { return false; }, milliseconds(700));
    ASSERT_GT(terminal.Pending(), 0u);
    reader = std::thread([&] { text = ReadToEnd(ends.reader.get()); });
    RunUntil([&] { return terminal.Pending() == 0; }, seconds(10));
    piece.set_data("line\n");
    output.Log("node", piece, [] {});
  }
  ends.writer.Reset();
  reader.join();
  EXPECT_THAT(text, testing::HasSubstr("\n[node:1] one line\n"));
}

TEST_F(JobOutputTest, WaitingLeavesTheUsersDescriptorBlocking) {
  for (const Ends& ends : {Pipe(), SocketPair()}) {
    Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
    JobOutput output(loop_, terminal);
    Source source(output, Chunk(0), 10);
    source.Start();
    RunUntil([] { return false; }, milliseconds(100));
    EXPECT_GT(terminal.Pending(), 0u);
    EXPECT_EQ(::fcntl(ends.writer.get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

}  // namespace
}  // namespace dslaunch
