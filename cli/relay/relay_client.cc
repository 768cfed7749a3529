#include "cli/relay/relay_client.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/os/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 64 << 10;
// Limit for the end of calls after their connection is shut down.
constexpr milliseconds kCallsEndWithin(10'000);
constexpr size_t kStderrTailBytes = 4096;
constexpr int kExited255 = 255 << 8;  // wait status of a program that could not be started

}  // namespace

// A program on the relay. gRPC's threads only post to the loop; everything else runs on the loop's
// thread.
class RelayClient::Call final : public grpc::ClientBidiReactor<pb::ProgramInput, pb::ProgramOutput>,
                                public std::enable_shared_from_this<Call> {
 public:
  Call(std::string where, std::shared_ptr<asio::io_context> loop, UniqueFd inner,
       std::shared_ptr<std::atomic<bool>> is_broken, std::shared_ptr<std::atomic<int>> num_running,
       std::shared_ptr<const void> counted)
      : counted_(std::move(counted)),
        where_(std::move(where)),
        loop_(std::move(loop)),
        work_(asio::make_work_guard(*loop_)),
        is_broken_(std::move(is_broken)),
        num_running_(std::move(num_running)),
        socket_(*loop_, asio::local::stream_protocol(), inner.Release()) {
    ++*num_running_;
  }

  void Begin(pb::Relay::Stub& stub, pb::ProgramStart start) {
    self_ = shared_from_this();
    *input_.mutable_start() = std::move(start);
    stub.async()->Run(&context_, this);
    AddHold();  // holds the call until both directions end, because both start on the loop
    is_writing_ = true;
    StartWrite(&input_);
    StartRead(&output_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  std::optional<int> WaitEnd(Deadline deadline) {
    const MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, deadline.when(), [this]() DSL_REQUIRES(mutex_) { return is_over_; });
    return wait_status_;
  }
  bool HasEnded() const {
    const MutexLock lock(mutex_);
    return is_over_;
  }
  std::string StderrTail() const {
    const MutexLock lock(mutex_);
    return stderr_tail_;
  }

  void OnReadDone(bool ok) override {
    Post([this, ok] { ok ? OnOutput() : OnOutputsEnd(); });
  }
  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      is_writing_ = false;
      if (is_read_) return DropHold();
      if (ok) ReadInput();  // after a failed write, reads fail too
    });
  }
  void OnWritesDoneDone(bool) override {}
  void OnDone(const grpc::Status& status) override {
    if (status.error_code() == grpc::UNAVAILABLE) is_broken_->store(true);
    asio::post(*loop_, [self = std::move(self_)] {
      std::error_code ignored;
      self->socket_.close(ignored);
      const MutexLock lock(self->mutex_);
      if (std::exchange(self->is_over_, true)) return;
      self->stderr_tail_ = "the connection to the relay" + self->where_ + " broke";
      self->SetOver();
    });
  }

 private:
  template <class Act>
  void Post(Act act) {
    asio::post(*loop_, [self = shared_from_this(), act = std::move(act)] { act(); });
  }

  void ReadInput() {
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](std::error_code ended, size_t size) {
                              self->OnInput(!ended, size);
                            });
  }

  void OnInput(bool ok, size_t size) {
    if (is_read_) return DropHold();
    if (!ok) {
      StartWritesDone();
      return;
    }
    input_.Clear();
    input_.set_data(chunk_.data(), size);
    is_writing_ = true;
    StartWrite(&input_);
  }

  void OnOutput() {
    if (output_.has_end()) {
      const pb::ProgramEnd& end = output_.end();
      const std::string reason = end.not_started().empty()
                                     ? end.stderr_tail()
                                     : "it cannot be started: " + end.not_started();
      {
        const MutexLock lock(mutex_);
        if (is_over_) return DropHold();
        wait_status_ = end.not_started().empty() ? end.wait_status() : kExited255;
        stderr_tail_ = reason.substr(0, kStderrTailBytes);
        SetOver();
      }
      return StartRead(&output_);
    }
    asio::async_write(socket_, asio::buffer(output_.data()),
                      [self = shared_from_this()](std::error_code, size_t) {
                        // Errors are ignored, because output for a stream that was abandoned is
                        // dropped.
                        self->StartRead(&self->output_);
                      });
  }

  void OnOutputsEnd() {
    is_read_ = true;
    std::error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    socket_.cancel(ignored);
    if (!is_writing_) DropHold();
  }

  void SetOver() DSL_REQUIRES(mutex_) {
    is_over_ = true;
    --*num_running_;
    changed_.NotifyAll();
  }

  void DropHold() {
    if (!std::exchange(has_dropped_, true)) RemoveHold();
  }

  // The owner of this object may wait for the call, so this member is released last.
  const std::shared_ptr<const void> counted_;
  const std::string where_;  // location of the program for messages, such as " on node1"
  const std::shared_ptr<asio::io_context> loop_;
  const asio::executor_work_guard<asio::io_context::executor_type> work_;
  const std::shared_ptr<std::atomic<bool>> is_broken_;
  const std::shared_ptr<std::atomic<int>> num_running_;
  std::shared_ptr<Call> self_;  // keeps the call alive until gRPC has finished with it
  asio::local::stream_protocol::socket socket_;
  grpc::ClientContext context_;
  pb::ProgramInput input_;
  pb::ProgramOutput output_;
  std::array<char, kChunkBytes> chunk_;
  bool is_writing_ = false;
  bool is_read_ = false;  // whether the input was read to its end
  bool has_dropped_ = false;
  mutable Mutex mutex_;
  CondVar changed_;
  // The wait status; nullopt while the program runs, or if the status is unknown after the end.
  std::optional<int> wait_status_ DSL_GUARDED_BY(mutex_);
  std::string stderr_tail_ DSL_GUARDED_BY(mutex_);
  bool is_over_ DSL_GUARDED_BY(mutex_) = false;
};

class RelayClient::Program : public RunningProgram {
 public:
  Program(std::shared_ptr<RelayClient> relay, std::shared_ptr<Call> call, UniqueFd stream)
      : relay_(std::move(relay)),
        call_(std::move(call)),
        stream_(std::move(stream)),
        watchdog_(::fcntl(stream_.get(), F_DUPFD_CLOEXEC, 0)) {}

  ~Program() override {
    if (!is_left_running_ && !call_->HasEnded()) call_->Cancel();
  }

  UniqueFd TakeStream() override { return std::move(stream_); }
  void ShutStream() override {
    const MutexLock lock(mutex_);
    if (!watchdog_) return;
    ::shutdown(watchdog_.get(), SHUT_RDWR);
    watchdog_.Reset();
  }
  void ReleaseStream() override {
    const MutexLock lock(mutex_);
    watchdog_.Reset();
  }
  std::optional<int> WaitEnd(Deadline deadline) override { return call_->WaitEnd(deadline); }
  void KillGroup() override { call_->Cancel(); }
  void LeaveRunning() override { is_left_running_ = true; }
  bool is_left_running() const override { return is_left_running_; }
  std::string StderrTail(size_t max_bytes) const override {
    const std::string tail = call_->StderrTail();
    return tail.substr(tail.size() - std::min(tail.size(), max_bytes));
  }

 private:
  const std::shared_ptr<RelayClient> relay_;
  const std::shared_ptr<Call> call_;
  UniqueFd stream_;
  Mutex mutex_;
  // Duplicate of the stream, used to shut the stream down.
  UniqueFd watchdog_ DSL_GUARDED_BY(mutex_);
  std::atomic<bool> is_left_running_ = false;
};

RelayClient::RelayClient(std::string node, std::unique_ptr<NodeLink> link,
                         std::shared_ptr<LoopThread> loop)
    : node_(std::move(node)), link_(std::move(link)), loop_(std::move(loop)) {
  UniqueFd fd = link_->TakeFd();
  stream_.Reset(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  stub_ = pb::Relay::NewStub(ChannelFromFd("relay " + node_, std::move(fd)));
}

RelayClient::~RelayClient() {
  ::shutdown(stream_.get(), SHUT_RDWR);
  calls_.AwaitNone(Deadline::After(kCallsEndWithin));
}

Result<std::unique_ptr<RunningProgram>> RelayClient::Start(const std::vector<std::string>& argv) {
  pb::ProgramStart start;
  *start.mutable_argv() = {argv.begin(), argv.end()};
  return Run(std::move(start));
}

Result<std::unique_ptr<RunningProgram>> RelayClient::StartReadingAgent(
    const std::vector<std::string>& argv) {
  pb::ProgramStart start;
  *start.mutable_argv() = {argv.begin(), argv.end()};
  start.set_reads_agent(true);
  return Run(std::move(start));
}

Result<std::unique_ptr<RunningProgram>> RelayClient::StartAgent(
    const std::vector<std::string>& arguments) {
  pb::ProgramStart start;
  start.add_argv("dslaunch-agent");
  for (const std::string& argument : arguments) start.add_argv(argument);
  start.set_is_agent(true);
  return Run(std::move(start));
}

Result<std::unique_ptr<RunningProgram>> RelayClient::Run(pb::ProgramStart start) {
  DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
  const auto call = std::make_shared<Call>(Where(), loop_->context(), std::move(pair.ours),
                                           is_broken_, num_running_, calls_.Begin());
  call->Begin(*stub_, std::move(start));
  return std::unique_ptr<RunningProgram>(
      new Program(shared_from_this(), call, std::move(pair.theirs)));
}

bool RelayClient::EndIfIdle(Deadline deadline) {
  if (num_running_->load() > 0) return true;
  ::shutdown(stream_.get(), SHUT_RDWR);
  is_broken_->store(true);
  return link_->WaitEnd(deadline);
}

}  // namespace dslaunch
