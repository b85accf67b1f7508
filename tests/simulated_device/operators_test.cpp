#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/simulated_device/simulated_device.h"

namespace pareprop::testing {
namespace {

at::Tensor numbers(at::IntArrayRef sizes, std::uint64_t seed = 1) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed));
}

at::Tensor on_device(const at::Tensor& t, int index = 0) {
  return t.to(SimulatedDevice::device(index));
}

void expect_same(const at::Tensor& device, const at::Tensor& cpu) {
  EXPECT_EQ(device.device().type(), c10::DeviceType::PrivateUse1);
  EXPECT_EQ(device.strides(), cpu.strides());
  EXPECT_TRUE(device.cpu().equal(cpu)) << device.cpu() << cpu;
}

TEST(SimulatedOperators, ComputeWhatTheCpuComputes) {
  const at::Tensor a = numbers({3, 4}), b = numbers({3, 4}, 2), w = numbers({5, 4}, 3);
  const at::Tensor da = on_device(a), db = on_device(b), dw = on_device(w);
  expect_same(da.add(db, 2.0), a.add(b, 2.0));
  expect_same(da.mm(dw.t()), a.mm(w.t()));
  expect_same(at::linear(da, dw), at::linear(a, w));
  expect_same(da.t().contiguous(), a.t().contiguous());
  expect_same(da.unsqueeze(0).expand({2, 3, 4}).sum(0), a.unsqueeze(0).expand({2, 3, 4}).sum(0));
  expect_same(at::softmax(da, -1), at::softmax(a, -1));
  expect_same(at::layer_norm(da, {4}, dw[0], dw[1]), at::layer_norm(a, {4}, w[0], w[1]));
  expect_same(da.gt(0.1), a.gt(0.1));
  expect_same(da.to(at::kBFloat16), a.to(at::kBFloat16));
  expect_same(at::cat({da, db}), at::cat({a, b}));
  expect_same(da.index({at::tensor({2, 0}).to(da.device())}), a.index({at::tensor({2, 0})}));
  expect_same(at::arange(5, da.options()), at::arange(5, a.options()));
  expect_same(at::full({2}, 3.5, da.options()), at::full({2}, 3.5));
  const auto [values, indices] = da.max(1);
  expect_same(values, std::get<0>(a.max(1)));
  expect_same(indices, std::get<1>(a.max(1)));
}

TEST(SimulatedOperators, WriteInPlaceAndThroughViews) {
  const at::Tensor a = numbers({3, 4});
  at::Tensor d = on_device(a);
  const at::Tensor view = d.narrow(0, 1, 2).view({8});
  EXPECT_TRUE(view.is_alias_of(d));
  view.mul_(2.0);
  EXPECT_TRUE(d.is_same(d.add_(1.0)));
  at::Tensor expected = a.clone();
  expected.narrow(0, 1, 2).mul_(2.0);
  expect_same(d, expected.add_(1.0));
  at::Tensor out = at::empty({0}, d.options());
  at::add_out(out, d, d);
  EXPECT_EQ(out.sizes(), d.sizes());
  EXPECT_TRUE(out.cpu().equal(d.cpu().mul(2)));
}

TEST(SimulatedOperators, TrainANetworkAsOnTheCpu) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)),
                            torch::nn::GELU(), torch::nn::Flatten(), torch::nn::Linear(64, 5),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})));
  const at::Tensor x = numbers({3, 2, 4, 4}), target = at::tensor({1L, 4L, 0L});
  const auto step = [&](const c10::Device device) {
    net->to(device);
    net->zero_grad();
    at::Tensor loss = at::cross_entropy_loss(net->forward(x.to(device)), target.to(device));
    loss.backward();
    std::vector<at::Tensor> found{loss.detach().cpu()};
    for (const auto& p : net->parameters()) found.push_back(p.grad().cpu());
    return found;
  };
  const auto cpu = step(at::kCPU), device = step(SimulatedDevice::device(1));
  ASSERT_EQ(cpu.size(), device.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(cpu[i].equal(device[i])) << i;
}

TEST(SimulatedOperators, DrawFromTheDevicesGenerator) {
  const c10::Device device = SimulatedDevice::device();
  at::Generator shared = at::globalContext().defaultGenerator(device);
  shared.set_current_seed(11);
  const at::Tensor drawn = at::randn({7}, at::TensorOptions(device));
  const at::Tensor again = at::empty({7}, at::TensorOptions(device)).normal_();
  const at::Generator cpu = at::detail::createCPUGenerator(11);
  EXPECT_TRUE(drawn.cpu().equal(at::randn({7}, cpu)));
  EXPECT_TRUE(again.cpu().equal(at::empty({7}).normal_(0, 1, cpu)));

  at::Generator own =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(1);
  EXPECT_EQ(own.device(), SimulatedDevice::device(1));
  own.set_current_seed(5);
  const at::Tensor state = own.get_state();
  const at::Tensor first = at::rand({4}, own, at::TensorOptions(SimulatedDevice::device(1)));
  own.set_state(state);
  EXPECT_TRUE(
      at::rand({4}, own, at::TensorOptions(SimulatedDevice::device(1))).cpu().equal(first.cpu()));
}

TEST(SimulatedOperators, AutocastComputesProductsInLowPrecision) {
  const at::Tensor a = on_device(numbers({3, 4})), w = on_device(numbers({5, 4}));
  const auto type = c10::DeviceType::PrivateUse1;
  at::autocast::set_autocast_dtype(type, at::kBFloat16);
  at::autocast::set_autocast_enabled(type, true);
  EXPECT_EQ(at::linear(a, w).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::linear(a.unsqueeze(0), w).scalar_type(), at::kBFloat16);
  EXPECT_EQ(a.mm(w.t()).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::softmax(a.to(at::kBFloat16), -1).scalar_type(), at::kFloat);
  EXPECT_EQ(a.add(1.0).scalar_type(), at::kFloat);
  at::autocast::set_autocast_enabled(type, false);
  at::autocast::clear_cache();
}

TEST(SimulatedOperators, HaveFusedAttention) {
  constexpr double kScale = 0.5;
  std::vector<at::Tensor> in{numbers({2, 3, 5, 4}, 1), numbers({2, 3, 6, 4}, 2),
                             numbers({2, 3, 6, 4}, 3), numbers({2, 3, 5, 6}, 4)};
  const at::Tensor dy = numbers({2, 3, 5, 4}, 5);
  for (at::Tensor& t : in) t.requires_grad_(true);
  const at::Tensor expected = at::matmul(
      at::softmax(at::matmul(in[0], in[1].transpose(-1, -2)).mul(kScale).add(in[3]), -1), in[2]);
  const auto gradients = torch::autograd::grad({expected}, in, {dy});

  std::vector<at::Tensor> there;
  for (const at::Tensor& t : in) there.push_back(on_device(t.detach()));
  SimulatedDevice::reset_counts();
  const auto made = at::_scaled_dot_product_fused_attention_overrideable(
      there[0], there[1], there[2], there[3], 0.0, false, false, kScale);
  const at::Tensor none;
  const auto [dq, dk, dv, dbias] = at::_scaled_dot_product_fused_attention_overrideable_backward(
      on_device(dy), there[0], there[1], there[2], there[3], {true, true, true, true},
      std::get<0>(made), std::get<1>(made), none, none, 5, 6, 0.0, false, none, none, kScale);
  EXPECT_EQ(SimulatedDevice::counts().launches, 3);  // with the copy of dy
  EXPECT_TRUE(std::get<0>(made).cpu().allclose(expected, 1e-5, 1e-6));
  const std::vector<at::Tensor> found{dq, dk, dv, dbias};
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].cpu().allclose(gradients[i], 1e-4, 1e-5)) << i;
  }
}

TEST(SimulatedOperators, AreCounted) {
  const at::Tensor a = on_device(numbers({3, 4}));
  const auto counted = [](const std::function<void()>& work) {
    SimulatedDevice::reset_counts();
    work();
    return SimulatedDevice::counts();
  };
  auto counts = counted([&] { a.add(a).mul(2.0).unsqueeze(0).view({12, 1}).t(); });
  EXPECT_EQ(counts.launches, 2);
  EXPECT_EQ(SimulatedDevice::launches(),
            (std::map<std::string, std::int64_t>{{"aten::add.out", 1}, {"aten::mul.out", 1}}));
  EXPECT_EQ(counts.host_reads + counts.host_waits, 0);
  EXPECT_EQ(counted([&] { at::_foreach_add({a, a, a}, 1.0); }).launches, 1);

  EXPECT_EQ(counted([&] { a.sum().item<float>(); }).host_reads, 1);
  EXPECT_EQ(counted([&] { a.gt(0).nonzero(); }).host_reads, 1);
  EXPECT_EQ(counted([&] { a.masked_select(a.gt(0)); }).host_reads, 1);
  EXPECT_EQ(counted([&] { a.equal(a); }).host_reads, 1);
  EXPECT_EQ(counted([&] { a.cpu(); }).host_reads, 1);
  EXPECT_EQ(counted([&] { on_device(numbers({2})); }).host_waits, 1);
  EXPECT_EQ(counted([&] { a.where(a.gt(0), at::zeros({}, a.options())); }).host_reads, 0);
}

TEST(SimulatedOperators, WantAllTensorsOnOneDevice) {
  const at::Tensor a = on_device(numbers({3})), other = on_device(numbers({3}), 1);
  EXPECT_THROW(a.add(other), c10::Error);
  EXPECT_THROW(a.add(numbers({3})), c10::Error);
  EXPECT_TRUE(a.add(at::scalar_tensor(2.0)).cpu().equal(a.cpu().add(2.0)));
}

}  // namespace
}  // namespace pareprop::testing
