#include "agent/frames/frame_helper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/frames/stack_snapshot.h"
#include "base/os/process_tree.h"

namespace dslaunch {
namespace {

using ::testing::IsEmpty;

void Pause() {
  constexpr timespec kPause = {0, 5'000'000};
  nanosleep(&kPause, nullptr);
}

// A child process that runs frames_program.
class Program {
 public:
  explicit Program(const char* argument) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe(ends.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl(DSLAUNCH_FRAMES_PROGRAM, DSLAUNCH_FRAMES_PROGRAM, argument, nullptr);
      _exit(1);
    }
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
  }
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  std::vector<pid_t> tids() const {
    std::vector<pid_t> tids;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task"))
      tids.push_back(std::stoi(entry.path().filename()));
    return tids;
  }
  char state() const {
    const auto info = ReadProcess(pid_);
    return info ? info->state : '?';
  }

 private:
  pid_t pid_ = 0;
};

class FrameHelperTest : public ::testing::Test {
 protected:
  pb::ProcessStacks Read(const Program& program) {
    std::optional<pb::ProcessStacks> answer;
    FrameHelper helper(loop_);
    helper.Begin(program.pid(), program.tids(), [&](pb::ProcessStacks frames) { answer = frames; });
    EXPECT_FALSE(answer);
    loop_.run();
    loop_.restart();
    return answer.value_or(pb::ProcessStacks());
  }

  static std::vector<std::string> Functions(const pb::ThreadStack& thread) {
    std::vector<std::string> names;
    for (const pb::StackFrame& frame : thread.frames()) {
      if (frame.function() != "?") names.push_back(frame.function());
    }
    return names;
  }

  asio::io_context loop_;
};

#ifdef DSLAUNCH_HAS_DWFL

// Reads until all threads have the frames of the wait, because the first reads may be slow.
TEST_F(FrameHelperTest, ReadsFunctionsAndLinesOfWaitingThreads) {
  const Program program(nullptr);
  pb::ProcessStacks frames;
  for (int attempt = 0; attempt < 20; ++attempt) {
    Pause();
    frames = Read(program);
    if (frames.threads_size() == 2) break;
  }
  ASSERT_EQ(frames.no_native(), "");
  ASSERT_EQ(frames.threads_size(), 2);
  for (const pb::ThreadStack& thread : frames.threads()) {
    const std::vector<std::string> functions = Functions(thread);
    ASSERT_GE(functions.size(), 4u);
    EXPECT_EQ(functions[1], "load_batch");
    EXPECT_EQ(functions[2], "train");
    EXPECT_EQ(functions[3], thread.tid() == program.pid() ? "main" : "background");
    EXPECT_EQ(thread.frames(1).line(), 12) << "of the call of read()";
    EXPECT_TRUE(thread.frames(1).file().ends_with("frames_program.c"));
  }
}

TEST_F(FrameHelperTest, ReadsFramesOfRunningThreadAndContinuesIt) {
  const Program program("run");
  std::vector<std::string> functions;
  // Just after its start, the program may still be in write(), so the read is repeated.
  for (int attempt = 0; attempt < 20 && (functions.empty() || functions[0] != "spin"); ++attempt) {
    const pb::ProcessStacks frames = Read(program);
    for (const pb::ThreadStack& thread : frames.threads()) {
      if (thread.tid() == program.pid()) functions = Functions(thread);
    }
  }
  ASSERT_GE(functions.size(), 2u);
  EXPECT_EQ(functions[0], "spin");
  EXPECT_EQ(functions[1], "main");
  EXPECT_EQ(program.state(), 'R');
}

TEST_F(FrameHelperTest, LeavesNothingStoppedIfKilledAtAnyMoment) {
  const Program program("run");
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      while (true) CopyRunningStack(program.pid(), program.pid(), FrameHelper::kStopLimit);
    }
    const timespec pause = {0, 100'000 + 37'000 * (round % 23)};
    nanosleep(&pause, nullptr);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    char state = program.state();
    for (int attempt = 0; attempt < 100 && state != 'R'; ++attempt) {
      Pause();
      state = program.state();
    }
    ASSERT_EQ(state, 'R') << "round " << round;
  }
}

#else

TEST_F(FrameHelperTest, ReportsMissingLibrary) {
  EXPECT_EQ(Read(Program(nullptr)).no_native(), "this dslaunch was built without libdwfl");
}

#endif

TEST_F(FrameHelperTest, ReportsProcessThatHasEnded) {
  std::optional<pb::ProcessStacks> answer;
  FrameHelper helper(loop_);
  constexpr pid_t kNone = 1 << 30;
  helper.Begin(kNone, {kNone}, [&](pb::ProcessStacks frames) { answer = frames; });
  loop_.run();
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->no_native(), "");
  EXPECT_THAT(answer->threads(), IsEmpty());
}

}  // namespace
}  // namespace dslaunch
