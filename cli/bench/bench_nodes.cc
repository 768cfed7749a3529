#include "cli/bench/bench_nodes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/commands/node_inspection.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

// Duration of each measurement of the processor and of the memory.
constexpr milliseconds kMeasureTime(200);
constexpr milliseconds kOtherTime(15'000);  // limit for testing folders and for running nvidia-smi
constexpr milliseconds kTrainerTime(30'000);
constexpr milliseconds kLinkWindow(100);
constexpr milliseconds kLinkPatience(4'000);
constexpr milliseconds kServeTime(120'000);
constexpr milliseconds kServeAnswer(5'000);
constexpr milliseconds kBenchSlack(2'000);
constexpr int kSecondLooks = 3;

class NodeBench {
 public:
  NodeBench(const std::vector<BenchNode>& nodes, const BenchRequest& request)
      : nodes_(nodes), request_(request) {
    for (const BenchNode& node : nodes) {
      bench_.nodes.push_back({node.name, std::nullopt, node.inspection ? "" : "not reached"});
      bench_.gpus_needed = std::max(bench_.gpus_needed, node.gpus);
    }
  }

  Bench Run() && {
    const Clock::time_point begin = Clock::now();
    std::vector<size_t> all;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].inspection != nullptr) all.push_back(i);
    }
    MeasureNodes(all, /*is_first=*/true);
    bench_.first = bench_.figures;
    for (int look = 0; look < kSecondLooks; ++look)
      MeasureNodes(NodesOf(FindSlow(bench_.figures, bench_.first), /*of_network=*/false),
                   /*is_first=*/false);
    MeasureNetwork(all);
    bench_.took_ms = std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count();
    return std::move(bench_);
  }

 private:
  pb::MeasureRequest RequestFor(const BenchNode& node, bool is_first) const {
    pb::MeasureRequest request = request_.tests;
    request.set_for_ms(static_cast<uint32_t>(kMeasureTime.count()));
    request.set_threads(node.threads);
    request.set_gpus(node.gpus);
    request.set_trainer(request_.trainer);
    if (is_first) return request;
    request.clear_gpu_wait_ms();
    request.clear_health();
    return request;
  }

  void MeasureNodes(const std::vector<size_t>& which, bool is_first) {
    if (which.empty()) return;
    milliseconds limit = 2 * kMeasureTime + kOtherTime + kBenchSlack;
    if (is_first) limit += milliseconds(request_.tests.health().timeout_ms());
    if (bench_.gpus_needed > 0) {
      limit += kTrainerTime;
      if (is_first) limit += milliseconds(request_.tests.gpu_wait_ms());
    }
    struct Question {
      BenchNode node;
      pb::MeasureRequest request;
    };
    std::vector<Question> questions;
    for (const size_t i : which) questions.push_back({nodes_[i], RequestFor(nodes_[i], is_first)});
    const Deadline deadline = Deadline::After(limit);
    const auto answers = AskAll<Result<pb::NodeMeasurement>>(
        which.size(), Deadline::At(deadline.when() + kBenchSlack), [questions, deadline](size_t i) {
          const Question& question = questions[i];
          return MeasureOnNode(*question.node.inspection, question.node.name, question.request,
                               deadline);
        });
    for (size_t i = 0; i < which.size(); ++i) {
      MeasuredNode& node = bench_.nodes[which[i]];
      if (answers[i] && answers[i]->ok()) {
        if (is_first) node.measured = **answers[i];
        KeepBest(bench_.figures, FiguresOf(**answers[i], which[i]));
      } else if (is_first) {
        node.failure = answers[i] ? answers[i]->error().message : "it did not answer in time";
      }
    }
  }

  void MeasureNetwork(const std::vector<size_t>& all) {
    ServeLinks(all);
    std::vector<size_t> serving;
    for (const size_t i : all) {
      if (!endpoints_[i].empty()) serving.push_back(i);
    }
    for (PairRound round : PlanRounds(serving.size())) {
      for (NodePair& pair : round) pair = {serving[pair.serving], serving[pair.measuring]};
      MeasureRound(round);
    }
    for (const Figure& figure : bench_.figures) {
      if (IsOfNetwork(figure.kind)) bench_.first.push_back(figure);
    }
    for (int look = 0; look < kSecondLooks; ++look) {
      const std::vector<size_t> suspects = Suspects();
      std::vector<size_t> partners;
      std::ranges::set_difference(serving, suspects, std::back_inserter(partners));
      for (const PairRound& round : PlanConfirmation(suspects, partners)) MeasureRound(round);
    }
  }

  // Returns the nodes whose network is slow, and the nodes that no partner has reached.
  std::vector<size_t> Suspects() const {
    std::vector<size_t> suspects =
        NodesOf(FindSlow(bench_.figures, bench_.first), /*of_network=*/true);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const bool reached = std::ranges::any_of(bench_.figures, [&](const Figure& figure) {
        return figure.node == i && IsOfNetwork(figure.kind);
      });
      if (!reached && !endpoints_[i].empty()) suspects.push_back(i);
    }
    std::ranges::sort(suspects);
    const auto repeated = std::ranges::unique(suspects);
    suspects.erase(repeated.begin(), repeated.end());
    return suspects;
  }

  void ServeLinks(const std::vector<size_t>& all) {
    endpoints_.resize(nodes_.size());
    if (all.size() < 2) return;
    pb::ServeLinkRequest request;
    request.set_token(token_);
    request.set_for_ms(static_cast<uint32_t>(kServeTime.count()));
    const Deadline deadline = Deadline::After(kServeAnswer);
    const auto answers = AskAll<Result<pb::ServeLinkReply>>(
        all.size(), deadline, [nodes = nodes_, all, request, deadline](size_t i) {
          return ServeLinkOnNode(*nodes[all[i]].inspection, nodes[all[i]].name, request, deadline);
        });
    for (size_t i = 0; i < all.size(); ++i) {
      if (!answers[i] || !answers[i]->ok()) continue;
      const pb::ServeLinkReply& reply = **answers[i];
      endpoints_[all[i]] = {reply.endpoints().begin(), reply.endpoints().end()};
    }
  }

  void MeasureRound(const PairRound& round) {
    std::vector<pb::MeasureLinkRequest> requests;
    for (const NodePair& pair : round) {
      pb::MeasureLinkRequest& request = requests.emplace_back();
      request.set_token(token_);
      request.set_window_ms(static_cast<uint32_t>(kLinkWindow.count()));
      request.set_patience_ms(static_cast<uint32_t>(kLinkPatience.count()));
      for (const std::string& endpoint : endpoints_[pair.serving]) request.add_endpoints(endpoint);
    }
    const Deadline deadline = Deadline::After(kLinkPatience + kBenchSlack);
    const auto answers = AskAll<Result<pb::LinkMeasurement>>(
        round.size(), deadline, [nodes = nodes_, round, requests, deadline](size_t i) {
          const BenchNode& node = nodes[round[i].measuring];
          return MeasureLinkFromNode(*node.inspection, node.name, requests[i], deadline);
        });
    for (size_t i = 0; i < round.size(); ++i) {
      MeasuredLink link = {round[i], "it did not answer in time"};
      if (answers[i] && answers[i]->ok()) {
        link.trouble = (*answers[i])->trouble();
        KeepBest(bench_.figures, FiguresOf(**answers[i], round[i]));
      } else if (answers[i]) {
        link.trouble = answers[i]->error().message;
      }
      bench_.links.push_back(std::move(link));
    }
  }

  const std::vector<BenchNode> nodes_;
  const BenchRequest request_;
  const std::string token_ = MakeNonce();
  // Endpoints at which each node serves network measurements, indexed by node; empty for a node
  // that does not serve.
  std::vector<std::vector<std::string>> endpoints_;
  Bench bench_;
};

}  // namespace

Bench BenchNodes(const std::vector<BenchNode>& nodes, const BenchRequest& request) {
  return NodeBench(nodes, request).Run();
}

}  // namespace dslaunch
