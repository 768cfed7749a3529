#include "trainer/parallel/shard_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/trainer/ranks.h"

namespace dslaunch::shard_exchange_test {
namespace {

void ExpectNoErrors(const std::vector<std::exception_ptr>& errors) {
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(TextOf(errors[i]), "") << "rank " << i;
}

at::Tensor Numbers(int64_t elements, at::ScalarType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  at::Tensor numbers = at::empty({elements}, at::kFloat);
  std::generate_n(numbers.data_ptr<float>(), elements, [&] { return normal(random); });
  return numbers.to(dtype);
}

// Returns the seed of the tensor of `rank` on `channel`.
uint64_t Seed(int rank, int channel) { return static_cast<uint64_t>(100 * channel + rank + 1); }

// Returns the sum of all ranks' tensors from `start` to `end`, added in fp32 in the order of ranks.
at::Tensor Sum(int ranks, int64_t elements, int64_t start, int64_t end, at::ScalarType message,
               at::ScalarType sum, int channel) {
  at::Tensor total = at::empty({end - start}, at::kFloat);
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor part =
        Numbers(elements, message, Seed(rank, channel)).slice(0, start, end).to(at::kFloat);
    total = rank == 0 ? part : total + part;
  }
  return total.to(sum);
}

struct Case {
  int ranks;
  at::ScalarType dtype;
};

class ShardExchangeTest : public testing::TestWithParam<Case> {};

TEST_P(ShardExchangeTest, GathersEveryPart) {
  const auto [ranks, dtype] = GetParam();
  for (const int64_t n : {int64_t{16}, int64_t{100'000}}) {
    ExpectNoErrors(RunRanks(ranks, [&](const ProcessGroup& group) {
      const ShardExchange exchange(group);
      const at::Tensor whole = Numbers(ranks * n, dtype, 7);
      const at::Tensor flat = at::zeros_like(whole);
      flat.narrow(0, group.rank() * n, n).copy_(whole.narrow(0, group.rank() * n, n));
      const uint32_t version = flat._version();
      PendingExchange pending = exchange.AllGather({flat, 0});
      EXPECT_EQ(pending.pending(), ranks > 1);
      pending.Wait();
      EXPECT_FALSE(pending.pending());
      EXPECT_TRUE(at::equal(flat, whole));
      EXPECT_EQ(flat._version(), version);
    }));
  }
}

TEST_P(ShardExchangeTest, AddsUpInRankOrder) {
  const auto [ranks, dtype] = GetParam();
  const int64_t n = 100'000;  // more elements than are added at a time
  for (const at::ScalarType sum_dtype : {at::kFloat, dtype}) {
    ExpectNoErrors(RunRanks(ranks, [&](const ProcessGroup& group) {
      const at::Tensor message = Numbers(ranks * n, dtype, Seed(group.rank(), 0));
      const at::Tensor before = message.clone();
      const at::Tensor sum = at::full({n}, 3, sum_dtype);
      ShardExchange(group).ReduceScatter(message, sum, 0).Wait();
      const int64_t start = group.rank() * n;
      EXPECT_TRUE(at::equal(sum, Sum(ranks, ranks * n, start, start + n, dtype, sum_dtype, 0)));
      EXPECT_TRUE(at::equal(message, before));
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(
    RanksAndDtypes, ShardExchangeTest,
    testing::Values(Case{1, at::kFloat}, Case{1, at::kHalf}, Case{2, at::kFloat},
                    Case{2, at::kBFloat16}, Case{3, at::kFloat}, Case{3, at::kHalf},
                    Case{4, at::kFloat}, Case{4, at::kBFloat16}, Case{4, at::kHalf}),
    [](const testing::TestParamInfo<Case>& instance) {
      return std::to_string(instance.param.ranks) + "Ranks" + c10::toString(instance.param.dtype);
    });

// Each rank starts and awaits the channels in its own order. Each channel has two exchanges, and
// all exchanges are in progress at once.
TEST(ShardExchange, MatchesChannelsBegunInAnyOrder) {
  const int ranks = 4, channels = 6;
  const auto elements = [](int channel) { return int64_t{16} * (1 + 7 * channel); };
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ExpectNoErrors(RunRanks(ranks, [&](const ProcessGroup& group) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(group.rank()));
    const ShardExchange exchange(group);
    std::vector<int> order(channels);
    std::iota(order.begin(), order.end(), 0);

    std::vector<at::Tensor> flats(channels), sums(channels);
    std::vector<PendingExchange> gathers(channels), scatters(channels);
    std::shuffle(order.begin(), order.end(), random);
    for (const int channel : order) {
      const auto c = static_cast<size_t>(channel);
      const int64_t n = elements(channel);
      flats[c] = at::zeros({ranks * n});
      flats[c].narrow(0, group.rank() * n, n).fill_(100 * channel + group.rank());
      gathers[c] = exchange.AllGather({flats[c], channel});
      sums[c] = at::zeros({n});
      scatters[c] = exchange.ReduceScatter(
          Numbers(ranks * n, at::kFloat, Seed(group.rank(), channel)), sums[c], channel);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const int channel : order) {
      const auto c = static_cast<size_t>(channel);
      const int64_t n = elements(channel), start = group.rank() * n;
      scatters[c].Wait();
      gathers[c].Wait();
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(at::equal(flats[c].narrow(0, rank * n, n),
                              at::full({n}, 100 * channel + rank, at::kFloat)));
      }
      EXPECT_TRUE(at::equal(
          sums[c], Sum(ranks, ranks * n, start, start + n, at::kFloat, at::kFloat, channel)));
    }
  }));
}

TEST(ShardExchange, NamesLostRank) {
  // In the second case, the rank is already known to be lost when the exchange begins.
  for (const auto delay : {std::chrono::milliseconds(0), std::chrono::milliseconds(200)}) {
    const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
      if (group.rank() == 1) throw std::runtime_error("lost");
      std::this_thread::sleep_for(delay);
      ShardExchange(group).AllGather({at::zeros({32}), 0}).Wait();
    });
    EXPECT_EQ(TextOf(errors[0]).find("waiting for rank 1: "), 0) << TextOf(errors[0]);
  }
}

}  // namespace
}  // namespace dslaunch::shard_exchange_test
