#include "agent/flight/ras_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace dslaunch {
namespace {

using asio::ip::tcp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers one client as NCCL does: a line for each command, and then the status, after which it
// closes the connection.
class ScriptedRas {
 public:
  ScriptedRas(std::string format_answer, std::string status)
      : acceptor_(loop_, {asio::ip::address_v4::loopback(), 0}),
        thread_([this, format_answer, status] { Serve(format_answer, status); }) {}
  ~ScriptedRas() { thread_.join(); }

  int port() const { return acceptor_.local_endpoint().port(); }
  const std::vector<std::string>& commands() const { return commands_; }

 private:
  void Serve(const std::string& format_answer, const std::string& status) {
    tcp::socket socket = acceptor_.accept();
    std::string bytes;
    const std::vector<std::string> answers = {"SERVER PROTOCOL 2\n", "OK\n", format_answer, status};
    for (const std::string& answer : answers) {
      asio::error_code error;
      const size_t line = asio::read_until(socket, asio::dynamic_buffer(bytes), '\n', error);
      if (error) return;
      commands_.push_back(bytes.substr(0, line - 1));
      bytes.erase(0, line);
      asio::write(socket, asio::buffer(answer), error);
    }
  }

  asio::io_context loop_;
  tcp::acceptor acceptor_;
  std::vector<std::string> commands_;
  std::thread thread_;
};

struct Answer {
  std::string status;
  std::string trouble;
  int calls = 0;
};

Answer AskAt(int port) {
  asio::io_context loop;
  Answer answer;
  RasClient client(loop);
  client.Begin(RasAddress{.port = port}, [&](std::string status, std::string trouble) {
    answer = {std::move(status), std::move(trouble), answer.calls + 1};
  });
  loop.run();
  return answer;
}

TEST(RasClient, ReturnsStatusAsJson) {
  const std::string status = "{\"communicators\": [" + std::string(100'000, ' ') + "]}\n";
  ScriptedRas server("OK\n", status);
  const Answer answer = AskAt(server.port());
  EXPECT_EQ(answer.status, status);
  EXPECT_EQ(answer.trouble, "");
  EXPECT_EQ(answer.calls, 1);
  EXPECT_THAT(server.commands(),
              ElementsAre("CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "VERBOSE STATUS"));
}

TEST(RasClient, ReturnsTextOfServerWithoutJson) {
  ScriptedRas server("ERROR: Unknown command set format json\n", "Communicators... (0.00s)\n");
  EXPECT_EQ(AskAt(server.port()).status, "Communicators... (0.00s)\n");
}

TEST(RasClient, ReportsServerThatSendsNothing) {
  ScriptedRas server("OK\n", "");
  EXPECT_THAT(AskAt(server.port()).trouble, HasSubstr("no status"));
}

TEST(RasAddress, TakesLocalhostAndNumericHosts) {
  EXPECT_EQ(ParseRasAddress("")->port, 28028);
  EXPECT_EQ(ParseRasAddress("localhost:4000")->host, "127.0.0.1");
  EXPECT_EQ(ParseRasAddress("localhost:4000")->port, 4000);
  EXPECT_EQ(ParseRasAddress("127.0.0.2:1")->host, "127.0.0.2");
  EXPECT_EQ(ParseRasAddress("[::1]:65535")->host, "::1");
  for (const char* wrong : {"4000", "localhost", "localhost:", "localhost:0", "localhost:65536",
                            "localhost:4x", "node1:4000", ":4000"})
    EXPECT_FALSE(ParseRasAddress(wrong)) << wrong;
}

TEST(RasAddress, IsReadFromEnvironmentOfProcess) {
  const pid_t child = fork();
  if (child == 0) {
    char* const environment[] = {const_cast<char*>("A=1"),
                                 const_cast<char*>("NCCL_RAS_ADDR=localhost:4001"), nullptr};
    execle("/bin/sleep", "sleep", "60", nullptr, environment);
    _exit(1);
  }
  int port = 0;
  for (const Deadline end = Deadline::After(milliseconds(5'000)); port != 4001 && !end.Expired();)
    port = RasAddressOf(child).value_or(RasAddress{.port = 0}).port;
  EXPECT_EQ(port, 4001);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(RasClient, ReportsMissingServer) {
  asio::io_context loop;
  tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
  const int port = acceptor.local_endpoint().port();
  acceptor.close();
  EXPECT_THAT(AskAt(port).trouble, HasSubstr("no process listens"));
}

}  // namespace
}  // namespace dslaunch
