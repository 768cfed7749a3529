#include "agent/flight/ras_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <string>
#include <thread>
#include <vector>

namespace dslaunch {
namespace {

using asio::ip::tcp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers one client as NCCL does: a line for each command, and the status before it closes.
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
  RasClient client(loop, port);
  client.Begin([&](std::string status, std::string trouble) {
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

TEST(RasClient, ReportsMissingServer) {
  asio::io_context loop;
  tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
  const int port = acceptor.local_endpoint().port();
  acceptor.close();
  EXPECT_THAT(AskAt(port).trouble, HasSubstr("no process listens"));
}

}  // namespace
}  // namespace dslaunch
