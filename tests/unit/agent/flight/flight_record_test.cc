#include "agent/flight/flight_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/pickle/pickle_writer.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Reads a dump of PyTorch 2.11 of ranks that hang, with the group configuration that NCCL adds.
pb::FlightRecord ReadDump(const std::string& name) {
  std::ifstream file(std::string(DSLAUNCH_FLIGHT_DUMPS) + "/" + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  Result<pb::FlightRecord> record = ReadFlightRecord(bytes);
  EXPECT_TRUE(record.ok()) << name << ": " << record.error().message;
  return record.ok() ? *record : pb::FlightRecord();
}

TEST(ReadFlightRecord, ReadsOperationThatWaits) {
  const pb::FlightRecord record = ReadDump("skips_0");
  ASSERT_EQ(record.groups_size(), 1);
  const pb::FlightGroup& group = record.groups(0);
  EXPECT_EQ(group.description(), "default_pg");
  EXPECT_THAT(group.ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(group.enqueued(), 4u);
  EXPECT_TRUE(record.whole());
  ASSERT_EQ(group.operations_size(), 1);
  const pb::FlightOperation& operation = group.operations(0);
  EXPECT_EQ(operation.number(), 4u);
  EXPECT_EQ(operation.name(), "all_reduce");
  EXPECT_EQ(operation.input_sizes(), "[[4]]");
  EXPECT_EQ(operation.dtypes(), "[Float]");
  EXPECT_EQ(operation.state(), "scheduled");
  EXPECT_EQ(operation.frames(0).function(), "all_reduce");
  EXPECT_THAT(operation.frames(0).file(), HasSubstr("torch/distributed/distributed_c10d.py"));
}

TEST(ReadFlightRecord, OmitsCompletedOperations) {
  const pb::FlightRecord record = ReadDump("skips_1");
  ASSERT_EQ(record.groups_size(), 1);
  EXPECT_EQ(record.groups(0).enqueued(), 3u);
  EXPECT_EQ(record.groups(0).operations_size(), 0);
}

TEST(ReadFlightRecord, RefusesOtherPickles) {
  EXPECT_FALSE(ReadFlightRecord("").ok());
  PickleWriter list;
  list.BeginList();
  list.EndList();
  EXPECT_THAT(ReadFlightRecord(list.Take()).error().message, HasSubstr("has no version"));
  PickleWriter dict;
  dict.BeginDict();
  dict.String("version");
  dict.String("3.0");
  dict.EndDict();
  EXPECT_THAT(ReadFlightRecord(dict.Take()).error().message, HasSubstr("version 3.0"));
}

TEST(ReadFlightRecord, BoundsGroupsAndOperations) {
  PickleWriter dump;
  dump.BeginDict();
  dump.String("version");
  dump.String("2.10");
  dump.String("entries");
  dump.BeginList();
  constexpr int kGroups = 200;
  constexpr int kOperations = 50;
  for (int group = 0; group < kGroups; ++group) {
    for (int number = 1; number <= kOperations; ++number) {
      dump.BeginDict();
      dump.String("process_group");
      dump.BeginTuple();
      dump.String(std::to_string(group));
      dump.String(std::string(500, 'd') + "\x1b[31m");
      dump.EndTuple();
      dump.String("collective_seq_id");
      dump.Int(number);
      dump.String("profiling_name");
      dump.String(std::string(500, 'n'));
      dump.EndDict();
    }
  }
  dump.EndList();
  dump.EndDict();
  const Result<pb::FlightRecord> record = ReadFlightRecord(dump.Take());
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_LE(record->groups_size(), kMaxFlightGroups);
  EXPECT_FALSE(record->whole()) << "groups were dropped";
  EXPECT_LE(record->ByteSizeLong(), size_t{256} << 10);
  for (const pb::FlightGroup& group : record->groups()) {
    EXPECT_LE(group.operations_size(), kMaxFlightOperations);
    EXPECT_EQ(group.enqueued(), static_cast<uint64_t>(kOperations));
    EXPECT_EQ(group.description().find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace dslaunch
