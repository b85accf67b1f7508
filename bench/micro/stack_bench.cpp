// One training step (forward and backward) of a small RevViT in each mode, checked before it is
// timed.

#include <benchmark/benchmark.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/sweep/verify.h"

namespace pareprop {
namespace {

void training_step(benchmark::State& state, Mode mode) {
  memory::install_caching_allocator();
  const std::int64_t batch = state.range(0);
  auto model = models::make_model("vit_tiny", {.image_size = 112});
  if (!verify(*model, {.modes = {mode}, .batch = 2}).front().holds) {
    return state.SkipWithError("gradients differ from those of ordinary autograd");
  }
  model->set_mode(mode);
  const models::Batch example = model->example(batch, 1);
  auto step = [&] { model->loss(example).backward(); };
  for (int i = 0; i < 8; ++i) step();  // `auto` has decided by then
  memory::reset_peaks();
  const auto before = memory::usage().activation_live;
  for (auto _ : state) step();
  state.counters["activation_MiB"] =
      static_cast<double>(memory::usage().activation_peak - before) / (1 << 20);
  state.SetItemsProcessed(state.iterations() * batch);
}

#define PAREPROP_BENCH_MODE(mode)                    \
  BENCHMARK_CAPTURE(training_step, mode, Mode::mode) \
      ->Arg(1)                                       \
      ->Arg(8)                                       \
      ->UseRealTime()                                \
      ->Unit(benchmark::kMillisecond)
PAREPROP_BENCH_MODE(stored);
PAREPROP_BENCH_MODE(checkpoint);
PAREPROP_BENCH_MODE(reprop);
PAREPROP_BENCH_MODE(pareprop);
PAREPROP_BENCH_MODE(automatic);

}  // namespace
}  // namespace pareprop
