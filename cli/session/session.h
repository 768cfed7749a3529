// Runs one job at the front end: connects to all nodes in parallel, starts the job, shows its
// output and ends it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log/log_file.h"
#include "cli/output/job_output.h"
#include "cli/session/event_log.h"
#include "cli/session/node_client.h"
#include "cli/session/node_connector.h"
#include "cli/session/progress_file.h"
#include "cli/session/session_core.h"
#include "cli/session/session_options.h"
#include "cli/session/stdin_forwarder.h"
#include "cli/transport/transport.h"
#include "net/certificate_authority.h"
#include "net/loop_poster.h"

namespace dslaunch {

// The edge of a SessionCore, which decides everything: carries its actions out on nodes, terminal
// and timers, and tells it what comes of them. Runs on the caller's thread. Nodes are reached and
// their ends awaited by threads of their own, which own what they use: an interrupted session does
// not wait for hosts that never answer. Destroying a session ends what still runs on its nodes,
// unless it was detached; a link may take a moment for that.
class LaunchSession {
 public:
  // The terminal outlives the session; the transport what still uses it.
  LaunchSession(SessionOptions options, std::shared_ptr<Transport> transport, Terminal& terminal);
  ~LaunchSession();
  LaunchSession(const LaunchSession&) = delete;

  // Once. Blocks until the job has ended and every node confirmed its teardown, or until the
  // bounded wait for that is over. Returns the exit code; everything a user must know has been
  // shown. With `detach` it returns 0 as soon as every worker of every node is started.
  int Run();

  // The job continues; its end is not known.
  bool detached() const { return detached_; }

  // How the job ended, in one line. After Run.
  const std::string& final_status() const { return final_status_; }

  // Shows the user a line while Run runs; later it does nothing. May be called from any thread, and
  // when the session is gone.
  std::function<void(const std::string& text)> Teller();

 private:
  // An io_context's timers, one for each of the core's.
  using Timers = std::map<SessionTimer, asio::steady_timer>;

  // Events of the nodes and the user.
  void AwaitSignals();
  void ForwardStdin();
  void ShowStdinNotice();
  // Rank 0 reads our stdin from its start to its end.
  void FollowRank0(size_t index, const pb::NodeEvent& event);
  void OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link);
  void OnEvent(size_t index, const pb::NodeEvent& event);
  // What a node may say.
  PeerLimits LimitsOf(size_t index) const;
  SessionCore::Actions OnTimer(SessionTimer timer, Clock::time_point now);
  // What the node is to have, then Prepare; `answer` gets what comes of it.
  void CopyAndPrepare(size_t index, pb::PrepareRequest request,
                      std::function<void(const Result<pb::PreparedNode>&)> answer);
  Result<pb::PrepareRequest> WithCredentials(size_t index, pb::PrepareRequest request);
  // Handlers are of a connection that may have been followed by a newer one meanwhile.
  bool IsNewest(size_t index, const NodeClient* client) const {
    return clients_[index].get() == client;
  }

  // Carries the core's actions out, in order.
  void Carry(SessionCore::Actions actions);
  void Do(const action::Log& say) { Log(say.level, say.text); }
  void Do(const action::Record& record);
  void SetPhase(const std::string& phase) {
    if (ShouldPrint(LogLevel::kInfo)) output_.SetPhase(phase);
  }
  void Do(const action::ShowRanks& show) { output_.SetShownRanks(show.ranks); }
  void Do(const action::Connect& connect);
  void Do(const action::StopConnecting&) { connector_.Stop(); }
  void Do(action::Prepare& prepare);
  void Do(action::Run& run);
  void Do(const action::Renew& renew);
  void Do(const action::Failover& failover);
  void Do(const action::Stop& stop) { clients_[stop.node]->Stop(stop.cause, stop.kill_now); }
  void Do(const action::Signal& signal) { clients_[signal.node]->Signal(signal.signal_number); }
  void Do(const action::Detach& detach);
  void Do(const action::Goodbye& goodbye) { clients_[goodbye.node]->SayGoodbye(); }
  void Do(const action::Abort& abort) { clients_[abort.node]->Abort(abort.why); }
  void Do(const action::AwaitEnd& await);
  void Do(const action::DropOutput&);
  void Do(const action::SetTimer& set);
  void Do(const action::Finish&) { loop_.stop(); }

  void OpenLog();

  // The end (session_end.cc).
  int Conclude();
  std::string Cancellation() const;
  void CloseLinks();
  int ReportDetached();
  void Report(const JobEnd& end, bool show);

  bool ShouldPrint(LogLevel level) const { return level <= options_.log_level; }
  // To the log file, and to the terminal if its level is shown there.
  void Log(LogLevel level, const std::string& text) {
    log_.Write(level, text);
    if (ShouldPrint(level)) output_.PrintMessage("dslaunch: " + text);
  }
  const std::string& NameOf(size_t index) const { return core_.names()[index]; }

  const SessionOptions options_;
  const Clock::time_point started_at_ = Clock::now();
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  SessionCore core_;
  NodeConnector connector_;
  JobOutput output_;
  std::optional<StdinForwarder> stdin_;     // where rank 0 reads ours
  std::optional<StdinWatch> unread_stdin_;  // where there is a notice, and no rank reads it
  bool stdin_noticed_ = false;
  size_t stdin_node_ = 0;  // rank 0's
  LogFile log_;
  ProgressFile progress_;
  EventLog events_;  // may complain to log_ from its constructor on
  asio::signal_set signals_;
  Timers timers_;
  std::optional<CertificateAuthority> authority_;
  std::vector<std::unique_ptr<NodeClient>> clients_;       // by node, the newest; null: none yet
  bool way_noticed_ = false;                               // NodeLink::Notice was shown
  std::vector<std::unique_ptr<NodeClient>> past_clients_;  // of nodes that were reached again
  bool detached_ = false;
  std::string final_status_;
};

}  // namespace dslaunch
