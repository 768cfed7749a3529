#include "trainer/train/window.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/format.h"

namespace dslaunch {
namespace {

constexpr double kExchangeEveryS = 0.1;
// Limits the interval between two exchanges if a step takes no measurable time.
constexpr int64_t kMostSteps = 10'000;

}  // namespace

// Counts of bytes and steps are far below 2^53, so their conversion to doubles is exact.
std::vector<double> RankWindow::Numbers() const {
  const Divergence none;
  const Divergence& first = diverged ? *diverged : none;
  return {loss,
          seconds,
          static_cast<double>(first.step),
          first.loss,
          static_cast<double>(first.steps),
          static_cast<double>(bad_steps),
          static_cast<double>(stop),
          static_cast<double>(memory.parameters),
          static_cast<double>(memory.gradients),
          static_cast<double>(memory.buckets),
          static_cast<double>(memory.optimizer),
          static_cast<double>(memory.buffers),
          static_cast<double>(memory.activations),
          static_cast<double>(memory.tensors),
          static_cast<double>(memory.peak_rss),
          flops};
}

RankWindow RankWindow::FromNumbers(const double* numbers, int rank) {
  const auto whole = [numbers](int at) { return static_cast<int64_t>(numbers[at]); };
  RankWindow window;
  window.loss = numbers[0];
  window.seconds = numbers[1];
  if (whole(2) > 0) window.diverged = Divergence{whole(2), rank, numbers[3], whole(4)};
  window.bad_steps = whole(5);
  window.stop = static_cast<StopRequest>(whole(6));
  window.memory = {whole(7),  whole(8),  whole(9),  whole(10),
                   whole(11), whole(12), whole(13), whole(14)};
  window.flops = numbers[15];
  return window;
}

namespace {

bool ComesBefore(const Divergence& one, const Divergence& other) {
  if (one.step != other.step) return one.step < other.step;
  return !std::isfinite(one.loss) && std::isfinite(other.loss);
}

}  // namespace

AllWindows Combine(const std::vector<RankWindow>& ranks) {
  AllWindows all;
  all.seconds = ranks.front().seconds;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankWindow& one = ranks[rank];
    all.loss += one.loss;
    all.flops += one.flops;
    if (one.diverged && (!all.diverged || ComesBefore(*one.diverged, *all.diverged))) {
      all.diverged = one.diverged;
    }
    all.bad_steps = std::max(all.bad_steps, one.bad_steps);
    if (one.stop != StopRequest::kNone && !all.stop) {
      all.stop = {one.stop, static_cast<int>(rank)};
    }
    for (int64_t MemoryBytes::*const category :
         {&MemoryBytes::parameters, &MemoryBytes::gradients, &MemoryBytes::buckets,
          &MemoryBytes::optimizer, &MemoryBytes::buffers, &MemoryBytes::activations,
          &MemoryBytes::tensors, &MemoryBytes::peak_rss}) {
      all.memory.*category = std::max(all.memory.*category, one.memory.*category);
    }
  }
  all.loss /= static_cast<double>(ranks.size());
  return all;
}

std::string DivergenceMessage(const Divergence& diverged) {
  const std::string steps = std::to_string(diverged.steps);
  const std::string step = std::to_string(diverged.step);
  if (std::isfinite(diverged.loss)) {
    return "training has diverged: " + steps + " steps in a row, from step " + step +
           " on, made no update, because a gradient is not finite";
  }
  const std::string loss = "the loss of rank " + std::to_string(diverged.rank) + " is " +
                           Format("%g", WithoutSignOfNan(diverged.loss)) + " at step " + step;
  if (diverged.steps == 0) return loss;
  return "training has diverged: " + loss + ", and " + steps + " steps in a row made no update";
}

int64_t StepsUntilExchange(int64_t last, double step_s) {
  const int64_t most = std::min(2 * std::max<int64_t>(last, 1), kMostSteps);
  if (!(step_s > 0)) return most;
  const double wanted =
      std::clamp(std::floor(kExchangeEveryS / step_s), 1.0, static_cast<double>(most));
  return static_cast<int64_t>(wanted);
}

}  // namespace dslaunch
