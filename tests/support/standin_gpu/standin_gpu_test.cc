// Tests each mistake that a real GPU usually tolerates, and the correct use beside each.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/support/standin_gpu/collectives.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/settings.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::standin::standin_gpu_test {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kElements = 1000;
constexpr std::chrono::seconds kTimeout{20};

class StandinGpuTest : public ::testing::Test {
 protected:
  // The child of a death test must be started anew instead of forked, because this process has
  // threads.
  StandinGpuTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void Begin(c10::DeviceIndex device = 1) {
    at::set_num_threads(1);
    SetCurrentDevice(device);
    SetCurrentStream(PoolStream(device));
  }
  static at::TensorOptions OnDevice() {
    return at::TensorOptions(c10::Device(kDeviceType, CurrentDevice()));
  }
  static at::Tensor Ones() { return at::ones({kElements}, OnDevice()); }
  static at::Tensor Pinned() {
    return at::empty({kElements}, at::TensorOptions().pinned_memory(true));
  }
  static c10::Stream Current() { return CurrentStream(CurrentDevice()); }
  // Makes `stream` wait for the work that the current stream has so far.
  static void LetWait(const c10::Stream& stream) {
    c10::Event event(kDeviceType);
    event.record(Current());
    event.block(stream);
  }
};
using StandinGpuDeathTest = StandinGpuTest;

// Runs `rank` in one thread for each rank of a group, each on its own device.
void RunRanks(int size, const std::function<void(int rank, c10d::Backend& group)>& rank) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      SetCurrentDevice(static_cast<c10::DeviceIndex>(i));
      SetCurrentStream(PoolStream(CurrentDevice()));
      rank(i, *MakeBackend(store, i, size, kTimeout));
      SynchronizeStream(CurrentStream(CurrentDevice()), "the test", /*hidden=*/false);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- memory of the host and of the device

TEST_F(StandinGpuDeathTest, HostReadOfDeviceMemoryEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        const volatile float value = *Ones().const_data_ptr<float>();
        std::_Exit(static_cast<int>(value));
      },
      ExitedWithCode(kExitTouched), "the host touches memory of the device");
}

TEST_F(StandinGpuDeathTest, HostReadBeforePinnedCopyIsDoneEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        at::Tensor host = Pinned();
        host.copy_(Ones(), /*non_blocking=*/true);
        std::_Exit(static_cast<int>(host.sum().item<float>()));
      },
      ExitedWithCode(kExitTouched), "the host touches pinned memory");
}

TEST_F(StandinGpuTest, HostReadsPinnedMemoryAfterItsEvent) {
  Begin();
  at::Tensor host = Pinned();
  host.copy_(Ones(), /*non_blocking=*/true);
  c10::Event done(kDeviceType);
  done.record(Current());
  done.synchronize();
  EXPECT_EQ(host.sum().item<float>(), kElements);
}

TEST_F(StandinGpuDeathTest, HostWriteBeforePinnedCopyIsDoneEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        at::Tensor device = Ones();
        at::Tensor host = Pinned();
        host.fill_(2);
        device.copy_(host, /*non_blocking=*/true);
        host.fill_(7);
        std::_Exit(0);
      },
      ExitedWithCode(kExitTouched), "the host touches pinned memory");
}

TEST_F(StandinGpuTest, HostMayReadPinnedSourceDuringCopy) {
  Begin();
  at::Tensor device = Ones();
  at::Tensor host = Pinned();
  host.fill_(2);
  device.copy_(host, /*non_blocking=*/true);
  EXPECT_EQ(host.sum().item<float>(), 2 * kElements);
  EXPECT_EQ(device.sum().item<float>(), 2 * kElements);
}

TEST_F(StandinGpuTest, FreedPinnedMemoryIsKeptUntilItIsCopied) {
  Begin();
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 20; ++i) {
    at::Tensor host = Pinned();
    host.fill_(i);
    copies.push_back(at::empty({kElements}, OnDevice()).copy_(host, /*non_blocking=*/true));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(copies[static_cast<size_t>(i)].max().item<float>(), i);
    EXPECT_EQ(copies[static_cast<size_t>(i)].min().item<float>(), i);
  }
}

TEST_F(StandinGpuTest, PageableMemoryIsStaged) {
  Begin();
  at::Tensor host = at::full({kElements}, 2.0f);
  const at::Tensor device = at::empty({kElements}, OnDevice()).copy_(host, /*non_blocking=*/true);
  host.fill_(7);
  EXPECT_EQ(device.max().item<float>(), 2);
}

// ---- streams

TEST_F(StandinGpuDeathTest, OtherStreamWithoutWaitEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        const at::Tensor a = Ones();
        const c10::StreamGuard other(PoolStream(CurrentDevice()));
        const at::Tensor b = a * 2;
        std::_Exit(0);
      },
      ExitedWithCode(kExitRace), "RACE: aten::mul in stream 2 of device 1 reads what aten::fill_");
}

TEST_F(StandinGpuTest, OtherStreamReadsAfterWait) {
  Begin();
  const c10::Stream main = Current(), other = PoolStream(CurrentDevice());
  at::Tensor a = Ones(), b;
  LetWait(other);
  {
    const c10::StreamGuard guard(other);
    b = a * 2;
    LetWait(main);
  }
  a.record_stream(other);
  b.record_stream(main);
  a = b + 1;
  EXPECT_EQ(a.max().item<float>(), 3);
}

TEST_F(StandinGpuDeathTest, FreeWhileAnotherStreamReadsEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        const c10::Stream other = PoolStream(CurrentDevice());
        at::Tensor a = Ones();
        LetWait(other);
        {
          const c10::StreamGuard guard(other);
          const at::Tensor b = a * 2;
        }
        a.reset();
        std::_Exit(0);
      },
      ExitedWithCode(kExitRace),
      "RACE: memory of stream 1 .* is freed while aten::mul in stream 2");
}

TEST_F(StandinGpuTest, FreeAfterRecordStreamIsAllowed) {
  Begin();
  const c10::Stream other = PoolStream(CurrentDevice());
  at::Tensor a = Ones(), b;
  LetWait(other);
  {
    const c10::StreamGuard guard(other);
    b = a * 2;
    a.record_stream(other);
    a.reset();
    EXPECT_EQ(b.max().item<float>(), 2);
  }
}

TEST_F(StandinGpuTest, FreedMemoryIsReusedInItsStreamAtOnce) {
  Begin();
  at::Tensor a = Ones();
  const void* const place = a.const_data_ptr();
  at::Tensor b = a * 3;
  a.reset();
  a = at::zeros({kElements}, OnDevice());
  EXPECT_EQ(a.const_data_ptr(), place);
  EXPECT_EQ(b.max().item<float>(), 3);
  EXPECT_EQ(a.max().item<float>(), 0);
}

TEST_F(StandinGpuTest, EventsAreTimedAndQueried) {
  Begin();
  c10::Event first(kDeviceType, c10::EventFlag::BACKEND_DEFAULT),
      second(kDeviceType, c10::EventFlag::BACKEND_DEFAULT);
  EXPECT_TRUE(first.query());
  first.record(Current());
  const at::Tensor a = Ones();
  second.record(Current());
  second.synchronize();
  EXPECT_TRUE(first.query());
  EXPECT_GE(first.elapsedTime(second), 0);
}

// ---- operations

TEST_F(StandinGpuTest, ComputesSameValuesAsCpu) {
  Begin();
  const auto run = [](const at::TensorOptions& options) {
    const at::Tensor x = at::linspace(-1, 1, 8 * 16, at::kFloat).view({8, 16}).to(options.device());
    at::Tensor w = at::linspace(-0.5, 0.7, 16 * 16, at::kFloat).view({16, 16}).to(options.device());
    w.set_requires_grad(true);
    const at::Tensor images = x.view({2, 1, 8, 8});
    const at::Tensor filters = w.narrow(0, 0, 1).view({1, 1, 4, 4});
    const at::Tensor y = at::layer_norm(at::gelu(at::linear(x, w), "tanh"), {16}) +
                         at::conv2d(images, filters).mean();
    at::Tensor loss =
        at::cross_entropy_loss(y, at::arange(8, options.dtype(at::kLong))) + y.var() * 0.1;
    loss.backward();
    return std::vector{loss.detach().to(at::kCPU), w.grad().to(at::kCPU)};
  };
  const auto expected = run(at::kCPU), found = run(OnDevice());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], found[i])) << i;
}

TEST_F(StandinGpuTest, FusedOptimizerMatchesCpu) {
  Begin();
  const auto run = [](c10::Device device) {
    std::vector<at::Tensor> weights = {at::arange(5, at::kFloat).to(device)};
    std::vector<at::Tensor> gradients = {at::ones({5}, device)}, means = {at::zeros({5}, device)},
                            squares = {at::zeros({5}, device)}, steps = {at::zeros({}, device)};
    steps[0].add_(1);
    at::_fused_adamw_(weights, gradients, means, squares, {}, steps, 0.1, 0.9, 0.999, 0.01, 1e-8,
                      false, false);
    return weights[0].to(at::kCPU);
  };
  EXPECT_TRUE(at::equal(run(at::kCPU), run(OnDevice().device())));
}

TEST_F(StandinGpuTest, FusedOptimizerRefusesStepsOnCpu) {
  Begin();
  std::vector<at::Tensor> a = {Ones()}, b = {Ones()}, c = {Ones()}, d = {Ones()},
                          steps = {at::ones({})};
  EXPECT_THAT(
      [&] { at::_fused_adamw_(a, b, c, d, {}, steps, 0.1, 0.9, 0.999, 0, 1e-8, false, false); },
      ThrowsMessage<c10::Error>(HasSubstr("to be on the same device")));
}

TEST_F(StandinGpuTest, RefusesTensorsOfSeveralDevices) {
  Begin();
  at::Tensor a = Ones();
  const at::Tensor b = at::ones({kElements}, c10::Device(kDeviceType, 0));
  for (const at::Tensor& other : {b, at::ones({kElements})}) {
    EXPECT_THAT([&] { a.add_(other); },
                ThrowsMessage<c10::Error>(HasSubstr("to be on the same device")));
  }
}

TEST_F(StandinGpuTest, RefusesWrongShapesAtOnce) {
  Begin();
  EXPECT_THROW(Ones() + at::ones({3}, OnDevice()), c10::Error);
  EXPECT_THROW(Ones().copy_(at::ones({3})), c10::Error);
}

TEST_F(StandinGpuDeathTest, WrongIndexFailsAllLaterWaits) {
  EXPECT_EXIT(
      {
        Begin();
        const at::Tensor rows =
            at::embedding(Ones().view({500, 2}), at::full({3}, 999, OnDevice().dtype(at::kLong)));
        int errors = 0;
        for (int i = 0; i < 2; ++i) {
          try {
            at::accelerator::synchronizeDevice(CurrentDevice());
          } catch (const std::exception&) {
            ++errors;
          }
        }
        std::_Exit(errors);
      },
      ExitedWithCode(2), "a kernel in stream 1 of device 1 failed: index out of range");
}

TEST_F(StandinGpuTest, RandomNumbersFollowTheSeed) {
  Begin();
  const auto draw = [] { return at::randn({8}, OnDevice()).to(at::kCPU); };
  at::manual_seed(5);
  const at::Tensor first = draw(), second = draw();
  EXPECT_FALSE(at::equal(first, second));
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(draw(), first));
  EXPECT_TRUE(at::equal(draw(), second));
}

TEST_F(StandinGpuTest, DropoutKeepsTheMean) {
  Begin();
  const auto [kept, mask] = at::native_dropout(Ones(), 0.5, true);
  EXPECT_NEAR(kept.mean().item<float>(), 1, 0.2);
  EXPECT_TRUE(at::equal(kept.to(at::kBool), mask));
}

// ---- memory

TEST_F(StandinGpuTest, CountsPeakMemory) {
  Begin();
  const auto peak = [] {
    return at::accelerator::getDeviceStats(CurrentDevice()).allocated_bytes[0].peak;
  };
  at::accelerator::resetPeakStats(CurrentDevice());
  const int64_t before = peak();
  { const at::Tensor big = at::empty({1 << 20}, OnDevice()); }
  EXPECT_EQ(peak() - before, 4 << 20);
}

TEST_F(StandinGpuDeathTest, MemoryIsLimited) {
  EXPECT_EXIT(
      {
        setenv("STANDIN_BYTES", "1000000", 1);
        Begin();
        const at::Tensor fits = at::empty({200'000}, OnDevice());
        try {
          const at::Tensor more = at::empty({200'000}, OnDevice());
        } catch (const c10::OutOfMemoryError& error) {
          std::fprintf(stderr, "%s\n", error.what_without_backtrace());
          std::_Exit(3);
        }
      },
      ExitedWithCode(3), "out of memory. Tried to allocate 800256 bytes.*capacity of 1000000");
}

// ---- graphs

TEST_F(StandinGpuTest, GraphRunsAtEachReplay) {
  Begin();
  at::Tensor a = Ones();
  Graph graph;
  SynchronizeStream(Current(), "the test", /*hidden=*/false);
  graph.BeginRecording();
  at::Tensor b = a * 2;
  a.add_(b);
  EXPECT_THAT([&] { (void)a[0].item<float>(); },
              ThrowsMessage<c10::Error>(HasSubstr("not permitted when stream is capturing")));
  graph.EndRecording();
  EXPECT_EQ(a.max().item<float>(), 1);
  for (int i = 0; i < 3; ++i) graph.Replay(Current());
  EXPECT_EQ(a.max().item<float>(), 27);
  EXPECT_EQ(b.max().item<float>(), 18);
}

TEST_F(StandinGpuTest, ReplaysDrawTheSameNumbersAsPlainSteps) {
  Begin();
  at::Tensor drawn = at::zeros({8}, OnDevice());
  std::vector<at::Tensor> plain, replayed;
  at::manual_seed(3);
  for (int i = 0; i < 3; ++i) plain.push_back(drawn.normal_().to(at::kCPU));
  Graph graph;
  graph.BeginRecording();
  drawn.normal_();
  graph.EndRecording();
  at::manual_seed(3);
  for (int i = 0; i < 3; ++i) {
    graph.Replay(Current());
    replayed.push_back(drawn.to(at::kCPU));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(plain[i], replayed[i])) << i;
}

TEST_F(StandinGpuDeathTest, ReplayInStreamWithoutWaitEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        at::Tensor a = Ones();
        Graph graph;
        SynchronizeStream(Current(), "the test", /*hidden=*/false);
        graph.BeginRecording();
        a.add_(1);
        graph.EndRecording();
        a.mul_(2);
        graph.Replay(PoolStream(CurrentDevice()));
        std::_Exit(0);
      },
      ExitedWithCode(kExitRace), "RACE: a graph in stream 2 of device 1");
}

// ---- collectives

TEST_F(StandinGpuTest, CollectivesAndMessagesGiveTheirResults) {
  RunRanks(2, [](int rank, c10d::Backend& group) {
    std::vector<at::Tensor> sum = {at::full({4}, rank + 1.0f, OnDevice())};
    group.allreduce(sum, {})->wait();
    EXPECT_EQ(sum[0].max().item<float>(), 3);
    at::Tensor all = at::empty({8}, OnDevice()), part = all.narrow(0, 4 * rank, 4).fill_(rank);
    group._allgather_base(all, part, {})->wait();
    EXPECT_EQ(all.sum().item<float>(), 4);
    c10d::ReduceScatterOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    group._reduce_scatter_base(part, all, average)->wait();
    EXPECT_EQ(part.min().item<float>(), rank);
    std::vector<at::Tensor> message = {at::full({3}, rank * 5.0f, OnDevice())};
    (rank == 1 ? group.send(message, 0, 0) : group.recv(message, 1, 0))->wait();
    EXPECT_EQ(message[0].max().item<float>(), 5);
    // Both ranks send first, which deadlocks unless the messages are grouped.
    std::vector<at::Tensor> out = {at::full({2}, rank + 1.0f, OnDevice())},
                            in = {at::zeros({2}, OnDevice())};
    group.startCoalescing();
    group.send(out, 1 - rank, 0);
    group.recv(in, 1 - rank, 0);
    group.endCoalescing()->wait();
    EXPECT_EQ(in[0].max().item<float>(), 2 - rank);
    group.barrier({});
  });
}

TEST_F(StandinGpuDeathTest, ReadOfCollectiveResultWithoutWaitEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        const auto group = MakeBackend(c10::make_intrusive<c10d::HashStore>(), 0, 1, kTimeout);
        std::vector<at::Tensor> tensors = {Ones()};
        const auto work = group->allreduce(tensors, {});
        const at::Tensor b = tensors[0] + 1;
        std::_Exit(0);
      },
      ExitedWithCode(kExitRace), "RACE: aten::add .* reads what standin:all_reduce");
}

TEST_F(StandinGpuTest, KeepsTensorsOfCollectiveThatIsNotWaitedFor) {
  RunRanks(2, [](int rank, c10d::Backend& group) {
    {
      std::vector<at::Tensor> tensors = {Ones()};
      group.allreduce(tensors, {});
    }
    std::vector<at::Tensor> sum = {at::full({kElements}, rank + 1.0f, OnDevice())};
    group.allreduce(sum, {})->wait();
    EXPECT_EQ(sum[0].min().item<float>(), 3);
  });
}

TEST_F(StandinGpuDeathTest, WriteToCollectiveInputWithoutWaitEndsProcess) {
  EXPECT_EXIT(
      {
        Begin();
        const auto group = MakeBackend(c10::make_intrusive<c10d::HashStore>(), 0, 1, kTimeout);
        at::Tensor part = Ones();
        at::Tensor all = Ones();
        const auto work = group->_allgather_base(all, part, {});
        part.zero_();
        std::_Exit(0);
      },
      ExitedWithCode(kExitRace),
      "RACE: aten::(zero_|fill_) .* writes what standin:_all_gather_base");
}

TEST_F(StandinGpuDeathTest, DifferentCollectivesOfRanksEndProcess) {
  EXPECT_EXIT(RunRanks(2,
                       [](int rank, c10d::Backend& group) {
                         std::vector<at::Tensor> tensors = {at::ones({rank + 1}, OnDevice())};
                         group.allreduce(tensors, {})->wait();
                       }),
              ExitedWithCode(kExitCollective),
              "MISMATCH: rank 0 runs standin:all_reduce of 4 bytes .Float., and rank 1 runs "
              "standin:all_reduce of 8 bytes|"
              "MISMATCH: rank 1 runs standin:all_reduce of 8 bytes .Float., and rank 0 runs "
              "standin:all_reduce of 4 bytes");
}

TEST_F(StandinGpuDeathTest, TwoSendsWithoutReceiveEndProcess) {
  EXPECT_EXIT(RunRanks(2,
                       [](int rank, c10d::Backend& group) {
                         std::vector<at::Tensor> tensors = {at::ones({2}, OnDevice())};
                         group.send(tensors, 1 - rank, 0)->wait();
                       }),
              ExitedWithCode(kExitCollective),
              "MISMATCH: rank . runs send of 8 bytes .Float., and rank . runs send of 8 bytes");
}

TEST_F(StandinGpuDeathTest, LostPeerEndsProcess) {
  EXPECT_EXIT(RunRanks(2,
                       [](int rank, c10d::Backend& group) {
                         group.barrier({});
                         if (rank == 1) return;
                         std::vector<at::Tensor> tensors = {Ones()};
                         group.allreduce(tensors, {})->wait();
                       }),
              ExitedWithCode(kExitCollective), "standin:all_reduce failed: ");
}

TEST_F(StandinGpuTest, RefusesTensorsThatNcclRefuses) {
  Begin();
  const auto group = MakeBackend(c10::make_intrusive<c10d::HashStore>(), 0, 1, kTimeout);
  const at::Tensor square = at::ones({4, 4}, OnDevice());
  for (const at::Tensor& wrong : {at::ones({4}), square.narrow(1, 0, 2)}) {
    std::vector<at::Tensor> tensors = {wrong};
    EXPECT_THROW(group->allreduce(tensors, {}), c10::Error);
  }
}

// ---- counts

TEST_F(StandinGpuDeathTest, RefusesHiddenWait) {
  EXPECT_EXIT(
      {
        setenv("STANDIN_STEP_OPERATION", "aten::exp", 1);
        setenv("STANDIN_NO_SYNC", "1-1", 1);
        Begin();
        const at::Tensor a = Ones();
        (void)a.max().item<float>();  // allowed, because it comes before the first step
        const at::Tensor b = a.exp();
        try {
          (void)b.max().item<float>();
        } catch (const c10::Error& error) {
          std::fprintf(stderr, "%s\n", error.what_without_backtrace());
          std::_Exit(3);
        }
      },
      ExitedWithCode(3), "aten::_local_scalar_dense waits for the device in step 1");
}

TEST_F(StandinGpuDeathTest, WritesOperationCountsAfterEachStep) {
  EXPECT_EXIT(
      {
        const auto folder = std::make_unique<TempDir>();
        setenv("STANDIN_STEP_OPERATION", "aten::exp", 1);
        setenv("STANDIN_COUNTS", (*folder / "counts").c_str(), 1);
        setenv("RANK", "1", 1);
        Begin();
        at::Tensor a = Ones();
        a = a.exp().log();
        (void)a.to(at::kCPU);
        a = a.exp();
        std::ifstream file(*folder / "counts.1");
        std::fputs(std::string(std::istreambuf_iterator(file), {}).c_str(), stderr);
        std::filesystem::remove_all(folder->path());
        std::_Exit(0);
      },
      ExitedWithCode(0),
      R"re("copies":\{"to the host":\[1,4000\]\},"launches":3,"step":1,"waits":\{"copy_ to the host":1\})re");
}

}  // namespace
}  // namespace dslaunch::standin::standin_gpu_test
