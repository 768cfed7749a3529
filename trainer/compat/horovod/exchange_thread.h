// Runs the thread of a rank that exchanges submitted tensors. The threads of all ranks first agree
// on which tensors to exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "dslaunch/error.h"
#include "dslaunch/horovod.h"
#include "dslaunch/process_group.h"
#include "trainer/compat/horovod/negotiation.h"
#include "trainer/compat/horovod/timeline.h"

namespace dslaunch::horovod {

// A submitted request and its results. Thread-safe.
struct Handle::State {
  Request request;
  // Tensors that are exchanged in place, which are contiguous (kAllreduce and kBroadcast); for
  // other kinds, the input.
  std::vector<at::Tensor> tensors;
  // For each tensor in `tensors`, the tensor to which the result is also copied and cast, because
  // the submitted tensor was not contiguous or was sent in another dtype. Undefined if no copy is
  // needed.
  std::vector<at::Tensor> targets;
  std::chrono::steady_clock::time_point submitted;

  Mutex mutex;
  CondVar changed;
  bool done DSL_GUARDED_BY(mutex) = false;
  std::optional<TrainError> error DSL_GUARDED_BY(mutex);
  std::vector<at::Tensor> results DSL_GUARDED_BY(mutex);
  std::vector<int64_t> received_splits DSL_GUARDED_BY(mutex);

  void Finish(std::vector<at::Tensor> values, std::vector<int64_t> splits = {});
  void Fail(const TrainError& why);
  bool IsDone();
  // Waits for the results and returns them, or throws the error. The thread ends pending requests
  // after InitOptions::stall_shutdown, so every wait ends.
  std::vector<at::Tensor> Wait();
};

// Exchanges the tensors of one set of ranks. There is one object for all ranks, and one for each
// process set. Before Stop(), only its thread uses the group.
class ExchangeThread {
 public:
  // Starts the thread. `options` must be equal on all ranks. `ranks` has the job's ranks by rank in
  // the group, for messages. `timeline` is null except on rank 0, and must outlive this object.
  ExchangeThread(const ProcessGroup& group, const InitOptions& options, std::vector<int> ranks,
                 Timeline* timeline);
  // Calls Stop().
  ~ExchangeThread();
  ExchangeThread(const ExchangeThread&) = delete;
  ExchangeThread& operator=(const ExchangeThread&) = delete;

  // Adds a request to the next cycle. Throws TrainError kUsage while another request with this name
  // is pending. Also throws the error that ended the thread. Thread-safe.
  void Submit(std::shared_ptr<Handle::State> state);
  // Waits until all ranks have joined, and returns the rank (in the group) that joined last. Call
  // it on one thread at a time.
  int Join();
  // Notifies the other ranks that this rank leaves, which also ends their threads, and ends this
  // thread.
  void Stop();
  // Returns whether the exchange failed, so that other ranks may be lost. Call it after Stop().
  bool Failed();

 private:
  void Run();
  bool Cycle();  // runs one cycle; returns false if it was the last one
  RankMessage Collect();
  std::vector<RankMessage> ExchangeMessages(const RankMessage& own);
  void ReportStalls();
  void Execute(const std::vector<Response>& responses);
  void Reduce(const std::vector<Response>& responses, const std::vector<Piece>& pieces);
  void Gather(const Response& response, const std::shared_ptr<Handle::State>& state);
  void Scatter(const Response& response, const std::shared_ptr<Handle::State>& state);
  std::shared_ptr<Handle::State> Take(const std::string& name);
  void End(const TrainError& why);

  const ProcessGroup& group_;
  const InitOptions options_;
  const std::vector<int> ranks_;
  Timeline* const timeline_;
  Negotiation negotiation_;
  std::map<std::string, std::chrono::steady_clock::time_point> warned_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Handle::State>> new_ DSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Handle::State>> under_way_ DSL_GUARDED_BY(mutex_);
  bool joined_ DSL_GUARDED_BY(mutex_) = false;
  std::optional<int> last_joined_ DSL_GUARDED_BY(mutex_);
  bool leaving_ DSL_GUARDED_BY(mutex_) = false;
  std::optional<TrainError> end_ DSL_GUARDED_BY(mutex_);
  bool failed_ DSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace dslaunch::horovod
