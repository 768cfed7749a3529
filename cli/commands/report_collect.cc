#include "cli/commands/report_collect.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/commands/node_inspection.h"
#include "cli/report/report_files.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMaxJobBytes = 256 << 20;  // limit of the bytes of all nodes of a job together
constexpr uint64_t kMaxNodeBytes = 64 << 20;
constexpr uint64_t kLeastNodeBytes = 1 << 20;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxRanks = 100'000;  // limit of the ranks of a node, over all attempts

bool IsSameFile(const pb::RankFilePart& a, const pb::RankFilePart& b) {
  return a.attempt() == b.attempt() && a.rank() == b.rank() && a.kind() == b.kind();
}

Result<RankFileParts::Files> CollectFromNode(const JobRecord& record, size_t node,
                                             const AgentBinary& agent, uint64_t max_bytes,
                                             Deadline deadline) {
  DSL_TRY_ASSIGN(const std::unique_ptr<NodeInspection> inspection,
                 NodeInspection::Open(record, node, AgentRole::Kind::kRead, agent,
                                      deadline.Earlier(Deadline::After(kConnectTimeout))));
  const std::string& name = record.nodes[node].name;
  pb::CollectRequest request;
  *request.mutable_place() = PlaceOf(record, node);
  request.set_max_bytes(max_bytes);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.Left());
  RankFileParts parts(name, max_bytes);
  const auto stub = pb::Inspection::NewStub(inspection->channel());
  const auto reader = stub->Collect(&context, request);
  for (pb::RankFilePart part; reader->Read(&part) && parts.Add(part);) {
  }
  context.TryCancel();  // has no effect once the call is over
  const grpc::Status status = reader->Finish();
  RankFileParts::Files files = parts.Finish();
  if (!parts.complete() && files.ranks.empty())
    return Error{ExitCode::kUnavailable, name + ": " + Truncate(status.error_message())};
  return files;
}

}  // namespace

bool RankFileParts::Add(const pb::RankFilePart& part) {
  if (complete_ || too_much_) return false;
  if (part.end()) {
    FinishFile();
    files_left_out_ = part.files_left_out();
    complete_ = true;
    return true;
  }
  if (!is_open_ || !IsSameFile(open_, part)) {
    FinishFile();
    is_open_ = true;
    open_ = part;
    open_.clear_data();
  }
  if (part.data().size() > bytes_left_ || ranks_.size() >= kMaxRanks) {
    too_much_ = true;
    return false;
  }
  bytes_left_ -= part.data().size();
  text_ += part.data();
  return true;
}

void RankFileParts::FinishFile() {
  if (!std::exchange(is_open_, false)) return;
  const std::string text = std::exchange(text_, {});
  RankFiles& rank = ranks_[{open_.attempt(), open_.rank()}];
  rank.node = node_;
  rank.attempt = open_.attempt();
  rank.rank = open_.rank();
  const bool is_missing = open_.incomplete() && text.empty();
  if (is_missing && open_.kind() != pb::RankFilePart::TRACE) ++too_large_;
  switch (open_.kind()) {
    case pb::RankFilePart::METRICS:
      if (open_.incomplete() && !is_missing) ++thinned_;
      rank.metrics = ReadMetrics(text);
      break;
    case pb::RankFilePart::RUN:
      rank.run = ReadRunInfo(text);
      break;
    case pb::RankFilePart::PROFILE:
      rank.profile = ReadRankProfile(text);
      break;
    case pb::RankFilePart::TRACE:
      rank.trace_path = Truncate(open_.path(), kMaxPathBytes);
      rank.trace_bytes = open_.file_bytes();
      break;
    default:  // ignores values that a later version may add
      break;
  }
}

RankFileParts::Files RankFileParts::Finish() {
  FinishFile();
  Files files;
  for (auto& [place, rank] : ranks_) files.ranks.push_back(std::move(rank));
  if (thinned_ > 0) {
    files.troubles.push_back(node_ + ": the metrics of " + Count(thinned_, "rank") +
                             " are long; lines from all of their length were taken.");
  }
  if (too_large_ > 0)
    files.troubles.push_back(node_ + ": " + Count(too_large_, "file") +
                             " could not be read or would be too large for a page.");
  if (files_left_out_ > 0)
    files.troubles.push_back(node_ + ": " + Count(files_left_out_, "file") +
                             " of more ranks were left out.");
  if (too_much_)
    files.troubles.push_back(node_ + ": it sent more than requested; the rest was ignored.");
  else if (!complete_)
    files.troubles.push_back(node_ + ": the connection broke before everything was received.");
  return files;
}

CollectedFiles CollectRankFiles(const JobRecord& record, const AgentBinary& agent,
                                milliseconds timeout) {
  const size_t nodes = record.nodes.size();
  const uint64_t max_bytes =
      std::clamp(kMaxJobBytes / std::max<uint64_t>(nodes, 1), kLeastNodeBytes, kMaxNodeBytes);
  const Deadline deadline = Deadline::After(timeout);
  const auto answers = AskAll<Result<RankFileParts::Files>>(
      nodes, deadline, [record, agent, max_bytes, deadline](size_t node) {
        return CollectFromNode(record, node, agent, max_bytes, deadline);
      });
  CollectedFiles collected;
  std::vector<RankFiles>& ranks = collected.files.ranks;
  std::vector<std::string>& troubles = collected.files.troubles;
  for (size_t node = 0; node < nodes; ++node) {
    if (!answers[node] || !answers[node]->ok()) {
      collected.all_answered = false;
      troubles.push_back(answers[node] ? answers[node]->error().message
                                       : record.nodes[node].name + " did not answer in time");
      continue;
    }
    const RankFileParts::Files& files = **answers[node];
    ranks.insert(ranks.end(), files.ranks.begin(), files.ranks.end());
    troubles.insert(troubles.end(), files.troubles.begin(), files.troubles.end());
  }
  std::ranges::stable_sort(
      ranks, {}, [](const RankFiles& files) { return std::tie(files.attempt, files.rank); });
  return collected;
}

}  // namespace dslaunch
