// Writes tokens in Megatron's format, which TokenStream reads: PREFIX.bin has the tokens,
// PREFIX.idx the position of each document (Megatron-LM, core/datasets/indexed_dataset.py).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/base/durable_file.h"

namespace dslaunch {

// Both files appear under their names only when complete; until then, and after an error, nothing
// under these names changes. Memory does not grow with the number of documents. Errors are
// TrainError kIo and name the file.
class TokenFiles {
 public:
  // Tokens are uint16 if `vocab_size` is below 65500, as in Megatron, else int32.
  TokenFiles(std::string prefix, int64_t vocab_size);
  ~TokenFiles();  // removes incomplete files
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  static std::string DataPath(const std::string& prefix) { return prefix + ".bin"; }
  static std::string IndexPath(const std::string& prefix) { return prefix + ".idx"; }

  // Adds tokens to the current document.
  void Append(std::span<const int32_t> ids);
  // Ends the current document. Throws kBadInput if it has more than 2^31 - 1 tokens.
  void EndDocument();
  // Writes the index and gives both files their names, replacing existing files.
  void Finish();

  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  size_t token_bytes() const { return short_ ? sizeof(uint16_t) : sizeof(int32_t); }

 private:
  void WriteIndex();

  std::string prefix_;
  bool short_;
  std::optional<NewFile> data_;
  std::optional<NewFile> lengths_;  // an int32 for each document, until the index is written
  std::string length_buffer_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t document_begin_ = 0;  // tokens before the current document
};

}  // namespace dslaunch
