// Implements an asynchronous parameter server among the ranks: servers update parameters as
// gradients arrive.
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

// Holds the model states of a rank that trains with stale gradients. Before each step a rank pulls
// the current parameters from each server. After the step it pushes its own gradients, with which
// each server immediately makes an update. A rank has a separate connection to each server, where a
// thread answers its requests. Rank 0 decides which rank may begin a step (stale_sync.h). A rank
// asks rank 0 before the other servers, and reports a step to rank 0 after the other servers have
// confirmed it. All servers have therefore made every step that rank 0 counts.
class StaleStates : public ServerStates, public StaleTraining {
 public:
  // Throws TrainError kBadInput if the ranks compute on GPUs. Otherwise connects to the servers.
  StaleStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
              Passes passes);
  // Stops serving requests. Unlike Leave, it does not wait for other ranks.
  ~StaleStates() override;

  // Begins a pass. The first training pass of a step pulls the parameters. Throws TrainError
  // kPreempted if rank 0 answers that there is no next step.
  void Begin(Pass pass) override;
  void End() override;
  std::vector<at::Tensor> Gradients() override;  // returns the gradients of this rank only
  // Copies the servers' parameters to the models of all ranks. Called only before training, because
  // later the next pull fetches the parameters.
  void CopyMasterToModel() override;
  void Clear() override { local_.Clear(); }

  // Updates this server's parts() with `gradients`, which a rank has sent in its step `step`.
  using Update = std::function<void(std::vector<at::Tensor> gradients, int64_t step)>;
  // Makes a server call `update` for each update, on the server's threads. Null ends the updates.
  // Does nothing on a rank that is not a server.
  void UpdateBy(Update update);
  // Runs `action` while no update is running.
  void WithoutUpdates(const std::function<void()>& action);
  // Ends this rank's step by sending its gradients of all trained parameters to the servers. An
  // undefined gradient counts as zeros. If `gradients` is empty, the step makes no update.
  void PushGradients(const std::vector<at::Tensor>& gradients);
  void SetSteps(int64_t steps);  // sets the number of steps that this rank has made

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
  // Returns exchange(connection to `server`). Adds `what` and the server's rank to exceptions.
  template <class Exchange>
  auto ExchangeWith(int server, const std::string& what, Exchange exchange);
  // Sends `request` to all servers with ranks from `first`, except to this rank.
  void AskOtherServers(Request request, int first = 0);
  // Notifies all servers except rank 0 that this rank still waits for rank 0.
  void ReportWaiting();
  std::chrono::milliseconds LongTimeout() const;
  // Waits on a server until `condition`, which reads the state that the server's threads share, is
  // true. Throws PeerLate after LongTimeout().
  void Await(const std::string& what, const std::function<bool()>& condition);

  ProcessGroup& ToServer(int server) { return *to_server_[static_cast<size_t>(server)]; }
  bool IsFirst() const { return group_.rank() == 0; }
  void Pull();
  void AwaitOwnTurn();
  void PushTo(int server, const at::Tensor& message);
  void GatherModel(const ProcessGroup& group);
  void Rest();

  // Group of all servers; nullopt on a rank that is not a server.
  std::optional<ProcessGroup> servers_group_;
  // Connections by server; nullopt for this rank.
  std::vector<std::optional<ProcessGroup>> to_server_;
  int64_t step_ = 0;       // last step that this rank completed
  bool pulled_ = false;    // true if the parameters of the next step were pulled
  bool has_left_ = false;  // true if rank 0 expects no more messages from this rank
  int64_t staleness_ = 0;
  bool resting_ = false;  // true on a server from Meet or Pause to the next HoldAfter
  int64_t rests_ = 0;     // number of times that `resting_` has become true
  // The state that a server's threads share; null on other ranks. The threads may outlive this
  // object if an exception ends the run.
  std::shared_ptr<Server> server_;
  std::vector<std::thread> threads_;
};

}  // namespace dslaunch
