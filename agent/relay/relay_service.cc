#include "agent/relay/relay_service.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/errno_text.h"
#include "base/os/socket_pair.h"
#include "base/os/subprocess.h"

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kStderrTailBytes = 4096;
// Limit of the wait for output after a program's exit. A child that the program left may keep
// stdout open, so the end of stdout may never come.
constexpr milliseconds kLastOutputWithin(500);
constexpr char kOwnExecutable[] = "/proc/self/exe";

std::string TailOf(const UniqueFd& file) {
  struct stat status {};
  ::fstat(file.get(), &status);
  const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(kStderrTailBytes));
  std::string tail(static_cast<size_t>(status.st_size - from), '\0');
  const ssize_t size = ::pread(file.get(), tail.data(), tail.size(), from);
  tail.resize(static_cast<size_t>(std::max<ssize_t>(0, size)));
  return tail;
}

}  // namespace

// Handles one call that runs a program. gRPC's threads only post to the loop. At most one read, one
// write and the finish are pending. The object is destroyed on the loop's thread once gRPC has
// released it.
class RelayService::Program final
    : public grpc::ServerBidiReactor<pb::ProgramInput, pb::ProgramOutput>,
      public std::enable_shared_from_this<Program> {
 public:
  explicit Program(RelayService& service)
      : service_(service), socket_(service.loop_), timer_(service.loop_) {}

  void Begin() {
    self_ = shared_from_this();
    StartRead(&input_);
  }

  void OnReadDone(bool ok) override {
    Post([this, ok] { ok ? OnInput() : OnInputsEnd(); });
  }
  void OnWriteDone(bool) override {
    Post([this] {
      is_writing_ = false;
      ReadOutput();
    });
  }
  void OnCancel() override {
    Post([this] { Cancel(); });
  }
  void OnDone() override {
    asio::post(service_.loop_, [self = std::move(self_)] { self->CloseSocket(); });
  }

  void OnExit(int wait_status) {
    pid_ = -1;
    wait_status_ = wait_status;
    if (has_output_ended_) return End();
    timer_.expires_after(kLastOutputWithin);
    timer_.async_wait([self = shared_from_this()](std::error_code cancelled) {
      if (cancelled) return;
      self->has_output_ended_ = true;
      self->End();
    });
  }

 private:
  template <class Act>
  void Post(Act act) {
    asio::post(service_.loop_, [self = shared_from_this(), act = std::move(act)] { act(); });
  }

  void OnInput() {
    if (!has_started_) {
      has_started_ = true;
      if (const std::string failure = StartProgram(input_.start()); !failure.empty()) {
        output_.mutable_end()->set_not_started(failure);
        return FinishWithOutput();
      }
      StartRead(&input_);
      return ReadOutput();
    }
    asio::async_write(socket_, asio::buffer(input_.data()),
                      [self = shared_from_this()](std::error_code, size_t) {
                        // A program that reads no more input reports that by its exit, so a failed
                        // write is ignored.
                        if (!self->is_finished_) self->StartRead(&self->input_);
                      });
  }

  void OnInputsEnd() {
    std::error_code ignored;
    if (socket_.is_open()) socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    if (!has_started_) FinishOnce(grpc::Status::CANCELLED);
  }

  std::string StartProgram(const pb::ProgramStart& start) {
    if (start.argv().empty()) return "the program is missing";
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) return pair.error().message;
    stderr_.Reset(::memfd_create("program-stderr", MFD_CLOEXEC));
    if (!stderr_) return "memfd_create: " + ErrnoText(errno);
    ::fcntl(stderr_.get(), F_SETFL, O_APPEND);
    UniqueFd agent;
    if (start.reads_agent()) agent.Reset(::open(kOwnExecutable, O_RDONLY | O_CLOEXEC));
    is_agent_ = start.is_agent();
    SpawnSpec spec;
    spec.argv.assign(start.argv().begin(), start.argv().end());
    spec.executable = is_agent_ ? kOwnExecutable : FindProgram(spec.argv.front());
    if (spec.executable.empty()) return "there is no program '" + spec.argv.front() + "' in PATH";
    spec.env = CurrentEnvironment();
    spec.stdin_fd = start.reads_agent() ? agent.get() : pair->theirs.get();
    spec.stdout_fd = pair->theirs.get();
    spec.stderr_fd = stderr_.get();
    spec.own_session = true;
    spec.parent_death_signal = is_agent_ ? 0 : SIGTERM;
    const SpawnResult spawned = Spawn(spec);
    if (spawned.pid < 0)
      return std::string(spawned.failure.step) + ": " + ErrnoText(spawned.failure.error_number);
    pid_ = spawned.pid;
    service_.programs_[pid_] = weak_from_this();
    socket_.assign(asio::local::stream_protocol(), pair->ours.Release());
    return "";
  }

  void ReadOutput() {
    if (has_output_ended_) return End();
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](std::error_code ended, size_t size) {
                              self->OnOutput(!ended, size);
                            });
  }

  void OnOutput(bool ok, size_t size) {
    if (has_output_ended_) return;  // the wait for more output has timed out
    if (!ok) {
      has_output_ended_ = true;
      return End();
    }
    output_.set_data(chunk_.data(), size);
    is_writing_ = true;
    StartWrite(&output_);
  }

  // Ends the call if the program has exited and its output has ended.
  void End() {
    if (!has_output_ended_ || !wait_status_ || is_writing_) return;
    timer_.cancel();
    output_.Clear();
    output_.mutable_end()->set_wait_status(*wait_status_);
    output_.mutable_end()->set_stderr_tail(TailOf(stderr_));
    FinishWithOutput();
  }

  void FinishWithOutput() {
    if (std::exchange(is_finished_, true)) return;
    StartWriteAndFinish(&output_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void FinishOnce(const grpc::Status& status) {
    if (!std::exchange(is_finished_, true)) Finish(status);
  }

  void Cancel() {
    if (pid_ > 0 && !is_agent_)
      ::kill(-pid_, SIGKILL);  // the process group exists, because the program is not reaped yet
    CloseSocket();
    FinishOnce(grpc::Status::CANCELLED);
  }

  void CloseSocket() {
    std::error_code ignored;
    socket_.close(ignored);
  }

  RelayService& service_;
  std::shared_ptr<Program> self_;  // keeps the object until gRPC has released it
  // Socket for the program's stdout, and for its stdin unless that is a file.
  asio::local::stream_protocol::socket socket_;
  asio::steady_timer timer_;
  UniqueFd stderr_;
  pb::ProgramInput input_;
  pb::ProgramOutput output_;
  std::array<char, kChunkBytes> chunk_;
  pid_t pid_ = -1;  // process ID; -1 before the start and after the program was reaped
  bool is_agent_ = false;
  bool has_started_ = false;
  bool has_output_ended_ = false;
  bool is_writing_ = false;
  bool is_finished_ = false;
  std::optional<int> wait_status_;
};

RelayService::RelayService(asio::io_context& loop) : loop_(loop), child_ended_(loop, SIGCHLD) {
  AwaitChild();
}

RelayService::~RelayService() = default;

grpc::ServerBidiReactor<pb::ProgramInput, pb::ProgramOutput>* RelayService::Run(
    grpc::CallbackServerContext*) {
  const auto program = std::make_shared<Program>(*this);
  program->Begin();
  return program.get();
}

void RelayService::AwaitChild() {
  child_ended_.async_wait([this](std::error_code cancelled, int) {
    if (cancelled) return;
    int status = 0;
    for (auto program = programs_.begin(); program != programs_.end();) {
      const pid_t pid = program->first;
      if (::waitpid(pid, &status, WNOHANG) != pid) {
        ++program;
        continue;
      }
      const std::shared_ptr<Program> ended = program->second.lock();
      program = programs_.erase(program);
      if (ended) ended->OnExit(status);
    }
    AwaitChild();
  });
}

}  // namespace dslaunch
