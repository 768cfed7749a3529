// A parameter server among the ranks, asynchronous: servers update as gradients arrive.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "trainer/parallel/server/server_states.h"
#include "trainer/parallel/server/stale_sync.h"
#include "trainer/parallel/stale_training.h"

namespace dslaunch {

// Before each step a rank pulls the current parameters from each server. After the step it pushes
// its own gradients, with which each server makes an update at once. A rank has a connection of its
// own to each server, where a thread answers it. Rank 0 decides which rank may begin a step
// (stale_sync.h): a rank asks rank 0 before it asks the other servers, and reports a step to rank 0
// after they have confirmed it. So all servers have made every step that rank 0 counts as made.
class StaleStates : public ServerStates, public StaleTraining {
 public:
  // Throws kBadInput on GPUs.
  StaleStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
              Passes passes);
  // Does not wait for other ranks, unlike Leave.
  ~StaleStates() override;

  // The first training pass of a step pulls. Throws kPreempted if rank 0 answers that there is no
  // next step.
  void Begin(Pass pass) override;
  void End() override;
  std::vector<at::Tensor> Gradients() override;  // gradients of this rank alone
  // Called before training only; later the next pull fetches the parameters.
  void CopyMasterToModel() override;
  void Clear() override { local_.Clear(); }

  // Makes an update of this server's parts() with `gradients`, which a rank has sent in its step
  // `step`.
  using Update = std::function<void(std::vector<at::Tensor> gradients, int64_t step)>;
  // From now on a server makes updates by calling `update`, on threads of its own; null ends the
  // updates. Does nothing on a rank that is not a server.
  void UpdateBy(Update update);
  // Runs `action` while no update runs.
  void WithoutUpdates(const std::function<void()>& action);
  // Ends this rank's step: sends its gradients of all trained parameters to the servers. An
  // undefined gradient counts as zeros. If all are undefined, the step makes no update.
  void PushGradients(const std::vector<at::Tensor>& gradients);
  void SetSteps(int64_t steps);  // number of steps made so far

  bool is_server() const override { return group_.rank() < servers_; }
  ProcessGroup& group() override { return servers_group_ ? *servers_group_ : local_.self(); }
  void HoldAfter(int64_t step) override;
  void Meet(int64_t step) override;
  void Pause() override;
  std::vector<int> Leave() override;
  void Fail() override;

 private:
  struct Server;
  enum class Request : int64_t;

  static void Ask(const ProcessGroup& connection, Request request, int64_t step);
  // Returns exchange(connection). Adds the server's name to errors.
  template <class Exchange>
  auto ExchangeWith(int server, const std::string& what, Exchange exchange);
  // Sends `request` to all servers from rank `first` on, except to this rank.
  void AskOtherServers(Request request, int first = 0);
  void ReportWaiting();  // sent to all servers except rank 0, which knows
  std::chrono::milliseconds LongTimeout() const;
  // On a server: waits until `condition`, which reads state that the server's threads share, is
  // true. Throws PeerLate.
  void Await(const std::string& what, const std::function<bool()>& condition);

  ProcessGroup& ToServer(int server) { return *to_server_[static_cast<size_t>(server)]; }
  bool IsFirst() const { return group_.rank() == 0; }
  void Pull();
  void AwaitOwnTurn();
  void PushTo(int server, const at::Tensor& message);
  void GatherModel(const ProcessGroup& group);
  void Rest();

  std::optional<ProcessGroup> servers_group_;           // nullopt if not a server
  std::vector<std::optional<ProcessGroup>> to_server_;  // connections; nullopt for this rank
  int64_t step_ = 0;                                    // last step that this rank has made
  bool pulled_ = false;    // whether the next step's parameters were pulled
  bool has_left_ = false;  // rank 0 expects no more messages of this rank
  int64_t staleness_ = 0;
  // On a server: whether it rests, which lasts from Meet or Pause to HoldAfter, and how often it
  // has rested so far.
  bool resting_ = false;
  int64_t rests_ = 0;
  // On a server: state that its threads share. They may outlive this if an exception ends the run.
  std::shared_ptr<Server> server_;
  std::vector<std::thread> threads_;
};

}  // namespace dslaunch
