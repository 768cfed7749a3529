#include "rendezvous/culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>

namespace dslaunch::culprit_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = WaitPlace::Kind;
using Rule = Culprit::Rule;

struct Frame {
  const char* function;
  const char* file;
  int line;
};
const std::string kSite = "/usr/lib/python3/dist-packages/";

pb::RankStacks Python(const std::vector<Frame>& frames, const std::string& call = "futex") {
  pb::RankStacks stacks;
  pb::ProcessStacks& process = *stacks.add_processes();
  process.set_pid(4711);
  process.set_python("3.11");
  pb::ThreadStack& thread = *process.add_threads();
  thread.set_state("S");
  thread.set_call(call);
  for (const Frame& given : frames) {
    pb::StackFrame& frame = *thread.add_frames();
    frame.set_function(given.function);
    frame.set_file(given.file);
    frame.set_line(given.line);
  }
  return stacks;
}

pb::RankStacks Native(const std::string& call, const std::string& target = "",
                      const std::string& state = "S") {
  pb::RankStacks stacks;
  pb::ProcessStacks& process = *stacks.add_processes();
  process.set_command("a.out");
  pb::ThreadStack& thread = *process.add_threads();
  thread.set_state(state);
  thread.set_call(call);
  thread.set_target(target);
  return stacks;
}

pb::RankStacks AllReduce(int line = 92) {
  static const std::string c10d = kSite + "torch/distributed/distributed_c10d.py";
  static const std::string logger = kSite + "torch/distributed/c10d_logger.py";
  return Python({{"all_reduce", c10d.c_str(), 3075},
                 {"wrapper", logger.c_str(), 83},
                 {"train", "/home/u/train.py", line},
                 {"<module>", "/home/u/train.py", 120}});
}

pb::RankStacks Loader() {
  pb::RankStacks stacks = Python({{"load_batch", "/home/u/data.py", 41},
                                  {"train", "/home/u/train.py", 88},
                                  {"<module>", "/home/u/train.py", 120}},
                                 "read");
  stacks.mutable_processes(0)->mutable_threads(0)->set_target("a FIFO");
  return stacks;
}

class CulpritTest : public ::testing::Test {
 protected:
  RankEvidence& Add(pb::RankStacks stacks) {
    stacks_.push_back(std::move(stacks));
    RankEvidence& rank = ranks_.emplace_back();
    rank.rank = static_cast<uint32_t>(ranks_.size() - 1);
    rank.node = "node" + std::to_string(rank.rank / 2);
    rank.local_rank = rank.rank % 2;
    rank.stacks = &stacks_.back();
    return rank;
  }
  void AddEnded() {
    RankEvidence& rank = Add({});
    rank.stacks = nullptr;
    rank.ended = true;
  }
  static std::string TextOf(const Culprit& culprit) {
    std::string text;
    for (const std::string& line : culprit.lines) text += line + "\n";
    return text;
  }

  std::deque<pb::RankStacks> stacks_;
  std::vector<RankEvidence> ranks_;
};

TEST_F(CulpritTest, NamesRankOutsideOfExchange) {
  Add(AllReduce());
  Add(AllReduce());
  Add(AllReduce());
  Add(Loader());
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kOutside);
  EXPECT_TRUE(culprit.sure);
  EXPECT_THAT(culprit.ranks, ElementsAre(3));
  EXPECT_EQ(
      TextOf(culprit),
      "  rank 3 (node1, local rank 1) is not where the others are:\n"
      "    load_batch (data.py:41) < train (train.py:88) < <module> (train.py:120)  asleep in read "
      "of a FIFO\n"
      "  ranks 0-2 wait for it in all_reduce:\n"
      "    all_reduce (distributed_c10d.py:3075) < train (train.py:92) < <module> "
      "(train.py:120)  asleep in futex\n");
}

TEST_F(CulpritTest, IsNotSureOfMajorityOutside) {
  Add(AllReduce());
  Add(Loader());
  Add(Loader());
  const Culprit culprit = Judge(ranks_);
  EXPECT_THAT(culprit.ranks, ElementsAre(1, 2));
  EXPECT_FALSE(culprit.sure);
  EXPECT_THAT(culprit.summary, HasSubstr("probably ranks 1-2 are"));
}

TEST_F(CulpritTest, NamesStoppedRankFirst) {
  Add(AllReduce());
  Add(AllReduce()).stopped = true;
  Add(Loader());
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kStopped);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_TRUE(culprit.sure);
}

TEST_F(CulpritTest, PrintsHowToContinueStoppedProcess) {
  Add(AllReduce());
  Add(Loader());
  stacks_[1].mutable_processes(0)->mutable_threads(0)->set_state("T");
  EXPECT_THAT(TextOf(Judge(ranks_)), HasSubstr("    kill -CONT 4711 continues it on node0\n"));
}

TEST_F(CulpritTest, NamesRankInUninterruptibleWait) {
  Add(AllReduce());
  Add(Loader());
  stacks_[1].mutable_processes(0)->mutable_threads(0)->set_state("D");
  EXPECT_EQ(Judge(ranks_).rule, Rule::kStopped);
}

TEST_F(CulpritTest, NamesRankThatExitedWhileOthersWait) {
  Add(AllReduce());
  AddEnded();
  Add(AllReduce());
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kEnded);
  EXPECT_TRUE(culprit.sure);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_EQ(culprit.lines.front(), "  rank 1 exited with 0 while the others wait");
}

TEST_F(CulpritTest, IsNotSureIfOneExitedAndAnotherIsOutside) {
  Add(AllReduce());
  AddEnded();
  Add(Loader());
  const Culprit culprit = Judge(ranks_);
  EXPECT_THAT(culprit.ranks, ElementsAre(2));
  EXPECT_FALSE(culprit.sure);
}

TEST_F(CulpritTest, NamesSmallerGroupOfExchanges) {
  Add(AllReduce(92));
  Add(AllReduce(95));
  Add(AllReduce(92));
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kOtherPlace);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_FALSE(culprit.sure);
  EXPECT_THAT(TextOf(culprit), HasSubstr("train.py:95"));
  EXPECT_THAT(TextOf(culprit), HasSubstr("train.py:92"));
}

TEST_F(CulpritTest, ShowsBothOfTwoExchanges) {
  Add(AllReduce(92));
  Add(AllReduce(95));
  const Culprit culprit = Judge(ranks_);
  EXPECT_THAT(culprit.ranks, ElementsAre(0, 1));
  EXPECT_THAT(culprit.summary, HasSubstr("different exchanges"));
}

TEST_F(CulpritTest, NamesRankThatDoesNotRead) {
  Add(AllReduce());
  Add(AllReduce()).unread_bytes = 400;
  Add(AllReduce());
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kUnread);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_FALSE(culprit.sure);
}

TEST_F(CulpritTest, IsNotSureOfRankThatWaitsForLock) {
  Add(AllReduce());
  Add(Python({{"train", "/home/u/train.py", 88}}));
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kOutside);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_FALSE(culprit.sure);
}

TEST_F(CulpritTest, NamesNoRankIfAllWaitAtOnePlace) {
  Add(AllReduce());
  Add(AllReduce());
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kUnknown);
  EXPECT_THAT(culprit.ranks, IsEmpty());
  EXPECT_FALSE(culprit.sure);
  EXPECT_THAT(culprit.summary, HasSubstr("not known"));
}

TEST_F(CulpritTest, DoesNotJudgeGpuRanksAtOnePlace) {
  Add(AllReduce()).has_gpu = true;
  Add(AllReduce()).has_gpu = true;
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
}

TEST_F(CulpritTest, FindsNoHangWhileRankRuns) {
  Add(AllReduce());
  Add(Loader());
  stacks_[1].mutable_processes(0)->mutable_threads(0)->set_state("R");
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
  EXPECT_THAT(JudgeSteps(ranks_, {0, 1}).ranks, ElementsAre(1)) << "an endless loop";
  ranks_[1].has_gpu = true;
  EXPECT_THAT(Judge(ranks_).ranks, ElementsAre(1));
}

TEST_F(CulpritTest, NamesRanksThatAreBehindIfNothingElseIsKnown) {
  Add(AllReduce());
  Add(AllReduce());
  const Culprit culprit = JudgeSteps(ranks_, {1});
  EXPECT_EQ(culprit.rule, Rule::kBehind);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_THAT(TextOf(culprit), HasSubstr("all_reduce"));
}

TEST_F(CulpritTest, FindsNoHangIfNoRankWaits) {
  Add(Loader());
  Add(Loader());
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
}

TEST_F(CulpritTest, DoesNotJudgeIdleService) {
  Add(Native("epoll_wait"));
  Add(Native("epoll_wait"));
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
  ranks_.clear();
  Add(Native("accept", "a TCP socket"));
  Add(Native("accept", "a TCP socket"));
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
}

TEST_F(CulpritTest, ReportsNativeProgramsThatAllSleep) {
  Add(Native("clock_nanosleep"));
  Add(Native("clock_nanosleep"));
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kAsleep);
  EXPECT_THAT(culprit.ranks, IsEmpty());
  EXPECT_THAT(culprit.summary, HasSubstr("ranks 0-1 are asleep"));
}

TEST_F(CulpritTest, NamesNativeRankThatDoesNotWaitForPeer) {
  Add(Native("recvfrom", "a TCP socket"));
  Add(Native("read", "a FIFO"));
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kOutside);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
}

TEST_F(CulpritTest, ShowsWorkerOfDataLoader) {
  static const std::string loader = kSite + "torch/utils/data/dataloader.py";
  static const std::string worker = kSite + "torch/utils/data/_utils/worker.py";
  pb::RankStacks stacks = Python({{"_try_get_data", loader.c_str(), 1243},
                                  {"__next__", loader.c_str(), 700},
                                  {"train", "/home/u/train.py", 88}},
                                 "poll");
  *stacks.add_processes() =
      Python({{"__getitem__", "/home/u/data.py", 41}, {"_worker_loop", worker.c_str(), 308}},
             "read")
          .processes(0);
  Add(AllReduce());
  Add(std::move(stacks));
  const Culprit culprit = Judge(ranks_);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_THAT(TextOf(culprit), HasSubstr("data loader's worker: __getitem__ (data.py:41)"));
}

TEST_F(CulpritTest, LeavesOutFramesOfLibraries) {
  Add(AllReduce());
  Add(Python({{"Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 378},
              {"Connection.recv", "/usr/lib/python3.11/multiprocessing/connection.py", 250},
              {"Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103},
              {"train", "/home/u/train.py", 88}},
             "read"));
  EXPECT_THAT(TextOf(Judge(ranks_)),
              HasSubstr("    Connection._recv (connection.py:378) < train (train.py:88)  asleep"));
}

TEST_F(CulpritTest, RemovesControlCharactersOfPrograms) {
  Add(AllReduce());
  Add(Python({{"f\x1b[2J\n", "/a/\x07b.py", 1}}, "read"));
  EXPECT_EQ(TextOf(Judge(ranks_)).find('\x1b'), std::string::npos);
}

TEST(WaitPlaceTest, FindsExchangesOfPrograms) {
  const auto kind = [](const std::vector<Frame>& frames, const char* call = "futex") {
    return FindWaitPlace(Python(frames, call)).kind;
  };
  const std::string cuda = kSite + "torch/cuda/__init__.py";
  const std::string graph = kSite + "torch/autograd/graph.py";
  const std::string comm = kSite + "deepspeed/comm/comm.py";
  const std::string functional = kSite + "torch/distributed/_functional_collectives.py";
  EXPECT_EQ(kind({{"synchronize", cuda.c_str(), 1}, {"train", "/u/t.py", 2}}), Kind::kKnown);
  EXPECT_EQ(kind({{"current_device", cuda.c_str(), 1}, {"train", "/u/t.py", 2}}, ""), Kind::kNone);
  EXPECT_EQ(kind({{"all_gather", comm.c_str(), 1}, {"train", "/u/t.py", 2}}), Kind::kKnown);
  const std::string elastic = kSite + "torch/distributed/elastic/agent/server/api.py";
  EXPECT_EQ(kind({{"_invoke_run", elastic.c_str(), 1}}, "clock_nanosleep"), Kind::kNone);
  EXPECT_EQ(kind({{"wait_tensor", functional.c_str(), 1}}), Kind::kKnown);
  EXPECT_EQ(kind({{"_engine_run_backward", graph.c_str(), 1}, {"train", "/u/t.py", 2}}),
            Kind::kKnown);
  EXPECT_EQ(kind({{"_engine_run_backward", graph.c_str(), 1}, {"train", "/u/t.py", 2}}, ""),
            Kind::kNone);
  EXPECT_EQ(kind({{"train", "/u/t.py", 2}}), Kind::kMaybe) << "such as Work.wait()";
  EXPECT_EQ(kind({{"wait", "/usr/lib/python3.11/threading.py", 2}}), Kind::kNone);
  pb::RankStacks store = Python({{"train", "/u/t.py", 2}}, "recvfrom");
  EXPECT_EQ(FindWaitPlace(store).kind, Kind::kNone);
  store.mutable_processes(0)->mutable_threads(0)->set_target("a socket");
  EXPECT_EQ(FindWaitPlace(store).kind, Kind::kMaybe) << "such as a wait for a key of the store";
  // An exchange in an outer frame does not count, because the program's own code is called from it.
  EXPECT_EQ(kind({{"hook", "/u/t.py", 3}, {"wait_tensor", functional.c_str(), 1}}, "read"),
            Kind::kNone);
}

TEST(WaitPlaceTest, TakesReportedExchange) {
  pb::RankStacks stacks = Native("", "", "R");
  stacks.set_exchange("all_reduce of 4.2 MB (step 12)");
  const WaitPlace place = FindWaitPlace(stacks);
  EXPECT_EQ(place.kind, Kind::kKnown);
  EXPECT_EQ(place.call, "all_reduce of 4.2 MB (step 12)");
}

pb::RankStacks Mpi(const char* program_function, const char* state) {
  pb::RankStacks stacks = Native("", "", state);
  pb::ThreadStack& thread = *stacks.mutable_processes(0)->mutable_threads(0);
  const auto add = [&](const char* function, const char* file, int line) {
    pb::StackFrame& frame = *thread.add_frames();
    frame.set_function(function);
    frame.set_file(file);
    frame.set_line(line);
  };
  if (program_function == nullptr) {
    add("opal_progress", "/usr/lib/libopen-pal.so", 0);
    add("PMPI_Barrier", "/usr/lib/libmpi.so", 0);
    add("train", "train.cc", 16);
  } else {
    add("clock_nanosleep", "/usr/lib/libc.so.6", 0);
    add(program_function, "train.cc", 11);
  }
  return stacks;
}

TEST_F(CulpritTest, NamesRankOutsideOfMpiWhileOthersSpin) {
  Add(Mpi(nullptr, "R")).uses_cpu = true;
  Add(Mpi("load_batch", "S"));
  const Culprit culprit = Judge(ranks_);
  EXPECT_EQ(culprit.rule, Rule::kOutside);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_THAT(TextOf(culprit), HasSubstr("load_batch (train.cc:11)"));
  EXPECT_THAT(TextOf(culprit), HasSubstr("rank 0 waits for it in MPI_Barrier"));
  EXPECT_THAT(TextOf(culprit), HasSubstr("PMPI_Barrier (libmpi.so) < train (train.cc:16)"));
}

TEST_F(CulpritTest, JudgesComputingRankOnlyAfterLongTime) {
  Add(AllReduce());
  RankEvidence& computes = Add(Loader());
  computes.uses_cpu = true;
  EXPECT_EQ(Judge(ranks_).rule, Rule::kNoneWaits);
  computes.computes_long = true;
  const Culprit culprit = Judge(ranks_);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_FALSE(culprit.sure);
}

TEST_F(CulpritTest, NamesRankThatRasCountsBehind) {
  for (int i = 0; i < 3; ++i) Add(AllReduce()).has_gpu = true;
  pb::RasReport ras;
  EXPECT_THAT(Judge(ranks_, &ras).ranks, IsEmpty());
  ras.add_behind(2);
  ras.set_operation("AllReduce");
  ras.set_behind_count(6);
  ras.set_most_count(7);
  const Culprit culprit = Judge(ranks_, &ras);
  EXPECT_EQ(culprit.rule, Rule::kRas);
  EXPECT_THAT(culprit.ranks, ElementsAre(2));
  EXPECT_THAT(culprit.summary, HasSubstr("probably rank 2 (node1, local rank 0) has launched 6 "
                                         "operations AllReduce of NCCL, the others 7"));
  ras.add_missing(0);
  EXPECT_THAT(Judge(ranks_, &ras).summary,
              HasSubstr("rank 0 (node0, local rank 0) does not answer"));
}

void AddFrames(pb::ThreadStack& thread, const std::vector<Frame>& frames) {
  for (const Frame& given : frames) {
    pb::StackFrame& frame = *thread.add_frames();
    frame.set_function(given.function);
    frame.set_file(given.file);
    frame.set_line(given.line);
  }
}

TEST(CulpritOfTrainerTest, NamesLineOfThreadThatReadsData) {
  pb::RankStacks loading = Native("futex");
  AddFrames(*loading.mutable_processes(0)->mutable_threads(0),
            {{"dslaunch::BatchLoader::Next", "loader.cc", 176}, {"main", "main.cc", 1}});
  AddFrames(*loading.mutable_processes(0)->add_threads(),
            {{"LoadBatch", "plugin.cc", 39}, {"dslaunch::BatchReader::Read", "loader.cc", 60}});
  pb::ProcessStacks& child = *loading.add_processes();
  child.set_command("sleep");
  AddFrames(*child.add_threads(), {{"clock_nanosleep", "/lib/libc.so.6", 0}});
  pb::RankStacks waiting = Native("futex");
  AddFrames(*waiting.mutable_processes(0)->mutable_threads(0),
            {{"c10d::Reducer::finalize_backward", "libtorch_cpu.so", 0}, {"main", "main.cc", 2}});
  std::vector<RankEvidence> ranks(2);
  ranks[0] = {.rank = 0, .node = "a", .stacks = &waiting};
  ranks[1] = {.rank = 1, .node = "a", .local_rank = 1, .stacks = &loading};
  const Culprit culprit = Judge(ranks);
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_THAT(culprit.lines, Contains(HasSubstr("data loader's worker: LoadBatch (plugin.cc:39)")));
}

TEST(CulpritOfGpuRanksTest, JudgesGpuRanksAtOnePlaceOnlyIfNoneExchanges) {
  const pb::RankStacks stacks = AllReduce();
  std::vector<RankEvidence> ranks(2);
  for (uint32_t i = 0; i < 2; ++i)
    ranks[i] = {.rank = i, .node = "a", .local_rank = i, .stacks = &stacks, .has_gpu = true};
  EXPECT_EQ(Judge(ranks).rule, Rule::kNoneWaits);
  ranks[0].makes_no_exchange = true;
  EXPECT_EQ(Judge(ranks).rule, Rule::kUnknown);
}

TEST(ProgramOfTest, IsFirstProcessWithSourceLines) {
  pb::RankStacks stacks = Native("wait4");
  stacks.mutable_processes(0)->set_command("sh");
  pb::ProcessStacks& program = *stacks.add_processes();
  program.set_command("program");
  AddFrames(*program.add_threads(), {{"wait4", "/lib/libc.so.6", 0}, {"load", "program.c", 7}});
  stacks.add_processes()->set_command("sleep");
  EXPECT_EQ(ProgramOf(stacks).command(), "program");
  program.mutable_threads(0)->clear_frames();
  EXPECT_EQ(ProgramOf(stacks).command(), "sleep");
}

}  // namespace
}  // namespace dslaunch::culprit_test
