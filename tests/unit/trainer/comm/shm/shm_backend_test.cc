// Tests ranks that share memory. They are forked processes, so this test must not start threads
// outside of them.
#include "trainer/comm/shm/shm_backend.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/deadline.h"
#include "dslaunch/process_group.h"
#include "dslaunch/spawn.h"
#include "tests/support/random_seed.h"
#include "trainer/comm/backend/combine.h"
#include "trainer/comm/explain.h"
#include "trainer/comm/shm/layout.h"

namespace dslaunch::shm_backend_test {
namespace {

namespace fs = std::filesystem;

// Throws if `good` is false. Ranks must throw, because GoogleTest's expectations are lost in a
// forked process.
void Expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

std::string BackendOf(const ProcessGroup& group) {
  return group.c10d_group()->getBackend(c10::DeviceType::CPU)->getBackendName();
}

void InRanks(int ranks, const std::function<void(ProcessGroup&)>& body) {
  try {
    Spawn(ranks, [&](int) {
      ProcessGroup group = InitProcessGroup();
      Expect(BackendOf(group) == "shm", "the ranks share memory");
      body(group);
      group.Finish();
    });
  } catch (const std::exception& error) {
    FAIL() << error.what();
  }
}

// Returns random values, which depend only on the arguments and are the same on every rank.
at::Tensor Values(uint64_t seed, int rank, int64_t elements, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(seed * 1000 + static_cast<uint64_t>(rank));
  return at::randn({elements}, generator, at::kFloat).to(dtype);
}

c10::intrusive_ptr<c10d::Work> BeginSum(const ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors = {tensor};
  return group.c10d_group()->allreduce(tensors);
}

// Returns numbers of fp32 elements around the size of a chunk.
std::vector<int64_t> Sizes() {
  constexpr int64_t kChunk = kChunkBytes / 4;
  return {0, 1, 15, 17, 1000, kChunk - 1, kChunk, kChunk + 1, 7 * kChunk + 123};
}

class ShmBackendTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmBackendTest, testing::Values(2, 3, 5));

TEST_P(ShmBackendTest, AddsUpInRankOrder) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("DSLAUNCH_TEST_SEED=" + std::to_string(seed));
  InRanks(GetParam(), [&](ProcessGroup& group) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t size : Sizes()) {
        std::vector<at::Tensor> all;
        for (int rank = 0; rank < group.world_size(); ++rank)
          all.push_back(Values(seed, rank, size, dtype));
        at::Tensor wanted = at::empty_like(all[0]);
        AddUp(all, wanted);
        at::Tensor sum = all[static_cast<size_t>(group.rank())].clone();
        BeginSum(group, sum)->wait();
        Expect(at::equal(sum, wanted), c10::str("the sum of ", size, " of ", dtype));
      }
    }
  });
}

TEST_P(ShmBackendTest, RunsManyOperationsAtOnce) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("DSLAUNCH_TEST_SEED=" + std::to_string(seed));
  InRanks(GetParam(), [&](ProcessGroup& group) {
    const int ranks = group.world_size(), own = group.rank();
    const int next = (own + 1) % ranks, before = (own + ranks - 1) % ranks;
    std::mt19937_64 random(seed);  // draws the same numbers on all ranks
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<at::Tensor> sums, wanted_sums, sent, received;
    for (int i = 0; i < 20; ++i) {
      const auto size = static_cast<int64_t>(random() % (3 * kChunkBytes / 4));
      sums.push_back(Values(seed + static_cast<uint64_t>(i), own, size, at::kFloat));
      wanted_sums.push_back(at::zeros({size}));
      for (int rank = 0; rank < ranks; ++rank)
        wanted_sums.back().add_(Values(seed + static_cast<uint64_t>(i), rank, size, at::kFloat));
      works.push_back(BeginSum(group, sums.back()));
      // Messages are sent in one order of tags and received in the reverse order.
      sent.push_back(at::full({size}, 100.0 * own + i));
      std::vector<at::Tensor> message = {sent.back()};
      works.push_back(group.c10d_group()->send(message, next, i));
    }
    for (int i = 19; i >= 0; --i) {
      received.push_back(at::zeros_like(sent[static_cast<size_t>(i)]));
      std::vector<at::Tensor> place = {received.back()};
      works.push_back(group.c10d_group()->recv(place, before, i));
    }
    for (const auto& work : works) work->wait();
    for (size_t i = 0; i < sums.size(); ++i) {
      Expect(at::allclose(sums[i], wanted_sums[i], 1e-5, 1e-5), c10::str("sum ", i));
      const at::Tensor& message = received[sums.size() - 1 - i];
      Expect(at::equal(message, at::full_like(message, 100.0 * before + static_cast<double>(i))),
             c10::str("message ", i));
    }
  });
}

TEST_P(ShmBackendTest, ReduceScatterAndAllGatherEqualAllReduce) {
  InRanks(GetParam(), [&](ProcessGroup& group) {
    const int ranks = group.world_size();
    for (const int64_t each : {1, 1000, 400'001}) {
      at::Tensor all = Values(7, group.rank(), each * ranks, at::kFloat);
      at::Tensor part = at::empty({each});
      group.c10d_group()->_reduce_scatter_base(part, all)->wait();
      at::Tensor gathered = at::empty_like(all);
      group.c10d_group()->_allgather_base(gathered, part)->wait();
      BeginSum(group, all)->wait();
      Expect(at::equal(gathered, all), c10::str(each, " elements a rank"));
    }
  });
}

TEST(ShmBackend, QueuesMoreMessagesThanRequests) {
  InRanks(2, [](ProcessGroup& group) {
    constexpr int kMessages = 3 * kMaxRequests;
    const at::Tensor numbers = at::arange(kMessages, at::kLong);
    const at::Tensor places = at::zeros({kMessages}, at::kLong);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < kMessages; ++i) {
      std::vector<at::Tensor> one = {(group.rank() == 0 ? numbers : places).narrow(0, i, 1)};
      works.push_back(group.rank() == 0 ? group.c10d_group()->send(one, 1, 5)
                                        : group.c10d_group()->recv(one, 0, 5));
    }
    for (const auto& work : works) work->wait();
    if (group.rank() == 1) Expect(at::equal(numbers, places), "they come in order");
  });
}

// A work must be complete before its future. Code that waits for the future may stop the profiler,
// to which the end of the work is reported.
TEST(ShmBackend, WorkEndsBeforeItsFuture) {
  InRanks(2, [](ProcessGroup& group) {
    const auto work = BeginSum(group, at::ones({kChunkBytes}));
    bool ended = false;
    work->getFuture()->addCallback([&](c10::ivalue::Future&) { ended = work->isCompleted(); });
    group.Barrier();
    work->getFuture()->wait();
    Expect(ended, "the work had ended");
  });
}

TEST(ShmBackend, FallsBackToGlooIfOneRankDisablesIt) {
  EXPECT_NO_THROW(Spawn(3, [](int rank) {
    if (rank == 1) setenv("DSLAUNCH_SHM_DISABLE", "1", /*overwrite=*/1);
    ProcessGroup group = InitProcessGroup();
    Expect(BackendOf(group) == "gloo", "all ranks use Gloo");
    group.Barrier();
    group.Finish();
  }));
}

TEST(ShmBackend, ReportsDifferentCollectives) {
  EXPECT_NO_THROW(Spawn(2, [](int) {
    ProcessGroup group = InitProcessGroup();
    std::string what;
    try {
      BeginSum(group, at::zeros({group.rank() == 0 ? 10 : 20}))->wait();
    } catch (const std::exception& error) {
      what = error.what();
    }
    Expect(what.find("bytes, rank") != std::string::npos, "refused: " + what);
    _exit(0);
  }));
}

// Returns the errors of ranks 0 and 2 after rank 1 has ended by `go` in the middle of a sum.
std::vector<std::string> SaidOfLostRank(const std::function<void()>& go) {
  const fs::path folder = fs::temp_directory_path() / ("dslaunch-shm-" + std::to_string(getpid()));
  fs::create_directory(folder);
  try {
    Spawn(3, [&](int rank) {
      signal(SIGTERM, SIG_IGN);  // Spawn sends SIGTERM to the remaining ranks
      ProcessGroup group = InitProcessGroup();
      const at::Tensor large = at::ones({20 * kChunkBytes});
      group.Barrier();  // all ranks have joined the group
      const auto work = BeginSum(group, large);
      if (rank == 1) go();
      std::string what;
      const auto begin = Clock::now();
      try {
        work->wait();
      } catch (const std::exception& error) {
        what = error.what();
      }
      const bool soon = Clock::now() - begin < std::chrono::seconds(30);
      std::ofstream(folder / std::to_string(rank)) << (soon ? what : "late: " + what);
      _exit(0);
    });
  } catch (const std::exception&) {
    // Spawn throws because rank 1 ended, as intended.
  }
  std::vector<std::string> said;
  for (const char* rank : {"0", "2"}) {
    std::getline(std::ifstream(folder / rank), said.emplace_back());
  }
  fs::remove_all(folder);
  return said;
}

TEST(ShmBackend, NamesKilledRankAndLeavesNoSegment) {
  const auto segments = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      names.push_back(entry.path().filename());
    return names;
  };
  const std::vector<std::string> before = segments();
  for (const std::string& what : SaidOfLostRank([] { kill(getpid(), SIGKILL); })) {
    EXPECT_EQ(what, "shared memory of the ranks: rank 1 has ended");
    EXPECT_EQ(ClassifyCommFailure(what), CommFailure::kPeerLost);
  }
  EXPECT_EQ(segments(), before);
}

TEST(ShmBackend, RejectsMessageOfWrongSize) {
  EXPECT_NO_THROW(Spawn(2, [](int) {
    ProcessGroup group = InitProcessGroup();
    std::vector<at::Tensor> tensors = {at::zeros({group.rank() == 0 ? 4 : 6})};
    std::string what;
    try {
      (group.rank() == 0 ? group.c10d_group()->send(tensors, 1, 0)
                         : group.c10d_group()->recv(tensors, 0, 0))
          ->wait();
    } catch (const std::exception& error) {
      what = error.what();
    }
    if (group.rank() == 1) {
      Expect(
          what ==
              "shared memory of the ranks: exchange with rank 0: received a message of 16 bytes, "
              "but 24 bytes are expected",
          what);
    }
    _exit(0);
  }));
}

}  // namespace
}  // namespace dslaunch::shm_backend_test
