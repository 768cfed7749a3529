#include "agent/inspect/node_info.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "agent/accelerators/node_accelerators.h"
#include "agent/host/accelerate_program.h"
#include "agent/host/node_identity.h"
#include "agent/host/nvidia_smi.h"
#include "agent/host/program.h"
#include "agent/inspect/device_tool.h"
#include "agent/node/node_program.h"
#include "base/os/brief_run.h"
#include "base/os/build_id.h"
#include "base/os/node_memory.h"
#include "base/os/proc_text.h"
#include "base/os/usable_cores.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/unique_fd.h"
#include "net/addresses.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSaidBytes = 300;

std::string FirstLineOf(const std::string& path) {
  const std::string text = ReadWhole(path).value_or("");
  std::string_view rest = text;
  return std::string(TakeLine(rest));
}

// Returns the version of the node's C library, such as ", glibc 2.36". The agent has its own C
// library, so a program of the node reports the version. Empty on systems with another C library.
std::string NodeLibc(milliseconds patience) {
  const Result<std::string> getconf = FindExecutable("getconf", NodeEnvironment(), "/", "");
  if (!getconf.ok()) return "";
  const BriefRun run =
      RunBriefly({*getconf, "GNU_LIBC_VERSION"}, NodeEnvironment(), Deadline::After(patience));
  std::string_view said = run.output;
  const std::string line = SanitizeForTerminal(TakeLine(said));
  return line.starts_with("glibc ") ? ", " + line : "";
}

void ReadSystem(milliseconds patience, pb::NodeInfo& report) {
  report.set_version(DSLAUNCH_VERSION);
  report.set_build_id(OwnBuildId());
  utsname system{};
  ::uname(&system);
  report.set_host_name(SanitizeForTerminal(system.nodename));
  report.set_system(std::string(system.sysname) + " " + system.release + " " + system.machine +
                    NodeLibc(patience));
  report.set_boot_id(FirstLineOf("/proc/sys/kernel/random/boot_id"));
  report.set_identity(NodeIdentity());
}

void ReadCoresAndMemory(pb::NodeInfo& report) {
  const NodeMemory memory = ReadNodeMemory();
  report.set_cores(static_cast<uint32_t>(UsableCores()));
  report.set_memory_bytes(memory.bytes);
  report.set_memory_available_bytes(memory.available_bytes);
}

// Returns the reason why this user cannot write in `folder`; empty if writing works. Leaves no file
// in the folder.
std::string WriteTrouble(const std::string& folder) {
  UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
    std::string name = folder + "/.dslaunch-XXXXXX";
    file.Reset(::mkostemp(name.data(), O_CLOEXEC));
    if (file) ::unlink(name.c_str());
  }
  if (!file) return std::strerror(errno);
  // A full disk may still allow empty files, so data is written.
  const std::vector<char> some(4096, 'x');
  if (::write(file.get(), some.data(), some.size()) != std::ssize(some) ||
      ::fsync(file.get()) != 0) {
    return std::strerror(errno);
  }
  return "";
}

void ReadDisk(pb::Disk::Use use, const std::string& path, pb::NodeInfo& report) {
  pb::Disk& disk = *report.add_disks();
  disk.set_use(use);
  disk.set_path(path);
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) {
    disk.set_trouble(std::strerror(errno));
    return;
  }
  disk.set_free_bytes(uint64_t{status.f_bavail} * status.f_frsize);
  disk.set_total_bytes(uint64_t{status.f_blocks} * status.f_frsize);
  disk.set_trouble(WriteTrouble(path));
}

void ReadLimit(__rlimit_resource_t resource, pb::Limit& limit) {
  rlimit value{};
  ::getrlimit(resource, &value);
  static_assert(RLIM_INFINITY == UINT64_MAX);
  limit.set_soft(value.rlim_cur);
  limit.set_hard(value.rlim_max);
}

void ReadInterfaces(pb::NodeInfo& report) {
  for (const Interface& interface : Interfaces()) {
    pb::NetworkInterface& one = *report.add_interfaces();
    one.set_name(interface.name);
    one.set_up(interface.up);
    for (const std::string& address : interface.addresses) one.add_addresses(address);
  }
  std::error_code error;
  report.set_infiniband(fs::directory_iterator("/sys/class/infiniband", error) !=
                        fs::directory_iterator());
}

std::string FirstWords(const std::string& output) {
  std::string_view rest = output;
  std::string_view line;
  while (line.empty() && !rest.empty()) line = TakeLine(rest);
  return SanitizeForTerminal(line.substr(0, kMaxSaidBytes));
}

std::string LastLineOf(std::string_view output) {
  while (output.ends_with('\n')) output.remove_suffix(1);
  return std::string(output.substr(output.rfind('\n') + 1));
}

void TryProgram(const std::string& name, const std::string& path, milliseconds patience,
                pb::NodeInfo& report) {
  pb::InstalledProgram& program = *report.add_programs();
  program.set_name(name);
  program.set_path(path);
  if (::access(path.c_str(), F_OK) != 0) return;
  program.set_state(pb::InstalledProgram::BROKEN);
  const BriefRun run =
      RunBriefly({path, "--version"}, NodeEnvironment(), Deadline::After(patience));
  switch (run.end) {
    case BriefRun::End::kNotStarted:
      program.set_said(std::strerror(run.number));
      return;
    case BriefRun::End::kTimedOut:
      program.set_said("it does not answer within " + std::to_string(patience.count() / 1000) +
                       " s");
      return;
    case BriefRun::End::kSignalled:
      program.set_said("it was ended by " + SignalName(run.number));
      return;
    case BriefRun::End::kExited:
      break;
  }
  program.set_said(FirstWords(run.output));
  if (run.number == 0)
    program.set_state(pb::InstalledProgram::WORKS);
  else if (program.said().empty())
    program.set_said("it ends with exit code " + std::to_string(run.number));
}

// Returns the error's message without its empty node name, because the front end adds the node.
std::string WithoutNode(const Error& error) {
  return error.message.substr(error.message.starts_with(": ") ? 2 : 0);
}

// Returns the reason why accelerate cannot provide the environment of the job's configuration on
// this node; empty if it can, or if the job has no accelerate configuration.
std::string AccelerateTrouble(const ResolvedProgram& resolved, const pb::Program& program,
                              Environment environment, milliseconds patience) {
  const Result<ResolvedProgram> wrapped = WithAccelerate(resolved, program, environment, "");
  if (!wrapped.ok()) return WithoutNode(wrapped.error());
  const size_t words = wrapped->argv.size() - resolved.argv.size();
  if (words == 0) return "";
  std::vector<std::string> command(wrapped->argv.begin(),
                                   wrapped->argv.begin() + static_cast<std::ptrdiff_t>(words));
  command.push_back("/bin/true");
  for (const char* place : {"WORLD_SIZE=1", "GROUP_WORLD_SIZE=1", "GROUP_RANK=0"})
    environment.push_back(place);
  const BriefRun run = RunBriefly(command, environment, Deadline::After(patience));
  if (run.end == BriefRun::End::kExited && run.number == 0) return "";
  if (run.end == BriefRun::End::kTimedOut)
    return command.front() + " does not import accelerate in time; run doctor again";
  return SanitizeForTerminal(LastLineOf(run.output));
}

// Looks up the program's files as a job would. Returns the command or the error.
pb::FoundProgram FindProgramOfJob(const pb::Program& program, milliseconds patience) {
  pb::FoundProgram found;
  const auto fails = [&](const Error& error) {
    found.set_failure(WithoutNode(error));
    return found;
  };
  const Result<ProgramContext> context = ContextOf(program, "");
  if (!context.ok()) return fails(context.error());
  const Environment& environment = context->environment;
  const Result<ResolvedProgram> resolved = ResolveProgram(context->program, environment, "");
  if (!resolved.ok()) return fails(resolved.error());
  found.set_executable(resolved->argv.front());
  found.set_failure(AccelerateTrouble(*resolved, context->program, environment, patience));
  if (program.form() == pb::Program::PLAIN || !found.failure().empty()) return found;
  const BriefRun run =
      RunBriefly({resolved->argv.front(), "--version"}, environment, Deadline::After(patience));
  if (run.end == BriefRun::End::kExited && run.number == 0)
    found.set_said(FirstWords(run.output));
  else
    found.set_failure(resolved->argv.front() + " --version fails: " + FirstWords(run.output) +
                      "; install Python there again");
  return found;
}

// Adds the devices that /sys and /dev show to `gpus`. For vendors other than NVIDIA, also adds the
// reason if their tool fails.
void AddAccelerators(milliseconds patience, pb::Gpus& gpus) {
  const auto getenv = [](const char* name) -> const char* { return std::getenv(name); };
  const Result<NodeAccelerators> found =
      FindAccelerators(pb::DEVICE_AUTO, /*only_cuda=*/false, getenv);
  gpus.set_device(found.ok() ? found->device() : pb::DEVICE_CPU);
  gpus.set_unusable_file(FindUnusableFile(""));
  if (!found.ok()) return;
  gpus.set_visible(static_cast<uint32_t>(found->visible.size()));
  if (gpus.device() == pb::DEVICE_CUDA || gpus.device() == pb::DEVICE_CPU) return;
  gpus.clear_installed();
  gpus.set_trouble(DeviceToolTrouble(*found->row, patience));
  for (const Accelerator& device : found->installed) {
    pb::Gpu& gpu = *gpus.add_installed();
    gpu.set_name(SanitizeForTerminal(device.name));
    gpu.set_uuid(device.uuid);
    gpu.set_memory_bytes(device.memory_bytes);
    gpu.set_memory_used_bytes(device.memory_used_bytes);
  }
}

}  // namespace

std::string NearestToJobsFolder() {
  fs::path folder = JobsFolder(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"), ::geteuid());
  while (folder.has_relative_path() && ::access(folder.c_str(), F_OK) != 0)
    folder = folder.parent_path();
  return folder.string();
}

pb::NodeInfo GetNodeInfo(const pb::NodeInfoRequest& request) {
  const milliseconds patience(request.patience_ms());
  pb::NodeInfo report;
  ReadSystem(patience, report);
  ReadCoresAndMemory(report);
  *report.mutable_gpus() = ReadGpus(FindNvidiaSmi(), patience);
  AddAccelerators(patience, *report.mutable_gpus());
  ReadDisk(pb::Disk::STATE, NearestToJobsFolder(), report);
  ReadDisk(pb::Disk::SHARED_MEMORY, "/dev/shm", report);
  ReadLimit(RLIMIT_NOFILE, *report.mutable_open_files());
  ReadLimit(RLIMIT_NPROC, *report.mutable_processes());
  ReadLimit(RLIMIT_MEMLOCK, *report.mutable_locked_memory());
  ReadInterfaces(report);
  if (!request.bin_dir().empty()) {
    for (const char* name : {"dslaunch", "dslaunch-train"})
      TryProgram(name, request.bin_dir() + "/" + name, patience, report);
  }
  if (!request.python().empty()) TryProgram("python", request.python(), patience, report);
  if (request.has_program())
    *report.mutable_found_program() = FindProgramOfJob(request.program(), patience);
  return report;
}

}  // namespace dslaunch
