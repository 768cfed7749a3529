#include "agent/pmix/pmix_library.h"

#include <fcntl.h>
#include <pmix.h>
#include <pmix_server.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "agent/pmix/exchange.h"
#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {
namespace {

// Socket at which the library must listen; -1 once the library listens at it.
int g_listener = -1;
// The library's own descriptor of that socket once it listens; -1 before.
std::atomic<int> g_rank_socket = -1;
std::atomic<bool> g_ranks_are_registered = false;

constexpr milliseconds kReadyLimit(20'000);
// A list of pmix_info_t. The library's own helpers differ between versions 4.0 and 5, so the list
// is built without them. The library copies its arguments.
class InfoList {
 public:
  void AddNumber(const char* key, uint32_t number) {
    Add(key, PMIX_UINT32).value.data.uint32 = number;
  }
  void AddRank(const char* key, uint32_t rank) { Add(key, PMIX_PROC_RANK).value.data.rank = rank; }
  void AddShort(const char* key, uint32_t number) {
    Add(key, PMIX_UINT16).value.data.uint16 = static_cast<uint16_t>(number);
  }
  void AddFlag(const char* key, bool flag) { Add(key, PMIX_BOOL).value.data.flag = flag; }
  void AddText(const char* key, const std::string& text) {
    texts_.push_back(text);
    Add(key, PMIX_STRING).value.data.string = texts_.back().data();
  }
  // Adds a nested list. `list` must not change afterwards.
  void AddList(const char* key, InfoList& list) {
    arrays_.push_back({});
    pmix_data_array_t& array = arrays_.back();
    array.type = PMIX_INFO;
    array.size = list.size();
    array.array = list.data();
    Add(key, PMIX_DATA_ARRAY).value.data.darray = &array;
  }
  pmix_info_t* data() { return infos_.data(); }
  size_t size() const { return infos_.size(); }

 private:
  pmix_info_t& Add(const char* key, pmix_data_type_t type) {
    infos_.emplace_back();
    pmix_info_t& info = infos_.back();
    std::memset(&info, 0, sizeof info);
    std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
    info.value.type = type;
    return info;
  }

  std::vector<pmix_info_t> infos_;
  std::deque<std::string> texts_;  // values of the entries; a deque, so that they do not move
  std::deque<pmix_data_array_t> arrays_;  // nested lists; a deque, so that they do not move
};

// The callback by which the library receives the answer to a request.
struct Ticket {
  pmix_modex_cbfunc_t answer = nullptr;
  void* context = nullptr;
};

struct Server {
  PmixRequests requests;
  std::string nspace;
  uint32_t world_size = 0;
  Mutex mutex;
  uint64_t last_ticket DSL_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Ticket> tickets DSL_GUARDED_BY(mutex);
};

// Returns the process's single server. The library has one instance per process and its calls have
// no context, so the server is global.
Server& TheServer() {
  // The library's threads may outlive main(), so the server is never destroyed.
  static Server* const server = new Server;
  return *server;
}

uint64_t MakeTicket(pmix_modex_cbfunc_t answer, void* context) {
  Server& server = TheServer();
  const MutexLock lock(server.mutex);
  server.tickets[++server.last_ticket] = {answer, context};
  return server.last_ticket;
}

bool IsOurs(const pmix_proc_t& proc) {
  return TheServer().nspace == proc.nspace &&
         (proc.rank == PMIX_RANK_WILDCARD || proc.rank < TheServer().world_size);
}

// --- Callbacks of the library. PMIX_OPERATION_SUCCEEDED means that the operation is done and no
// answer follows. ---

void NoteClient(const pmix_proc_t* proc, bool has_finalized) {
  if (proc != nullptr && IsOurs(*proc) && proc->rank != PMIX_RANK_WILDCARD)
    TheServer().requests.on_rank(proc->rank, has_finalized);
}

pmix_status_t OnConnected(const pmix_proc_t* proc, void*, pmix_op_cbfunc_t, void*) {
  NoteClient(proc, /*has_finalized=*/false);
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t OnFinalized(const pmix_proc_t* proc, void*, pmix_op_cbfunc_t, void*) {
  NoteClient(proc, /*has_finalized=*/true);
  return PMIX_OPERATION_SUCCEEDED;
}

// Reports the abort. The rank then exits, and its agent reports the exit code.
pmix_status_t OnAbort(const pmix_proc_t* proc, void*, int status, const char*, pmix_proc_t*, size_t,
                      pmix_op_cbfunc_t, void*) {
  if (proc != nullptr && IsOurs(*proc) && proc->rank != PMIX_RANK_WILDCARD)
    TheServer().requests.on_abort(proc->rank, status);
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t OnFence(const pmix_proc_t* procs, size_t count, const pmix_info_t*, size_t,
                      char* data, size_t bytes, pmix_modex_cbfunc_t answer, void* context) {
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < count; ++i) {
    if (!IsOurs(procs[i]))
      return PMIX_ERR_NOT_SUPPORTED;  // the fence involves another job, as in MPI_Comm_connect
    if (procs[i].rank != PMIX_RANK_WILDCARD) ranks.push_back(procs[i].rank);
  }
  if (ranks.size() < count) ranks.clear();
  std::ranges::sort(ranks);
  const auto rest = std::ranges::unique(ranks);
  ranks.erase(rest.begin(), rest.end());
  if (ranks.size() == TheServer().world_size) ranks.clear();
  std::string text(data == nullptr ? "" : std::string(data, bytes));
  TheServer().requests.on_fence(MakeTicket(answer, context), std::move(ranks), std::move(text));
  return PMIX_SUCCESS;
}

pmix_status_t OnModex(const pmix_proc_t* proc, const pmix_info_t*, size_t,
                      pmix_modex_cbfunc_t answer, void* context) {
  if (!IsOurs(*proc) || proc->rank == PMIX_RANK_WILDCARD) return PMIX_ERR_NOT_FOUND;
  TheServer().requests.on_request(MakeTicket(answer, context), proc->rank);
  return PMIX_SUCCESS;
}

pmix_status_t OnRegisterEvents(pmix_status_t*, size_t, const pmix_info_t*, size_t, pmix_op_cbfunc_t,
                               void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t OnDeregisterEvents(pmix_status_t*, size_t, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t OnEvent(pmix_status_t, const pmix_proc_t*, pmix_data_range_t, pmix_info_t*, size_t,
                      pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// Accepts all requests. The library itself removes the files that ranks name, but only if its host
// accepts such requests.
pmix_status_t OnJobControl(const pmix_proc_t*, const pmix_proc_t*, size_t, const pmix_info_t*,
                           size_t, pmix_info_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// --- Calls of the library's functions ---

Error Refused(const std::string& step, pmix_status_t status) {
  return {ExitCode::kUnavailable, "OpenPMIx: " + step + ": " + PMIx_Error_string(status)};
}

// The result of a call that the library completes on its own thread.
struct Answer {
  Mutex mutex;
  CondVar changed;
  bool is_there DSL_GUARDED_BY(mutex) = false;
  pmix_status_t status DSL_GUARDED_BY(mutex) = PMIX_SUCCESS;
};

void OnAnswer(pmix_status_t status, void* context) {
  const std::unique_ptr<std::shared_ptr<Answer>> answer(
      static_cast<std::shared_ptr<Answer>*>(context));
  const MutexLock lock((*answer)->mutex);
  (*answer)->status = status;
  (*answer)->is_there = true;
  (*answer)->changed.NotifyAll();
}

// Calls `call(answer, context)`, which calls a function of the library, and waits for its answer.
// Returns the error of the call or of the answer.
template <class Call>
Result<void> Await(const std::string& step, Call call) {
  const auto answer = std::make_shared<Answer>();
  auto context = std::make_unique<std::shared_ptr<Answer>>(answer);
  const pmix_status_t status = call(&OnAnswer, context.get());
  if (status == PMIX_OPERATION_SUCCEEDED) return {};
  if (status != PMIX_SUCCESS) return Refused(step, status);
  static_cast<void>(context.release());  // the context is deleted by OnAnswer
  const MutexLock lock(answer->mutex);
  if (!answer->changed.WaitFor(answer->mutex, kReadyLimit, [&answer]() DSL_REQUIRES(answer->mutex) {
        return answer->is_there;
      }))
    return Error{ExitCode::kTimedOut, "OpenPMIx: " + step + ": no answer in 20 s"};
  if (answer->status != PMIX_SUCCESS) return Refused(step, answer->status);
  return {};
}

std::string Join(uint32_t first, uint32_t count) {
  std::string list;
  for (uint32_t rank = first; rank < first + count; ++rank)
    list += (list.empty() ? "" : ",") + std::to_string(rank);
  return list;
}

Result<std::string> Compressed(const std::string& what, const std::string& list,
                               pmix_status_t (*compress)(const char*, char**)) {
  char* text = nullptr;
  const pmix_status_t status = compress(list.c_str(), &text);
  if (status != PMIX_SUCCESS) return Refused(what, status);
  std::string result(text);
  std::free(text);
  return result;
}

Result<void> StartServer(const pb::PmixJob& job) {
  static pmix_server_module_t module;  // static, because the library keeps a pointer to the module
  module.client_connected = &OnConnected;
  module.client_finalized = &OnFinalized;
  module.abort = &OnAbort;
  module.fence_nb = &OnFence;
  module.direct_modex = &OnModex;
  module.register_events = &OnRegisterEvents;
  module.deregister_events = &OnDeregisterEvents;
  module.notify_event = &OnEvent;
  module.job_control = &OnJobControl;
  InfoList info;
  info.AddText(PMIX_SERVER_NSPACE, job.nspace() + ".servers");
  info.AddRank(PMIX_SERVER_RANK, job.node_rank());
  info.AddText(PMIX_SERVER_TMPDIR, job.folder());
  info.AddText(PMIX_SYSTEM_TMPDIR, job.folder());
  info.AddText(PMIX_HOSTNAME, job.nodes(static_cast<int>(job.node_rank())).name());
  g_listener = static_cast<int>(job.pmix_listener());
  const pmix_status_t status = PMIx_server_init(&module, info.data(), info.size());
  return status == PMIX_SUCCESS ? Result<void>() : Refused("start", status);
}

Result<void> RegisterJob(const pb::PmixJob& job) {
  const pb::PmixNode& own = job.nodes(static_cast<int>(job.node_rank()));
  std::string names;
  std::string places;
  for (const pb::PmixNode& node : job.nodes()) {
    names += (names.empty() ? "" : ",") + node.name();
    places += (places.empty() ? "" : ";") + Join(node.first_rank(), node.ranks());
  }
  DSL_TRY_ASSIGN(const std::string node_map,
                 Compressed("list of nodes", names, &PMIx_generate_regex));
  DSL_TRY_ASSIGN(const std::string proc_map,
                 Compressed("list of ranks", places, &PMIx_generate_ppn));
  const uint32_t world_size = TheServer().world_size;
  InfoList info;
  info.AddText(PMIX_JOBID, job.nspace());
  info.AddFlag(PMIX_SPAWNED, false);
  info.AddNumber(PMIX_UNIV_SIZE, world_size);
  info.AddNumber(PMIX_JOB_SIZE, world_size);
  info.AddNumber(PMIX_MAX_PROCS, world_size);
  info.AddNumber(PMIX_JOB_NUM_APPS, 1);
  info.AddNumber(PMIX_NUM_NODES, static_cast<uint32_t>(job.nodes_size()));
  info.AddNumber(PMIX_LOCAL_SIZE, own.ranks());
  info.AddNumber(PMIX_NODE_SIZE, own.ranks());
  info.AddRank(PMIX_LOCALLDR, own.first_rank());
  info.AddText(PMIX_LOCAL_PEERS, Join(own.first_rank(), own.ranks()));
  info.AddText(PMIX_NODE_MAP, node_map);
  info.AddText(PMIX_PROC_MAP, proc_map);
  info.AddText(PMIX_TMPDIR, job.folder());
  info.AddText(PMIX_NSDIR, job.folder());
  std::deque<InfoList> ranks;
  for (uint32_t node = 0; node < static_cast<uint32_t>(job.nodes_size()); ++node) {
    const pb::PmixNode& place = job.nodes(static_cast<int>(node));
    for (uint32_t local_rank = 0; local_rank < place.ranks(); ++local_rank) {
      const uint32_t rank = place.first_rank() + local_rank;
      InfoList& of_rank = ranks.emplace_back();
      // The library assigns the entries that follow a rank to that rank, so the rank comes first.
      of_rank.AddRank(PMIX_RANK, rank);
      of_rank.AddNumber(PMIX_APPNUM, 0);
      of_rank.AddRank(PMIX_APP_RANK, rank);
      of_rank.AddRank(PMIX_GLOBAL_RANK, rank);
      of_rank.AddShort(PMIX_LOCAL_RANK, local_rank);
      of_rank.AddShort(PMIX_NODE_RANK, local_rank);
      of_rank.AddNumber(PMIX_NODEID, node);
      of_rank.AddText(PMIX_HOSTNAME, place.name());
      info.AddList(PMIX_PROC_DATA, of_rank);
    }
  }
  return Await("register the job", [&](pmix_op_cbfunc_t answer, void* context) {
    return PMIx_server_register_nspace(job.nspace().c_str(), static_cast<int>(own.ranks()),
                                       info.data(), info.size(), answer, context);
  });
}

pmix_proc_t ProcOf(uint32_t rank) {
  pmix_proc_t proc;
  std::memset(&proc, 0, sizeof proc);
  std::strncpy(proc.nspace, TheServer().nspace.c_str(), PMIX_MAX_NSLEN);
  proc.rank = rank;
  return proc;
}

Result<void> RegisterRank(uint32_t rank, const std::string& uri) {
  const pmix_proc_t proc = ProcOf(rank);
  DSL_TRY(Await("register a rank", [&](pmix_op_cbfunc_t answer, void* context) {
    return PMIx_server_register_client(&proc, ::geteuid(), ::getegid(), nullptr, answer, context);
  }));
  char** environment = nullptr;
  const pmix_status_t status = PMIx_server_setup_fork(&proc, &environment);
  if (status != PMIX_SUCCESS) return Refused("environment of a rank", status);
  bool has_version = false;
  bool is_at_uri = false;
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    has_version = has_version || text.starts_with("PMIX_SERVER_URI41=");
    is_at_uri = is_at_uri || text == "PMIX_SERVER_URI41=" + uri;
    std::free(*entry);
  }
  std::free(environment);
  if (is_at_uri) return {};
  return Error{ExitCode::kUnavailable,
               has_version
                   ? "OpenPMIx: its server does not listen where the ranks look for it, " + uri
                   : "OpenPMIx on this node is older than 4.1; install a newer one"};
}

void OnReply(pmix_status_t status, char* data, size_t bytes, void* context) {
  const std::unique_ptr<pb::ModexRequest> request(static_cast<pb::ModexRequest*>(context));
  pb::ModexReply reply = ReplyTo(*request);
  if (status == PMIX_SUCCESS)
    reply.set_data(data == nullptr ? "" : std::string(data, bytes));
  else
    reply.set_failure(PMIx_Error_string(status));
  TheServer().requests.on_reply(std::move(reply));
}

}  // namespace

}  // namespace dslaunch

// Replaces the C library's bind(). OpenPMIx's library creates its own socket and cannot be given
// one, but ranks look for a socket that already listens. So that socket replaces the first socket
// that the library binds. The dynamic linker finds this function first because it is in the
// program.
extern "C" __attribute__((visibility("default"))) int bind(int socket, const sockaddr* address,
                                                           socklen_t size) noexcept {
  const bool is_tcp = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  if (is_tcp && dslaunch::g_listener > 0) {
    dslaunch::g_rank_socket = socket;
    return ::dup3(std::exchange(dslaunch::g_listener, -1), socket, O_CLOEXEC) < 0 ? -1 : 0;
  }
  return static_cast<int>(::syscall(SYS_bind, socket, address, size));
}

// Replaces the C library's accept(). The library's listening thread would refuse a rank that is not
// registered yet, and the first rank has connected before this program was started. So accepting
// waits until the ranks are registered.
extern "C" __attribute__((visibility("default"))) int accept(int socket, sockaddr* address,
                                                             socklen_t* size) {
  if (socket == dslaunch::g_rank_socket) dslaunch::g_ranks_are_registered.wait(false);
  return static_cast<int>(::syscall(SYS_accept, socket, address, size));
}

namespace dslaunch {

Result<void> StartPmixLibrary(const pb::PmixJob& job, PmixRequests requests) {
  Server& server = TheServer();
  server.requests = std::move(requests);
  server.nspace = job.nspace();
  if (server.nspace.size() > PMIX_MAX_NSLEN)
    return Error{ExitCode::kInternal, "the job's name is too long for PMIx"};
  for (const pb::PmixNode& node : job.nodes()) server.world_size += node.ranks();
  DSL_TRY(StartServer(job));
  Result<void> registered = RegisterJob(job);
  const pb::PmixNode& own = job.nodes(static_cast<int>(job.node_rank()));
  for (uint32_t local_rank = 0; registered.ok() && local_rank < own.ranks(); ++local_rank)
    registered = RegisterRank(own.first_rank() + local_rank, job.uri());
  g_ranks_are_registered = true;  // set also after a failure, so that the library refuses the ranks
  g_ranks_are_registered.notify_all();
  return registered;
}

void EndPmixTicket(uint64_t id, std::string data, const std::string& failure) {
  Server& server = TheServer();
  Ticket ticket;
  {
    const MutexLock lock(server.mutex);
    const auto found = server.tickets.find(id);
    if (found == server.tickets.end()) return;
    ticket = found->second;
    server.tickets.erase(found);
  }
  if (!failure.empty()) std::fprintf(stderr, "dslaunch-pmix: %s\n", failure.c_str());
  auto kept = std::make_unique<std::string>(std::move(data));
  const char* const bytes = kept->empty() ? nullptr : kept->data();
  const size_t size = kept->size();
  ticket.answer(
      failure.empty() ? PMIX_SUCCESS : PMIX_ERROR, bytes, size, ticket.context,
      [](void* text) { delete static_cast<std::string*>(text); }, kept.release());
}

void AskPmixLibrary(const pb::ModexRequest& request) {
  const pmix_proc_t proc = ProcOf(request.rank());
  auto context = std::make_unique<pb::ModexRequest>(request);
  const pmix_status_t status = PMIx_server_dmodex_request(&proc, &OnReply, context.get());
  if (status == PMIX_SUCCESS) {
    static_cast<void>(context.release());  // the context is deleted by OnReply
    return;
  }
  OnReply(status, nullptr, 0, context.release());
}

}  // namespace dslaunch
