#include "cli/per_node/node_zero_dial.h"

#include <asio/connect.hpp>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "net/connection.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDialTimeout(10'000);

}  // namespace

NodeZeroDial::NodeZeroDial(asio::io_context& loop, std::shared_ptr<LoopPoster> poster,
                           std::string host, int port, std::shared_ptr<TokenTls> tls, Answer answer)
    : socket_(loop),
      timer_(loop),
      poster_(std::move(poster)),
      host_(std::move(host)),
      port_(port),
      tls_(std::move(tls)),
      answer_(std::move(answer)) {}

void NodeZeroDial::Start() {
  const uint64_t number = ++try_;
  timer_.expires_after(kDialTimeout);
  timer_.async_wait([this, number](const asio::error_code& error) {
    if (error || number != try_) return;
    if (!socket_.is_open()) return Fail("cannot resolve the name: no answer");
    asio::error_code ignored;
    socket_.close(ignored);
  });
  // asio's resolver would keep the loop from being destroyed until a name server answers, so the
  // name is resolved on a separate thread.
  std::thread([this, poster = poster_, number, host = host_, port = port_] {
    asio::io_context unused;
    asio::error_code error;
    const Endpoints found =
        asio::ip::tcp::resolver(unused).resolve(host, std::to_string(port), error);
    poster->Post([this, number, error, found] {
      if (number == try_) OnResolved(error, found);
    });
  }).detach();
}

void NodeZeroDial::OnResolved(const asio::error_code& error, const Endpoints& found) {
  if (error) return Fail("cannot resolve the name: " + error.message());
  asio::async_connect(socket_, found,
                      [this](const asio::error_code& failed, const asio::ip::tcp::endpoint&) {
                        OnConnected(failed);
                      });
}

void NodeZeroDial::OnConnected(const asio::error_code& error) {
  if (error) return Fail(error == asio::error::operation_aborted ? "no answer" : error.message());
  timer_.cancel();
  ++try_;
  UniqueFd fd(socket_.release());
  SetConnectionOptions(fd.get());
  if (!tls_) return Finish(std::move(fd));
  tls_->Wrap(TokenTls::Role::kClient, std::move(fd), kDialTimeout,
             [this, poster = poster_](Result<UniqueFd> plain) {
               poster->Post([this, plain = std::move(plain)]() mutable {
                 if (plain.ok()) return Finish(*std::move(plain));
                 const bool is_refused = plain.error().code == ExitCode::kNoPermission;
                 Finish(DialFailure{
                     is_refused ? DialFailure::Kind::kWrongToken : DialFailure::Kind::kNoTls,
                     plain.error().message});
               });
             });
}

void NodeZeroDial::Finish(std::variant<UniqueFd, DialFailure> result) {
  ++try_;
  timer_.cancel();
  answer_(std::move(result));
}

}  // namespace dslaunch
