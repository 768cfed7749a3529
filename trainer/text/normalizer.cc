#include "trainer/text/normalizer.h"

#include "trainer/text/nfc.h"

namespace dslaunch {

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      TextStart start) {
  std::string normal(text);
  for (const NormalizerStep& step : steps) {
    if (std::holds_alternative<NfcStep>(step)) {
      normal = ToNfc(normal);
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      if (!normal.empty() && start != TextStart::kContinued) normal.insert(0, prepend->text);
    } else {
      const auto& replace = std::get<ReplaceStep>(step);
      normal = replace.search.Replace(normal, replace.content);
    }
  }
  return normal;
}

}  // namespace dslaunch
