// Stands in for the dslaunch-agent of a compromised node: sends the hello line, accepts any job,
// and then sends invalid reports. HOSTILE_AGENT in the environment selects the reports: "failure-0"
// and "failure-256" (a failed rank with that exit code), "prepare-0" (a failure to prepare with
// exit code 0), "success" (success of ranks that were never started), "notices" and "events" (8 GB
// of notices or events).
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/os/build_id.h"
#include "proto/wire/cause.h"
#include "tests/support/scripted_nodes.h"

namespace dslaunch {
namespace {

constexpr int kEvents = 8'000;
constexpr size_t kEventBytes = 1 << 20;

pb::NodeEvent Started() {
  pb::NodeEvent event;
  event.mutable_started()->set_attempt(1);
  event.mutable_started()->set_world_size(1);
  event.mutable_started()->add_pids(4'711);
  return event;
}

pb::NodeEvent Outcome(int exit_code) {
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(1);
  pb::Cause& cause = *event.mutable_outcome()->mutable_cause();
  cause = MakeCause(pb::Cause::WORKER_EXIT, 0, ExitCode::kInternal, "");
  cause.set_rank(0);
  cause.set_exit_code(exit_code);
  return event;
}

pb::NodeEvent Done() {
  pb::NodeEvent event;
  event.mutable_done()->set_completed(true);
  event.mutable_done()->set_teardown_complete(true);
  return event;
}

void Act(const std::string& part, AgentScript& agent) {
  agent.Send(Started());
  if (part.starts_with("failure-")) {
    agent.Send(Outcome(std::stoi(part.substr(part.find('-') + 1))));
    return agent.Send(Done());
  }
  if (part == "success") {
    pb::NodeEvent outcome;
    outcome.mutable_outcome()->set_attempt(1);
    agent.Send(outcome);
    return agent.Send(Done());
  }
  pb::NodeEvent event;
  for (int i = 0; i < kEvents; ++i) {
    if (part == "notices") {
      event.mutable_notice()->set_message(std::string(kEventBytes, 'x'));
    } else {
      event.mutable_worker_ended()->set_attempt(1);
      event.mutable_worker_ended()->set_last_lines(std::string(kEventBytes, 'x'));
    }
    if (!agent.TrySend(event)) return;
  }
}

int Serve(const std::string& part) {
  ScriptedNode node({[&](AgentScript& agent) { Act(part, agent); }});
  if (part == "prepare-0") {
    pb::PrepareReply reply;
    reply.mutable_failure()->set_exit_code(0);
    node.SetPrepareReply(reply);
  }
  node.NextAttempt();
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&node);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ServeFd(*server, UniqueFd(::dup(STDIN_FILENO)));
  pollfd front_end = {.fd = STDIN_FILENO, .events = POLLRDHUP, .revents = 0};
  ::poll(&front_end, 1, /*timeout=*/60'000);
  _exit(0);
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const char* part = std::getenv("HOSTILE_AGENT");
  if (argc != 4 || std::string(argv[1]) != "supervisor" || part == nullptr) return 64;
  const std::string hello = dslaunch::FormatHello(argv[3], dslaunch::OwnBuildId());
  if (::write(STDOUT_FILENO, hello.data(), hello.size()) < 0) return 1;
  return dslaunch::Serve(part);
}
