#include "trainer/families/decoder/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::rotary_test {
namespace {

using Scaling = RotaryConfig::Type;

constexpr int64_t kHeadDim = 16;

// The expected values are inv_freq and attention_scaling of LlamaRotaryEmbedding in transformers
// 5.23, with heads of 16.
TEST(RotaryTest, FrequenciesMatchTransformers) {
  RotaryConfig linear{.type = Scaling::kLinear, .factor = 4, .attention_factor = {}};
  RotaryConfig llama3{.type = Scaling::kLlama3,
                      .theta = 500000,
                      .factor = 8,
                      .original_max_position_embeddings = 8192,
                      .attention_factor = {}};
  RotaryConfig yarn{.type = Scaling::kYarn,
                    .theta = 1e6,
                    .factor = 4,
                    .original_max_position_embeddings = 32768,
                    .attention_factor = {}};
  RotaryConfig yarn_with_all_keys{.type = Scaling::kYarn,
                                  .factor = 16,
                                  .original_max_position_embeddings = 512,
                                  .beta_fast = 16,
                                  .beta_slow = 2,
                                  .attention_factor = 0.75};
  RotaryConfig yarn_of_short_length{.type = Scaling::kYarn,
                                    .factor = 2,
                                    .original_max_position_embeddings = 4,
                                    .attention_factor = {}};
  const struct {
    RotaryConfig config;
    std::vector<double> frequencies;
    double scale;
  } cases[] = {{{},
                {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786,
                 0.00100000005, 0.000316227786},
                1},
               {linear,
                {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466,
                 0.000250000012, 7.90569466e-05},
                1},
               {llama3,
                {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05,
                 6.64786967e-06, 1.28917316e-06},
                1},
               {yarn,
                {1, 0.177827939, 0.0316227786, 0.00421755994, 0.000500000024, 4.44569851e-05,
                 7.90569356e-06, 1.40585337e-06},
                1.13862944},
               {yarn_with_all_keys,
                {1, 0.316227764, 0.068749994, 0.0118585415, 0.000624999986, 0.000197642366,
                 6.2500003e-05, 1.97642366e-05},
                0.75},
               {yarn_of_short_length,
                {1, 0.158113882, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893,
                 0.000500000024, 0.000158113893},
                1.06931472}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.scale);
    const std::vector<double> found = RotaryFrequencies(c.config, kHeadDim);
    ASSERT_EQ(found.size(), c.frequencies.size());
    for (size_t k = 0; k < found.size(); ++k) {
      EXPECT_NEAR(found[k] / c.frequencies[k], 1, 2e-6) << k;
    }
    EXPECT_NEAR(RotaryScale(c.config), c.scale, 1e-8);
  }
}

TEST(RotaryTest, TableHasCosinesAndSinesByPosition) {
  const RotaryConfig config{.type = Scaling::kYarn,
                            .factor = 2,
                            .original_max_position_embeddings = 8,
                            .attention_factor = 0.5};
  const std::vector<double> frequencies = RotaryFrequencies(config, kHeadDim);
  const RotaryTable table = MakeRotaryTable(config, kHeadDim, 5);
  ASSERT_EQ(table.cosines.size(), 5 * frequencies.size());
  ASSERT_EQ(table.sines.size(), 5 * frequencies.size());
  for (size_t i = 0; i < table.cosines.size(); ++i) {
    const double angle =
        static_cast<double>(i / frequencies.size()) * frequencies[i % frequencies.size()];
    EXPECT_NEAR(table.cosines[i], 0.5 * std::cos(angle), 1e-6);
    EXPECT_NEAR(table.sines[i], 0.5 * std::sin(angle), 1e-6);
  }
}

}  // namespace
}  // namespace dslaunch::rotary_test
