#include "cli/hostfile/hostfile_report.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/text_table.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

int SlotsFor(const AskedHost& asked) {
  return std::clamp(asked.gpus > 0 ? asked.gpus : asked.cores, 1, kMaxSlots);
}

// Returns the devices of a node, such as "8 GPUs (NVIDIA H100 80GB HBM3)" or "2 cores".
std::string Has(const AskedHost& asked) {
  if (asked.gpus == 0) return Count(static_cast<size_t>(asked.cores), "core");
  return Count(static_cast<size_t>(asked.gpus), asked.gpu_noun) +
         (asked.gpu_name.empty() ? "" : " (" + SanitizeForTerminal(asked.gpu_name) + ")");
}

constexpr char kHeader[] = "# Written by dslaunch hostfile write: a slot for each GPU, ";
constexpr char kHeaderEnd[] = "or for each core of a node without any.\n";

std::string LineForm(const std::vector<AskedHost>& hosts) {
  std::vector<std::vector<std::string>> rows;
  for (const AskedHost& asked : hosts) {
    rows.push_back(
        {asked.host.name, "slots=" + std::to_string(SlotsFor(asked)), "# " + Has(asked)});
  }
  return TextTable(rows);
}

// Returns a name, user or address as a YAML scalar, in quotes if necessary.
std::string YamlWord(const std::string& word) {
  const bool plain = std::isalpha(static_cast<unsigned char>(word.front())) != 0 &&
                     word.find_first_of(":@\\$%") == std::string::npos && word != "null";
  return plain ? word : "'" + word + "'";
}

std::string YamlForm(const std::vector<AskedHost>& hosts) {
  std::unordered_map<std::string, int> servers_at;
  for (const AskedHost& asked : hosts) ++servers_at[asked.host.host];
  std::string text = "hosts:\n";
  for (const AskedHost& asked : hosts) {
    const Host& host = asked.host;
    const bool shared = servers_at[host.host] > 1;
    const std::string name = shared ? host.host + "-" + std::to_string(host.port) : host.host;
    text += "  - name: " + YamlWord(name) + "\n";
    if (shared) text += "    address: " + YamlWord(host.host) + "\n";
    if (host.port != 0) text += "    port: " + std::to_string(host.port) + "\n";
    if (!host.user.empty()) text += "    user: " + YamlWord(host.user) + "\n";
    text += "    slots: " + std::to_string(SlotsFor(asked)) + "  # " + Has(asked) + "\n";
  }
  return text;
}

std::string Address(const Host& host) {
  const std::string user = host.user.empty() ? "" : host.user + "@";
  if (host.port == 0) return user + host.host;
  const bool bracketed = host.host.find(':') != std::string::npos;
  return user + (bracketed ? "[" + host.host + "]" : host.host) + ":" + std::to_string(host.port);
}

std::string Labels(const Host& host) {
  std::string text;
  for (const auto& [name, value] : host.labels)
    text +=
        (text.empty() ? "" : " ") + SanitizeForTerminal(name) + "=" + SanitizeForTerminal(value);
  return text;
}

std::string Gibibytes(uint64_t bytes) {
  return std::to_string((bytes + (1ull << 29)) >> 30) + " GiB";
}

std::string Status(const AskedHost& asked) {
  if (asked.failure) return "FAILED";
  const std::string problem = SlotProblem(asked);
  if (!problem.empty()) return "FAILED: " + problem;
  return asked.host.spare ? "ok, spare" : "ok";
}

}  // namespace

std::string WriteHostfileText(const std::vector<AskedHost>& hosts, bool yaml) {
  return std::string(kHeader) + kHeaderEnd + (yaml ? YamlForm(hosts) : LineForm(hosts));
}

std::string SlotProblem(const AskedHost& asked) {
  if (asked.failure || asked.gpus == 0 || asked.host.slots <= asked.gpus) return "";
  return Count(static_cast<size_t>(asked.host.slots), "slot") + ", but " +
         Count(static_cast<size_t>(asked.gpus), asked.gpu_noun);
}

std::string HostTable(const std::vector<AskedHost>& hosts) {
  const bool has_labels =
      std::ranges::any_of(hosts, [](const AskedHost& asked) { return !asked.host.labels.empty(); });
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "ADDRESS", "SLOTS", "GPUS", "CORES", "MEMORY"}};
  if (has_labels) rows.front().push_back("LABELS");
  rows.front().push_back("STATUS");
  for (const AskedHost& asked : hosts) {
    const bool known = !asked.failure;
    std::vector<std::string> row = {asked.host.name,
                                    Address(asked.host),
                                    std::to_string(asked.host.slots),
                                    known ? std::to_string(asked.gpus) : "-",
                                    known ? std::to_string(asked.cores) : "-",
                                    known ? Gibibytes(asked.memory_bytes) : "-"};
    if (has_labels) row.push_back(Labels(asked.host));
    row.push_back(Status(asked));
    rows.push_back(std::move(row));
  }
  return TextTable(rows);
}

std::string HostsJson(const std::string& file, const std::vector<AskedHost>& hosts) {
  Json nodes = Json::array();
  bool ok = true;
  for (const AskedHost& asked : hosts) {
    const Host& host = asked.host;
    const std::string problem = asked.failure ? asked.failure->message : SlotProblem(asked);
    ok = ok && problem.empty();
    Json labels = Json::object();
    for (const auto& [name, value] : host.labels) labels[name] = value;
    Json node = {{"name", host.name},   {"line", host.line},      {"host", host.host},
                 {"port", nullptr},     {"user", nullptr},        {"slots", host.slots},
                 {"spare", host.spare}, {"labels", labels},       {"ok", problem.empty()},
                 {"problem", nullptr},  {"gpus", nullptr},        {"gpu_name", nullptr},
                 {"cores", nullptr},    {"memory_bytes", nullptr}};
    if (host.port != 0) node["port"] = host.port;
    if (!host.user.empty()) node["user"] = host.user;
    if (!problem.empty()) node["problem"] = problem;
    if (!asked.failure) {
      node["gpus"] = asked.gpus;
      if (!asked.gpu_name.empty()) node["gpu_name"] = asked.gpu_name;
      node["cores"] = asked.cores;
      node["memory_bytes"] = asked.memory_bytes;
    }
    nodes.push_back(std::move(node));
  }
  const Json report = {{"file", file}, {"ok", ok}, {"nodes", std::move(nodes)}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
