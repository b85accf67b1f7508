// The C++ side of tokenizer_python_test.py. Texts come as a JSON array in a file; answers go to
// standard output as JSON.
//   words TEXTS                       the words of each
//   encode TOKENIZER TEXTS            the ids of each; fails when decoding gives another text
//   masked TOKENIZER TEXTS            the ids of each as encode_masked() gives them
//   train OUT VOCABULARY MINIMUM FILE...  trains on files, saves into the folder OUT
//   copy IN OUT                       loads and saves

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/data/text/bpe_trainer.h"
#include "pareprop/data/text/masked_text.h"
#include "pareprop/data/text/pre_tokenizer.h"
#include "pareprop/data/text/tokenizer.h"
#include "pareprop/data/text/tokenizer_file.h"

namespace pareprop::data {
namespace {

using nlohmann::json;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

json words(const json& texts) {
  json all = json::array();
  for (const std::string text : texts) {
    json list = json::array();
    for_each_word(text, [&](std::string_view word) { list.push_back(std::string(word)); });
    all.push_back(list);
  }
  return all;
}

json encode(const Tokenizer& tokenizer, const json& texts) {
  json all = json::array();
  for (const std::string text : texts) {
    const std::vector<TokenId> ids = tokenizer.encode(text);
    if (tokenizer.decode(ids) != text) throw std::runtime_error("decoded otherwise: " + text);
    all.push_back(ids);
  }
  return all;
}

json masked(const Tokenizer& tokenizer, const json& texts) {
  json all = json::array();
  for (const std::string text : texts) all.push_back(encode_masked(tokenizer, text));
  return all;
}

void train(const std::vector<std::string>& arguments) {
  const std::vector<std::string> files(arguments.begin() + 4, arguments.end());
  std::vector<std::string> contents;
  for (const std::string& file : files) contents.push_back(content(file));
  const std::vector<std::string_view> texts(contents.begin(), contents.end());
  const BpeTrainerOptions options{.vocabulary = std::atoll(arguments[2].c_str()),
                                  .min_frequency = std::atoll(arguments[3].c_str())};
  save_tokenizer(Tokenizer(train_bpe(texts, options)), arguments[1]);
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "words" && arguments.size() == 2) {
    std::cout << words(json::parse(content(arguments[1])));
  } else if (command == "encode" && arguments.size() == 3) {
    std::cout << encode(load_tokenizer(arguments[1]), json::parse(content(arguments[2])));
  } else if (command == "masked" && arguments.size() == 3) {
    std::cout << masked(load_tokenizer(arguments[1]), json::parse(content(arguments[2])));
  } else if (command == "train" && arguments.size() > 4) {
    train(arguments);
  } else if (command == "copy" && arguments.size() == 3) {
    save_tokenizer(load_tokenizer(arguments[1]), arguments[2]);
  } else {
    std::cerr << "usage: words TEXTS | encode TOKENIZER TEXTS | masked TOKENIZER TEXTS | train OUT "
                 "VOCABULARY MINIMUM "
                 "FILE... | copy IN OUT\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace pareprop::data

int main(int argc, char** argv) {
  try {
    return pareprop::data::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
