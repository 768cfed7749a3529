// Tests the backend over connections that an agent provides. The ranks are threads.
#include "trainer/comm/links/link_backend.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "base/os/pass_fd.h"
#include "base/os/socket_pair.h"
#include "tests/support/fake_rank_agent.h"
#include "tests/support/random_seed.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/backend/combine.h"
#include "trainer/comm/explain.h"
#include "trainer/comm/links/link_store.h"

namespace dslaunch::link_backend_test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{20};

struct Rank {
  int rank = 0;
  int ranks = 0;
  std::shared_ptr<RankConnections> connections;
  c10::intrusive_ptr<c10d::Store> store;

  c10::intrusive_ptr<c10d::Backend> Backend(const std::string& label,
                                            std::chrono::milliseconds timeout = kTimeout) const {
    std::vector<size_t> all;
    for (int other = 0; other < ranks; ++other) all.push_back(static_cast<size_t>(other));
    return MakeLinkBackend(connections, label, store, rank, all, timeout);
  }
  // Blocks until all ranks have called Meet with this key.
  void Meet(const std::string& key) const {
    store->add(key, 1);
    store->set(key + "/" + std::to_string(rank), "here");
    for (int other = 0; other < ranks; ++other) store->get(key + "/" + std::to_string(other));
  }
};

// Runs `body` in one thread per rank. `nodes`: the node of each rank, by rank; if empty, all ranks
// are on one node.
void InRanks(int ranks, const std::function<void(const Rank&)>& body,
             const std::vector<uint32_t>& nodes = {}) {
  FakeRankAgent agent(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  std::vector<std::string> failures(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank own{rank, ranks, nullptr, nullptr};
        own.connections = RankConnections::Open(agent.Take(static_cast<size_t>(rank)), rank, 1, "",
                                                Deadline::After(kTimeout));
        own.store = ConnectStore(own.connections, "store", kTimeout);
        RankPlace place = own.connections->place();
        if (!nodes.empty()) place.node = nodes[static_cast<size_t>(rank)];
        own.store->set(PlaceKey(static_cast<size_t>(rank)), place.ToText());
        own.Meet("begin");
        body(own);
        own.Meet("end");
        // Rank 0 hosts the store, so it must end last.
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < failures.size(); ++rank)
    EXPECT_EQ(failures[rank], "") << "rank " << rank;
}

void Expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

// Returns random values, which depend only on the arguments and are the same on every rank.
at::Tensor Values(uint64_t seed, int rank, int64_t elements, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(seed * 1000 + static_cast<uint64_t>(rank));
  return (at::rand({elements}, generator, at::kFloat) - 0.5).to(dtype);
}

at::Tensor Sum(const std::vector<at::Tensor>& all) {
  at::Tensor sum = at::empty_like(all[0]);
  if (sum.numel() > 0) Combine(all, c10d::ReduceOp::SUM, sum);
  return sum;
}

// The parameter is the node of each rank.
class LinkBackendTest : public ::testing::TestWithParam<std::vector<uint32_t>> {
 protected:
  static void InRanksOfTheParam(const std::function<void(const Rank&)>& body) {
    InRanks(static_cast<int>(GetParam().size()), body, GetParam());
  }
};
using Nodes = std::vector<uint32_t>;
INSTANTIATE_TEST_SUITE_P(OneHost, LinkBackendTest,
                         ::testing::Values(Nodes{0, 0}, Nodes{0, 0, 0}, Nodes(5, 0)));
INSTANTIATE_TEST_SUITE_P(Hosts, LinkBackendTest,
                         ::testing::Values(Nodes{0, 1, 2}, Nodes{0, 0, 1, 1}, Nodes{0, 0, 0, 1, 1},
                                           Nodes{0, 1, 1, 1}, Nodes{4, 4, 2, 2, 3},
                                           Nodes{0, 0, 1, 1, 2, 2, 3, 3}));
// Consecutive ranks are on different nodes.
INSTANTIATE_TEST_SUITE_P(Mixed, LinkBackendTest, ::testing::Values(Nodes{0, 1, 0, 1}));

TEST_P(LinkBackendTest, ReductionsAreBitEqualOnAllRanks) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("DSLAUNCH_TEST_SEED=" + std::to_string(seed));
  const auto ranks = static_cast<int64_t>(GetParam().size());
  struct Reduction {
    int64_t part_size;
    std::vector<at::Tensor> values;  // values of each rank
    at::Tensor sum;
  };
  std::vector<Reduction> reductions;
  // The largest tensor has more chunks than can be in transfer at a time.
  for (const int64_t size : {0, 1, 4'097, 70'000, GetParam().back() == 0 ? 4'500'001 : 3'000'001}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Reduction& reduction = reductions.emplace_back();
      reduction.part_size = (size + ranks - 1) / ranks;
      for (int rank = 0; rank < ranks; ++rank)
        reduction.values.push_back(Values(seed, rank, reduction.part_size * ranks, dtype));
      reduction.sum = Sum(reduction.values);
    }
  }
  InRanksOfTheParam([&](const Rank& own) {
    const auto backend = own.Backend("group");
    for (const auto& [part_size, values, sum] : reductions) {
      const at::Tensor& own_values = values[static_cast<size_t>(own.rank)];
      std::vector<at::Tensor> tensors = {own_values.clone()};
      backend->allreduce(tensors, c10d::AllreduceOptions())->wait();
      Expect(at::equal(tensors[0], sum), "all-reduce");

      at::Tensor parts = own_values.clone(), part = at::empty({part_size}, sum.scalar_type());
      backend->_reduce_scatter_base(part, parts, c10d::ReduceScatterOptions())->wait();
      Expect(at::equal(part, sum.narrow(0, own.rank * part_size, part_size)), "reduce-scatter");
      Expect(at::equal(parts, own_values), "what was reduced is as it was");
    }
  });
}

TEST_P(LinkBackendTest, BroadcastsGathersAndExchangesTensors) {
  InRanksOfTheParam([&](const Rank& own) {
    const auto backend = own.Backend("group");
    for (const int64_t size : {0, 1, 3, 5'000, 300'003}) {
      for (int root = 0; root < own.ranks; ++root) {
        std::vector<at::Tensor> tensors = {Values(1, own.rank, size, at::kFloat)};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        backend->broadcast(tensors, options)->wait();
        Expect(at::equal(tensors[0], Values(1, root, size, at::kFloat)), "broadcast");
      }
      at::Tensor input = Values(2, own.rank, size, at::kFloat);
      at::Tensor all = at::empty({own.ranks * size});
      backend->_allgather_base(all, input, c10d::AllgatherOptions())->wait();
      at::Tensor sent = Values(3, own.rank, size * own.ranks, at::kFloat);
      at::Tensor received = at::empty_like(sent);
      std::vector<int64_t> equal;
      backend->alltoall_base(received, sent, equal, equal, c10d::AllToAllOptions())->wait();
      for (int rank = 0; rank < own.ranks; ++rank) {
        Expect(at::equal(all.narrow(0, rank * size, size), Values(2, rank, size, at::kFloat)),
               "all-gather");
        Expect(at::equal(
                   received.narrow(0, rank * size, size),
                   Values(3, rank, size * own.ranks, at::kFloat).narrow(0, own.rank * size, size)),
               "all-to-all");
      }
    }
  });
}

TEST_P(LinkBackendTest, BarrierWaitsForAllRanks) {
  std::atomic<int> came = 0;
  InRanksOfTheParam([&](const Rank& own) {
    const auto backend = own.Backend("group");
    for (int round = 1; round <= 3; ++round) {
      ++came;
      backend->barrier(c10d::BarrierOptions())->wait();
      Expect(came >= round * own.ranks, "all came before one passed");
      backend->barrier(c10d::BarrierOptions())->wait();
    }
  });
}

TEST(LinkBackendTest, MatchesMessagesByTagAndOrder) {
  InRanks(2, [](const Rank& own) {
    const auto backend = own.Backend("group");
    const auto message = [](int tag, int number) {
      return std::vector<at::Tensor>{at::full({200'000}, 10.0 * tag + number)};
    };
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    if (own.rank == 0) {
      for (const int number : {0, 1}) {
        for (const int tag : {1, 2}) {
          auto tensors = message(tag, number);
          works.push_back(backend->send(tensors, 1, tag));
        }
      }
      for (const auto& work : works) work->wait();
      return;
    }
    for (const int tag : {2, 1}) {
      for (const int number : {0, 1}) {
        std::vector<at::Tensor> got = {at::zeros({200'000})};
        backend->recv(got, 0, tag)->wait();
        Expect(at::equal(got[0], message(tag, number)[0]), "the message of this tag and place");
      }
    }
  });
}

TEST_P(LinkBackendTest, MatchesGathersByTag) {
  InRanksOfTheParam([](const Rank& own) {
    const auto backend = own.Backend("group");
    constexpr uint64_t kTags = 3;
    const int64_t size = 50'000, ranks = own.ranks;
    const auto expected = [&](uint64_t tag) {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < own.ranks; ++rank)
        parts.push_back(Values(tag, rank, size, at::kFloat));
      return at::cat(parts);
    };
    // Two gathers of each tag, begun in a different order on each rank, with a collective between
    // them.
    std::vector<std::pair<uint64_t, at::Tensor>> gathered;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<at::Tensor> sum = {at::ones({20'000})};
    for (uint64_t i = 0; i < 2 * kTags; ++i) {
      const uint64_t tag = (i + static_cast<uint64_t>(own.rank)) % kTags;
      const at::Tensor flat = at::zeros({ranks * size});
      flat.narrow(0, own.rank * size, size).copy_(Values(tag, own.rank, size, at::kFloat));
      gathered.emplace_back(tag, flat);
      works.push_back(GatherByHost(*backend, flat, tag));
      if (i == 1 + static_cast<uint64_t>(own.rank) % 3)
        works.push_back(backend->allreduce(sum, {}));
    }
    for (const auto& work : works) work->wait();
    for (const auto& [tag, flat] : gathered)
      Expect(at::equal(flat, expected(tag)), "the parts of tag " + std::to_string(tag));
    Expect(sum[0].eq(static_cast<double>(ranks)).all().item<bool>(), "the sum");
  });
}

TEST(LinkBackendTest, KeepsGroupsApart) {
  InRanks(2, [](const Rank& own) {
    const auto first = own.Backend("first"), second = own.Backend("second");
    std::vector<at::Tensor> a = {at::full({10}, 1.0)}, b = {at::full({10}, 2.0)};
    // The ranks begin the two sums in opposite orders, so each sum must use the messages of its own
    // group.
    auto one = own.rank == 0 ? first->allreduce(a, {}) : second->allreduce(b, {});
    auto two = own.rank == 0 ? second->allreduce(b, {}) : first->allreduce(a, {});
    one->wait();
    two->wait();
    Expect(a[0][0].item<double>() == 2.0 && b[0][0].item<double>() == 4.0, "each has its own sum");
  });
}

TEST(LinkBackendTest, ReducesMinMaxProductOverHosts) {
  InRanks(5,
          [](const Rank& own) {
            const auto backend = own.Backend("group");
            using Op = c10d::ReduceOp::RedOpType;
            for (const Op op : {Op::MIN, Op::MAX, Op::PRODUCT}) {
              for (const at::ScalarType dtype : {at::kHalf, at::kLong}) {
                std::vector<at::Tensor> all;
                for (int rank = 0; rank < own.ranks; ++rank)
                  all.push_back((Values(4, rank, 50'000, at::kFloat) * 9).to(dtype));
                at::Tensor expected = at::empty_like(all[0]);
                Combine(all, op, expected);
                std::vector<at::Tensor> tensors = {all[static_cast<size_t>(own.rank)].clone()};
                backend->allreduce(tensors, {.reduceOp = op})->wait();
                Expect(at::equal(tensors[0], expected), "all-reduce");
              }
            }
          },
          {0, 0, 1, 1, 1});
}

template <class Call>
std::string FailureOf(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(LinkBackendTest, GatherFailsWhenRankLeaves) {
  InRanks(4,
          [](const Rank& own) {
            auto backend = own.Backend("group");
            const auto gather = [&] {
              GatherByHost(*backend, at::zeros({4 * 1000}), 1)->wait();
              return std::string();
            };
            gather();
            own.Meet("gathered");
            if (own.rank == 3) return backend.reset();
            // Rank 3 sends nothing to ranks 1 and 2. They fail and leave too, and then rank 0
            // fails.
            EXPECT_THAT(FailureOf(gather), HasSubstr(" has ended")) << own.rank;
          },
          {0, 0, 1, 1});
}

TEST(LinkBackendTest, NamesRankThatLeftInLaterCollectives) {
  InRanks(3, [](const Rank& own) {
    {
      const auto backend = own.Backend("group");
      backend->barrier(c10d::BarrierOptions())->wait();
      std::vector<at::Tensor> tensors = {at::ones({1'000'000})};
      backend->allreduce(tensors, c10d::AllreduceOptions())->wait();
      own.Meet("joined");
      if (own.rank != 1) {
        for (int i = 0; i < 2; ++i) {
          const std::string what =
              FailureOf([&] { backend->allreduce(tensors, c10d::AllreduceOptions())->wait(); });
          Expect(what.find("rank 1 has ended") != std::string::npos || own.rank == 2 ||
                     what.find("rank 2 has ended") != std::string::npos,
                 what);
          Expect(ClassifyCommFailure(what) == CommFailure::kPeerLost, what);
        }
      }
    }
    own.Meet("left");
  });
}

TEST(LinkBackendTest, NamesLateRank) {
  InRanks(2, [](const Rank& own) {
    const auto backend = own.Backend("group", std::chrono::milliseconds(300));
    std::vector<at::Tensor> tensors = {at::ones({4})};
    if (own.rank == 0) {
      const std::string what = FailureOf([&] { backend->recv(tensors, 1, 0)->wait(); });
      Expect(what.find("timed out waiting for rank 1") != std::string::npos, what);
      Expect(ClassifyCommFailure(what) == CommFailure::kTimedOut, what);
    }
    own.Meet("late");
  });
}

TEST(LinkBackendTest, ReportsDifferentSizes) {
  InRanks(2, [](const Rank& own) {
    const auto backend = own.Backend("group");
    std::vector<at::Tensor> tensors = {at::ones({4 + own.rank})};
    const std::string what = FailureOf([&] {
      (own.rank == 0 ? backend->send(tensors, 1, 0) : backend->recv(tensors, 0, 0))->wait();
    });
    Expect(what.find(own.rank == 0 ? "it expects 20 bytes where this rank has 16" : "rank 0") !=
               std::string::npos,
           what);
    own.Meet("said");
  });
}

TEST(LinkStoreTest, RejectsReplyWithoutValues) {
  Result<SocketPair> pair = MakeSocketPair();
  ASSERT_TRUE(pair.ok());
  LinkStore store(std::make_shared<StoreClient>(std::move(pair->ours)), std::chrono::seconds(10));
  std::thread rank_0([&] {
    std::string buffer(256, '\0');
    buffer.resize(static_cast<size_t>(
        std::max<ssize_t>(0, ::recv(pair->theirs.get(), buffer.data(), buffer.size(), 0))));
    const std::optional<std::string> message = TakeStoreMessage(buffer);
    const std::optional<StoreRequest> request = message ? DecodeRequest(*message) : std::nullopt;
    SendWithFd(pair->theirs.get(), EncodeReply({request ? request->id : 0, 0, {}}), -1);
  });
  const std::string what = FailureOf([&] { store.get("place/1"); });
  rank_0.join();
  EXPECT_NE(what.find("rank 0 answered with 0 values to place/1"), std::string::npos) << what;
}

TEST(LinkStoreTest, SharesValuesBetweenRanks) {
  InRanks(3, [](const Rank& own) {
    auto& store = *own.store;
    store.set("from/" + std::to_string(own.rank), "value");
    Expect(store.get_to_str("from/2") == "value", "get waits for the value");
    store.add("count", own.rank + 1);
    own.Meet("counted");
    Expect(store.add("count", 0) == 6, "sum");
    Expect(!store.check({"count", "none"}), "check");
    const auto clone = store.clone();
    Expect(clone->multiGet({"from/0", "from/1"}).size() == 2, "multiGet");
    const std::string what =
        FailureOf([&] { store.wait({"none"}, std::chrono::milliseconds(50)); });
    Expect(ClassifyCommFailure(what) == CommFailure::kTimedOut, what);
    Expect(what.find("none") != std::string::npos, what);
    // A waiting request does not block others.
    std::thread waits([&] { clone->wait({"late/" + std::to_string(own.rank)}); });
    store.set("late/" + std::to_string(own.rank), "x");
    waits.join();
  });
}

}  // namespace
}  // namespace dslaunch::link_backend_test
