#include "pareprop/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/image_codec.h"
#include "pareprop/io/mapped_file.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string file;  // from the folder on
  std::int64_t label;
};

class FolderImages final : public ImageSource {
 public:
  FolderImages(fs::path folder, std::vector<Entry> entries, std::vector<std::string> class_names)
      : folder_(std::move(folder)),
        entries_(std::move(entries)),
        class_names_(std::move(class_names)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t label(std::int64_t i) const override { return entry(i).label; }
  std::string name(std::int64_t i) const override { return (folder_ / entry(i).file).string(); }
  const std::vector<std::string>& class_names() const override { return class_names_; }

  Image load(std::int64_t i, const SmallestSize& smallest) const override {
    const io::MappedFile file(folder_ / entry(i).file);
    try {
      return decode_image(file.bytes(), smallest);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("cannot read '" + name(i) + "': " + error.what());
    }
  }

 private:
  const Entry& entry(std::int64_t i) const { return entries_.at(static_cast<std::size_t>(i)); }

  fs::path folder_;
  std::vector<Entry> entries_;
  std::vector<std::string> class_names_;
};

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_image(const fs::path& path) {
  std::string end = path.extension().string();
  for (char& letter : end) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

std::vector<std::string> sub_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_hidden(entry)) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Sorted: the order of a folder's entries is the file system's affair.
std::vector<Entry> list_images(const fs::path& folder, const std::vector<std::string>& classes) {
  std::vector<Entry> entries;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const auto first = static_cast<std::ptrdiff_t>(entries.size());
    if (!fs::is_directory(folder / classes[label])) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder / classes[label])) {
      if (!is_hidden(entry) && is_image(entry.path()) && !entry.is_directory()) {
        entries.push_back({entry.path().lexically_relative(folder).generic_string(),
                           static_cast<std::int64_t>(label)});
      }
    }
    std::sort(entries.begin() + first, entries.end(),
              [](const Entry& a, const Entry& b) { return a.file < b.file; });
  }
  if (entries.empty()) {
    throw std::invalid_argument("'" + folder.string() +
                                "' has no images: expected .jpg, .jpeg or .png files in one "
                                "sub-folder for each class");
  }
  return entries;
}

bool is_held_out(const std::string& name, double share) {
  std::uint64_t hash = 0;
  for (const char letter : name) hash = mix64(hash + static_cast<unsigned char>(letter) + 1);
  return static_cast<double>(hash >> 11) * 0x1p-53 < share;
}

ImageHalves two_folders(const fs::path& train, const fs::path& val) {
  const auto classes = sub_folders(train);
  for (const std::string& name : sub_folders(val)) {
    if (!std::binary_search(classes.begin(), classes.end(), name)) {
      throw std::invalid_argument("'" + val.string() + "' has the class '" + name + "', which '" +
                                  train.string() + "' lacks; expected the same sub-folders");
    }
  }
  return {std::make_shared<FolderImages>(train, list_images(train, classes), classes),
          std::make_shared<FolderImages>(val, list_images(val, classes), classes)};
}

}  // namespace

ImageHalves open_image_folder(const fs::path& folder, double held_out) {
  if (!(held_out > 0.0 && held_out < 1.0)) {
    throw std::invalid_argument("the share of images held out for testing is " +
                                std::to_string(held_out) + "; expected more than 0, less than 1");
  }
  if (fs::is_directory(folder / "train") && fs::is_directory(folder / "val")) {
    return two_folders(folder / "train", folder / "val");
  }
  const auto classes = sub_folders(folder);
  std::vector<Entry> train = list_images(folder, classes);
  const auto kept = std::stable_partition(train.begin(), train.end(), [&](const Entry& entry) {
    return !is_held_out(entry.file, held_out);
  });
  std::vector<Entry> test(kept, train.end());
  train.erase(kept, train.end());
  if (train.empty() || test.empty()) {
    throw std::invalid_argument(
        "'" + folder.string() + "' has " + std::to_string(train.size() + test.size()) +
        " images, too few to hold out " + std::to_string(held_out) +
        " of them for testing; add images, or put them into sub-folders train and val");
  }
  return {std::make_shared<FolderImages>(folder, std::move(train), classes),
          std::make_shared<FolderImages>(folder, std::move(test), classes)};
}

}  // namespace pareprop::data
