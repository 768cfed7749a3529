// Reads the JSON document in the HTML page of a report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the document. Returns null if the page does not consist of exactly one document and one
// script between the usual elements. For example, a text of the job may have added or closed an
// element.
inline nlohmann::json DocumentIn(std::string_view page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(kBegin);
  if (begin == std::string_view::npos) return nullptr;
  const std::string_view rest = page.substr(begin + kBegin.size());
  const size_t end = rest.find('<');
  if (end == std::string_view::npos || !rest.substr(end).starts_with("</script>\n<script>\n"))
    return nullptr;
  return nlohmann::json::parse(rest.substr(0, end), nullptr, /*allow_exceptions=*/false);
}

// Returns the card or the not_recorded entry whose id is `id`; null if there is none.
inline nlohmann::json SectionOf(const nlohmann::json& document, const std::string& id) {
  for (const char* list : {"cards", "not_recorded"}) {
    if (!document.contains(list)) continue;
    for (const nlohmann::json& section : document[list]) {
      if (section["id"] == id) return section;
    }
  }
  return nullptr;
}

// Returns the first part of `kind` ("plot", "table") in the card whose id is `id`; null if there is
// none.
inline nlohmann::json PartOf(const nlohmann::json& document, const std::string& id,
                             const std::string& kind) {
  const nlohmann::json card = SectionOf(document, id);
  if (!card.contains("parts")) return nullptr;
  for (const nlohmann::json& part : card["parts"]) {
    if (part.contains(kind)) return part[kind];
  }
  return nullptr;
}

}  // namespace dslaunch
