#include "trainer/train/window.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dslaunch {
namespace {

constexpr double kExchangeEveryS = 0.1;
constexpr int64_t kMostSteps = 10'000;  // where a step takes no time at all

}  // namespace

// Counts of bytes and steps stay far below 2^53, where doubles are exact.
std::vector<double> RankWindow::Numbers() const {
  const BadLoss none;
  const BadLoss& first = bad ? *bad : none;
  return {loss,
          seconds,
          static_cast<double>(first.step),
          first.loss,
          static_cast<double>(stop),
          static_cast<double>(memory.parameters),
          static_cast<double>(memory.gradients),
          static_cast<double>(memory.buckets),
          static_cast<double>(memory.optimizer),
          static_cast<double>(memory.buffers),
          static_cast<double>(memory.activations),
          static_cast<double>(memory.peak_rss),
          flops};
}

RankWindow RankWindow::FromNumbers(const double* numbers, int rank) {
  const auto whole = [numbers](int at) { return static_cast<int64_t>(numbers[at]); };
  RankWindow window;
  window.loss = numbers[0];
  window.seconds = numbers[1];
  if (whole(2) > 0) window.bad = BadLoss{whole(2), rank, numbers[3]};
  window.stop = static_cast<StopRequest>(whole(4));
  window.memory = {whole(5), whole(6), whole(7), whole(8), whole(9), whole(10), whole(11)};
  window.flops = numbers[12];
  return window;
}

AllWindows Combine(const std::vector<RankWindow>& ranks) {
  AllWindows all;
  all.seconds = ranks.front().seconds;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankWindow& one = ranks[rank];
    all.loss += one.loss;
    all.flops += one.flops;
    if (one.bad && (!all.bad || one.bad->step < all.bad->step)) all.bad = one.bad;
    if (one.stop != StopRequest::kNone && !all.stop) {
      all.stop = {one.stop, static_cast<int>(rank)};
    }
    for (int64_t MemoryBytes::*const category :
         {&MemoryBytes::parameters, &MemoryBytes::gradients, &MemoryBytes::buckets,
          &MemoryBytes::optimizer, &MemoryBytes::buffers, &MemoryBytes::activations,
          &MemoryBytes::peak_rss}) {
      all.memory.*category = std::max(all.memory.*category, one.memory.*category);
    }
  }
  all.loss /= static_cast<double>(ranks.size());
  return all;
}

std::string BadLossMessage(const BadLoss& bad) {
  char loss[32];
  std::snprintf(loss, sizeof loss, "%g", bad.loss);
  return "the loss of rank " + std::to_string(bad.rank) + " is " + loss + " at step " +
         std::to_string(bad.step) + "; try a lower learning rate";
}

int64_t StepsUntilExchange(int64_t last, double step_s) {
  const int64_t most = std::min(2 * std::max<int64_t>(last, 1), kMostSteps);
  if (!(step_s > 0)) return most;
  const double wanted =
      std::clamp(std::floor(kExchangeEveryS / step_s), 1.0, static_cast<double>(most));
  return static_cast<int64_t>(wanted);
}

}  // namespace dslaunch
