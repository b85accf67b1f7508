// The C++ side of safetensors_python_test.py.
//   write FILE      writes sample_tensors()
//   seal FILE       the same, sealed
//   verify FILE     compares it with its seal
//   copy IN OUT     reads a file and writes what it holds
//   check FILE...   a line for each file: "ok" and its tensors, or "refused" and why

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"
#include "tests/io/sample_tensors.h"

namespace pareprop::io {
namespace {

void copy(const std::string& from, const std::string& to) {
  const SafetensorsFile file(from);
  NamedTensors tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.tensor(name));
  write_safetensors(to, tensors, file.metadata());
}

void check(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    std::string line = "ok";
    for (const SafetensorsEntry& entry : file.entries()) {
      line += " " + std::string(name(entry.dtype)) + ":" + std::to_string(entry.begin) + ":" +
              std::to_string(entry.end);
      for (const std::int64_t size : entry.shape) line += ":" + std::to_string(size);
    }
    std::cout << line << "\n";
  } catch (const std::exception& error) {
    std::cout << "refused " << error.what() << "\n";
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "write" && arguments.size() == 2) {
    write_safetensors(arguments[1], testing::sample_tensors(), {{"made by", "C++ \xc3\xa9"}});
  } else if (command == "seal" && arguments.size() == 2) {
    write_sealed_safetensors(arguments[1], testing::sample_tensors(), {{"format", "pt"}});
  } else if (command == "verify" && arguments.size() == 2) {
    SafetensorsFile(arguments[1]).verify_seal();
  } else if (command == "copy" && arguments.size() == 3) {
    copy(arguments[1], arguments[2]);
  } else if (command == "check") {
    for (std::size_t i = 1; i < arguments.size(); ++i) check(arguments[i]);
  } else {
    std::cerr << "usage: write FILE | seal FILE | verify FILE | copy IN OUT | check FILE...\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace pareprop::io

int main(int argc, char** argv) {
  try {
    return pareprop::io::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
