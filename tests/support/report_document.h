// Reads the JSON document in a report's page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the document; a null value if the page is not one document and one script between the
// usual elements, so that a text of the job has added or ended an element.
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

// Returns the card or the entry of not_recorded with this id; a null value if there is none.
inline nlohmann::json SectionOf(const nlohmann::json& document, const std::string& id) {
  for (const char* list : {"cards", "not_recorded"}) {
    if (!document.contains(list)) continue;
    for (const nlohmann::json& section : document[list]) {
      if (section["id"] == id) return section;
    }
  }
  return nullptr;
}

// Returns the first part of this kind ("plot", "table") of the card with this id; or null.
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
