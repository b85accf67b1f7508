#include "pareprop/data/images/cifar_images.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/data/images/image_array.h"
#include "pareprop/io/input_file.h"
#include "pareprop/text/escape.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

// The largest of them has 154 megabytes.
constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 31;

std::vector<std::string> class_names(Cifar kind, const fs::path& folder) {
  const std::size_t classes = kind == Cifar::ten ? 10 : 100;
  const fs::path path = folder / (kind == Cifar::ten ? "batches.meta.txt" : "fine_label_names.txt");
  std::error_code error;
  std::istringstream file(fs::exists(path, error) ? io::read_text_file(path) : "");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(text::printable(line));
  }
  if (names.size() == classes) return names;
  if (kind == Cifar::hundred) return numbered_classes(100);
  return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
}

std::vector<fs::path> training_files(Cifar kind, const fs::path& folder) {
  if (kind == Cifar::hundred) return {folder / "train.bin"};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

ImageArray read(Cifar kind, const std::vector<fs::path>& files) {
  ImageArray images;
  for (const fs::path& path : files) {
    const auto file = io::read_binary_file(path, {.most_bytes = kMaxFile});
    try {
      append_cifar(kind, file, images);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("cannot read '" + path.string() + "': " + error.what());
    }
  }
  return images;
}

}  // namespace

ImageHalves open_cifar(Cifar kind, const fs::path& given) {
  const fs::path inside =
      given / (kind == Cifar::ten ? "cifar-10-batches-bin" : "cifar-100-binary");
  const fs::path folder = fs::is_directory(inside) ? inside : given;
  const auto train = training_files(kind, folder);
  const fs::path test = folder / (kind == Cifar::ten ? "test_batch.bin" : "test.bin");
  if (train.empty() || !fs::exists(train[0]) || !fs::exists(test)) {
    throw std::invalid_argument(
        "'" + folder.string() + "' does not have the files of CIFAR-" +
        (kind == Cifar::ten ? "10: expected data_batch_1.bin, ... and test_batch.bin"
                            : "100: expected train.bin and test.bin") +
        ", as in the archive of the binary version (not the version for Python or Matlab)");
  }
  const auto names = class_names(kind, folder);
  const auto named = [&](const char* half) { return "'" + folder.string() + "' (" + half + ")"; };
  return {std::make_shared<ArrayImages>(named("train"), read(kind, train), names),
          std::make_shared<ArrayImages>(named("test"), read(kind, {test}), names)};
}

}  // namespace pareprop::data
