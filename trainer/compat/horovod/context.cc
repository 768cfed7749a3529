#include "trainer/compat/horovod/context.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "proto/contract/worker_env.h"
#include "trainer/base/program_end.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

std::unique_ptr<Context>& TheContext() {
  static std::unique_ptr<Context> context;
  return context;
}

WorkerEnv ReadEnvironment() {
  auto env = WorkerEnv::FromEnviron(std::getenv);
  if (!env) throw TrainError(env.error().code, env.error().message);
  return *std::move(env);
}

// Returns the value of an environment variable, or `otherwise` if the variable is not set. Throws
// TrainError kUsage if the value is not a number of at least 0.
double ReadVariable(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= 0 && value <= 1e15)) {
    throw TrainError(ExitCode::kUsage,
                     std::string(name) + " is '" + text + "'; it must be a number of at least 0");
  }
  return value;
}

// Returns `options` with their numbers replaced by the numbers of rank 0. Collective.
InitOptions OptionsOfRank0(const ProcessGroup& group, InitOptions options) {
  at::Tensor numbers = at::tensor(
      {options.cycle_time.count(), options.fusion_threshold_bytes, options.cache_capacity,
       options.stall_warning.count(), options.stall_shutdown.count()},
      at::kLong);
  group.Broadcast(numbers, 0);
  const int64_t* const values = numbers.const_data_ptr<int64_t>();
  options.cycle_time = std::chrono::microseconds(values[0]);
  options.fusion_threshold_bytes = values[1];
  options.cache_capacity = values[2];
  options.stall_warning = std::chrono::milliseconds(values[3]);
  options.stall_shutdown = std::chrono::milliseconds(values[4]);
  return options;
}

void CheckOptions(const InitOptions& options) {
  const auto refuse = [](const char* problem) {
    throw TrainError(ExitCode::kUsage, std::string("horovod::InitOptions: ") + problem);
  };
  if (options.cycle_time.count() < 1) refuse("cycle_time must be at least 1 microsecond");
  if (options.fusion_threshold_bytes < 0) refuse("fusion_threshold_bytes must not be negative");
  if (options.cache_capacity < 0 || options.cache_capacity > 1 << 20) {
    refuse("cache_capacity must be from 0 to 1048576");
  }
  if (options.stall_shutdown.count() < 1) refuse("stall_shutdown must be at least 1 ms");
}

}  // namespace

InitOptions InitOptions::FromEnvironment() {
  using std::chrono::milliseconds;
  InitOptions options;
  options.cycle_time = std::chrono::microseconds(
      std::max<int64_t>(1, std::llround(1e3 * ReadVariable("HOROVOD_CYCLE_TIME", 1))));
  options.fusion_threshold_bytes = static_cast<int64_t>(ReadVariable(
      "HOROVOD_FUSION_THRESHOLD", static_cast<double>(options.fusion_threshold_bytes)));
  options.cache_capacity = static_cast<int64_t>(
      ReadVariable("HOROVOD_CACHE_CAPACITY", static_cast<double>(options.cache_capacity)));
  options.stall_warning = milliseconds(
      std::llround(1e3 * ReadVariable("HOROVOD_STALL_CHECK_TIME_SECONDS",
                                      static_cast<double>(options.stall_warning.count()) / 1e3)));
  if (ReadVariable("HOROVOD_STALL_CHECK_DISABLE", 0) != 0) options.stall_warning = {};
  const double shutdown_s = ReadVariable("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0);
  if (shutdown_s > 0) options.stall_shutdown = milliseconds(std::llround(1e3 * shutdown_s));
  if (const char* file = std::getenv("HOROVOD_TIMELINE")) options.timeline_file = file;
  return options;
}

Context::Context(const InitOptions& options)
    : env_(std::make_unique<WorkerEnv>(ReadEnvironment())),
      group_(std::make_unique<ProcessGroup>(*env_)) {
  CheckOptions(options);
  options_ = OptionsOfRank0(*group_, options);
  const at::Tensor local_ranks =
      group_->AllGather(at::full({}, int64_t{env_->local_rank}, at::kLong));
  cross_size_ = 0;
  for (int rank = 0; rank < group_->world_size(); ++rank) {
    if (local_ranks.const_data_ptr<int64_t>()[rank] != env_->local_rank) continue;
    if (rank == group_->rank()) cross_rank_ = cross_size_;
    ++cross_size_;
  }
  timeline_ =
      std::make_unique<Timeline>(group_->rank() == 0 ? options_.timeline_file : std::string());
  auto all = std::make_unique<Members>();
  all->ranks.resize(static_cast<size_t>(group_->world_size()));
  std::iota(all->ranks.begin(), all->ranks.end(), 0);
  all->own = group_->rank();
  all->thread = std::make_unique<ExchangeThread>(*group_, options_, all->ranks, timeline_.get());
  const MutexLock lock(mutex_);
  sets_.emplace(next_set_++, std::move(all));
}

Context::~Context() {
  const MutexLock lock(mutex_);
  bool fails = program_failed;
  for (const auto& [id, members] : sets_) {
    if (!members->thread) continue;
    members->thread->Stop();
    fails = fails || members->thread->Failed();
  }
  if (!fails) return;
  // The groups' destructors would wait for other ranks, so the groups are leaked. The process is
  // about to end anyway.
  for (const auto& [id, members] : sets_) (void)members->group.release();
  (void)group_.release();
}

Context& Context::Get() {
  if (!TheContext()) {
    throw TrainError(ExitCode::kUsage,
                     "the ranks are not connected; call dslaunch::horovod::Init() first");
  }
  return *TheContext();
}

const WorkerEnv& Context::env() const { return *env_; }

Members& Context::Find(const ProcessSet& set) {
  const MutexLock lock(mutex_);
  const auto found = sets_.find(set.id());
  if (found == sets_.end()) {
    throw TrainError(ExitCode::kUsage,
                     "the process set " + std::to_string(set.id()) + " was removed");
  }
  return *found->second;
}

ExchangeThread& Context::ThreadOf(const ProcessSet& set) {
  const Members& members = Find(set);
  if (members.thread) return *members.thread;
  throw TrainError(ExitCode::kUsage,
                   "rank " + std::to_string(env_->rank) + " is not in the process set " +
                       std::to_string(set.id()) +
                       "; only its ranks may exchange tensors in it (Included())");
}

int Context::Add(const std::vector<int>& ranks) {
  if (ranks.empty() || !std::ranges::is_sorted(ranks, std::less_equal<>()) || ranks[0] < 0 ||
      ranks.back() >= env_->world_size) {
    throw TrainError(ExitCode::kUsage, "AddProcessSet: the ranks must be from 0 to " +
                                           std::to_string(env_->world_size - 1) +
                                           ", each once, ascending");
  }
  auto members = std::make_unique<Members>();
  members->ranks = ranks;
  const auto own = std::ranges::find(ranks, env_->rank);
  int id = 0;
  {
    const MutexLock lock(mutex_);
    id = next_set_++;
  }
  if (own != ranks.end()) {
    members->own = static_cast<int>(own - ranks.begin());
    members->group = std::make_unique<ProcessGroup>(
        group_->Subgroup(ranks, "process_set." + std::to_string(id)));
    members->thread = std::make_unique<ExchangeThread>(*members->group, options_, ranks, nullptr);
  }
  const MutexLock lock(mutex_);
  sets_.emplace(id, std::move(members));
  return id;
}

void Context::Remove(const ProcessSet& set) {
  if (set.id() == 0) {
    throw TrainError(ExitCode::kUsage, "RemoveProcessSet: the set of all ranks stays");
  }
  std::unique_ptr<Members> removed;
  const MutexLock lock(mutex_);
  const auto found = sets_.find(set.id());
  if (found == sets_.end()) return;
  removed = std::move(found->second);
  sets_.erase(found);
}

std::string Context::NewName(Kind kind) {
  const MutexLock lock(mutex_);
  return std::string(Name(kind)) + ".noname." + std::to_string(unnamed_[kind]++);
}

void Init(const InitOptions& options) {
  if (!TheContext()) TheContext() = std::make_unique<Context>(options);
}

void Shutdown() { TheContext().reset(); }

bool IsInitialized() { return TheContext() != nullptr; }

int Rank() { return Context::Get().env().rank; }
int LocalRank() { return Context::Get().env().local_rank; }
int Size() { return Context::Get().env().world_size; }
int LocalSize() { return Context::Get().env().local_world_size; }
int CrossRank() { return Context::Get().cross_rank(); }
int CrossSize() { return Context::Get().cross_size(); }

std::vector<int> ProcessSet::ranks() const { return Context::Get().Find(*this).ranks; }
bool ProcessSet::Included() const { return Context::Get().Find(*this).own >= 0; }
int ProcessSet::Size() const { return static_cast<int>(ranks().size()); }
int ProcessSet::Rank() const {
  Context::Get().ThreadOf(*this);
  return Context::Get().Find(*this).own;
}

ProcessSet AddProcessSet(const std::vector<int>& ranks) {
  // If the lists differed, ranks in a set would wait forever for ranks that are not in their own
  // set. All ranks therefore compare their lists.
  const at::Tensor own = at::tensor(std::vector<int64_t>(ranks.begin(), ranks.end()), at::kLong);
  const at::Tensor all = Allgather(own);
  const int64_t size = own.numel();
  const bool same =
      all.numel() == size * horovod::Size() && at::equal(all, own.repeat({horovod::Size()}));
  if (!same) {
    throw TrainError(ExitCode::kBadInput,
                     "AddProcessSet: the ranks name different sets; all ranks must make the same "
                     "calls in one order");
  }
  return ProcessSet(Context::Get().Add(ranks));
}

void RemoveProcessSet(const ProcessSet& set) {
  if (set.Included()) Barrier(set);
  Context::Get().Remove(set);
}

}  // namespace dslaunch::horovod
