#include "agent/flight/flight_requests.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <asio/steady_timer.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRank = 1;

class FlightRequestsTest : public ::testing::Test {
 protected:
  pb::FlightRecord Ask() {
    std::optional<pb::FlightRecord> answer;
    requests_.Begin(kRank, folder_.path(), [&](pb::FlightRecord record) { answer = record; });
    EXPECT_FALSE(answer) << "the answer does not arrive inside of Begin";
    EXPECT_EQ(requests_.WroteSince(kRank, Clock::now()), pipe_.valid());
    loop_.run();
    loop_.restart();
    EXPECT_FALSE(requests_.WroteSince(kRank, Clock::now()));
    return answer.value_or(pb::FlightRecord());
  }

  // Makes the pipe as a rank does, and writes `dump` once a request arrives.
  void Serve(const std::string& dump) {
    ASSERT_EQ(mkfifo(files_.pipe.c_str(), 0600), 0);
    pipe_ = UniqueFd(open(files_.pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    Wait(dump);
  }

  asio::io_context loop_;
  FlightRequests requests_{loop_};
  TempDir folder_;
  const FlightFiles files_ = FlightFilesIn(folder_.path(), kRank);
  UniqueFd pipe_;
  asio::steady_timer timer_{loop_};

 private:
  void Wait(const std::string& dump) {
    timer_.expires_after(milliseconds(20));
    timer_.async_wait([this, dump](const asio::error_code&) {
      char byte = 0;
      if (read(pipe_.get(), &byte, 1) != 1) return Wait(dump);
      std::ofstream(files_.dump, std::ios::binary) << dump;
    });
  }
};

std::string Dump(const std::string& name) {
  std::ifstream file(std::string(DSLAUNCH_FLIGHT_DUMPS) + "/" + name, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

TEST_F(FlightRequestsTest, ReturnsRecordOfNewDump) {
  std::ofstream(files_.dump, std::ios::binary) << Dump("skips_1");  // dump of an earlier hang
  Serve(Dump("skips_0"));
  const Clock::time_point before = Clock::now();
  const pb::FlightRecord record = Ask();
  EXPECT_EQ(record.trouble(), "");
  EXPECT_TRUE(requests_.WroteSince(kRank, before));
  EXPECT_FALSE(requests_.WroteSince(kRank + 1, before));
  EXPECT_EQ(record.rank(), kRank);
  ASSERT_EQ(record.groups_size(), 1);
  EXPECT_EQ(record.groups(0).enqueued(), 4u);
}

TEST_F(FlightRequestsTest, AnswersAtOnceWithoutPipeOrReader) {
  const auto begin = Clock::now();
  EXPECT_THAT(Ask().trouble(), HasSubstr("no Flight Recorder"));
  ASSERT_EQ(mkfifo(files_.pipe.c_str(), 0600), 0);
  EXPECT_THAT(Ask().trouble(), HasSubstr("no Flight Recorder"));
  EXPECT_LT(Clock::now() - begin, FlightRequests::kLimit / 2);
}

TEST_F(FlightRequestsTest, RefusesPipeThatIsAFile) {
  std::ofstream(files_.pipe) << "";
  EXPECT_THAT(Ask().trouble(), HasSubstr("is not a pipe"));
  EXPECT_EQ(std::filesystem::file_size(files_.pipe), 0u);
}

TEST_F(FlightRequestsTest, ReportsDumpThatStaysIncomplete) {
  const std::string dump = Dump("skips_0");
  Serve(dump.substr(0, dump.size() / 2));
  EXPECT_THAT(Ask().trouble(), HasSubstr("Flight Recorder"));
}

TEST_F(FlightRequestsTest, FindsOutWhetherFolderTakesPipes) {
  EXPECT_TRUE(TakesPipes(folder_.path()));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_FALSE(TakesPipes(folder_ / "missing"));
}

}  // namespace
}  // namespace dslaunch
