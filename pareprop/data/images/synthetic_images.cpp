#include "pareprop/data/images/synthetic_images.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/images/image_array.h"

namespace pareprop::data {
namespace {

class SyntheticImages final : public ImageSource {
 public:
  SyntheticImages(const SyntheticOptions& options, bool test)
      : options_(options), test_(test), class_names_(numbered_classes(options.classes)) {}

  std::int64_t size() const override { return test_ ? options_.test : options_.train; }

  std::int64_t label(std::int64_t i) const override {
    return static_cast<std::int64_t>(
        random(i, 0).below(static_cast<std::uint64_t>(options_.classes)));
  }

  Image load(std::int64_t i, const SmallestSize&) const override {
    Image image{options_.height, options_.width, options_.channels, {}};
    image.pixels.resize(static_cast<std::size_t>(image.height) *
                        static_cast<std::size_t>(image.width) *
                        static_cast<std::size_t>(image.channels));
    CounterRandom draws = random(i, 1);
    std::uint64_t bytes = 0;
    for (std::size_t p = 0; p < image.pixels.size(); ++p) {
      bytes = p % 8 == 0 ? draws.next() : bytes >> 8;
      image.pixels[p] = static_cast<std::uint8_t>(bytes);
    }
    return image;
  }

  std::string name(std::int64_t i) const override { return "synthetic image " + std::to_string(i); }
  const std::vector<std::string>& class_names() const override { return class_names_; }

 private:
  CounterRandom random(std::int64_t i, std::uint64_t what) const {
    return {options_.seed, test_ ? 1U : 0U, static_cast<std::uint64_t>(i), what};
  }

  SyntheticOptions options_;
  bool test_;
  std::vector<std::string> class_names_;
};

void require_positive(const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw std::invalid_argument(std::string("synthetic images: ") + what + " is " +
                              std::to_string(value) + "; expected at least 1");
}

}  // namespace

ImageHalves synthetic_images(const SyntheticOptions& options) {
  require_positive("height", options.height);
  require_positive("width", options.width);
  require_positive("channels", options.channels);
  require_positive("classes", options.classes);
  require_positive("train", options.train);
  require_positive("test", options.test);
  return {std::make_shared<SyntheticImages>(options, false),
          std::make_shared<SyntheticImages>(options, true)};
}

}  // namespace pareprop::data
