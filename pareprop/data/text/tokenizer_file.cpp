#include "pareprop/data/text/tokenizer_file.h"

#include <stdexcept>
#include <string>
#include <string_view>

#include "pareprop/data/text/tokenizer_json.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/io/input_file.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kVocab = "vocab.json";
constexpr const char* kMerges = "merges.txt";

// The largest vocabularies have some hundred thousand tokens.
std::string text_of(const fs::path& path) {
  constexpr std::uint64_t kMaxFile = std::uint64_t{256} << 20;
  return io::read_text_file(path, {.most_bytes = kMaxFile});
}

BpeTables read_tables(const fs::path& path) {
  if (!fs::is_directory(path)) return parse_tokenizer_json(text_of(path));
  if (fs::exists(path / kTokenizer)) return read_tables(path / kTokenizer);
  if (!fs::exists(path / kVocab) || !fs::exists(path / kMerges)) {
    throw std::invalid_argument(
        "the folder has no tokenizer; expected tokenizer.json, or vocab.json and merges.txt");
  }
  return parse_vocabulary(text_of(path / kVocab), text_of(path / kMerges));
}

BpeTables read_saved_tables(const fs::path& folder) {
  BpeTables tables = read_tables(folder / kTokenizer);
  // Which tokens are special is in the first file only.
  const BpeTables older = parse_vocabulary(text_of(folder / kVocab), text_of(folder / kMerges));
  if (tables.tokens == older.tokens && tables.merges == older.merges) return tables;
  throw std::invalid_argument(
      "tokenizer.json is not the tokenizer of vocab.json and merges.txt: one of them was damaged "
      "or replaced");
}

template <typename Read>
Tokenizer load(const fs::path& path, Read read) {
  try {
    return Tokenizer(read(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("cannot load a tokenizer from '" + path.string() +
                                "': " + error.what());
  }
}

}  // namespace

Tokenizer load_tokenizer(const fs::path& path) { return load(path, read_tables); }

Tokenizer load_saved_tokenizer(const fs::path& folder) { return load(folder, read_saved_tables); }

void save_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  fs::create_directories(folder);
  io::write_file(folder / kVocab, format_vocab_json(tokenizer.tables()));
  io::write_file(folder / kMerges, format_merges_txt(tokenizer.tables()));
  io::write_file(folder / kConfig, format_tokenizer_config_json());
  io::write_file(folder / kTokenizer, format_tokenizer_json(tokenizer.tables()));
}

}  // namespace pareprop::data
