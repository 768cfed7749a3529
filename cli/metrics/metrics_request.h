// The answer to an HTTP request for metrics. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/metrics/metrics_text.h"

namespace dslaunch {

inline constexpr size_t kMaxRequestBytes = 8192;  // a longer head is refused

// Returns whether the head of the request is complete. What follows it is not read.
bool IsWholeRequest(std::string_view received);

struct MetricsAnswer {
  int status = 0;  // 200, 400, 401, 404 or 405
  // Set with 200: OpenMetrics if the client accepts it, else Prometheus' format.
  MetricsFormat format = MetricsFormat::kPrometheus;
};

// Returns the answer to a request whose head is complete. `token`: what "Authorization: Bearer" has
// to give; empty: none is needed. Comparing tokens takes the same time wherever they differ.
MetricsAnswer AnswerRequest(std::string_view head, const std::string& token);

// Returns the response, of a connection that is closed after it.
std::string ResponseText(const MetricsAnswer& answer, const std::string& body);

}  // namespace dslaunch
