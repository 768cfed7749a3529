#include "trainer/config/parallel_config.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

using Mode = ParallelConfig::Mode;

constexpr const char* kModes[] = {"all_reduce", "parameter_server", "local_sgd", "diloco",
                                  "powersgd"};
constexpr int64_t kMaxInnerSteps = int64_t{1} << 40;
constexpr int64_t kMaxStaleness = int64_t{1} << 40;
constexpr int64_t kMaxSeed = (int64_t{1} << 32) - 1;

void ParseServers(JsonObject& object, int64_t ranks, ParallelConfig& parallel) {
  parallel.servers = object.Int("servers", 1).value_or(1);
  if (ranks > 0 && parallel.servers > ranks) {
    object.Fail("servers", "is " + std::to_string(parallel.servers) + ", but there are " +
                               std::to_string(ranks) + " ranks, of which the first are servers");
  }
  parallel.staleness = object.Int("staleness", 0, kMaxStaleness);
}

void ParseInnerSteps(JsonObject& object, ParallelConfig& parallel) {
  const std::optional<int64_t> inner_steps = object.Int("inner_steps", 1, kMaxInnerSteps);
  if (!inner_steps) {
    object.Fail("inner_steps", "is missing; give the number of steps between two exchanges");
  }
  parallel.inner_steps = *inner_steps;
}

void ParseOuter(JsonObject& object, ParallelConfig& parallel) {
  parallel.outer_lr = object.Number("outer_lr", 0).value_or(parallel.outer_lr);
  parallel.outer_momentum = object.Number("outer_momentum", 0, 1).value_or(parallel.outer_momentum);
  parallel.outer_nesterov = object.Bool("outer_nesterov").value_or(parallel.outer_momentum != 0);
  if (parallel.outer_nesterov && parallel.outer_momentum == 0) {
    object.Fail("outer_nesterov", "is true, but outer_momentum is 0; remove one of them");
  }
}

void ParsePowerSgd(JsonObject& object, ParallelConfig& parallel) {
  ParallelConfig& p = parallel;
  p.matrix_approximation_rank =
      object.Int("matrix_approximation_rank", 1).value_or(p.matrix_approximation_rank);
  p.start_iter = object.Int("start_powerSGD_iter", 0).value_or(p.start_iter);
  p.min_compression_rate =
      object.Number("min_compression_rate", 0).value_or(p.min_compression_rate);
  p.use_error_feedback = object.Bool("use_error_feedback").value_or(p.use_error_feedback);
  p.warm_start = object.Bool("warm_start").value_or(p.warm_start);
  p.orthogonalization_epsilon =
      object.Number("orthogonalization_epsilon", 0, 1).value_or(p.orthogonalization_epsilon);
  p.random_seed = object.Int("random_seed", 0, kMaxSeed).value_or(p.random_seed);
}

}  // namespace

const char* ParallelModeName(Mode mode) { return kModes[static_cast<size_t>(mode)]; }

ParallelConfig ParseParallel(JsonObject object, int64_t ranks) {
  ParallelConfig parallel;
  const std::string word =
      object.Word("mode", {std::begin(kModes), std::end(kModes)}).value_or(kModes[0]);
  parallel.mode =
      static_cast<Mode>(std::find(std::begin(kModes), std::end(kModes), word) - std::begin(kModes));
  const auto of = [&](bool chosen, const char* mode, const std::set<std::string>& keys) {
    if (!chosen) {
      object.RefuseUnlessOff(keys,
                             std::string("is of the mode ") + mode + "; leave it out, or set that");
    }
    return chosen;
  };
  if (of(parallel.mode == Mode::kParameterServer, kModes[1], {"servers", "staleness"})) {
    ParseServers(object, ranks, parallel);
  }
  if (of(parallel.TrainsApart(), "local_sgd or diloco", {"inner_steps"})) {
    ParseInnerSteps(object, parallel);
  }
  if (of(parallel.mode == Mode::kDiloco, kModes[3],
         {"outer_lr", "outer_momentum", "outer_nesterov"})) {
    ParseOuter(object, parallel);
  }
  if (of(parallel.mode == Mode::kPowerSgd, kModes[4],
         {"matrix_approximation_rank", "start_powerSGD_iter", "min_compression_rate",
          "use_error_feedback", "warm_start", "orthogonalization_epsilon", "random_seed"})) {
    ParsePowerSgd(object, parallel);
  }
  object.RefuseUnknown();
  return parallel;
}

}  // namespace dslaunch
