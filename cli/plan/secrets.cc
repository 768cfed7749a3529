#include "cli/plan/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace dslaunch {
namespace {

constexpr std::array<std::string_view, 4> kSecretWords = {"TOKEN", "KEY", "SECRET", "PASSWORD"};
constexpr char kMask[] = "***";

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

// Its last word alone is looked at: --tokenizer and --key_size are no secrets.
bool NamesSecret(std::string_view option) {
  const std::string upper = Upper(option.substr(option.find_last_of("-_.") + 1));
  return std::ranges::count(kSecretWords, upper) > 0;
}

}  // namespace

std::string MaskedValue(std::string_view name, std::string_view value) {
  const std::string upper = Upper(name);
  const bool secret = std::ranges::any_of(
      kSecretWords, [&](std::string_view word) { return upper.find(word) != std::string::npos; });
  return secret ? kMask : std::string(value);
}

std::vector<std::string> MaskedArguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> masked;
  bool value_follows = false;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const bool secret = NamesSecret(argument.substr(0, equals));
    if (value_follows && argument.front() != '-') {
      masked.push_back(kMask);
    } else if (secret && equals != std::string::npos) {
      masked.push_back(argument.substr(0, equals + 1) + kMask);
    } else {
      masked.push_back(argument);
    }
    value_follows = secret && equals == std::string::npos && argument.starts_with("-");
  }
  return masked;
}

}  // namespace dslaunch
