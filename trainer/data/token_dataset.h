// Opens data sets of tokens, whose samples are blocks of consecutive tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/data/dataset.h"

namespace dslaunch {

// A data set in which each sample is a block of tokens.
class TokenDataset : public Dataset {
 public:
  explicit TokenDataset(int64_t block) : block_(block) {}

  std::vector<int64_t> input_shape() const override { return {block_}; }
  int64_t tokens_per_sample() const override { return block_; }
  // Reads the tokens of sample `index`, which are its inputs and the target after the last input.
  // Precondition: the sample exists.
  virtual void ReadSample(int64_t index, std::span<int64_t> tokens) const = 0;

  Batch Fetch(std::span<const int64_t> indices) const override;

  // Divides samples into documents, each of which ends at `token`. The first token of each document
  // is marked (trainer/base/document_mark.h), and the last token has no target.
  void EndDocumentsAt(int64_t token) { end_token_ = token; }

 private:
  int64_t block_;
  std::optional<int64_t> end_token_;
};

// Opens data of type text or tokens, with `block` tokens in a sample. Throws TrainError: kBadInput,
// naming the file, for invalid data, or kIo if a file cannot be read.
DataSplits OpenTokenData(const DataConfig& data, int64_t block, int64_t vocab_size);

}  // namespace dslaunch
