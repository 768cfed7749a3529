#include "cli/metrics/metrics_request.h"

#include <algorithm>
#include <cctype>

namespace dslaunch {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

bool IsSame(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char one, char other) {
    return std::tolower(static_cast<unsigned char>(one)) ==
           std::tolower(static_cast<unsigned char>(other));
  });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

std::string_view TakeLine(std::string_view& rest) {
  const size_t end = std::min(rest.find("\r\n"), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 2, rest.size()));
  return line;
}

// Returns the value of the first header with the given name; empty if there is none.
std::string_view Header(std::string_view headers, std::string_view name) {
  while (!headers.empty()) {
    const std::string_view line = TakeLine(headers);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && IsSame(line.substr(0, colon), name))
      return Trimmed(line.substr(colon + 1));
  }
  return {};
}

bool IsToken(std::string_view given, std::string_view token) {
  unsigned difference = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < token.size(); ++i) {
    const char c = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(c) ^ static_cast<unsigned char>(token[i]);
  }
  return difference == 0;
}

bool IsAuthorized(std::string_view headers, std::string_view token) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = Header(headers, "Authorization");
  return IsSame(given.substr(0, kBearer.size()), kBearer) &&
         IsToken(Trimmed(given.substr(kBearer.size())), token);
}

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Bad Request";
  }
}

const char* ContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace

bool IsWholeRequest(std::string_view received) {
  return received.find(kEndOfHead) != std::string_view::npos;
}

MetricsAnswer AnswerRequest(std::string_view head, const std::string& token) {
  std::string_view headers = head.substr(0, head.find(kEndOfHead));
  const std::string_view line = TakeLine(headers);
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first ||
      !line.substr(last + 1).starts_with("HTTP/1."))
    return {400};
  // The token is checked before anything else, so that strangers learn nothing about the available
  // paths.
  if (!token.empty() && !IsAuthorized(headers, token)) return {401};
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (target.substr(0, target.find('?')) != "/metrics") return {404};
  if (line.substr(0, first) != "GET") return {405};
  const bool is_open =
      Header(headers, "Accept").find("application/openmetrics-text") != std::string_view::npos;
  return {200, is_open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus};
}

std::string ResponseText(const MetricsAnswer& answer, const std::string& body) {
  const bool is_ok = answer.status == 200;
  const std::string text = is_ok ? body : std::string(Reason(answer.status)) + "\n";
  std::string response =
      "HTTP/1.1 " + std::to_string(answer.status) + " " + Reason(answer.status) +
      "\r\nContent-Type: " + (is_ok ? ContentType(answer.format) : "text/plain; charset=utf-8") +
      "\r\nContent-Length: " + std::to_string(text.size()) + "\r\nConnection: close\r\n";
  if (answer.status == 401) response += "WWW-Authenticate: Bearer\r\n";
  if (answer.status == 405) response += "Allow: GET\r\n";
  return response + "\r\n" + text;
}

}  // namespace dslaunch
