#include "trainer/prepare/prepare.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/os/usable_cores.h"
#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/prepare/input_blocks.h"
#include "trainer/prepare/token_files.h"
#include "trainer/text/end_token.h"
#include "trainer/text/json_lines.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

// The tokens of a block, with the ends of its documents.
struct Encoded {
  std::vector<int32_t> ids;
  // Ends of documents in `ids`. The tokens after the last end belong to a document that continues
  // in the next block.
  std::vector<size_t> ends;
  int64_t empty_documents = 0;
};

class BlockEncoder {
 public:
  BlockEncoder(const Tokenizer& tokenizer, int32_t end_token, const std::string& key)
      : tokenizer_(tokenizer), encoder_(tokenizer), end_token_(end_token), key_(key) {}

  Encoded Encode(const InputBlock& block) {
    Encoded encoded;
    if (block.is_json) {
      EncodeLines(block, encoded);
    } else {
      EncodeText(block, encoded);
    }
    return encoded;
  }

 private:
  void EncodeText(const InputBlock& block, Encoded& encoded) {
    if (const std::optional<size_t> bad = FindInvalidUtf8(block.content)) {
      RefuseInput(block.file + ": has a byte that is not UTF-8, at offset " +
                  std::to_string(block.offset + static_cast<int64_t>(*bad)) +
                  "; convert the file, for example with iconv");
    }
    if (block.first && block.last && block.content.empty()) {
      ++encoded.empty_documents;
      return;
    }
    if (block.first) Add(tokenizer_.before(), encoded);
    EncodeAt(block.file, block.content, block.first ? TextStart::kDocument : TextStart::kContinued,
             encoded);
    if (block.last) EndDocument(encoded);
  }

  void EncodeLines(const InputBlock& block, Encoded& encoded) {
    ForEachLine(block.content, block.line, [&](std::string_view line, int64_t number) {
      if (IsBlankLine(line)) return;
      const std::string place = block.file + ":" + std::to_string(number);
      const std::string text = TextOf(line, place);
      if (text.empty()) {
        ++encoded.empty_documents;
        return;
      }
      Add(tokenizer_.before(), encoded);
      EncodeAt(place, text, TextStart::kDocument, encoded);
      EndDocument(encoded);
    });
  }

  void EncodeAt(const std::string& place, std::string_view text, TextStart start,
                Encoded& encoded) {
    try {
      encoder_.Encode(text, encoded.ids, start);
    } catch (const TrainError& error) {
      throw TrainError(error.code(), place + ": " + error.what());
    }
  }

  // Returns the text in a line of JSON. `place` is the file and line number, for messages.
  std::string TextOf(std::string_view line, const std::string& place) const {
    const nlohmann::json json = ParseJson(std::string(line), place, JsonComments::kRefuse);
    const auto found = json.is_object() ? json.find(key_) : json.end();
    if (!json.is_object() || found == json.end() || !found->is_string()) {
      RefuseInput(place + ": has no text under the key " + Quoted(key_) +
                  "; name the key of the text with --key");
    }
    return found->get<std::string>();
  }

  static void Add(const std::vector<int32_t>& ids, Encoded& encoded) {
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
  }

  void EndDocument(Encoded& encoded) const {
    Add(tokenizer_.after(), encoded);
    const std::vector<int32_t>& after = tokenizer_.after();
    if (after.empty() || after.back() != end_token_) encoded.ids.push_back(end_token_);
    encoded.ends.push_back(encoded.ids.size());
  }

  const Tokenizer& tokenizer_;
  TokenEncoder encoder_;
  int32_t end_token_;
  const std::string& key_;
};

// Encodes blocks on several threads, and returns the results in the order of the blocks.
class ParallelEncoder {
 public:
  ParallelEncoder(size_t threads, const Tokenizer& tokenizer, int32_t end_token,
                  const std::string& key) {
    for (size_t i = 0; i < threads; ++i) {
      encoders_.push_back(std::make_unique<BlockEncoder>(tokenizer, end_token, key));
    }
  }

  bool full() const { return pending_.size() == encoders_.size(); }
  bool empty() const { return pending_.empty(); }

  // Starts to encode a block. Precondition: not full().
  void Start(InputBlock block) {
    // Results are taken in order, so the encoder that was started first is idle and can be reused.
    BlockEncoder& encoder = *encoders_[started_++ % encoders_.size()];
    pending_.push_back(std::async(std::launch::async, [&encoder, block = std::move(block)] {
      return encoder.Encode(block);
    }));
  }

  // Waits for the oldest block and returns its result. The wait is bounded by the size of a block.
  // Throws the error of the block's encoder. Precondition: not empty().
  Encoded Take() {
    std::future<Encoded> oldest = std::move(pending_.front());
    pending_.pop_front();
    return oldest.get();
  }

 private:
  std::vector<std::unique_ptr<BlockEncoder>> encoders_;
  size_t started_ = 0;
  // Results in order; a future's destructor waits for its thread.
  std::deque<std::future<Encoded>> pending_;
};

void Write(const Encoded& encoded, TokenFiles& files) {
  const std::span ids = encoded.ids;
  size_t done = 0;
  for (const size_t end : encoded.ends) {
    files.Append(ids.subspan(done, end - done));
    files.EndDocument();
    done = end;
  }
  files.Append(ids.subspan(done));
}

void RefuseExisting(const std::string& output) {
  for (const std::string& path : {TokenFiles::DataPath(output), TokenFiles::IndexPath(output)}) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    throw TrainError(ExitCode::kUsage,
                     path + " is there already; give another --output, or --force to replace it");
  }
}

}  // namespace

PrepareResult PrepareData(const PrepareOptions& options) {
  if (!options.force) RefuseExisting(options.output);
  InputBlocks blocks(options.inputs);
  const Tokenizer tokenizer = Tokenizer::Read(options.tokenizer);
  const int32_t end_token = EndTokenOf(options.tokenizer, tokenizer);
  TokenFiles files(options.output, tokenizer.vocab_size());
  const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads)
                                             : static_cast<size_t>(UsableCores());
  ParallelEncoder encoder(threads, tokenizer, end_token, options.key);
  PrepareResult result;
  for (bool more = true; more || !encoder.empty();) {
    while (more && !encoder.full()) {
      std::optional<InputBlock> block = blocks.Next();
      more = block.has_value();
      if (block) encoder.Start(*std::move(block));
    }
    if (encoder.empty()) break;
    const Encoded encoded = encoder.Take();
    result.empty_documents += encoded.empty_documents;
    Write(encoded, files);
  }
  if (files.documents() == 0) RefuseInput("the input has no text: all its documents are empty");
  files.Finish();
  result.documents = files.documents();
  result.tokens = files.tokens();
  result.token_bytes = files.token_bytes();
  return result;
}

}  // namespace dslaunch
