// The tokens of a file, or of all files of a folder, as one sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/token_stream.h"

namespace dslaunch {

// Const methods may be called from several threads. Errors are TrainError, kBadInput or kIo, and
// name the file or folder.
class TokenShards {
 public:
  // Opens a file whose bytes are tokens.
  static TokenShards OpenText(const std::string& path);

  // Opens a file that TokenStream reads, or a folder: its FOLDER/`alone`.bin if there is one, else
  // all files whose names end in .bin, in the order of their names' bytes. Refuses folders with no
  // such file or more than 10000, with a .idx without .bin, and with files both for training and
  // for the evaluation ("train" and "val" in their names).
  static TokenShards OpenTokens(const std::string& path, const std::string& alone);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Reads the tokens from `begin` on, which must exist. Throws if one is not below vocab_size.
  void Read(int64_t begin, std::span<int64_t> out, int64_t vocab_size) const;

 private:
  explicit TokenShards(std::string path) : path_(std::move(path)) {}
  void Add(TokenStream stream);

  struct Shard {
    int64_t begin = 0;  // position of the file's first token
    TokenStream stream;
  };

  std::string path_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

}  // namespace dslaunch
