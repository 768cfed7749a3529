// What must not be shown or stored of an environment and a command line. Pure. A hidden value reads
// "***".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Whether the name of an option, a key or a variable says that its value is a secret: its words
// are looked at, separated by '_', '-', '.' or capitals. "hf_token", "apiKey" and "client-secret"
// are secrets; "tokenizer", "max_tokens", "key_size" and "password_file" are none.
bool NamesSecret(std::string_view name);

// The value of an environment variable. It is hidden unless the variable is known to be harmless
// (NCCL_*, CUDA_*, PATH, LANG ...) or the value is a number or a boolean. A shown value is a
// MaskedText.
std::string MaskedValue(std::string_view name, std::string_view value);

// The text value of a recipe's key: hidden where the name says so, else a MaskedText.
std::string MaskedSetting(std::string_view key, std::string_view value);

// The arguments of a command, without the values of secret options and assignments (--hf_token=x,
// --api-key x, DB_PASSWORD=x) and of variables (--env NAME=VALUE, as by MaskedValue). Each other
// argument is a MaskedText.
std::vector<std::string> MaskedArguments(const std::vector<std::string>& arguments);

// `text` without passwords of URLs and logins, values of secret names (in queries, JSON, HTTP
// headers, shell commands), bearer tokens, private keys, and words in the form of well-known
// tokens (ghp_..., hf_..., JWT).
std::string MaskedText(std::string_view text);

}  // namespace dslaunch
