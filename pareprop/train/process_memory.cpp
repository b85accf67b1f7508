#include "pareprop/train/process_memory.h"

#include <algorithm>
#include <numeric>

#include "pareprop/distributed/gradient_buckets.h"

namespace pareprop::train {
namespace {

using distributed::Shard;

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const at::Tensor& tensor) {
                           return sum + static_cast<std::int64_t>(tensor.nbytes());
                         });
}

bool divides(const PlannedProcess& process) {
  return process.shard != Shard::none && process.all > 1;
}

std::vector<at::Tensor> trained(std::vector<at::Tensor> weights) {
  std::erase_if(weights, [](const at::Tensor& weight) { return !weight.requires_grad(); });
  return weights;
}

// Copies of gradients that travel to other processes.
std::int64_t travelling_bytes(const Network& network, const PlannedProcess& process,
                              c10::Device device) {
  if (process.all == 1) return 0;
  const std::vector<at::Tensor> weights = trained(network.weights());
  const std::int64_t all = bytes_of(weights);
  const std::int64_t outside = all - bytes_of(trained(network.block_weights()));
  if (process.update == Update::inside) {
    // Of a block, or of one parameter outside of the stacks; an accelerator has copies of the next
    // as well.
    std::int64_t largest = 0;
    for (const at::Tensor& weight : weights) {
      largest = std::max(largest, static_cast<std::int64_t>(weight.nbytes()));
    }
    for (const Stack& stack : network.stacks()) {
      if (stack->depth() > 0)
        largest = std::max(largest, bytes_of(trained(stack->weights())) / stack->depth());
    }
    return device.is_cpu() ? largest : 2 * largest;
  }
  if (process.shard != Shard::gradients || process.accumulates) return all;
  // One bucket of each owner is being filled, and one travels.
  return std::min(all, outside + (process.all + 1) * distributed::GradientBuckets::kBucketBytes);
}

}  // namespace

int fullest_rank(const std::vector<at::Tensor>& weights, int processes) {
  const std::vector<int> owners = distributed::owners_of(weights, processes);
  std::vector<std::size_t> bytes(static_cast<std::size_t>(processes));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    bytes[static_cast<std::size_t>(owners[i])] += weights[i].nbytes();
  }
  return static_cast<int>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

void divide(plan::StepShape& shape, const Network& network, const PlannedProcess& process) {
  PlannedProcess in_parts = process;
  in_parts.accumulates = true;
  const std::int64_t travelling = travelling_bytes(network, process, shape.device);
  shape.other_bytes += travelling;
  shape.parts_bytes = travelling_bytes(network, in_parts, shape.device) - travelling;
  shape.updates_inside = process.update == Update::inside;
  shape.accumulates = process.accumulates;
  shape.sends_gradients = process.all > 1;
  if (!divides(process)) return;
  const auto share = [rank = process.rank, all = process.all](const std::vector<at::Tensor>& of) {
    return distributed::share_of(of, rank, all);
  };
  if (shape.optimizer_state) {
    shape.optimizer_state =
        [share, whole = shape.optimizer_state](const std::vector<at::Tensor>& weights) {
          return whole(share(weights));
        };
  }
  if (process.shard == Shard::gradients) shape.kept_gradients = share;
}

}  // namespace pareprop::train
