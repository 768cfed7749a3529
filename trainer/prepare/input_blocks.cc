#include "trainer/prepare/input_blocks.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

bool HoldsJsonLines(const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension();
  return ending == ".json" || ending == ".jsonl" || ending == ".ndjson";
}

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

size_t EndOfTextBlock(const std::string& text) {
  // Patterns of tokenizers join white space with its neighbors. But no pattern joins a newline
  // between two non-blank ASCII characters with the character after it, so a block may end after
  // such a newline.
  const auto is_plain = [](char c) { return static_cast<uint8_t>(c) < 0x80 && !IsBlank(c); };
  const size_t half = text.size() / 2;
  for (size_t at = text.size() - 2; at > half; --at) {
    if (text[at] == '\n' && is_plain(text[at - 1]) && is_plain(text[at + 1])) return at + 1;
  }
  const size_t line = text.rfind('\n');
  if (line != std::string::npos && line + 1 > half) return line + 1;
  size_t end = text.size();
  while (end > half && IsContinuation(text[end - 1])) --end;
  // The last character may be incomplete, so the block ends before it.
  return end > half ? end - 1 : text.size();
}

InputBlocks::InputBlocks(std::vector<std::string> files) : files_(std::move(files)) {
  for (const std::string& file : files_) {
    std::error_code error;
    const auto status = std::filesystem::status(file, error);
    if (std::filesystem::is_directory(status)) {
      RefuseInput(file + " is a folder; give the files in it, such as " + file + "/*.jsonl");
    }
    if (!std::filesystem::exists(status)) RefuseInput(file + " does not exist");
  }
}

void InputBlocks::Open() {
  const std::string& file = files_[next_file_++];
  stream_ = std::ifstream(file, std::ios::binary);
  if (!stream_) throw TrainError(ExitCode::kIo, file + ": cannot be opened");
  open_ = true;
  ended_ = false;
  position_ = {.file = file, .is_json = HoldsJsonLines(file), .content = {}, .first = true};
}

void InputBlocks::Fill(size_t bytes) {
  const size_t before = rest_.size();
  if (ended_ || before >= bytes) return;
  rest_.resize(bytes);
  stream_.read(&rest_[before], static_cast<std::streamsize>(bytes - before));
  rest_.resize(before + static_cast<size_t>(stream_.gcount()));
  if (stream_.bad()) throw TrainError(ExitCode::kIo, position_.file + ": cannot be read");
  ended_ = stream_.eof();
}

// Returns the end of the last whole line in `rest_`, after reading until `rest_` has a whole line.
// Throws kBadInput if a line is too long.
size_t InputBlocks::EndOfJsonBlock() {
  for (;;) {
    const size_t newline = rest_.rfind('\n');
    if (newline != std::string::npos) return newline + 1;
    if (rest_.size() > kMaxLineBytes) {
      RefuseInput(position_.file + ":" + std::to_string(position_.line) + ": has more than " +
                  std::to_string(kMaxLineBytes) + " bytes in a line of JSON");
    }
    Fill(rest_.size() + kBlockBytes);
    if (ended_) return rest_.size();
  }
}

std::optional<InputBlock> InputBlocks::Next() {
  if (!open_) {
    if (next_file_ == files_.size()) return std::nullopt;
    Open();
  }
  Fill(kBlockBytes);
  size_t end = rest_.size();
  if (!ended_) end = position_.is_json ? EndOfJsonBlock() : EndOfTextBlock(rest_);
  InputBlock block = position_;
  block.content = rest_.substr(0, end);
  block.last = ended_ && end == rest_.size();
  rest_.erase(0, end);
  position_.first = false;
  position_.offset += static_cast<int64_t>(end);
  position_.line += std::count(block.content.begin(), block.content.end(), '\n');
  open_ = !block.last;
  return block;
}

}  // namespace dslaunch
