// A reversible network of one's own, trained for a few steps.

#include <pareprop/pareprop.h>
#include <torch/torch.h>

#include <iostream>

// Any module will do: norm inside, no residual inside, the output has the shape of the input.
struct Mlp : torch::nn::Module {
  explicit Mlp(int width)
      : norm(torch::nn::LayerNormOptions({width})), up(width, 4 * width), down(4 * width, width) {
    register_module("norm", norm), register_module("up", up), register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};

int main() {
  pareprop::memory::install_caching_allocator();
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({512, 128}), target = x.flip(1);

  std::vector<pareprop::Block> blocks;  // y1 = x1 + F(x2), y2 = x2 + G(y1)
  for (int i = 0; i < 12; ++i) {
    blocks.push_back({std::make_shared<Mlp>(128), std::make_shared<Mlp>(128)});
  }
  pareprop::Stack stack(blocks, pareprop::Mode::pareprop);
  torch::optim::AdamW optimizer(stack->parameters(), 1e-3);
  for (int step = 0; step < 10; ++step) {
    auto [y1, y2] = stack->forward(x, x);
    at::Tensor loss = torch::mse_loss(y1 + y2, target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "loss " << loss.item<float>() << ", drift " << stack->drift().worst
              << ", memory peak " << pareprop::memory::usage().total_peak << " bytes\n";
  }
}
