#include "cli/transport/agent_binary.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/digest/sha256.h"
#include "base/os/build_id.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr std::string_view kOtherAgent = "dslaunch-agent-";

}  // namespace

Result<AgentBinary> ReadAgentBinary(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Error{ExitCode::kNotFound,
                 "no agent at " + Truncate(path) +
                     "; dslaunch-agent must lie in the same folder as dslaunch: "
                     "install or build both"};
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return Error{ExitCode::kCannotExecute, Truncate(path) + " is not executable; chmod +x it"};
  }
  DSL_TRY_ASSIGN(ElfIdentity identity, ReadElfIdentity(path));
  return AgentBinary{path, identity.build_id, identity.machine,
                     static_cast<uint64_t>(status.st_size)};
}

Result<AgentBinary> FindAgentBinary() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{ExitCode::kInternal,
                 "cannot read /proc/self/exe: " + error.message() + "; is /proc mounted?"};
  }
  DSL_TRY_ASSIGN(AgentBinary agent,
                 ReadAgentBinary((own.parent_path() / "dslaunch-agent").string()));
  const std::filesystem::path lib = own.parent_path().parent_path() / "lib/dslaunch";
  DSL_TRY_ASSIGN(agent.others, FindOtherAgents(lib.string(), agent.machine));
  return agent;
}

Result<std::vector<AgentBinary>> FindOtherAgents(const std::string& folder,
                                                 const std::string& own_machine) {
  std::vector<AgentBinary> agents;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kOtherAgent) || name.substr(kOtherAgent.size()) == own_machine) continue;
    const std::string machine = name.substr(kOtherAgent.size());
    const Result<ElfIdentity> identity = ReadElfIdentity(entry->path().string());
    if (!identity.ok() || identity->machine != machine) {
      return Error{ExitCode::kBadInput,
                   Truncate(entry->path().string()) + " is not an agent for nodes of type " +
                       SanitizeForTerminal(machine) + "; install dslaunch again, or remove it"};
    }
    const uintmax_t size = entry->file_size(error);
    if (!error)
      agents.push_back({entry->path().string(), identity->build_id, machine, uint64_t{size}});
  }
  std::ranges::sort(agents, {}, &AgentBinary::machine);
  return agents;
}

std::vector<std::string> MachinesOf(const AgentBinary& agent) {
  std::vector<std::string> machines = {agent.machine};
  for (const AgentBinary& other : agent.others) machines.push_back(other.machine);
  return machines;
}

std::optional<AgentBinary> AgentFor(const AgentBinary& agent, const std::string& machine) {
  if (machine.empty() || machine == agent.machine) return agent;
  const auto other = std::ranges::find(agent.others, machine, &AgentBinary::machine);
  if (other == agent.others.end()) return std::nullopt;
  AgentBinary found = *other;
  found.node_folder = agent.node_folder;
  return found;
}

bool HasBuild(const AgentBinary& agent, const std::string& build_id) {
  return build_id == agent.build_id ||
         std::ranges::find(agent.others, build_id, &AgentBinary::build_id) != agent.others.end();
}

std::string NoAgentText(const AgentBinary& agent, const std::string& machine) {
  std::string machines;
  for (const std::string& one : MachinesOf(agent)) machines += (machines.empty() ? "" : ", ") + one;
  return "the node is of type " + machine + ", and this dslaunch has agents for " + machines +
         " only; put the dslaunch-agent of a package for " + machine +
         ", of the same version, into lib/dslaunch beside this dslaunch as dslaunch-agent-" +
         machine + ", or leave the node out (--exclude)";
}

Result<std::string> Sha256OfFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return Error{ExitCode::kIo, "cannot open " + Truncate(path) + ": " + std::strerror(errno)};
  Sha256 sum;
  const Result<uint64_t> read = AddFromFile(fd.get(), UINT64_MAX, sum);
  if (!read.ok())
    return Error{ExitCode::kIo, "cannot read " + Truncate(path) + ": " + read.error().message};
  return ToHex(sum.Finish());
}

}  // namespace dslaunch
