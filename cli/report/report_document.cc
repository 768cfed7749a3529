#include "cli/report/report_document.h"

#include "base/count.h"
#include "cli/report/report_script.h"
#include "cli/report/report_style.h"

namespace dslaunch {
namespace {

Json BarOf(const ColoredParts& parts) {
  Json bar = Json::array();
  for (const auto& [part, color] : parts) bar.push_back({part, color});
  return bar;
}

// Returns `document` as JSON that is valid within an HTML element. '<' is escaped, because
// "</script>" in a text would end the element.
std::string EmbeddedText(const Json& document) {
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

// Returns `text` escaped for use as the content of an HTML element.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace

Json Strong(const std::string& text) { return {{"strong", text}}; }
Json Code(const std::string& text) { return {{"code", text}}; }

Json Card(const std::string& id, const std::string& heading, Json lead, std::vector<Json> parts,
          Width width) {
  static constexpr const char* kWidths[] = {"third", "half", "wide"};
  return {{"id", id},
          {"heading", heading},
          {"width", kWidths[static_cast<size_t>(width)]},
          {"lead", std::move(lead)},
          {"parts", std::move(parts)}};
}

Json Missing(const std::string& id, const std::string& heading, const std::string& why) {
  return {{"id", id}, {"heading", heading}, {"why", why}};
}

Json PlotPart(const Plot& plot) { return {{"plot", PlotJson(plot)}}; }
Json BarPart(const ColoredParts& parts) { return {{"bar", BarOf(parts)}}; }

Json LegendPart(const std::vector<std::pair<std::string, std::string>>& colors_and_texts) {
  Json legend = Json::array();
  for (const auto& [color, text] : colors_and_texts) legend.push_back({color, text});
  return {{"legend", std::move(legend)}};
}

Json HeadingPart(const std::string& text) { return {{"heading", text}}; }
Json TextPart(const std::string& text) { return {{"text", text}}; }

Json TablePart(const std::vector<std::string>& columns, std::vector<Json> rows,
               const std::string& more, bool has_total) {
  Json table = {{"columns", columns}, {"rows", std::move(rows)}};
  if (!more.empty()) table["more"] = more;
  if (has_total) table["total"] = true;
  return {{"table", std::move(table)}};
}

Json BarsCell(const std::vector<ColoredParts>& bars) {
  Json list = Json::array();
  for (const ColoredParts& parts : bars) list.push_back(BarOf(parts));
  return {{"bars", std::move(list)}};
}

Json SwatchCell(const std::string& color, const std::string& text) {
  return {{"swatch", color}, {"text", text}};
}

Json BadCell(const std::string& text) { return {{"bad", true}, {"text", text}}; }

std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together) {
  if (all <= shown) return "";
  return "and " + Count(all - shown, "more " + what) +
         (together.empty() ? "" : ", together " + together) + ".";
}

void AddTo(Json& document, Json section) {
  if (section.is_null()) return;
  if (section.is_array()) {
    for (Json& one : section) AddTo(document, std::move(one));
    return;
  }
  document[section.contains("why") ? "not_recorded" : "cards"].push_back(std::move(section));
}

std::string PageOf(const std::string& title, const Json& document) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         Escaped(title) + "</title><style>" + kReportStyle +
         "</style></head>\n<body><main><noscript>A script in this page draws it; allow scripts "
         "here.</noscript></main>\n<script type=\"application/json\" id=\"data\">" +
         EmbeddedText(document) + "</script>\n<script>" + kReportScript +
         "</script></body></html>\n";
}

}  // namespace dslaunch
