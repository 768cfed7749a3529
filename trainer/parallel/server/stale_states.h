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

// Before each step a rank pulls the current parameters from each server; after it the rank pushes
// its own gradients, and each server makes an update of them at once. Every rank has its own
// connection to each server, where a thread answers it. Rank 0 decides which rank may begin a step
// (stale_sync.h): ranks ask it first, and report a step to it last, after the other servers have
// confirmed it. So a step that rank 0 knows to be made is made on all servers.
class StaleStates : public ServerStates, public StaleTraining {
 public:
  // Throws kBadInput on GPUs.
  StaleStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
              Passes passes);
  // Does not wait for other ranks, as Leave does.
  ~StaleStates() override;

  // The first training pass of a step pulls. Throws kPreempted if rank 0 answers that there is no
  // next step.
  void Begin(Pass pass) override;
  void End() override;
  std::vector<at::Tensor> Gradients() override;  // this rank's own, for each trained parameter
  // Called before training; later the next pull brings the parameters.
  void CopyMasterToModel() override;
  void Clear() override { local_.Clear(); }

  // Makes an update of this server's parts() by `gradients`, which a rank in its step `step` sent.
  using Update = std::function<void(std::vector<at::Tensor> gradients, int64_t step)>;
  // From now on a server makes updates by `update`, on threads of its own; null: updates end. Does
  // nothing on a rank that is not a server.
  void UpdateBy(Update update);
  // Runs `action` while no update runs.
  void WithoutUpdates(const std::function<void()>& action);
  // Ends this rank's step: sends its own gradients, of all trained parameters, to the servers; a
  // parameter whose gradient is undefined counts with zeros. Without any the step makes no update.
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
  // Returns exchange(connection); an error names the server.
  template <class Exchange>
  auto ExchangeWith(int server, const std::string& what, Exchange exchange);
  // Sends `request` to all servers from rank `first` on except this one.
  void AskOtherServers(Request request, int first = 0);
  void ReportWaiting();  // to all servers except rank 0, which knows
  std::chrono::milliseconds LongTimeout() const;
  // On a server: waits until `condition`, of state that its threads share, is true. Throws
  // PeerLate.
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
  bool pulled_ = false;                                 // parameters of the next step
  bool has_left_ = false;                               // rank 0 expects nothing more of it
  int64_t staleness_ = 0;
  // On a server: whether it is between Meet or Pause and HoldAfter, and how often it was so far.
  bool resting_ = false;
  int64_t rests_ = 0;
  // On a server: state that its threads share. They may outlive this if an exception ends the run.
  std::shared_ptr<Server> server_;
  std::vector<std::thread> threads_;
};

}  // namespace dslaunch
