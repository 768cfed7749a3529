#include "cli/transport/resumable_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
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
  std::unique_ptr<ResumableLink> link(
      new ResumableLink(std::move(first), std::move(reconnect), *std::move(ticket)));
  DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
  link->outer_ = std::move(pair.ours);
  link->aborted_ = DuplicateFd(pair.theirs.get());
  ResumableLink* const self = link.get();
  link->stream_ = std::make_unique<ResumableStream>(
      link->loop_, std::move(pair.theirs),
      ResumableStream::Handlers{.on_broken = [self](const std::string&) { self->OnBroken(); },
                                .on_all_sent = {}});
  link->stream_->Connect(DuplicateFd(fd.get()), std::move(fd));
  DSL_TRY_ASSIGN(link->thread_, StartThread(
                                    [self] {
                                      self->loop_.run();
                                      self->SetOver("");
                                    },
                                    "for the connection to " + link->Address()));
  return std::unique_ptr<NodeLink>(std::move(link));
}

ResumableLink::ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect,
                             ResumeTicket ticket)
    : first_(std::move(first)),
      reconnect_(std::move(reconnect)),
      ticket_(std::move(ticket)),
      current_(first_) {}

ResumableLink::~ResumableLink() {
  stopping_ = true;
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

void ResumableLink::Abort(const std::string&) { ::shutdown(aborted_.get(), SHUT_RDWR); }

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

// --- the thread ---

void ResumableLink::OnBroken() {
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
  const std::string request = FormatRequest({ticket_.secret, stream_->received()});
  // A fresh socket has room for that.
  const ssize_t sent =
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const std::optional<uint64_t> received = ParseAnswer(Receive(fd.get(), kAnswerBytes, by));
  if (sent < 0 || !received || !stream_->CanResumeAt(*received))
    return Error{ExitCode::kUnavailable, "its agent no longer waits for this front end"};
  stream_->ResumeAt(*received, DuplicateFd(fd.get()), std::move(fd));
  const MutexLock lock(mutex_);
  current_.swap(link);  // the one before ends as this returns
  changed_.NotifyAll();
  return {};
}

void ResumableLink::SetOver(const std::string& why) {
  stream_->Close();
  const MutexLock lock(mutex_);
  over_ = true;
  if (!why.empty()) why_over_ = "the connection to it broke and could not be made again: " + why;
  changed_.NotifyAll();
}

}  // namespace dslaunch
