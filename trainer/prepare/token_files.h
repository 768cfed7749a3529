// Writes tokens in Megatron's format, which TokenStream can read. PREFIX.bin has the tokens, and
// PREFIX.idx the location of each document (Megatron-LM, core/datasets/indexed_dataset.py).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/base/durable_file.h"

namespace dslaunch {

// Writes the data file and the index file. Both get their names only when they are complete; until
// then, and after an error, existing files of these names do not change. Memory use does not grow
// with the number of documents. Throws TrainError kIo, naming the file.
class TokenFiles {
 public:
  // Creates temporary files. Tokens are uint16 if `vocab_size` is below 65500, as in Megatron, else
  // int32.
  TokenFiles(std::string prefix, int64_t vocab_size);
  ~TokenFiles();  // removes incomplete files
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  static std::string DataPath(const std::string& prefix) { return prefix + ".bin"; }
  static std::string IndexPath(const std::string& prefix) { return prefix + ".idx"; }

  // Appends tokens to the current document.
  void Append(std::span<const int32_t> ids);
  // Ends the current document. Throws kBadInput if the document has more than 2^31 - 1 tokens.
  void EndDocument();
  // Writes the index and gives the data and the index their names. Replaces existing files of these
  // names.
  void Finish();

  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  size_t token_bytes() const { return short_ ? sizeof(uint16_t) : sizeof(int32_t); }

 private:
  void WriteIndex();

  std::string prefix_;
  bool short_;
  std::optional<NewFile> data_;
  // The number of tokens of each document, as int32 in a temporary file until the index is written.
  std::optional<NewFile> lengths_;
  std::string length_buffer_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t document_begin_ = 0;  // number of tokens before the current document
};

}  // namespace dslaunch
