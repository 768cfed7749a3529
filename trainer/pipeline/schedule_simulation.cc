#include "trainer/pipeline/schedule_simulation.h"

#include <algorithm>
#include <cstddef>

#include "trainer/base/format.h"

namespace dslaunch {
namespace {

constexpr double kNever = -1;

// The times at which the sender and the receiver began a transfer.
struct Transfer {
  double sent = kNever;
  double awaited = kNever;
};

double DurationOf(ActionKind kind, const ChunkTimes& times) {
  switch (kind) {
    case ActionKind::kForward:
      return times.forward;
    case ActionKind::kBackward:
      return times.backward_input + times.backward_weight;
    case ActionKind::kBackwardInput:
      return times.backward_input;
    case ActionKind::kBackwardWeight:
      return times.backward_weight;
    default:
      return 0;
  }
}

class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const ScheduleTimes& times)
      : schedule_(schedule),
        times_(times),
        parts_(schedule.stages * schedule.virtual_stages),
        activations_(static_cast<size_t>(parts_) * static_cast<size_t>(schedule.micro_batches)),
        gradients_(activations_),
        next_(schedule.actions.size()),
        now_(schedule.actions.size()) {
    run_.stages.resize(schedule.actions.size());
  }

  SimulatedRun Run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        while (DoNext(stage)) goes_on = true;
      }
    }
    run_.total = *std::max_element(now_.begin(), now_.end());
    double idle = 0;
    for (const std::vector<TimedAction>& actions : run_.stages) {
      double busy = 0;
      for (const TimedAction& timed : actions) busy += timed.end - timed.start;
      run_.idle.push_back(run_.total - busy);
      idle += run_.idle.back();
    }
    if (run_.total > 0) run_.idle_fraction = idle / (run_.total * schedule_.stages);
    return std::move(run_);
  }

 private:
  // Runs the stage's next action. Returns false if the data that the action reads is not sent yet.
  bool DoNext(int stage) {
    const size_t s = static_cast<size_t>(stage);
    if (next_[s] == schedule_.actions[s].size()) return false;
    const Action& action = schedule_.actions[s][next_[s]];
    const int part = action.chunk * schedule_.stages + stage;
    switch (action.kind) {
      case ActionKind::kSendActivation:
        At(activations_, part + 1, action).sent = now_[s];
        break;
      case ActionKind::kReceiveActivation:
        At(activations_, part, action).awaited = now_[s];
        break;
      case ActionKind::kSendGradient:
        At(gradients_, part - 1, action).sent = now_[s];
        break;
      case ActionKind::kReceiveGradient:
        At(gradients_, part, action).awaited = now_[s];
        break;
      case ActionKind::kForward:
        if (!Compute(stage, action, At(activations_, part, action))) return false;
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (!Compute(stage, action, At(gradients_, part, action))) return false;
        break;
      case ActionKind::kBackwardWeight:
        Compute(stage, action, {});
        break;
      default:
        break;
    }
    ++next_[s];
    return true;
  }

  // Runs a computing action, which waits for the transfer `data` if its receive has begun. Returns
  // false if the data is not sent yet.
  bool Compute(int stage, const Action& action, const Transfer& data) {
    const size_t s = static_cast<size_t>(stage);
    double start = now_[s];
    if (data.awaited != kNever) {
      if (data.sent == kNever) return false;
      start = std::max(start, std::max(data.sent, data.awaited) + times_.transfer);
    }
    const ChunkTimes& times = times_.chunks[s][static_cast<size_t>(action.chunk)];
    now_[s] = start + DurationOf(action.kind, times);
    run_.stages[s].push_back({action, start, now_[s]});
    return true;
  }

  // Returns the transfer of a micro-batch's activations or gradients to a part.
  Transfer& At(std::vector<Transfer>& transfers, int part, const Action& action) {
    return transfers[static_cast<size_t>(part) * static_cast<size_t>(schedule_.micro_batches) +
                     static_cast<size_t>(action.micro_batch)];
  }

  const PipelineSchedule& schedule_;
  const ScheduleTimes& times_;
  const int parts_;
  std::vector<Transfer> activations_, gradients_;  // transfers by part and micro-batch
  std::vector<size_t> next_;                       // index of the next action of each stage
  std::vector<double> now_;
  SimulatedRun run_;
};

}  // namespace

SimulatedRun Simulate(const PipelineSchedule& schedule, const ScheduleTimes& times) {
  return Simulation(schedule, times).Run();
}

SimulatedRun SimulateEvenly(const PipelineSchedule& schedule) {
  ScheduleTimes times;
  times.chunks.assign(static_cast<size_t>(schedule.stages),
                      std::vector<ChunkTimes>(static_cast<size_t>(schedule.virtual_stages)));
  return Simulate(schedule, times);
}

std::string IdleRemark(const PipelineConfig& config, int64_t micro_batches) {
  if (config.stages == 1) return "";
  const auto idle_percent = [&](int64_t count) {
    const SimulatedRun run = SimulateEvenly(
        MakePipelineSchedule(config.schedule, static_cast<int>(config.stages),
                             static_cast<int>(count), static_cast<int>(config.virtual_stages)));
    return static_cast<int>(100 * run.idle_fraction + 0.5);
  };
  constexpr int kMuch = 25;
  const int idle = idle_percent(micro_batches);
  if (idle <= kMuch) return "";
  const int64_t more = 4 * config.stages;
  return Format(
      "the stages are idle for %d%% of a step, with %lld %s for %lld stages; "
      "gradient_accumulation_steps %lld makes it %d%%",
      idle, static_cast<long long>(micro_batches),
      micro_batches == 1 ? "micro-batch" : "micro-batches", static_cast<long long>(config.stages),
      static_cast<long long>(more), idle_percent(more));
}

}  // namespace dslaunch
