// Reads token ids from the files of other trainers, and bytes of text as tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/mapped_file.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Returns the number of tokens in a sample; 0 if samples are not text. Data needs one token more,
// because each sample has a target after its last input. A parsed recipe has a block size unless
// its model sets it.
int64_t TokensPerSample(const DataConfig& data, const DataNeeds& needs);

// The sequence of tokens in a file. Before Read(), only headers and indices are read. Const methods
// may be called from several threads. Functions throw TrainError kBadInput or kIo, naming the file.
class TokenStream {
 public:
  // Opens a file of which each byte is a token.
  static TokenStream OpenText(const std::string& path);

  // Opens a file of tokens. Recognizes these formats, in this order:
  // - Megatron, if there is a .idx: `path` is with or without .bin (.idx); the sequences are in the
  //   order of the index;
  // - llm.c: a header of 256 int32 (20240520, 1, tokens) and uint16, or (20240801, 7, tokens) and
  //   uint32;
  // - nanoGPT: uint16 without a header. A text file is rejected.
  static TokenStream OpenTokens(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }

  // Reads the tokens from index `begin` on into `out`. Precondition: these tokens exist. Throws if
  // a token is not below vocab_size.
  void Read(int64_t begin, std::span<int64_t> out, int64_t vocab_size) const;

 private:
  enum class Type { kUint8, kUint16, kInt32, kUint32, kInt64 };
  // A run of tokens that are adjacent in the file.
  struct Run {
    int64_t begin = 0;  // index of the run's first token in the stream
    int64_t size = 0;
    uint64_t offset = 0;  // byte offset of the run in the file
  };

  TokenStream(MappedFile file, Type type) : file_(std::move(file)), type_(type) {}
  static TokenStream OpenMegatron(const std::string& index_path, const std::string& data_path);
  static size_t BytesOf(Type type);
  void AddRun(uint64_t offset, int64_t size);
  void Decode(const Run& run, int64_t begin, std::span<int64_t> out) const;

  MappedFile file_;
  Type type_;
  std::vector<Run> runs_;
  int64_t size_ = 0;
};

}  // namespace dslaunch
