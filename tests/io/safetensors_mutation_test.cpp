// Random damage to good files. Each is parsed right before a page that cannot be read, so that a
// read past its end ends the test.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "pareprop/io/file_descriptor.h"
#include "pareprop/io/safetensors.h"
#include "tests/io/header_bytes.h"

namespace pareprop::io {
namespace {

using nlohmann::ordered_json;
using testing::file_bytes;
using testing::length_bytes;

// Memory that ends where reading must end.
class GuardedMemory {
 public:
  GuardedMemory() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = 64 * page;
    void* base =
        mmap(nullptr, size_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("no memory");
    base_ = static_cast<char*>(base);
    mprotect(base_ + size_, page, PROT_NONE);
  }
  ~GuardedMemory() { munmap(base_, size_ + static_cast<std::size_t>(sysconf(_SC_PAGESIZE))); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::span<const std::byte> at_the_end(const std::string& bytes) {
    char* const start = base_ + size_ - bytes.size();
    EXPECT_LE(bytes.size(), size_);
    std::copy(bytes.begin(), bytes.end(), start);
    return std::as_bytes(std::span(start, bytes.size()));
  }

 private:
  char* base_ = nullptr;
  std::size_t size_ = 0;
};

// A file without a disk behind it.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("mutated", MFD_CLOEXEC)) {}

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }
  void put(const std::string& bytes) {
    const auto size = static_cast<off_t>(bytes.size());
    ASSERT_EQ(ftruncate(file_.get(), size), 0);
    ASSERT_EQ(pwrite(file_.get(), bytes.data(), bytes.size(), 0), size);
  }

 private:
  FileDescriptor file_;
};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::string good_file() {
    std::vector<SafetensorsEntry> entries;
    const int count = draw(0, 4);
    for (int i = 0; i < count; ++i) {
      SafetensorsEntry entry;
      entry.name =
          std::string(1, static_cast<char>('a' + i)) + (draw(0, 3) == 0 ? "\xc3\xa9\n" : "");
      entry.dtype = static_cast<SafetensorsDtype>(draw(0, 9));
      for (int d = draw(0, 3); d > 0; --d) entry.shape.push_back(draw(0, 5));
      entries.push_back(entry);
    }
    SafetensorsMetadata metadata;
    if (draw(0, 1) == 0) metadata = {{"format", "pt"}, {"note", "x"}};
    const auto header = lay_out_safetensors(entries, metadata);
    const std::size_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
    return format_safetensors_header(header) + std::string(data, '\1');
  }

  std::string mutated() {
    std::string file = good_file();
    for (int i = draw(1, 2); i > 0; --i) {
      switch (draw(0, 5)) {
        case 0:
        case 1:
          change_bytes(file);
          break;
        case 2:
          change_length(file);
          break;
        case 3:
          file.resize(
              static_cast<std::size_t>(std::max(0, static_cast<int>(file.size()) + draw(-40, 10))));
          break;
        default:
          change_json(file);
      }
    }
    return file;
  }

 private:
  void change_bytes(std::string& file) {
    static const std::string interesting = "{}[]\",:0129-+.eE\\u \n\x80\xff\xc3\xef\ntfn";
    for (int i = draw(1, 4); i > 0 && !file.empty(); --i) {
      const auto at = static_cast<std::size_t>(draw(0, static_cast<int>(file.size()) - 1));
      const char value = draw(0, 1) == 0 ? static_cast<char>(draw(0, 255))
                                         : interesting[static_cast<std::size_t>(
                                               draw(0, static_cast<int>(interesting.size()) - 1))];
      const int kind = draw(0, 2);
      if (kind == 0) file[at] = value;
      if (kind == 1) file.insert(at, 1, value);
      if (kind == 2) file.erase(at, static_cast<std::size_t>(draw(1, 4)));
    }
  }

  void change_length(std::string& file) {
    if (file.size() < 8) return;
    const std::uint64_t size = file.size();
    const std::vector<std::uint64_t> lengths = {0,
                                                1,
                                                2,
                                                size - 8,
                                                size - 7,
                                                size,
                                                100000000,
                                                100000001,
                                                1ULL << 32,
                                                1ULL << 63,
                                                ~0ULL,
                                                ~0ULL - 7,
                                                static_cast<std::uint64_t>(draw(0, 400))};
    file.replace(
        0, 8,
        length_bytes(
            lengths[static_cast<std::size_t>(draw(0, static_cast<int>(lengths.size()) - 1))]));
  }

  ordered_json strange_value() {
    static const std::vector<const char*> values = {
        "null",
        "true",
        "0",
        "1",
        "-1",
        "4",
        "8",
        "1.5",
        "-0",
        "1e3",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "4611686018427387904",
        "\"\"",
        "\"F32\"",
        "\"U16\"",
        "\"BOOL\"",
        "\"__metadata__\"",
        "[]",
        "[0]",
        "[0,0]",
        "[0,4]",
        "[4,0]",
        "[[0]]",
        "{}",
        "{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}"};
    return ordered_json::parse(
        values[static_cast<std::size_t>(draw(0, static_cast<int>(values.size()) - 1))]);
  }

  // Every value of the tree, by address.
  static void collect(ordered_json& value, std::vector<ordered_json*>& all) {
    all.push_back(&value);
    if (!value.is_structured()) return;
    for (auto& each : value) collect(each, all);
  }

  // Other names, another order, another type of the same size: mostly still a good file.
  void rearrange(ordered_json& json) {
    static const std::vector<std::string> same_size = {"BOOL", "U8",  "I8",  "U8",  "F16", "BF16",
                                                       "I32",  "F32", "F64", "I64", "I16", "F16"};
    std::vector<std::pair<std::string, ordered_json>> parts;
    for (auto& [name, value] : json.items()) {
      parts.emplace_back(name == "__metadata__" || draw(0, 1) == 0 ? name : name + "\n\"", value);
      if (!value.is_object() || !value.contains("dtype")) continue;
      const auto old = std::find(same_size.begin(), same_size.end(), value["dtype"]);
      if (old == same_size.end()) continue;
      const auto other = static_cast<std::size_t>(old - same_size.begin()) ^ 1U;
      if (draw(0, 1) == 0) parts.back().second["dtype"] = same_size[other];
    }
    std::shuffle(parts.begin(), parts.end(), random_);
    json = ordered_json::object();
    for (auto& [name, value] : parts) json[name] = value;
  }

  void change_json(std::string& file) {
    if (file.size() < 8) return;
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (length > file.size() - 8) return;
    auto json = ordered_json::parse(file.substr(8, length), nullptr, false);
    if (json.is_discarded()) return;
    std::vector<ordered_json*> all;
    collect(json, all);
    ordered_json& victim =
        *all[static_cast<std::size_t>(draw(0, static_cast<int>(all.size()) - 1))];
    const int kind = draw(0, 5);
    if (kind > 3 && json.is_object()) {
      rearrange(json);
    } else if (kind == 0 && victim.is_number_unsigned()) {
      victim = std::max(0, victim.get<int>() + draw(-4, 4));
    } else if (kind == 1 && victim.is_array()) {
      victim.push_back(strange_value());
    } else if (kind == 1 && victim.is_object()) {
      victim[draw(0, 1) == 0 ? "shape" : "b"] = strange_value();
    } else if (kind == 2 && victim.is_structured() && !victim.empty()) {
      victim.erase(victim.begin());
    } else {
      victim = strange_value();
    }
    std::string text = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    if (draw(0, 5) == 0 && text.size() > 2 && text.front() == '{') {
      text.insert(text.size() - 1, "," + text.substr(1, text.size() - 2));  // every name twice
    }
    file = file_bytes(text, file.size() - 8 - length);
  }

  std::mt19937 random_;
};

// What a reader may rely on.
void expect_sound(const SafetensorsHeader& header, std::uint64_t file_size) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    ASSERT_EQ(entry.begin, at);
    std::uint64_t bytes = element_bytes(entry.dtype);
    for (const std::int64_t size : entry.shape) {
      ASSERT_GE(size, 0);
      bytes *= static_cast<std::uint64_t>(size);
    }
    ASSERT_EQ(entry.end - entry.begin, bytes);
    at = entry.end;
  }
  ASSERT_EQ(header.data_begin + at, file_size);
  // The same again after it was written.
  const auto again = lay_out_safetensors(header.tensors, header.metadata);
  const std::string text = format_safetensors_header(again) + std::string(at, '\0');
  ASSERT_EQ(testing::parse(text), again);
}

unsigned touch_all(const SafetensorsFile& file) {
  unsigned sum = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    const at::Tensor tensor = file.tensor(entry.name);
    EXPECT_EQ(tensor.nbytes(), entry.end - entry.begin);
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (std::size_t i = 0; i < tensor.nbytes(); ++i) sum += bytes[i];
  }
  return sum;
}

TEST(SafetensorsMutation, DamagedFilesAreRefusedOrSound) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::cout << "seed " << seed << "\n";
  MemoryFile memory_file;
  Mutator mutator(seed);
  GuardedMemory memory;
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 100000 && !HasFailure(); ++i) {
    const std::string file = mutator.mutated();
    SCOPED_TRACE("case " + std::to_string(i));
    bool good = false;
    try {
      const auto header = parse_safetensors_header(memory.at_the_end(file), file.size());
      good = true;
      expect_sound(header, file.size());
    } catch (const std::runtime_error& error) {
      ASSERT_STRNE(error.what(), "");
      ASSERT_LT(std::strlen(error.what()), 2000U);
    }
    ++(good ? accepted : refused);
    if (!good && i % 50 != 0) continue;
    // Through the file system too: the same verdict, and every byte can be read.
    memory_file.put(file);
    try {
      const SafetensorsFile opened(memory_file.path());
      EXPECT_TRUE(good);
      touch_all(opened);
    } catch (const std::runtime_error& error) {
      const bool boolean = std::string(error.what()).find("expected 0 or 1") != std::string::npos;
      EXPECT_TRUE(!good || boolean) << error.what();
    }
  }
  // Damage that never matters, or always does, would test nothing.
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(refused, 50000);
  std::cout << accepted << " accepted, " << refused << " refused\n";
}

}  // namespace
}  // namespace pareprop::io
