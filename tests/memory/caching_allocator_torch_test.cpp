#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/memory/caching_allocator.h"

// The allocator under real tensors and operators.
namespace pareprop::memory {
namespace {

void install_torchs_own() {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), std::numeric_limits<std::uint8_t>::max());
}

std::int64_t live(Tag tag) { return usage().live_of(tag); }

class CachingAllocatorTensors : public testing::Test {
 protected:
  void SetUp() override { install_caching_allocator(); }
};

TEST_F(CachingAllocatorTensors, CountsAreExactByTagForManySizes) {
  const Usage before = usage();
  std::vector<at::Tensor> tensors;
  std::array<std::int64_t, kTags> bytes{};
  for (std::int64_t elements = 1, i = 0; elements < 3'000'000;
       elements = elements * 4 / 3 + 1, ++i) {
    const auto index = static_cast<std::size_t>(i) % kTags;
    const TagScope scope(static_cast<Tag>(index));
    const auto dtype = i % 2 == 0 ? at::kFloat : at::kBFloat16;
    tensors.push_back(at::empty({elements}, dtype));
    bytes[index] += elements * (i % 2 == 0 ? 4 : 2);
    ASSERT_EQ(live(static_cast<Tag>(index)), before.live[index] + bytes[index]) << elements;
  }
  for (std::size_t i = 0; i < kTags; ++i) EXPECT_EQ(usage().live[i], before.live[i] + bytes[i]);
  tensors.clear();
  EXPECT_EQ(usage().live, before.live);
  EXPECT_EQ(usage().total_live, before.total_live);
}

TEST_F(CachingAllocatorTensors, PeakOfAnExpression) {
  at::Tensor a = at::ones({1024, 1024});
  reset_peaks();
  const std::int64_t before = usage().total_live;
  a = (a + a) * a;  // both results alive beside a
  EXPECT_EQ(usage().total_live, before);
  EXPECT_EQ(usage().total_peak, before + 2 * (4 << 20));
  EXPECT_EQ(usage().activation_peak - usage().activation_live, 2 * (4 << 20));
}

TEST_F(CachingAllocatorTensors, TagsOfThreads) {
  const Usage before = usage();
  std::vector<at::Tensor> kept(kTags);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kTags; ++i) {
    threads.emplace_back([&kept, i] {
      const TagScope scope(static_cast<Tag>(i));
      for (int round = 0; round < 100; ++round) kept[i] = at::empty({50'000 * (1 + round % 3)});
      kept[i] = at::empty({static_cast<std::int64_t>(100'000 + i)});
    });
  }
  for (std::thread& each : threads) each.join();
  for (std::size_t i = 0; i < kTags; ++i) {
    EXPECT_EQ(usage().live[i] - before.live[i], 4 * static_cast<std::int64_t>(100'000 + i));
  }
  kept.clear();
  EXPECT_EQ(usage().live, before.live);
}

TEST_F(CachingAllocatorTensors, RetagOfATensorsStorage) {
  const std::int64_t before = live(Tag::parameters);
  at::Tensor tensor = at::empty({300, 300});
  EXPECT_TRUE(retag(tensor.storage().data_ptr(), Tag::parameters));
  EXPECT_EQ(live(Tag::parameters), before + 360'000);
  tensor.reset();
  EXPECT_EQ(live(Tag::parameters), before);
}

TEST_F(CachingAllocatorTensors, ResizeIsCounted) {
  const TagScope scope(Tag::streams);
  const std::int64_t before = live(Tag::streams);
  at::Tensor tensor = at::arange(100, at::kFloat);
  tensor.resize_({1'000'000});
  EXPECT_EQ(live(Tag::streams), before + 4'000'000);
  EXPECT_TRUE(at::equal(tensor.slice(0, 0, 100), at::arange(100, at::kFloat)));
  tensor.reset();
  EXPECT_EQ(live(Tag::streams), before);
}

TEST_F(CachingAllocatorTensors, MemoryOfTheUserIsNotCounted) {
  std::vector<float> values(100'000, 1.5f);
  const Usage before = usage();
  at::Tensor tensor = at::from_blob(values.data(), {100'000});
  EXPECT_FALSE(retag(tensor.storage().data_ptr(), Tag::tape));
  EXPECT_EQ(usage().live, before.live);
  tensor.reset();
  EXPECT_EQ(usage().live, before.live);
  EXPECT_EQ(values[99'999], 1.5f);
}

TEST_F(CachingAllocatorTensors, TensorsOfBeforeAreFreedAsTheyWereMade) {
  install_torchs_own();
  ASSERT_FALSE(caching_allocator_installed());
  const Usage before = usage();
  std::vector<at::Tensor> old;
  for (std::int64_t elements : {1, 1000, 100'000, 4'000'000}) old.push_back(at::ones({elements}));
  EXPECT_EQ(usage().live, before.live);
  install_caching_allocator();
  ASSERT_TRUE(caching_allocator_installed());
  EXPECT_FALSE(retag(old[2].storage().data_ptr(), Tag::tape));
  old[1].resize_({2'000'000});
  EXPECT_EQ(old[3].sum().item<float>(), 4e6f);
  old.clear();
  EXPECT_EQ(usage().live, before.live);
}

TEST_F(CachingAllocatorTensors, OneDnnTensorsOfBeforeToo) {
  if (!at::globalContext().userEnabledMkldnn() || !at::hasMKLDNN()) GTEST_SKIP() << "no oneDNN";
  install_torchs_own();
  at::Tensor old = at::rand({64, 512}).to_mkldnn();
  install_caching_allocator();
  const Usage before = usage();
  old.reset();  // torch frees it with raw_deallocate of the current allocator
  EXPECT_EQ(usage().live, before.live);
  at::Tensor current = at::rand({64, 512}).to_mkldnn();
  EXPECT_EQ(usage().total_live - before.total_live, 64 * 512 * 4);
  current.reset();
  EXPECT_EQ(usage().live, before.live);
}

TEST_F(CachingAllocatorTensors, StepsOfOneShapeHitAfterTheFirst) {
  const at::Tensor weight = at::rand({512, 512});
  const at::Tensor input = at::rand({1024, 512});
  const auto step = [&] {
    at::Tensor x = input;
    for (int layer = 0; layer < 4; ++layer) x = at::gelu(at::matmul(x, weight)) + x;
    return x.sum().item<float>();
  };
  trim();
  step();
  const PoolUsage first = pool_usage();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(pool_usage().misses, first.misses);
  EXPECT_GT(pool_usage().hits, first.hits);
  EXPECT_EQ(pool_usage().mapped, first.mapped);
}

TEST_F(CachingAllocatorTensors, AnImpossibleTensorIsAnErrorThatSaysWhatToDo) {
  try {
    at::empty({std::int64_t{1} << 44});  // 64 TiB
    GTEST_SKIP() << "this kernel maps 64 TiB";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_NE(message.find("70368744177664 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("smaller batch"), std::string::npos) << message;
  }
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000.0f);
}

// Same operators, same inputs, both allocators, bit for bit. Twice with ours: the second time every
// block has been used before, so what an operator leaves uninitialised would differ.
TEST_F(CachingAllocatorTensors, OperatorsGiveTheSameBits) {
  const auto compute = [] {
    at::Generator generator = at::detail::createCPUGenerator(7);
    const auto rand = [&](at::IntArrayRef shape) { return at::randn(shape, generator); };
    std::vector<at::Tensor> results;
    const at::Tensor a = rand({300, 700});
    const at::Tensor b = rand({700, 500});
    results.push_back(at::matmul(a, b));
    results.push_back(at::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16)));
    const at::Tensor image = rand({2, 16, 65, 65});
    const at::Tensor kernel = rand({32, 16, 3, 3});
    results.push_back(at::conv2d(image, kernel, {}, 2, 1));
    results.push_back(at::conv2d(image.to(at::kBFloat16), kernel.to(at::kBFloat16), {}, 1, 1));
    results.push_back(at::softmax(at::matmul(a, a.t()), -1));
    results.push_back(at::layer_norm(a, {700}));
    results.push_back(at::cat({a, a.transpose(0, 1).contiguous().view({300, 700})}).cumsum(0));
    results.push_back(std::get<0>(a.sort(1)));
    results.push_back(at::bmm(rand({24, 49, 32}), rand({24, 32, 49})).to(at::kBFloat16));
    return results;
  };
  install_torchs_own();
  const std::vector<at::Tensor> expected = compute();
  install_caching_allocator();
  for (int round = 0; round < 2; ++round) {
    const std::vector<at::Tensor> ours = compute();
    ASSERT_EQ(ours.size(), expected.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(at::equal(ours[i], expected[i])) << "result " << i << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace pareprop::memory
