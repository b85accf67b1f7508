// libFuzzer: any bytes as the files of a tokenizer: tokenizer.json, or vocab.json and merges.txt
// with a zero byte between them. They are refused with std::invalid_argument, or make a tokenizer
// that gives texts back and reads the same after it was written.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pareprop/data/text/tokenizer.h"
#include "pareprop/data/text/tokenizer_json.h"

namespace {

using namespace pareprop::data;

void require(bool holds) {
  if (!holds) std::abort();
}

std::optional<BpeTables> parse(std::string_view bytes) {
  try {
    const std::size_t zero = bytes.find('\0');
    if (zero == std::string_view::npos) return parse_tokenizer_json(bytes);
    return parse_vocabulary(bytes.substr(0, zero), bytes.substr(zero + 1));
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<BpeTables> tables = parse(bytes);
  if (!tables) return 0;
  std::optional<Tokenizer> tokenizer;
  try {
    tokenizer.emplace(*tables);
  } catch (const std::invalid_argument&) {
    return 0;
  }
  require(parse_tokenizer_json(format_tokenizer_json(*tables)) == *tables);
  const std::string text = "It's  12 caf\xc3\xa9s!\n\n<mask> \xf0\x9f\x91\x8d";
  require(tokenizer->decode(tokenizer->encode(text)) == text);
  return 0;
}
