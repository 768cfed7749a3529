#include "agent/mpi/pmix_helper.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>
#include <utility>

#include "agent/mpi/mpi_environment.h"
#include "agent/mpi/mpi_sockets.h"
#include "base/deadline.h"
#include "base/errno_text.h"
#include "base/os/proc_text.h"
#include "base/os/socket_pair.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "proto/contract/worker_env.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

constexpr milliseconds kStartWithin(90'000);  // other nodes' agents may be slow to reach
constexpr milliseconds kReapEvery(1);
constexpr char kFolderPrefix[] = "dslaunch-pmix-";
constexpr time_t kNewFolderSeconds = 60;
constexpr milliseconds kKillAfter(500);  // a server exits at once, unless its library hangs
constexpr char kDoesNotStart[] = "the server of its MPI ranks does not start: ";

// Returns the descriptor of an anonymous executable file that contains `bytes`.
Result<UniqueFd> InMemory(std::string_view bytes) {
  // The file's path in /proc is needed after exec, so the file is not closed on exec.
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

// Removes the folders of servers that were killed together with their agents. A folder is locked
// while its server or agent lives. A new folder may not be locked yet, so it is kept.
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
  UniqueFd lock;  // lock on the folder, which the server shares
};

// Creates a folder for data that the ranks of this node share, in memory if possible.
Result<ServerFolder> MakeFolder(const Environment& environment, const std::string& nspace) {
  const char* const chosen = FindVariable(environment, "TMPDIR");
  const bool is_chosen = chosen != nullptr && *chosen == '/';
  const std::string parent = is_chosen                                ? chosen
                             : ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm"
                                                                      : "/tmp";
  RemoveStaleFolders(parent);
  ServerFolder folder;
  folder.path = parent + "/" + kFolderPrefix + nspace + "-XXXXXX";
  if (::mkdtemp(folder.path.data()) == nullptr)
    return Error{ExitCode::kIo, "make " + folder.path + ": " + ErrnoText(errno)};
  folder.lock = UniqueFd(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder.lock || ::flock(folder.lock.get(), LOCK_SH) != 0)
    return Error{ExitCode::kIo, "lock " + folder.path + ": " + ErrnoText(errno)};
  return folder;
}

// Returns the environment of the server. The library's shared files have names that are unknown
// before the library runs, and that MpiEnvironment therefore cannot announce. So ranks exchange
// data by messages (PMIX_MCA_gds=hash).
Environment ServerEnvironment(const Environment& of_programs, const std::string& job_id) {
  Environment environment;
  for (const std::string& entry : of_programs) {
    const bool replaced = entry.starts_with("LD_LIBRARY_PATH=") || IsOfAnotherMpiServer(entry) ||
                          entry.starts_with("PMIX_MCA_gds=") ||
                          entry.starts_with(std::string(kJobIdVariable) + "=");
    if (!replaced) environment.push_back(entry);
  }
  environment.emplace_back("PMIX_MCA_gds=hash");
  // Identifies the server, so that it can be found and ended if agent and supervisor are killed.
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
  Process(asio::io_context& loop, PmixHelperOptions options, ServerFolder folder, Handlers handlers)
      : loop_(loop),
        options_(std::move(options)),
        folder_(std::move(folder)),
        handlers_(std::move(handlers)),
        start_limit_(loop, kStartWithin) {}

  Result<void> Open() {
    const bool with_pmix = !options_.program.empty() || !options_.no_pmix.empty();
    PmixPort pmix = {.is_open = with_pmix};
    if (options_.program.empty()) pmix.word = options_.job.nspace();
    DSL_TRY_ASSIGN(sockets_, MpiSockets::Open(loop_, folder_.path, ranks(), std::move(pmix),
                                              [weak = weak_from_this()](MpiProtocol protocol) {
                                                if (const auto self = weak.lock())
                                                  self->OnUse(protocol);
                                              }));
    options_.job.set_folder(folder_.path);
    if (with_pmix) options_.job.set_uri(PmixUri(options_.job, sockets_->pmix_port()));
    for (uint32_t i = 0; i < ranks(); ++i) {
      clients_.push_back(
          {MpiEnvironment(options_.job, i, options_.environment), sockets_->pmi_path(i)});
    }
    return {};
  }

  const std::vector<Client>& clients() const { return clients_; }

  void Begin() {
    if (!sockets_) return;
    const Result<void> started = StartServer();
    if (started.ok()) return;
    asio::post(loop_,
               [self = shared_from_this(), why = started.error().message] { self->Fail(why); });
  }

  void Ask(uint32_t local_rank) {
    pb::PmixQuestion question;
    question.set_local_rank(local_rank);
    if (socket_) socket_->Send(question);
  }

  // Stops callbacks, ends the process and reaps it. Blocks for milliseconds, or longer if the
  // process hangs, so that the agent cannot exit before the server.
  void End() {
    handlers_ = {};
    start_limit_.cancel();
    sockets_.reset();
    socket_.reset();
    if (pid_ > 0 && !Reap(kKillAfter)) {
      ::kill(pid_, SIGKILL);
      Reap(kKillAfter);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_.path, ignored);
  }

 private:
  uint32_t ranks() const {
    const int own = static_cast<int>(options_.job.node_rank());
    return own < options_.job.nodes_size() ? options_.job.nodes(own).ranks() : 0;
  }

  void OnUse(MpiProtocol protocol) {
    // Keeps this alive, because a callback may drop the last other reference.
    const auto self = shared_from_this();
    if (protocol == MpiProtocol::kPmix && options_.program.empty()) return Fail(options_.no_pmix);
    if (const Result<void> started = StartServer(); !started.ok()) Fail(started.error().message);
  }

  Result<void> StartServer() {
    UniqueFd in_memory;
    SpawnSpec spec;
    if (options_.program.empty()) {
      spec.executable = "/proc/self/exe";
      spec.argv = {"dslaunch-agent", "pmi"};
    } else {
      DSL_TRY_ASSIGN(in_memory, InMemory(options_.program));
      spec.executable = "/proc/self/fd/" + std::to_string(in_memory.get());
      spec.argv = {"dslaunch-pmix"};
      spec.pass_fds = {in_memory.get()};
    }
    DSL_TRY_ASSIGN(SocketPair sockets, MakeSocketPair());
    const MpiSockets::Released passed = std::exchange(sockets_, nullptr)->Release();
    AddSockets(passed, spec);
    spec.pass_fds.push_back(folder_.lock.get());
    const std::string& nspace = options_.job.nspace();
    spec.env = ServerEnvironment(options_.environment, nspace.substr(0, nspace.rfind('.')));
    spec.cwd = "/";
    spec.stdin_fd = sockets.theirs.get();
    spec.stdout_file = spec.stderr_file = options_.log_path;
    // At the end of its stdin the server removes its folder, which it would not do after a signal,
    // so it is ended that way.
    spec.own_group = true;
    const SpawnResult spawned = Spawn(spec);
    if (spawned.pid < 0) {
      return Error{ExitCode::kUnavailable, std::string(kDoesNotStart) + spawned.failure.step +
                                               ": " + ErrnoText(spawned.failure.error_number)};
    }
    pid_ = spawned.pid;
    Connect(std::move(sockets.ours));
    return {};
  }

  void AddSockets(const MpiSockets::Released& passed, SpawnSpec& spec) {
    if (passed.pmix_listener && !options_.program.empty()) {
      spec.pass_fds.push_back(passed.pmix_listener.get());
      options_.job.set_pmix_listener(static_cast<uint32_t>(passed.pmix_listener.get()));
    }
    for (const MpiSockets::PmiSocket& socket : passed.pmi) {
      pb::PmiSocket& told = *options_.job.add_pmi_sockets();
      if (!socket.fd) continue;
      spec.pass_fds.push_back(socket.fd.get());
      told.set_fd(static_cast<uint32_t>(socket.fd.get()));
      told.set_is_connected(socket.is_connected);
    }
  }

  void Connect(UniqueFd socket) {
    socket_ = std::make_unique<FramedSocket>(
        loop_, std::move(socket), [this](std::string_view bytes) { OnMessage(bytes); },
        [this](const std::string&) { OnClosed(); });
    socket_->Send(options_.job);
    start_limit_.expires_after(kStartWithin);
    start_limit_.async_wait([self = shared_from_this()](std::error_code cancelled) {
      if (!cancelled) self->Fail(std::string(kDoesNotStart) + "it does not answer");
    });
  }

  void OnMessage(std::string_view bytes) {
    // Keeps this alive, because a callback may drop the last other reference.
    const auto self = shared_from_this();
    pb::PmixReport report;
    if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return FailServer("it sent an invalid message");
    if (const Result<void> checked = CheckPmixReport(report, has_started_, ranks()); !checked.ok())
      return FailServer("it sent " + checked.error().message);
    switch (report.report_case()) {
      case pb::PmixReport::kStarted:
        has_started_ = true;
        start_limit_.cancel();
        return;
      case pb::PmixReport::kFailure:
        return FailServer(SanitizeForTerminal(Truncate(report.failure())));
      case pb::PmixReport::kAborted:
        if (const auto on_aborted = handlers_.on_aborted) on_aborted(report.aborted());
        return;
      case pb::PmixReport::kRank:
        if (const auto on_rank = handlers_.on_rank) on_rank(report.rank());
        return;
      case pb::PmixReport::REPORT_NOT_SET:
        return;
    }
  }

  void OnClosed() {
    const std::string line = LastLineOf(options_.log_path);
    FailServer(line.empty() ? "see " + options_.log_path : line);
  }

  void FailServer(const std::string& why) {
    Fail((has_started_ ? "the server of its MPI ranks ended: " : kDoesNotStart) + why);
  }

  void Fail(const std::string& why) {
    // Keeps this alive, because a callback may drop the last other reference.
    const auto self = shared_from_this();
    start_limit_.cancel();
    if (const auto failed = std::exchange(handlers_.on_failed, nullptr)) failed(why);
  }

  // Waits at most `limit` for the process to exit. Returns whether it has exited.
  bool Reap(milliseconds limit) {
    const Clock::time_point until = Clock::now() + limit;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(kReapEvery);
    }
    return true;
  }

  asio::io_context& loop_;
  PmixHelperOptions options_;
  const ServerFolder folder_;
  Handlers handlers_;
  asio::steady_timer start_limit_;
  std::shared_ptr<MpiSockets> sockets_;  // sockets for ranks; nullptr once the server has them
  std::vector<Client> clients_;
  pid_t pid_ = -1;  // process ID of the server; -1 before its start
  bool has_started_ = false;
  std::unique_ptr<FramedSocket> socket_;
};

Result<std::unique_ptr<PmixHelper>> PmixHelper::Open(asio::io_context& loop,
                                                     PmixHelperOptions options, Handlers handlers) {
  DSL_TRY_ASSIGN(ServerFolder folder, MakeFolder(options.environment, options.job.nspace()));
  const auto process =
      std::make_shared<Process>(loop, std::move(options), std::move(folder), std::move(handlers));
  std::unique_ptr<PmixHelper> helper(new PmixHelper(process));
  DSL_TRY(process->Open());
  return helper;
}

PmixHelper::~PmixHelper() { process_->End(); }

const std::vector<PmixHelper::Client>& PmixHelper::clients() const { return process_->clients(); }

void PmixHelper::Begin() { process_->Begin(); }

void PmixHelper::Ask(uint32_t local_rank) { process_->Ask(local_rank); }

Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks) {
  const bool is_first = report.has_failure() ||
                        (report.report_case() == pb::PmixReport::kStarted && report.started());
  const bool is_later = report.has_aborted() || report.has_rank();
  if (has_started ? !is_later : !is_first)
    return Error{ExitCode::kBadInput, "an unexpected message"};
  if (report.has_rank() &&
      (report.rank().local_rank() >= ranks || !pb::PmixRank::State_IsValid(report.rank().state())))
    return Error{ExitCode::kBadInput, "the state of a rank of another node"};
  return {};
}

}  // namespace dslaunch
