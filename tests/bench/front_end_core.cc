// Simulates what the front end of a job of N nodes computes and sends, without a network. The nodes
// are healthy: they are reached and prepared, run, and report until the end. Every request is
// serialized as if there were a network. Prints one JSON object: for each step the microseconds of
// computing per node, the bytes of the requests per node, and the peak memory of the process.
//
//   dslaunch-bench-front-end-core NODES [unlike]
//
// unlike: the names of nodes have nothing in common, as in some clouds.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "cli/core/session_core.h"
#include "cli/session/event_log.h"
#include "cli/session/job_summary.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

std::string NameOf(uint32_t node, bool unlike) {
  if (!unlike) return "node" + std::to_string(node + 1) + ".cluster.example.com";
  // Uses the low bits of a multiplicative hash, which are distinct and unordered.
  char name[32];
  std::snprintf(name, sizeof name, "i-%08x", (node + 1) * 2'654'435'761u);
  return name;
}

class Job {
 public:
  Job(uint32_t nodes, bool unlike, const std::string& folder) : nodes_(nodes) {
    for (uint32_t i = 0; i < nodes; ++i) {
      Host& node = options_.plan.nodes.emplace_back();
      node.name = NameOf(i, unlike);
      node.slots = 1;
    }
    options_.plan.ranks = NumberRanksOf(options_.plan.nodes);
    options_.plan.launcher = Launcher::kSsh;
    options_.plan.min_nodes = options_.plan.max_nodes = static_cast<int>(nodes);
    options_.job.set_job_id("20261126-113431-2328a6");
    options_.job.mutable_ranks()->mutable_program()->add_argv("train.py");
    options_.job.mutable_timeouts()->set_grace_ms(10'000);
    options_.job.mutable_timeouts()->set_teardown_ms(5'000);
    options_.job.mutable_timeouts()->set_dead_ms(6'000);
    options_.job.mutable_timeouts()->set_lease_ms(60'000);
    events_.emplace(folder, /*in_log_dir=*/false, [](const std::string&) {});
    std::vector<uint32_t> all(nodes);
    std::iota(all.begin(), all.end(), 0u);
    members_ = ToNodeSet(all);
  }

  void Run() {
    SessionCore core(options_, now_);
    Step("connect", [&] {
      Carry(core.Start(now_));
      for (uint32_t i = 0; i < nodes_; ++i) Carry(core.OnConnected(i, NodeAddresses(), now_));
    });
    Step("prepare", [&] {
      pb::PreparedNode info;
      info.set_job_dir("/home/user/.local/state/dslaunch/jobs/20261126-113431-2328a6");
      info.add_rendezvous_endpoints("10.0.0.1:40001");
      for (uint32_t i = 0; i < nodes_; ++i) {
        events_->Connected(core.nodes().names()[i], info.job_dir());
        Carry(core.OnPrepared(i, info, now_));
      }
    });
    Step("start", [&] {
      for (uint32_t i = 0; i < nodes_; ++i) {
        pb::NodeEvent event;
        pb::Started& started = *event.mutable_started();
        started.set_attempt(1);
        started.set_first_rank(i);
        started.set_world_size(nodes_);
        started.add_pids(4'711);
        *started.mutable_members() = members_;
        Hear(core, i, event);
      }
      for (uint32_t i = 0; i < nodes_; ++i) {
        pb::NodeEvent event;
        event.mutable_running()->set_attempt(1);
        Hear(core, i, event);
      }
    });
    // Simulates one minute. Leases are renewed and silence is checked twice a second.
    Step("run", [&] {
      for (int half_s = 0; half_s < 120; ++half_s) {
        now_ += milliseconds(500);
        for (uint32_t i = 0; i < nodes_; ++i) core.contact().OnListening(i, now_);
        Carry(core.OnTimer(SessionTimer::kRenew, std::nullopt, now_));
        Carry(core.OnTimer(SessionTimer::kWatch, std::nullopt, now_));
      }
    });
    Step("end", [&] {
      for (uint32_t i = 0; i < nodes_; ++i) {
        pb::NodeEvent event;
        event.mutable_worker_ended()->set_attempt(1);
        event.mutable_worker_ended()->set_rank(i);
        Hear(core, i, event);
      }
      for (uint32_t i = 0; i < nodes_; ++i) {
        pb::NodeEvent event;
        event.mutable_outcome()->set_attempt(1);
        Hear(core, i, event);
      }
      for (uint32_t i = 0; i < nodes_; ++i) {
        pb::NodeEvent event;
        pb::NodeDone& done = *event.mutable_done();
        done.set_completed(true);
        done.set_teardown_complete(true);
        *done.mutable_members() = members_;
        Hear(core, i, event);
        Carry(core.OnStreamEnd(i, now_));
      }
      const std::vector<std::string> folders(nodes_);
      const JobEnd end = core.End().job;
      exit_code_ = SummarizeJob(options_.job.job_id(), options_.plan, core.job_state(), end,
                                folders, std::chrono::minutes(1))
                       .exit_code;
    });
    if (!finished_ || exit_code_ != 0) {
      std::fprintf(stderr, "the job did not end well\n");
      std::exit(1);
    }
    struct rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("{\"nodes\": %u, %s\"sent_bytes\": %.1f, \"peak_mb\": %ld}\n", nodes_,
                steps_.c_str(), static_cast<double>(sent_bytes_) / nodes_, usage.ru_maxrss / 1024);
  }

 private:
  template <class Act>
  void Step(const char* name, Act act) {
    const std::clock_t began = std::clock();
    act();
    const double us = static_cast<double>(std::clock() - began) * 1e6 / CLOCKS_PER_SEC / nodes_;
    steps_ += '"' + std::string(name) + "_us\": " + std::to_string(us) + ", ";
  }

  void Hear(SessionCore& core, uint32_t node, const pb::NodeEvent& event) {
    events_->Record(core.nodes().names(), node, event);
    Carry(core.OnEvent(node, event, now_));
  }

  void Carry(SessionCore::Actions actions) {
    for (SessionAction& action : actions) {
      if (const auto* prepare = std::get_if<action::Prepare>(&action))
        sent_bytes_ += prepare->request.SerializeAsString().size();
      if (const auto* run = std::get_if<action::Run>(&action))
        sent_bytes_ += run->request.SerializeAsString().size();
      finished_ |= std::holds_alternative<action::Finish>(action);
    }
  }

  const uint32_t nodes_;
  SessionOptions options_;
  std::optional<EventLog> events_;
  pb::NodeSet members_;
  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  std::string steps_;
  size_t sent_bytes_ = 0;
  bool finished_ = false;
  int exit_code_ = -1;
};

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const long nodes = argc >= 2 ? std::atol(argv[1]) : 0;
  const bool unlike = argc == 3 && std::strcmp(argv[2], "unlike") == 0;
  if (nodes < 1 || nodes > 100'000 || argc > 3 || (argc == 3 && !unlike)) {
    std::fprintf(stderr, "usage: %s NODES [unlike]   (1 to 100000)\n", argv[0]);
    return 64;
  }
  char folder[] = "/tmp/dslaunch-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    std::perror("mkdtemp");
    return 74;
  }
  dslaunch::Job(static_cast<uint32_t>(nodes), unlike, folder).Run();
  const std::string path = folder;
  std::remove((path + "/events.jsonl").c_str());
  std::remove(folder);
}
