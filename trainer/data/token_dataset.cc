#include "trainer/data/token_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <string>

#include "trainer/base/document_mark.h"
#include "trainer/base/no_target.h"
#include "trainer/base/train_error.h"
#include "trainer/data/data_file.h"
#include "trainer/data/mixture.h"
#include "trainer/data/token_shards.h"

namespace dslaunch {
namespace {

// Names of files, without .bin, that are read, if they exist, instead of all files of the folder.
constexpr char kTrain[] = "train";
constexpr char kVal[] = "val";

// A data set of disjoint blocks of consecutive tokens, beginning at token `first`. The last target
// of a block is the first input of the next block.
class StreamDataset : public TokenDataset {
 public:
  StreamDataset(std::shared_ptr<const TokenShards> shards, int64_t first, int64_t tokens,
                int64_t block, int64_t vocab_size)
      : TokenDataset(block),
        shards_(std::move(shards)),
        first_(first),
        size_(tokens > 0 ? (tokens - 1) / block : 0),
        block_(block),
        vocab_size_(vocab_size) {
    if (size_ == 0) {
      throw TrainError(ExitCode::kBadInput,
                       shards_->path() + ": " + std::to_string(tokens) + " tokens from token " +
                           std::to_string(first) + " on are fewer than data.block_size + 1, " +
                           std::to_string(block + 1) + ", so they do not make a sample");
    }
  }

  int64_t size() const override { return size_; }
  void ReadSample(int64_t index, std::span<int64_t> tokens) const override {
    shards_->Read(first_ + index * block_, tokens, vocab_size_);
  }

 private:
  std::shared_ptr<const TokenShards> shards_;
  int64_t first_;
  int64_t size_;  // number of samples
  int64_t block_;
  int64_t vocab_size_;
};

// A data set whose samples alternate between several sources by weight. It has as many samples as
// all sources together, so sources of large weight are repeated, and sources of small weight are
// not read to the end.
class MixedDataset : public TokenDataset {
 public:
  MixedDataset(std::vector<std::unique_ptr<TokenDataset>> sources, std::span<const double> weights,
               int64_t block)
      : TokenDataset(block), sources_(std::move(sources)), mixture_(weights) {
    for (const auto& source : sources_) size_ += source->size();
  }

  int64_t size() const override { return size_; }
  void ReadSample(int64_t index, std::span<int64_t> tokens) const override {
    const auto [source, number] = mixture_.At(index);
    const TokenDataset& samples = *sources_[static_cast<size_t>(source)];
    samples.ReadSample(number % samples.size(), tokens);
  }

 private:
  std::vector<std::unique_ptr<TokenDataset>> sources_;
  Mixture mixture_;
  int64_t size_ = 0;
};

struct Reading {
  const DataConfig& data;
  int64_t block;
  int64_t vocab_size;
};

std::unique_ptr<TokenDataset> Part(const Reading& reading,
                                   std::shared_ptr<const TokenShards> shards, int64_t first,
                                   int64_t tokens) {
  return std::make_unique<StreamDataset>(std::move(shards), first, tokens, reading.block,
                                         reading.vocab_size);
}

std::shared_ptr<const TokenShards> Open(const Reading& reading, const std::string& path,
                                        const char* alone) {
  return std::make_shared<const TokenShards>(reading.data.type == DataConfig::Type::kText
                                                 ? TokenShards::OpenText(path)
                                                 : TokenShards::OpenTokens(path, alone));
}

std::unique_ptr<TokenDataset> Whole(const Reading& reading, const std::string& path,
                                    const char* alone) {
  const std::shared_ptr<const TokenShards> shards = Open(reading, path, alone);
  return Part(reading, shards, 0, shards->size());
}

std::unique_ptr<TokenDataset> Mixed(const Reading& reading) {
  std::vector<std::unique_ptr<TokenDataset>> sources;
  std::vector<double> weights;
  for (const DataSource& source : reading.data.sources) {
    sources.push_back(Whole(reading, source.path, kTrain));
    weights.push_back(source.weight);
  }
  return std::make_unique<MixedDataset>(std::move(sources), weights, reading.block);
}

// Returns the path of the data for evaluation; empty without such data.
std::string TestPath(const DataConfig& data) {
  if (!data.val_path.empty() || data.type == DataConfig::Type::kText || !data.sources.empty()) {
    return data.val_path;
  }
  const bool divided = FileExists(data.path + "/" + kTrain + ".bin");
  const std::string val = data.path + "/" + kVal + ".bin";
  return divided && data.val_fraction == 0 && FileExists(val) ? val : "";
}

}  // namespace

Batch TokenDataset::Fetch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, block_}, at::kLong), at::empty({count, block_}, at::kLong)};
  auto* input = batch.inputs.mutable_data_ptr<int64_t>();
  auto* target = batch.targets.mutable_data_ptr<int64_t>();
  std::vector<int64_t> tokens(static_cast<size_t>(block_) + 1);
  for (const int64_t index : indices) {
    CheckSampleIndex(index, size());
    ReadSample(index, tokens);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const bool begins = i > 0 && tokens[i - 1] == end_token_;
      *input++ = begins ? MarkDocumentStart(tokens[i]) : tokens[i];
      *target++ = tokens[i] == end_token_ ? kNoTarget : tokens[i + 1];
    }
  }
  return batch;
}

DataSplits OpenTokenData(const DataConfig& data, int64_t block, int64_t vocab_size) {
  if (data.type == DataConfig::Type::kText && vocab_size < 256) {
    throw TrainError(ExitCode::kBadInput,
                     "model.vocab_size is " + std::to_string(vocab_size) +
                         ", but data.type text has a token for each of the 256 bytes");
  }
  const Reading reading{data, block, vocab_size};
  std::unique_ptr<TokenDataset> train, test;
  if (!data.sources.empty()) {
    train = Mixed(reading);
  } else {
    const std::shared_ptr<const TokenShards> shards = Open(reading, data.path, kTrain);
    const int64_t test_tokens = ValidationCount(data, shards->size());
    const int64_t train_tokens = shards->size() - test_tokens;
    train = Part(reading, shards, 0, train_tokens);
    if (data.val_fraction > 0) test = Part(reading, shards, train_tokens, test_tokens);
  }
  if (const std::string path = TestPath(data); !path.empty()) test = Whole(reading, path, kVal);
  if (data.documents) {
    train->EndDocumentsAt(*data.eos_token_id);
    if (test) test->EndDocumentsAt(*data.eos_token_id);
  }
  return {std::move(train), std::move(test)};
}

}  // namespace dslaunch
