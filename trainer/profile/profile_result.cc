#include "trainer/profile/profile_result.h"

#include <nlohmann/json.hpp>

#include "trainer/base/format.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

struct Category {
  const char* name;
  int64_t MemoryBytes::*bytes;
};

// The categories of memory, whose sum is the allocated memory.
constexpr Category kCategories[] = {
    {"parameters", &MemoryBytes::parameters}, {"gradients", &MemoryBytes::gradients},
    {"buckets", &MemoryBytes::buckets},       {"optimizer", &MemoryBytes::optimizer},
    {"buffers", &MemoryBytes::buffers},       {"activations", &MemoryBytes::activations}};

std::string CommunicationText(const CommunicationSummary& communication) {
  if (communication.kinds.empty()) return "no communication";
  std::string text = Format(
      "communication %.3f ms, %.0f%% of it while this rank computed:", communication.total_s * 1e3,
      100 * communication.hidden_s / std::max(communication.total_s, 1e-12));
  for (const CommunicationSummary::Kind& kind : communication.kinds) {
    text += Format("%s %s %lld x %s", &kind == communication.kinds.data() ? "" : ",",
                   kind.name.c_str(), static_cast<long long>(kind.calls),
                   BytesText(kind.bytes / std::max<int64_t>(kind.calls, 1)).c_str());
  }
  return text;
}

std::string MemoryText(const ProfileResult& result) {
  std::string text = "memory when the backward pass began:";
  int64_t sum = 0;
  for (const Category& category : kCategories) {
    const int64_t bytes = result.memory.*category.bytes;
    sum += bytes;
    if (bytes > 0) text += Format(" %s %s,", category.name, BytesText(bytes).c_str());
  }
  return text + Format(" total %s of %s allocated", BytesText(sum).c_str(),
                       BytesText(result.allocated).c_str());
}

}  // namespace

std::string ProfileJson(const ProfileResult& result) {
  Json operators = Json::array();
  for (const OperatorRow& row : result.rows) {
    operators.push_back({{"name", row.name},
                         {"calls", row.calls},
                         {"self_s", row.self_s},
                         {"total_s", row.total_s},
                         {"self_bytes", row.self_bytes}});
    if (row.device_s > 0) operators.back()["device_s"] = row.device_s;
  }
  Json kinds = Json::array();
  for (const CommunicationSummary::Kind& kind : result.communication.kinds) {
    kinds.push_back(
        {{"name", kind.name}, {"calls", kind.calls}, {"bytes", kind.bytes}, {"s", kind.seconds}});
  }
  Json json = {{"rank", result.rank},
               {"steps", result.steps},
               {"wall_s", result.wall_s},
               {"operators", std::move(operators)},
               {"communication",
                {{"total_s", result.communication.total_s},
                 {"hidden_s", result.communication.hidden_s},
                 {"kinds", std::move(kinds)}}}};
  if (result.allocated > 0) {
    for (const Category& category : kCategories) {
      json["memory"][category.name] = result.memory.*category.bytes;
    }
    json["memory"]["allocated"] = result.allocated;
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string ProfileText(const ProfileResult& result, int64_t most_rows) {
  std::string text = OperatorTable(result.rows, most_rows, result.wall_s, result.steps) + "\n" +
                     CommunicationText(result.communication);
  if (result.allocated > 0) text += "\n" + MemoryText(result);
  return text;
}

}  // namespace dslaunch
