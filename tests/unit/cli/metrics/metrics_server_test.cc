#include "cli/metrics/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::metrics_server_test {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

// Runs a server's loop in a thread.
class Running {
 public:
  explicit Running(const MetricsPlaces& places)
      : server_(std::make_unique<MetricsServer>(
            loop_, [this](MetricsFormat) { return "a " + std::to_string(++renders_) + "\n"; },
            [](const std::string&) {})),
        opened_(server_->Open(places)) {
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Running() {
    asio::post(loop_, [this] {
      server_.reset();
      loop_.stop();
    });
    thread_.join();
  }
  const Result<void>& opened() const { return opened_; }

 private:
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  std::atomic<int> renders_{0};
  std::unique_ptr<MetricsServer> server_;
  Result<void> opened_;
  std::thread thread_;
};

std::string Ask(const UniqueFd& socket, const std::string& request) {
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string response(4096, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while ((got = ::recv(socket.get(), response.data() + size, response.size() - size, 0)) > 0)
    size += static_cast<size_t>(got);
  response.resize(size);
  return response;
}

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    socket.Reset();
  return socket;
}

UniqueFd ConnectTo(in_addr address, int port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr = address;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) socket.Reset();
  return socket;
}

int FreePort() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

TEST(MetricsServerTest, ServesSocketForThisUserOnly) {
  const TempDir dir;
  const std::string path = dir / "metrics";
  {
    const Running server({.file = "", .socket = path, .token = ""});
    ASSERT_TRUE(server.opened().ok()) << server.opened().error().message;
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    const UniqueFd socket = ConnectTo(path);
    ASSERT_TRUE(socket);
    EXPECT_THAT(Ask(socket, "GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\na 1\n"));
    EXPECT_THAT(Ask(ConnectTo(path), "GET /x HTTP/1.1\r\n\r\n"), HasSubstr("404"));
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the socket is removed";
}

TEST(MetricsServerTest, ReplacesStaleSocketButNothingElse) {
  const TempDir dir;
  const std::string path = dir / "metrics";
  {
    const UniqueFd old(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(old.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  {
    const Running server({.file = "", .socket = path, .token = ""});
    ASSERT_TRUE(server.opened().ok()) << server.opened().error().message;
    const Running second({.file = "", .socket = path, .token = ""});
    EXPECT_EQ(second.opened().error().code, ExitCode::kUsage) << "the first still serves";
    EXPECT_TRUE(ConnectTo(path));
  }
  dir.Write("file", "mine");
  const Running other({.file = "", .socket = dir / "file", .token = ""});
  EXPECT_THAT(other.opened().error().message, HasSubstr("it exists"));
}

TEST(MetricsServerTest, PortNeedsTokenAndIsOnLoopbackOnly) {
  const int port = FreePort();
  const Running server({.file = "", .socket = "", .port = port, .token = kToken});
  ASSERT_TRUE(server.opened().ok()) << server.opened().error().message;
  const in_addr loopback = {htonl(INADDR_LOOPBACK)};
  EXPECT_THAT(Ask(ConnectTo(loopback, port), "GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr(" 401 "));
  EXPECT_THAT(Ask(ConnectTo(loopback, port),
                  "GET /metrics HTTP/1.1\r\nAuthorization: Bearer fedcba9876543210\r\n\r\n"),
              HasSubstr(" 401 "));
  EXPECT_THAT(
      Ask(ConnectTo(loopback, port),
          std::string("GET /metrics HTTP/1.1\r\nAuthorization: Bearer ") + kToken + "\r\n\r\n"),
      HasSubstr(" 200 "));
  ifaddrs* interfaces = nullptr;
  ASSERT_EQ(::getifaddrs(&interfaces), 0);
  for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (address.s_addr != loopback.s_addr) EXPECT_FALSE(ConnectTo(address, port));
  }
  ::freeifaddrs(interfaces);
}

TEST(MetricsServerTest, ClosesRequestThatIsTooLong) {
  const TempDir dir;
  const Running server({.file = "", .socket = dir / "metrics", .token = ""});
  const UniqueFd socket = ConnectTo(dir / "metrics");
  ASSERT_TRUE(socket);
  const std::string endless(20'000, 'x');
  (void)::send(socket.get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  char byte = 0;
  EXPECT_LE(::recv(socket.get(), &byte, 1, 0), 0);
}

TEST(MetricsServerTest, ReadersNeverSeeHalfAFile) {
  const TempDir dir;
  const std::string path = dir / "job.prom";
  asio::io_context loop;
  const std::string body(200'000, 'x');
  std::atomic<bool> over{false};
  std::atomic<int> reads{0};
  std::thread reader([&] {
    while (!over) {
      std::ifstream file(path);
      if (!file) continue;
      std::stringstream text;
      text << file.rdbuf();
      EXPECT_EQ(text.str().size(), body.size());
      ++reads;
    }
  });
  for (int i = 0; i < 5 || reads < 5; ++i) {
    MetricsServer server(
        loop, [&](MetricsFormat) { return body; }, [](const std::string&) {});
    ASSERT_TRUE(server.Open({.file = path, .socket = "", .token = ""}).ok());
  }
  over = true;
  reader.join();
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the file of a job that has ended is removed";
}

TEST(MetricsServerTest, RefusesTokensThatOthersMayRead) {
  const TempDir dir;
  const std::string path = dir.Write("token", std::string(kToken) + "\n");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(ReadMetricsToken(path).error().message, HasSubstr("chmod 600"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(*ReadMetricsToken(path), kToken);
  dir.Write("token", "short\n");
  EXPECT_THAT(ReadMetricsToken(path).error().message, HasSubstr("16 to 512 bytes"));
  dir.Write("token", "two words and more of them\n");
  EXPECT_THAT(ReadMetricsToken(path).error().message, HasSubstr("one word"));
  EXPECT_FALSE(ReadMetricsToken(dir / "none").ok());
}

}  // namespace
}  // namespace dslaunch::metrics_server_test
