// The C++ side of event_file_python_test.py: FOLDER, then any number of
//   STEP NAME VALUE   adds a scalar
//   restart STEP -    training goes on from STEP
//   open - -          opens the file anew

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "pareprop/io/event_file.h"

int main(int argc, char** argv) {
  try {
    const std::string folder = argv[1];
    auto file = std::make_unique<pareprop::io::EventFile>(folder);
    for (int i = 2; i + 2 < argc; i += 3) {
      const std::string what = argv[i];
      if (what == "open") {
        file = std::make_unique<pareprop::io::EventFile>(folder);
      } else if (what == "restart") {
        file->restart_at(std::atoll(argv[i + 1]));
      } else {
        file->add(std::atoll(argv[i]), {{argv[i + 1], std::strtof(argv[i + 2], nullptr)}});
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
