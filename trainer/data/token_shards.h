// Reads the tokens of a file, or of all files of a folder, as one sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/token_stream.h"

namespace dslaunch {

// The tokens of one or several files. Const methods may be called from several threads. Functions
// throw TrainError kBadInput or kIo, naming the file or folder.
class TokenShards {
 public:
  // Opens a file of which each byte is a token.
  static TokenShards OpenText(const std::string& path);

  // Opens a file that TokenStream can read, or a folder. In a folder, opens FOLDER/`alone`.bin if
  // it exists, else all files whose names end in .bin, in the order of their names' bytes. Throws
  // for folders that have no such file or more than 10000, that have a .idx without .bin, or that
  // have files both for training and for evaluation ("train" and "val" in their names).
  static TokenShards OpenTokens(const std::string& path, const std::string& alone);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Reads the tokens from index `begin` on into `out`. Precondition: these tokens exist. Throws if
  // a token is not below vocab_size.
  void Read(int64_t begin, std::span<int64_t> out, int64_t vocab_size) const;

 private:
  explicit TokenShards(std::string path) : path_(std::move(path)) {}
  void Add(TokenStream stream);

  struct Shard {
    int64_t begin = 0;  // index of the file's first token in the sequence of all files
    TokenStream stream;
  };

  std::string path_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

}  // namespace dslaunch
