#include "trainer/data/chat_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/base/document_mark.h"
#include "trainer/base/mapped_file.h"
#include "trainer/base/no_target.h"
#include "trainer/chat/chat_encoder.h"
#include "trainer/data/data_file.h"
#include "trainer/text/json_lines.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxLineBytes = 64 << 20;
// Padding is never a target and comes after all other tokens, so its value does not matter.
constexpr int64_t kPadding = 0;

struct ChatLine {
  uint64_t offset = 0;  // byte offset of the line in the file
  uint32_t bytes = 0;
  uint32_t positions = 0;  // number of positions that the line occupies in its sample
};

// A file of conversations with its tokenizer. Thread-safe.
class ChatFile {
 public:
  ChatFile(const DataConfig& data, const std::string& path, int64_t block, int64_t vocab_size)
      : file_(path), block_(static_cast<size_t>(block)) {
    ChatTokenTexts texts;
    if (!data.tokenizer.empty()) {
      tokenizer_.emplace(Tokenizer::Read(data.tokenizer));
      texts = ReadChatTokenTexts(data.tokenizer, *tokenizer_, data.chat_template);
    }
    encoder_.emplace(data.chat_template, tokenizer_ ? &*tokenizer_ : nullptr, std::move(texts),
                     vocab_size);
    ReadLines();
  }

  const std::vector<ChatLine>& lines() const { return lines_; }
  int64_t cut() const { return cut_; }
  int64_t without_target() const { return without_target_; }

  ChatTokens Read(const ChatLine& line) const {
    return Encode(line, file_.path() + " at byte " + std::to_string(line.offset));
  }

  [[noreturn]] void RefuseChange() const {
    RefuseDataFile(file_.path(), "has changed while it was read; start again");
  }

 private:
  ChatTokens Encode(const ChatLine& line, const std::string& place) const {
    const std::scoped_lock lock(mutex_);
    return encoder_->Encode(std::string(content().substr(line.offset, line.bytes)), place);
  }

  std::string_view content() const {
    const auto bytes = file_.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void ReadLines() {
    const std::string_view all = content();
    ForEachLine(all, 1, [&](std::string_view line, int64_t number) {
      const std::string place = file_.path() + ":" + std::to_string(number);
      if (line.size() > kMaxLineBytes) {
        RefuseInput(place + ": has more than " + std::to_string(kMaxLineBytes) + " bytes");
      }
      if (IsBlankLine(line)) return;
      const auto offset = static_cast<uint64_t>(line.data() - all.data());
      Add({offset, static_cast<uint32_t>(line.size()), 0}, place);
    });
  }

  void Add(ChatLine line, const std::string& place) {
    const ChatTokens tokens = Encode(line, place);
    const size_t size = tokens.ids.size();
    const auto last =
        tokens.labels.begin() + static_cast<std::ptrdiff_t>(std::min(size, block_ + 1));
    // No token precedes the first token, so it cannot be a target.
    const bool has_target = size > 1 && std::any_of(tokens.labels.begin() + 1, last,
                                                    [](int64_t id) { return id != kNoTarget; });
    if (!has_target) {
      ++without_target_;
      return;
    }
    if (size > block_ + 1) ++cut_;
    line.positions = static_cast<uint32_t>(std::min(size, block_));
    lines_.push_back(line);
  }

  MappedFile file_;
  size_t block_;
  std::optional<Tokenizer> tokenizer_;
  mutable std::mutex mutex_;
  mutable std::optional<ChatEncoder> encoder_;
  std::vector<ChatLine> lines_;
  int64_t cut_ = 0;
  int64_t without_target_ = 0;
};

// Assigns each line, in order, to the first of the last kOpenSamples samples that has room for it,
// or to a new sample. Returns the indices of the lines in each sample.
std::vector<std::vector<uint32_t>> Pack(std::span<const ChatLine> lines, int64_t block) {
  constexpr size_t kOpenSamples = 64;
  std::vector<std::vector<uint32_t>> samples;
  std::vector<int64_t> room;  // remaining number of tokens of each sample
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t positions = lines[i].positions;
    size_t sample = samples.size() > kOpenSamples ? samples.size() - kOpenSamples : 0;
    while (sample < samples.size() && room[sample] < positions) ++sample;
    if (sample == samples.size()) {
      samples.emplace_back();
      room.push_back(block);
    }
    samples[sample].push_back(static_cast<uint32_t>(i));
    room[sample] -= positions;
  }
  return samples;
}

// A data set of consecutive lines of a file: each sample has one line, or several if lines are
// packed.
class ChatDataset : public Dataset {
 public:
  ChatDataset(const DataConfig& data, std::shared_ptr<const ChatFile> file, size_t first,
              size_t count, int64_t block)
      : file_(std::move(file)),
        lines_(std::span(file_->lines()).subspan(first, count)),
        block_(block),
        packing_(data.packing),
        marks_(data.documents) {
    if (packing_) samples_ = Pack(lines_, block_);
  }

  int64_t size() const override {
    return static_cast<int64_t>(packing_ ? samples_.size() : lines_.size());
  }
  std::vector<int64_t> input_shape() const override { return {block_}; }
  int64_t tokens_per_sample() const override { return block_; }

  Batch Fetch(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{at::empty({count, block_}, at::kLong), at::empty({count, block_}, at::kLong)};
    auto* input = batch.inputs.mutable_data_ptr<int64_t>();
    auto* target = batch.targets.mutable_data_ptr<int64_t>();
    std::fill_n(input, batch.inputs.numel(), kPadding);
    std::fill_n(target, batch.targets.numel(), kNoTarget);
    for (const int64_t index : indices) {
      CheckSampleIndex(index, size());
      const auto number = static_cast<uint32_t>(index);
      const std::span<const uint32_t> lines =
          packing_ ? std::span<const uint32_t>(samples_[number]) : std::span(&number, 1);
      size_t at = 0;
      for (const uint32_t line : lines) {
        Write(lines_[line], input + at, target + at);
        if (marks_ && at > 0) input[at] = MarkDocumentStart(input[at]);
        at += lines_[line].positions;
      }
      input += block_;
      target += block_;
    }
    return batch;
  }

 private:
  void Write(const ChatLine& line, int64_t* input, int64_t* target) const {
    const ChatTokens tokens = file_->Read(line);
    if (tokens.ids.size() < line.positions) file_->RefuseChange();
    std::copy_n(tokens.ids.begin(), line.positions, input);
    const size_t targets = std::min<size_t>(line.positions, tokens.ids.size() - 1);
    std::copy_n(tokens.labels.begin() + 1, targets, target);
  }

  std::shared_ptr<const ChatFile> file_;
  std::span<const ChatLine> lines_;
  int64_t block_;
  bool packing_;
  bool marks_;
  std::vector<std::vector<uint32_t>> samples_;  // indices of the lines in each packed sample
};

// Returns a line about the lines of a file that are cut or omitted in samples; "" if all are whole.
std::string NoticeOf(const ChatFile& file, const std::string& path) {
  std::string line;
  const auto lines = [](int64_t count) {
    return std::to_string(count) + (count == 1 ? " line is " : " lines are ");
  };
  if (file.cut() > 0) line = lines(file.cut()) + "cut to data.block_size tokens";
  if (file.without_target() > 0) {
    line += (line.empty() ? "" : ", ") + lines(file.without_target()) +
            "left out for lack of an answer in them";
  }
  return line.empty() ? "" : path + ": " + line;
}

}  // namespace

DataSplits OpenChatData(const DataConfig& data, int64_t block, int64_t vocab_size) {
  DataSplits splits;
  const auto open = [&](const std::string& path) {
    auto file = std::make_shared<const ChatFile>(data, path, block, vocab_size);
    if (file->lines().empty()) {
      RefuseDataFile(path, "has no line with an answer in its first " + std::to_string(block) +
                               " tokens (data.block_size)");
    }
    splits.test_notice = NoticeOf(*file, path);
    if (!splits.notice.empty() && !splits.test_notice.empty()) splits.notice += "; ";
    splits.notice += splits.test_notice;
    return file;
  };
  const auto part = [&](const std::shared_ptr<const ChatFile>& file, size_t first, size_t count) {
    return std::make_unique<ChatDataset>(data, file, first, count, block);
  };
  const std::shared_ptr<const ChatFile> file = open(data.path);
  const size_t lines = file->lines().size();
  const auto test_lines = static_cast<size_t>(ValidationCount(data, static_cast<int64_t>(lines)));
  if (data.val_fraction > 0 && (test_lines == 0 || test_lines == lines)) {
    RefuseDataFile(data.path, std::to_string(lines) +
                                  " lines cannot be divided by data.val_fraction, which keeps " +
                                  std::to_string(test_lines) + " of them for the evaluation");
  }
  splits.train = part(file, 0, lines - test_lines);
  if (test_lines > 0) {
    splits.test = part(file, lines - test_lines, test_lines);
  } else if (!data.val_path.empty()) {
    const std::shared_ptr<const ChatFile> test = open(data.val_path);
    splits.test = part(test, 0, test->lines().size());
  }
  return splits;
}

bool IsChatData(const Dataset& data) { return dynamic_cast<const ChatDataset*>(&data) != nullptr; }

}  // namespace dslaunch
