#include "cli/tune/cost_model.h"

namespace dslaunch {
namespace {

constexpr double kSamplesOfStart[] = {0.25, 2};  // samples `o` in the formulas, on CPUs and on GPUs
constexpr double kUnitOneNode = 0.02, kUnitMoreNodes = 0.1;
constexpr double kOffloadLevel = 0.25;
constexpr double kActivations = 0.2;  // cost `t` of dividing layers in the formulas

// Returns x(Psi), the volume of the exchanges, in units of the parameters.
double Volume(int64_t zero_stage, double micro_batches) {
  switch (zero_stage) {
    case 2:
      return micro_batches + 1;
    case 3:
      return 3 * micro_batches;
    default:
      return 2;
  }
}

}  // namespace

double RelativeCost(const TuneProblem& problem, const Candidate& candidate) {
  const auto micro_batches = static_cast<double>(AccumulationOf(problem, candidate));
  const auto stages = static_cast<double>(candidate[Axis::kPipeline]);
  const auto parts = static_cast<double>(candidate[Axis::kTensor]);
  const bool recomputes = candidate[Axis::kRecompute] == 1;
  double cost = 1 + parts * kSamplesOfStart[problem.on_gpu ? 1 : 0] /
                        static_cast<double>(candidate[Axis::kMicroBatch]);
  if (recomputes) cost *= 4.0 / 3;
  cost *= (micro_batches + stages - 1) / micro_batches;
  if (ReplicasOf(problem, candidate) > 1) {
    const double unit = problem.nodes > 1 ? kUnitMoreNodes : kUnitOneNode;
    cost += unit * Volume(candidate[Axis::kZeroStage], micro_batches) / (stages * parts);
  }
  cost += kActivations * (parts - 1) * (recomputes ? 1.5 : 1);
  return cost + kOffloadLevel * static_cast<double>(candidate[Axis::kOffload]);
}

}  // namespace dslaunch
