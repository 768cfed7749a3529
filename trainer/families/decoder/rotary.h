// Computes the rotary embedding (Su et al., arXiv 2104.09864). The wavelengths can be stretched for
// sequences that are longer than in pretraining. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/families/decoder/decoder_config.h"

namespace dslaunch {

// Returns the frequencies of the head_dim / 2 pairs of a head: the angle in radians by which each
// next position rotates pair k. Without scaling, f_k = theta^(-2k / head_dim). With scaling:
// - linear: f_k / factor.
// - llama3: wavelengths 2 pi / f_k above original_max_position_embeddings / low_freq_factor are
//   multiplied by factor, those below original / high_freq_factor are unchanged, and between the
//   two they are interpolated in original / wavelength.
// - yarn (Peng et al., arXiv 2309.00071, section 3.2): pairs that make more than beta_fast
//   rotations within the original length are unchanged, those that make fewer than beta_slow are
//   divided by factor, and between the two they are interpolated in k.
std::vector<double> RotaryFrequencies(const RotaryConfig& config, int64_t head_dim);

// Returns the factor by which cosines and sines are multiplied: 1 except for yarn.
double RotaryScale(const RotaryConfig& config);

// The cosines and sines of the angles position * frequency, multiplied by RotaryScale, in row-major
// order [positions, head_dim / 2]. Angles are rounded to fp32, as in transformers.
struct RotaryTable {
  std::vector<float> cosines, sines;
};
RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t head_dim, int64_t positions);

}  // namespace dslaunch
