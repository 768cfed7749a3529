#include "cli/transport/resumable_link.h"

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/os/socket_pair.h"
#include "base/os/start_thread.h"

namespace dslaunch {
namespace {

// Limit for the ticket, which the supervisor sends right after the hello line.
constexpr milliseconds kTicketWithin{5'000};
// Limit for replacing a broken connection. It equals the time for which the supervisor waits,
// SupervisorCore::kResumeLimit.
constexpr milliseconds kReconnectWithin{4'000};
// Limit for the last bytes of the connection, which show whether the supervisor has ended.
constexpr milliseconds kEndReportTimeout{1'000};
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{1'000};

struct Receipt {
  Mutex mutex;
  CondVar changed;
  std::string text DSL_GUARDED_BY(mutex);
  bool is_done DSL_GUARDED_BY(mutex) = false;
};

// Reads until `receipt` has `size` bytes, end of file or its reader has returned. Runs on the loop.
void ReceiveMore(StreamEnd& end, size_t size, const std::shared_ptr<Receipt>& receipt) {
  end.AwaitReadable([&end, size, receipt](std::error_code error) {
    MutexLock lock(receipt->mutex);
    if (receipt->is_done) return;  // Receive has returned, and `end` may be destroyed
    std::string piece(size - receipt->text.size(), '\0');
    piece.resize(error ? 0 : end.Read(piece.data(), piece.size(), error));
    receipt->text += piece;
    receipt->is_done = receipt->text.size() == size || (error && !IsToBeAwaited(error));
    receipt->changed.NotifyAll();
    const bool is_done = receipt->is_done;
    lock.Unlock();
    if (!is_done) ReceiveMore(end, size, receipt);
  });
}

// Receives exactly `size` bytes; fewer at end of file or if the deadline passes.
std::string Receive(LoopThread& loop, StreamEnd& end, size_t size, Deadline deadline) {
  const auto receipt = std::make_shared<Receipt>();
  loop.Run([&] { ReceiveMore(end, size, receipt); });
  const MutexLock lock(receipt->mutex);
  receipt->changed.WaitUntil(receipt->mutex, deadline.when(),
                             [&]() DSL_REQUIRES(receipt->mutex) { return receipt->is_done; });
  receipt->is_done = true;
  return receipt->text;
}

}  // namespace

Result<ResumableLink::Connection> ResumableLink::Over(std::unique_ptr<NodeLink> link) {
  DSL_TRY_ASSIGN(std::shared_ptr<LoopThread> loop, SshLoop());
  std::unique_ptr<StreamEnd> end = MakeStreamEnd(*loop->context(), link->TakeFd());
  return Connection{std::move(loop), std::move(link), std::move(end)};
}

Result<std::unique_ptr<NodeLink>> ResumableLink::Open(Connection first, ReconnectFn reconnect) {
  const std::shared_ptr<LoopThread> loop = first.loop;
  std::optional<ResumeTicket> ticket =
      ParseTicket(Receive(*loop, *first.end, kTicketBytes, Deadline::After(kTicketWithin)));
  Result<SocketPair> pair = MakeSocketPair();
  if (!ticket || !pair.ok()) {
    loop->Run([&first] { first.end.reset(); });
    if (!pair.ok()) return pair.error();
    return Error{ExitCode::kUnavailable, "the agent at " + first.link->Address() +
                                             " did not begin its stream after its hello line"};
  }
  std::unique_ptr<ResumableLink> link(
      new ResumableLink(std::move(first.link), std::move(reconnect), *std::move(ticket), loop));
  link->outer_ = std::move(pair->ours);
  loop->Run([&link, &pair, &first] {
    ResumableLink* const self = link.get();
    self->stream_ = std::make_unique<ResumableStream>(
        *self->loop_->context(), std::move(pair->theirs),
        ResumableStream::Handlers{.on_broken = [self](const std::string&) { self->OnBroken(); },
                                  .on_all_sent = {},
                                  .on_closed = [self] { self->OnClosed(); }});
    self->stream_->Connect(std::move(first.end));
  });
  return std::unique_ptr<NodeLink>(std::move(link));
}

ResumableLink::ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect,
                             ResumeTicket ticket, std::shared_ptr<LoopThread> loop)
    : notice_(first->Notice()),
      address_(first->Address()),
      own_address_(first->OwnAddress()),
      start_nonce_(first->StartNonce()),
      reconnect_(std::move(reconnect)),
      ticket_(std::move(ticket)),
      loop_(std::move(loop)),
      current_(std::move(first)) {}

ResumableLink::~ResumableLink() {
  stopping_ = true;
  {
    const MutexLock lock(mutex_);
    // Every step of the repair has a deadline, so this wait is bounded.
    changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return !repairing_; });
  }
  loop_->Run([this] { stream_.reset(); });
}

void ResumableLink::Abort(const std::string&) {
  loop_->Run([this] { stream_->ShutLocal(); });
}

std::shared_ptr<NodeLink> ResumableLink::Current() const {
  const MutexLock lock(mutex_);
  return current_;
}

HeldStream ResumableLink::TakeStream() {
  return {std::move(outer_), StreamHandle::OfOtherEnd(stream_->local_fd())};
}

void ResumableLink::LeaveRunning() {
  if (const std::shared_ptr<NodeLink> link = Current()) link->LeaveRunning();
}

bool ResumableLink::WaitEnd(Deadline deadline) {
  std::shared_ptr<NodeLink> link = Current();
  while (true) {
    if (link && link->WaitEnd(deadline)) return true;
    const MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
      return supervisor_ended_ || over_ || (current_ && current_ != link);
    });
    if (supervisor_ended_) return true;
    if (over_ || deadline.Expired()) return false;
    link = current_;
  }
}

std::string ResumableLink::StderrTail() const {
  const MutexLock lock(mutex_);
  const std::string printed = printed_ ? *printed_ : current_->StderrTail();
  return printed.empty() ? why_over_ : printed;
}

// --- Replacing a broken connection ---

void ResumableLink::OnBroken() {
  const Result<void> started = StartRepair();
  if (!started.ok()) SetOver(started.error().message);
}

Result<void> ResumableLink::StartRepair() {
  const MutexLock lock(mutex_);
  broken_ = true;
  if (repairing_) return {};
  DSL_TRY_ASSIGN(std::thread thread,
                 StartThread([this] { Repair(); }, "for the connection to " + Address()));
  thread.detach();
  repairing_ = true;
  return {};
}

void ResumableLink::Repair() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (stopping_ || !std::exchange(broken_, false)) {
        repairing_ = false;
        return changed_.NotifyAll();  // wakes the destructor, which waits for the end of the repair
      }
    }
    RepairOnce();
  }
}

void ResumableLink::RepairOnce() {
  if (EndConnection()) return SetOver("");
  const Result<void> connected = Reconnect(Deadline::After(kReconnectWithin));
  if (!connected.ok()) SetOver(connected.error().message);
}

// Ends the broken connection. Returns whether its last bytes show that the supervisor has ended.
bool ResumableLink::EndConnection() {
  std::shared_ptr<NodeLink> link = Current();
  const bool supervisor_ended = link->WaitEnd(Deadline::After(kEndReportTimeout));
  const std::string printed = link->StderrTail();
  {
    const MutexLock lock(mutex_);
    supervisor_ended_ = supervisor_ended;
    if (!printed_) printed_ = printed;
    current_.reset();
    changed_.NotifyAll();
  }
  return supervisor_ended;
}

Result<void> ResumableLink::Reconnect(Deadline by) {
  for (int attempt = 0; !stopping_; ++attempt) {
    Result<Connection> next = reconnect_(ticket_.socket, by);
    // The node may detect the broken connection later than this process, so a failure is retried.
    Result<void> resumed = next.ok() ? Resume(*std::move(next), by) : next.error();
    if (resumed.ok()) return {};
    const Deadline pause =
        Deadline::After(PauseAfter(attempt, kFirstPause, kLongestPause, RandomPart()));
    if (resumed.error().code == ExitCode::kNoPermission || pause.when() >= by.when())
      return resumed;
    std::this_thread::sleep_until(pause.when());
  }
  return Error{ExitCode::kUnavailable, ""};
}

Result<void> ResumableLink::Resume(Connection connection, Deadline by) {
  std::unique_ptr<StreamEnd>& end = connection.end;
  bool is_sent = false;
  loop_->Run([&] {
    // The old connection is closed and nothing more arrives, so received() is final.
    const std::string request = FormatRequest({ticket_.secret, stream_->received()});
    std::error_code error;
    // A new stream has room for the whole request, so a single write suffices.
    is_sent = end->Write(request, error) == request.size();
  });
  std::optional<uint64_t> received;
  if (is_sent) received = ParseAnswer(Receive(*loop_, *end, kAnswerBytes, by));
  bool resumed = false;
  loop_->Run([&] {
    resumed = received && stream_->CanResumeAt(*received);
    if (resumed) stream_->ResumeAt(*received, std::move(end));
    end.reset();
  });
  if (!resumed)
    return Error{ExitCode::kUnavailable, "its agent no longer waits for this front end"};
  const MutexLock lock(mutex_);
  current_ = std::move(connection.link);
  changed_.NotifyAll();
  return {};
}

void ResumableLink::SetOver(const std::string& why) {
  if (!why.empty()) {
    const MutexLock lock(mutex_);
    why_over_ = "the connection to it broke and could not be made again: " + why;
  }
  loop_->Run([this] { stream_->Close(); });
}

void ResumableLink::OnClosed() {
  const MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
}

}  // namespace dslaunch
