// Runs a whole job of N agents through a real RendezvousServer: join, ranks, and the three
// barriers. The rendezvous' own agent is in its process, as in a job. Each of the other agents has
// a connection: TCP with mutual TLS on loopback. They all share another process, so the memory of
// the first process is the server's. With IDLE_S, the ranks run for this long, and the server's use
// of resources is measured meanwhile. Prints one JSON object.
//
//   dslaunch-bench-rendezvous-grpc AGENTS [IDLE_S]
//   dslaunch-bench-rendezvous-grpc AGENTS IDLE_S ENDPOINT   the other process, started by the first
#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <malloc.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "net/certificate_authority.h"
#include "net/tunnel.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"
#include "tests/bench/rendezvous_answer.h"

namespace dslaunch {
namespace {

using std::chrono::seconds;

using google::protobuf::io::FileInputStream;
using google::protobuf::util::ParseDelimitedFromZeroCopyStream;
using google::protobuf::util::SerializeDelimitedToFileDescriptor;

constexpr char kJobId[] = "bench";
constexpr uint32_t kSlots = 8;
constexpr uint32_t kConnectAlone =
    50;  // agents that connect one after the other, to time single handshakes
constexpr int kConnectAtOnce = 16;      // number of the other agents that connect at the same time
constexpr milliseconds kWait(300'000);  // limit of any wait
constexpr milliseconds kTick(500);
constexpr milliseconds kBeat(1'000);  // the default interval of a job's agents

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);  // skips destructors, because gRPC's threads are running
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A point that all agents of a process must reach.
class Milestone {
 public:
  explicit Milestone(uint32_t agents) : missing_(agents) {}

  void Reach() {
    const std::lock_guard lock(mutex_);
    if (--missing_ > 0) return;
    reached_at_ = Clock::now();
    reached_.notify_all();
  }
  // Returns the time at which the last agent reached it. Ends the process if one takes too long.
  Clock::time_point Await() {
    std::unique_lock lock(mutex_);
    if (!reached_.wait_for(lock, kWait, [this] { return missing_ == 0; }))
      Fail(std::to_string(missing_) + " agents are not told how the job goes on");
    return reached_at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  uint32_t missing_;
  Clock::time_point reached_at_;
};

struct Milestones {
  explicit Milestones(uint32_t agents) : assigned(agents), working(agents), closed(agents) {}
  Milestone assigned;
  Milestone working;  // agents whose ranks run for a while
  Milestone closed;
};

class Agent {
 public:
  // If `works`, the agent's ranks run until EndWork.
  Agent(std::shared_ptr<grpc::Channel> channel, uint32_t node, Milestones* milestones, bool works)
      : node_(node),
        milestones_(milestones),
        works_(works),
        client_(
            std::move(channel),
            [this](const pb::RendezvousMessage& message) { OnMessage(message); },
            [](const std::string&) {}) {}

  void Join(const std::string& reached_at) {
    pb::AgentMessage message;
    pb::Join& join = *message.mutable_join();
    join.set_slots(kSlots);
    join.set_identity("machine " + std::to_string(node_));
    join.set_master_port(29'500);
    join.set_reached_at(reached_at);
    join.set_address(reached_at);  // both addresses are loopback
    Send(std::move(message), 0);
  }

  void Beat() {
    pb::AgentMessage message;
    message.mutable_heartbeat()->set_sent_us(1);
    Send(std::move(message), 1);
  }
  void EndWork() {
    pb::AgentMessage message;
    message.mutable_finished();
    Send(std::move(message), 1);
  }

 private:
  void OnMessage(const pb::RendezvousMessage& message) {
    if (message.has_refused()) Fail(message.refused().cause().message());
    if (message.has_completed() && !message.completed().teardown_complete())
      Fail("the job ended without some of its agents");
    if (message.has_assignment()) milestones_->assigned.Reach();
    if (works_ && message.has_all_ready()) return milestones_->working.Reach();
    if (std::optional<pb::AgentMessage> answer = AnswerTo(message))
      Send(*std::move(answer), message.attempt());
    if (message.has_completed()) milestones_->closed.Reach();
  }

  void Send(pb::AgentMessage message, uint64_t attempt) {
    message.set_job_id(kJobId);
    message.set_node_index(node_);
    message.set_attempt(attempt);
    client_.Send(std::move(message));
  }

  const uint32_t node_;
  Milestones* const milestones_;
  const bool works_;
  RendezvousClient client_;
};

// --- The process of the other agents. It reads their credentials and two signals, to connect and
// to join, which are empty credentials. It prints a line after each signal.

// Reads one message. Returns false at the end of the input.
bool Read(FileInputStream& input, pb::Credentials& credentials) {
  return ParseDelimitedFromZeroCopyStream(&credentials, &input, /*clean_eof=*/nullptr);
}

struct Handshakes {
  std::vector<double> alone_s;  // single handshakes, made one after the other
  double total_s = 0;           // time of all handshakes
};

Handshakes Connect(const std::string& endpoint, const std::vector<pb::Credentials>& credentials,
                   std::vector<RendezvousRoute>& routes) {
  routes.resize(credentials.size());
  const auto connect = [&](size_t agent) {
    Result<RendezvousRoute> route =
        FindRendezvous({endpoint}, kJobId, 0, credentials[agent], Deadline::After(kWait), kWait);
    if (!route.ok()) Fail(route.error().message);
    routes[agent] = *std::move(route);
  };
  Handshakes handshakes;
  const Clock::time_point begin = Clock::now();
  std::atomic<size_t> next = 0;
  for (; next < std::min<size_t>(kConnectAlone, credentials.size()); ++next) {
    const Clock::time_point one = Clock::now();
    connect(next);
    handshakes.alone_s.push_back(SecondsSince(one));
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kConnectAtOnce; ++i) {
      threads.emplace_back([&] {
        for (size_t agent = next++; agent < credentials.size(); agent = next++) connect(agent);
      });
    }
  }
  handshakes.total_s = SecondsSince(begin);
  return handshakes;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Runs the ranks of the agents for `duration`, with heartbeats. Calls `on_beat` at each beat.
void Work(std::vector<Agent*> agents, seconds duration, const std::function<void()>& on_beat) {
  const Deadline deadline = Deadline::After(duration);
  for (Clock::time_point next = Clock::now(); !deadline.Expired(); next += kBeat) {
    for (Agent* const agent : agents) agent->Beat();
    on_beat();
    std::this_thread::sleep_until(next + kBeat);
  }
  for (Agent* const agent : agents) agent->EndWork();
}

int BeTheOthers(uint32_t agents, seconds idle, const std::string& endpoint) {
  FileInputStream input(STDIN_FILENO);
  std::vector<pb::Credentials> credentials(agents - 1);
  for (pb::Credentials& one : credentials) {
    if (!Read(input, one)) return 1;
  }
  pb::Credentials signal;
  if (!Read(input, signal)) return 1;
  std::vector<RendezvousRoute> routes;
  const Handshakes handshakes = Connect(endpoint, credentials, routes);
  std::printf("%.6f %.6f\n", handshakes.total_s, Median(handshakes.alone_s));
  std::fflush(stdout);

  if (!Read(input, signal)) return 1;
  Milestones milestones(agents - 1);
  std::vector<std::unique_ptr<Agent>> all;
  for (uint32_t node = 1; node < agents; ++node) {
    const RendezvousRoute& route = routes[node - 1];
    all.push_back(
        std::make_unique<Agent>(route.channel, node, &milestones, idle > seconds::zero()));
    all.back()->Join(route.address);
  }
  const Clock::time_point assigned = milestones.assigned.Await();
  if (idle > seconds::zero()) {
    milestones.working.Await();
    std::vector<Agent*> working;
    for (const auto& agent : all) working.push_back(agent.get());
    Work(working, idle, [] {});
  }
  const Clock::time_point closed = milestones.closed.Await();
  // The clock is the same in all processes.
  std::printf("%lld %lld\n", static_cast<long long>(assigned.time_since_epoch().count()),
              static_cast<long long>(closed.time_since_epoch().count()));
  std::fflush(stdout);
  return 0;
}

// --- The process of the rendezvous.

// Raises the limit of open files. A connection takes its socket and a socketpair, and at the
// agent's end also the descriptors of a loop.
void RaiseFileLimit(uint32_t agents) {
  constexpr rlim_t kEach = 6;
  constexpr rlim_t kOthers = 100;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < kEach * agents + kOthers)
    Fail("too few open files are allowed (ulimit -Hn) for " + std::to_string(agents) + " agents");
}

// Starts this program again as the process of the other agents, with pipes to its stdin and from
// its stdout.
class OtherProcess {
 public:
  OtherProcess(uint32_t agents, seconds idle, std::string endpoint) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) Fail("no pipe");
    UniqueFd its_stdin(to[0]);
    UniqueFd its_stdout(from[1]);
    to_.Reset(to[1]);
    from_.Reset(from[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, its_stdin.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, its_stdout.get(), STDOUT_FILENO);
    std::string name = "/proc/self/exe";
    std::string count = std::to_string(agents);
    std::string idle_s = std::to_string(idle.count());
    char* argv[] = {name.data(), count.data(), idle_s.data(), endpoint.data(), nullptr};
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ) != 0) Fail("cannot start");
    posix_spawn_file_actions_destroy(&actions);
  }

  void Write(const pb::Credentials& credentials) {
    if (!SerializeDelimitedToFileDescriptor(credentials, to_.get())) Fail("the agents are gone");
  }
  void Signal() { Write(pb::Credentials()); }

  // Returns the two numbers in its next line. Advances the rendezvous' clock while waiting.
  template <class Number>
  std::pair<Number, Number> ReadNumbers(RendezvousServer& server) {
    const Deadline deadline = Deadline::After(kWait);
    std::string line;
    while (!line.ends_with('\n')) {
      pollfd readable{from_.get(), POLLIN, 0};
      if (poll(&readable, 1, static_cast<int>(kTick.count())) == 0) {
        server.Tick();
        if (deadline.Expired()) Fail("the agents do not answer");
        continue;
      }
      char byte = 0;
      if (read(from_.get(), &byte, 1) != 1) Fail("the agents are gone");
      line += byte;
    }
    std::pair<Number, Number> numbers;
    std::istringstream(line) >> numbers.first >> numbers.second;
    return numbers;
  }

  void AwaitEnd() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_ || status != 0) Fail("the agents did not end well");
  }

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
};

CoordinatorOptions Options(uint32_t agents) {
  CoordinatorOptions options;
  options.job_id = kJobId;
  for (uint32_t node = 0; node < agents; ++node) {
    pb::Node& added = options.nodes.emplace_back();
    added.set_name("node" + std::to_string(node));
    added.set_slots(kSlots);
  }
  const auto wait_ms = static_cast<uint32_t>(kWait.count());
  options.timeouts.set_join_ms(wait_ms);
  options.timeouts.set_ready_ms(wait_ms);
  options.timeouts.set_grace_ms(10'000);
  options.timeouts.set_teardown_ms(5'000);
  options.timeouts.set_suspect_ms(wait_ms);  // because these agents send no heartbeats
  options.timeouts.set_dead_ms(wait_ms);
  return options;
}

// Returns the number of established TCP connections with this local port.
uint32_t CountConnections(int port) {
  constexpr char kEstablished[] = "01";
  uint32_t count = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    std::string number, local, remote, state;
    while (file >> number >> local >> remote >> state) {
      const int its_port = std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16);
      if (its_port == port && state == kEstablished) ++count;
      file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
  }
  return count;
}

// Returns this process's VmRSS or VmHWM in bytes.
size_t OwnMemory(const std::string& which) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kib = 0;
    if (word == which + ":" && status >> kib) return kib * 1024;
  }
  Fail("/proc/self/status has no " + which);
}

size_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Returns the CPU time of this process in seconds.
double ComputedSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

size_t CountEntries(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

Clock::time_point AtCount(int64_t count) { return Clock::time_point(Clock::duration(count)); }

int BeTheRendezvous(uint32_t agents, seconds idle) {
  RaiseFileLimit(agents);
  Result<CertificateAuthority> authority = CertificateAuthority::Create(kJobId);
  if (!authority.ok()) Fail(authority.error().message);
  const auto issue = [&](uint32_t node) {
    Result<pb::Credentials> credentials = authority->Issue(node);
    if (!credentials.ok()) Fail(credentials.error().message);
    return *std::move(credentials);
  };
  ListenOptions listen;
  listen.loopback_only = true;
  auto started = RendezvousServer::Start(
      Options(agents), listen, issue(0),
      [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  if (!started.ok()) Fail(started.error().message);
  RendezvousServer& server = **started;
  const std::string& endpoint = server.endpoints().front();
  OtherProcess others(agents, idle, endpoint);
  for (uint32_t node = 1; node < agents; ++node) others.Write(issue(node));
  std::ofstream("/proc/self/clear_refs") << 5;  // resets VmHWM
  const size_t rss_before = OwnMemory("VmRSS");
  const size_t heap_before = HeapBytes();

  others.Signal();
  const auto [connect_s, handshake_s] = others.ReadNumbers<double>(server);
  const uint32_t connections =
      CountConnections(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  if (connections != agents - 1)
    Fail(std::to_string(connections) + " connections instead of " + std::to_string(agents - 1));
  const size_t rss_connected = OwnMemory("VmRSS");
  const size_t heap_connected = HeapBytes();

  Milestones milestones(1);
  Agent own(server.InProcessChannel(), 0, &milestones, idle > seconds::zero());
  const Clock::time_point begin = Clock::now();
  others.Signal();
  own.Join("");
  double idle_cores = 0;
  if (idle > seconds::zero()) {
    milestones.working.Await();
    const double before_s = ComputedSeconds();
    Work({&own}, idle, [&server] { server.Tick(); });
    idle_cores = (ComputedSeconds() - before_s) / static_cast<double>(idle.count());
  }
  const size_t descriptors = CountEntries("/proc/self/fd");
  const size_t threads = CountEntries("/proc/self/task");
  const auto [assigned, closed] = others.ReadNumbers<int64_t>(server);
  const Clock::time_point all_assigned = std::max(AtCount(assigned), milestones.assigned.Await());
  const Clock::time_point all_closed = std::max(AtCount(closed), milestones.closed.Await());
  others.AwaitEnd();
  std::printf(
      "{\"agents\": %u, \"connections\": %u, \"connect_s\": %.6f, \"handshake_s\": %.6f, "
      "\"assigned_s\": %.6f, \"total_s\": %.6f, \"rss_bytes\": %zu, \"heap_bytes\": %zu, "
      "\"peak_rss_bytes\": %zu, \"idle_cores\": %.4f, \"descriptors\": %zu, \"threads\": %zu}\n",
      agents, connections, connect_s, handshake_s,
      std::chrono::duration<double>(all_assigned - begin).count(),
      std::chrono::duration<double>(all_closed - begin).count(), rss_connected - rss_before,
      heap_connected - heap_before, OwnMemory("VmHWM") - rss_before, idle_cores, descriptors,
      threads);
  return 0;
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const long agents = argc >= 2 ? std::atol(argv[1]) : 0;
  const long idle_s = argc >= 3 ? std::atol(argv[2]) : 0;
  if (argc > 4 || agents < 2 || agents > 10'000 || idle_s < 0 || idle_s > 3'600) {
    std::fprintf(stderr, "usage: %s AGENTS [IDLE_S]   (2 to 10000)\n", argv[0]);
    return 64;
  }
  const auto count = static_cast<uint32_t>(agents);
  const std::chrono::seconds idle(idle_s);
  return argc == 4 ? dslaunch::BeTheOthers(count, idle, argv[3])
                   : dslaunch::BeTheRendezvous(count, idle);
}
