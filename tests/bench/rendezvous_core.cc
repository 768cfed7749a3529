// Runs a whole job of N agents through the Coordinator, without a network: join, ranks, and the
// three barriers. Prints one JSON object: seconds to the ranks and to the end, computing time,
// messages, bytes.
//
//   dslaunch-bench-rendezvous-core AGENTS
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator.h"
#include "tests/bench/rendezvous_answer.h"

namespace dslaunch {
namespace {

constexpr uint32_t kSlots = 8;

size_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

class Job {
 public:
  explicit Job(uint32_t agents) : agents_(agents), coordinator_(Options(), now_) {}

  void Run() {
    const Clock::time_point begin = Clock::now();
    const std::clock_t cpu_begin = std::clock();
    for (uint32_t node = 0; node < agents_; ++node) {
      pb::AgentMessage message;
      SetSender(message, node, 0);
      pb::Join& join = *message.mutable_join();
      join.set_slots(kSlots);
      join.set_identity("machine " + std::to_string(node));
      join.set_master_port(29'500);
      if (node > 0) {
        join.set_reached_at("10.0.0.1");
        join.set_address("10.1.0." + std::to_string(node));
      }
      Deliver(message);
    }
    const double assigned_s = SecondsSince(begin);
    Answer();
    const double total_s = SecondsSince(begin);
    const double cpu_s = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    if (closed_ != agents_) {
      std::fprintf(stderr, "only %u of %u agents saw the end\n", closed_, agents_);
      std::exit(1);
    }
    std::printf(
        "{\"agents\": %u, \"assigned_s\": %.6f, \"total_s\": %.6f, \"cpu_s\": %.6f, \"messages\": "
        "%zu, "
        "\"bytes\": %zu, \"heap_bytes\": %zu}\n",
        agents_, assigned_s, total_s, cpu_s, messages_, bytes_, HeapBytes() - heap_before_);
  }

 private:
  CoordinatorOptions Options() const {
    CoordinatorOptions options;
    options.job_id = "job";
    for (uint32_t node = 0; node < agents_; ++node) {
      pb::Node& added = options.nodes.emplace_back();
      added.set_name("node" + std::to_string(node));
      added.set_slots(kSlots);
    }
    options.timeouts.set_join_ms(60'000);
    options.timeouts.set_ready_ms(60'000);
    options.timeouts.set_grace_ms(10'000);
    options.timeouts.set_teardown_ms(5'000);
    options.timeouts.set_suspect_ms(30'000);
    options.timeouts.set_dead_ms(60'000);
    return options;
  }

  static double SecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  static void SetSender(pb::AgentMessage& message, uint32_t node, uint64_t attempt) {
    message.set_job_id("job");
    message.set_node_index(node);
    message.set_attempt(attempt);
  }

  // Passes a message to the Coordinator. Messages of both sides are serialized, as over a network.
  void Deliver(const pb::AgentMessage& message) {
    pb::AgentMessage arrived;
    arrived.ParseFromString(message.SerializeAsString());
    ++messages_;
    for (const Outgoing& outgoing :
         coordinator_.OnMessage(message.node_index() + 1, arrived, now_)) {
      on_the_way_.emplace_back(outgoing.session, outgoing.message.SerializeAsString());
    }
  }

  // Lets every agent answer at once, until there are no more messages.
  void Answer() {
    while (!on_the_way_.empty()) {
      const auto [session, bytes] = std::move(on_the_way_.front());
      on_the_way_.pop_front();
      ++messages_;
      bytes_ += bytes.size();
      pb::RendezvousMessage arrived;
      arrived.ParseFromString(bytes);
      if (arrived.has_completed()) ++closed_;
      std::optional<pb::AgentMessage> answer = AnswerTo(arrived);
      if (!answer) continue;
      SetSender(*answer, static_cast<uint32_t>(session - 1), arrived.attempt());
      Deliver(*answer);
    }
  }

  const size_t heap_before_ = HeapBytes();
  const uint32_t agents_;
  const Clock::time_point now_ = Clock::now();  // constant, so that no message is late
  Coordinator coordinator_;
  std::deque<std::pair<SessionId, std::string>> on_the_way_;  // messages to the agents
  size_t messages_ = 0;
  size_t bytes_ = 0;  // bytes sent by the rendezvous
  uint32_t closed_ = 0;
};

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const long agents = argc == 2 ? std::atol(argv[1]) : 0;
  if (agents < 1 || agents > 100'000) {
    std::fprintf(stderr, "usage: %s AGENTS   (1 to 100000)\n", argv[0]);
    return 64;
  }
  dslaunch::Job(static_cast<uint32_t>(agents)).Run();
}
