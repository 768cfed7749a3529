#include "cli/metrics/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/text/sanitize.h"

namespace dslaunch::metrics_text_test {
namespace {

constexpr MetricsWriter::Family kBytes = {"a_read_bytes", MetricsWriter::Type::kCounter, "bytes",
                                          "What was read."};
constexpr MetricsWriter::Family kLoss = {"a_loss", MetricsWriter::Type::kGauge, "", "The loss."};

std::string Text(MetricsFormat format) {
  MetricsWriter out(format);
  out.Begin(kBytes);
  out.Add(LabelsText({{"rank", "0"}}), 12);
  out.Begin(kLoss);
  out.Add("", 0.5);
  return out.Finish();
}

TEST(MetricsTextTest, WritesBothFormats) {
  EXPECT_EQ(Text(MetricsFormat::kOpenMetrics),
            "# HELP a_read_bytes What was read.\n# TYPE a_read_bytes counter\n"
            "# UNIT a_read_bytes bytes\na_read_bytes_total{rank=\"0\"} 12\n"
            "# HELP a_loss The loss.\n# TYPE a_loss gauge\na_loss 0.5\n# EOF\n");
  EXPECT_EQ(Text(MetricsFormat::kPrometheus),
            "# HELP a_read_bytes_total What was read.\n# TYPE a_read_bytes_total counter\n"
            "a_read_bytes_total{rank=\"0\"} 12\n"
            "# HELP a_loss The loss.\n# TYPE a_loss gauge\na_loss 0.5\n");
}

TEST(MetricsTextTest, OmitsFamiliesWithoutSamples) {
  MetricsWriter out(MetricsFormat::kOpenMetrics);
  out.Begin(kBytes);
  out.Begin(kLoss);
  EXPECT_EQ(out.Finish(), "# EOF\n");
}

TEST(MetricsTextTest, WritesNumbersThatAreNotFinite) {
  MetricsWriter out(MetricsFormat::kPrometheus);
  out.Begin(kLoss);
  for (const double number : {std::nan(""), std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(), 1e300})
    out.Add("", number);
  EXPECT_NE(out.Finish().find("a_loss NaN\na_loss +Inf\na_loss -Inf\na_loss 1e+300\n"),
            std::string::npos);
}

TEST(MetricsTextTest, EscapesLabelValues) {
  EXPECT_EQ(LabelsText({{"a", "x\\y\"z\n\r\x01"}, {"b", ""}, {"c", "\xff\xc3\xa4\xc3"}}),
            "a=\"x\\\\y\\\"z\\n  \",c=\"\xEF\xBF\xBD\xc3\xa4\xEF\xBF\xBD\"");
}

// For any bytes in a value, the value must end at its closing quote, and the line must be UTF-8.
TEST(MetricsTextTest, RandomLabelValuesCannotBreakOut) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  constexpr std::string_view kNasty = "\"\\\n\r{},=# \xff\xc3\xe2\x80\xf0";
  for (int i = 0; i < 5'000; ++i) {
    std::string value;
    for (unsigned n = random() % 12; n > 0; --n)
      value += random() % 2 ? kNasty[random() % kNasty.size()] : static_cast<char>(random());
    if (value.empty()) continue;
    const std::string text = LabelsText({{"a", value}});
    ASSERT_TRUE(IsUtf8(text));
    ASSERT_TRUE(text.starts_with("a=\"") && text.ends_with("\""));
    const std::string inner = text.substr(3, text.size() - 4);
    bool escaped = false;
    for (const char c : inner) {
      ASSERT_NE(c, '\n');
      if (!escaped) ASSERT_NE(c, '"');
      if (escaped) ASSERT_NE(std::string_view("\\\"n").find(c), std::string_view::npos);
      escaped = !escaped && c == '\\';
    }
    ASSERT_FALSE(escaped);
  }
}

}  // namespace
}  // namespace dslaunch::metrics_text_test
