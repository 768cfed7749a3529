// Tests the sessions of `dslaunch attach`, `stop` and `logs`, with scripted inspectors on this
// machine.
#include "cli/commands/attach_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/commands/logs_session.h"
#include "tests/support/own_process.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::attach_session_test {
namespace {

using testing::HasSubstr;

class AttachSessionTest : public testing::Test {
 protected:
  AttachSessionTest() { agent_.path = DSLAUNCH_SCRIPTED_INSPECTOR; }

  static JobRecord Record(const std::string& job_id) {
    JobRecord record;
    record.job_id = job_id;
    record.nodes = {{"node0", "localhost", 0, ""}, {"node1", "localhost", 0, ""}};
    return record;
  }

  struct Shown {
    int exit_code = -1;
    std::string text;
  };
  Shown Show(const std::function<int(Terminal&)>& run) {
    const std::string path = folder_ / "shown";
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    Terminal terminal(out.get(), out.get(), nullptr);
    Shown shown;
    shown.exit_code = run(terminal);
    std::ifstream file(path);
    shown.text = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return shown;
  }
  Shown Attach(const std::string& job_id) {
    return Show([&](Terminal& terminal) {
      return AttachSession(Record(job_id), agent_, {true, {}}, terminal).Attach();
    });
  }
  Shown Stop(const std::string& job_id) {
    return Show([&](Terminal& terminal) {
      return AttachSession(Record(job_id), agent_, {false, {}}, terminal)
          .Stop(/*now=*/false, milliseconds(20'000));
    });
  }
  Shown Logs(const std::string& job_id) {
    return Show([&](Terminal& terminal) {
      JobCommand command;
      command.shown_ranks = {true, {}};
      return LogsSession(Record(job_id), agent_, command, terminal).Run();
    });
  }

  TempDir folder_;
  AgentBinary agent_;
};

// Leaks of memory are reported by LeakSanitizer, so this test checks threads and descriptors.
TEST_F(AttachSessionTest, SessionsLeaveNoThreadsOrDescriptors) {
  HeldResources before;
  for (int round = 0; round < 2; ++round) {
    const Shown ended = Attach("ends");
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_THAT(ended.text, HasSubstr("[node1:0] a line of rank 0"));
    EXPECT_THAT(ended.text, HasSubstr("job ends ended"));
    const Shown broken = Attach("breaks");
    EXPECT_EQ(broken.exit_code, 0) << broken.text;
    const Shown stopped = Stop("stops");
    EXPECT_EQ(stopped.exit_code, 0);
    EXPECT_THAT(stopped.text, HasSubstr("job stops is stopped"));
    const Shown logs = Logs("ends");
    EXPECT_EQ(logs.exit_code, 0) << logs.text;
    EXPECT_THAT(logs.text, HasSubstr("[node0:0] a line of rank 0"));
    if (round == 0) before = HeldResources::Now();
  }
  const HeldResources after = AwaitNoMoreThan(before);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
}

// The user interrupts while events arrive. The connections must end without further waits.
TEST_F(AttachSessionTest, InterruptEndsConnections) {
  const HeldResources before = HeldResources::Now();
  std::thread user([] {
    std::this_thread::sleep_for(milliseconds(500));
    ::kill(::getpid(), SIGINT);
  });
  const auto start = Clock::now();
  const Shown left = Attach("endless");
  EXPECT_LT(Clock::now() - start, milliseconds(5'000));
  user.join();
  EXPECT_EQ(left.exit_code, 130);
  EXPECT_THAT(left.text, HasSubstr("job endless continues"));
  EXPECT_LE(AwaitNoMoreThan(before).threads, before.threads);
}

// The thread that connects to a node outlives the session, so it must destroy the connection
// itself.
TEST_F(AttachSessionTest, StopTimesOutWithoutLeavingThreads) {
  const HeldResources before = HeldResources::Now();
  const Shown late = Show([&](Terminal& terminal) {
    return AttachSession(Record("stops"), agent_, {false, {}}, terminal)
        .Stop(/*now=*/false, milliseconds(0));
  });
  EXPECT_EQ(late.exit_code, 75);
  EXPECT_THAT(late.text, HasSubstr("node0: it did not confirm its teardown in time"));
  EXPECT_LE(AwaitNoMoreThan(before).threads, before.threads);
}

}  // namespace
}  // namespace dslaunch::attach_session_test
