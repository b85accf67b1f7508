#include "pareprop/io/tensor_files.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::message_of;
using testing::put;
using testing::TemporaryFolder;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

void write_shards(const TemporaryFolder& folder) {
  write_safetensors(folder / kFirst, {{"a", at::zeros({2})}, {"b", at::zeros({3})}});
  write_safetensors(folder / kSecond, {{"c", at::arange(4.0)}});
  put(folder / "model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": ")" +
                                                   std::string(kFirst) + R"(", "b": ")" + kFirst +
                                                   R"(", "c": ")" + kSecond + R"("}})");
}

std::string refusal_of(const std::filesystem::path& path) {
  return message_of<std::invalid_argument>([&] { TensorFiles files(path); });
}

TEST(TensorFiles, ShardsAreReadAsOneFile) {
  const TemporaryFolder folder;
  write_shards(folder);
  const TensorFiles files(folder.path());
  EXPECT_EQ(files.entries().size(), 3U);
  EXPECT_TRUE(files.contains("b"));
  EXPECT_TRUE(files.tensor("c").equal(at::arange(4.0)));
  EXPECT_EQ(files.folder(), folder.path());
  EXPECT_THROW(files.tensor("d"), std::out_of_range);
}

TEST(TensorFiles, AMissingShardAndAMissingTensorAreNamed) {
  const TemporaryFolder folder;
  write_shards(folder);
  write_safetensors(folder / kSecond, {{"other", at::zeros({1})}});
  EXPECT_NE(refusal_of(folder.path()).find("c is missing in " + std::string(kSecond)),
            std::string::npos);
  std::filesystem::remove(folder / kSecond);
  EXPECT_NE(refusal_of(folder.path()).find("the file '" + std::string(kSecond) + "' is missing"),
            std::string::npos);
}

TEST(TensorFiles, AShardIsNotLookedForElsewhere) {
  const TemporaryFolder folder, other;
  write_safetensors(other / "w", {{"a", at::zeros({1})}});
  put(folder / "model.safetensors.index.json",
      R"({"weight_map": {"a": ")" + (other / "w").string() + R"("}})");
  EXPECT_NE(refusal_of(folder.path()).find("is missing"), std::string::npos);
  put(folder / "model.safetensors.index.json", R"({"weight_map": ["a"]})");
  EXPECT_NE(refusal_of(folder.path()).find("weight_map"), std::string::npos);
}

TEST(TensorFiles, PicklesAreKnownByNameAndByContent) {
  const TemporaryFolder folder;
  put(folder / "model.bin", "anything");
  put(folder / "zip", std::string("PK\3\4\0\0\10\10", 8));
  put(folder / "old", std::string("\x80\x02\x8a\x0al\xfc\x9c\x46", 8));
  for (const char* name : {"model.bin", "zip", "old"}) {
    EXPECT_NE(refusal_of(folder / name).find("python -m pareprop.convert_pickle FILE"),
              std::string::npos)
        << name;
  }
  EXPECT_NE(refusal_of(folder.path()).find("model.bin is a pickle"), std::string::npos);
}

TEST(TensorFiles, AFolderWithoutWeightsSaysWhatIsExpected) {
  const TemporaryFolder folder;
  EXPECT_NE(refusal_of(folder.path()).find("expected model.safetensors or"), std::string::npos);
}

}  // namespace
}  // namespace pareprop::io
