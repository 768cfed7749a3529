#include "trainer/parallel/server/stale_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/with_context.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

// A server's answer to a request. After kGo the server sends the parameters.
enum class Answer : int64_t { kGo = 1, kWait = 2, kStop = 3, kTaken = 4 };

// Interval between keep-alive messages while a rank waits for its turn. Rank 0 sends them to the
// rank, and the rank sends them to the other servers, so that no process declares another one lost.
constexpr std::chrono::milliseconds kSignOfLife{250};

// Rank of the server and of the worker in the group of a connection.
constexpr int kServer = 0;
constexpr int kWorker = 1;

void Reply(const ProcessGroup& connection, Answer answer) {
  connection.Send(at::tensor({static_cast<int64_t>(answer)}, at::kLong), kWorker);
}

Answer ReceiveAnswer(const ProcessGroup& connection) {
  at::Tensor answer = at::empty({1}, at::kLong);
  connection.Recv(answer, kServer);
  return static_cast<Answer>(answer.item<int64_t>());
}

void Expect(Answer answer, Answer expected, int server) {
  if (answer == expected) return;
  throw TrainError(ExitCode::kInternal, "the server on rank " + std::to_string(server) +
                                            " sent an unexpected answer (" +
                                            std::to_string(static_cast<int64_t>(answer)) + ")");
}

std::string NameOf(int server, int rank) {
  return "server" + std::to_string(server) + "_rank" + std::to_string(rank);
}

}  // namespace

// A request to a server consists of one of these values and the rank's step. Gradients follow after
// kPush.
enum class StaleStates::Request : int64_t {
  kPull = 1,
  kPush = 2,
  kMade = 3,   // the rank completed a step without an update
  kRest = 4,   // no requests follow until the rest with this number ends; not sent to rank 0
  kLeave = 5,  // the rank sends no more requests
  kFail = 6,   // this rank failed and prints its own error; sent only to rank 0
  kWaits = 7,  // keep-alive while this rank waits for rank 0; needs no answer
};

struct StaleStates::Server {
  // Runs the thread that answers the requests of `rank`.
  static void Serve(const std::shared_ptr<Server>& server, int rank);

  // The members up to `connections` do not change after the threads start.
  bool decides = false;  // true on rank 0, which decides whether a rank may begin a step
  int servers = 0;
  int64_t elements = 0;                       // number of elements in this server's part
  at::ScalarType model_dtype = at::kFloat;    // dtype in which parameters are sent
  at::ScalarType message_dtype = at::kFloat;  // dtype in which gradients are sent
  at::ScalarType gradient_dtype = at::kFloat;
  std::vector<int64_t> lengths;                          // number of elements in each of parts()
  std::vector<std::optional<ProcessGroup>> connections;  // connections to the other ranks, by rank

  Mutex mutex;
  CondVar changed;
  Update update DSL_GUARDED_BY(mutex);
  at::Tensor weights DSL_GUARDED_BY(mutex);
  std::optional<StaleSync> sync DSL_GUARDED_BY(mutex);
  std::exception_ptr failure DSL_GUARDED_BY(mutex);  // first error of a thread, which ends the run
  bool closed DSL_GUARDED_BY(mutex) = false;         // true if no more requests are served
  int64_t rested DSL_GUARDED_BY(mutex) = 0;          // number of this rank's completed rests
  int serving DSL_GUARDED_BY(mutex) = 0;             // number of threads that still serve requests

  // Updates the parameters with gradients that another rank has sent or this rank has computed.
  void Apply(const at::Tensor& message, int64_t step) DSL_REQUIRES(mutex) {
    const at::Tensor gradient = message.to(gradient_dtype);
    std::vector<at::Tensor> gradients;
    int64_t start = 0;
    for (const int64_t length : lengths) {
      gradients.push_back(gradient.narrow(0, start, length));
      start += length;
    }
    if (!gradients.empty()) update(std::move(gradients), step);
  }

  void Made(int rank, int64_t step) DSL_REQUIRES(mutex) {
    if (decides && !sync->OnMade(rank, step)) {
      throw TrainError(ExitCode::kInternal, "rank " + std::to_string(rank) + " reports step " +
                                                std::to_string(step) +
                                                " as made, but its last one was step " +
                                                std::to_string(sync->made(rank)));
    }
    changed.NotifyAll();
  }

  void ThrowIfFailed() DSL_REQUIRES(mutex) {
    if (failure) std::rethrow_exception(failure);
  }

  // Waits until `condition` is true, but at most kSignOfLife. Returns whether `condition` is true.
  // Throws the error of a thread that failed.
  bool AwaitPart(const std::function<bool()>& condition) {
    const MutexLock lock(mutex);
    const bool holds = changed.WaitFor(mutex, kSignOfLife, [&]() DSL_REQUIRES(mutex) {
      return failure != nullptr || condition();
    });
    ThrowIfFailed();
    return holds;
  }

  [[noreturn]] void ThrowLate(const std::string& what) {
    const MutexLock lock(mutex);
    const std::optional<int> slowest = sync ? sync->Slowest() : std::nullopt;
    throw PeerLate("timed out waiting for other ranks at " + what +
                   (slowest ? "; the slowest is rank " + std::to_string(*slowest) : "") +
                   "; set a larger run.collective_timeout_s, or look at its log");
  }

 private:
  void AnswerAll(int rank);
  bool AnswerPull(int rank);
  void ApplyPush(int rank, const at::Tensor& message, int64_t step);
};

void StaleStates::Server::Serve(const std::shared_ptr<Server>& server, int rank) {
  const at::NoGradGuard no_grad;
  Server& self = *server;
  std::exception_ptr failure;
  std::string lost;
  try {
    self.AnswerAll(rank);
  } catch (const TrainError&) {
    failure = std::current_exception();
  } catch (const std::exception& error) {  // if the connection failed
    lost = error.what();
  }
  const MutexLock lock(self.mutex);
  if (failure && !self.failure) self.failure = failure;
  if (!lost.empty() && self.decides && !self.closed) {
    self.sync->OnLost(rank);
    if (rank >= self.servers) {
      PrintError("rank " + std::to_string(rank) +
                 " is lost; training continues without it (parallel.staleness): " +
                 lost.substr(0, lost.find('\n')));
    }
  }
  --self.serving;
  self.changed.NotifyAll();
}

// Answers the requests of `rank` until it sends kLeave or kFail, or has no next step.
void StaleStates::Server::AnswerAll(int rank) {
  const ProcessGroup& connection = *connections[static_cast<size_t>(rank)];
  at::Tensor request = at::empty({2}, at::kLong);
  at::Tensor message = at::empty({elements}, message_dtype);
  for (;;) {
    connection.Recv(request, kWorker);
    const auto step = request[1].item<int64_t>();
    switch (static_cast<Request>(request[0].item<int64_t>())) {
      case Request::kPull:
        if (!AnswerPull(rank)) return;
        break;
      case Request::kPush:
        connection.Recv(message, kWorker);
        ApplyPush(rank, message, step);
        break;
      case Request::kMade:
        ApplyPush(rank, {}, step);
        break;
      case Request::kRest: {
        // Servers send nothing while they save and evaluate, so this wait has no limit.
        const MutexLock lock(mutex);
        changed.Wait(mutex, [&]() DSL_REQUIRES(mutex) { return rested >= step || closed; });
        break;
      }
      case Request::kLeave: {
        const MutexLock lock(mutex);
        if (decides) sync->OnLeft(rank);
        return;
      }
      case Request::kFail: {
        const MutexLock lock(mutex);
        if (decides) sync->OnLost(rank);
        return;
      }
      case Request::kWaits:
        break;
      default:
        throw TrainError(ExitCode::kInternal,
                         "rank " + std::to_string(rank) + " sent its server an invalid request");
    }
  }
}

// Answers a pull of `rank`. Returns false if the rank has no next step.
bool StaleStates::Server::AnswerPull(int rank) {
  const ProcessGroup& connection = *connections[static_cast<size_t>(rank)];
  at::Tensor part;
  for (bool waits = decides; waits;) {
    Answer answer = Answer::kWait;
    {
      const MutexLock lock(mutex);
      changed.WaitFor(mutex, kSignOfLife, [&]() DSL_REQUIRES(mutex) {
        return closed || failure != nullptr || sync->TurnOf(rank) != StaleSync::Turn::kWait;
      });
      if (closed || failure) return false;
      const StaleSync::Turn turn = sync->TurnOf(rank);
      if (turn == StaleSync::Turn::kStop) {
        answer = Answer::kStop;
        sync->OnLeft(rank);
      } else if (turn == StaleSync::Turn::kGo) {
        waits = false;
        sync->OnBegun(rank);
      }
    }
    if (waits) Reply(connection, answer);
    if (answer == Answer::kStop) return false;
  }
  {
    const MutexLock lock(mutex);
    part = weights.to(model_dtype, /*non_blocking=*/false, /*copy=*/true);
  }
  Reply(connection, Answer::kGo);
  connection.Send(part, kWorker);
  return true;
}

void StaleStates::Server::ApplyPush(int rank, const at::Tensor& message, int64_t step) {
  {
    const MutexLock lock(mutex);
    if (closed || failure) return;
    try {
      if (message.defined()) Apply(message, step);
    } catch (const TrainError&) {
      throw;
    } catch (const std::exception& error) {
      throw TrainError(ExitCode::kInternal, "the update of step " + std::to_string(step) +
                                                " of rank " + std::to_string(rank) +
                                                " failed: " + error.what());
    }
    Made(rank, step);
  }
  // Workers push to rank 0 last and do not wait for its confirmation, so rank 0 sends none.
  if (!decides) Reply(*connections[static_cast<size_t>(rank)], Answer::kTaken);
}

void StaleStates::Ask(const ProcessGroup& connection, Request request, int64_t step) {
  connection.Send(at::tensor({static_cast<int64_t>(request), step}, at::kLong), kServer);
}

StaleStates::StaleStates(const EngineConfig& config, torch::nn::Module& module,
                         const MeshGroups& ranks, Passes passes)
    : ServerStates(config, module, ranks, passes), to_server_(static_cast<size_t>(servers_)) {
  if (!group_.device().is_cpu()) {
    throw TrainError(ExitCode::kBadInput,
                     "engine.parallel.staleness needs ranks on CPUs; give --device cpu, or leave "
                     "it out");
  }
  const int own = group_.rank();
  const std::string key = group_.NewKey("parallel.staleness");
  if (is_server()) {
    server_ = std::make_shared<Server>();
    std::vector<int> servers;
    for (int server = 0; server < servers_; ++server) servers.push_back(server);
    servers_group_.emplace(group_.Subgroup(servers, key + "servers", LongTimeout()));
  }
  std::vector<std::optional<ProcessGroup>> connections(static_cast<size_t>(group_.world_size()));
  for (int server = 0; server < servers_; ++server) {
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      if (rank == server || (own != server && own != rank)) continue;
      auto& connection = own == server ? connections[static_cast<size_t>(rank)]
                                       : to_server_[static_cast<size_t>(server)];
      connection.emplace(group_.Subgroup({server, rank}, key + NameOf(server, rank)));
    }
  }
  if (!is_server()) return;
  server_->decides = IsFirst();
  server_->servers = servers_;
  server_->elements = weights_.numel();
  server_->model_dtype = model_dtype_;
  server_->message_dtype = message_dtype_;
  server_->gradient_dtype = at::promote_types(options_.accumulation_dtype, message_dtype_);
  for (const WeightPart& part : parts_) server_->lengths.push_back(part.weight.numel());
  server_->connections = std::move(connections);
  staleness_ = *config.parallel.staleness;
  Server& self = *server_;
  const MutexLock lock(self.mutex);
  self.weights = weights_;
  if (IsFirst()) self.sync.emplace(group_.world_size(), staleness_, 0);
}

StaleStates::~StaleStates() {
  UpdateBy(nullptr);
  // The threads may be waiting for lost ranks, so they are detached rather than joined.
  for (std::thread& thread : threads_) thread.detach();
}

void StaleStates::UpdateBy(Update update) {
  if (!server_) return;
  Server& self = *server_;
  const MutexLock lock(self.mutex);
  if (!update) {
    self.closed = true;
    return self.changed.NotifyAll();
  }
  self.update = std::move(update);
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    if (rank == group_.rank()) continue;
    ++self.serving;
    threads_.emplace_back(Server::Serve, server_, rank);
  }
}

void StaleStates::WithoutUpdates(const std::function<void()>& action) {
  if (!server_) return action();
  const MutexLock lock(server_->mutex);
  action();
}

void StaleStates::SetSteps(int64_t steps) {
  step_ = steps;
  if (!IsFirst()) return;
  Server& self = *server_;
  const MutexLock lock(self.mutex);
  self.sync.emplace(group_.world_size(), staleness_, steps);
}

void StaleStates::Begin(Pass pass) {
  if (pass != Pass::kInference && !pulled_) Pull();
  ServerStates::Begin(pass);
}

void StaleStates::End() {
  if (pass_ != Pass::kInference) local_.End();
}

std::vector<at::Tensor> StaleStates::Gradients() { return local_.Gradients(); }

template <class Exchange>
auto StaleStates::ExchangeWith(int server, const std::string& what, Exchange exchange) {
  try {
    return WithContext(what + " rank " + std::to_string(server),
                       [&] { return exchange(ToServer(server)); });
  } catch (const std::exception&) {
    if (server == 0) has_left_ = true;  // rank 0 no longer receives from this rank after an error
    throw;
  }
}

void StaleStates::Fail() {
  if (is_server() || std::exchange(has_left_, true)) return;
  try {
    Ask(ToServer(0), Request::kFail, step_);
  } catch (const std::exception&) {
    // The report fails if rank 0 is lost too, and is then not needed.
  }
}

void StaleStates::AskOtherServers(Request request, int first) {
  for (int server = first; server < servers_; ++server) {
    if (server == group_.rank()) continue;
    WithContext("waiting for rank " + std::to_string(server),
                [&] { Ask(ToServer(server), request, rests_); });
  }
}

// Returns the time limit of waits for other ranks. A server's thread declares a rank lost after the
// group's timeout, so this limit must be longer.
std::chrono::milliseconds StaleStates::LongTimeout() const {
  return 2 * group_.timeout() + std::chrono::seconds(10);
}

void StaleStates::Await(const std::string& what, const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::After(LongTimeout());
  while (!server_->AwaitPart(condition)) {
    if (deadline.Expired()) server_->ThrowLate(what);
    ReportWaiting();
  }
}

// Notifies the other servers that this rank waits. Sends nothing if this rank rests or has left,
// because the servers then do not receive from it.
void StaleStates::ReportWaiting() {
  if (!resting_ && !has_left_) AskOtherServers(Request::kWaits, /*first=*/1);
}

void StaleStates::AwaitOwnTurn() {
  Server& self = *server_;
  Await("step " + std::to_string(step_ + 1), [&self]() DSL_REQUIRES(self.mutex) {
    return self.sync->TurnOf(0) != StaleSync::Turn::kWait;
  });
  const MutexLock lock(self.mutex);
  self.sync->OnBegun(0);
}

void StaleStates::Pull() {
  const at::NoGradGuard no_grad;
  at::Tensor flat = Empty(elements_, model_dtype_);
  if (IsFirst()) AwaitOwnTurn();
  for (int server = 0; server < servers_; ++server) {
    at::Tensor part = PartOf(flat, server);
    if (server == group_.rank()) {
      Server& self = *server_;
      const MutexLock lock(self.mutex);
      self.ThrowIfFailed();
      part.copy_(self.weights);
      continue;
    }
    const Answer answer =
        ExchangeWith(server, "waiting for parameters of", [&](const ProcessGroup& connection) {
          Ask(connection, Request::kPull, step_ + 1);
          Answer heard = ReceiveAnswer(connection);
          while (heard == Answer::kWait) {
            ReportWaiting();
            heard = ReceiveAnswer(connection);
          }
          if (heard == Answer::kGo) connection.Recv(part, kServer);
          return heard;
        });
    if (server == 0 && answer == Answer::kStop) {
      has_left_ = true;
      for (int other = 1; other < servers_; ++other) Ask(ToServer(other), Request::kLeave, step_);
      throw TrainError(ExitCode::kPreempted, "stopped after step " + std::to_string(step_) +
                                                 ", as rank 0 has; its log has the reason");
    }
    Expect(answer, Answer::kGo, server);
  }
  SetModel(flat);
  pulled_ = true;
}

void StaleStates::PushTo(int server, const at::Tensor& message) {
  const int64_t step = step_ + 1;
  if (server == group_.rank()) {
    Server& self = *server_;
    const MutexLock lock(self.mutex);
    self.ThrowIfFailed();
    if (message.defined()) self.Apply(message, step);
    self.Made(server, step);
    return;
  }
  ExchangeWith(server, "sending gradients to", [&](const ProcessGroup& connection) {
    Ask(connection, message.defined() ? Request::kPush : Request::kMade, step);
    if (message.defined()) connection.Send(message, kServer);
    if (server != 0) Expect(ReceiveAnswer(connection), Answer::kTaken, server);
  });
}

// Pushes the gradients to all servers, rank 0 last, so that every server has made each step that
// rank 0 counts.
void StaleStates::PushGradients(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  at::Tensor message;
  if (!gradients.empty()) {
    std::vector<at::Tensor> flat = {Empty(0, message_dtype_)};
    for (size_t i = 0; i < gradients.size(); ++i) {
      flat.push_back(gradients[i].defined()
                         ? gradients[i].flatten().to(message_dtype_)
                         : Empty(parameters_[i].tensor.numel(), message_dtype_).zero_());
    }
    message = at::cat(flat);
  }
  for (int server = servers_ - 1; server >= 0; --server) {
    PushTo(server, message.defined() ? PartOf(message, server) : at::Tensor());
  }
  ++step_;
  pulled_ = false;
}

void StaleStates::HoldAfter(int64_t step) {
  resting_ = false;
  Server& self = *server_;
  const MutexLock lock(self.mutex);
  if (IsFirst()) self.sync->HoldAfter(step);
  self.rested = rests_;
  self.changed.NotifyAll();
}

void StaleStates::Meet(int64_t step) {
  if (IsFirst()) {
    Server& self = *server_;
    Await("the end of step " + std::to_string(step),
          [&self, step]() DSL_REQUIRES(self.mutex) { return self.sync->AllMade(step); });
  }
  Rest();
}

void StaleStates::Pause() {
  if (IsFirst()) {
    Server& self = *server_;
    {
      const MutexLock lock(self.mutex);
      self.sync->HoldAfter(0);
    }
    Await("the end of its step",
          [&self]() DSL_REQUIRES(self.mutex) { return self.sync->NoRankInStep(); });
  }
  Rest();
}

void StaleStates::CopyMasterToModel() { GatherModel(group_); }

void StaleStates::GatherModel(const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  at::Tensor flat = Empty(elements_, model_dtype_);
  for (int server = 0; server < servers_; ++server) {
    at::Tensor part = PartOf(flat, server);
    if (server == group_.rank()) {
      Server& self = *server_;
      const MutexLock lock(self.mutex);
      part.copy_(self.weights);
    }
    group.Broadcast(part, server);
  }
  SetModel(flat);
}

// Begins a rest: until HoldAfter or Leave, the other servers expect no request of this rank, even
// while it waits in the broadcast from rank 0. That broadcast completes only after all updates. All
// servers number their rests alike.
void StaleStates::Rest() {
  if (!std::exchange(resting_, true)) {
    ++rests_;
    AskOtherServers(Request::kRest);
  }
  GatherModel(*servers_group_);
  if (options_.broadcast_buffers) BroadcastFromRank0(*servers_group_, buffers_);
}

std::vector<int> StaleStates::Leave() {
  if (server_) {
    Server& self = *server_;
    const MutexLock lock(self.mutex);
    if (self.sync) self.sync->Stop();
    if (self.sync) self.sync->OnLeft(0);
    self.rested = rests_;
    self.changed.NotifyAll();
  }
  AskOtherServers(Request::kLeave);
  has_left_ = true;
  if (!server_) return {};
  std::vector<int> lost;
  {
    Server& self = *server_;
    Await("the end of training", [&self]() DSL_REQUIRES(self.mutex) { return self.serving == 0; });
    const MutexLock lock(self.mutex);
    self.closed = true;
    if (self.sync) lost = self.sync->lost();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return lost;
}

}  // namespace dslaunch
