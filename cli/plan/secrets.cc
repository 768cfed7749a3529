#include "cli/plan/secrets.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

namespace dslaunch {
namespace {

constexpr char kMask[] = "***";
// Longest number that is shown; a longer number may be a secret.
constexpr size_t kMaxNumberBytes = 12;
constexpr std::string_view kBlanks = " \t\r\n\v\f";
constexpr std::string_view kQuotes = "\"'`";

// A name indicates a secret if it has a word that equals one of these, or ends with one.
constexpr std::string_view kSecretWords[] = {  // words at any place in a name
    "password", "passwd",    "passphrase", "secret",     "credential", "credentials",
    "apikey",   "accesskey", "secretkey",  "privatekey", "authtoken"};
// A name also indicates a secret if its last word is one of these.
constexpr std::string_view kSecretLastWords[] = {  // last words of a name
    "token",  "key",     "pass",   "pgpass", "dbpass",    "pwd", "auth", "authorization",
    "bearer", "creds",   "cookie", "jwt",    "pat",       "sas", "dsn",  "otp",
    "pin",    "secrets", "cred",   "sig",    "signature", "pw"};
// A name with one of these last words indicates a place or a size instead of a secret.
constexpr std::string_view kHarmlessLastWords[] = {  // last words of a name
    "file",   "path",  "dir",  "folder", "name",  "size", "len",
    "length", "count", "type", "column", "index", "fd"};
// Words of data sets and vocabularies before "token" and "key", which make a name harmless.
constexpr std::string_view kHarmlessBefore[] = {  // words before the last word of a name
    "pad",  "eos",  "bos",   "unk",   "mask",  "sep",    "cls",    "special", "stop",
    "sort", "text", "label", "image", "input", "output", "target", "public",  "prompt"};

// Prefixes of variables whose values are shown, because launchers, libraries and shells read no
// secrets from them.
constexpr std::string_view kHarmlessPrefixes[] = {  // variables of libraries and launchers
    "NCCL_",   "RCCL_",      "GLOO_",          "UCX_",      "MV2_",    "FI_",        "OMP_",
    "GOMP_",   "KMP_",       "MKL_",           "OPENBLAS_", "BLIS_",   "DNNL_",      "ONEDNN_",
    "CUDA_",   "CUDNN_",     "CUBLAS_",        "NVIDIA_",   "HIP_",    "HSA_",       "ROCR_",
    "TORCH_",  "PYTORCH_",   "TORCHELASTIC_",  "ZE_",       "CCL_",    "ASCEND_",    "HCCL_",
    "HABANA_", "MLU_",       "TORCHINDUCTOR_", "TRITON_",   "TF_CPP_", "TF_ENABLE_", "DSLAUNCH_",
    "PET_",    "DEEPSPEED_", "GLIBC_",         "MALLOC_",   "LC_",     "PYTHON",     "SLURM_",
    "XDG_",    "LD_"};
constexpr std::string_view kHarmlessNames[] = {  // variables of shells, launchers and data caches
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "HOSTNAME",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "DISPLAY",
    "EDITOR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "RANK",
    "WORLD_SIZE",
    "NODE_RANK",
    "CROSS_RANK",
    "CROSS_SIZE",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "LOCAL_WORLD_SIZE",
    "LOCAL_HOST",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MASTER_HOST",
    "DS_ACCELERATOR",
    "DS_ENV_FILE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_DATASETS_CACHE",
    "HF_DATASETS_OFFLINE",
    "TRANSFORMERS_CACHE",
    "TRANSFORMERS_OFFLINE",
    "TOKENIZERS_PARALLELISM",
    "WANDB_MODE",
    "WANDB_PROJECT",
    "WANDB_DIR",
    "WANDB_NAME",
    "WANDB_ENTITY",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_NAME"};

// The prefix of a well-known kind of token, and the least length of such a token.
struct TokenForm {
  std::string_view prefix;
  size_t min_bytes;
};
constexpr TokenForm kTokenForms[] = {
    {"sk-", 20},   {"sk_live_", 16},  {"sk_test_", 16}, {"rk_live_", 16},    {"ghp_", 20},
    {"gho_", 20},  {"ghu_", 20},      {"ghs_", 20},     {"github_pat_", 20}, {"glpat-", 16},
    {"hf_", 23},   {"xoxb-", 16},     {"xoxp-", 16},    {"xapp-", 16},       {"AIza", 30},
    {"ya29.", 20}, {"npm_", 24},      {"pypi-", 40},    {"dop_v1_", 20},     {"nvapi-", 20},
    {"gsk_", 20},  {"wandb_v1_", 16}, {"AKIA", 20},     {"ASIA", 20}};

bool IsOneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsNameByte(char c) { return IsAlnum(c) || c == '_' || c == '-' || c == '.'; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Splits a name into lower-case words: "--hf_apiToken2" into hf, api, token. Omits numbers at the
// end.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins = i > 0 && IsUpper(name[i]) && IsLower(name[i - 1]);
    if ((begins || !IsAlnum(name[i])) && !words.back().empty()) words.emplace_back();
    if (IsAlnum(name[i])) words.back() += name[i];
  }
  for (std::string& word : words) {
    while (!word.empty() && IsDigit(word.back())) word.pop_back();
    word = Lower(word);
  }
  std::erase(words, "");
  return words;
}

bool HasSecretWord(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    return std::ranges::any_of(kSecretWords,
                               [&](std::string_view secret) { return word.ends_with(secret); });
  });
}

bool IsHarmlessVariable(std::string_view name) {
  return IsOneOf(name, kHarmlessNames) ||
         std::ranges::any_of(kHarmlessPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Returns whether the value is a number, a boolean, empty or a similar word such as "auto".
bool IsHarmlessValue(std::string_view value) {
  static constexpr std::string_view kWords[] = {"",   "true", "false", "yes",  "no",
                                                "on", "off",  "none",  "null", "auto"};
  if (IsOneOf(Lower(value), kWords)) return true;
  if (value.size() > kMaxNumberBytes) return false;
  double number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  return status == std::errc() && end == value.data() + value.size();
}

bool IsAllDigits(std::string_view text) { return std::ranges::all_of(text, IsDigit); }

// Returns `text` with the passwords in "scheme://user:password@host" hidden. A user without a
// password is hidden with HTTP, because the name may be a token.
std::string WithoutUrlPasswords(std::string text) {
  size_t from = 0;
  while (true) {
    const size_t mark = text.find("://", from);
    if (mark == std::string::npos) return text;
    size_t scheme = mark;
    while (scheme > 0 && (IsNameByte(text[scheme - 1]) || text[scheme - 1] == '+')) --scheme;
    const bool is_http =
        Lower(text.substr(scheme, mark - scheme)).find("http") != std::string::npos;
    const size_t begin = mark + 3;
    from = begin;
    const size_t word_end = std::min(text.find_first_of(" \t\r\n\"'`<>", begin), text.size());
    size_t end = std::min(text.find_first_of("/?#", begin), word_end);
    const size_t colon = text.find(':', begin);
    const bool may_have_slash =
        colon < end && text[begin] != '[' &&
        !IsAllDigits(std::string_view(text).substr(colon + 1, end - colon - 1));
    const bool has_at = text.substr(begin, end - begin).find('@') != std::string::npos;
    if (!has_at && may_have_slash) end = word_end;  // the password contains a slash
    const size_t at = text.substr(0, end).rfind('@');
    if (at == std::string::npos || at < begin) continue;
    if (colon < at)
      text.replace(colon + 1, at - colon - 1, kMask);
    else if (is_http)
      text.replace(begin, at - begin, kMask);
  }
}

// Returns whether a word has the form of a token.
bool IsToken(std::string_view word) {
  const bool is_jwt =
      word.starts_with("eyJ") && word.size() >= 30 && std::ranges::count(word, '.') == 2;
  return is_jwt || std::ranges::any_of(kTokenForms, [&](const TokenForm& form) {
           if (!word.starts_with(form.prefix) || word.size() < form.min_bytes) return false;
           const std::string_view rest = word.substr(form.prefix.size());
           // Tokens of Hugging Face may have letters only, so mixed case is enough. Words that
           // people write have one case.
           return (std::ranges::any_of(rest, IsDigit) ||
                   (std::ranges::any_of(rest, IsUpper) && std::ranges::any_of(rest, IsLower))) &&
                  (form.prefix != "hf_" || std::ranges::all_of(rest, IsAlnum));
         });
}

std::string WithoutTokens(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto end = std::ranges::find_if_not(text, IsNameByte);
    const auto size = static_cast<size_t>(end - text.begin());
    if (IsToken(text.substr(0, size)))
      shown += kMask;
    else
      shown += text.substr(0, size);
    text.remove_prefix(size);
    if (text.empty()) break;
    shown += text.front();
    text.remove_prefix(1);
  }
  return shown;
}

// Masks secrets in a text or in arguments. The state is what the previous word implies for the next
// one.
class Masker {
 public:
  // Masks an argument, which may contain blanks.
  std::string Argument(const std::string& argument) {
    if (const std::optional<std::string> masked = AsExpected(argument)) return *masked;
    const size_t equals = argument.find('=');
    const std::string_view name = std::string_view(argument).substr(0, equals);
    if (equals != std::string::npos && std::ranges::all_of(name, IsNameByte)) {
      const std::string value = argument.substr(equals + 1);
      if (name == "--env") return std::string(name) + "=" + Variable(value);
      if (name.starts_with("-x") && name.size() > 2) return "-x" + Variable(argument.substr(2));
      if (NamesSecret(name)) return std::string(name) + "=" + kMask;
    }
    if (argument.find_first_of(kBlanks) != std::string::npos) return MaskedText(argument);
    return Word(argument);
  }

  // Masks the words of a text and keeps the blanks between them.
  std::string Text(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
      const size_t blanks = std::min(text.find_first_not_of(kBlanks), text.size());
      shown += text.substr(0, blanks);
      text.remove_prefix(blanks);
      if (text.empty()) break;
      const size_t size = std::min(text.find_first_of(kBlanks), text.size());
      const std::string word(text.substr(0, size));
      text.remove_prefix(size);
      if (next_ == Next::kRest) return shown + kMask;
      const std::optional<std::string> masked = AsExpected(word);
      shown += masked ? *masked : Word(word);
    }
    return shown;
  }

 private:
  // The meaning that the previous word gives to the next word.
  enum class Next { kNothing, kSecret, kVariable, kLogin, kSshpass, kQuoted, kRest };

  // Masks NAME=VALUE; returns a name without a value unchanged.
  static std::string Variable(std::string_view text) {
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::string(text);
    const std::string_view name = text.substr(0, equals);
    return std::string(name) + "=" + MaskedValue(name, text.substr(equals + 1));
  }

  // Masks a word as the previous words require. Returns nullopt if the previous words imply nothing
  // for this word.
  std::optional<std::string> AsExpected(const std::string& word) {
    const Next expected = std::exchange(next_, Next::kNothing);
    switch (expected) {
      case Next::kSecret:
        if (word.starts_with('-')) return std::nullopt;
        return kMask;
      case Next::kVariable:
        return Variable(word);
      case Next::kLogin: {
        const size_t colon = word.find(':');
        if (colon == std::string::npos || IsAllDigits(std::string_view(word).substr(colon + 1)))
          return std::nullopt;
        return word.substr(0, colon + 1) + kMask;
      }
      case Next::kSshpass:
        if (word == "-p")
          next_ = Next::kSecret;
        else if (word.starts_with("-p"))
          return std::string("-p") + kMask;
        return std::nullopt;
      case Next::kQuoted: {
        const size_t end = word.find(quote_);
        if (end == std::string::npos) next_ = Next::kQuoted;
        return end == std::string::npos ? "" : word.substr(end);
      }
      case Next::kRest:
        return kMask;
      case Next::kNothing:
        break;
    }
    return std::nullopt;
  }

  // Masks a word without blanks.
  std::string Word(const std::string& word) {
    Expect(word);
    return WithoutTokens(WithoutSecretValues(WithoutUrlPasswords(word)));
  }

  void Expect(std::string_view word) {
    while (!word.empty() && kQuotes.find(word.front()) != std::string_view::npos)
      word.remove_prefix(1);
    const std::string lower = Lower(word);
    if (lower == "bearer") next_ = Next::kSecret;
    if (lower == "sshpass" || lower.ends_with("/sshpass")) next_ = Next::kSshpass;
    if (!word.starts_with('-') || !std::ranges::all_of(word, IsNameByte)) return;
    if (word == "--env" || word == "-x")
      next_ = Next::kVariable;
    else if (word == "-u" || word == "--user" || word == "--proxy-user")
      next_ = Next::kLogin;
    else if (NamesSecret(word))
      next_ = Next::kSecret;
  }

  // Masks the values that follow the '=' or ':' of secret names in a word.
  std::string WithoutSecretValues(const std::string& word) {
    std::string shown;
    size_t shown_to = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '=' && word[i] != ':') continue;
      size_t name_end = i;
      while (name_end > shown_to && IsQuote(word[name_end - 1])) --name_end;
      size_t name = name_end;
      while (name > shown_to && IsNameByte(word[name - 1])) --name;
      if (!NamesSecret(word.substr(name, name_end - name))) continue;
      size_t begin = i + 1;
      while (begin < word.size() && IsQuote(word[begin])) ++begin;
      const bool is_quoted = begin > i + 1;
      if (word[i] == ':' && begin == word.size()) {
        next_ = Next::kRest;  // the word belongs to an HTTP header or is a key of YAML
        break;
      }
      // Text after ':' is a secret only after a secret name: "host:key:1" is not a secret;
      // "password:x" and {"token":"x"} are.
      if (word[i] == ':' && !is_quoted &&
          !HasSecretWord(WordsOf(word.substr(name, name_end - name))))
        continue;
      const size_t end =
          std::min(word.find_first_of(is_quoted ? "\"'`" : "&;\"'`}", begin), word.size());
      if (is_quoted && end == word.size()) {  // the secret continues after a blank
        next_ = Next::kQuoted;
        quote_ = word[begin - 1];
      }
      shown += word.substr(shown_to, begin - shown_to) + kMask;
      shown_to = end;
      i = end == word.size() ? end : end - 1;
    }
    return shown + word.substr(shown_to);
  }

  static bool IsQuote(char c) { return kQuotes.find(c) != std::string_view::npos; }

  Next next_ = Next::kNothing;
  char quote_ = '"';  // the quote that ends a secret in state kQuoted
};

}  // namespace

bool NamesSecret(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty() || IsOneOf(words.back(), kHarmlessLastWords)) return false;
  if (HasSecretWord(words)) return true;
  const std::string& last = words.back();
  const bool is_last = IsOneOf(last, kSecretLastWords) || last.ends_with("token");
  if (!is_last) return false;
  const bool has_kind = words.size() > 1 && (last == "token" || last == "key");
  return !has_kind || !IsOneOf(words[words.size() - 2], kHarmlessBefore);
}

std::string MaskedValue(std::string_view name, std::string_view value) {
  const bool is_shown = (IsHarmlessVariable(name) || IsHarmlessValue(value)) &&
                        (!NamesSecret(name) || IsOneOf(name, kHarmlessNames));
  return is_shown ? MaskedText(value) : kMask;
}

std::string MaskedSetting(std::string_view key, std::string_view value) {
  return NamesSecret(key) ? kMask : MaskedText(value);
}

std::vector<std::string> MaskedArguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> masked;
  Masker masker;
  for (const std::string& argument : arguments) masked.push_back(masker.Argument(argument));
  return masked;
}

std::string MaskedText(std::string_view text) {
  const size_t pem = text.find("-----BEGIN ");
  if (pem != std::string_view::npos && text.find("PRIVATE KEY-----", pem) != std::string_view::npos)
    return kMask;
  return Masker().Text(text);
}

}  // namespace dslaunch
