// Implements the base of tests of the Coordinator: makes the agents' messages, and controls the
// clock.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"
#include "rendezvous/coordinator.h"

namespace dslaunch {

// A fixture with a job whose nodes have two slots each. The first node hosts the rendezvous. The
// session of node i is i+1 unless sessions_ has another session for the node.
class CoordinatorFixture : public ::testing::Test {
 protected:
  using Case = pb::RendezvousMessage;

  static CoordinatorOptions NodesOf(const std::vector<std::string>& names) {
    CoordinatorOptions options;
    options.job_id = "job";
    for (const std::string& name : names) {
      pb::Node node;
      node.set_name(name);
      node.set_slots(2);
      options.nodes.push_back(node);
    }
    options.timeouts.set_join_ms(30'000);
    options.timeouts.set_ready_ms(20'000);
    options.timeouts.set_grace_ms(10'000);
    options.timeouts.set_teardown_ms(5'000);
    options.timeouts.set_dead_ms(6'000);
    return options;
  }
  explicit CoordinatorFixture(const CoordinatorOptions& options) { Begin(options); }
  // Starts a new job with its own Coordinator.
  void Begin(const CoordinatorOptions& options) {
    coordinator_ = std::make_unique<Coordinator>(options, now_);
  }

  pb::AgentMessage From(uint32_t node) const {
    pb::AgentMessage message;
    message.set_job_id("job");
    message.set_node_index(node);
    message.set_attempt(coordinator_->attempt());
    return message;
  }
  std::vector<Outgoing> Log(const pb::AgentMessage& message) {
    const uint32_t node = message.node_index();
    const auto other = sessions_.find(node);
    return coordinator_->OnMessage(other == sessions_.end() ? node + 1 : other->second, message,
                                   now_);
  }
  std::vector<Outgoing> Join(uint32_t node) {
    pb::AgentMessage message = From(node);
    pb::Join& join = *message.mutable_join();
    join.set_slots(2);
    join.set_identity("machine" + std::to_string(node));
    join.set_master_port(29'500 + node);
    if (node > 0) {
      join.set_reached_at("10.0.0.1");
      join.set_address("10.0.0." + std::to_string(node + 1));
    }
    return Log(message);
  }
  std::vector<Outgoing> Rejoin(uint32_t node, SessionId session) {
    sessions_[node] = session;
    return Join(node);
  }
  std::vector<Outgoing> Ready(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_ready();
    return Log(message);
  }
  std::vector<Outgoing> Finished(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_finished();
    return Log(message);
  }
  std::vector<Outgoing> TornDown(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_torn_down();
    return Log(message);
  }
  std::vector<Outgoing> Drained(uint32_t node, uint32_t port = 0, const std::string& unfit = "") {
    pb::AgentMessage message = From(node);
    message.mutable_drained()->set_master_port(port);
    message.mutable_drained()->set_unfit(unfit);
    return Log(message);
  }
  // Reports the failure of a rank. `step` is the newest step of both ranks of the node; 0 if they
  // report no steps.
  std::vector<Outgoing> Failed(uint32_t node, int rank, int exit_code, bool victim = false,
                               bool while_stopping = false, uint64_t step = 0) {
    pb::AgentMessage message = From(node);
    pb::Cause& cause = *message.mutable_worker_failed()->mutable_cause();
    cause = MakeCause(pb::Cause::WORKER_EXIT, node, ExitCode::kInternal, "");
    cause.set_rank(rank);
    cause.set_exit_code(exit_code);
    cause.set_victim(victim);
    cause.set_while_stopping(while_stopping);
    AddSteps(node, step, *message.mutable_worker_failed()->mutable_ranks());
    return Log(message);
  }
  std::vector<Outgoing> Killed(uint32_t node, int rank, bool tolerated) {
    pb::AgentMessage message = From(node);
    message.mutable_worker_failed()->set_tolerated(tolerated);
    pb::Cause& cause = *message.mutable_worker_failed()->mutable_cause();
    cause = MakeCause(pb::Cause::WORKER_SIGNAL, node, ExitCode::kInternal, "");
    cause.set_rank(rank);
    cause.set_signal(9);
    cause.set_exit_code(137);
    return Log(message);
  }
  std::vector<Outgoing> ReportLost(uint32_t node, uint32_t rank) {
    pb::AgentMessage message = From(node);
    message.mutable_rank_lost()->set_rank(rank);
    return Log(message);
  }
  std::vector<Outgoing> BeginsMpi(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_mpi_begun();
    return Log(message);
  }
  std::vector<Outgoing> StopJob(uint32_t node, pb::Cause::Kind kind) {
    pb::AgentMessage message = From(node);
    *message.mutable_stop()->mutable_cause() = MakeCause(kind, node, ExitCode::kUnavailable, "why");
    return Log(message);
  }
  std::vector<Outgoing> FrontEndBreaksOff(uint32_t node, bool is_broken = true) {
    pb::AgentMessage message = From(node);
    message.mutable_front_end_connection()->set_is_broken(is_broken);
    return Log(message);
  }
  // Sends a heartbeat in which both ranks are at `step`; without progress if `step` is 0.
  std::vector<Outgoing> Beat(uint32_t node, uint64_t step = 0) {
    pb::AgentMessage message = From(node);
    message.mutable_heartbeat()->set_sent_us(42);
    AddSteps(node, step, *message.mutable_heartbeat()->mutable_ranks());
    return Log(message);
  }
  std::vector<Outgoing> Vanish(uint32_t node) { return coordinator_->OnDisconnect(node + 1, now_); }
  void Pass(int ms) { now_ += milliseconds(ms); }

  // Returns the first message of this kind to the node; an empty message if there is none.
  static Case To(uint32_t node, const std::vector<Outgoing>& out, Case::MessageCase kind) {
    for (const Outgoing& one : out) {
      if (one.session == node + 1 && one.message.message_case() == kind) return one.message;
    }
    return {};
  }

  // Adds the progress of both ranks of a node to `ranks`; adds nothing if `step` is 0.
  static void AddSteps(uint32_t node, uint64_t step,
                       google::protobuf::RepeatedPtrField<pb::RankProgress>& ranks) {
    for (uint32_t local = 0; step > 0 && local < 2; ++local) {
      pb::RankProgress& rank = *ranks.Add();
      rank.set_rank(2 * node + local);
      rank.set_step(step);
      rank.set_median_step_us(1'000'000);
    }
  }

  Clock::time_point now_{};
  std::map<uint32_t, SessionId> sessions_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace dslaunch
