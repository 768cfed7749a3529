#include "agent/flight/ras_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace dslaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kText[] = R"(NCCL version 2.24.3 compiled with CUDA 12.4
CUDA runtime version 12040, driver version 12040

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         8         4         1         4        32   RUNNING      OK
    1         1         4         8        32        32   RUNNING  INCOMPLETE,MISMATCH

Errors
======

#1-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 17 -- GPU 1 managed by process 3487 on node 10.0.0.3

Warnings
========

#0-1 (1111111111111111) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 9
  Rank 2 has launched up to operation 8 -- GPU 2 managed by process 5 on node 10.0.0.1

#1-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllGather operation counts
  29 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 4 -- GPU 4 managed by process 3481 on node 10.0.0.1
  Rank 5 -- GPU 5 managed by process 3482 on node 10.0.0.1
)";

std::string Json(int behind_count) {
  return R"({"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [
    {"hash": "0x1", "size": 2, "ranks_count": 2, "missing_ranks_count": 0, "ranks": [
      {"rank": 0, "host": "a", "pid": 1, "collective_counts": {"AllReduce": 7, "Broadcast": 1}},
      {"rank": 1, "host": "a", "pid": 2, "collective_counts": {"AllReduce": )" +
         std::to_string(behind_count) +
         R"(, "Broadcast": 1}}], "missing_ranks": []}], "ras": {"timeouts_count": 0}})";
}

TEST(ReadRasReport, FindsRanksBehindInText) {
  const Result<pb::RasReport> report = ReadRasReport(kText, 32);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->behind(), ElementsAre(4, 5));
  EXPECT_EQ(report->operation(), "AllGather");
  EXPECT_EQ(report->behind_count(), 6649u);
  EXPECT_EQ(report->most_count(), 6650u);
  EXPECT_THAT(report->missing(), ElementsAre(17));
}

TEST(ReadRasReport, IgnoresCommunicatorsOfSomeRanks) {
  const Result<pb::RasReport> report = ReadRasReport(kText, 64);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->behind(), IsEmpty());
  EXPECT_THAT(report->missing(), IsEmpty());
}

TEST(ReadRasReport, FindsRankBehindInJson) {
  const Result<pb::RasReport> report = ReadRasReport(Json(6), 2);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->behind(), ElementsAre(1));
  EXPECT_EQ(report->operation(), "AllReduce");
  EXPECT_EQ(report->behind_count(), 6u);
  EXPECT_THAT(ReadRasReport(Json(7), 2)->behind(), IsEmpty());
}

TEST(ReadRasReport, RefusesOtherTexts) {
  EXPECT_FALSE(ReadRasReport("", 2).ok());
  EXPECT_FALSE(ReadRasReport("{\"communicators\": [", 2).ok());
  EXPECT_FALSE(ReadRasReport("HTTP/1.1 200 OK\n", 2).ok());
}

TEST(DigestOfOperations, ChangesWithCounts) {
  EXPECT_EQ(DigestOfOperations(Json(6)), DigestOfOperations(Json(6)));
  EXPECT_NE(DigestOfOperations(Json(6)), DigestOfOperations(Json(7)));
  EXPECT_EQ(DigestOfOperations(kText), 0u);
}

}  // namespace
}  // namespace dslaunch
