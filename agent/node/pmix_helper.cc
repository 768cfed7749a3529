#include "agent/node/pmix_helper.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "agent/host/mpi_use.h"
#include "base/deadline.h"
#include "base/errno_text.h"
#include "base/proc_text.h"
#include "base/sanitize.h"
#include "base/socket_pair.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"
#include "proto/contract/worker_env.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

constexpr milliseconds kStartWithin(90'000);  // the agents of other nodes may be slow to reach
constexpr milliseconds kReapEvery(1);
constexpr char kFolderPrefix[] = "dslaunch-pmix-";
constexpr time_t kNewFolderSeconds = 60;
constexpr milliseconds kKillAfter(500);  // it ends at once, unless its library hangs

// A file without a name that holds `bytes` and can be executed.
Result<UniqueFd> InMemory(const std::string& bytes) {
  // Not closed on exec: its path in /proc is to be there.
  UniqueFd file(::memfd_create("dslaunch-pmix", 0));
  std::string_view rest = bytes;
  while (file && !rest.empty()) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written <= 0 && errno != EINTR) break;
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  if (!file || !rest.empty())
    return Error{ExitCode::kIo, "keep dslaunch-pmix in memory: " + ErrnoText(errno)};
  return file;
}

// Folders of servers that were killed together with their agents: they are locked as long as one
// of both lives. A new one is not locked yet.
void RemoveStaleFolders(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kFolderPrefix)) continue;
    const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status = {};
    const bool is_ours = folder && ::fstat(folder.get(), &status) == 0 &&
                         status.st_uid == ::geteuid() &&
                         status.st_mtime + kNewFolderSeconds < ::time(nullptr);
    std::error_code ignored;
    if (is_ours && ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0)
      std::filesystem::remove_all(path, ignored);
  }
}

struct ServerFolder {
  std::string path;
  UniqueFd lock;  // the server holds it, too
};

// In memory where it can be, for what ranks of this node share.
Result<ServerFolder> MakeFolder(const Environment& environment) {
  const char* const chosen = FindVariable(environment, "TMPDIR");
  const bool is_chosen = chosen != nullptr && *chosen == '/';
  const std::string parent = is_chosen                                ? chosen
                             : ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm"
                                                                      : "/tmp";
  RemoveStaleFolders(parent);
  ServerFolder folder;
  folder.path = parent + "/" + kFolderPrefix + "XXXXXX";
  if (::mkdtemp(folder.path.data()) == nullptr)
    return Error{ExitCode::kIo, "make " + folder.path + ": " + ErrnoText(errno)};
  folder.lock = UniqueFd(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder.lock || ::flock(folder.lock.get(), LOCK_SH) != 0)
    return Error{ExitCode::kIo, "lock " + folder.path + ": " + ErrnoText(errno)};
  return folder;
}

Environment ServerEnvironment(const Environment& of_programs, const std::string& job_id) {
  Environment environment;
  for (const std::string& entry : of_programs) {
    const bool replaced = entry.starts_with("LD_LIBRARY_PATH=") ||
                          entry.starts_with("PMIX_RANK=") || entry.starts_with("PMIX_NAMESPACE=") ||
                          entry.starts_with("PMIX_SERVER_") ||
                          entry.starts_with(std::string(kJobIdVariable) + "=");
    if (!replaced) environment.push_back(entry);
  }
  // By which it is found should agent and supervisor be killed.
  environment.push_back(std::string(kJobIdVariable) + "=" + job_id);
  const std::string library = PmixLibraryFolder(of_programs);
  if (!library.empty()) environment.push_back("LD_LIBRARY_PATH=" + library);
  return environment;
}

std::string LastLineOf(const std::string& path) {
  const std::string text = ReadWhole(path).value_or("");
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t begin = text.rfind('\n', end) + 1;
  return SanitizeForTerminal(Truncate(text.substr(begin, end + 1 - begin)));
}

}  // namespace

class PmixHelper::Process : public std::enable_shared_from_this<Process> {
 public:
  Process(asio::io_context& loop, ServerFolder folder, PmixHelper::Handlers handlers,
          std::string log_path, uint32_t ranks)
      : loop_(loop),
        ranks_(ranks),
        folder_(std::move(folder)),
        log_path_(std::move(log_path)),
        handlers_(std::move(handlers)),
        start_limit_(loop, kStartWithin) {}

  void Begin(pid_t pid, UniqueFd socket, const pb::PmixJob& job) {
    pid_ = pid;
    socket_ = std::make_unique<FramedSocket>(
        loop_, std::move(socket), [this](std::string_view bytes) { OnMessage(bytes); },
        [this](const std::string&) { OnClosed(); });
    socket_->Send(job);
    start_limit_.async_wait([self = shared_from_this()](std::error_code cancelled) {
      if (!cancelled) self->Fail("it does not answer");
    });
  }

  // Nothing is said any more; the process ends and is reaped. Blocks for milliseconds, so that the
  // agent cannot end first; longer only where the process hangs.
  void End() {
    handlers_ = {};
    start_limit_.cancel();
    socket_.reset();
    if (!Reap(kKillAfter)) {
      ::kill(pid_, SIGKILL);
      Reap(kKillAfter);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_.path, ignored);
  }

 private:
  void OnMessage(std::string_view bytes) {
    const auto self = shared_from_this();  // what is called may end this
    pb::PmixReport report;
    if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return Fail("it sent what no server sends");
    if (const Result<void> checked = CheckPmixReport(report, !handlers_.on_started, ranks_);
        !checked.ok())
      return Fail("it sent " + checked.error().message);
    if (report.has_failure()) return Fail(SanitizeForTerminal(Truncate(report.failure())));
    if (report.has_aborted()) {
      if (const auto on_aborted = handlers_.on_aborted) on_aborted(report.aborted());
      return;
    }
    start_limit_.cancel();
    std::exchange(handlers_.on_started, nullptr)(std::move(*report.mutable_clients()));
  }

  void OnClosed() {
    const std::string line = LastLineOf(log_path_);
    Fail(line.empty() ? "see " + log_path_ : line);
  }

  void Fail(const std::string& why) {
    const auto self = shared_from_this();  // what is called may end this
    start_limit_.cancel();
    if (const auto started = std::exchange(handlers_.on_started, nullptr)) {
      started(Error{ExitCode::kUnavailable, "the server for MPI ranks does not start: " + why});
    } else if (const auto lost = std::exchange(handlers_.on_lost, nullptr)) {
      lost(why);
    }
  }

  // True once it has ended. Waits for it, `limit` at most.
  bool Reap(milliseconds limit) {
    const Clock::time_point until = Clock::now() + limit;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(kReapEvery);
    }
    return true;
  }

  asio::io_context& loop_;
  const uint32_t ranks_;  // of this node
  const ServerFolder folder_;
  const std::string log_path_;
  Handlers handlers_;
  asio::steady_timer start_limit_;
  pid_t pid_ = -1;
  std::unique_ptr<FramedSocket> socket_;
};

Result<std::unique_ptr<PmixHelper>> PmixHelper::Start(asio::io_context& loop,
                                                      PmixHelperOptions options,
                                                      Handlers handlers) {
  UniqueFd in_memory;
  SpawnSpec spec;
  spec.argv = {"dslaunch-pmix"};
  if (options.is_own_program) {
    spec.executable = "/proc/self/exe";
    spec.argv = {"dslaunch-agent", "pmi"};
  } else if (!options.server.empty()) {
    DSL_TRY_ASSIGN(in_memory, InMemory(options.server));
    spec.executable = "/proc/self/fd/" + std::to_string(in_memory.get());
    spec.pass_fds = {in_memory.get()};
  } else if (!options.server_path.empty()) {
    spec.executable = options.server_path;
  } else {
    return Error{ExitCode::kUnavailable, "this node was given no dslaunch-pmix"};
  }
  DSL_TRY_ASSIGN(SocketPair sockets, MakeSocketPair());
  DSL_TRY_ASSIGN(ServerFolder folder, MakeFolder(options.environment));
  options.job.set_folder(folder.path);
  spec.pass_fds.push_back(folder.lock.get());
  spec.env = ServerEnvironment(options.environment,
                               options.job.nspace().substr(0, options.job.nspace().rfind('.')));
  spec.cwd = "/";
  spec.stdin_fd = sockets.theirs.get();
  spec.stdout_file = spec.stderr_file = options.log_path;
  spec.own_group = true;  // it ends with its stdin, not with a signal: it removes its folder
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) {
    std::error_code ignored;
    std::filesystem::remove_all(folder.path, ignored);
    return Error{ExitCode::kUnavailable,
                 "the server for MPI ranks does not start: " + std::string(spawned.failure.step) +
                     ": " + ErrnoText(spawned.failure.error_number)};
  }
  const uint32_t ranks = options.job.node_rank() < static_cast<uint32_t>(options.job.nodes_size())
                             ? options.job.nodes(static_cast<int>(options.job.node_rank())).ranks()
                             : 0;
  const auto process = std::make_shared<Process>(loop, std::move(folder), std::move(handlers),
                                                 std::move(options.log_path), ranks);
  process->Begin(spawned.pid, std::move(sockets.ours), options.job);
  return std::unique_ptr<PmixHelper>(new PmixHelper(process));
}

PmixHelper::~PmixHelper() { process_->End(); }

Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks) {
  if (report.has_failure() && !has_started) return {};
  if (report.has_aborted() && has_started) return {};
  if (!report.has_clients() || has_started)
    return Error{ExitCode::kBadInput, "what no server sends now"};
  if (static_cast<uint32_t>(report.clients().by_local_rank_size()) != ranks)
    return Error{ExitCode::kBadInput, "the environment of more or fewer ranks than there are"};
  for (const pb::PmixClient& client : report.clients().by_local_rank()) {
    for (const std::string& entry : client.env()) {
      const size_t name_end = entry.find('=');
      if (name_end == 0 || name_end == std::string::npos || entry.find('\0') != std::string::npos)
        return Error{ExitCode::kBadInput, "an environment that is none"};
    }
    const std::string& socket = client.pmi_socket();
    if (!socket.empty() && (!socket.starts_with('/') || socket.find('\0') != std::string::npos))
      return Error{ExitCode::kBadInput, "a socket that is none"};
  }
  return {};
}

Result<pb::PmixJob> MakePmixJob(const std::string& job_id, uint64_t attempt,
                                const pb::Assignment& assignment,
                                const std::vector<pb::Node>& members) {
  pb::PmixJob job;
  job.set_nspace(job_id + "." + std::to_string(attempt));
  job.set_attempt(attempt);
  job.set_node_rank(assignment.node_rank());
  std::set<std::string> names;
  bool is_plain = true;  // what separates names in PMIx's lists is not in them
  uint32_t next = 0;
  for (const pb::Node& member : members) {
    pb::PmixNode& node = *job.add_nodes();
    node.set_name(member.name());
    node.set_first_rank(next);
    node.set_ranks(member.slots());
    next += member.slots();
    names.insert(member.name());
    is_plain = is_plain && !member.name().empty() &&
               member.name().find_first_of(",;:[]\"' ") == std::string::npos;
  }
  if (!is_plain || names.size() < members.size()) {
    for (int i = 0; i < job.nodes_size(); ++i)
      job.mutable_nodes(i)->set_name("node" + std::to_string(i));
  }
  const bool fits =
      assignment.node_rank() < members.size() && next == assignment.world_size() &&
      job.nodes(static_cast<int>(assignment.node_rank())).first_rank() == assignment.first_rank();
  if (!fits)
    return Error{ExitCode::kInternal, "the ranks of the attempt do not fit the nodes of the job"};
  return job;
}

}  // namespace dslaunch
