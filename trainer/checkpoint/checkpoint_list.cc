#include "trainer/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "trainer/base/format.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

std::string DateText(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm time{};
  localtime_r(&seconds, &time);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &time);
  return text;
}

std::string StateText(const ListedCheckpoint& one) {
  return one.problem.empty() ? "whole" : "damaged: " + SanitizeForTerminal(one.problem);
}

// Returns `text`, or "-" if the value is not known.
std::string OrDash(bool known, const std::string& text) { return known ? text : "-"; }

std::string StepText(const Manifest& m) {
  return OrDash(m.world_size > 0, std::to_string(m.position.step));
}

// Size of a model: the number of its tensors, and of the elements in all of them.
struct ModelSize {
  int64_t tensors = 0;
  int64_t elements = 0;
};

ModelSize SizeOfModel(const Manifest& manifest) {
  ModelSize size;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!IsOfModel(tensor)) continue;
    ++size.tensors;
    size.elements += NumElements(tensor.shape).value_or(0);
  }
  return size;
}

}  // namespace

int64_t BytesOf(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const FileRecord& file : manifest.files) bytes += file.sum.bytes;
  return static_cast<int64_t>(bytes);
}

std::vector<ListedCheckpoint> FindCheckpoints(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    throw TrainError(ExitCode::kBadInput,
                     path + ": is not a folder of checkpoints: " +
                         (error ? error.message() : std::string("not a folder")));
  }
  const CheckpointFolder folder(path);
  const CheckpointFolder::Listing found = folder.List();
  const std::string latest = folder.ReadLatest();
  std::vector<Checkpoint> readable = OrderCandidates({}, found.whole);
  std::reverse(readable.begin(), readable.end());
  std::vector<ListedCheckpoint> list;
  for (const Checkpoint& one : readable) {
    const std::vector<std::string> missing = FindMissing(one);
    list.push_back({one.tag, missing.empty() ? "" : missing[0], one.tag == latest, one.manifest});
  }
  for (const auto& [tag, problem] : found.damaged)
    list.push_back({tag, problem, tag == latest, {}});
  return list;
}

std::string CheckpointTable(const std::vector<ListedCheckpoint>& list) {
  if (list.empty()) return "";
  using Row = std::array<std::string, 12>;
  std::vector<Row> rows = {{"TAG", "STEP", "LOSS", "SAVED", "SIZE", "RANKS", "ZERO", "STAGES",
                            "DTYPE", "RUN", "LATEST", "STATE"}};
  for (const ListedCheckpoint& one : list) {
    const Manifest& m = one.manifest;
    // The tag may be any folder name, so it is sanitized.
    rows.push_back({SanitizeForTerminal(one.tag), StepText(m),
                    m.loss ? Format("%.4f", *m.loss) : "-", DateText(m.saved_ms),
                    OrDash(!m.files.empty(), BytesText(BytesOf(m))),
                    OrDash(m.world_size > 0, std::to_string(m.world_size)),
                    OrDash(!m.dtype.empty(), std::to_string(m.zero_stage)),
                    OrDash(m.pipeline_stages > 0, std::to_string(m.pipeline_stages)),
                    OrDash(!m.dtype.empty(), m.dtype),
                    OrDash(!m.run_id.empty(), SanitizeForTerminal(m.run_id.substr(0, 8))),
                    one.latest ? "latest" : "", StateText(one)});
  }
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string CheckpointFacts(const ListedCheckpoint& one) {
  const Manifest& m = one.manifest;
  const ModelSize size = SizeOfModel(m);
  const bool trained = m.world_size > 0;
  std::vector<std::pair<const char*, std::string>> facts = {
      {"program", one.program},
      {"step", StepText(m)},
      {"ranks", OrDash(trained, std::to_string(m.world_size))},
      {"ZeRO stage", OrDash(trained, std::to_string(m.zero_stage))},
      {"optimizer", OrDash(!m.optimizer.empty(), m.optimizer)},
      {"dtype", OrDash(!m.dtype.empty(), m.dtype)},
      {"tensors", Format("%lld with %lld elements", static_cast<long long>(size.tensors),
                         static_cast<long long>(size.elements))},
      {"size", BytesText(BytesOf(m)) + " in " + std::to_string(m.files.size()) +
                   (m.files.size() == 1 ? " file" : " files")},
      {"state", one.problem.empty() ? "complete" : "incomplete: " + one.problem}};
  for (const std::string& missing : one.missing) facts.emplace_back("missing", missing);
  for (const auto& [alias, name] : one.aliases) facts.emplace_back("shared", alias + " is " + name);
  for (const std::string& note : one.notes) facts.emplace_back("note", note);
  std::string text = SanitizeForTerminal(one.tag) + "\n";
  for (const auto& [name, value] : facts) {
    text += Format("  %-10s  ", name) + SanitizeForTerminal(value) + "\n";
  }
  return text;
}

std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list) {
  Json all = Json::array();
  for (const ListedCheckpoint& one : list) {
    const Manifest& m = one.manifest;
    const bool known = m.world_size > 0;
    const ModelSize size = SizeOfModel(m);
    const auto or_null = [](bool is, const Json& value) { return is ? value : Json(); };
    all.push_back({{"tag", one.tag},
                   {"program", one.program},
                   {"run_id", or_null(!m.run_id.empty(), m.run_id)},
                   {"state", one.problem.empty() ? "whole" : "damaged"},
                   {"problem", or_null(!one.problem.empty(), one.problem)},
                   {"latest", one.latest},
                   {"step", or_null(known, m.position.step)},
                   {"loss", or_null(m.loss.has_value(), m.loss.value_or(0))},
                   {"saved_unix_ms", or_null(m.saved_ms > 0, m.saved_ms)},
                   {"bytes", or_null(!m.files.empty(), BytesOf(m))},
                   {"world_size", or_null(known, m.world_size)},
                   {"zero_stage", or_null(!m.dtype.empty(), m.zero_stage)},
                   {"pipeline_stages", or_null(m.pipeline_stages > 0, m.pipeline_stages)},
                   {"dtype", or_null(!m.dtype.empty(), m.dtype)},
                   {"optimizer", or_null(!m.optimizer.empty(), m.optimizer)},
                   {"tensors", or_null(!m.tensors.empty(), size.tensors)},
                   {"elements", or_null(!m.tensors.empty(), size.elements)},
                   {"aliases", one.aliases},
                   {"notes", one.notes},
                   {"missing", one.missing},
                   {"client_state", m.client_state}});
  }
  // The text may be shown on a terminal, so it is ASCII.
  return all.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
