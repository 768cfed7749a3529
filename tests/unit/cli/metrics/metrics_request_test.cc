#include "cli/metrics/metrics_request.h"

#include <gtest/gtest.h>

#include <random>

namespace dslaunch::metrics_request_test {
namespace {

constexpr char kToken[] = "0123456789abcdef";

int StatusOf(const std::string& request, const std::string& token = "") {
  return AnswerRequest(request, token).status;
}

TEST(MetricsRequestTest, AnswersByMethodAndPath) {
  EXPECT_EQ(StatusOf("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(StatusOf("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 404);
  EXPECT_EQ(StatusOf("GET /metrics/.. HTTP/1.1\r\n\r\n"), 404);
  EXPECT_EQ(StatusOf("POST /metrics HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(StatusOf("GET /metrics\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("\r\n\r\n"), 400);
}

TEST(MetricsRequestTest, RequiresTheToken) {
  const auto with = [](const std::string& header) {
    return StatusOf("GET /metrics HTTP/1.1\r\nHost: a\r\n" + header + "\r\n\r\n", kToken);
  };
  EXPECT_EQ(with("Authorization: Bearer 0123456789abcdef"), 200);
  EXPECT_EQ(with("authorization:bearer   0123456789abcdef "), 200);
  EXPECT_EQ(with("X: y"), 401);
  EXPECT_EQ(with("Authorization: Bearer 0123456789abcdee"), 401);
  EXPECT_EQ(with("Authorization: Bearer 0123456789abcdef0"), 401);
  EXPECT_EQ(with("Authorization: Bearer 0123456789abcde"), 401);
  EXPECT_EQ(with("Authorization: Bearer "), 401);
  EXPECT_EQ(with("Authorization: Basic 0123456789abcdef"), 401);
  EXPECT_EQ(StatusOf("GET /secret HTTP/1.1\r\n\r\n", kToken), 401) << "says nothing about paths";
}

TEST(MetricsRequestTest, ChoosesFormatByAccept) {
  const auto format = [](const std::string& accept) {
    return AnswerRequest("GET /metrics HTTP/1.1\r\nAccept: " + accept + "\r\n\r\n", "").format;
  };
  EXPECT_EQ(format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain"),
            MetricsFormat::kOpenMetrics);
  EXPECT_EQ(format("*/*"), MetricsFormat::kPrometheus);
}

TEST(MetricsRequestTest, ResponseHasLengthAndClosesConnection) {
  const std::string response = ResponseText({200, MetricsFormat::kOpenMetrics}, "abc\n");
  EXPECT_EQ(response,
            "HTTP/1.1 200 OK\r\n"
            "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
            "Content-Length: 4\r\nConnection: close\r\n\r\nabc\n");
  EXPECT_NE(ResponseText({401}, "").find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
}

TEST(MetricsRequestTest, SurvivesRandomRequests) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string good =
      "GET /metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
  for (int i = 0; i < 50'000; ++i) {
    std::string request = good;
    for (unsigned n = 1 + random() % 6; n > 0; --n) {
      const size_t at = random() % request.size();
      if (random() % 3 == 0)
        request.erase(at, 1 + random() % 8);
      else
        request[at] = static_cast<char>(random());
      if (request.empty()) break;
    }
    const int status = StatusOf(request, kToken);
    ASSERT_TRUE(status == 200 || status == 400 || status == 401 || status == 404 || status == 405);
    if (status == 200) ASSERT_NE(request.find(kToken), std::string::npos);
  }
}

}  // namespace
}  // namespace dslaunch::metrics_request_test
