#include "cli/per_node/transport_inbound.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/count.h"
#include "base/harmless_text.h"
#include "base/signal_name.h"
#include "net/connection.h"

namespace dslaunch {
namespace {

constexpr milliseconds kRequestLimit(5'000);  // to say who one is
constexpr size_t kMaxAsking = 32;             // at once; a real node says it with its first packet
constexpr size_t kMaxRefusalsSaid = 20;
constexpr milliseconds kAcceptAgain(1'000);  // when there is no descriptor left
constexpr milliseconds kLastWordWait(3'000);

class InboundLink : public NodeLink {
 public:
  // `owner` of the loop that serves the guest.
  InboundLink(std::shared_ptr<const void> owner, std::shared_ptr<Guest> guest, UniqueFd stream)
      : owner_(std::move(owner)), guest_(std::move(guest)), stream_(std::move(stream)) {}
  ~InboundLink() override { guest_->AbortStream(); }

  UniqueFd TakeFd() override { return std::move(stream_); }
  void Abort(const std::string&) override { guest_->AbortStream(); }
  bool WaitEnd(Deadline deadline) override { return guest_->WaitAgentEnd(deadline); }
  std::string StderrTail() const override { return guest_->words(); }
  std::string Address() const override { return guest_->address(); }
  std::string OwnAddress() const override { return guest_->own_address(); }

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<Guest> guest_;
  UniqueFd stream_;
};

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

InboundTransport::InboundTransport(UniqueFd listener, SeatsOptions options,
                                   std::shared_ptr<TokenTls> tls, std::unique_ptr<Transport> own)
    : listener_(loop_, listener.Release()),
      accept_timer_(loop_),
      decide_timer_(loop_),
      tls_(std::move(tls)),
      own_(std::move(own)),
      host_name_(options.own.host_name()),
      arguments_(options.own.program().arguments()),
      seats_(std::move(options), Clock::now()),
      at_seat_(seats_.names().size()) {}

InboundTransport::~InboundTransport() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

// --- Who comes ---

void InboundTransport::Accept() {
  listener_.async_wait(listener_.wait_read, [this](const asio::error_code& error) {
    if (error) return;
    while (true) {
      UniqueFd fd(
          accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        OnConnection(std::move(fd));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_timer_.expires_after(kAcceptAgain);
        return accept_timer_.async_wait([this](const asio::error_code&) { Accept(); });
      } else if (errno != EINTR && errno != ECONNABORTED) {
        break;
      }
    }
    Accept();
  });
}

void InboundTransport::OnConnection(UniqueFd fd) {
  SetConnectionOptions(fd.get());
  const GuestId id = next_guest_++;
  auto guest = std::make_shared<Guest>(loop_, std::move(fd), tls_.get());
  guests_.emplace(id, guest);
  asking_.push_back(id);
  guest->Start(
      kRequestLimit,
      {[this, id](const pb::SeatRequest& request) { OnRequest(id, request); },
       [this, id](const std::string& why) { OnStranger(id, why); }, [this, id] { OnGone(id); }});
  if (asking_.size() <= kMaxAsking) return;
  const GuestId oldest = asking_.front();
  guests_.at(oldest)->Drop();
  OnStranger(oldest, "too many came at once");
}

std::string InboundTransport::WhereOf(GuestId id) const {
  return host_names_.at(id) + " (" + guests_.at(id)->address() + ")";
}

void InboundTransport::OnRequest(GuestId id, const pb::SeatRequest& request) {
  std::erase(asking_, id);
  host_names_[id] = Excerpt(request.host_name());
  if (const std::optional<Error> why = seats_.Admit(id, request, WhereOf(id), Clock::now()))
    return Refuse(id, *why);
  const std::optional<size_t> seat = seats_.SeatOf(id);
  say_((seat ? seats_.names()[*seat] + " is here: " : "") + WhereOf(id) + (seat ? "" : " is here") +
       ", " + Count(request.slots(), "slot") +
       (gathering_ ? " (" + std::to_string(seats_.present()) + " of " +
                         Count(seats_.names().size(), "node") + ")"
                   : ""));
  if (request.program().arguments() != arguments_)
    say_("it has other arguments than node 0: " + Harmless(request.program().shown()));
  if (!gathering_) Publish();
  TellWhoWaits();
  Reconsider();
}

void InboundTransport::Refuse(GuestId id, const Error& error) {
  if (refusals_said_.size() < kMaxRefusalsSaid && refusals_said_.insert(error.message).second)
    say_("sent a node away: " + Harmless(error.message));
  const std::shared_ptr<Guest> guest = guests_.at(id);
  guests_.erase(id);
  guest->Refuse(error);
}

void InboundTransport::OnStranger(GuestId id, const std::string& why) {
  std::erase(asking_, id);
  const std::string address = guests_.at(id)->address();
  guests_.erase(id);
  if (std::exchange(stranger_said_, true)) return;
  say_("sent a stranger from " + address + " away: " + why + "; of others nothing is said");
}

void InboundTransport::OnGone(GuestId id) {
  const std::optional<size_t> seat = seats_.SeatOf(id);
  if (gathering_) say_((seat ? seats_.names()[*seat] + ": " : "") + WhereOf(id) + " has left");
  seats_.Leave(id);
  guests_.erase(id);
  if (!gathering_) return Publish();
  TellWhoWaits();
  Reconsider();
}

void InboundTransport::TellWhoWaits() {
  if (!gathering_) return;
  pb::NodeMessage message;
  message.mutable_awaited()->set_present(static_cast<uint32_t>(seats_.present()));
  message.mutable_awaited()->set_wanted(static_cast<uint32_t>(seats_.names().size()));
  for (const auto& [id, guest] : guests_) {
    if (std::ranges::find(asking_, id) == asking_.end()) guest->Send(message);
  }
}

// --- Until the job starts ---

Result<void> InboundTransport::Gather(const Say& say) {
  say_ = say;
  asio::signal_set signals(loop_, SIGINT, SIGTERM, SIGHUP);
  signals.async_wait([this](const asio::error_code& error, int signal_number) {
    if (error) return;
    gathered_ = Error{static_cast<ExitCode>(ExitCodeForSignal(signal_number)),
                      "interrupted by " + SignalName(signal_number) +
                          " while nodes were awaited; nothing was started"};
    loop_.stop();
  });
  Accept();
  Reconsider();
  if (!gathered_) {
    say_("waiting for " + Count(seats_.names().size() - seats_.present(), "more node") +
         " on port " + std::to_string(PortOf(listener_.native_handle())));
  }
  loop_.run();
  signals.clear();
  gathering_ = false;
  if (!gathered_->ok()) {
    Dismiss(gathered_->error());
    return *gathered_;
  }
  seats_.Start();
  Publish();
  return {};
}

void InboundTransport::Reconsider() {
  if (!gathering_ || gathered_) return;
  const Seats::Decision decision = seats_.Decide(Clock::now());
  if (decision.verdict == Seats::Decision::Verdict::kWait) {
    decide_timer_.expires_at(decision.wake);
    return decide_timer_.async_wait([this](const asio::error_code& error) {
      if (!error) Reconsider();
    });
  }
  gathered_ = decision.verdict == Seats::Decision::Verdict::kStart
                  ? Result<void>()
                  : Result<void>(Error{ExitCode::kTimedOut, decision.reason});
  loop_.stop();
}

void InboundTransport::Dismiss(const Error& error) {
  listener_.close();
  for (const auto& [id, guest] : std::exchange(guests_, {})) guest->Refuse(error);
  if (tls_) tls_->Flush(Deadline::After(kLastWordWait));
}

// --- While it runs ---

void InboundTransport::Serve(Say say) {
  say_ = std::move(say);
  loop_.restart();
  thread_ = std::thread([this] { loop_.run(); });
}

void InboundTransport::Publish() {
  const std::lock_guard lock(mutex_);
  for (size_t seat = 1; seat < at_seat_.size(); ++seat) {
    const std::optional<GuestId> id = seats_.GuestAt(seat);
    at_seat_[seat] = id ? guests_.at(*id) : nullptr;
  }
  changed_.notify_all();
}

Result<std::unique_ptr<NodeLink>> InboundTransport::Connect(const NodeTarget& target,
                                                            Deadline deadline) {
  const std::vector<std::string>& names = seats_.names();
  const auto seat = static_cast<size_t>(std::ranges::find(names, target.name) - names.begin());
  if (seat == 0) return own_->Connect(target, deadline);
  std::shared_ptr<Guest> guest;
  {
    std::unique_lock lock(mutex_);
    if (!asked_for_.insert(target.name).second)
      changed_.wait_until(lock, deadline.when(), [&] { return at_seat_[seat] != nullptr; });
    guest = at_seat_[seat];
  }
  if (!guest) return Error{ExitCode::kUnavailable, target.name + " has not come"};
  pb::Seated seated;
  seated.set_name(target.name);
  seated.set_front_end(host_name_);
  DSL_TRY_ASSIGN(UniqueFd stream, guest->StartAgent(seated, deadline));
  return std::unique_ptr<NodeLink>(
      std::make_unique<InboundLink>(weak_from_this().lock(), std::move(guest), std::move(stream)));
}

void InboundTransport::Conclude(int exit_code, const std::string& text) {
  pb::NodeMessage message;
  message.mutable_job_ended()->set_exit_code(exit_code);
  message.mutable_job_ended()->set_message(text);
  std::vector<std::shared_ptr<Guest>> told;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Guest>& guest : at_seat_) {
      if (guest) told.push_back(guest);
    }
  }
  asio::post(loop_, [this, message, told] {
    listener_.close();
    for (const std::shared_ptr<Guest>& guest : told) guest->Send(message);
  });
  const Deadline deadline = Deadline::After(kLastWordWait);
  for (const std::shared_ptr<Guest>& guest : told) guest->WaitGone(deadline);
}

}  // namespace dslaunch
