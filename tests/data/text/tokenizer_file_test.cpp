#include "pareprop/data/text/tokenizer_file.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <system_error>

#include "tests/data/text/small_tables.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using io::testing::TemporaryFolder;
namespace fs = std::filesystem;

TEST(TokenizerFile, LoadsWhatItSaves) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer(testing::small_tables({{"a", "b"}}));
  const fs::path saved = folder / "new" / "er";
  save_tokenizer(tokenizer, saved);
  EXPECT_EQ(load_tokenizer(saved).tables(), tokenizer.tables());
  EXPECT_EQ(load_tokenizer(saved / "tokenizer.json").tables(), tokenizer.tables());
  fs::remove(saved / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(saved).tables(), tokenizer.tables());
}

TEST(TokenizerFile, SaysWhatItIsForTransformers) {
  const TemporaryFolder folder;
  save_tokenizer(Tokenizer(testing::small_tables()), folder.path());
  const std::string config = io::testing::content(folder / "tokenizer_config.json");
  EXPECT_NE(config.find("\"tokenizer_class\": \"RobertaTokenizer\""), std::string::npos) << config;
}

// Swapped ids are a tokenizer's still.
TEST(TokenizerFile, DamageThatIsATokenizersStillIsFound) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer(testing::small_tables({{"a", "b"}}));
  save_tokenizer(tokenizer, folder / "saved");
  EXPECT_EQ(load_saved_tokenizer(folder / "saved").tables(), tokenizer.tables());
  BpeTables swapped = tokenizer.tables();
  std::swap(swapped.tokens[10], swapped.tokens[11]);
  save_tokenizer(Tokenizer(swapped), folder / "other");
  fs::copy_file(folder / "other" / "tokenizer.json", folder / "saved" / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              load_saved_tokenizer(folder / "saved");
            }).find("damaged or replaced"),
            std::string::npos);
  fs::remove(folder / "saved" / "vocab.json");
  EXPECT_THROW(load_saved_tokenizer(folder / "saved"), std::exception);
}

TEST(TokenizerFile, NamesTheFileInErrors) {
  const TemporaryFolder folder;
  io::testing::put(folder / "tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { load_tokenizer(folder.path()); }),
            "cannot load a tokenizer from '" + folder.path().string() +
                "': the model's type is 'WordPiece'; expected 'BPE': a byte-level BPE like "
                "RoBERTa's");
  fs::remove(folder / "tokenizer.json");
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              load_tokenizer(folder.path());
            }).find("expected tokenizer.json, or vocab.json and merges.txt"),
            std::string::npos);
  EXPECT_NE(message_of<std::system_error>([&] { load_tokenizer(folder / "none"); }).find("none"),
            std::string::npos);
}

}  // namespace
}  // namespace pareprop::data
