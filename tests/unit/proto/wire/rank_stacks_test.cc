#include "proto/wire/rank_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace dslaunch::rank_stacks_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Frame {
  const char* function;
  const char* file;
  int line;
};

pb::ThreadStack& AddThread(pb::RankStacks& stacks, const std::string& name,
                           const std::string& state, const std::vector<Frame>& frames = {}) {
  if (stacks.processes_size() == 0) {
    stacks.add_processes()->set_pid(7);
    stacks.mutable_processes(0)->set_command("python3");
  }
  pb::ThreadStack& thread = *stacks.mutable_processes(0)->add_threads();
  thread.set_name(name);
  thread.set_state(state);
  for (const Frame& frame : frames) {
    pb::StackFrame& added = *thread.add_frames();
    added.set_function(frame.function);
    added.set_file(frame.file);
    added.set_line(frame.line);
  }
  return thread;
}

pb::RankStacks At(uint32_t rank, const std::vector<Frame>& frames) {
  pb::RankStacks stacks;
  stacks.set_rank(rank);
  AddThread(stacks, "python3", "S", frames);
  return stacks;
}

TEST(RankStacksTest, NamesRunsOfRanks) {
  EXPECT_EQ(RanksText(std::vector<uint32_t>{3}), "rank 3");
  EXPECT_EQ(RanksText(std::vector<uint32_t>{0, 1, 2, 4, 5, 15}), "ranks 0-2, 4-5, 15");
}

TEST(RankStacksTest, FoldsRanksAtTheSamePlace) {
  const std::vector<Frame> wait = {{"all_reduce", "d.py", 5}, {"<module>", "t.py", 9}};
  const std::vector<pb::RankStacks> ranks = {At(2, wait), At(0, wait),
                                             At(1, {{"load", "/data.py", 41}})};
  const std::vector<FoldedStacks> folded = FoldStacks(ranks);
  ASSERT_EQ(folded.size(), 2u);
  EXPECT_THAT(folded[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(folded[1].ranks, ElementsAre(1));
}

TEST(RankStacksTest, KeepsRanksWithOtherSystemCallApart) {
  std::vector<pb::RankStacks> ranks = {At(0, {}), At(1, {}), At(2, {})};
  ranks[1].mutable_processes(0)->mutable_threads(0)->set_call("read");
  EXPECT_EQ(FoldStacks(ranks).size(), 2u);
}

TEST(RankStacksTest, ShowsFirstProcessWithPythonFrames) {
  pb::RankStacks stacks;
  AddThread(stacks, "bash", "S");
  pb::ProcessStacks& child = *stacks.add_processes();
  child.add_threads()->add_frames()->set_function("train");
  ASSERT_NE(ShownThread(stacks), nullptr);
  EXPECT_EQ(ShownThread(stacks)->frames(0).function(), "train");
  EXPECT_EQ(ShownThread(pb::RankStacks()), nullptr);
}

TEST(RankStacksTest, WritesFramesInOneLine) {
  const pb::RankStacks stacks =
      At(0, {{"load", "/a/data.py", 41}, {"train\x1b[1m", "train.py", 0}, {"<module>", "t.py", 9}});
  const pb::ThreadStack& thread = stacks.processes(0).threads(0);
  EXPECT_EQ(FramesText(thread, 5), "load (data.py:41) < train (train.py) < <module> (t.py:9)");
  EXPECT_EQ(FramesText(thread, 1), "load (data.py:41) < ...");
}

TEST(RankStacksTest, DescribesWaitInKernel) {
  pb::RankStacks stacks;
  pb::ThreadStack& thread = AddThread(stacks, "python3", "S");
  EXPECT_EQ(KernelText(thread), "asleep");
  thread.set_call("read");
  thread.set_target("the FIFO /tmp/a");
  thread.set_waits_in("pipe_read");
  EXPECT_EQ(KernelText(thread), "asleep in read of the FIFO /tmp/a (pipe_read)");
}

TEST(RankStacksTest, GroupsEqualThreadsAndPutsPythonFirst) {
  pb::RankStacks stacks;
  AddThread(stacks, "spin", "R").set_cpu_us(500'000);
  AddThread(stacks, "worker", "S").set_cpu_us(100'000);
  AddThread(stacks, "worker", "S").set_cpu_us(200'000);
  AddThread(stacks, "main", "S", {{"train", "t.py", 3}}).set_cpu_us(1'000'000);
  EXPECT_EQ(DescribeStacks(stacks, 10),
            "\n  pid 7, thread main: asleep, 1.0 s of CPU time\n    train (t.py:3)"
            "\n  pid 7, thread spin: running, 0.5 s of CPU time"
            "\n  pid 7, 2 threads worker: asleep, 0.3 s of CPU time");
  EXPECT_THAT(DescribeStacks(stacks, 1), HasSubstr("\n  and 2 more"));
}

TEST(RankStacksTest, CountsLooksAtEachPlace) {
  const std::vector<pb::RankStacks> looks = {
      At(3, {{"load", "data.py", 41}}), At(3, {{"step", "t.py", 9}}), At(3, {{"step", "t.py", 9}})};
  EXPECT_EQ(DescribeLooks(looks),
            "\n  in 2 of 3 looks: step (t.py:9), asleep"
            "\n  in 1 of 3 looks: load (data.py:41), asleep");
}

TEST(RankStacksTest, NamesStoppedAndUninterruptibleFirst) {
  pb::RankStacks stopped;
  AddThread(stopped, "main", "T");
  EXPECT_THAT(DescribeStacks(stopped, 5),
              StartsWith("; python3 (pid 7) is stopped (T): kill -CONT 7 continues it"));
  pb::RankStacks waiting;
  AddThread(waiting, "main", "D").set_call("read");
  EXPECT_THAT(DescribeStacks(waiting, 5),
              StartsWith("; python3 (pid 7) is in an uninterruptible wait (D)\n"));
}

TEST(RankStacksTest, ListsAllThreadsWithFullPaths) {
  pb::RankStacks stacks;
  AddThread(stacks, "main", "S", {{"train", "/job/t.py", 3}, {"<module>", "/job/t.py", 9}});
  stacks.mutable_processes(0)->set_python("3.11");
  stacks.set_exchange("an all-reduce (12)");
  stacks.set_exchange_ms(5'200);
  EXPECT_EQ(ListStacks(stacks),
            "  waits for an all-reduce (12), 5 s\n"
            "  python3 (pid 7, CPython 3.11)\n"
            "    thread main: asleep, 0.0 s of CPU time\n"
            "      train (/job/t.py:3)\n"
            "      <module> (/job/t.py:9)\n");
}

TEST(RankStacksTest, CutsTextsAndLists) {
  pb::RankStacks stacks;
  pb::ThreadStack& thread = AddThread(stacks, std::string(1'000, 'n'), "S");
  for (int i = 0; i < 1'000; ++i)
    thread.add_frames()->set_file(std::string(1'000, 'a') + "/end.py");
  CutRankStacks(stacks);
  const pb::ProcessStacks& process = stacks.processes(0);
  EXPECT_TRUE(process.cut());
  EXPECT_EQ(process.threads(0).name().size(), kMaxStackTextBytes);
  EXPECT_EQ(process.threads(0).frames_size(), kMaxStackFrames);
  EXPECT_THAT(process.threads(0).frames(0).file(), testing::EndsWith("aaa/end.py"));
}

TEST(RankStacksTest, CutsWholeAnswer) {
  pb::RankStacks stacks;
  for (int i = 0; i < 2'000; ++i) {
    for (int frame = 0; frame < 60; ++frame)
      AddThread(stacks, "t", "S").add_frames()->set_file(std::string(300, 'a'));
  }
  CutRankStacks(stacks);
  EXPECT_LE(stacks.ByteSizeLong(), kMaxRankStackBytes);
  EXPECT_TRUE(stacks.processes(0).cut());
}

}  // namespace
}  // namespace dslaunch::rank_stacks_test
