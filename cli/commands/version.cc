#include "cli/commands/version.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/os/build_id.h"
#include "base/os/proc_text.h"
#include "cli/commands/commit.h"

namespace dslaunch {
namespace {

constexpr size_t kShownIdBytes = 12;

// Returns the version of the LibTorch in `folder`, from its headers; empty if the folder has no
// LibTorch.
std::string VersionIn(const std::filesystem::path& folder) {
  const std::string text =
      ReadWhole((folder / "include/torch/headeronly/version.h").string()).value_or("");
  std::string version;
  for (const char* part : {"MAJOR", "MINOR", "PATCH"}) {
    const std::string name = std::string("#define TORCH_VERSION_") + part;
    for (std::string_view rest = text; !rest.empty();) {
      std::string_view line = TakeLine(rest);
      if (!line.starts_with(name)) continue;
      line.remove_prefix(name.size());
      version += (version.empty() ? "" : ".") + std::to_string(TakeNumber(line));
    }
  }
  return version;
}

bool HasLibTorch(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "lib/libtorch_cpu.so", ignored);
}

}  // namespace

LibTorch FindLibTorch(const std::string& bin_folder) {
  const std::filesystem::path lib =
      (std::filesystem::path(bin_folder) / "../lib").lexically_normal();
  std::vector<std::filesystem::path> folders = {lib / "dslaunch/libtorch"};
  std::error_code error;
  for (std::filesystem::directory_iterator entry(lib, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with("python3"))
      folders.push_back(entry->path() / "site-packages/torch");
  }
  for (const std::filesystem::path& folder : folders) {
    if (HasLibTorch(folder)) return {folder.string(), VersionIn(folder)};
  }
  return {};
}

Result<void> CheckTrainer(const std::string& bin_folder) {
  const std::filesystem::path folder(bin_folder);
  const std::string wanted = DSLAUNCH_LIBTORCH_VERSION;
  const std::string in_python = "in a Python environment: pip install 'dslaunch[train]'";
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "dslaunch-train", ignored)) {
    return Error{ExitCode::kUnavailable,
                 "dslaunch-train, the trainer, is not in " + bin_folder + "; " + in_python +
                     "; elsewhere: install the package or build that has it"};
  }
  const LibTorch found = FindLibTorch(bin_folder);
  if (found.folder.empty()) {
    return Error{ExitCode::kUnavailable,
                 "no LibTorch " + wanted + " beside dslaunch-train; " + in_python +
                     "; elsewhere: make " +
                     (folder / "../lib/dslaunch/libtorch").lexically_normal().string() +
                     " a link to one, such as .../site-packages/torch"};
  }
  if (found.version.empty() || found.version.starts_with(wanted + ".")) return {};
  return Error{ExitCode::kUnavailable, found.folder + " is LibTorch " + found.version +
                                           ", and dslaunch-train is built for " + wanted +
                                           "; pip install 'torch==" + wanted + ".*'"};
}

VersionInfo ReadVersionInfo(const std::string& bin_folder) {
  VersionInfo info{DSLAUNCH_VERSION, kCommit, OwnBuildId(), {}, FindLibTorch(bin_folder).version};
  const Result<AgentBinary> agent = FindAgentBinary();
  if (!agent.ok()) return info;
  info.agents.push_back(*agent);
  info.agents.insert(info.agents.end(), agent->others.begin(), agent->others.end());
  return info;
}

std::string VersionText(const VersionInfo& info) {
  std::string text = "dslaunch " + info.version + "\n";
  text += "build:    " + info.build_id.substr(0, kShownIdBytes) +
          (info.commit.empty() ? "" : ", commit " + info.commit) + "\n";
  std::string agents;
  for (const AgentBinary& agent : info.agents) {
    agents += (agents.empty() ? "" : ", ") + agent.machine + " (build " +
              agent.build_id.substr(0, kShownIdBytes) + ")";
  }
  text += "agents:   " + (agents.empty() ? "none beside dslaunch" : agents) + "\n";
  return text + "LibTorch: " + (info.libtorch.empty() ? "none" : info.libtorch);
}

std::string VersionJson(const VersionInfo& info) {
  nlohmann::ordered_json agents = nlohmann::ordered_json::array();
  for (const AgentBinary& agent : info.agents) {
    agents.push_back({{"machine", agent.machine},
                      {"build_id", agent.build_id},
                      {"size_bytes", agent.size_bytes}});
  }
  const nlohmann::ordered_json json = {{"version", info.version},
                                       {"commit", info.commit},
                                       {"build_id", info.build_id},
                                       {"agents", agents},
                                       {"libtorch", info.libtorch}};
  return json.dump();
}

}  // namespace dslaunch
