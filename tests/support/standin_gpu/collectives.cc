#include "tests/support/standin_gpu/collectives.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "tests/support/standin_gpu/counts.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/settings.h"
#include "tests/support/standin_gpu/tensors.h"

namespace dslaunch::standin {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using SteadyClock = std::chrono::steady_clock;

constexpr int kCollectives = -1;  // stream of collectives, in place of a peer
constexpr std::chrono::seconds kHeedPatience{10};
enum Tag : int { kDescription = 1, kData, kGroupedDescription, kGroupedData };

Tensors KernelAliases(const Tensors& tensors) {
  Tensors aliases;
  for (const at::Tensor& tensor : tensors) aliases.push_back(KernelAlias(tensor));
  return aliases;
}

// Describes a rank's operation, for comparison with the peers' operations.
struct Description {
  std::array<char, 128> text{};

  static Description Of(const std::string& name, const at::Tensor& tensor) {
    Description description;
    std::snprintf(description.text.data(), description.text.size(), "%s of %zu bytes (%s)",
                  name.c_str(), tensor.nbytes(), c10::toString(tensor.scalar_type()));
    return description;
  }
  bool operator==(const Description&) const = default;
  at::Tensor Bytes() {
    return at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
  }
};

struct Mismatch : std::runtime_error {
  Mismatch(int rank, const Description& own, int peer, const Description& other)
      : std::runtime_error("MISMATCH: rank " + std::to_string(rank) + " runs " + own.text.data() +
                           ", and rank " + std::to_string(peer) + " runs " + other.text.data()) {}
};

// Holds the tensors of a collective whose Work the program has dropped, until the collective is
// done, as NCCL's watchdog does.
struct Abandoned {
  std::shared_ptr<EventMark> until;
  Tensors tensors;
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

// Returns the process's abandoned collectives. Precondition: DeviceMutex is held.
std::vector<Abandoned>& TheAbandoned() {
  static auto* const abandoned = new std::vector<Abandoned>;
  return *abandoned;
}

void FreeAbandoned() {
  const std::lock_guard lock(DeviceMutex());
  std::erase_if(TheAbandoned(), [](const Abandoned& item) { return QueryEvent(*item.until); });
}

// An enqueued collective. It counts as done when its stream is, whatever the state of the peers.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(int rank, OpType type, const char* title, const Tensors& held, const Tensors& results,
             c10::Stream stream)
      : c10d::Work(rank, type, title, held),
        held_(held),
        end_(MarkStream(stream)),
        stream_(stream) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{stream.device()});
    const c10::StreamGuard guard(stream);
    future_->markCompleted(c10::IValue(results));
  }
  ~StreamWork() override {
    if (held_.empty()) return;
    const std::lock_guard lock(DeviceMutex());
    TheAbandoned().push_back({end_, std::move(held_), std::move(future_)});
  }
  bool isCompleted() override { return QueryEvent(*end_); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    if (TheSettings().ignored != "wait") {
      LetStreamWait(CurrentStream(stream_.device_index()), end_);
    }
    held_.clear();  // kept until here, as NCCL's backend keeps its tensors until wait()
  }
  void abort() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors held_;
  std::shared_ptr<EventMark> end_;
  c10::Stream stream_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// An operation to be enqueued.
struct Operation {
  OpType type;
  const char* title;
  Tensors inputs, outputs;
  Tensors results;          // results of the Work's future
  Tensors described;        // one tensor, whose size and dtype are compared with the peers'
  int peer = kCollectives;  // the peer of a message
  std::function<WorkPtr(c10d::Backend&)> run;
};

class StandinBackend final : public c10d::Backend {
 public:
  StandinBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                 std::chrono::milliseconds timeout)
      : c10d::Backend(rank, size), store_(std::move(store)), timeout_(timeout) {}

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }
  void shutdown() override {}
  c10d::ErrorType getError() override { return error_; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const bool average = options.reduceOp == c10d::ReduceOp::AVG;
    c10d::AllreduceOptions inner_options = options;
    if (average) inner_options.reduceOp = c10d::ReduceOp::SUM;
    return Begin({OpType::ALLREDUCE, "standin:all_reduce", tensors, tensors, tensors, tensors,
                  kCollectives,
                  [to = KernelAliases(tensors), inner_options, average,
                   size = getSize()](c10d::Backend& inner) mutable {
                    WorkPtr work = inner.allreduce(to, inner_options);
                    if (!average) return work;
                    work->wait();
                    to[0].div_(size);
                    return WorkPtr();
                  }});
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return Begin({OpType::BROADCAST, "standin:broadcast", tensors, tensors, tensors, tensors,
                  kCollectives,
                  [to = KernelAliases(tensors), options](c10d::Backend& inner) mutable {
                    return inner.broadcast(to, options);
                  }});
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    std::vector<Tensors> to;
    for (const Tensors& tensors : outputs) to.push_back(KernelAliases(tensors));
    return Begin({OpType::ALLGATHER, "standin:all_gather", inputs, outputs.at(0), outputs.at(0),
                  inputs, kCollectives,
                  [to, from = KernelAliases(inputs), options](c10d::Backend& inner) mutable {
                    return inner.allgather(to, from, options);
                  }});
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return Begin(
        {OpType::_ALLGATHER_BASE,
         "standin:_all_gather_base",
         {input},
         {output},
         {output},
         {input},
         kCollectives,
         [to = KernelAlias(output), from = KernelAlias(input),
          options](c10d::Backend& inner) mutable {
           from = from.clone();  // because `from` may be the part of `output` that it is copied to
           return inner._allgather_base(to, from, options);
         }});
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    const bool average = options.reduceOp == c10d::ReduceOp::AVG;
    c10d::ReduceScatterOptions inner_options = options;
    if (average) inner_options.reduceOp = c10d::ReduceOp::SUM;
    return Begin({OpType::_REDUCE_SCATTER_BASE,
                  "standin:_reduce_scatter_base",
                  {input},
                  {output},
                  {output},
                  {input},
                  kCollectives,
                  [to = KernelAlias(output).view(-1), from = KernelAlias(input), inner_options,
                   average, size = getSize()](c10d::Backend& inner) mutable {
                    // `input` is copied because `output` may be a part of it. It is flattened
                    // because Gloo compares shapes, while NCCL compares numbers of elements.
                    from = from.flatten().clone();
                    WorkPtr work = inner._reduce_scatter_base(to, from, inner_options);
                    if (!average) return work;
                    work->wait();
                    to.div_(size);
                    return WorkPtr();
                  }});
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override {
    // If sizes are given, ranks may contribute different amounts, so an empty tensor is compared.
    const Tensors described = {input_sizes.empty() ? input : input.new_empty({0})};
    return Begin({OpType::ALLTOALL_BASE,
                  "standin:all_to_all",
                  {input},
                  {output},
                  {output},
                  described,
                  kCollectives,
                  [to = KernelAlias(output), from = KernelAlias(input), output_sizes, input_sizes,
                   options](c10d::Backend& inner) mutable {
                    return inner.alltoall_base(to, from, output_sizes, input_sizes, options);
                  }});
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const c10::Device device(kDeviceType, CurrentDevice());
    const at::Tensor one = at::zeros({1}, at::TensorOptions(device));
    WorkPtr work = Begin({OpType::BARRIER,
                          "standin:barrier",
                          {one},
                          {one},
                          {one},
                          {one},
                          kCollectives,
                          [options](c10d::Backend& inner) { return inner.barrier(options); }});
    work->wait();
    SynchronizeStream(CurrentStream(device.index()), "a barrier", /*hidden=*/false);
    return work;
  }

  WorkPtr send(Tensors& tensors, int to, int) override {
    CheckMessage(tensors, to);
    return Begin({OpType::SEND,
                  "standin:send",
                  tensors,
                  {},
                  tensors,
                  tensors,
                  to,
                  [from = KernelAliases(tensors), to](c10d::Backend& inner) mutable {
                    return inner.send(from, to, kData);
                  }});
  }

  WorkPtr recv(Tensors& tensors, int from, int) override {
    CheckMessage(tensors, from);
    return Begin({OpType::RECV,
                  "standin:recv",
                  {},
                  tensors,
                  tensors,
                  tensors,
                  from,
                  [to = KernelAliases(tensors), from](c10d::Backend& inner) mutable {
                    return inner.recv(to, from, kData);
                  }});
  }

  void startCoalescing() override { coalescing_.emplace(); }
  WorkPtr endCoalescing() override {
    std::vector<Operation> group = std::move(coalescing_).value();
    coalescing_.reset();
    if (group.empty()) return {};
    Operation whole{OpType::COALESCED, "standin:coalesced", {}, {}, {}, {}, kCollectives, {}};
    for (Operation& operation : group) {
      Append(operation.inputs, &whole.inputs);
      Append(operation.outputs, &whole.outputs);
      Append(operation.results, &whole.results);
      operation.described = KernelAliases(operation.described);
      operation.inputs = operation.outputs = operation.results = {};
    }
    whole.run = [this, group = std::move(group)](c10d::Backend& inner) {
      RunGroup(inner, group);
      return WorkPtr();
    };
    return Begin(std::move(whole));
  }

 private:
  static void Append(const Tensors& from, Tensors* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  void CheckMessage(const Tensors& tensors, int peer) const {
    TORCH_CHECK(tensors.size() == 1 && peer != getRank() && peer >= 0 && peer < getSize(),
                "one tensor goes to one other rank");
  }

  // All functions from here to Begin run in the threads of streams.

  c10d::Backend& Inner() {
    const std::lock_guard lock(mutex_);
    if (!inner_) {
      auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
      options->threads = 4;
      // Each group has its own store client, because the thread of another stream may be waiting in
      // the same store for another group.
      inner_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_->clone(), getRank(), getSize(),
                                                           options);
    }
    return *inner_;
  }

  // Exchanges the descriptions of the operation that each rank runs. The exchange is always the
  // same operation, so it also works when the described operations differ.
  void CompareAll(c10d::Backend& inner, Description own) const {
    std::vector<Description> all(static_cast<size_t>(getSize()));
    std::vector<Tensors> outputs(1);
    for (Description& description : all) outputs[0].push_back(description.Bytes());
    Tensors inputs = {own.Bytes()};
    inner.allgather(outputs, inputs, {})->wait();
    for (int peer = 0; peer < getSize(); ++peer) {
      const Description& other = all[static_cast<size_t>(peer)];
      if (!(other == own)) throw Mismatch(getRank(), own, peer, other);
    }
  }

  // Checks that the n-th message of one rank matches the n-th of the other: one rank sends, the
  // other receives, and the sizes agree.
  void ComparePair(c10d::Backend& inner, const Operation& operation) const {
    const bool sends = operation.type == OpType::SEND;
    Description own = Description::Of(sends ? "send" : "recv", operation.described.at(0));
    const Description expected = Description::Of(sends ? "recv" : "send", operation.described[0]);
    Description other;
    Tensors sent = {own.Bytes()}, received = {other.Bytes()};
    const WorkPtr sending = inner.send(sent, operation.peer, kDescription);
    inner.recv(received, operation.peer, kDescription)->wait();
    sending->wait();
    if (!(other == expected)) throw Mismatch(getRank(), own, operation.peer, other);
  }

  // Runs all operations of `group` at the same time. Messages between two ranks are matched in the
  // order of the group.
  void RunGroup(c10d::Backend& inner, std::vector<Operation> group) const {
    std::vector<Description> descriptions(group.size());
    std::vector<WorkPtr> works;
    for (size_t i = 0; i < group.size(); ++i) {
      Operation& operation = group[i];
      const bool sends = operation.type == OpType::SEND;
      if (sends) descriptions[i] = Description::Of("send", operation.described.at(0));
      Tensors bytes = {descriptions[i].Bytes()};
      for (auto [tensors, tag] : {std::pair(&bytes, kGroupedDescription),
                                  std::pair(&operation.described, kGroupedData)}) {
        works.push_back(sends ? inner.send(*tensors, operation.peer, tag)
                              : inner.recv(*tensors, operation.peer, tag));
      }
    }
    for (const WorkPtr& work : works) work->wait();
    for (size_t i = 0; i < group.size(); ++i) {
      const Description expected = Description::Of("send", group[i].described.at(0));
      if (!(descriptions[i] == expected)) {
        throw Mismatch(getRank(), expected, group[i].peer, descriptions[i]);
      }
    }
  }

  void Perform(const Operation& operation, const Description& description) {
    const SteadyClock::time_point begun = SteadyClock::now();
    try {
      c10d::Backend& inner = Inner();
      if (operation.type == OpType::SEND || operation.type == OpType::RECV) {
        ComparePair(inner, operation);
      } else if (operation.type != OpType::COALESCED) {
        CompareAll(inner, description);
      }
      if (const WorkPtr work = operation.run(inner)) work->wait();
    } catch (const Mismatch& mismatch) {
      if (TheSettings().peers_hang) Fail(c10d::ErrorType::TIMEOUT, begun, mismatch.what());
      std::fprintf(stderr, "standin: %s\n", mismatch.what());
      std::_Exit(kExitCollective);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      const bool late = TheSettings().peers_hang || what.find("Timed out") != std::string::npos;
      Fail(late ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR, begun,
           std::string(operation.title) + " failed: " + what);
    }
  }

  // Stops the stream. Ends the process, as NCCL's watchdog does, if the program does not react to
  // getError() within kHeedPatience.
  [[noreturn]] void Fail(c10d::ErrorType error, SteadyClock::time_point begun,
                         const std::string& what) {
    // Over NVLink, only the timeout detects a lost peer, so the simulation waits for the timeout.
    if (TheSettings().peers_hang) std::this_thread::sleep_until(begun + timeout_);
    error_ = error;
    std::this_thread::sleep_for(kHeedPatience);
    std::fprintf(stderr, "standin: %s\n", what.c_str());
    std::_Exit(kExitCollective);
  }

  static void CheckTensors(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.device() == tensors.at(0).device() && IsOnDevice(tensor),
                  "NCCL's tensors must be on one GPU, not on ", tensor.device());
      TORCH_CHECK(tensor.layout() == at::kStrided, "NCCL's tensors must be dense");
      TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
    }
  }

  WorkPtr Begin(Operation operation) {
    FreeAbandoned();
    Tensors held = operation.inputs;
    Append(operation.outputs, &held);
    CheckTensors(held);
    if (coalescing_) {
      TORCH_CHECK(operation.peer != kCollectives, "standin: only messages are coalesced");
      coalescing_->push_back(std::move(operation));
      return {};
    }
    Launch launch{.name = operation.title, .touches = {}, .kernel = {}};
    uint64_t bytes = 0;
    for (const at::Tensor& tensor : operation.inputs) {
      launch.touches.push_back(TouchOf(tensor, /*write=*/false));
      bytes += tensor.nbytes();
    }
    for (const at::Tensor& tensor : operation.outputs) {
      launch.touches.push_back(TouchOf(tensor, /*write=*/true));
    }
    CountCollective(operation.title, bytes);
    const c10::Stream stream = StreamFor(operation.peer, held.at(0).device().index());
    LetStreamWait(stream, MarkStream(CurrentStream(stream.device_index())));
    const Tensors results = operation.results;
    const OpType type = operation.type;
    // A kernel must not own a tensor of the device, so it gets aliases.
    Description description;
    if (!operation.described.empty()) {
      description = Description::Of(operation.title, operation.described[0]);
      operation.described = KernelAliases(operation.described);
    }
    operation.inputs = operation.outputs = operation.results = {};
    auto self = c10::intrusive_ptr<StandinBackend>::unsafe_reclaim_from_nonowning(this);
    launch.kernel = [self, operation = std::move(operation), description](uint64_t) {
      self->Perform(operation, description);
    };
    Enqueue(stream, std::move(launch));
    return c10::make_intrusive<StreamWork>(getRank(), type, launch.name, held, results, stream);
  }

  const c10::Stream& StreamFor(int peer, c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(peer);
    if (found != streams_.end()) return found->second;
    return streams_.emplace(peer, NewStream(device)).first->second;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::milliseconds timeout_;
  std::atomic<c10d::ErrorType> error_ = c10d::ErrorType::SUCCESS;
  std::optional<std::vector<Operation>> coalescing_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::map<int, c10::Stream> streams_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size,
                                              std::chrono::milliseconds timeout) {
  return c10::make_intrusive<StandinBackend>(store, rank, size, timeout);
}

}  // namespace dslaunch::standin
