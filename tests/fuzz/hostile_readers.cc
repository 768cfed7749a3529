#include "tests/fuzz/hostile_readers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/pickle/pickle.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/requirement.h"
#include "tests/support/temp_dir.h"
#include "trainer/base/crc32.h"
#include "trainer/base/no_target.h"
#include "trainer/base/train_error.h"
#include "trainer/chat/chat_encoder.h"
#include "trainer/checkpoint/lease_core.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/rank_record.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shared_check.h"
#include "trainer/checkpoint/write_journal.h"
#include "trainer/comm/links/store_core.h"
#include "trainer/config/json/json_object.h"
#include "trainer/config/lora_config.h"
#include "trainer/config/model_family.h"
#include "trainer/data/image_file.h"
#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/distributed_metadata.h"
#include "trainer/foreign/state_dict.h"
#include "trainer/memory_checkpoint/agreement.h"
#include "trainer/memory_checkpoint/copy_layout.h"
#include "trainer/memory_checkpoint/slot_header.h"
#include "trainer/program/evaluation_texts.h"
#include "trainer/text/pattern.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/unicode.h"
#include "trainer/weights/adapter_record.h"
#include "trainer/weights/config_json.h"
#include "trainer/weights/json_file.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

// Returns whether read() accepts its input. A refusal must satisfy the requirements of this folder.
template <class Read>
bool Accepts(Read read) {
  try {
    read();
    return true;
  } catch (const TrainError& error) {
    Require(error.code() == ExitCode::kBadInput, "bad content is not refused as bad input");
    RequireOneLine(error.what());
    return false;
  }
}

// Replaces a file by a new file instead of truncating it, because some file systems wait for the
// disk when a file is truncated.
void Replace(const std::string& file, const std::string& content) {
  std::filesystem::remove(file);
  std::ofstream(file, std::ios::binary) << content;
}

}  // namespace

bool ReadsSafetensors(const std::string& file) {
  const MemoryFile memory(file);
  return Accepts([&] {
    const SafetensorsFile reader(memory.path());
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const auto& [name, tensor] : reader.tensors()) {
      Require(tensor.begin >= 8 && tensor.begin <= tensor.end && tensor.end <= file.size(),
              "a tensor lies outside of the file");
      const auto bytes = static_cast<uint64_t>(NumElements(tensor.shape).value()) *
                         DtypeBytes(tensor.dtype).value();
      Require(bytes == tensor.end - tensor.begin, "a tensor's bytes are not those of its shape");
      std::string data(bytes, '\0');
      reader.Read(tensor, data.data());
      Require(data == file.substr(tensor.begin, bytes), "other bytes are read than the file has");
      ranges.emplace_back(tensor.begin, tensor.end);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      Require(ranges[i - 1].second == ranges[i].first, "tensors overlap or leave a hole");
    }
    Require(ranges.empty() || ranges.back().second == file.size(), "the file goes on");
  });
}

bool ReadsWriteJournal(const std::string& text) {
  const auto files = ParseWriteJournal(text, "work");
  Require(!files || text.starts_with("\"work\"\n"), "a journal of other work is continued");
  return files.has_value();
}

namespace {

// Calls visit(value) for a value and everything that it contains, for at most `budget` values. A
// value that is shared many times is visited each time.
template <class Visit>
void ForEachValue(PickleValue value, size_t& budget, const Visit& visit) {
  if (budget == 0) return;
  --budget;
  visit(value);
  for (size_t i = 0; i < value.size(); ++i) {
    if (value.has_entries()) {
      ForEachValue(value.entry(i).first, budget, visit);
      ForEachValue(value.entry(i).second, budget, visit);
    } else {
      ForEachValue(value.item(i), budget, visit);
    }
  }
  for (const auto& part : {value.args(), value.state(), value.id()}) {
    if (part) ForEachValue(*part, budget, visit);
  }
}

constexpr size_t kVisitedValues = 2000;

void RequireConsistentKeys(PickleValue value) {
  if (value.type() != PickleType::kDict || value.size() == 0) return;
  const auto [key, last] = value.entry(value.size() - 1);
  if (const auto text = key.String()) {
    Require(value.Find(*text) && value.Find(*text)->Same(last), "the last value is not found");
  }
  Require(!value.Find("\xff"), "a key is found that does not exist");
}

// Requires that all elements of the tensor are inside the file.
void RequireInside(const ArchivedTensor& tensor, size_t file_bytes) {
  const uint64_t width = DtypeBytes(tensor.dtype).value();
  Require(static_cast<uint64_t>(NumElements(tensor.shape).value()) * width == tensor.bytes,
          "a tensor's bytes are not those of its shape");
  Require(tensor.stride.empty() || tensor.stride.size() == tensor.shape.size(),
          "a tensor has other strides than dimensions");
  uint64_t last = tensor.bytes == 0 ? 0 : tensor.bytes / width - 1;
  if (!tensor.stride.empty()) {
    last = 0;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      Require(tensor.stride[i] >= 0 && static_cast<size_t>(tensor.stride[i]) <= file_bytes,
              "a stride leaves the file");
      last += static_cast<uint64_t>((tensor.shape[i] - 1) * tensor.stride[i]);
    }
  }
  const uint64_t needed = tensor.bytes == 0 ? 0 : (last + 1) * width;
  Require(tensor.begin <= file_bytes && needed <= file_bytes - tensor.begin,
          "a tensor lies outside of the file");
}

}  // namespace

bool ReadsPickle(const std::string& bytes) {
  const Result<Pickle> pickle = Pickle::Read(bytes, "p");
  if (!IsTaken(pickle)) return false;
  size_t budget = kVisitedValues;
  ForEachValue(pickle->root(), budget, RequireConsistentKeys);
  return true;
}

bool ReadsTorchArchive(const std::string& file) {
  const MemoryFile memory(file);
  return Accepts([&] {
    const TorchArchive archive(memory.path());
    size_t budget = kVisitedValues;
    ForEachValue(archive.root(), budget, [&](PickleValue value) {
      if (const auto tensor = archive.Tensor(value)) RequireInside(*tensor, file.size());
    });
  });
}

bool DecodesImage(const std::string& file) {
  return Accepts([&] {
    const RgbImage image =
        DecodeImage("i", {reinterpret_cast<const uint8_t*>(file.data()), file.size()});
    Require(image.width > 0 && image.height > 0, "an image without pixels");
    Require(image.pixels.size() == static_cast<size_t>(image.width * image.height) * 3,
            "an image has not the pixels of its size");
    std::vector<uint8_t> pixels(size_t{8} * 8 * 3);
    ResizeAndCrop(image, 8, pixels);
  });
}

// Requires that the slices cover each element once. In small tensors the elements are counted one
// by one.
void RequireCovered(const TensorRecord& tensor) {
  const int64_t all = NumElements(tensor.shape).value();
  std::vector<int> held(all <= 4096 ? static_cast<size_t>(all) : 0);
  int64_t elements = 0;
  for (const auto& [shard, file] : tensor.slices) {
    const auto& [offset, row, pitch, start, stop] = shard;
    Require(start >= 0 && stop >= start && stop - start <= all - elements, "slices overlap");
    elements += stop - start;
    if (start == stop) continue;
    Require(offset >= 0 && row > 0 && row <= pitch - offset && all % pitch == 0 &&
                (stop - 1) / row < all / pitch,
            "a slice has elements that its tensor has not");
    for (int64_t at = start; at < stop && !held.empty(); ++at) {
      const int64_t element = at / row * pitch + offset + at % row;
      Require(held.at(static_cast<size_t>(element))++ == 0, "slices overlap");
    }
  }
  Require(elements == all, "slices do not cover their tensor");
}

bool ReadsDistributedMetadata(const std::string& bytes) {
  return Accepts([&] {
    const DistributedMetadata metadata = ParseDistributedMetadata(bytes, "m");
    for (const std::string& file : metadata.files) {
      Require(IsPlainFileName(file), "a file lies outside of its folder");
    }
    for (const DistributedTensor& tensor : metadata.tensors) {
      Require(tensor.blocks.size() == tensor.places.size(), "a block has no place");
      const BlockSlices cut = SlicesOf(tensor.shape, tensor.blocks);
      if (!cut.problem.empty()) continue;
      TensorRecord record = {tensor.key, tensor.dtype, tensor.shape, {}};
      for (const BlockSlice& slice : cut.slices) record.slices.push_back({slice.shard, ""});
      RequireCovered(record);
    }
  });
}

bool PlansStateDict(const std::string& bytes) {
  const MemoryFile file(bytes);
  return Accepts([&] {
    const ForeignCheckpoint plan = PlanStateDict(file.path(), "");
    for (const TensorRecord& tensor : plan.checkpoint.manifest.tensors) {
      RequireCovered(tensor);
      for (const TensorSlice& slice : tensor.slices) {
        const BytesInFile& place = plan.places.at(slice.file);
        uint64_t last = static_cast<uint64_t>(slice.shard.elements()) - 1;
        if (!place.stride.empty()) {
          last = 0;
          for (size_t d = 0; d < tensor.shape.size(); ++d) {
            last += static_cast<uint64_t>((tensor.shape[d] - 1) * place.stride[d]);
          }
        }
        Require(place.begin + (last + 1) * DtypeBytes(tensor.dtype).value() <= bytes.size(),
                "a tensor lies outside of the file");
      }
    }
  });
}

bool ReadsManifest(const std::string& text) {
  char first[32];
  std::snprintf(first, sizeof first, "{\"crc32\":\"%08x\",\n", Crc32(text.data(), text.size()));
  Accepts([&] { ParseManifest(text, "m"); });
  return Accepts([&] {
    const Manifest manifest = ParseManifest(first + text, "m");
    for (const FileRecord& file : manifest.files) {
      Require(file.name.find('/') == std::string::npos && file.name.front() != '.',
              "a file lies outside of its folder");
    }
    for (const TensorRecord& tensor : manifest.tensors) {
      RequireCovered(tensor);
    }
    const std::string again = FormatManifest(manifest);
    Require(FormatManifest(ParseManifest(again, "m")) == again, "a manifest changes when saved");
  });
}

bool ReadsLease(const std::string& text) {
  const std::optional<HeldLease> lease = ParseLease(text);
  if (!lease) return false;
  RequireOneLine(Describe(lease->owner));
  Require(lease->owner.process.pid >= 0, "a pid is negative");
  const std::string again = FormatLease(*lease);
  Require(again.size() == kLeaseBytes, "a lease has another length");
  Require(ParseLease(again).has_value(), "a lease cannot be read again");
  return true;
}

bool ReadsRankReport(const std::string& text) {
  const auto accepts = [](const auto& read) {
    try {
      read();
      return true;
    } catch (const TrainError& error) {
      Require(error.exit_code() > 0 && error.exit_code() < 256, "a failure looks like success");
      RequireOneLine(error.what());
      return false;
    }
  };
  const bool is_report = accepts([&] { FormatReport(ParseReport(text, 3)); });
  const bool is_record = accepts([&] {
    Manifest manifest;
    EnterRecords({ParseRecord(text, 3)}, manifest);
  });
  return is_report || is_record;
}

bool ReadsJson(const std::string& text) {
  return Accepts([&] {
    const nlohmann::json json = ParseJson(text, "j");
    const std::string again = json.dump();
    Require(ParseJson(again, "j", JsonComments::kRefuse).dump() == again, "JSON changes");
  });
}

bool ReadsHuggingFaceConfig(const std::string& text) {
  static const TempDir folder;
  Replace(folder / kConfigJson, text);
  return Accepts([&] {
    const nlohmann::json json = ReadJsonFile(folder / kConfigJson);
    JsonObject object(json, "config.json", "");
    const ModelFamily& family = FamilyOfConfigJson(object);
    const ModelConfig model = family.ReadConfigJson(object);
    // An exported config.json must describe the same model.
    const nlohmann::json written = family.ConfigJson(model, "float32");
    JsonObject again(written, "config.json", "");
    const ModelConfig reread = family.ReadConfigJson(again);
    Require(family.ConfigJson(reread, "float32") == written, "config.json changes when saved");
  });
}

bool ReadsAdapterConfig(const std::string& text) {
  return Accepts([&] {
    const nlohmann::json section =
        nlohmann::json::parse(LoraSectionOfAdapterConfig(text, "adapter_config.json"));
    const LoraConfig lora = ReadLora(JsonObject(section, "recipe", "lora"));
    Require(lora.rank >= 1 && lora.rank <= 1 << 16, "a rank is out of range");
    Require(lora.dropout >= 0 && lora.dropout < 1, "a dropout is not a probability");
    Require(std::isfinite(lora.scale()), "a scale is not a number");
    // An exported configuration must have the same settings for the layers that it names.
    const std::vector<std::string> layers = {"model.layers.0.self_attn.q_proj"};
    LoraConfig written = ReadAdapterConfig(
        JsonObject(AdapterConfigJson(lora, layers, "base", false), "adapter_config.json", ""));
    if (lora.targets.empty()) written.targets.clear();
    std::ranges::sort(written.targets);
    LoraConfig sorted = lora;
    std::ranges::sort(sorted.targets);
    sorted.targets.erase(std::ranges::unique(sorted.targets).begin(), sorted.targets.end());
    Require(LoraSection(written) == LoraSection(sorted), "adapter_config.json changes when saved");
  });
}

bool ReadsAdapterRecord(const std::string& text) {
  return Accepts([&] {
    const AdapterRecord record = ParseAdapterRecord(text, "manifest.json");
    const AdapterRecord again = ParseAdapterRecord(FormatAdapterRecord(record), "again");
    Require(AdapterDifference(record, again).empty(), "a record changes when saved");
  });
}

bool ReadsWeightIndex(const std::string& text) {
  static const TempDir folder;
  Replace(folder / "model.safetensors.index.json", text);
  return Accepts([&] {
    for (const std::string& file : WeightFiles(folder.path())) {
      Require(std::filesystem::path(file).lexically_normal().parent_path() == folder.path(),
              "a file of weights lies outside of its folder");
    }
  });
}

bool ReadsTokenizer(const std::string& text) {
  constexpr std::string_view kText = "The  caf\u00e9's 12\n\u6f22\u5b57 e\u0301 <s>\U0001F600 ";
  return Accepts([&] {
    const Tokenizer tokenizer(ReadTokenizerJson(ParseJson(text, "t"), "t"));
    TokenEncoder encoder(tokenizer);
    std::vector<int32_t> ids;
    encoder.Encode(kText, ids);
    for (const int32_t id : ids) {
      Require(id >= 0 && id < tokenizer.vocab_size(), "a token is not in the vocabulary");
    }
    std::vector<int32_t> again;
    encoder.Encode(kText, again);
    Require(ids == again, "the cache of words changes tokens");
    Require(!FindInvalidUtf8(tokenizer.Decode(ids)), "tokens become text that is not UTF-8");
  });
}

// The tokenizer has a token for each ASCII character and for <|im_end|>, <|eot_id|>, <s> and </s>.
bool ReadsChatLine(const std::string& input) {
  static const Tokenizer tokenizer = [] {
    nlohmann::json vocabulary = {{"<unk>", 0u}};
    for (unsigned i = 1; i < 128; ++i) vocabulary[std::string(1, static_cast<char>(i))] = i;
    nlohmann::json added = nlohmann::json::array();
    for (const char* token : {"<|im_end|>", "<|eot_id|>", "<s>", "</s>"}) {
      added.push_back({{"id", 128 + added.size()},
                       {"content", token},
                       {"special", true},
                       {"normalized", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"single_word", false}});
    }
    const nlohmann::json file = {{"added_tokens", added},
                                 {"model",
                                  {{"type", "BPE"},
                                   {"vocab", vocabulary},
                                   {"merges", nlohmann::json::array()},
                                   {"unk_token", "<unk>"}}}};
    return Tokenizer(ReadTokenizerJson(file, "t"));
  }();
  if (input.empty()) return false;
  const auto chat_template =
      static_cast<DataConfig::ChatTemplate>(static_cast<unsigned char>(input[0]) % 5);
  return Accepts([&] {
    ChatEncoder encoder(chat_template, &tokenizer, {.begin = "<s>", .end = "</s>"},
                        tokenizer.vocab_size());
    const ChatTokens tokens = encoder.Encode(input.substr(1), "t:1");
    Require(tokens.ids.size() == tokens.labels.size(), "tokens and labels differ in number");
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      const int64_t id = tokens.ids[i], label = tokens.labels[i];
      Require(id >= 0 && id < tokenizer.vocab_size(), "a token is not in the vocabulary");
      Require(label == kNoTarget || (label >= 0 && label < tokenizer.vocab_size()),
              "a label is not in the vocabulary");
    }
  });
}

// In this test, each byte is a token.
bool ReadsEvaluationTexts(const std::string& input) {
  constexpr int64_t kPositions = 16;
  return Accepts([&] {
    EvaluationTexts texts;
    AddEvaluationText(ParseJson(input, "t"), "t", TextCodec(), /*vocab_size=*/256, kPositions,
                      texts);
    int64_t scored = 0;
    for (const ScoredTokens& sequence : texts.sequences) {
      const auto inputs = static_cast<int64_t>(sequence.tokens.size()) - 1;
      Require(sequence.scored >= 1 && sequence.scored <= inputs && inputs <= kPositions,
              "a sequence does not fit the model");
      scored += sequence.scored;
    }
    for (const EvaluationTexts::Document& document : texts.documents) {
      Require(scored == document.tokens, "a document's tokens are not scored once each");
    }
    for (const EvaluationTexts::Question& question : texts.questions) {
      Require(question.gold < question.bytes.size(), "the right choice is none of the choices");
    }
  });
}

bool MatchesPattern(const std::string& input) {
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string text = ReplaceInvalidUtf8(input.substr(std::min(end + 1, input.size())));
  return Accepts([&] {
    std::vector<TextRange> matches;
    Pattern(input.substr(0, end)).FindAll(text, matches);
    size_t done = 0;
    for (const TextRange& match : matches) {
      Require(match.begin >= done && match.end > match.begin && match.end <= text.size(),
              "matches overlap, are empty or lie outside of the text");
      Require(!FindInvalidUtf8(text.substr(match.begin, match.end - match.begin)),
              "a match divides a character");
      done = match.end;
    }
  });
}

// One rank sends requests while another rank waits for a key. Returns whether a request was
// accepted.
bool ServesStore(const std::string& bytes) {
  StoreCore core;
  Require(core.OnRequest(2, {StoreRequest::Op::kGet, 7, 0, {"key"}, {}}).empty(),
          "what is not there is answered");
  std::string buffer = bytes;
  size_t waits = 1;
  bool any = false;
  try {
    while (const std::optional<std::string> message = TakeStoreMessage(buffer)) {
      DecodeReply(*message);
      const std::optional<StoreRequest> request = DecodeRequest(*message);
      if (!request) return any;
      any = true;
      Require(DecodeRequest(EncodeRequest(*request).substr(4)) == request, "a request changes");
      const std::vector<StoreCore::Answer> answers = core.OnRequest(1, *request);
      ++waits;
      Require(answers.size() <= waits, "a request is answered twice");
      waits -= answers.size();
      Require(answers.empty() || Answers(answers.front().reply, *request),
              "the answer is no answer");
      for (const StoreCore::Answer& answer : answers) {
        Require(answer.client == 1 || answer.reply.id == 7, "somebody else is answered");
        Require(DecodeReply(EncodeReply(answer.reply).substr(4)) == answer.reply,
                "a reply changes");
      }
    }
  } catch (const std::runtime_error& error) {
    RequireOneLine(error.what());
  }
  core.OnClientGone(1);
  return any;
}

// The input is a header followed by the copy after the header's page. A header with a wrong
// checksum is refused, so inputs of a second kind get the right checksum.
bool ReadsCopySlot(const std::string& bytes) {
  const size_t fields = std::min(bytes.size(), kSlotHeaderFields);
  std::vector<std::byte> slot(kSlotHeaderBytes + bytes.size() - fields);
  std::memcpy(slot.data(), bytes.data(), fields);
  std::memcpy(slot.data() + kSlotHeaderBytes, bytes.data() + fields, bytes.size() - fields);
  const std::optional<SlotHeader> header = DecodeSlotHeader(slot);
  const uint32_t crc = Crc32(slot.data(), kSlotHeaderFields - sizeof(uint32_t));
  std::memcpy(slot.data() + kSlotHeaderFields - sizeof crc, &crc, sizeof crc);
  const std::optional<SlotHeader> repaired = DecodeSlotHeader(slot);
  Require(!header || header == repaired, "a header with its own checksum is read differently");
  if (!repaired) return false;
  Require(repaired->bytes > 0 && repaired->bytes <= slot.size() - kSlotHeaderBytes,
          "a copy is larger than its slot");
  Require(repaired->id.step >= 0, "a step is negative");
  const auto again = EncodeSlotHeader(*repaired);
  Require(std::equal(again.begin(), again.end(), slot.begin()), "a header changes");
  return header.has_value();
}

bool ReadsCopyText(const std::string& bytes) {
  const auto copy = std::as_bytes(std::span(bytes));
  const std::optional<std::string_view> text = ReadCopyText(copy);
  if (!text) return false;
  Require(text->size() <= bytes.size() - sizeof(uint64_t) &&
              text->data() == bytes.data() + sizeof(uint64_t),
          "a text is outside of its copy");
  std::vector<std::byte> again(sizeof(uint64_t) + text->size());
  WriteCopyText(*text, again);
  Require(std::ranges::equal(again, copy.first(again.size())), "a text changes");
  Require(LayOutCopy(text->size(), {}).bytes >= again.size(), "a copy has no room for its text");
  return true;
}

bool ReadsCopyOffer(const std::string& bytes) {
  const std::optional<CopyOffer> offer = CopyOffer::FromText(bytes);
  if (!offer) return false;
  Require(CopyOffer::FromText(offer->ToText()) == offer, "an offer changes");
  const CopyChoice alone = ChooseCopy({*offer});
  Require(alone.copy.has_value() != offer->copies.empty(), "a rank cannot choose its own copy");
  const CopyChoice with_empty = ChooseCopy({*offer, CopyOffer()});
  Require(with_empty.is_final && !with_empty.copy, "a copy is chosen that one rank lacks");
  RequireOneLine(with_empty.why_none);
  return true;
}

}  // namespace dslaunch
