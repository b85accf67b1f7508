// resize_probe IN OUT HEIGHT WIDTH FILTER TOP LEFT BOX_HEIGHT BOX_WIDTH: decodes IN (JPEG or PNG),
// resizes a part of it, and writes float32 levels.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "pareprop/data/images/image_codec.h"
#include "pareprop/data/images/resize.h"
#include "pareprop/io/input_file.h"

int main(int count, char** arguments) {
  using namespace pareprop;
  if (count != 10) return 2;
  try {
    const auto number = [&](int i) { return std::strtod(arguments[i], nullptr); };
    const auto file = io::read_binary_file(arguments[1]);
    const auto filter =
        std::string(arguments[5]) == "bicubic" ? data::Filter::bicubic : data::Filter::bilinear;
    const data::FloatImage image =
        data::resize(data::decode_image(file), {number(6), number(7), number(8), number(9)},
                     {static_cast<int>(number(3)), static_cast<int>(number(4))}, filter);
    std::ofstream out(arguments[2], std::ios::binary);
    out.write(reinterpret_cast<const char*>(image.pixels.data()),
              static_cast<std::streamsize>(image.pixels.size() * sizeof(float)));
    return out.good() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
