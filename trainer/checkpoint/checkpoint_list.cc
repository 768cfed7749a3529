#include "trainer/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "trainer/base/format.h"
#include "trainer/base/train_error.h"

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
  using Row = std::array<std::string, 9>;
  std::vector<Row> rows = {
      {"TAG", "STEP", "SAVED", "SIZE", "RANKS", "ZERO", "DTYPE", "LATEST", "STATE"}};
  for (const ListedCheckpoint& one : list) {
    const Manifest& m = one.manifest;
    const std::string latest = one.latest ? "latest" : "";
    const std::string tag = SanitizeForTerminal(one.tag);  // any name that a folder can have
    if (m.world_size == 0) {
      rows.push_back({tag, "-", "-", "-", "-", "-", "-", latest, StateText(one)});
      continue;
    }
    rows.push_back({tag, std::to_string(m.position.step), DateText(m.saved_ms),
                    BytesText(BytesOf(m)), std::to_string(m.world_size),
                    m.dtype.empty() ? "-" : std::to_string(m.zero_stage),
                    m.dtype.empty() ? "-" : m.dtype, latest, StateText(one)});
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

std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list) {
  Json all = Json::array();
  for (const ListedCheckpoint& one : list) {
    const Manifest& m = one.manifest;
    const bool known = m.world_size > 0;
    const auto or_null = [](bool is, const Json& value) { return is ? value : Json(); };
    all.push_back({{"tag", one.tag},
                   {"state", one.problem.empty() ? "whole" : "damaged"},
                   {"problem", or_null(!one.problem.empty(), one.problem)},
                   {"latest", one.latest},
                   {"step", or_null(known, m.position.step)},
                   {"saved_unix_ms", or_null(m.saved_ms > 0, m.saved_ms)},
                   {"bytes", or_null(known, BytesOf(m))},
                   {"world_size", or_null(known, m.world_size)},
                   {"zero_stage", or_null(!m.dtype.empty(), m.zero_stage)},
                   {"dtype", or_null(!m.dtype.empty(), m.dtype)},
                   {"optimizer", or_null(!m.optimizer.empty(), m.optimizer)},
                   {"client_state", m.client_state}});
  }
  // In ASCII, because it may be shown on a terminal.
  return all.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
