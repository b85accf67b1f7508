#include "pareprop/data/images/idx_images.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "pareprop/data/gzip.h"
#include "pareprop/data/images/idx.h"
#include "pareprop/data/images/image_array.h"
#include "pareprop/io/input_file.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

// The largest file of the family has half a gigabyte.
constexpr std::size_t kMaxUnpacked = std::size_t{1} << 31;
constexpr int kMaxSide = 1 << 14;

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

// The file of `half` ("train" or "test") that has `content` ("images" or "labels").
fs::path find_file(const fs::path& folder, const std::string& half, const char* content) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool test = has(name, "t10k-") || has(name, "test-");
    if ((half == "test" ? test : has(name, "train-")) && has(name, content) && has(name, "idx")) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  // Packed and unpacked side by side are one.
  if (found.size() == 2 && found[1] == found[0].string() + ".gz") found.pop_back();
  if (found.size() == 1) return found[0];
  const std::string expected = std::string(half == "test" ? "t10k" : "train") + "-" + content +
                               "-idx*-ubyte, with or without .gz";
  if (found.empty()) {
    throw std::invalid_argument("'" + folder.string() + "' has no file " + expected);
  }
  throw std::invalid_argument("'" + folder.string() + "' has several files " + expected + ": '" +
                              found[0].filename().string() + "', '" + found[1].filename().string() +
                              "'; put each data set into a folder of its own");
}

// Calls `read(array)`, and adds the path to what is thrown.
template <class Read>
void read_idx(const fs::path& path, std::size_t dimensions, Read&& read) {
  const auto file = io::read_binary_file(path, {.most_bytes = kMaxUnpacked});
  try {
    std::vector<std::byte> unpacked;
    std::span<const std::byte> bytes = file;
    if (is_gzip(bytes)) bytes = unpacked = gunzip(bytes, kMaxUnpacked);
    const IdxArray array = parse_idx(bytes);
    if (array.sizes.size() != dimensions) {
      throw std::runtime_error("it has " + std::to_string(array.sizes.size()) +
                               " dimensions; expected " + std::to_string(dimensions));
    }
    read(array);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("cannot read '" + path.string() + "': " + error.what());
  }
}

ImageArray read_half(const fs::path& folder, const std::string& half) {
  ImageArray images;
  read_idx(find_file(folder, half, "images"), 3, [&](const IdxArray& array) {
    if (std::max(array.sizes[1], array.sizes[2]) > kMaxSide) {
      throw std::runtime_error("its images are " + std::to_string(array.sizes[2]) + " x " +
                               std::to_string(array.sizes[1]) + " pixels; expected at most " +
                               std::to_string(kMaxSide) + " a side");
    }
    images.height = static_cast<int>(array.sizes[1]);
    images.width = static_cast<int>(array.sizes[2]);
    images.channels = 1;
    const auto* first = reinterpret_cast<const std::uint8_t*>(array.values.data());
    images.pixels.assign(first, first + array.values.size());
  });
  read_idx(find_file(folder, half, "labels"), 1, [&](const IdxArray& array) {
    images.labels.reserve(array.values.size());
    for (const std::byte label : array.values) {
      images.labels.push_back(std::to_integer<int>(label));
    }
  });
  return images;
}

}  // namespace

ImageHalves open_idx_images(const fs::path& folder, std::vector<std::string> class_names) {
  ImageArray train = read_half(folder, "train"), test = read_half(folder, "test");
  if (train.height != test.height || train.width != test.width) {
    throw std::invalid_argument("'" + folder.string() + "': the training images are " +
                                std::to_string(train.width) + " x " + std::to_string(train.height) +
                                " pixels, the test images " + std::to_string(test.width) + " x " +
                                std::to_string(test.height) + "; expected one size");
  }
  if (class_names.empty() && !train.labels.empty()) {
    class_names = numbered_classes(*std::max_element(train.labels.begin(), train.labels.end()) + 1);
  }
  const auto named = [&](const char* half) { return "'" + folder.string() + "' (" + half + ")"; };
  return {std::make_shared<ArrayImages>(named("train"), std::move(train), class_names),
          std::make_shared<ArrayImages>(named("test"), std::move(test), class_names)};
}

}  // namespace pareprop::data
