#include "pareprop/data/images/image_folder.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/images/image_codec.h"
#include "pareprop/data/list_files.h"
#include "pareprop/io/input_file.h"
#include "pareprop/text/escape.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string file;  // from the folder on
  std::int64_t label;
};

struct Listing {
  std::vector<Entry> entries;
  std::vector<std::string> left_out = {};  // one line each
};

class FolderImages final : public ImageSource {
 public:
  FolderImages(fs::path folder, Listing listing, const std::vector<std::string>& folders)
      : folder_(std::move(folder)), listing_(std::move(listing)) {
    for (const std::string& name : folders) class_names_.push_back(text::printable(name));
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(listing_.entries.size()); }
  std::int64_t label(std::int64_t i) const override { return entry(i).label; }
  std::string name(std::int64_t i) const override { return (folder_ / entry(i).file).string(); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::vector<std::string> left_out() const override { return listing_.left_out; }

  Image load(std::int64_t i, const SmallestSize& smallest) const override {
    const auto file = io::read_binary_file(folder_ / entry(i).file, {.most_bytes = kMaxImageBytes});
    try {
      return decode_image(file, smallest);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("cannot read '" + name(i) + "': " + error.what());
    }
  }

 private:
  const Entry& entry(std::int64_t i) const {
    return listing_.entries.at(static_cast<std::size_t>(i));
  }

  fs::path folder_;
  Listing listing_;
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
    std::error_code not_known;
    if (entry.is_directory(not_known) && !is_hidden(entry)) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Sorted: the order of a folder's entries is the file system's affair.
Listing list_images(const fs::path& folder, const std::vector<std::string>& classes) {
  Listing all;
  auto& entries = all.entries;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const auto first = static_cast<std::ptrdiff_t>(entries.size());
    if (!fs::is_directory(folder / classes[label])) continue;
    FileList found = list_files(folder / classes[label], [](const fs::path& path) {
      return !is_hidden(path) && is_image(path);
    });
    for (const fs::path& file : found.files) {
      entries.push_back(
          {file.lexically_relative(folder).generic_string(), static_cast<std::int64_t>(label)});
    }
    std::move(found.left_out.begin(), found.left_out.end(), std::back_inserter(all.left_out));
    std::sort(entries.begin() + first, entries.end(),
              [](const Entry& a, const Entry& b) { return a.file < b.file; });
  }
  if (entries.empty()) {
    throw std::invalid_argument("'" + folder.string() +
                                "' has no images: expected .jpg, .jpeg or .png files in one "
                                "sub-folder for each class" +
                                (all.left_out.empty() ? "" : "; " + all.left_out.front()));
  }
  return all;
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
      throw std::invalid_argument("'" + val.string() + "' has the class '" + name + "', but '" +
                                  train.string() + "' does not; expected the same sub-folders");
    }
  }
  return {std::make_shared<FolderImages>(train, list_images(train, classes), classes),
          std::make_shared<FolderImages>(val, list_images(val, classes), classes)};
}

}  // namespace

std::vector<fs::path> image_files(const fs::path& folder) {
  auto files = list_files(folder, [](const fs::path& path) {
                 return !is_hidden(path) && is_image(path);
               }).files;
  std::sort(files.begin(), files.end());
  return files;
}

ImageHalves open_image_folder(const fs::path& folder, double held_out) {
  if (!(held_out > 0.0 && held_out < 1.0)) {
    throw std::invalid_argument("the share of images for validation is " +
                                std::to_string(held_out) + "; expected more than 0, less than 1");
  }
  if (fs::is_directory(folder / "train") && fs::is_directory(folder / "val")) {
    return two_folders(folder / "train", folder / "val");
  }
  const auto classes = sub_folders(folder);
  Listing listing = list_images(folder, classes);
  std::vector<Entry>& train = listing.entries;
  const auto kept = std::stable_partition(train.begin(), train.end(), [&](const Entry& entry) {
    return !is_held_out(entry.file, held_out);
  });
  std::vector<Entry> test(kept, train.end());
  train.erase(kept, train.end());
  if (train.empty() || test.empty()) {
    throw std::invalid_argument(
        "'" + folder.string() + "' has " + std::to_string(train.size() + test.size()) +
        " images, too few to use " + std::to_string(held_out) +
        " of them for validation; add images, or put them into sub-folders train and val");
  }
  Listing held{std::move(test), listing.left_out};
  return {std::make_shared<FolderImages>(folder, std::move(listing), classes),
          std::make_shared<FolderImages>(folder, std::move(held), classes)};
}

}  // namespace pareprop::data
