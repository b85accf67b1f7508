#include "pareprop/io/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "pareprop/io/checksum.h"
#include "tests/io/header_bytes.h"
#include "tests/io/sample_tensors.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::content;
using testing::file_bytes;
using testing::message_of;
using testing::pattern;
using testing::put;
using testing::sample_tensors;
using testing::TemporaryFolder;

void expect_same_bits(const at::Tensor& got, const at::Tensor& expected) {
  ASSERT_EQ(got.scalar_type(), expected.scalar_type());
  ASSERT_EQ(got.sizes(), expected.sizes());
  ASSERT_TRUE(got.is_contiguous());
  const at::Tensor plain = expected.contiguous();
  if (plain.numel() == 0) return;
  EXPECT_EQ(std::memcmp(got.const_data_ptr(), plain.const_data_ptr(), plain.nbytes()), 0);
}

TEST(Safetensors, EveryTypeShapeAndNameComesBackBitForBit) {
  const TemporaryFolder folder;
  const NamedTensors tensors = sample_tensors();
  const SafetensorsMetadata metadata = {{"", "empty key"}, {"format", "pt"}, {"\n\xc3\xa9", ""}};
  write_safetensors(folder / "a", tensors, metadata);
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(file.contains(name));
    expect_same_bits(file.tensor(name), tensor);
  }
  // What was read, written again in another order, is the same file.
  NamedTensors again;
  for (const std::string& name : file.names()) again.emplace_back(name, file.tensor(name));
  std::reverse(again.begin(), again.end());
  write_safetensors(folder / "b", again, file.metadata());
  EXPECT_EQ(content(folder / "a"), content(folder / "b"));
}

TEST(Safetensors, CanBeWithoutTensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {});
  EXPECT_EQ(content(folder / "a"), file_bytes("{}      "));
  EXPECT_TRUE(SafetensorsFile(folder / "a").names().empty());
}

TEST(Safetensors, NamesAreInTheOrderOfTheData) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {{"b", at::ones({2})},
                                   {"c", at::ones({2}, at::kLong)},
                                   {"a", at::ones({2})},
                                   {"d", at::ones({2}, at::kBool)}});
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"c", "a", "b", "d"}));
  EXPECT_EQ(file.entry("a").begin, 16U);
  EXPECT_EQ(file.entry("a").dtype, SafetensorsDtype::f32);
}

TEST(Safetensors, TensorsThatAreNotContiguousAreWrittenAsTheyLook) {
  const TemporaryFolder folder;
  const at::Tensor whole = at::arange(60, at::kDouble).view({3, 4, 5});
  const NamedTensors views = {{"transposed", whole.transpose(0, 2)},
                              {"strided", whole.slice(2, 0, 5, 2)},
                              {"broadcast", whole.select(0, 1).unsqueeze(0).expand({7, 4, 5})},
                              {"offset", whole.select(0, 2)},
                              {"grad", whole.clone().requires_grad_().permute({1, 0, 2})}};
  write_safetensors(folder / "a", views);
  const SafetensorsFile file(folder / "a");
  for (const auto& [name, tensor] : views) {
    SCOPED_TRACE(name);
    expect_same_bits(file.tensor(name), tensor.detach());
  }
}

TEST(Safetensors, ATensorOutlivesTheReaderAndTheFile) {
  const TemporaryFolder folder;
  const at::Tensor expected = pattern(at::kFloat, {1000, 100}, 1);
  write_safetensors(folder / "a", {{"t", expected}, {"u", at::ones({3})}});
  at::Tensor tensor, later;
  {
    SafetensorsFile file(folder / "a");
    tensor = file.tensor("t");
    const SafetensorsFile moved = std::move(file);
    // Replacing and removing the file does not reach what is read from it.
    write_safetensors(folder / "a", {{"t", at::zeros({1000, 100})}});
    std::filesystem::remove(folder / "a");
    later = moved.tensor("t");
  }
  expect_same_bits(tensor, expected);
  expect_same_bits(later, expected);
}

// Once mapped, this ended the process with SIGBUS.
TEST(Safetensors, AFileThatBecomesShorterIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {{"t", at::ones({50000})}, {"u", at::ones({3})}});
  const SafetensorsFile file(folder / "a");
  std::filesystem::resize_file(folder / "a", 5000);
  const at::Tensor into = at::zeros({50000});
  for (const std::string& message :
       {message_of<std::runtime_error>([&] { file.tensor("t"); }),
        message_of<std::runtime_error>([&] { file.read_into("t", into); })}) {
    EXPECT_EQ(message.find("cannot read '" + (folder / "a").string() + "': it became shorter"), 0U)
        << message;
  }
}

TEST(Safetensors, WritingToATensorDoesNotChangeTheFile) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {{"t", at::ones({5000})}});
  const std::string before = content(folder / "a");
  const SafetensorsFile file(folder / "a");
  file.tensor("t").fill_(7);
  EXPECT_EQ(file.tensor("t").sum().item<float>(), 5000);
  EXPECT_EQ(content(folder / "a"), before);
}

TEST(Safetensors, IsReadIntoTensorsOfAnyTypeAndLayout) {
  const TemporaryFolder folder;
  const at::Tensor expected = at::arange(6, at::kFloat).view({2, 3});
  write_safetensors(folder / "a", {{"t", expected}, {"b", at::ones({2}, at::kBool)}});
  const SafetensorsFile file(folder / "a");
  const at::Tensor same = at::zeros({2, 3}), wider = at::zeros({6}, at::kDouble),
                   turned = at::zeros({3, 2}).t(), flags = at::zeros({2}, at::kBool);
  const auto version = same._version();
  for (const at::Tensor& into : {same, wider, turned}) {
    file.read_into("t", into);
    EXPECT_TRUE(into.to(at::kFloat).reshape({2, 3}).equal(expected));
  }
  EXPECT_GT(same._version(), version);
  file.read_into("b", flags);
  EXPECT_TRUE(flags.all().item<bool>());
  EXPECT_EQ(message_of<std::invalid_argument>([&] { file.read_into("t", at::zeros({7})); }),
            "'" + (folder / "a").string() + "': tensor 't' has 6 elements, expected 7");
}

TEST(Safetensors, ASealIsTheChecksumOfTheFileWithoutIt) {
  const TemporaryFolder folder;
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"step", "7"}};
  write_safetensors(folder / "plain", sample_tensors(), metadata);
  write_sealed_safetensors(folder / "sealed", sample_tensors(), metadata);
  const SafetensorsFile file(folder / "sealed");
  EXPECT_TRUE(file.metadata().contains(kSealKey));
  EXPECT_FALSE(SafetensorsFile(folder / "plain").metadata().contains(kSealKey));
  EXPECT_EQ(file.metadata().at(kSealKey), hex(file_checksum(folder / "plain")));
  file.verify_seal();
  SafetensorsFile(folder / "plain").verify_seal();
  // Sealed again with the old seal among the metadata: the same file.
  write_sealed_safetensors(folder / "again", sample_tensors(), file.metadata());
  EXPECT_EQ(content(folder / "again"), content(folder / "sealed"));
}

TEST(Safetensors, ASealFindsEveryChangedByte) {
  const TemporaryFolder folder;
  write_sealed_safetensors(folder / "a", {{"t", at::ones({3})}, {"u", at::ones({2}, at::kByte)}},
                           {{"k", "v"}});
  const std::string good = content(folder / "a");
  int refused_by_seal = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(folder / "b", damaged);
    SCOPED_TRACE(at);
    try {
      const SafetensorsFile file(folder / "b");
      // Without the entry's own name it is a file of somebody else.
      if (!file.metadata().contains(kSealKey)) continue;
      file.verify_seal();
      // White space is all that may differ.
      EXPECT_EQ(file.entries(), SafetensorsFile(folder / "a").entries());
      EXPECT_EQ(file.metadata(), SafetensorsFile(folder / "a").metadata());
      EXPECT_LT(at, good.size() - 14);
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()).find("does not match its checksum") != std::string::npos) {
        ++refused_by_seal;
      }
    }
  }
  // The data has 14 bytes, names, metadata and seal some more.
  EXPECT_GE(refused_by_seal, 14 + 16);
}

TEST(Safetensors, AFileCanBeReplacedByItself) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {{"t", at::ones({50000})}});
  const SafetensorsFile file(folder / "a");
  write_safetensors(folder / "a", {{"t", file.tensor("t")}, {"u", file.tensor("t")}});
  expect_same_bits(SafetensorsFile(folder / "a").tensor("u"), at::ones({50000}));
}

TEST(Safetensors, DataThatIsNotAlignedIsCopied) {
  const TemporaryFolder folder;
  const std::string json = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("b":{"dtype":"F64","shape":[2],"data_offsets":[1,17]}})";
  const double values[] = {1.5, -2.25};
  std::string file = file_bytes(json, 17);
  std::memcpy(file.data() + 8 + json.size() + 1, values, sizeof values);
  put(folder / "a", file);
  at::Tensor tensor;
  { tensor = SafetensorsFile(folder / "a").tensor("b"); }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 8, 0U);
  EXPECT_EQ(tensor[0].item<double>(), 1.5);
  EXPECT_EQ(tensor[1].item<double>(), -2.25);
}

TEST(Safetensors, BooleansAreZeroOrOne) {
  const TemporaryFolder folder;
  const std::string json = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  put(folder / "a", testing::length_bytes(json.size()) + json + std::string("\0\1\2", 3));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(
      message_of<std::runtime_error>([&] { file.tensor("m"); }),
      "'" + (folder / "a").string() + "': tensor 'm' (BOOL): element 2 is 2, expected 0 or 1");
}

TEST(Safetensors, WhatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  const auto message = [](const std::filesystem::path& path) {
    return message_of<std::runtime_error>([&] { SafetensorsFile{path}; });
  };
  const std::string missing = (folder / "missing").string();
  EXPECT_EQ(message(missing), "cannot read '" + missing + "': No such file or directory");
  EXPECT_EQ(message(folder.path()), "cannot read '" + folder.path().string() +
                                        "': it is a folder; give the name of a file");
  EXPECT_EQ(message("/dev/null"),
            "cannot read '/dev/null': it is a device; expected a regular file");
  put(folder / "empty", "");
  EXPECT_NE(message(folder / "empty").find("the file has 0 bytes"), std::string::npos);
  put(folder / "bad", file_bytes(R"({"t":{"dtype":"F8_E4M3"}})"));
  EXPECT_EQ(message(folder / "bad")
                .find("cannot read '" + (folder / "bad").string() +
                      "': tensor 't' has dtype 'F8_E4M3', which is not"),
            0U);
  write_safetensors(folder / "good", {{"t", at::ones({2})}});
  EXPECT_EQ(message_of<std::out_of_range>([&] { SafetensorsFile(folder / "good").tensor("x"); }),
            "'" + (folder / "good").string() + "' has no tensor 'x'; it has 1 others");
}

TEST(Safetensors, WhatCannotBeWrittenIsRefusedBeforeTheFileIsTouched) {
  const TemporaryFolder folder;
  const auto message = [&](const NamedTensors& tensors) {
    return message_of<std::invalid_argument>([&] { write_safetensors(folder / "a", tensors); });
  };
  EXPECT_EQ(message({{"t", at::Tensor()}}), "cannot write tensor 't': it is undefined");
  EXPECT_EQ(message({{"t", at::zeros({1}, at::kComplexFloat)}}),
            "cannot write tensor 't': dtype ComplexFloat is not supported; convert it first, for "
            "example to Float");
  EXPECT_NE(message({{"t", at::ones({2}).to_sparse()}}).find("sparse"), std::string::npos);
  EXPECT_NE(
      message({{"t", at::empty({2}, at::TensorOptions().device(at::kMeta))}}).find("without data"),
      std::string::npos);
  EXPECT_NE(message({{"t", at::ones({2})}, {"t", at::ones({2})}}).find("two tensors"),
            std::string::npos);
  EXPECT_EQ(folder.files(), 0);
}

}  // namespace
}  // namespace pareprop::io
