#include "trainer/families/decoder/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dslaunch {
namespace {

using Scaling = RotaryConfig::Type;

double ScaledForLlama3(const RotaryConfig& config, double frequency) {
  const auto original = static_cast<double>(config.original_max_position_embeddings);
  // The number of rotations that the pair makes within the original length.
  const double rotations = original * frequency / (2 * std::numbers::pi);
  const double low = config.low_freq_factor, high = config.high_freq_factor;
  const double kept = std::clamp((rotations - low) / (high - low), 0.0, 1.0);
  return (1 - kept) * frequency / config.factor + kept * frequency;
}

// Returns the index, as a real number, of the pair that makes `rotations` rotations within the
// original length.
double PairOfRotations(const RotaryConfig& config, double rotations, double head_dim) {
  const auto original = static_cast<double>(config.original_max_position_embeddings);
  return head_dim * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

void ScaleForYarn(const RotaryConfig& config, int64_t head_dim, std::vector<double>& frequencies) {
  const auto width = static_cast<double>(head_dim);
  const double low = std::max(std::floor(PairOfRotations(config, config.beta_fast, width)), 0.0);
  double high = std::min(std::ceil(PairOfRotations(config, config.beta_slow, width)), width - 1);
  if (low == high) high += 0.001;
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const double divided = std::clamp((static_cast<double>(k) - low) / (high - low), 0.0, 1.0);
    frequencies[k] = frequencies[k] / config.factor * divided + frequencies[k] * (1 - divided);
  }
}

}  // namespace

std::vector<double> RotaryFrequencies(const RotaryConfig& config, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const double exponent = -2.0 * static_cast<double>(k) / static_cast<double>(head_dim);
    const double frequency = std::pow(config.theta, exponent);
    frequencies[k] = config.type == Scaling::kLinear   ? frequency / config.factor
                     : config.type == Scaling::kLlama3 ? ScaledForLlama3(config, frequency)
                                                       : frequency;
  }
  if (config.type == Scaling::kYarn) ScaleForYarn(config, head_dim, frequencies);
  return frequencies;
}

double RotaryScale(const RotaryConfig& config) {
  if (config.type != Scaling::kYarn) return 1;
  return config.attention_factor.value_or(0.1 * std::log(config.factor) + 1);
}

RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t head_dim, int64_t positions) {
  const std::vector<double> frequencies = RotaryFrequencies(config, head_dim);
  const double scale = RotaryScale(config);
  RotaryTable table;
  table.cosines.reserve(frequencies.size() * static_cast<size_t>(positions));
  table.sines.reserve(table.cosines.capacity());
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<float>(position) * static_cast<float>(frequency);
      table.cosines.push_back(static_cast<float>(std::cos(angle) * scale));
      table.sines.push_back(static_cast<float>(std::sin(angle) * scale));
    }
  }
  return table;
}

}  // namespace dslaunch
