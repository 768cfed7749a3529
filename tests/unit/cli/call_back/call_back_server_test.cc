#include "cli/call_back/call_back_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <fstream>
#include <thread>

#include "base/os/socket_pair.h"
#include "net/addresses.h"
#include "net/pinned_tls.h"
#include "net/tls.h"
#include "net/tls_relay.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::call_back_server_test {
namespace {

using asio::ip::tcp;

class CallBackServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_.path() + "/agent") << std::string(1 << 20, 'a');
    Result<std::unique_ptr<CallBackServer>> started = CallBackServer::Start(
        {"", {{"7e57", folder_.path() + "/agent"}, {"7e58", folder_.path() + "/other"}}, 8});
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = *std::move(started);
    port_ = PortOfEndpoint(server_->endpoints().front());
  }

  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // Sends `line` and returns all bytes received until the other end closes the connection.
  static std::string Ask(const UniqueFd& fd, const std::string& line) {
    EXPECT_EQ(send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
    const timeval limit{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string got;
    char bytes[65536];
    for (ssize_t size; (size = recv(fd.get(), bytes, sizeof bytes, 0)) > 0;)
      got.append(bytes, static_cast<size_t>(size));
    return got;
  }

  TempDir folder_;
  std::unique_ptr<CallBackServer> server_;
  int port_ = 0;
};

TEST_F(CallBackServerTest, ListensAtFreePortOfRange) {
  const auto port = static_cast<uint16_t>(port_);  // a port that is in use
  const auto start = [&](PortRange ports) { return CallBackServer::Start({"", {}, 8, ports}); };
  const Result<std::unique_ptr<CallBackServer>> none = start({port, port, "Slurm's SrunPortRange"});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("SrunPortRange, " + std::to_string(port)), std::string::npos);
  const auto first = static_cast<uint16_t>(port < 65'000 ? port : port - 20);
  const PortRange range{first, static_cast<uint16_t>(first + 20)};
  for (int i = 0; i < 3; ++i) {
    const Result<std::unique_ptr<CallBackServer>> other = start(range);
    ASSERT_TRUE(other.ok()) << other.error().message;
    const int got = PortOfEndpoint((*other)->endpoints().front());
    EXPECT_GE(got, range.first);
    EXPECT_LE(got, range.last);
    EXPECT_NE(got, port_);
  }
}

TEST_F(CallBackServerTest, SendsFileForTicketOnly) {
  EXPECT_EQ(Ask(Connect(), "7e57\n").size(), size_t{1} << 20);
  std::ofstream(folder_.path() + "/other") << "an agent for another machine type";
  EXPECT_EQ(Ask(Connect(), "7e58\n"), "an agent for another machine type");
  EXPECT_EQ(Ask(Connect(), "7e59\n"), "");
  EXPECT_EQ(Ask(Connect(), "\n"), "");
  EXPECT_EQ(Ask(Connect(), std::string(1000, 'x')), "");
}

TEST_F(CallBackServerTest, ReturnsConnectionOfRequestedKey) {
  const Result<PinnedKey> key = MakePinnedKey(), other = MakePinnedKey();
  ASSERT_TRUE(key.ok() && other.ok());
  asio::io_context loop;
  Result<asio::ssl::context> tls = MakePinnedContext(*key, server_->pin());
  ASSERT_TRUE(tls.ok());
  Result<SocketPair> agent = MakeSocketPair();
  ASSERT_TRUE(agent.ok());
  std::shared_ptr<TlsStream> stream = BeginHandshake(
      tcp::socket(loop, tcp::v4(), Connect().Release()), *tls, asio::ssl::stream_base::client,
      milliseconds(10'000), [&](std::error_code failed) {
        ASSERT_FALSE(failed) << failed.message();
        std::make_shared<TlsRelay>(stream, std::move(agent->theirs), nullptr)->Start();
      });
  std::thread thread([&] { loop.run(); });
  EXPECT_FALSE(server_->Await(other->pin, Deadline::After(milliseconds(50))).ok());
  Result<CallBackServer::Caller> caller =
      server_->Await(key->pin, Deadline::After(milliseconds(10'000)));
  ASSERT_TRUE(caller.ok()) << caller.error().message;
  EXPECT_EQ(caller->address, "127.0.0.1");
  EXPECT_EQ(caller->own_address, "127.0.0.1");
  EXPECT_EQ(send(agent->ours.get(), "hello", 5, MSG_NOSIGNAL), 5);
  char bytes[5];
  EXPECT_EQ(recv(caller->stream.get(), bytes, 5, MSG_WAITALL), 5);
  EXPECT_EQ(std::string(bytes, 5), "hello");
  caller->stream.Reset();
  EXPECT_EQ(recv(agent->ours.get(), bytes, 5, 0), 0) << "the agent reads end of file";
  thread.join();
}

}  // namespace
}  // namespace dslaunch::call_back_server_test
