#include "pareprop/data/tokenizer_file.h"

#include <stdexcept>
#include <string>
#include <string_view>

#include "pareprop/data/tokenizer_json.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/io/mapped_file.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kVocab = "vocab.json";
constexpr const char* kMerges = "merges.txt";

std::string_view text_of(const io::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

BpeTables read_tables(const fs::path& path) {
  if (!fs::is_directory(path)) return parse_tokenizer_json(text_of(io::MappedFile(path)));
  if (fs::exists(path / kTokenizer)) return read_tables(path / kTokenizer);
  if (!fs::exists(path / kVocab) || !fs::exists(path / kMerges)) {
    throw std::invalid_argument(
        "the folder has none; expected tokenizer.json, or vocab.json and merges.txt");
  }
  const io::MappedFile vocab(path / kVocab);
  const io::MappedFile merges(path / kMerges);
  return parse_vocabulary(text_of(vocab), text_of(merges));
}

}  // namespace

Tokenizer load_tokenizer(const fs::path& path) {
  try {
    return Tokenizer(read_tables(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("cannot load a tokenizer from '" + path.string() +
                                "': " + error.what());
  }
}

void save_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  fs::create_directories(folder);
  io::write_file(folder / kVocab, format_vocab_json(tokenizer.tables()));
  io::write_file(folder / kMerges, format_merges_txt(tokenizer.tables()));
  io::write_file(folder / kTokenizer, format_tokenizer_json(tokenizer.tables()));
}

}  // namespace pareprop::data
