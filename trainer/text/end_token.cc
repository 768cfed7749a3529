#include "trainer/text/end_token.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {

int32_t EndTokenOf(const std::string& folder, const Tokenizer& tokenizer) {
  const std::string path = folder + "/tokenizer_config.json";
  const nlohmann::json config = ReadJsonFile(path);
  nlohmann::json token;
  if (config.is_object()) token = config.value("eos_token", nlohmann::json());
  // A token with options, as older versions of transformers write it.
  if (token.is_object()) token = nlohmann::json(token.value("content", nlohmann::json()));
  if (!token.is_string()) {
    RefuseInput(path + ": names no eos_token; add the token that ends a document, such as " +
                "\"eos_token\": \"<|endoftext|>\"");
  }
  const auto text = token.get<std::string>();
  const std::optional<int32_t> id = tokenizer.IdOf(text);
  if (!id) {
    RefuseInput(path + ": eos_token is " + Quoted(text) + ", which tokenizer.json lacks");
  }
  return *id;
}

}  // namespace dslaunch
