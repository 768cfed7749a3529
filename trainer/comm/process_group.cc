#include "dslaunch/process_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "proto/contract/worker_env.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/backend/gloo_backend.h"
#include "trainer/comm/backend/socket_interfaces.h"
#include "trainer/comm/backend_watch.h"
#include "trainer/comm/desync_detector.h"
#include "trainer/comm/exchange_watch.h"
#include "trainer/comm/explain.h"
#include "trainer/comm/group_with_backend.h"
#include "trainer/comm/links/link_backend.h"
#include "trainer/comm/links/link_store.h"
#include "trainer/comm/shm/shm_backend.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/cuda_plugin.h"

namespace dslaunch {

// The objects through which the ranks of a group connect.
struct RankMeeting {
  c10::intrusive_ptr<c10d::Store> store;  // store of this group, which is moved into the group
  // Connections by the node's agent; null if no agent connects the ranks.
  std::shared_ptr<RankConnections> connections;
  c10::intrusive_ptr<c10d::Store> places;  // store with PlaceKey of all ranks of the job
  std::string label;                       // label of this group's connections
  // Simulates the other ranks (group_with_backend.h); null if the other ranks are processes.
  c10::intrusive_ptr<c10d::Backend> players = {};
};

namespace {

constexpr char kDone[] = "done";
constexpr char kAllDone[] = "all_done";
constexpr char kGone[] = "gone";
// Time limit for ranks that only have to report that they leave the group.
constexpr std::chrono::seconds kLeaveTimeout{5};
constexpr char kAllReduce[] = "an all-reduce";
constexpr char kReduceScatter[] = "a reduce-scatter";

// Keeps the object of `pointer` alive until the process ends.
template <typename T>
void LeaveToProcess(std::shared_ptr<T> pointer) {
  [[maybe_unused]] const auto* const left = new std::shared_ptr<T>(std::move(pointer));
}

[[noreturn]] void Refuse(const char* call, const std::string& problem) {
  throw TrainError(ExitCode::kUsage, std::string(call) + ": " + problem);
}

void CheckTensor(const char* call, const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) Refuse(call, "the tensor is undefined");
  const bool placed = tensor.device().is_cpu() || tensor.device() == device;
  if (placed && tensor.layout() == at::kStrided) return;
  Refuse(call, "the tensor is " + c10::str(tensor.layout(), " on ", tensor.device()) +
                   "; the ranks exchange dense CPU tensors" +
                   (device.is_cpu() ? "" : " and those on " + device.str()));
}

void CheckReduction(const char* call, const at::Tensor& tensor, ReduceOp op, c10::Device device) {
  CheckTensor(call, tensor, device);
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      return;
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
      if (op != ReduceOp::kAverage) return;
      Refuse(call,
             c10::str("the average of ", tensor.scalar_type(),
                      " values may not be a whole number; use the sum, or floating-point values"));
    default:
      Refuse(call,
             c10::str(
                 "values of ", tensor.scalar_type(),
                 " cannot be reduced; supported: float, double, half, bfloat16, uint8, int8, int32 "
                 "and int64"));
  }
}

void CheckRank(const char* call, const char* role, int rank, int world_size) {
  if (rank >= 0 && rank < world_size) return;
  Refuse(call, std::string(role) + " is " + std::to_string(rank) + "; the ranks are 0 to " +
                   std::to_string(world_size - 1));
}

// Returns the tensor itself if it is contiguous and not lazily conjugated or negated, otherwise a
// copy.
at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

// Returns a view of the bytes of a contiguous tensor, valid as long as `tensor`. Gloo supports few
// dtypes, so operations that only move values use this view.
at::Tensor Bytes(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())},
                       at::TensorOptions(tensor.device()).dtype(at::kByte));
}

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // not supported by Gloo, so callers divide the sum
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  std::abort();
}

// Reduces a tensor [world_size, ...] along its first dimension, in the same dtype.
at::Tensor ReduceParts(const at::Tensor& parts, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return parts.sum(0, /*keepdim=*/false, parts.scalar_type());
    case ReduceOp::kAverage:
      return parts.mean(0);
    case ReduceOp::kMin:
      return parts.amin(0);
    case ReduceOp::kMax:
      return parts.amax(0);
    case ReduceOp::kProduct:
      return parts.prod(0, /*keepdim=*/false, parts.scalar_type());
  }
  std::abort();
}

std::string KeyOf(const char* what, int rank) { return what + ("/" + std::to_string(rank)); }

// Ignores SIGPIPE. Gloo may write to a socket whose other end is closed, which must result in an
// error that names the rank, not in a signal that ends this process.
void SurviveBrokenPipes() {
  struct sigaction found = {};
  if (sigaction(SIGPIPE, nullptr, &found) == 0 && found.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

// Connects the ranks through the node's agent, which gives connections only to ranks of this job.
RankMeeting MeetByAgents(const WorkerEnv& env) {
  // A process may create several groups of all ranks, one after the other, so the groups are
  // counted.
  static std::atomic<int> groups = 0;
  const std::string label = "job." + std::to_string(groups++);
  std::string interfaces;
  for (const std::string& name : SocketInterfaces())
    interfaces += (interfaces.empty() ? "" : ",") + name;
  RankMeeting meeting;
  meeting.label = label;
  meeting.connections = RankConnections::Open(env.rank_socket, env.rank, env.attempt, interfaces,
                                              Deadline::After(ProcessGroup::kConnectTimeout));
  meeting.store =
      ConnectStore(meeting.connections, label + "/store", ProcessGroup::kConnectTimeout);
  meeting.places = meeting.store;
  const std::string place = meeting.connections->place().ToText();
  meeting.store->set(PlaceKey(static_cast<size_t>(env.rank)), place);
  if (env.rank != 0) return meeting;
  for (int rank = 1; rank < env.world_size; ++rank) {
    try {
      meeting.store->wait({PlaceKey(static_cast<size_t>(rank))}, ProcessGroup::kConnectTimeout);
    } catch (const c10::Error&) {
      throw PeerLate("rank " + std::to_string(rank) + " did not connect to rank 0 within " +
                     std::to_string(ProcessGroup::kConnectTimeout.count()) +
                     " minutes; see its log");
    }
  }
  return meeting;
}

c10::intrusive_ptr<c10d::Store> MakeTcpStore(const WorkerEnv& env) {
  c10d::TCPStoreOptions options;
  // Port of the server; 0 selects a free port.
  options.port = static_cast<uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !env.agent_store;
  options.numWorkers = static_cast<size_t>(env.world_size);
  options.timeout = ProcessGroup::kConnectTimeout;
  // The store closes its descriptor, so it gets a copy and the original remains for another group.
  if (options.isServer && env.store_fd >= 0)
    options.masterListenFd = fcntl(env.store_fd, F_DUPFD_CLOEXEC, 3);
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
    if (!env.agent_store) return store;
    // The store outlives the ranks, so each attempt of the job has separate keys.
    return c10::make_intrusive<c10d::PrefixStore>(
        "worker/attempt_" + std::to_string(env.restart_count), std::move(store));
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const std::string problem =
        "the ranks cannot connect at " + env.master_addr + ":" + std::to_string(env.master_port) +
        ", where rank 0 listens (MASTER_ADDR and MASTER_PORT): " + what.substr(0, what.find('\n'));
    if (ClassifyCommFailure(what) == CommFailure::kTimedOut) throw PeerLate(problem);
    if (env.rank != 0) throw PeerLost(problem);
    throw TrainError(ExitCode::kUnavailable, problem);
  }
}

std::chrono::milliseconds CheckedTimeout(const ProcessGroupOptions& options) {
  if (options.timeout >= std::chrono::seconds(1)) return options.timeout;
  Refuse("ProcessGroup", "the timeout is " + std::to_string(options.timeout.count()) +
                             " ms; it must be at least 1000 ms");
}

RankMeeting Meet(const WorkerEnv& env) {
  SurviveBrokenPipes();
  if (env.world_size == 1) {
    SocketInterfaces();  // throws for an invalid name even if there is only one rank
    return {c10::make_intrusive<c10d::HashStore>(), nullptr, nullptr, ""};
  }
  if (!env.rank_socket.empty() && !env.agent_store) return MeetByAgents(env);
  return {MakeTcpStore(env), nullptr, nullptr, ""};
}

DeviceKind KindOf(const std::string& device) {
  if (device == "auto") return DeviceKind::kAuto;
  if (device == "cuda") return DeviceKind::kCuda;
  if (device == "cpu") return DeviceKind::kCpu;
  Refuse("InitProcessGroup", "the device is \"" + device + "\"; it must be auto, cuda or cpu");
}

// Warns, once per process and only on rank 0, that exchanges between nodes are not encrypted.
void SayWhatIsInClearText(const WorkerEnv& env, const RankDevice& device) {
  static std::atomic_flag said;
  if (env.rank != 0 || device.device.is_cpu() || env.local_world_size >= env.world_size) return;
  if (said.test_and_set()) return;
  PrintError("NCCL exchanges between nodes in clear text; see SECURITY.md");
}

std::vector<size_t> FromZero(int count) {
  std::vector<size_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

ProcessGroup::ProcessGroup(const WorkerEnv& env, const ProcessGroupOptions& options)
    : ProcessGroup(env, RankDevice{}, options) {}
ProcessGroup::ProcessGroup(const WorkerEnv& env, const RankDevice& device,
                           const ProcessGroupOptions& options)
    : ProcessGroup(Meet(env), env.rank, FromZero(env.world_size), "world",
                   std::make_shared<RankDevice>(device), CheckedTimeout(options)) {
  SayWhatIsInClearText(env, device);
}

ProcessGroup::ProcessGroup(RankMeeting meeting, int rank, std::vector<size_t> job_ranks,
                           const std::string& name, std::shared_ptr<const RankDevice> device,
                           std::chrono::milliseconds timeout)
    : meeting_(std::make_shared<RankMeeting>(RankMeeting{
          nullptr, meeting.connections, meeting.places, meeting.label, meeting.players})),
      rank_(rank),
      world_size_(static_cast<int>(job_ranks.size())),
      job_ranks_(std::move(job_ranks)),
      device_(std::move(device)),
      store_(std::move(meeting.store)),
      group_(c10::make_intrusive<c10d::ProcessGroup>(store_, rank_, world_size_)),
      timeout_(timeout),
      desync_detector_(std::make_shared<DesyncDetector>(store_, rank_, job_ranks_)) {
  using Type = c10d::ProcessGroup::BackendType;
  Type type = Type::CUSTOM;
  c10::intrusive_ptr<c10d::Backend> backend;
  if (world_size_ > 1 && !meeting_->players) {
    backend = MakeShmBackend(c10::make_intrusive<c10d::PrefixStore>("shm", store_), rank_,
                             job_ranks_, timeout_);
  }
  shares_memory_ = backend.defined();
  if (meeting_->players) {
    backend = meeting_->players;
  } else if (!shares_memory_ && (meeting_->connections || world_size_ == 1)) {
    backend = MakeLinkBackend(meeting_->connections, meeting_->label, meeting_->places, rank_,
                              job_ranks_, timeout_);
  } else if (!shares_memory_) {
    type = Type::GLOO;
    backend = MakeGlooBackend(c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank_,
                              world_size_, timeout_);
  }
  group_->setBackend(c10::DeviceType::CPU, type, backend);
  group_->setDefaultBackend(type);
  if (!device_->device.is_cpu()) {
    const c10::intrusive_ptr<c10d::Backend> on_device = device_->accelerator->MakeBackend(
        c10::make_intrusive<c10d::PrefixStore>("accelerator", store_), rank_, world_size_,
        timeout_);
    group_->setBackend(device_->device.type(), Type::NCCL, on_device);
    if (world_size_ > 1) backend_watch_ = std::make_unique<BackendWatch>(on_device);
  }
  group_->setGroupName(name);
}

bool ProcessGroup::sends_by_host() const {
  return meeting_->connections && SendsByHost(*group_->getBackend(c10::DeviceType::CPU));
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::GatherByHost(const at::Tensor& flat,
                                                          int channel) const {
  return dslaunch::GatherByHost(*group_->getBackend(c10::DeviceType::CPU), flat,
                                static_cast<uint64_t>(channel));
}

c10::Device ProcessGroup::device() const { return device_->device; }

ProcessGroup ProcessGroup::Subgroup(const std::vector<int>& ranks, const std::string& name,
                                    std::optional<std::chrono::milliseconds> timeout) const {
  std::vector<size_t> job_ranks;
  for (const int rank : ranks) {
    CheckRank("Subgroup", "a rank", rank, world_size_);
    job_ranks.push_back(job_ranks_[static_cast<size_t>(rank)]);
  }
  const auto own = std::ranges::find(ranks, rank_);
  if (own == ranks.end()) {
    Refuse("Subgroup", "rank " + std::to_string(rank_) + " is not among those of " + name);
  }
  RankMeeting meeting = *meeting_;
  meeting.store = c10::make_intrusive<c10d::PrefixStore>("group/" + name, store_);
  meeting.label += "/" + name;
  ProcessGroup group(std::move(meeting), static_cast<int>(own - ranks.begin()),
                     std::move(job_ranks), name, device_, timeout.value_or(timeout_));
  group.is_subgroup_ = true;
  subgroups_.push_back(group.group_);
  return group;
}

ProcessGroup::~ProcessGroup() {
  if (!group_) return;
  if (std::uncaught_exceptions() == 0) {
    if (!is_subgroup_) Finish();
    return;
  }
  // The destructors would wait for pending exchanges, which may never end, so these objects are
  // leaked. The process is about to exit.
  desync_detector_->Stop();
  LeaveToProcess(std::move(desync_detector_));
  if (is_subgroup_) return;  // a subgroup's connections belong to its parent group
  LeaveToProcess(std::move(meeting_));
  group_.release();
  for (auto& subgroup : subgroups_) subgroup.release();
  store_.release();
}

ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;

std::string ProcessGroup::NewKey(const std::string& purpose) const {
  return purpose + "/" + std::to_string(keys_++) + "/";
}

void ProcessGroup::AllReduce(at::Tensor& tensor, ReduceOp op) const {
  ExchangeWatch::Notify(*this, /*collective=*/true);
  CheckReduction("AllReduce", tensor, op, device());
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = {Dense(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = ToC10d(op);
  const Exchange exchange = desync_detector_->Begin(kAllReduce);
  desync_detector_->Wait(exchange, group_->allreduce(tensors, options));
  if (op == ReduceOp::kAverage) tensors[0].div_(world_size_);
  if (!tensors[0].is_alias_of(tensor)) tensor.copy_(tensors[0]);
}

void ProcessGroup::Broadcast(at::Tensor& tensor, int root) const {
  ExchangeWatch::Notify(*this, /*collective=*/true);
  CheckTensor("Broadcast", tensor, device());
  CheckRank("Broadcast", "root", root, world_size_);
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor dense = Dense(tensor);
  std::vector<at::Tensor> tensors = {Bytes(dense)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  const Exchange exchange =
      desync_detector_->Begin("a broadcast from rank " + std::to_string(root));
  desync_detector_->Wait(exchange, group_->broadcast(tensors, options));
  if (!dense.is_alias_of(tensor)) tensor.copy_(dense);
}

at::Tensor ProcessGroup::AllGather(const at::Tensor& tensor) const {
  ExchangeWatch::Notify(*this, /*collective=*/true);
  CheckTensor("AllGather", tensor, device());
  const at::NoGradGuard no_grad;
  const at::Tensor dense = Dense(tensor);
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), world_size_);
  at::Tensor all = at::empty(shape, dense.options());
  if (all.numel() == 0) return all;
  std::vector<at::Tensor> inputs = {Bytes(dense)};
  std::vector<std::vector<at::Tensor>> outputs = {Bytes(all).chunk(world_size_)};
  const Exchange exchange = desync_detector_->Begin("an all-gather");
  desync_detector_->Wait(exchange, group_->allgather(outputs, inputs));
  return all;
}

at::Tensor ProcessGroup::ReduceScatter(const at::Tensor& tensor, ReduceOp op) const {
  ExchangeWatch::Notify(*this, /*collective=*/true);
  CheckReduction("ReduceScatter", tensor, op, device());
  if (tensor.dim() == 0 || tensor.size(0) != world_size_) {
    Refuse("ReduceScatter",
           c10::str("the tensor has the shape ", tensor.sizes(),
                    "; its first dimension must be the number of ranks, ", world_size_));
  }
  const at::NoGradGuard no_grad;
  at::Tensor input = Dense(tensor);
  if (shares_memory_ || meeting_->connections) {
    at::Tensor part = at::empty(tensor.sizes().slice(1), input.options());
    c10d::ReduceScatterOptions options;
    options.reduceOp = ToC10d(op);
    const Exchange exchange = desync_detector_->Begin(kReduceScatter);
    desync_detector_->Wait(exchange, group_->_reduce_scatter_base(part, input, options));
    if (op == ReduceOp::kAverage) part.div_(world_size_);
    return part;
  }
  // Gloo's reduce-scatter is an all-reduce of all parts. An all-to-all sends each part once, so it
  // is used instead.
  at::Tensor parts = at::empty_like(input);
  std::vector<int64_t> equal_parts;
  if (input.numel() > 0) {
    at::Tensor sent = Bytes(input), received = Bytes(parts);
    const Exchange exchange = desync_detector_->Begin(kReduceScatter);
    desync_detector_->Wait(exchange,
                           group_->alltoall_base(received, sent, equal_parts, equal_parts));
  }
  return ReduceParts(parts, op);
}

void ProcessGroup::Send(const at::Tensor& tensor, int to) const {
  ExchangeWatch::Notify(*this, /*collective=*/false);
  CheckTensor("Send", tensor, device());
  CheckRank("Send", "to", to, world_size_);
  if (to == rank_) Refuse("Send", "rank " + std::to_string(to) + " sends to itself");
  if (tensor.numel() == 0) return;
  const at::Tensor dense = Dense(tensor);
  std::vector<at::Tensor> tensors = {Bytes(dense)};
  group_->send(tensors, to, /*tag=*/0)->wait();
}

void ProcessGroup::Recv(at::Tensor& tensor, int from) const {
  ExchangeWatch::Notify(*this, /*collective=*/false);
  CheckTensor("Recv", tensor, device());
  CheckRank("Recv", "from", from, world_size_);
  if (from == rank_) Refuse("Recv", "rank " + std::to_string(from) + " receives from itself");
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor dense = Dense(tensor);
  std::vector<at::Tensor> tensors = {Bytes(dense)};
  group_->recv(tensors, from, /*tag=*/0)->wait();
  if (!dense.is_alias_of(tensor)) tensor.copy_(dense);
}

void ProcessGroup::Barrier() const {
  const Exchange exchange = desync_detector_->Begin("a barrier");
  // The group's own barrier assigns a static tensor, which ranks that are threads of one process
  // (in tests) would free twice. The backend's barrier is therefore called.
  desync_detector_->Wait(exchange, group_->getBackend(c10::DeviceType::CPU)->barrier());
}

void ProcessGroup::AllReduceSum(std::vector<double>& values) const {
  ExchangeWatch::Notify(*this, /*collective=*/true);
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble)};
  const Exchange exchange = desync_detector_->Begin(kAllReduce);
  desync_detector_->Wait(exchange, group_->allreduce(tensors));
}

void ProcessGroup::Finish(const std::vector<int>& lost) {
  // Gloo may still have unsent bytes when a collective returns, and closing the connection then
  // resets it at the peer. Every rank therefore first reports that it has received everything, and
  // leaves after all ranks have reported.
  const std::vector<uint8_t> yes = {1};
  // Rank 0 hosts the store, so it waits for the other ranks and leaves last.
  const auto meet = [&] {
    store_->set(KeyOf(kDone, rank_), yes);
    if (rank_ != 0) {
      store_->wait({kAllDone}, kFinishTimeout);
      store_->set(KeyOf(kGone, rank_), yes);
      return;
    }
    std::vector<std::string> done, gone;
    for (int rank = 1; rank < world_size_; ++rank) {
      if (std::ranges::count(lost, rank) > 0) continue;
      done.push_back(KeyOf(kDone, rank));
      gone.push_back(KeyOf(kGone, rank));
    }
    store_->wait(done, kFinishTimeout);
    store_->set(kAllDone, yes);
    store_->wait(gone, kLeaveTimeout);
  };
  try {
    if (!meeting_->players) {
      desync_detector_->Wait(desync_detector_->Begin("the end of the program"), meet);
    }
  } catch (const std::exception&) {
    // Rank 0 has left, or a rank did not report within the limit. This rank has received
    // everything, so the error is ignored.
  }
  // Needed because pending exchanges hold references, so reset() does not destroy the detector.
  desync_detector_->Stop();
  desync_detector_.reset();
  backend_watch_.reset();
  for (const auto& subgroup : subgroups_) subgroup->shutdown();
  subgroups_.clear();
  group_->shutdown();
  group_.reset();
  store_.reset();
  meeting_.reset();
}

ProcessGroup GroupWithBackend(int rank, int world_size,
                              const c10::intrusive_ptr<c10d::Backend>& backend) {
  return ProcessGroup({c10::make_intrusive<c10d::HashStore>(), nullptr, nullptr, "", backend}, rank,
                      FromZero(world_size), "world", std::make_shared<RankDevice>(),
                      ProcessGroupOptions().timeout);
}

ProcessGroup InitProcessGroup(const ProcessGroupOptions& options) {
  const auto env = WorkerEnv::FromEnviron(std::getenv);
  if (!env) throw TrainError(env.error().code, env.error().message);
  return ProcessGroup(*env, SelectDevice(KindOf(options.device), *env), options);
}

}  // namespace dslaunch
