// Hides secrets of an environment and a command line before they are shown or stored. Replaces a
// hidden value by "***". All functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns whether the name of an option, a key or a variable indicates a secret value. Looks at the
// words of the name, separated by '_', '-', '.' or capitals: "hf_token", "apiKey" and
// "client-secret" indicate secrets; "tokenizer", "max_tokens", "key_size" and "password_file" do
// not.
bool NamesSecret(std::string_view name);

// Returns the value of an environment variable for display. The value is hidden if the name
// indicates a secret. Otherwise it is shown only if the variable is known to be harmless (NCCL_*,
// CUDA_*, PATH, LANG ...), or if the value is a number or a boolean. A shown value is masked by
// MaskedText.
std::string MaskedValue(std::string_view name, std::string_view value);

// Returns the text value of a recipe's key for display: hidden if NamesSecret(key), else masked by
// MaskedText.
std::string MaskedSetting(std::string_view key, std::string_view value);

// Returns the arguments of a command without the values of secret options and assignments
// (--hf_token=x, --api-key x, DB_PASSWORD=x), and with the values of variables (--env NAME=VALUE)
// masked by MaskedValue. Every other argument is masked by MaskedText.
std::vector<std::string> MaskedArguments(const std::vector<std::string>& arguments);

// Returns `text` without passwords of URLs and logins, values of secret names (in queries, JSON,
// HTTP headers, shell commands), bearer tokens, private keys, and words in the form of well-known
// tokens (ghp_..., hf_..., JWT).
std::string MaskedText(std::string_view text);

}  // namespace dslaunch
