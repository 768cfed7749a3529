// Answers an HTTP request for metrics. All functions are pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/metrics/metrics_text.h"

namespace dslaunch {

// Limit of a request's head; a longer head is refused.
inline constexpr size_t kMaxRequestBytes = 8192;

// Returns whether the head of the request is complete. Data after the head is not read.
bool IsWholeRequest(std::string_view received);

struct MetricsAnswer {
  int status = 0;  // HTTP status: 200, 400, 401, 404 or 405
  // The format for status 200: OpenMetrics if the client accepts it, else Prometheus' format.
  MetricsFormat format = MetricsFormat::kPrometheus;
};

// Returns the answer to a request whose head is complete. `token` is the token that "Authorization:
// Bearer" must contain; empty if none is needed. Comparing two tokens takes the same time wherever
// they differ, so the time reveals nothing.
MetricsAnswer AnswerRequest(std::string_view head, const std::string& token);

// Returns the HTTP response with `body`, after which the caller closes the connection.
std::string ResponseText(const MetricsAnswer& answer, const std::string& body);

}  // namespace dslaunch
