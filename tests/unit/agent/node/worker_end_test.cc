#include "agent/node/worker_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "agent/host/oom.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::worker_end_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class WorkerEndTest : public ::testing::Test {
 protected:
  WorkerEndTest() {
    worker_.rank = 5;
    worker_.local_rank = 1;
    worker_.pid = 1'000'000'000;  // greater than any pid, so no such process exists
    worker_.folder = dir_.path();
    life_.attempt = 2;
    life_.cwd = "/home/u";
    life_.started_at = Clock::now();
    life_.out_of_memory_kills = OutOfMemoryKills();
  }
  WorkerEnd Exited(int exit_code, int signal = 0, bool stopping = false) {
    pb::WorkerExited exited;
    exited.set_exit_code(exit_code);
    exited.set_signal(signal);
    exited.set_stopping(stopping);
    exited.set_core_dumped(signal == SIGSEGV);
    exited.set_out_of_memory(out_of_memory_);
    return DescribeWorkerEnd(exited, worker_, life_);
  }

  TempDir dir_;
  AttemptWorker worker_;
  WorkerLife life_;
  bool out_of_memory_ = false;
};

TEST_F(WorkerEndTest, ReportsLastLinesAndErrorOfFailure) {
  dir_.Write("stdout.log", "step 1\n");
  dir_.Write("stderr.log",
             "Traceback (most recent call last):\n  File \"t.py\"\nValueError: bad\n");
  const pb::WorkerEnded ended = Exited(1).event;
  EXPECT_EQ(ended.attempt(), 2u);
  EXPECT_EQ(ended.rank(), 5u);
  EXPECT_EQ(ended.local_rank(), 1u);
  EXPECT_THAT(ended.last_lines(), HasSubstr("ValueError: bad"));
  EXPECT_THAT(ended.log_path(), HasSubstr("stderr.log"));
  EXPECT_EQ(ended.evidence(), "ValueError: bad");
  EXPECT_FALSE(ended.victim());
  const pb::Cause cause = CauseOfFailure(ended, 3);
  EXPECT_EQ(cause.kind(), pb::Cause::WORKER_EXIT);
  EXPECT_EQ(cause.node_index(), 3u);
  EXPECT_EQ(cause.rank(), 5);
  EXPECT_EQ(cause.exit_code(), 1);
  EXPECT_EQ(cause.attempt(), 2u);
  EXPECT_EQ(cause.evidence(), "ValueError: bad");
}

TEST_F(WorkerEndTest, NamesTheInterpreterThatLacksAModule) {
  dir_.Write("stderr.log",
             "Traceback (most recent call last):\n  File \"t.py\"\n"
             "ModuleNotFoundError: No module named 'torch'\n");
  EXPECT_EQ(Exited(1).event.evidence(), "ModuleNotFoundError: No module named 'torch'");
  life_.python = "/usr/bin/python3";
  EXPECT_EQ(Exited(1).event.evidence(),
            "ModuleNotFoundError: No module named 'torch' (it was run by /usr/bin/python3)");
  dir_.Write("stderr.log",
             "Traceback (most recent call last):\n  File \"t.py\"\nValueError: bad\n");
  EXPECT_EQ(Exited(1).event.evidence(), "ValueError: bad");
}

TEST_F(WorkerEndTest, ReportsStdoutIfStderrIsEmpty) {
  dir_.Write("stdout.log", "[gloo] Connection closed by peer\n");
  dir_.Write("stderr.log", "");
  const pb::WorkerEnded ended = Exited(1).event;
  EXPECT_THAT(ended.log_path(), HasSubstr("stdout.log"));
  EXPECT_TRUE(ended.victim());
  EXPECT_TRUE(CauseOfFailure(ended, 0).victim());
}

TEST_F(WorkerEndTest, ReadsErrorFileOfTorchelastic) {
  dir_.Write("stderr.log", "something\n");
  dir_.Write("error.json", R"({"message": {"message": "KeyError: 'lr'", "extraInfo": {}}})");
  const WorkerEnd end = Exited(1);
  EXPECT_EQ(end.event.evidence(), "KeyError: 'lr'");
  EXPECT_EQ(end.note, "");
}

TEST_F(WorkerEndTest, NotesInvalidErrorFile) {
  for (const std::string& content : {std::string("{"), std::string(size_t{2} << 20, ' ')}) {
    dir_.Write("error.json", content);
    const WorkerEnd end = Exited(1);
    EXPECT_EQ(end.event.evidence(), "");
    EXPECT_THAT(end.note, HasSubstr("error.json"));
  }
}

TEST_F(WorkerEndTest, RecognizesKillForMemory) {
  EXPECT_FALSE(Exited(0, SIGKILL).event.out_of_memory());
  out_of_memory_ = true;
  const pb::WorkerEnded ended = Exited(0, SIGKILL).event;
  EXPECT_TRUE(ended.out_of_memory());
  EXPECT_THAT(ended.evidence(), HasSubstr("memory"));
  const pb::Cause cause = CauseOfFailure(ended, 0);
  EXPECT_EQ(cause.kind(), pb::Cause::WORKER_SIGNAL);
  EXPECT_EQ(cause.exit_code(), 137);
  EXPECT_TRUE(cause.out_of_memory());
  EXPECT_FALSE(Exited(7).event.out_of_memory());
}

TEST_F(WorkerEndTest, AddsMemoryKillOfChildToError) {
  dir_.Write("stderr.log",
             "Traceback (most recent call last):\n  File \"t.py\"\nRuntimeError: DataLoader worker "
             "(pid 999999999) is killed by signal: Killed.\n");
  out_of_memory_ = true;
  const pb::WorkerEnded ended = Exited(1).event;
  EXPECT_THAT(ended.evidence(),
              StartsWith("RuntimeError: DataLoader worker (pid 999999999) is killed by signal: "
                         "Killed.; the kernel counted a kill for memory in the job's cgroup"));
  EXPECT_FALSE(ended.out_of_memory()) << "the rank itself was not killed";
}

TEST_F(WorkerEndTest, ReportsTimeoutOfRankAsLatePeer) {
  dir_.Write(
      "stderr.log",
      "Traceback (most recent call last):\n  File \"t.py\"\ntorch.distributed.DistStoreError: "
      "Timed out after 4 seconds waiting for clients. 1/2 clients joined.\n");
  const pb::Cause cause = CauseOfFailure(Exited(1).event, 0);
  EXPECT_TRUE(cause.victim());
  EXPECT_EQ(cause.peer_fault(), pb::Cause::LATE);
}

TEST_F(WorkerEndTest, LocatesCoreDump) {
  EXPECT_THAT(Exited(0, SIGSEGV).event.evidence(), StartsWith("its core dump is "));
}

TEST_F(WorkerEndTest, IgnoresEndDuringGracefulKill) {
  dir_.Write("stderr.log", "Terminated\n");
  const pb::WorkerEnded ended = Exited(0, SIGTERM, /*stopping=*/true).event;
  EXPECT_TRUE(ended.stopping());
  EXPECT_EQ(ended.last_lines(), "");
  EXPECT_EQ(Exited(0).event.last_lines(), "");
  EXPECT_FALSE(Exited(0, SIGTERM, /*stopping=*/true).failed);
  EXPECT_FALSE(Exited(0).failed);
  EXPECT_TRUE(Exited(1).failed);
}

// A rank's own error counts even if it exits after the stop: its connections were closed, and the
// victims were reported, before it had exited.
TEST_F(WorkerEndTest, ReportsOwnErrorFromBeforeGracefulKill) {
  dir_.Write("stderr.log",
             "Traceback (most recent call last):\n  File \"t.py\"\nValueError: bad\n");
  for (const int signal : {SIGTERM, SIGKILL, 0}) {
    const WorkerEnd end = Exited(signal == 0 ? 1 : 0, signal, /*stopping=*/true);
    EXPECT_TRUE(end.failed);
    EXPECT_TRUE(end.event.stopping());
    EXPECT_EQ(end.event.evidence(), "ValueError: bad");
    EXPECT_THAT(end.event.last_lines(), HasSubstr("ValueError: bad"));
    const pb::Cause cause = CauseOfFailure(end.event, 3);
    EXPECT_EQ(cause.kind(), pb::Cause::WORKER_EXIT);
    EXPECT_EQ(cause.exit_code(), 1);
    EXPECT_EQ(cause.signal(), 0);
    EXPECT_TRUE(cause.while_stopping());
    EXPECT_FALSE(cause.victim());
  }
  EXPECT_FALSE(Exited(0, 0, /*stopping=*/true).failed);
}

TEST_F(WorkerEndTest, IgnoresErrorsCausedByStopOrPeer) {
  for (const char* error : {"KeyboardInterrupt", "torch.SignalException: got signal: 15",
                            "RuntimeError: [gloo] Connection closed by peer"}) {
    dir_.Write("stderr.log",
               std::string("Traceback (most recent call last):\n  File \"t.py\"\n") + error + "\n");
    EXPECT_FALSE(Exited(1, 0, /*stopping=*/true).failed) << error;
  }
}

}  // namespace
}  // namespace dslaunch::worker_end_test
