#include "trainer/memory_checkpoint/agreement.h"

#include <algorithm>
#include <charconv>
#include <functional>

namespace dslaunch {
namespace {

constexpr size_t kMaxCopies = 2;
constexpr char kVerifiedMark = '!';

// Removes a number that is not negative from the beginning of `text`. Returns false if `text` does
// not begin with a number.
template <typename T>
bool TakeDigits(std::string_view& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool TakeChar(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

std::string StepsOf(const CopyOffer& offer) {
  std::string steps;
  for (const CopyId& copy : offer.copies)
    steps += (steps.empty() ? "" : " and ") + std::to_string(copy.step) + " (attempt " +
             std::to_string(copy.attempt) + ")";
  return steps;
}

std::string WhyNone(const std::vector<CopyOffer>& offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].copies.empty()) return "rank " + std::to_string(rank) + " has none";
  }
  size_t other = 1;
  while (other + 1 < offers.size() && offers[other].copies == offers[0].copies) ++other;
  return "no step is common to all ranks: rank 0 has " + StepsOf(offers[0]) + ", rank " +
         std::to_string(other) + " has " + StepsOf(offers[other]);
}

}  // namespace

// Returns STEP@ATTEMPT for each copy, separated by spaces. A mark follows the copy that is
// verified.
std::string CopyOffer::ToText() const {
  std::string text;
  for (const CopyId& copy : copies) {
    if (!text.empty()) text += ' ';
    text += std::to_string(copy.step) + "@" + std::to_string(copy.attempt);
    if (copy == verified) text += kVerifiedMark;
  }
  return text;
}

std::optional<CopyOffer> CopyOffer::FromText(std::string_view text) {
  CopyOffer offer;
  while (!text.empty()) {
    CopyId copy;
    if (!offer.copies.empty() && !TakeChar(text, ' ')) return std::nullopt;
    if (!TakeDigits(text, copy.step) || !TakeChar(text, '@') || !TakeDigits(text, copy.attempt) ||
        offer.copies.size() == kMaxCopies) {
      return std::nullopt;
    }
    offer.copies.push_back(copy);
    if (TakeChar(text, kVerifiedMark)) offer.verified = copy;
  }
  return offer;
}

CopyChoice ChooseCopy(const std::vector<CopyOffer>& offers) {
  if (offers.empty()) return {.is_final = true, .why_none = "there are no ranks"};
  std::vector<CopyId> candidates = offers.front().copies;
  std::ranges::sort(candidates, std::greater());
  for (const CopyId& copy : candidates) {
    const bool is_common = std::ranges::all_of(offers, [&](const CopyOffer& offer) {
      return std::ranges::find(offer.copies, copy) != offer.copies.end();
    });
    if (!is_common) continue;
    const bool is_verified =
        std::ranges::all_of(offers, [&](const CopyOffer& offer) { return offer.verified == copy; });
    return {.copy = copy, .is_final = is_verified};
  }
  return {.is_final = true, .why_none = WhyNone(offers)};
}

}  // namespace dslaunch
