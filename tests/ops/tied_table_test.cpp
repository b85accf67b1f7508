#include "pareprop/ops/tied_table.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/table_products.h"

namespace pareprop {
namespace {

constexpr std::int64_t kNone = 1;

// A small network that begins and ends with its table.
struct TiedNetwork {
  at::Tensor table, bias, ids;

  explicit TiedNetwork(std::int64_t words, std::int64_t width, at::ScalarType type = at::kDouble) {
    const auto generator = at::detail::createCPUGenerator(11);
    table = at::randn({words, width}, generator, at::dtype(type)).requires_grad_();
    bias = at::randn({words}, generator, at::dtype(type)).requires_grad_();
    // Some twice, some padding.
    ids = at::randint(0, 5, {3, 7}, generator, at::dtype(at::kLong));
  }

  at::Tensor loss() const {
    const TableRows embedded = rows_of(table, ids, kNone);
    return table_products(embedded.rows.tanh(), embedded.table, bias).sin().sum();
  }
  at::Tensor reference_loss() const {
    return at::linear(at::embedding(table, ids, kNone).tanh(), table, bias).sin().sum();
  }
};

TEST(TiedTable, HasTheGradientsOfEmbeddingAndLinear) {
  const TiedNetwork network(9, 4);
  EXPECT_TRUE(at::equal(network.loss(), network.reference_loss()));
  const auto expected =
      torch::autograd::grad({network.reference_loss()}, {network.table, network.bias});
  const auto found = torch::autograd::grad({network.loss()}, {network.table, network.bias});
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-12, 1e-12)) << i;
  }
}

TEST(TiedTable, ThePaddingsRowGetsWhatTheProductsGiveIt) {
  const TiedNetwork network(9, 4);
  const TableRows embedded = rows_of(network.table, network.ids, kNone);
  const auto of_rows =
      torch::autograd::grad({embedded.rows.sum()}, {network.table}, {}, /*retain_graph=*/true);
  for (std::int64_t row = 0; row < 9; ++row) {
    const double times = row == kNone ? 0.0 : network.ids.eq(row).sum().item<double>();
    EXPECT_EQ(of_rows[0][row][0].item<double>(), times) << row;
  }
  const auto of_table = torch::autograd::grad({embedded.table.sum()}, {network.table});
  EXPECT_EQ(of_table[0].min().item<double>(), 1.0);
  EXPECT_EQ(of_table[0].max().item<double>(), 1.0);
}

TEST(TiedTable, AddsToWhatIsThereAndLeavesAGradientThatOthersReadAlone) {
  const TiedNetwork network(9, 4);
  const auto once = torch::autograd::grad({network.loss()}, {network.table});
  network.loss().backward();
  network.loss().backward();
  EXPECT_TRUE(at::allclose(network.table.grad(), 2 * once[0], 1e-12, 1e-12));

  const TableRows embedded = rows_of(network.table, network.ids, kNone);
  const at::Tensor given = at::randn({9, 4}, at::kDouble), before = given.clone();
  torch::autograd::grad({embedded.rows, embedded.table}, {network.table},
                        {at::randn({3, 7, 4}, at::kDouble), given});
  EXPECT_TRUE(at::equal(given, before));
}

TEST(TiedTable, AFrozenTableLetsTheGradientThrough) {
  TiedNetwork network(9, 4);
  network.table.requires_grad_(false);
  const at::Tensor x = at::randn({2, 4}, at::kDouble).requires_grad_();
  const auto found =
      torch::autograd::grad({table_products(x, network.table, network.bias).sum()}, {x});
  EXPECT_TRUE(at::allclose(found[0][0], network.table.sum(0)));
}

TEST(TiedTable, HoldsOneGradientOfTheTable) {
  memory::install_caching_allocator();
  const TiedNetwork network(20000, 16, at::kFloat);
  const auto table = static_cast<std::int64_t>(network.table.nbytes());
  const auto peak = [&](const at::Tensor& loss) {
    const std::int64_t before = memory::usage().total_live;
    memory::reset_peaks();
    loss.backward();
    network.table.mutable_grad().reset();
    network.bias.mutable_grad().reset();
    return memory::usage().total_peak - before;
  };
  const auto scores = [&](const at::Tensor& embedded, const at::Tensor& words, bool ours) {
    const at::Tensor x = embedded.slice(0, 0, 1).slice(1, 0, 1);
    return (ours ? table_products(x, words, network.bias) : at::linear(x, words, network.bias))
        .sum();
  };
  const at::Tensor plain = at::embedding(network.table, network.ids, kNone);
  EXPECT_GT(peak(scores(plain, network.table, false)), 2 * table);
  const TableRows embedded = rows_of(network.table, network.ids, kNone);
  EXPECT_LT(peak(scores(embedded.rows, embedded.table, true)), table + table / 2);
}

}  // namespace
}  // namespace pareprop
