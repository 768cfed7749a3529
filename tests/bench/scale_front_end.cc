// Runs a whole session of the front end with N simulated agents behind real TCP sockets on
// loopback. The front end is the product's, from its transport to its exit code, and its streams
// outlive their connections. The agents share another process.
//
//   dslaunch-bench-scale agents NODES           prints its port, and a line "running" once all run;
//                                               ends the job after a line on stdin
//   dslaunch-bench-scale front_end NODES PORT   runs the job and returns its exit code
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/os/socket_pair.h"
#include "base/unique_fd.h"
#include "cli/session/session.h"
#include "cli/transport/resumable_link.h"
#include "net/resumable/resumable_stream.h"
#include "net/resumable/resume_words.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/channel.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);  // skips destructors, because threads are running
}

void RaiseFileLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// --- the agents ---

// The agents of all nodes. The peer name of a gRPC connection identifies its node.
class Agents final : public pb::Agent::CallbackService {
 public:
  explicit Agents(uint32_t nodes) : num_nodes_(nodes) {
    std::vector<uint32_t> all(nodes);
    std::iota(all.begin(), all.end(), 0u);
    members_ = ToNodeSet(all);
  }

  // Ends the jobs of all nodes with success.
  void EndJob() {
    const MutexLock lock(mutex_);
    for (Events* const events : running_) events->End();
  }

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const pb::PrepareRequest* request,
                                    pb::PrepareReply* reply) override {
    {
      const MutexLock lock(mutex_);
      node_behind_[context->peer()] = request->node_index();
    }
    reply->mutable_info()->set_job_dir("/jobs/" + std::to_string(request->node_index()));
    reply->mutable_info()->add_rendezvous_endpoints("127.0.0.1:1");
    return Answer(context);
  }

  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context, const pb::RenewRequest*,
                                  pb::RenewReply* reply) override {
    reply->set_clock_us(static_cast<uint64_t>(Clock::now().time_since_epoch().count()) / 1'000);
    return Answer(context);
  }

  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const pb::StopRequest*,
                                 pb::Empty*) override {
    return Answer(context);
  }

  grpc::ServerWriteReactor<pb::NodeEvent>* Run(grpc::CallbackServerContext* context,
                                               const pb::RunRequest*) override {
    const MutexLock lock(mutex_);
    auto* const events = new Events(node_behind_[context->peer()], num_nodes_, members_);
    running_.push_back(events);
    if (running_.size() == num_nodes_) {
      std::puts("running");
      std::fflush(stdout);
    }
    return events;
  }

 private:
  // The stream of reports of one node; owned by gRPC until OnDone.
  class Events final : public grpc::ServerWriteReactor<pb::NodeEvent> {
   public:
    Events(uint32_t node, uint32_t nodes, const pb::NodeSet& members)
        : node_(node), members_(members) {
      pb::Started& started = *events_.emplace_back().mutable_started();
      started.set_attempt(1);
      started.set_first_rank(node);
      started.set_world_size(nodes);
      started.add_pids(4'711);
      *started.mutable_members() = members;
      events_.emplace_back().mutable_running()->set_attempt(1);
      StartWrite(&events_.front());
    }
    void End() {
      const MutexLock lock(mutex_);
      pb::WorkerEnded& ended = *events_.emplace_back().mutable_worker_ended();
      ended.set_attempt(1);
      ended.set_rank(node_);
      events_.emplace_back().mutable_outcome()->set_attempt(1);
      pb::NodeDone& done = *events_.emplace_back().mutable_done();
      done.set_completed(true);
      done.set_teardown_complete(true);
      *done.mutable_members() = members_;
      end_ = true;
      if (events_.size() == 3) StartWrite(&events_.front());
    }
    void OnWriteDone(bool ok) override {
      const MutexLock lock(mutex_);
      events_.pop_front();
      if (!ok || (end_ && events_.empty())) return Finish(grpc::Status::OK);
      if (!events_.empty()) StartWrite(&events_.front());
    }
    void OnDone() override { delete this; }

   private:
    const uint32_t node_;
    const pb::NodeSet& members_;
    Mutex mutex_;
    std::list<pb::NodeEvent> events_;  // front() is being written
    bool end_ = false;
  };

  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const uint32_t num_nodes_;
  pb::NodeSet members_;
  Mutex mutex_;
  std::map<std::string, uint32_t> node_behind_;
  std::vector<Events*> running_;
};

// Accepts connections and serves each behind a resumable stream, as a supervisor does.
class Door {
 public:
  Door(asio::io_context& loop, grpc::Server& server, UniqueFd listener)
      : loop_(loop), server_(server), listener_(loop, listener.Release()) {
    Accept();
  }

 private:
  void Accept() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code) {
      Serve(UniqueFd(accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC)));
      Accept();
    });
  }
  void Serve(UniqueFd connection) {
    if (!connection) Fail(std::string("accept: ") + std::strerror(errno));
    SetNoDelay(connection.get());
    const std::string ticket = FormatTicket({std::string(32, 'a'), std::string(32, 'b')});
    if (send(connection.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL) < 0)
      Fail("a fresh connection takes no ticket");
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) Fail(pair.error().message);
    ResumableStream& stream = streams_.emplace_back(
        loop_, std::move(pair->theirs),
        ResumableStream::Handlers{.on_broken = [](const std::string&) {}, .on_all_sent = {}});
    stream.Connect(MakeStreamEnd(loop_, std::move(connection)));
    ServeFd(server_, std::move(pair->ours));
  }

  asio::io_context& loop_;
  grpc::Server& server_;
  asio::posix::stream_descriptor listener_;
  std::list<ResumableStream> streams_;
};

int BeTheAgents(uint32_t nodes) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), generic, &size) != 0)
    Fail(std::string("cannot listen: ") + std::strerror(errno));
  Agents agents(nodes);
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&agents);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  asio::io_context loop(1);
  Door door(loop, *server, std::move(listener));
  asio::posix::stream_descriptor input(loop, dup(STDIN_FILENO));
  bool told = false;
  const auto await_word = [&](const auto& self) -> void {
    input.async_wait(asio::posix::stream_descriptor::wait_read, [&, self](std::error_code) {
      char word = 0;
      if (read(STDIN_FILENO, &word, 1) <= 0) std::_Exit(0);  // the benchmark has ended
      if (!std::exchange(told, true)) agents.EndJob();
      self(self);
    });
  };
  await_word(await_word);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  loop.run();
  return 0;
}

// --- the front end ---

class TcpLink : public NodeLink {
 public:
  explicit TcpLink(UniqueFd fd) : fd_(std::move(fd)), own_(DuplicateFd(fd_.get())) {}
  ~TcpLink() override { shutdown(own_.get(), SHUT_RDWR); }
  UniqueFd TakeFd() override { return std::move(fd_); }
  void Abort(const std::string&) override { shutdown(own_.get(), SHUT_RDWR); }
  bool WaitEnd(Deadline) override { return true; }
  std::string StderrTail() const override { return ""; }
  std::string Address() const override { return "127.0.0.1"; }

 private:
  UniqueFd fd_;
  const UniqueFd own_;
};

class TcpTransport : public Transport {
 public:
  explicit TcpTransport(int port) : address_(Loopback(port)) {}
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline) override {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd ||
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0)
      return Error{ExitCode::kUnavailable, target.name + ": " + std::strerror(errno)};
    SetNoDelay(fd.get());
    DSL_TRY_ASSIGN(ResumableLink::Connection first,
                   ResumableLink::Over(std::make_unique<TcpLink>(std::move(fd))));
    return ResumableLink::Open(
        std::move(first), [](const std::string&, Deadline) -> Result<ResumableLink::Connection> {
          return Error{ExitCode::kUnavailable, "this bench breaks nothing"};
        });
  }

 private:
  const sockaddr_in address_;
};

int BeTheFrontEnd(uint32_t nodes, int port) {
  SessionOptions options;
  options.job.set_job_id("20261126-113431-2328a6");
  options.job.mutable_ranks()->mutable_program()->add_argv("train.py");
  for (uint32_t i = 0; i < nodes; ++i) {
    Host& node = options.plan.nodes.emplace_back();
    node.name = "node" + std::to_string(i + 1);
    node.slots = 1;
  }
  options.plan.ranks = NumberRanksOf(options.plan.nodes);
  options.plan.launcher = Launcher::kSsh;
  options.plan.min_nodes = options.plan.max_nodes = static_cast<int>(nodes);
  options.job.mutable_timeouts()->set_grace_ms(10'000);
  options.job.mutable_timeouts()->set_teardown_ms(5'000);
  options.job.mutable_timeouts()->set_heartbeat_ms(1'000);
  options.job.mutable_timeouts()->set_suspect_ms(3'000);
  options.job.mutable_timeouts()->set_dead_ms(6'000);
  options.job.mutable_timeouts()->set_lease_ms(60'000);
  OpenStandardFds();
  Terminal terminal(STDOUT_FILENO, STDERR_FILENO, nullptr);
  return LaunchSession(std::move(options), std::make_shared<TcpTransport>(port), terminal).Run();
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const std::string role = argc >= 3 ? argv[1] : "";
  const long nodes = argc >= 3 ? std::atol(argv[2]) : 0;
  const int port = argc == 4 ? std::atoi(argv[3]) : 0;
  const bool is_front_end = role == "front_end" && port > 0;
  if (nodes < 1 || nodes > 20'000 || (!is_front_end && (role != "agents" || argc != 3))) {
    std::fprintf(stderr, "usage: %s agents NODES | front_end NODES PORT   (1 to 20000 nodes)\n",
                 argv[0]);
    return 64;
  }
  dslaunch::RaiseFileLimit();
  const auto count = static_cast<uint32_t>(nodes);
  return is_front_end ? dslaunch::BeTheFrontEnd(count, port) : dslaunch::BeTheAgents(count);
}
