// A parameter server among the ranks, asynchronous: servers update as gradients come.
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

// Before each step a rank pulls the parameters as they are from each server, after it pushes its
// own gradients, and each server makes an update of them at once. Every rank has a connection of
// its own to each server, where a thread answers it. Rank 0 decides who may begin a step
// (stale_sync.h): ranks ask it first, and tell it last that a step is made, when the other servers
// have confirmed theirs; so what it knows of a step holds for all servers.
class StaleStates : public ServerStates, public StaleTraining {
 public:
  // Throws kBadInput on GPUs.
  StaleStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
              Passes passes);
  // Does not wait for other ranks: Leave does.
  ~StaleStates() override;

  // The first training pass of a step pulls. Throws kPreempted where rank 0 says that there is no
  // next step.
  void Begin(Pass pass) override;
  void End() override;
  std::vector<at::Tensor> Gradients() override;  // of each trained parameter, this rank's own
  // Before training; later parameters come with the next pull.
  void CopyMasterToModel() override;
  void Clear() override { local_.Clear(); }

  // Makes an update of this server's parts() by `gradients`, which rank that is in `step` has sent.
  using Update = std::function<void(std::vector<at::Tensor> gradients, int64_t step)>;
  // From now on a server makes updates by `update`, on threads of its own; null: no more. Does
  // nothing on a rank that is not a server.
  void UpdateBy(Update update);
  // Runs `action` while no update runs.
  void WithoutUpdates(const std::function<void()>& action);
  // Ends this rank's step: sends its own gradients, of all trained parameters, to the servers; a
  // parameter whose gradient is undefined counts with zeros. Without any the step makes no update.
  void PushGradients(const std::vector<at::Tensor>& gradients);
  void SetSteps(int64_t steps);  // that are over

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
  // exchange(connection), with an error that names the server.
  template <class Exchange>
  auto ExchangeWith(int server, const std::string& what, Exchange exchange);
  // All servers from rank `first` on but this rank.
  void AskOtherServers(Request request, int first = 0);
  void SayThatThisRankWaits();  // to all servers but rank 0, which knows
  std::chrono::milliseconds LongTimeout() const;
  // Of a server: until `condition` of what its threads share holds. Throws PeerLate.
  void Await(const std::string& what, const std::function<bool()>& condition);

  ProcessGroup& ToServer(int server) { return *to_server_[static_cast<size_t>(server)]; }
  bool IsFirst() const { return group_.rank() == 0; }
  void Pull();
  void AwaitOwnTurn();
  void PushTo(int server, const at::Tensor& message);
  void GatherModel(const ProcessGroup& group);
  void Rest();

  std::optional<ProcessGroup> servers_group_;           // of a server
  std::vector<std::optional<ProcessGroup>> to_server_;  // by server; none to itself
  int64_t step_ = 0;                                    // the last that this rank has made
  bool pulled_ = false;                                 // for the next one
  bool has_left_ = false;                               // rank 0 expects nothing more of it
  int64_t staleness_ = 0;
  // Of a server, between Meet or Pause and HoldAfter: whether, and how often so far.
  bool resting_ = false;
  int64_t rests_ = 0;
  // Of a server: what its threads share, which may outlive this where an exception ends the run.
  std::shared_ptr<Server> server_;
  std::vector<std::thread> threads_;
};

}  // namespace dslaunch
