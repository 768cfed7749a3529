#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "trainer/pipeline/schedule_check.h"
#include "trainer/pipeline/schedule_simulation.h"

namespace dslaunch::pipeline_simulation_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = PipelineScheduleType;

ScheduleTimes Equal(const PipelineSchedule& schedule, const ChunkTimes& times,
                    double transfer = 0) {
  ScheduleTimes all;
  all.chunks.assign(static_cast<size_t>(schedule.stages),
                    std::vector(static_cast<size_t>(schedule.virtual_stages), times));
  all.transfer = transfer;
  return all;
}

SimulatedRun Simulated(Type type, int stages, int micro_batches, int chunks,
                       const ChunkTimes& times, double transfer = 0) {
  const PipelineSchedule schedule = MakePipelineSchedule(type, stages, micro_batches, chunks);
  return Simulate(schedule, Equal(schedule, times, transfer));
}

constexpr double kExact = 1e-9;

// Whole and fractional times. In some the forward pass is longer, in others the backward pass.
constexpr ChunkTimes kTimes[] = {{1, 1, 1}, {1, 0.5, 0.5}, {3, 1, 0.5}, {0.7, 1.1, 0.4}};

TEST(IdleRemarkTest, ReportsHowMuchMoreMicroBatchesHelp) {
  PipelineConfig config;
  EXPECT_EQ(IdleRemark(config, 1), "");
  config.stages = 2;
  EXPECT_EQ(IdleRemark(config, 1),
            "the stages are idle for 50% of a step, with 1 micro-batch for 2 stages; "
            "gradient_accumulation_steps 8 makes it 11%");
  // The idle fraction is (2 - 1) / (4 + 2 - 1), which needs no remark.
  EXPECT_EQ(IdleRemark(config, 4), "");
  config.stages = 4;
  EXPECT_THAT(IdleRemark(config, 4), HasSubstr("idle for 43% of a step, with 4 micro-batches"));
  config.schedule = Type::kInterleaved;
  config.virtual_stages = 2;
  EXPECT_EQ(IdleRemark(config, 8), "");
}

TEST(SimulateTest, IdleFractionOfGpipeAnd1F1BMatchesPapers) {
  for (Type type : {Type::kGpipe, Type::kOneForwardOneBackward}) {
    for (const ChunkTimes& times : kTimes) {
      for (int k = 1; k <= 8; ++k) {
        for (int m = 1; m <= 32; ++m) {
          const SimulatedRun run = Simulated(type, k, m, 1, times);
          const double fraction = (k - 1.0) / (m + k - 1.0);
          ASSERT_NEAR(run.idle_fraction, fraction, kExact) << k << " " << m;
          for (double idle : run.idle) ASSERT_NEAR(idle, fraction * run.total, kExact * run.total);
        }
      }
    }
  }
}

TEST(SimulateTest, IdleFractionOfInterleavedMatchesPaper) {
  for (const ChunkTimes& times : kTimes) {
    for (int v = 2; v <= 4; ++v) {
      for (int k = 1; k <= 8; ++k) {
        // The paper covers only multiples of K; the formula also holds for other numbers.
        for (int m = k; m <= 32; ++m) {
          ASSERT_NEAR(Simulated(Type::kInterleaved, k, m, v, times).idle_fraction,
                      (k - 1.0) / (v * m + k - 1.0), kExact)
              << k << " " << m << " " << v;
        }
      }
    }
  }
}

TEST(SimulateTest, IdleTimeOfZeroBubbleH1MatchesPaper) {
  // B is the half that computes gradients of inputs. The paper's formula assumes that gradients of
  // weights do not take longer.
  constexpr ChunkTimes kPaper[] = {
      {1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {1.5, 2.5, 0.75}, {3, 1.2, 0.1}};
  for (const ChunkTimes& times : kPaper) {
    for (int k = 1; k <= 8; ++k) {
      for (int m = k; m <= 32; ++m) {
        const SimulatedRun run = Simulated(Type::kZeroBubbleH1, k, m, 1, times);
        for (double idle : run.idle) {
          ASSERT_NEAR(idle,
                      (k - 1) * (times.forward + times.backward_input - times.backward_weight),
                      kExact * run.total)
              << k << " " << m;
        }
      }
    }
  }
  for (double idle : Simulated(Type::kZeroBubbleH1, 4, 8, 1, {1, 2, 3}).idle) {
    EXPECT_NEAR(idle, 3 * 2, kExact) << "longer: (K - 1) times the longer of the others";
  }
  for (double idle : Simulated(Type::kZeroBubbleH1, 4, 8, 1, {2, 1, 3}).idle) {
    EXPECT_NEAR(idle, 3 * 2, kExact);
  }
}

TEST(SimulateTest, ZeroBubbleIsNeverSlowerThan1F1B) {
  for (int k = 1; k <= 8; ++k) {
    for (int m = 1; m <= 32; ++m) {
      for (const ChunkTimes& times : kTimes) {
        ASSERT_LE(Simulated(Type::kZeroBubbleH1, k, m, 1, times).total,
                  Simulated(Type::kOneForwardOneBackward, k, m, 1, times).total + kExact);
      }
    }
  }
}

// The cases are taken from DeepSpeed's tests of its schedules. In one tick, a stage runs one
// forward or backward pass.
TEST(SimulateTest, TakesAsManyTicksAsDeepSpeed) {
  for (int k : {1, 2, 3, 5}) {
    for (int m : {1, 3, 4, 8, 10}) {
      EXPECT_EQ(Simulated(Type::kOneForwardOneBackward, k, m, 1, {1, 0.5, 0.5}).total,
                2 * (m + k - 1));
      const PipelineSchedule forward = MakeForwardSchedule(k, m, 1);
      const SimulatedRun run = Simulate(forward, Equal(forward, {}));
      EXPECT_EQ(run.total, m + k - 1);
      for (int s = 0; s < k; ++s) {
        for (int i = 0; i < m; ++i) {
          const TimedAction& timed = run.stages[static_cast<size_t>(s)][static_cast<size_t>(i)];
          EXPECT_EQ(timed.action.micro_batch, i);
          EXPECT_EQ(timed.start, s + i);
        }
      }
    }
  }
}

// The property and the sizes come from PyTorch's test of its schedules' orders: a micro-batch is
// never in two places at the same time, and passes all parts in order, forward and back.
TEST(SimulateTest, MicroBatchesVisitPartsInOrderAsInPyTorch) {
  constexpr int kSizes[][3] = {{2, 2, 2},  {2, 4, 4},   {2, 8, 2},   {2, 8, 4},   {2, 8, 8},
                               {4, 4, 4},  {4, 8, 4},   {4, 8, 8},   {4, 16, 4},  {4, 32, 4},
                               {4, 64, 4}, {4, 16, 16}, {4, 32, 32}, {3, 2, 2},   {3, 8, 2},
                               {3, 12, 4}, {4, 6, 3},   {4, 10, 5},  {4, 128, 64}};
  for (const auto& [chunks, micro_batches, stages] : kSizes) {
    const PipelineSchedule schedule =
        MakePipelineSchedule(Type::kInterleaved, stages, micro_batches, chunks);
    ASSERT_EQ(CheckSchedule(schedule), "");
    const SimulatedRun run = Simulate(schedule, Equal(schedule, {1, 0.5, 0.5}));
    std::map<int, std::map<double, int>> places;  // keys: micro-batch, then time
    const int parts = stages * chunks;
    for (int s = 0; s < stages; ++s) {
      for (const TimedAction& timed : run.stages[static_cast<size_t>(s)]) {
        const int part = timed.action.chunk * stages + s;
        const bool forward = timed.action.kind == ActionKind::kForward;
        const bool alone = places[timed.action.micro_batch]
                               .emplace(timed.start, forward ? part : 2 * parts - 1 - part)
                               .second;
        ASSERT_TRUE(alone) << "two stages at the same time";
      }
    }
    ASSERT_EQ(places.size(), static_cast<size_t>(micro_batches));
    for (const auto& [micro_batch, way] : places) {
      int expected = 0;
      for (const auto& [time, place] : way) EXPECT_EQ(place, expected++);
      EXPECT_EQ(expected, 2 * parts);
    }
  }
}

TEST(SimulateTest, OverlapsTransfersWithComputing) {
  // Only two transfers add to the total time: the first micro-batch's to the last stage, and the
  // last micro-batch's back. All other transfers overlap with computing on both ends.
  for (int k = 2; k <= 8; ++k) {
    for (int m : {1, 4, 16}) {
      for (double transfer : {0.1, 0.5}) {
        EXPECT_NEAR(Simulated(Type::kGpipe, k, m, 1, {1, 1, 1}, transfer).total,
                    3 * (m + k - 1) + 2 * (k - 1) * transfer, kExact)
            << k << " " << m;
      }
    }
  }
}

TEST(SimulateTest, StartsTransferWhenBothSidesHaveBegun) {
  PipelineSchedule late = MakeForwardSchedule(2, 2, 1);
  const ScheduleTimes times = Equal(late, {1, 1, 1}, 0.25);
  EXPECT_EQ(Simulate(late, times).total, 3.25);
  // After the swap, stage 1 runs RA0<0 F0 RA1<0 F1.
  std::swap(late.actions[1][1], late.actions[1][2]);
  ASSERT_EQ(ActionName(late.actions[1][2]), "RA1<0");
  ASSERT_EQ(CheckSchedule(late), "");
  EXPECT_EQ(Simulate(late, times).total, 3.5) << "the second is not in flight during the first";
}

TEST(SimulateTest, SlowestStageLimitsThroughput) {
  const PipelineSchedule schedule = MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 10, 1);
  ScheduleTimes times;
  times.chunks = {{{1, 1, 1}}, {{2, 2, 2}}};
  const SimulatedRun run = Simulate(schedule, times);
  EXPECT_NEAR(run.total, 1 + 10 * 6 + 2, kExact) << "into the second stage, through it, and back";
  EXPECT_THAT(run.idle, ElementsAre(testing::DoubleNear(63 - 30, kExact),
                                    testing::DoubleNear(63 - 60, kExact)));
  EXPECT_NEAR(run.idle_fraction, 36.0 / 126, kExact);
}

// ---- Drawings ----

std::string Text(Type type, int stages, int micro_batches, int chunks, const ChunkTimes& times,
                 int columns) {
  const PipelineSchedule schedule = MakePipelineSchedule(type, stages, micro_batches, chunks);
  return DrawText(schedule, Simulate(schedule, Equal(schedule, times)), columns);
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(DrawTextTest, DrawsOneRowPerStage) {
  EXPECT_EQ(Text(Type::kOneForwardOneBackward, 2, 4, 1, {1, 1, 1}, 80),
            "1f1b: 2 stages, 4 micro-batches, idle 20.0%\n"
            "stage  live   idle  time\n"
            "    0     2  20.0%  00001111........aaaaaaaa2222bbbbbbbb3333cccccccc....dddddddd\n"
            "    1     1  20.0%  ....0000aaaaaaaa1111bbbbbbbb2222cccccccc3333dddddddd........\n"
            "0-9 forward (last digit of the micro-batch), a-j backward, . idle,\n"
            "live: most micro-batches held until their backward pass\n");
  EXPECT_EQ(Text(Type::kZeroBubbleH1, 3, 4, 1, {1, 1, 1}, 72),
            "zb-h1: 3 stages, 4 micro-batches, idle 14.3%\n"
            "stage  live   idle  time\n"
            "    0     3  14.3%  000111222......AAAwww333BBBwwwCCCwwwDDDwww\n"
            "    1   2/3  14.3%  ...000111...AAA222BBBwww333CCCwwwDDDwwwwww\n"
            "    2   1/3  14.3%  ......000AAA111BBB222CCCwww333DDDwwwwwwwww\n"
            "0-9 forward (last digit of the micro-batch), A-J backward (inputs only),\n"
            "w backward (weights), . idle,\n"
            "live: most micro-batches held until their backward pass / until w\n");
  EXPECT_EQ(Text(Type::kInterleaved, 2, 2, 2, {1, 0.5, 0.5}, 72),
            "interleaved: 2 stages of 2 chunks, 2 micro-batches, idle 20.0%\n"
            "stage  live   idle  time\n"
            "    0     4  20.0%  00000111110000011111.....aaaaa.....bbbbbaaaaabbbbb\n"
            "    1     3  20.0%  .....000001111100000aaaaa11111bbbbbaaaaabbbbb.....\n"
            "0-9 forward (last digit of the micro-batch), a-j backward, . idle,\n"
            "live: most micro-batches held until their backward pass\n");
}

TEST(DrawTextTest, ReportsHiddenActionsIfTooNarrow) {
  const std::string text = Text(Type::kGpipe, 2, 40, 1, {1, 1, 1}, 80);
  EXPECT_THAT(text, HasSubstr("may be hidden"));
  EXPECT_THAT(Text(Type::kGpipe, 2, 40, 1, {1, 1, 1}, 200),
              testing::Not(HasSubstr("may be hidden")));
}

TEST(DrawTextTest, DrawingFitsTerminalWidth) {
  for (Type type :
       {Type::kGpipe, Type::kOneForwardOneBackward, Type::kInterleaved, Type::kZeroBubbleH1}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches : {1, 2, 8, 32, 1000}) {
        for (int columns : {72, 80, 200}) {
          const auto lines =
              Lines(Text(type, stages, micro_batches, type == Type::kInterleaved ? 4 : 1,
                         {0.013, 0.017, 0.01}, columns));
          ASSERT_GE(lines.size(), static_cast<size_t>(stages) + 3);
          for (const std::string& line : lines) {
            ASSERT_LE(line.size(), static_cast<size_t>(columns)) << line;
          }
          for (size_t s = 0; s < static_cast<size_t>(stages); ++s) {
            EXPECT_EQ(lines[s + 2].size(), lines[2].size());
            if (lines.back().find("may be hidden") != std::string::npos) continue;
            EXPECT_THAT(lines[s + 2], HasSubstr("0")) << "its first forward pass";
          }
        }
      }
    }
  }
}

// Returns whether tags nest and close as XML requires, attributes are quoted, and text has neither
// < nor a bare &. Adds the names of the elements to `names`.
bool WellFormed(const std::string& xml, std::vector<std::string>& names) {
  std::vector<std::string> open;
  size_t at = 0;
  while (at < xml.size()) {
    if (xml[at] == '&') return false;
    if (xml[at] != '<') {
      ++at;
      continue;
    }
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    std::string tag = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string::npos) return false;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (name[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
      continue;
    }
    names.push_back(name);
    if (!tag.ends_with('/')) open.push_back(name);
  }
  return open.empty();
}

TEST(DrawSvgTest, DrawsTheWholeSchedule) {
  for (Type type : {Type::kGpipe, Type::kInterleaved, Type::kZeroBubbleH1}) {
    const PipelineSchedule schedule =
        MakePipelineSchedule(type, 4, 8, type == Type::kInterleaved ? 2 : 1);
    const SimulatedRun run = Simulate(schedule, Equal(schedule, {1, 1, 1}));
    const std::string svg = DrawSvg(schedule, run);
    std::vector<std::string> names;
    ASSERT_TRUE(WellFormed(svg, names)) << svg;
    EXPECT_EQ(names[0], "svg");
    EXPECT_THAT(svg, HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_THAT(svg, testing::Not(HasSubstr("nan")));
    for (size_t s = 0; s < 4; ++s) {
      EXPECT_THAT(svg, HasSubstr(">stage " + std::to_string(s) + ": live "));
      for (const TimedAction& timed : run.stages[s]) {
        EXPECT_THAT(svg, HasSubstr("<title>stage " + std::to_string(s) + ", " +
                                   ActionName(timed.action) + ": from "));
      }
    }
    EXPECT_THAT(svg, HasSubstr(">F7</text>"));
    EXPECT_THAT(svg, HasSubstr(">F forward</text>"));
    EXPECT_EQ(svg.find("W backward") != std::string::npos, type == Type::kZeroBubbleH1);
    EXPECT_EQ(svg.find("later chunks") != std::string::npos, type == Type::kInterleaved);
  }
}

TEST(DrawSvgTest, StaysReadableAndSmallForAnyTimes) {
  const PipelineSchedule schedule = MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 4, 1);
  ScheduleTimes times;
  times.chunks = {{{1e-9, 1, 1}}, {{1000, 1, 1}}};
  const std::string svg = DrawSvg(schedule, Simulate(schedule, times));
  std::vector<std::string> names;
  EXPECT_TRUE(WellFormed(svg, names));
  double width = 0;
  ASSERT_EQ(
      std::sscanf(svg.c_str(), "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lf\"", &width),
      1);
  EXPECT_LE(width, 6200);
}

}  // namespace
}  // namespace dslaunch::pipeline_simulation_test
