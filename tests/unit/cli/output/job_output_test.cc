#include "cli/output/job_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <thread>

#include "tests/support/forbidden_bytes.h"

namespace dslaunch::job_output_test {
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

pb::LogChunk Piece(const std::string& data) {
  pb::LogChunk piece;
  piece.set_rank(1);
  piece.set_data(data);
  return piece;
}

// A source of output whose next chunk is ready as soon as the last chunk was accepted.
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

// Returns all bytes read from `fd` until end of file.
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
  // Runs the loop until `done` returns true or `limit` has passed.
  void RunUntil(const std::function<bool()>& done, milliseconds limit) {
    const Deadline deadline = Deadline::After(limit);
    while (!done() && !deadline.Expired()) {
      loop_.restart();
      handled_ += loop_.run_one_for(milliseconds(50));
    }
  }

  // Returns the text that a pipe receives if the pieces arrive with a pause after each piece.
  std::string ShownOf(const std::vector<pb::LogChunk>& pieces) {
    Ends ends = Pipe();
    {
      Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
      JobOutput output(loop_, terminal);
      for (const pb::LogChunk& piece : pieces) {
        output.Log("node", piece, [] {});
        RunUntil([] { return false; }, milliseconds(700));
      }
    }
    ends.writer.Reset();
    return ReadToEnd(ends.reader.get());
  }

  // Returns the text that a slow reader receives: it starts after the sources, and reads until they
  // are done.
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

// With polling for room every few milliseconds, this output would take half a minute.
TEST_F(JobOutputTest, ReaderReceivesAllOutputQuickly) {
  for (const auto& ends : {&Pipe, &SocketPair}) {
    const auto begin = Clock::now();
    const std::string text = Read(ends(), 1, 400);
    EXPECT_LT(Clock::now() - begin, seconds(10)) << "100 MB";
    EXPECT_EQ(LinesOf(text), 400 * kLinesOfChunk);
  }
}

// Nothing may be dropped, although all sources together exceed the limit of pending bytes.
TEST_F(JobOutputTest, ManySourcesLoseNoLines) {
  EXPECT_EQ(LinesOf(Read(Pipe(), 40, 2)), 40 * 2 * kLinesOfChunk);
}

TEST_F(JobOutputTest, WritesFilesAtOnce) {
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Terminal terminal(null.get(), null.get(), nullptr);
  JobOutput output(loop_, terminal);
  Source source(output, Chunk(0), 10);
  source.Start();
  EXPECT_EQ(source.left(), 0);
  EXPECT_EQ(terminal.Pending(), 0u);
}

TEST_F(JobOutputTest, StalledReaderBlocksSourcesWithoutPolling) {
  const Ends ends = Pipe();
  Terminal terminal(ends.writer.get(), ends.writer.get(), nullptr);
  JobOutput output(loop_, terminal);
  Source source(output, Chunk(0), 100);
  source.Start();
  RunUntil([] { return false; }, seconds(1));
  EXPECT_GT(source.left(), 90);
  EXPECT_LE(handled_, 20u) << "things done in a second of waiting";
}

TEST_F(JobOutputTest, JoinsLineThatArrivesInPieces) {
  EXPECT_EQ(ShownOf({Piece("one "), Piece("line\n")}), "[node:1] one line\n");
}

TEST_F(JobOutputTest, ShowsUnfinishedLineAfterPause) {
  pb::LogChunk standstill = Piece("");
  standstill.set_stands_still(true);
  EXPECT_EQ(ShownOf({Piece("name: "), standstill}), "[node:1] name: \n");
}

TEST_F(JobOutputTest, KeepsUsersDescriptorBlocking) {
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

// Provides a pseudo-terminal whose other end the test reads.
class ScreenTest : public JobOutputTest {
 protected:
  ScreenTest() {
    int main_fd, user_fd;
    EXPECT_EQ(::openpty(&main_fd, &user_fd, nullptr, nullptr, nullptr), 0);
    main_.Reset(main_fd);
    user_.Reset(user_fd);
  }

  // Returns the text received so far. Lines end with "\r\n".
  std::string Screen() {
    std::string buffer(1 << 16, '\0');
    pollfd ready{main_.get(), POLLIN, 0};
    while (::poll(&ready, 1, 5) > 0) {
      const ssize_t count = ::read(main_.get(), buffer.data(), buffer.size());
      if (count <= 0) break;
      screen_.append(buffer, 0, static_cast<size_t>(count));
    }
    return screen_;
  }

  void TakeAll(Terminal& terminal) {
    while (terminal.Pending() > 0) {
      Screen();
      terminal.Flush();
    }
  }

  static void Write(JobOutput& output, uint32_t rank, const std::string& text,
                    bool is_stderr = false) {
    pb::LogChunk chunk;
    chunk.set_rank(rank);
    chunk.set_local_rank(rank % 2);
    chunk.set_is_stderr(is_stderr);
    chunk.set_data(text);
    output.Log("node" + std::to_string(rank / 2), chunk, [] {});
  }

  UniqueFd main_, user_;
  std::string screen_;
};

TEST_F(ScreenTest, ShowsEqualLinesOfAllRanksOnce) {
  Terminal terminal(user_.get(), user_.get(), nullptr);
  JobOutput output(loop_, terminal);
  output.SetShownRanks(4);
  for (uint32_t rank = 0; rank < 4; ++rank)
    Write(output, rank, "loading\nrank " + std::to_string(rank) + "\n");
  EXPECT_EQ(Screen(), "[x4 ranks: 0-3] loading\r\n");
  RunUntil([&] { return Screen().find("rank 3") != std::string::npos; }, seconds(5));
  EXPECT_EQ(Screen(),
            "[x4 ranks: 0-3] loading\r\n[node0:0] rank 0\r\n[node0:1] rank 1\r\n"
            "[node1:2] rank 2\r\n[node1:3] rank 3\r\n");
}

TEST_F(ScreenTest, ReportsWhetherLastLinesOfRankWereShown) {
  Terminal terminal(user_.get(), user_.get(), nullptr);
  JobOutput output(loop_, terminal);
  output.SetShownRanks(4);
  Write(output, 1, "Traceback\r\nValueError: x\r\n\n", /*is_stderr=*/true);
  Write(output, 0, "to the end", /*is_stderr=*/true);
  output.FinishStreams();
  EndCause cause;
  cause.node = "node0";
  cause.log_path = "/logs/rank_1/stderr.log";
  cause.rank = 1;
  cause.last_lines = "Traceback\r\nValueError: x\r\n\n";
  EXPECT_TRUE(output.HasShown(cause));
  cause.last_lines += "core dumped\n";
  EXPECT_FALSE(output.HasShown(cause)) << "its end was not shown";
  cause.last_lines = "to the end";
  EXPECT_FALSE(output.HasShown(cause)) << "another rank's";
  cause.rank = 0;
  EXPECT_TRUE(output.HasShown(cause));
  cause.log_path = "/logs/rank_0/stdout.log";
  EXPECT_FALSE(output.HasShown(cause));
}

TEST_F(ScreenTest, ShowsOnlyRankAtOnceWithoutTag) {
  Terminal terminal(user_.get(), user_.get(), nullptr);
  JobOutput output(loop_, terminal);
  output.SetShownRanks(1);
  Write(output, 3, "at once\n");
  EXPECT_EQ(Screen(), "at once\r\n");
  Write(output, 3, "dslaunch: forged\n\x1b[1mdslaunch: forged\n");
  EXPECT_EQ(Screen(), "at once\r\n[node1:3] dslaunch: forged\r\n[node1:3] dslaunch: forged\r\n");
}

TEST_F(ScreenTest, PrintsMessagesAfterEarlierOutput) {
  Terminal terminal(user_.get(), user_.get(), nullptr);
  JobOutput output(loop_, terminal);
  output.SetShownRanks(4);
  Write(output, 0, "before\n");
  output.PrintMessage("dslaunch: after");
  EXPECT_EQ(Screen(), "[node0:0] before\r\ndslaunch: after\r\n");
  Write(output, 1, "last", /*is_stderr=*/true);
  output.FinishStreams();
  EXPECT_THAT(Screen(), testing::EndsWith("\r\n[node0:1] last\r\n"));
}

TEST_F(ScreenTest, AppliesTagTemplateToEveryLine) {
  Terminal terminal(user_.get(), user_.get(), nullptr);
  JobOutput output(loop_, terminal, {"[${role_name}${local_rank}]:", "trainer"});
  output.SetShownRanks(2);
  for (uint32_t rank : {2u, 3u}) Write(output, rank, "same\n");
  EXPECT_EQ(Screen(), "[trainer0]:same\r\n[trainer1]:same\r\n");
}

TEST_F(ScreenTest, WritesEveryLineToPipesAtOnce) {
  Ends ends = Pipe();
  std::string text;
  {
    Terminal terminal(ends.writer.get(), user_.get(), nullptr);  // only stderr is a terminal
    JobOutput output(loop_, terminal);
    output.SetShownRanks(2);
    for (uint32_t rank : {0u, 1u}) {
      Write(output, rank, "same\n");
      Write(output, rank, "error\n", /*is_stderr=*/true);
    }
  }
  ends.writer.Reset();
  EXPECT_EQ(ReadToEnd(ends.reader.get()), "[node0:0] same\n[node0:1] same\n");
  EXPECT_EQ(Screen(), "[x2 ranks: 0-1] error\r\n");
}

// The 31 states of a bar must appear as one line for each rank.
TEST_F(ScreenTest, ShowsOneLiveLineForEachRedrawingRank) {
  Terminal terminal(user_.get(), user_.get(), "xterm");
  JobOutput output(loop_, terminal);
  output.SetShownRanks(2);
  for (int percent = 0; percent <= 30; ++percent) {
    for (const uint32_t rank : {1u, 0u})
      Write(output, rank, "\r" + std::to_string(percent) + "%|##|", /*is_stderr=*/true);
  }
  RunUntil([&] { return Screen().ends_with("[node0:0] 30%|##|\r\n[node0:1] 30%|##|"); },
           seconds(5));
  EXPECT_THAT(Screen(), testing::EndsWith("[node0:0] 30%|##|\r\n[node0:1] 30%|##|"));
  Write(output, 0, "\r31%|##|\n", /*is_stderr=*/true);
  output.FinishStreams();
  EXPECT_THAT(Screen(), testing::EndsWith("[node0:0] 31%|##|\r\n[node0:1] 30%|##|\r\n"));
}

TEST_F(ScreenTest, ShowsPhaseUntilFirstStep) {
  Terminal terminal(user_.get(), user_.get(), "xterm");
  JobOutput output(loop_, terminal);
  output.SetPhase("4 ranks running");
  RunUntil([&] { return Screen().find("4 ranks running, 2 s") != std::string::npos; }, seconds(20));
  EXPECT_THAT(Screen(), testing::HasSubstr("4 ranks running, 2 s"));
  pb::WorkerStatus status;
  status.set_line(R"({"event":"step","step":1,"total_steps":4})");
  output.Progress(status);
  EXPECT_THAT(Screen(), testing::ContainsRegex("step 1/4  \\[=*> *\\]  25%$"));
}

TEST_F(ScreenTest, KeepsTypedInputAfterPrompt) {
  Terminal terminal(user_.get(), user_.get(), "xterm");
  JobOutput output(loop_, terminal);
  output.SetShownRanks(1);
  output.SetReadsInput();
  Write(output, 0, "(Pdb) ");
  RunUntil([&] { return Screen().ends_with("(Pdb) "); }, seconds(5));
  ASSERT_EQ(::write(main_.get(), "p x\n", 4), 4);  // the terminal echoes this text
  RunUntil([&] { return Screen().ends_with("p x\r\n"); }, seconds(5));
  output.OnEnter();
  Write(output, 0, "42\n");
  EXPECT_THAT(Screen(), testing::EndsWith("(Pdb) p x\r\n42\r\n"));
}

TEST_F(ScreenTest, RemovesControlSequencesFromRandomOutput) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Terminal terminal(user_.get(), user_.get(), "dumb");
  JobOutput output(loop_, terminal);
  output.SetShownRanks(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t n = random() % 20; n > 0; --n) {
      switch (random() % 5) {
        case 0:
          text += static_cast<char>(random() % 256);
          break;
        case 1:
          text += '\n';
          break;
        default:
          text += kHostilePieces[random() % std::size(kHostilePieces)];
      }
    }
    if (round % 50 == 0) text += std::string(kMaxDisplayLineBytes, '\x9b') + "\x1b]0;";
    pb::LogChunk chunk;
    chunk.set_rank(random() % 3);
    chunk.set_is_stderr(random() % 2 == 0);
    chunk.set_data(text);
    output.Log("node\x1b[2J\x07", chunk, [] {});
    output.PrintMessage("dslaunch: " + text);
    if (round % 100 == 0) {  // unfinished lines must not be mixed with messages either
      chunk.clear_data();
      chunk.set_stands_still(true);
      output.Log("node\x1b[2J\x07", chunk, [] {});
      RunUntil([] { return false; }, milliseconds(250));
    }
    TakeAll(terminal);
  }
  output.FinishStreams();
  TakeAll(terminal);
  EXPECT_EQ(FindForbidden(Screen()), "");
  EXPECT_GT(Screen().size(), 10'000u);
}

}  // namespace
}  // namespace dslaunch::job_output_test
