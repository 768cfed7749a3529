#include "cli/commands/doctor_report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/count.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;
using Level = Finding::Level;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLowDiskBytes = kGiB;
constexpr uint64_t kLowMemoryBytes = kGiB / 2;
constexpr uint64_t kGpuIsUsedBytes = kGiB;
constexpr uint64_t kLowLockedBytes = 64 * kMiB;  // NCCL and UCX lock more memory with the adapter
constexpr int64_t kSkewUs = 1'000'000;
// Certificates are valid from a day before their issue.
constexpr int64_t kFatalSkewUs = int64_t{23} * 3600 * 1'000'000;
constexpr uint64_t kUnlimited = UINT64_MAX;

// File descriptors: of the agent; of the agent for each rank; of a rank for another rank and for
// libraries.
constexpr uint64_t kAgentFiles = 64;
constexpr uint64_t kFilesPerSlot = 8;
constexpr uint64_t kRankFiles = 128;
constexpr uint64_t kProcessesPerSlot = 64;  // processes and threads

std::string Bytes(uint64_t bytes) {
  char text[32];
  const double gib = static_cast<double>(bytes) / static_cast<double>(kGiB);
  if (bytes < kGiB)
    std::snprintf(text, sizeof text, "%llu MiB", static_cast<unsigned long long>(bytes / kMiB));
  else
    std::snprintf(text, sizeof text, gib < 10 ? "%.1f GiB" : "%.0f GiB", gib);
  return text;
}

// Returns "+2 ms", "-3.4 s" or "+2 h".
std::string SignedTime(int64_t us) {
  char text[32];
  const double s = static_cast<double>(us) / 1e6;
  if (std::abs(s) < 1)
    std::snprintf(text, sizeof text, "%+.0f ms", s * 1e3);
  else if (std::abs(s) < 120)
    std::snprintf(text, sizeof text, "%+.1f s", s);
  else if (std::abs(s) < 7200)
    std::snprintf(text, sizeof text, "%+.0f min", s / 60);
  else
    std::snprintf(text, sizeof text, "%+.0f h", s / 3600);
  return text;
}

std::string LimitText(uint64_t limit) {
  return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

std::string Join(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// Returns "2 x NVIDIA H100" for equal GPUs.
std::string GpuNames(const pb::Gpus& gpus) {
  std::vector<std::pair<std::string, int>> counts;
  for (const pb::Gpu& gpu : gpus.installed()) {
    auto known = std::ranges::find(counts, gpu.name(), &std::pair<std::string, int>::first);
    if (known == counts.end()) known = counts.insert(known, {gpu.name(), 0});
    ++known->second;
  }
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(std::to_string(count) + " x " + name);
  return Join(texts, ", ");
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

const pb::ReachResult* FirstReached(const pb::ReachReply& reply) {
  for (const pb::ReachResult& attempt : reply.results()) {
    if (attempt.reached()) return &attempt;
  }
  return nullptr;
}

// Returns the most frequent answer, the first one of equally frequent ones. Empty answers do not
// count.
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

// Returns the default hint for a failed step whose message has none.
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

class Diagnosis {
 public:
  explicit Diagnosis(const DoctorInfo& info) : info_(info) {
    std::vector<int64_t> clocks = {0};  // this machine's clock
    std::vector<std::string> drivers, trainers, pythons;
    for (const DoctorNode& node : info.nodes) {
      if (!node.report) continue;
      clocks.push_back(node.clock_ahead_us);
      drivers.push_back(node.report->gpus().driver());
      trainers.push_back(TrainerVersion(*node.report));
      pythons.push_back(node.report->found_program().said());
      has_gpus_ = has_gpus_ || node.report->gpus().visible() > 0;
    }
    // If two clocks differ, either may be right; the one closer to this machine's is used.
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
    return std::move(findings_);
  }

 private:
  void Add(Level level, std::string check, std::string seen, std::string hint) {
    findings_.push_back({node_ == nullptr ? "" : node_->name, std::move(check), level,
                         SanitizeForTerminal(seen), SanitizeForTerminal(hint)});
  }
  void Ok(std::string check, std::string seen) {
    Add(Level::kOk, std::move(check), std::move(seen), "");
  }
  void Warn(std::string check, std::string seen, std::string hint) {
    Add(Level::kWarning, std::move(check), std::move(seen), std::move(hint));
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
    if (!node_->steps.empty()) Ok("ssh", Join(node_->steps, ", "));
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
    if (report.version() != info_.version || report.build_id() != info_.build_id) {
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
    const std::string memory =
        Bytes(report.memory_bytes()) + ", " + Bytes(report.memory_available_bytes()) + " available";
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
    const auto visible = static_cast<int>(gpus.visible());
    std::string seen = visible == 0 ? "none" : Count(gpus.visible(), "GPU");
    if (gpus.installed_size() > 0) seen = GpuNames(gpus) + ", driver " + gpus.driver();
    if (!gpus.trouble().empty()) {
      Warn("gpu driver", "NVIDIA's library is there, but: " + gpus.trouble(),
           "compare with nvidia-smi there; after an update of the driver restart the node or "
           "reload its kernel module");
    } else if (!driver_.empty() && !gpus.driver().empty() && gpus.driver() != driver_) {
      Warn("gpu driver", gpus.driver() + ", other nodes have " + driver_,
           "install the same driver on all nodes");
    }
    const bool wants_gpus =
        info_.device == DeviceChoice::kCuda || (info_.device == DeviceChoice::kAuto && has_gpus_);
    if (wants_gpus) CheckGpusAreFree(gpus);
    if (!wants_gpus || visible >= node_->slots) return Ok("gpus", seen);
    std::string hidden;
    if (gpus.installed_size() > visible)
      hidden = ", of " + std::to_string(gpus.installed_size()) + " installed";
    Fail("gpus",
         Count(gpus.visible(), "usable GPU") + hidden + " for " +
             Count(static_cast<size_t>(node_->slots), "slot"),
         hidden.empty()
             ? "lower its slots, or use --device cpu"
             : "look at CUDA_VISIBLE_DEVICES and /dev/nvidia* there, or lower its slots, or use "
               "--device cpu");
  }

  void CheckGpusAreFree(const pb::Gpus& gpus) {
    for (int i = 0; i < std::min(gpus.installed_size(), node_->slots); ++i) {
      const uint64_t used = gpus.installed(i).memory_used_bytes();
      if (used < kGpuIsUsedBytes) continue;
      return Warn("gpu memory", "GPU " + std::to_string(i) + " has " + Bytes(used) + " in use",
                  "another program runs on it: look at nvidia-smi and dslaunch ps");
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
  // A trainer that cannot run anywhere is not part of this installation, so its absence is not a
  // failure.
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

  // Compares the node's clock with the majority.
  void JudgeClock(int64_t ahead_us, int64_t error_us) {
    const int64_t off_us = ahead_us - clock_us_;
    const int64_t surely_us = std::max<int64_t>(0, std::abs(off_us) - error_us);
    const std::string hint = "let NTP set it: timedatectl set-ntp true, or start chronyd there";
    const std::string seen = "it is " + SignedTime(off_us) + " off";
    if (surely_us > kFatalSkewUs)
      Fail("clock", seen + ": the job's certificates do not hold there", hint);
    else if (surely_us > kSkewUs)
      Warn("clock", seen, hint);
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
    const std::string seen =
        Bytes(disk.free_bytes()) + " of " + Bytes(disk.total_bytes()) + " free in " + disk.path();
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
           "the limit is " + Bytes(report.locked_memory().soft()) +
               ", too little for its InfiniBand adapters",
           "set memlock to unlimited for the account in /etc/security/limits.conf there "
           "(ulimit -l)");
    }
  }

  bool IsRendezvous() const { return info_.rendezvous && &info_.nodes[*info_.rendezvous] == node_; }

  // Returns the node's own view of a folder that jobs use, or nullptr if it was not asked.
  const pb::MarkedFolder* FolderOf(const DoctorNode& node, pb::MarkedFolder::Use use) const {
    if (info_.rendezvous && &info_.nodes[*info_.rendezvous] == &node)
      return info_.listen ? FindFolder(info_.listen->folders(), use) : nullptr;
    return node.reach ? FindFolder(node.reach->folders(), use) : nullptr;
  }

  void CheckCwd() {
    if (node_->report->has_found_program()) return;  // looking for the program included its folder
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
      return Ok("network", "listens for the others at " + Join(endpoints, ", "));
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
         "it cannot reach " + host + ", which hosts the rendezvous: " + Join(tried, ", "),
         "let the nodes reach each other on all TCP ports (firewall, routes), or put a node that "
         "all reach first in the hostfile");
  }

  // Reports which nodes share a folder with the node that holds the marker.
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

  const DoctorInfo& info_;
  const DoctorNode* node_ = nullptr;
  std::vector<Finding> findings_;
  int64_t clock_us_ = 0;  // median clock relative to this machine's
  bool has_gpus_ = false;
  std::string driver_;
  std::string trainer_;
  std::string python_;
};

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warn";
    case Level::kFailure:
      break;
  }
  return "FAIL";
}

// Describes a healthy node in one line.
std::string Describe(const DoctorInfo& info, const DoctorNode& node) {
  const pb::NodeInfo& report = *node.report;
  std::vector<std::string> parts = {Count(report.cores(), "core"), Bytes(report.memory_bytes())};
  if (report.gpus().installed_size() > 0)
    parts.push_back(GpuNames(report.gpus()) + " (driver " + report.gpus().driver() + ")");
  else
    parts.push_back("no GPU");
  for (const pb::Disk& disk : report.disks()) {
    if (disk.use() == pb::Disk::STATE) parts.push_back(Bytes(disk.free_bytes()) + " free");
  }
  if (info.launcher != Launcher::kLocal)
    parts.push_back("clock " + SignedTime(node.clock_ahead_us));
  if (const pb::FoundProgram& program = report.found_program(); !program.executable().empty()) {
    parts.push_back("runs " + program.executable() +
                    (program.said().empty() ? "" : " (" + program.said() + ")"));
  }
  if (info.nodes.size() > 1 && info.rendezvous) {
    const std::string& host = info.nodes[*info.rendezvous].name;
    if (&info.nodes[*info.rendezvous] == &node) {
      parts.push_back("rendezvous");
    } else if (const pb::ReachResult* const way =
                   node.reach ? FirstReached(*node.reach) : nullptr) {
      parts.push_back("reaches " + host + " through " + way->interface());
    }
  }
  if (node.spare) parts.push_back("spare");
  return SanitizeForTerminal(Join(parts, ", "));
}

Json LimitJson(const pb::Limit& limit) {
  Json json = {{"soft", nullptr}, {"hard", nullptr}};
  if (limit.soft() != kUnlimited) json["soft"] = limit.soft();
  if (limit.hard() != kUnlimited) json["hard"] = limit.hard();
  return json;
}

Json ReportJson(const pb::NodeInfo& report) {
  Json gpus = Json::array(), disks = Json::array(), interfaces = Json::array(),
       programs = Json::array();
  for (const pb::Gpu& gpu : report.gpus().installed()) {
    gpus.push_back({{"name", gpu.name()},
                    {"uuid", gpu.uuid()},
                    {"memory_bytes", gpu.memory_bytes()},
                    {"memory_used_bytes", gpu.memory_used_bytes()}});
  }
  for (const pb::Disk& disk : report.disks()) {
    disks.push_back({{"use", disk.use() == pb::Disk::STATE ? "state" : "shared_memory"},
                     {"path", disk.path()},
                     {"free_bytes", disk.free_bytes()},
                     {"total_bytes", disk.total_bytes()},
                     {"trouble", disk.trouble()}});
  }
  for (const pb::NetworkInterface& interface : report.interfaces()) {
    interfaces.push_back({{"name", interface.name()},
                          {"up", interface.up()},
                          {"addresses", std::vector<std::string>(interface.addresses().begin(),
                                                                 interface.addresses().end())}});
  }
  constexpr const char* kStates[] = {"missing", "broken", "works"};
  for (const pb::InstalledProgram& program : report.programs()) {
    programs.push_back({{"name", program.name()},
                        {"path", program.path()},
                        {"state", kStates[std::clamp(static_cast<int>(program.state()), 0, 2)]},
                        {"said", program.said()}});
  }
  return {{"version", report.version()},
          {"build_id", report.build_id()},
          {"host_name", report.host_name()},
          {"system", report.system()},
          {"boot_id", report.boot_id()},
          {"cores", report.cores()},
          {"memory_bytes", report.memory_bytes()},
          {"memory_available_bytes", report.memory_available_bytes()},
          {"gpus", std::move(gpus)},
          {"gpus_visible", report.gpus().visible()},
          {"gpu_driver", report.gpus().driver()},
          {"cuda", report.gpus().cuda()},
          {"disks", std::move(disks)},
          {"open_files", LimitJson(report.open_files())},
          {"processes", LimitJson(report.processes())},
          {"locked_memory", LimitJson(report.locked_memory())},
          {"interfaces", std::move(interfaces)},
          {"infiniband", report.infiniband()},
          {"programs", std::move(programs)},
          {"program", report.has_found_program()
                          ? Json{{"executable", report.found_program().executable()},
                                 {"said", report.found_program().said()},
                                 {"failure", report.found_program().failure()}}
                          : Json()}};
}

Json NodeJson(const DoctorNode& node) {
  Json json = {{"node", node.name},         {"slots", node.slots},
               {"spare", node.spare},       {"steps", node.steps},
               {"failed_step", nullptr},    {"failure", nullptr},
               {"clock_ahead_us", nullptr}, {"clock_error_us", nullptr},
               {"reach", Json::array()},    {"info", nullptr}};
  if (!node.failed_step.empty()) {
    json["failed_step"] = node.failed_step;
    json["failure"] = node.failure;
  }
  if (node.report) {
    json["clock_ahead_us"] = node.clock_ahead_us;
    json["clock_error_us"] = node.clock_error_us;
    json["info"] = ReportJson(*node.report);
  }
  if (!node.reach) return json;
  for (const pb::ReachResult& attempt : node.reach->results()) {
    json["reach"].push_back({{"endpoint", attempt.endpoint()},
                             {"reached", attempt.reached()},
                             {"trouble", attempt.trouble()},
                             {"local_address", attempt.local_address()},
                             {"interface", attempt.interface()},
                             {"took_us", attempt.took_us()}});
  }
  return json;
}

}  // namespace

std::vector<Finding> Diagnose(const DoctorInfo& info) { return Diagnosis(info).Run(); }

bool AnyFails(const std::vector<Finding>& findings) {
  return std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.level == Level::kFailure; });
}

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

std::string DoctorTable(const DoctorInfo& info, const std::vector<Finding>& findings) {
  struct Row {
    std::string node, level, text;
  };
  std::vector<Row> rows;
  size_t failing_nodes = 0, warnings = 0;
  const auto add_findings = [&](const std::string& name) {
    bool fails = false;
    size_t added = 0;
    for (const Finding& finding : findings) {
      if (finding.node != name || finding.level == Level::kOk) continue;
      rows.push_back({added++ == 0 ? name : "", LevelName(finding.level),
                      finding.check + ": " + finding.seen});
      if (!finding.hint.empty()) rows.push_back({"", "", "-> " + finding.hint});
      fails = fails || finding.level == Level::kFailure;
      warnings += finding.level == Level::kWarning;
    }
    failing_nodes += fails;
    return added > 0;
  };
  for (const DoctorNode& node : info.nodes) {
    const bool has_findings = add_findings(node.name);
    if (!has_findings) rows.push_back({node.name, LevelName(Level::kOk), Describe(info, node)});
    // The steps to the node that were completed.
    if (!node.failed_step.empty() && !node.steps.empty())
      rows.push_back({"", "", "done before: " + Join(node.steps, ", ")});
  }
  add_findings("this machine");
  for (const Finding& finding : findings) {
    if (finding.node.empty() && finding.level == Level::kOk)
      rows.push_back({"all", LevelName(Level::kOk), finding.check + ": " + finding.seen});
  }
  size_t name_width = 0;
  for (const Row& row : rows) name_width = std::max(name_width, row.node.size());
  std::string text;
  for (const Row& row : rows) {
    text += row.node + std::string(name_width - row.node.size() + 2, ' ') + row.level +
            std::string(6 - row.level.size(), ' ') + row.text + "\n";
  }
  const std::string nodes = Count(info.nodes.size(), "node");
  text += failing_nodes > 0 ? std::to_string(failing_nodes) + " of " + nodes +
                                  (failing_nodes == 1 ? " fails" : " fail")
          : warnings > 0 ? nodes + " can be used"
                         : "All is well on " + nodes;
  if (warnings > 0) text += ", " + Count(warnings, "warning");
  return text + "\n";
}

std::string DoctorJson(const DoctorInfo& info, const std::vector<Finding>& findings) {
  Json json = {{"ok", !AnyFails(findings)}, {"version", info.version},
               {"build_id", info.build_id}, {"launcher", RowOf(info.launcher).name},
               {"directory", info.cwd},     {"rendezvous", nullptr},
               {"nodes", Json::array()},    {"findings", Json::array()}};
  if (info.rendezvous) {
    json["rendezvous"] = {{"node", info.nodes[*info.rendezvous].name},
                          {"endpoints", Json::array()}};
    if (info.listen) {
      for (const std::string& endpoint : info.listen->endpoints())
        json["rendezvous"]["endpoints"].push_back(endpoint);
    }
  }
  for (const DoctorNode& node : info.nodes) json["nodes"].push_back(NodeJson(node));
  for (const Finding& finding : findings) {
    constexpr const char* kLevels[] = {"ok", "warn", "fail"};
    json["findings"].push_back({{"node", finding.node},
                                {"check", finding.check},
                                {"level", kLevels[static_cast<size_t>(finding.level)]},
                                {"seen", finding.seen},
                                {"hint", finding.hint}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
