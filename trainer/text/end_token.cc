#include "trainer/text/end_token.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {

namespace {

std::optional<int32_t> TokenNamed(const char* key, const std::string& path,
                                  const Tokenizer& tokenizer) {
  const nlohmann::json config = ReadJsonFile(path);
  nlohmann::json token;
  if (config.is_object()) token = config.value(key, nlohmann::json());
  // Older versions of transformers write the token as an object with options, so its content is
  // read.
  if (token.is_object()) token = nlohmann::json(token.value("content", nlohmann::json()));
  if (!token.is_string()) return std::nullopt;
  const auto text = token.get<std::string>();
  const std::optional<int32_t> id = tokenizer.IdOf(text);
  if (!id) RefuseInput(path + ": " + key + " is " + Quoted(text) + ", which tokenizer.json lacks");
  return id;
}

std::string ConfigPath(const std::string& folder) { return folder + "/tokenizer_config.json"; }

}  // namespace

int32_t EndTokenOf(const std::string& folder, const Tokenizer& tokenizer) {
  const std::string path = ConfigPath(folder);
  const std::optional<int32_t> id = TokenNamed("eos_token", path, tokenizer);
  if (!id) {
    RefuseInput(path + ": names no eos_token; add the token that ends a document, such as " +
                "\"eos_token\": \"<|endoftext|>\"");
  }
  return *id;
}

std::optional<int32_t> BeginTokenOf(const std::string& folder, const Tokenizer& tokenizer) {
  return TokenNamed("bos_token", ConfigPath(folder), tokenizer);
}

}  // namespace dslaunch
