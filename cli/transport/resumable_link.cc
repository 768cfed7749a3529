#include "cli/transport/resumable_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/socket_pair.h"
#include "base/start_thread.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTicketWithin{5'000};  // it travels with the hello line
// As long as the supervisor waits (SupervisorCore::kResumeLimit).
constexpr milliseconds kReconnectWithin{4'000};
// For the connection's last words, which say whether the supervisor has ended.
constexpr milliseconds kEndToldWithin{1'000};
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{1'000};

// Exactly so many bytes; shorter at end of file or the deadline.
std::string Receive(int socket, size_t size, Deadline deadline) {
  std::string text(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t n = ::recv(socket, text.data() + have, size - have, MSG_DONTWAIT);
    if (n > 0) have += static_cast<size_t>(n);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) break;
    if (n > 0) continue;
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, deadline.PollMs()) == 0) break;
  }
  text.resize(have);
  return text;
}

}  // namespace

Result<std::unique_ptr<NodeLink>> ResumableLink::Open(std::unique_ptr<NodeLink> first,
                                                      ReconnectFn reconnect) {
  UniqueFd fd = first->TakeFd();
  const std::string text = Receive(fd.get(), kTicketBytes, Deadline::After(kTicketWithin));
  std::optional<ResumeTicket> ticket = ParseTicket(text);
  if (!ticket) {
    return Error{ExitCode::kUnavailable, "the agent at " + first->Address() +
                                             " did not begin its stream after its hello line"};
  }
  DSL_TRY_ASSIGN(std::shared_ptr<LoopThread> loop, SshLoop());
  std::unique_ptr<ResumableLink> link(
      new ResumableLink(std::move(first), std::move(reconnect), *std::move(ticket), loop));
  DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
  link->outer_ = std::move(pair.ours);
  loop->Run([&link, &pair, &fd] {
    ResumableLink* const self = link.get();
    self->stream_ = std::make_unique<ResumableStream>(
        *self->loop_->context(), std::move(pair.theirs),
        ResumableStream::Handlers{.on_broken = [self](const std::string&) { self->OnBroken(); },
                                  .on_all_sent = {},
                                  .on_closed = [self] { self->OnClosed(); }});
    self->stream_->Connect(std::move(fd));
  });
  return std::unique_ptr<NodeLink>(std::move(link));
}

ResumableLink::ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect,
                             ResumeTicket ticket, std::shared_ptr<LoopThread> loop)
    : first_(std::move(first)),
      reconnect_(std::move(reconnect)),
      ticket_(std::move(ticket)),
      loop_(std::move(loop)),
      current_(first_) {}

ResumableLink::~ResumableLink() {
  stopping_ = true;
  {
    const MutexLock lock(mutex_);
    // Bounded: every step of it has a deadline.
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

bool ResumableLink::WaitEnd(Deadline deadline) {
  while (true) {
    const std::shared_ptr<NodeLink> link = Current();
    if (link->WaitEnd(deadline)) return true;
    const MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, deadline.when(),
                       [&]() DSL_REQUIRES(mutex_) { return over_ || current_ != link; });
    if (over_ || deadline.Expired()) return false;
  }
}

std::string ResumableLink::StderrTail() const {
  const std::string said = first_->StderrTail();
  const MutexLock lock(mutex_);
  return said.empty() ? why_over_ : said;
}

// --- a connection that broke ---

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
        return changed_.NotifyAll();  // the destructor waits for it
      }
    }
    RepairOnce();
  }
}

void ResumableLink::RepairOnce() {
  const bool supervisor_ended = Current()->WaitEnd(Deadline::After(kEndToldWithin));
  if (supervisor_ended) return SetOver("");
  const Result<void> connected = Reconnect(Deadline::After(kReconnectWithin));
  if (!connected.ok()) SetOver(connected.error().message);
}

Result<void> ResumableLink::Reconnect(Deadline by) {
  for (int attempt = 0; !stopping_; ++attempt) {
    Result<std::unique_ptr<NodeLink>> link = reconnect_(ticket_.socket, by);
    // The node may see later than we that the connection broke.
    Result<void> resumed = link.ok() ? Resume(*std::move(link), by) : link.error();
    if (resumed.ok()) return {};
    const Deadline pause =
        Deadline::After(PauseAfter(attempt, kFirstPause, kLongestPause, RandomPart()));
    if (resumed.error().code == ExitCode::kNoPermission || pause.when() >= by.when())
      return resumed;
    std::this_thread::sleep_until(pause.when());
  }
  return Error{ExitCode::kUnavailable, ""};
}

Result<void> ResumableLink::Resume(std::shared_ptr<NodeLink> link, Deadline by) {
  UniqueFd fd = link->TakeFd();
  uint64_t own_received = 0;  // no more arrives meanwhile
  loop_->Run([&] { own_received = stream_->received(); });
  const std::string request = FormatRequest({ticket_.secret, own_received});
  // A fresh socket has room for that.
  const ssize_t sent =
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const std::optional<uint64_t> received = ParseAnswer(Receive(fd.get(), kAnswerBytes, by));
  bool resumed = false;
  loop_->Run([&] {
    resumed = sent >= 0 && received && stream_->CanResumeAt(*received);
    if (resumed) stream_->ResumeAt(*received, std::move(fd));
  });
  if (!resumed)
    return Error{ExitCode::kUnavailable, "its agent no longer waits for this front end"};
  const MutexLock lock(mutex_);
  current_.swap(link);  // the one before ends as this returns
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
