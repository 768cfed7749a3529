#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "agent/accelerators/accelerators.h"
#include "base/count.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "cli/commands/doctor_report.h"
#include "cli/commands/doctor_text.h"
#include "cli/plan/job_spec.h"

namespace dslaunch {
namespace {

using Level = Finding::Level;

constexpr uint64_t kLowDiskBytes = uint64_t{1} << 30;
constexpr uint64_t kLowMemoryBytes = uint64_t{1} << 29;
constexpr uint64_t kGpuIsUsedBytes = uint64_t{1} << 30;
// Limit of locked memory below which doctor warns, because NCCL and UCX lock more memory to use the
// network adapter.
constexpr uint64_t kLowLockedBytes = 64 << 20;
constexpr int64_t kSkewUs = 1'000'000;
// Least difference of clocks that is fatal, in microseconds. Certificates are valid from a day
// before their issue, so a larger difference makes them invalid.
constexpr int64_t kFatalSkewUs = int64_t{23} * 3600 * 1'000'000;

// Numbers of file descriptors: of the agent itself, of the agent for each rank, and of a rank for
// connections to another rank and for libraries.
constexpr uint64_t kAgentFiles = 64;
constexpr uint64_t kFilesPerSlot = 8;
constexpr uint64_t kRankFiles = 128;
constexpr uint64_t kProcessesPerSlot = 64;  // processes and threads that each slot may need

std::string LimitText(uint64_t limit) {
  return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

const pb::InstalledProgram* FindProgram(const pb::NodeInfo& report, const std::string& name) {
  for (const pb::InstalledProgram& program : report.programs()) {
    if (program.name() == name) return &program;
  }
  return nullptr;
}

const pb::MarkedFolder* FindFolder(
    const google::protobuf::RepeatedPtrField<pb::MarkedFolder>& folders,
    pb::MarkedFolder::Use use) {
  for (const pb::MarkedFolder& folder : folders) {
    if (folder.use() == use) return &folder;
  }
  return nullptr;
}

// Returns the most frequent answer, or the first of several equally frequent answers. Empty answers
// do not count.
std::string Majority(const std::vector<std::string>& answers) {
  std::string best;
  std::ptrdiff_t most = 0;
  for (const std::string& answer : answers) {
    const std::ptrdiff_t count = std::ranges::count(answers, answer);
    if (answer.empty() || count <= most) continue;
    best = answer;
    most = count;
  }
  return best;
}

// Returns the default hint for a failed step whose message has no hint.
std::string UsualHint(const std::string& step) {
  if (step == "copy agent" || step == "start agent") {
    return "the agent is copied to ~/.cache/dslaunch there: allow the account to write 20 MB in "
           "that folder and to run programs from it (no noexec mount), or choose another with "
           "--agent_dir, on Linux 4.18 or newer";
  }
  if (step == "ask agent" || step == "network")
    return "run doctor again; if it fails again, look at the node's load (uptime) and kernel log "
           "(dmesg)";
  return "compare with ssh -v";
}

std::string JobText(const JobView& job, int64_t now_unix_ms) {
  std::string text = job.record.job_id;
  if (job.step >= 0) text += ", step " + StepText(job);
  const std::string copy = CopyText(job, now_unix_ms);
  return copy.empty() ? text : text + ", copy in memory: " + copy;
}

class Diagnosis {
 public:
  explicit Diagnosis(const DoctorInfo& info) : info_(info) {
    std::vector<int64_t> clocks = {0};  // clock offsets, beginning with this machine's offset of 0
    std::vector<std::string> drivers, trainers, pythons;
    for (const DoctorNode& node : info.nodes) {
      if (!node.report) continue;
      clocks.push_back(node.clock_ahead_us);
      drivers.push_back(node.report->gpus().driver());
      trainers.push_back(TrainerVersion(*node.report));
      pythons.push_back(node.report->found_program().said());
      has_gpus_ = has_gpus_ || node.report->gpus().visible() > 0;
    }
    // If the two middle offsets differ, either may be right, so the offset closer to this machine's
    // clock is used.
    std::ranges::sort(clocks);
    const int64_t low = clocks[(clocks.size() - 1) / 2], high = clocks[clocks.size() / 2];
    clock_us_ = std::abs(low) <= std::abs(high) ? low : high;
    driver_ = Majority(drivers);
    trainer_ = Majority(trainers);
    python_ = Majority(pythons);
  }

  std::vector<Finding> Run() && {
    for (const DoctorNode& node : info_.nodes) {
      node_ = &node;
      if (node.report)
        CheckNode(*node.report);
      else
        FailWith(node.failed_step, node.failure);
    }
    node_ = nullptr;
    CheckThisClock();
    CheckFolders();
    for (const JobView& job : info_.jobs) Ok("running job", JobText(job, info_.now_unix_ms));
    AddBench();
    return std::move(findings_);
  }

 private:
  void Add(Level level, std::string check, std::string seen, std::string hint) {
    findings_.push_back({.node = node_ == nullptr ? "" : node_->name,
                         .check = std::move(check),
                         .level = level,
                         .seen = SanitizeForTerminal(seen),
                         .hint = SanitizeForTerminal(hint)});
  }
  void Ok(std::string check, std::string seen) {
    Add(Level::kOk, std::move(check), std::move(seen), "");
  }
  // Adds a warning. `measured` means that the node is slow or that its clock is wrong.
  void Warn(std::string check, std::string seen, std::string hint, bool measured = false) {
    Add(Level::kWarning, std::move(check), std::move(seen), std::move(hint));
    findings_.back().measured = measured;
  }
  void Fail(std::string check, std::string seen, std::string hint) {
    Add(Level::kFailure, std::move(check), std::move(seen), std::move(hint));
  }
  void FailWith(const std::string& check, const std::string& message) {
    SplitMessage split = SplitAtHint(message);
    if (split.hint.empty()) split.hint = UsualHint(check);
    Fail(check, std::move(split.seen), std::move(split.hint));
  }

  static std::string TrainerVersion(const pb::NodeInfo& report) {
    const pb::InstalledProgram* const trainer = FindProgram(report, "dslaunch-train");
    return trainer != nullptr && trainer->state() == pb::InstalledProgram::WORKS ? trainer->said()
                                                                                 : "";
  }

  void CheckNode(const pb::NodeInfo& report) {
    if (!node_->steps.empty()) Ok("ssh", JoinTexts(node_->steps, ", "));
    CheckVersion(report);
    CheckTwin(report);
    CheckCores(report);
    CheckGpus(report.gpus());
    CheckTrainer(report);
    CheckPython(report);
    if (report.has_found_program()) CheckProgram(report.found_program());
    CheckClock();
    for (const pb::Disk& disk : report.disks()) CheckDisk(disk);
    CheckLimits(report);
    CheckCwd();
    CheckNetwork();
  }

  void CheckVersion(const pb::NodeInfo& report) {
    const std::string seen = "dslaunch " + report.version() + ", agent " + report.build_id();
    const bool is_own_build =
        report.build_id() == info_.build_id ||
        std::ranges::find(info_.other_builds, report.build_id()) != info_.other_builds.end();
    if (report.version() != info_.version || !is_own_build) {
      return Fail(
          "version",
          seen + "; this machine has dslaunch " + info_.version + ", agent " + info_.build_id,
          info_.launcher == Launcher::kLocal
              ? "install dslaunch and dslaunch-agent of one version in one folder"
              : "remove ~/.cache/dslaunch on the node and run doctor again");
    }
    const pb::InstalledProgram* const installed = FindProgram(report, "dslaunch");
    if (installed != nullptr && installed->state() == pb::InstalledProgram::BROKEN) {
      return Warn("version", installed->path() + " does not start there: " + installed->said(),
                  "reinstall dslaunch there; jobs that are started from here do not need it");
    }
    if (installed != nullptr && installed->state() == pb::InstalledProgram::WORKS &&
        installed->said().find(info_.version) == std::string::npos) {
      return Warn(
          "version",
          installed->path() + " is " + installed->said() + " there, " + info_.version + " here",
          "install the same version on both; jobs that are started from here bring their "
          "own agent");
    }
    Ok("version", seen);
  }

  void CheckTwin(const pb::NodeInfo& report) {
    if (info_.launcher == Launcher::kLocal) return;
    for (const DoctorNode& other : info_.nodes) {
      if (&other == node_) return;
      if (!other.report || other.report->identity() != report.identity()) continue;
      return Fail("same machine", "it is the same machine as " + other.name,
                  "keep one of the two in the hostfile and give it the slots of both");
    }
  }

  void CheckCores(const pb::NodeInfo& report) {
    const std::string cores = Count(report.cores(), "core");
    const std::string memory = MemoryText(report.memory_bytes()) + ", " +
                               MemoryText(report.memory_available_bytes()) + " available";
    if (static_cast<int>(report.cores()) < node_->slots) {
      Warn("cores",
           cores + " for " + Count(static_cast<size_t>(node_->slots), "slot") +
               ": ranks will share them",
           "lower its slots, or let more cores be used (taskset, the cgroup's cpu.max)");
    } else {
      Ok("cores", cores);
    }
    if (report.memory_available_bytes() < kLowMemoryBytes)
      Warn("memory", memory, "end what uses it there, or raise the cgroup's memory.max");
    else
      Ok("memory", memory);
  }

  void CheckGpus(const pb::Gpus& gpus) {
    const bool is_asked_for = info_.device == DeviceChoice::kAuto ||
                              info_.device == DeviceChoice::kCpu ||
                              RowOf(gpus.device()).device == DeviceOf(info_.device);
    const uint32_t usable = is_asked_for ? gpus.visible() : 0;
    const auto visible = static_cast<int>(usable);
    const AcceleratorRow& row = RowOf(is_asked_for ? gpus.device() : DeviceOf(info_.device));
    const std::string noun(row.noun);
    std::string seen = gpus.visible() == 0 ? "none" : Count(gpus.visible(), noun);
    if (gpus.installed_size() > 0)
      seen = GpuNames(gpus) + (gpus.driver().empty() ? "" : ", driver " + gpus.driver());
    if (gpus.visible() == 0 && !gpus.unusable_file().empty()) {
      Warn("gpu access", gpus.unusable_file() + " may not be opened by this account there",
           "add the account to the group of that file (ls -l shows it), and log in again");
    }
    if (!gpus.trouble().empty()) {
      const bool is_nvidia = row.device == pb::DEVICE_CUDA;
      Warn("gpu driver", (is_nvidia ? "NVIDIA's library is there, but: " : "") + gpus.trouble(),
           "compare with " + std::string(row.tool) +
               " there; after an update of the driver restart the node or "
               "reload its kernel module");
    } else if (!driver_.empty() && !gpus.driver().empty() && gpus.driver() != driver_) {
      Warn("gpu driver", gpus.driver() + ", other nodes have " + driver_,
           "install the same driver on all nodes");
    }
    const bool wants_gpus =
        info_.device != DeviceChoice::kCpu && (info_.device != DeviceChoice::kAuto || has_gpus_);
    if (wants_gpus) CheckGpusAreFree(gpus);
    if (!wants_gpus || visible >= node_->slots) return Ok("gpus", seen);
    std::string hidden;
    if (gpus.installed_size() > visible)
      hidden = ", of " + std::to_string(gpus.installed_size()) + " installed";
    Fail("gpus",
         Count(usable, "usable " + noun) + hidden + " for " +
             Count(static_cast<size_t>(node_->slots), "slot"),
         hidden.empty()
             ? "lower its slots, or use --device cpu"
             : "look at " + std::string(row.levels.front().front()) + " and " +
                   std::string(row.files) + " there, or lower its slots, or use --device cpu");
  }

  void CheckGpusAreFree(const pb::Gpus& gpus) {
    for (int i = 0; i < std::min(gpus.installed_size(), node_->slots); ++i) {
      const uint64_t used = gpus.installed(i).memory_used_bytes();
      if (used < kGpuIsUsedBytes) continue;
      return Warn("gpu memory",
                  std::string(RowOf(gpus.device()).noun) + " " + std::to_string(i) + " has " +
                      MemoryText(used) + " in use",
                  "another program runs on it: look at " + std::string(RowOf(gpus.device()).tool) +
                      " and dslaunch ps");
    }
  }

  void CheckTrainer(const pb::NodeInfo& report) {
    const pb::InstalledProgram* const trainer = FindProgram(report, "dslaunch-train");
    if (trainer == nullptr) return;
    switch (trainer->state()) {
      case pb::InstalledProgram::WORKS:
        if (trainer->said() == trainer_) return Ok("trainer", trainer->said());
        return Warn("trainer", trainer->said() + ", other nodes have " + trainer_,
                    "install the same dslaunch and LibTorch on all nodes");
      case pb::InstalledProgram::BROKEN:
        return MissTrainer(
            trainer->path() + " does not start: " + trainer->said(),
            "install LibTorch there as on this machine (pip install 'dslaunch[train]' in a Python "
            "environment, packaging/fetch-libtorch, or the link lib/dslaunch/libtorch of an "
            "installed tree)");
      default:
        return MissTrainer(
            "no " + trainer->path() + ": `dslaunch train` cannot run there",
            "install dslaunch with its trainer in the same folder on every node, or share that "
            "folder");
    }
  }
  void CheckProgram(const pb::FoundProgram& program) {
    if (!program.failure().empty()) {
      SplitMessage split = SplitAtHint(program.failure());
      if (split.hint.empty())
        split.hint = "give a path that every node has, or copy it with --copy";
      return Fail("program", std::move(split.seen), std::move(split.hint));
    }
    const std::string seen =
        program.executable() + (program.said().empty() ? "" : ", " + program.said());
    if (program.said() == python_) return Ok("program", seen);
    Warn(
        "program", seen + "; other nodes have " + python_,
        "use one version of Python on all nodes: activate the same environment (--venv_script), or "
        "name an interpreter that all have (PYTHON_EXEC)");
  }
  // Reports an absent trainer: a failure if the job needs the trainer, and a warning if another
  // machine has a trainer. Otherwise the installation does not include a trainer, so the check
  // succeeds.
  void MissTrainer(std::string seen, std::string hint) {
    if (info_.trainer_needed) return Fail("trainer", std::move(seen), std::move(hint));
    if (info_.has_trainer || !trainer_.empty())
      return Warn("trainer", std::move(seen), std::move(hint));
    Ok("trainer", "not installed");
  }

  void CheckPython(const pb::NodeInfo& report) {
    const pb::InstalledProgram* const python = FindProgram(report, "python");
    if (python == nullptr) return;
    if (python->state() == pb::InstalledProgram::WORKS) return Ok("python", python->said());
    const std::string trouble = python->state() == pb::InstalledProgram::BROKEN
                                    ? python->path() + " does not start: " + python->said()
                                    : "no " + python->path();
    Fail("python",
         "the Python environment " + info_.python_folder +
             " of this machine is not there: " + trouble,
         "make it there at the same path, share its folder, or deactivate it here if no rank needs "
         "it");
  }

  // Compares the node's clock with the median clock.
  void JudgeClock(int64_t ahead_us, int64_t error_us) {
    const int64_t off_us = ahead_us - clock_us_;
    const int64_t surely_us = std::max<int64_t>(0, std::abs(off_us) - error_us);
    const std::string hint = "let NTP set it: timedatectl set-ntp true, or start chronyd there";
    const std::string seen = "it is " + SignedTime(off_us) + " off";
    if (surely_us > kFatalSkewUs)
      Fail("clock", seen + ": the job's certificates do not hold there", hint);
    else if (surely_us > kSkewUs)
      Warn("clock", seen, hint, /*measured=*/true);
    else
      Ok("clock", SignedTime(ahead_us));
  }
  void CheckClock() { JudgeClock(node_->clock_ahead_us, node_->clock_error_us); }
  void CheckThisClock() {
    if (clock_us_ == 0 || std::abs(clock_us_) <= kSkewUs) return;
    DoctorNode here;
    here.name = "this machine";
    node_ = &here;
    JudgeClock(0, 0);
    node_ = nullptr;
  }

  void CheckDisk(const pb::Disk& disk) {
    const bool is_state = disk.use() == pb::Disk::STATE;
    const std::string check = is_state ? "disk" : "shared memory";
    if (!disk.trouble().empty()) {
      const std::string seen = "nothing can be written in " + disk.path() + ": " + disk.trouble();
      if (is_state) {
        return Fail(check, seen,
                    "make it writable for this account, make room there, or set XDG_STATE_HOME to "
                    "another folder");
      }
      return Warn(check, seen, "mount a tmpfs there; data loaders and NCCL need it");
    }
    const std::string seen = MemoryText(disk.free_bytes()) + " of " +
                             MemoryText(disk.total_bytes()) + " free in " + disk.path();
    if (disk.free_bytes() >= kLowDiskBytes) return Ok(check, seen);
    Warn(check, seen,
         is_state
             ? "make room there: dslaunch ps --prune removes what old jobs left"
             : "remove old files there; in a container start it with --shm-size or --ipc=host");
  }

  void CheckLimits(const pb::NodeInfo& report) {
    const auto slots = static_cast<uint64_t>(std::max(node_->slots, 0));
    const auto ranks = static_cast<uint64_t>(std::max(info_.world_size, 0));
    const uint64_t files = std::max(kAgentFiles + slots * kFilesPerSlot, kRankFiles + ranks);
    const pb::Limit& open_files = report.open_files();
    if (open_files.soft() < files) {
      Fail("open files",
           "the limit is " + std::to_string(open_files.soft()) + ", " + Count(slots, "slot") +
               " of " + Count(ranks, "rank") + " need about " + std::to_string(files),
           open_files.hard() >= files
               ? "raise it there with ulimit -n in the account's start-up files"
               : "raise nofile for the account in /etc/security/limits.conf there (its hard limit "
                 "is " +
                     LimitText(open_files.hard()) + ")");
    } else {
      Ok("open files", "limit " + LimitText(open_files.soft()));
    }
    const uint64_t processes = slots * kProcessesPerSlot;
    if (report.processes().soft() < processes) {
      Warn("processes",
           "the limit is " + std::to_string(report.processes().soft()) + " with threads, " +
               Count(slots, "slot") + " need about " + std::to_string(processes),
           "raise nproc for the account in /etc/security/limits.conf there (ulimit -u)");
    }
    if (report.infiniband() && report.locked_memory().soft() < kLowLockedBytes) {
      Warn("locked memory",
           "the limit is " + MemoryText(report.locked_memory().soft()) +
               ", too little for its InfiniBand adapters",
           "set memlock to unlimited for the account in /etc/security/limits.conf there "
           "(ulimit -l)");
    }
  }

  bool IsRendezvous() const { return info_.rendezvous && &info_.nodes[*info_.rendezvous] == node_; }

  // Returns the node's view of a folder that jobs use; nullptr if the node was not asked.
  const pb::MarkedFolder* FolderOf(const DoctorNode& node, pb::MarkedFolder::Use use) const {
    if (info_.rendezvous && &info_.nodes[*info_.rendezvous] == &node)
      return info_.listen ? FindFolder(info_.listen->folders(), use) : nullptr;
    return node.reach ? FindFolder(node.reach->folders(), use) : nullptr;
  }

  void CheckCwd() {
    // The check of a program that was found also covers its folder, so no further check is needed.
    if (node_->report->has_found_program()) return;
    const pb::MarkedFolder* const cwd = FolderOf(*node_, pb::MarkedFolder::CWD);
    if (cwd == nullptr || cwd->trouble().empty()) return;
    if (IsRendezvous() && cwd->trouble() != std::strerror(ENOENT)) return;
    Warn("directory", info_.cwd + ": " + cwd->trouble(),
         "jobs start in the directory that dslaunch is called in: call it in one that every node "
         "has");
  }

  void CheckNetwork() {
    if (!info_.rendezvous || info_.nodes.size() < 2) return;
    const std::string host = info_.nodes[*info_.rendezvous].name;
    if (IsRendezvous()) {
      if (!info_.listen) return;
      if (!info_.listen->refusal().empty()) {
        return Fail("network", info_.listen->refusal(),
                    "the first node hosts the rendezvous: let it listen on a TCP port");
      }
      if (info_.listen->endpoints().empty()) {
        return Fail("network", "it has no address but loopback and link-local ones",
                    "give it an address in a network of all nodes, or put another node first in "
                    "the hostfile");
      }
      std::vector<std::string> endpoints(info_.listen->endpoints().begin(),
                                         info_.listen->endpoints().end());
      return Ok("network", "listens for the others at " + JoinTexts(endpoints, ", "));
    }
    if (!node_->reach_failure.empty()) return FailWith("network", node_->reach_failure);
    if (!node_->reach || node_->reach->results().empty()) return;
    if (const pb::ReachResult* const way = FirstReached(*node_->reach)) {
      return Ok("network",
                "reaches " + host + " at " + way->endpoint() + " through " +
                    (way->interface().empty() ? "an unknown interface" : way->interface()) + " (" +
                    way->local_address() + ")");
    }
    std::vector<std::string> tried;
    for (const pb::ReachResult& attempt : node_->reach->results()) {
      tried.push_back(attempt.endpoint() +
                      (attempt.interface().empty() ? "" : " through " + attempt.interface()) +
                      ": " + attempt.trouble());
    }
    Fail("network",
         "it cannot reach " + host + ", which hosts the rendezvous: " + JoinTexts(tried, ", "),
         "let the nodes reach each other on all TCP ports (firewall, routes), or put a node that "
         "all reach first in the hostfile");
  }

  // For each folder in which a node wrote a marker, reports which other nodes share the folder.
  void CheckFolders() {
    if (!info_.listen || info_.nodes.size() < 2) return;
    ShowShared(pb::MarkedFolder::STATE, "state folder");
    ShowShared(pb::MarkedFolder::CWD, "working directory");
  }
  void ShowShared(pb::MarkedFolder::Use use, const std::string& check) {
    const pb::MarkedFolder* const marked = FindFolder(info_.listen->folders(), use);
    if (marked == nullptr || !marked->trouble().empty()) return;
    std::vector<std::string> sharing, separate;
    for (const DoctorNode& node : info_.nodes) {
      const pb::MarkedFolder* const folder = FolderOf(node, use);
      if (folder == nullptr || folder == marked || !folder->trouble().empty()) continue;
      (folder->seen() ? sharing : separate).push_back(node.name);
    }
    if (sharing.empty() && separate.empty()) return;
    const std::string host = info_.nodes[*info_.rendezvous].name;
    Ok(check, separate.empty()  ? "shared by all nodes"
              : sharing.empty() ? "each node has its own"
                                : "shared by " + host + ", " + NameList(sharing, ", ") +
                                      "; not by " + NameList(separate, ", "));
  }

  void AddBench() {
    if (!info_.bench) return;
    for (size_t i = 0; i < info_.bench->nodes.size(); ++i) {
      const std::string& failure = info_.bench->nodes[i].failure;
      node_ = &info_.nodes[i];
      if (!failure.empty() && node_->report)
        Fail("measurement", failure, "run doctor --bench again");
    }
    for (BenchFinding& finding : JudgeBench(*info_.bench)) {
      node_ = &info_.nodes[finding.node];
      if (finding.fails)
        Fail(std::move(finding.check), std::move(finding.seen), std::move(finding.hint));
      else
        Warn(std::move(finding.check), std::move(finding.seen), std::move(finding.hint),
             /*measured=*/true);
    }
    node_ = nullptr;
  }

  const DoctorInfo& info_;
  const DoctorNode* node_ = nullptr;
  std::vector<Finding> findings_;
  int64_t clock_us_ = 0;  // median clock of the nodes, relative to this machine's clock
  bool has_gpus_ = false;
  std::string driver_;
  std::string trainer_;
  std::string python_;
};

}  // namespace

std::vector<Finding> Diagnose(const DoctorInfo& info) { return Diagnosis(info).Run(); }

SplitMessage SplitAtHint(const std::string& message) {
  size_t begin = 0;
  if (message.starts_with("node '")) {
    const size_t colon = message.find("): ");
    if (colon != std::string::npos) begin = colon + 3;
  }
  const size_t end = message.rfind("; ");
  const std::string last = end == std::string::npos ? "" : message.substr(end + 2);
  const bool is_hint = !last.starts_with("it printed") && !last.ends_with('?');
  if (end == std::string::npos || end < begin || !is_hint) return {message.substr(begin), ""};
  return {message.substr(begin, end - begin), last};
}

}  // namespace dslaunch
