// Implements nodes whose agents follow a script, behind the front end's Transport interface. gRPC
// is real; the agents' behaviour is scripted by the test.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/transport/transport.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/channel.h"

namespace dslaunch {

// A flag that one script sets and another can wait for. Thread-safe.
class Signpost {
 public:
  void Set() { set_ = true; }
  bool is_set() const { return set_; }

 private:
  std::atomic<bool> set_ = false;
};

// The operations that a script can use while it serves Run. Thread-safe.
class AgentScript {
 public:
  AgentScript(grpc::ServerContext& context, grpc::ServerWriter<pb::NodeEvent>& writer,
              uint32_t node_index, int connection)
      : context_(context), writer_(writer), node_index_(node_index), connection_(connection) {}

  uint32_t node_index() const { return node_index_; }

  void Send(const pb::NodeEvent& event) { writer_.Write(event); }
  // Returns false if the front end has disconnected.
  bool TrySend(const pb::NodeEvent& event) { return writer_.Write(event); }

  // Sends heartbeats for `duration`.
  void LiveFor(milliseconds duration) {
    const Deadline deadline = Deadline::After(duration);
    Live([&] { return deadline.Expired(); });
  }
  // Sends heartbeats until `signpost` is set. Returns false if this took more than 20 s.
  bool LiveUntil(const Signpost& signpost) {
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    Live([&] { return signpost.is_set() || deadline.Expired(); });
    return signpost.is_set();
  }

  // Sends nothing until the front end disconnects or 20 s have passed.
  void BeSilent() {
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    while (!context_.IsCancelled() && !deadline.Expired()) usleep(20'000);
  }

  // Breaks the connection in both directions.
  void BreakOff() { ::shutdown(connection_, SHUT_RDWR); }
  // Returns the connection's socket, valid as long as the session, so that a test can break the
  // connection after the script's end.
  int connection() const { return connection_; }

 private:
  void Live(const std::function<bool()>& is_over) {
    while (!context_.IsCancelled() && !is_over()) {
      pb::NodeEvent event;
      event.mutable_alive();
      Send(event);
      usleep(20'000);
    }
  }

  grpc::ServerContext& context_;
  grpc::ServerWriter<pb::NodeEvent>& writer_;
  const uint32_t node_index_;
  const int connection_;
};

// One scripted node, to which several connection attempts may be made. Thread-safe.
class ScriptedNode : public pb::Agent::Service {
 public:
  using Script = std::function<void(AgentScript&)>;

  // `scripts` contains one script for each connection attempt; a null script makes its attempt
  // fail. After the last script, every attempt fails.
  explicit ScriptedNode(std::vector<Script> scripts) : scripts_(std::move(scripts)) {}

  // Advances to the next attempt's script; returns false if the attempt must fail.
  bool NextAttempt() {
    const std::lock_guard lock(mutex_);
    if (attempts_ < scripts_.size()) current_ = scripts_[attempts_];
    return attempts_++ < scripts_.size() && current_;
  }
  void SetPrepareReply(const pb::PrepareReply& reply) {
    const std::lock_guard lock(mutex_);
    prepare_reply_ = reply;
  }
  void SetConnection(int fd) {
    const std::lock_guard lock(mutex_);
    connection_ = fd;
  }

  grpc::Status Prepare(grpc::ServerContext*, const pb::PrepareRequest* request,
                       pb::PrepareReply* reply) override {
    const std::lock_guard lock(mutex_);
    prepared_.push_back(*request);
    if (prepare_reply_) {
      *reply = *prepare_reply_;
      return grpc::Status::OK;
    }
    reply->mutable_info()->set_job_dir("/jobs/" + std::to_string(request->node_index()));
    reply->mutable_info()->add_rendezvous_endpoints("127.0.0.1:1");
    return grpc::Status::OK;
  }
  grpc::Status Run(grpc::ServerContext* context, const pb::RunRequest* request,
                   grpc::ServerWriter<pb::NodeEvent>* writer) override {
    Script script;
    uint32_t node_index;
    int connection;
    {
      const std::lock_guard lock(mutex_);
      ran_.push_back(*request);
      script = current_;
      node_index = prepared_.back().node_index();
      connection = connection_;
    }
    AgentScript agent(*context, *writer, node_index, connection);
    script(agent);
    return grpc::Status::OK;
  }
  grpc::Status Failover(grpc::ServerContext*, const pb::FailoverRequest* request,
                        pb::FailoverReply* reply) override {
    const std::lock_guard lock(mutex_);
    failovers_.push_back(*request);
    reply->mutable_opened()->add_rendezvous_endpoints("127.0.0.1:2");
    return grpc::Status::OK;
  }
  grpc::Status Stop(grpc::ServerContext*, const pb::StopRequest*, pb::Empty*) override {
    return grpc::Status::OK;
  }

  std::vector<pb::PrepareRequest> prepared() const {
    const std::lock_guard lock(mutex_);
    return prepared_;
  }
  std::vector<pb::RunRequest> ran() const {
    const std::lock_guard lock(mutex_);
    return ran_;
  }
  std::vector<pb::FailoverRequest> failed_over() const {
    const std::lock_guard lock(mutex_);
    return failovers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Script> scripts_;
  size_t attempts_ = 0;
  Script current_;
  int connection_ = -1;  // socket of the latest attempt; owned by its link
  std::optional<pb::PrepareReply> prepare_reply_;
  std::vector<pb::PrepareRequest> prepared_;
  std::vector<pb::RunRequest> ran_;
  std::vector<pb::FailoverRequest> failovers_;
};

class ScriptedLink : public NodeLink {
 public:
  ScriptedLink(ScriptedNode& node, bool is_seen_to_end) : is_seen_to_end_(is_seen_to_end) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    ours_ = UniqueFd(ends[0]);
    watchdog_ = UniqueFd(::dup(ends[0]));
    node.SetConnection(watchdog_.get());
    grpc::ServerBuilder builder;
    SetCommonServerOptions(builder);
    builder.RegisterService(&node);
    server_ = builder.BuildAndStart();
    ServeFd(*server_, UniqueFd(ends[1]));
  }

  UniqueFd TakeFd() override { return std::move(ours_); }
  void Abort(const std::string&) override { ::shutdown(watchdog_.get(), SHUT_RDWR); }
  bool WaitEnd(Deadline) override { return is_seen_to_end_; }
  std::string StderrTail() const override { return ""; }
  std::string Address() const override { return "127.0.0.1"; }

 private:
  const bool is_seen_to_end_;
  UniqueFd ours_;
  UniqueFd watchdog_;
  std::unique_ptr<grpc::Server> server_;
};

class ScriptedTransport : public Transport {
 public:
  void Add(const std::string& name, std::vector<ScriptedNode::Script> scripts) {
    nodes_.emplace(name, std::make_unique<ScriptedNode>(std::move(scripts)));
  }
  // Sets the node's reply to every later Prepare.
  void SetPrepareReply(const std::string& name, const pb::PrepareReply& reply) {
    nodes_.at(name)->SetPrepareReply(reply);
  }
  const ScriptedNode& node(const std::string& name) const { return *nodes_.at(name); }
  // Makes connections to the node end without a report that its supervisor has ended.
  void HideEndsOf(const std::string& name) { hidden_.insert(name); }

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline) override {
    ScriptedNode& node = *nodes_.at(target.name);
    if (!node.NextAttempt()) {
      return Error{ExitCode::kUnavailable, "node '" + target.name + "': no route to host"};
    }
    return std::unique_ptr<NodeLink>(
        std::make_unique<ScriptedLink>(node, !hidden_.contains(target.name)));
  }

 private:
  std::map<std::string, std::unique_ptr<ScriptedNode>> nodes_;
  std::set<std::string> hidden_;
};

}  // namespace dslaunch
