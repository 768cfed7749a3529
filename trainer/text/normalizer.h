// Implements the normalizers of tokenizer.json. Pure.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/text/search.h"

namespace dslaunch {

struct NfcStep {};
struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  Search search;
  std::string content;
};
using NormalizerStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

// Returns `text`, which is UTF-8, after all steps are applied. A step that prepends text is skipped
// if `text` continues another text.
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      TextStart start = TextStart::kDocument);

}  // namespace dslaunch
