// Compares every collective on several ranks with the result that one process computes. The ranks
// are forked, so this test must not start threads outside of them.
#include "dslaunch/process_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "dslaunch/spawn.h"
#include "trainer/base/train_error.h"

namespace dslaunch::process_group_test {
namespace {

using testing::HasSubstr;

constexpr std::array kAllOps = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kProduct};
constexpr std::array kAllDtypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                   at::kByte,  at::kChar,   at::kInt,  at::kLong};

// Returns the tensor of `rank`. Its values are small integers, so that every order of reduction
// gives the same result in every dtype.
at::Tensor Contribution(int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  const at::Tensor numbers = at::arange(c10::multiply_integers(shape), at::kLong);
  return numbers.mul(rank + 1).remainder(4).add(1).view(shape).to(dtype);
}

at::Tensor Reduced(int ranks, at::IntArrayRef shape, at::ScalarType dtype, ReduceOp op) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(Contribution(rank, shape, dtype).to(at::kDouble));
  const at::Tensor stacked = at::stack(all);
  switch (op) {
    case ReduceOp::kSum:
      return stacked.sum(0).to(dtype);
    case ReduceOp::kAverage:
      return stacked.mean(0).to(dtype);
    case ReduceOp::kMin:
      return stacked.amin(0).to(dtype);
    case ReduceOp::kMax:
      return stacked.amax(0).to(dtype);
    case ReduceOp::kProduct:
      return stacked.prod(0).to(dtype);
  }
  std::abort();
}

// Throws if the tensors differ. Ranks must throw, because GoogleTest's expectations are lost in a
// forked process.
void ExpectEqual(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  if (got.scalar_type() == wanted.scalar_type() && at::equal(got, wanted)) return;
  throw std::runtime_error(what + c10::str(": ", got, "\ninstead of ", wanted));
}

template <class Call>
void ExpectRefused(const Call& call, const std::string& words) {
  try {
    call();
  } catch (const TrainError& error) {
    const std::string what = error.what();
    if (error.code() == ExitCode::kUsage && what.find(words) != std::string::npos) return;
    throw std::runtime_error("instead of '" + words + "': " + what);
  }
  throw std::runtime_error("not refused: " + words);
}

class ProcessGroupTest : public testing::TestWithParam<int> {
 protected:
  void InRanks(const std::function<void(ProcessGroup&)>& body) {
    try {
      Spawn(GetParam(), [&](int) {
        ProcessGroup group = InitProcessGroup();
        body(group);
        group.Finish();
      });
    } catch (const TrainError& error) {
      FAIL() << error.what();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupTest, testing::Values(1, 2, 4));

TEST_P(ProcessGroupTest, ReducesEveryDtypeAndOperation) {
  InRanks([](ProcessGroup& group) {
    const int ranks = group.world_size();
    for (const at::ScalarType dtype : kAllDtypes) {
      for (const ReduceOp op : kAllOps) {
        if (op == ReduceOp::kAverage && !at::isFloatingType(dtype)) continue;
        const std::string what = c10::str(dtype, " op ", static_cast<int>(op));
        at::Tensor tensor = Contribution(group.rank(), {3, 5}, dtype);
        group.AllReduce(tensor, op);
        ExpectEqual(tensor, Reduced(ranks, {3, 5}, dtype, op), "AllReduce " + what);

        const at::Tensor part =
            group.ReduceScatter(Contribution(group.rank(), {ranks, 5}, dtype), op);
        ExpectEqual(part, Reduced(ranks, {ranks, 5}, dtype, op)[group.rank()],
                    "ReduceScatter " + what);
      }
    }
  });
}

TEST_P(ProcessGroupTest, BroadcastAndAllGatherMoveAnyDtype) {
  InRanks([](ProcessGroup& group) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kBool, at::kShort, at::kComplexDouble, at::kBFloat16, at::kLong}) {
      for (int root = 0; root < group.world_size(); ++root) {
        at::Tensor tensor = Contribution(group.rank(), {7}, dtype);
        group.Broadcast(tensor, root);
        ExpectEqual(tensor, Contribution(root, {7}, dtype), c10::str("Broadcast ", dtype));
      }
      const at::Tensor all = group.AllGather(Contribution(group.rank(), {2, 3}, dtype));
      for (int rank = 0; rank < group.world_size(); ++rank)
        ExpectEqual(all[rank], Contribution(rank, {2, 3}, dtype), c10::str("AllGather ", dtype));
    }
  });
}

TEST_P(ProcessGroupTest, SendsAroundRing) {
  InRanks([](ProcessGroup& group) {
    const int ranks = group.world_size(), rank = group.rank();
    if (ranks == 1) return;
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (const at::ScalarType dtype : {at::kFloat, at::kBool, at::kDouble}) {
      at::Tensor got = at::zeros({5}, dtype);
      if (rank == 0) group.Send(Contribution(rank, {5}, dtype), next);
      group.Recv(got, previous);
      if (rank != 0) group.Send(Contribution(rank, {5}, dtype), next);
      ExpectEqual(got, Contribution(previous, {5}, dtype), "Recv");
    }
    group.Barrier();
  });
}

TEST_P(ProcessGroupTest, AcceptsTensorsOfAnyLayout) {
  InRanks([](ProcessGroup& group) {
    const int ranks = group.world_size();
    const auto mine = [&] { return Contribution(group.rank(), {4, 3}, at::kFloat); };
    at::Tensor transposed = mine().t();
    group.AllReduce(transposed);
    ExpectEqual(transposed, Reduced(ranks, {4, 3}, at::kFloat, ReduceOp::kSum).t(), "AllReduce");

    at::Tensor whole = mine();
    at::Tensor column = whole.select(1, 1);
    group.Broadcast(column, ranks - 1);
    at::Tensor wanted = mine();
    wanted.select(1, 1).copy_(Contribution(ranks - 1, {4, 3}, at::kFloat).select(1, 1));
    ExpectEqual(whole, wanted, "Broadcast into a column");

    ExpectEqual(group.AllGather(mine().t())[ranks - 1],
                Contribution(ranks - 1, {4, 3}, at::kFloat).t(), "AllGather");

    at::Tensor scalar = at::scalar_tensor(group.rank() + 1.0);
    group.AllReduce(scalar);
    ExpectEqual(scalar, at::scalar_tensor(ranks * (ranks + 1) / 2.0), "a scalar");
    at::Tensor empty = at::empty({0, 3});
    group.AllReduce(empty);
    ExpectEqual(group.AllGather(empty), at::empty({ranks, 0, 3}), "nothing");

    at::Tensor weight = mine().requires_grad_();
    group.AllReduce(weight);
    ExpectEqual(weight.detach(), Reduced(ranks, {4, 3}, at::kFloat, ReduceOp::kSum), "a parameter");
    if (!weight.is_leaf() || group.AllGather(weight).requires_grad())
      throw std::runtime_error("autograd has seen a collective");
  });
}

TEST_P(ProcessGroupTest, RejectsInvalidArguments) {
  InRanks([](ProcessGroup& group) {
    const int ranks = group.world_size();
    at::Tensor tensor = at::ones({3}), undefined, flags = at::ones({3}, at::kBool);
    at::Tensor whole_numbers = at::ones({3}, at::kLong);
    at::Tensor sparse = at::ones({3}).to_sparse();
    const std::string range = "; the ranks are 0 to " + std::to_string(ranks - 1);
    ExpectRefused([&] { group.Broadcast(tensor, ranks); },
                  "Broadcast: root is " + std::to_string(ranks) + range);
    ExpectRefused([&] { group.Broadcast(tensor, -1); }, "root is -1" + range);
    ExpectRefused([&] { group.Send(tensor, ranks); }, "Send: to is " + std::to_string(ranks));
    ExpectRefused([&] { group.Recv(tensor, -1); }, "Recv: from is -1" + range);
    ExpectRefused([&] { group.Send(tensor, group.rank()); }, "to itself");
    ExpectRefused([&] { group.Recv(tensor, group.rank()); }, "from itself");
    ExpectRefused([&] { group.AllReduce(undefined); }, "AllReduce: the tensor is undefined");
    ExpectRefused([&] { group.AllReduce(sparse); }, "Sparse on cpu");
    ExpectRefused([&] { group.AllReduce(flags); }, "values of Bool cannot be reduced");
    ExpectRefused([&] { group.AllReduce(whole_numbers, ReduceOp::kAverage); },
                  "the average of Long values");
    ExpectRefused(
        [&] {
          group.ReduceScatter(at::ones({ranks + 1, 2}));
        },
        "must be the number of ranks, " + std::to_string(ranks));
    // Nothing was sent, so the ranks still agree on the next collective.
    group.AllReduce(tensor);
    ExpectEqual(tensor, at::full({3}, static_cast<float>(ranks)), "AllReduce");
  });
}

TEST_P(ProcessGroupTest, AllReduceSumAddsDoubles) {
  InRanks([](ProcessGroup& group) {
    std::vector<double> values = {group.rank() + 0.5, 1};
    group.AllReduceSum(values);
    const int ranks = group.world_size();
    const std::vector<double> wanted = {ranks * (ranks - 1) / 2 + 0.5 * ranks, 1.0 * ranks};
    if (values != wanted) throw std::runtime_error(c10::str(values));
  });
}

// Runs collectives in the rows and columns of a grid of two by two, while other groups exchange
// other data.
TEST(SubgroupTest, RanksUseSeveralGroupsAtOnce) {
  Spawn(4, [](int rank) {
    ProcessGroup world = InitProcessGroup();
    const int row = rank / 2, column = rank % 2;
    const ProcessGroup in_row =
        world.Subgroup({2 * row, 2 * row + 1}, "row " + std::to_string(row));
    // The ranks of this group are in reverse order.
    const ProcessGroup in_column =
        world.Subgroup({2 + column, column}, "column " + std::to_string(column));
    if (in_row.rank() != column || in_column.rank() != 1 - row || in_row.world_size() != 2) {
      throw std::runtime_error("a place in a group is not that in its list");
    }
    for (int round = 0; round < 20; ++round) {
      at::Tensor sum = at::full({100}, rank);
      in_row.AllReduce(sum);
      ExpectEqual(sum, at::full({100}, 4 * row + 1), "sum of a row");
      ExpectEqual(in_column.AllGather(at::full({1}, rank)),
                  at::tensor({2 + column, column}).view({2, 1}).to(sum.scalar_type()), "a column");
      at::Tensor all = at::ones({1});
      world.AllReduce(all);
      ExpectEqual(all, at::full({1}, 4.0F), "sum of all");
    }
    const std::string row_key = in_row.NewKey("x");
    if (row_key != world.NewKey("x")) throw std::runtime_error("keys are not counted by group");
    in_row.store()->set("where", std::vector<uint8_t>{static_cast<uint8_t>(row)});
    in_row.Barrier();
    if (in_row.store()->get("where") != std::vector<uint8_t>{static_cast<uint8_t>(row)}) {
      throw std::runtime_error("two groups share their keys");
    }
  });
}

TEST(SubgroupTest, RankMayLeaveWhileOthersReceive) {
  Spawn(3, [](int rank) {
    ProcessGroup world = InitProcessGroup();
    for (int round = 0; round < 10; ++round) {
      const ProcessGroup all = world.Subgroup({0, 1, 2}, "round " + std::to_string(round));
      at::Tensor tensor = at::full({1 << 18}, rank);
      all.Broadcast(tensor, 0);
      ExpectEqual(tensor, at::zeros({1 << 18}, at::kLong), "Broadcast");
    }
  });
}

TEST(SubgroupTest, RejectsRankOutsideGroup) {
  Spawn(2, [](int rank) {
    ProcessGroup world = InitProcessGroup();
    ExpectRefused([&] { world.Subgroup({1 - rank}, "others"); },
                  "Subgroup: rank " + std::to_string(rank) + " is not among those of others");
    ExpectRefused([&] { world.Subgroup({rank, 2}, "more"); }, "a rank is 2");
  });
}

// The groups are not destroyed before the process ends, so they must not block its exit.
TEST(SubgroupTest, ExceptionEndsRanksThatWaitInSubgroup) {
  try {
    Spawn(3, [](int rank) {
      ProcessGroup world = InitProcessGroup();
      const ProcessGroup two = world.Subgroup(
          rank == 2 ? std::vector<int>{2} : std::vector<int>{0, 1}, rank == 2 ? "one" : "two");
      if (rank == 1) throw TrainError(ExitCode::kBadInput, "bad");
      if (rank == 0) two.Barrier();
    });
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.exit_code(), 65) << error.what();
  }
}

// A rank that never calls the collective must not block the other ranks for longer than the
// program's timeout.
TEST(TimeoutTest, CollectiveFailsAfterTimeout) {
  using std::chrono::milliseconds, std::chrono::seconds;
  for (const char* no_shared_memory : {"0", "1"}) {
    setenv("DSLAUNCH_SHM_DISABLE", no_shared_memory, 1);
    Spawn(2, [](int rank) {
      const ProcessGroup group = InitProcessGroup({.timeout = milliseconds(1500)});
      if (group.timeout() != milliseconds(1500)) throw std::runtime_error("another timeout");
      if (rank == 1) return group.store()->wait({"rank 0 has waited"}, seconds(60));
      const auto start = std::chrono::steady_clock::now();
      bool failed = false;
      try {
        at::Tensor tensor = at::ones({3});
        group.AllReduce(tensor);
      } catch (const std::exception&) {
        failed = true;
      }
      const auto waited = std::chrono::steady_clock::now() - start;
      group.store()->set("rank 0 has waited", std::vector<uint8_t>{1});
      if (!failed) throw std::runtime_error("the all-reduce returned");
      if (waited < seconds(1) || waited > seconds(30)) throw std::runtime_error("not in time");
    });
  }
  unsetenv("DSLAUNCH_SHM_DISABLE");
  Spawn(1, [](int) {
    ExpectRefused([] { InitProcessGroup({.timeout = milliseconds(999)}); },
                  "the timeout is 999 ms; it must be at least 1000 ms");
  });
}

TEST(SpawnTest, ThrowsErrorOfFirstFailedRank) {
  try {
    Spawn(3, [](int rank) {
      ProcessGroup group = InitProcessGroup();
      if (rank == 1) throw TrainError(ExitCode::kBadInput, "bad");
      group.Barrier();
    });
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 ended with exit code 65"));
    EXPECT_EQ(error.exit_code(), 65);
  }
}

}  // namespace
}  // namespace dslaunch::process_group_test
