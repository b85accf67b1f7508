#include "pareprop/distributed/gradient_buckets.h"

#include <gtest/gtest.h>

#include "pareprop/io/safetensors.h"
#include "tests/distributed/worker_process.h"
#include "tests/train/small_run.h"

namespace pareprop::distributed {
namespace {

using io::testing::content;
using io::testing::TemporaryFolder;
using testing::Worker;

// Weights after some steps, of one process with whole batches and of several with parts of them.
void compare(const std::string& model, int processes) {
  SCOPED_TRACE(model);
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  Worker alone({"train", "60000", path, model});
  EXPECT_EQ(alone.wait(), 0) << alone.errors();
  Worker together({"--nproc", std::to_string(processes), "train", "60000", path, model});
  ASSERT_EQ(together.wait(), 0) << together.errors();
  const std::string end = "-of-" + std::to_string(processes);
  for (int rank = 1; rank < processes; ++rank) {
    EXPECT_TRUE(content(folder / ("0" + end)) == content(folder / (std::to_string(rank) + end)));
  }
  const io::SafetensorsFile one(folder / "0-of-1"), several(folder / ("0" + end));
  for (const std::string& name : one.names()) {
    EXPECT_TRUE(one.tensor(name).allclose(several.tensor(name), 1e-4, 1e-6)) << name;
  }
}

std::vector<Watch> watched(const models::Model& model, GradientBuckets& buckets) {
  std::vector<Watch> watches;
  for (const Stack& stack : model.stacks()) {
    watches.push_back(stack->watch({.on_block_gradients = buckets.on_block()}));
  }
  return watches;
}

TEST(GradientBuckets, SeveralProcessesTrainAsOneWould) {
  compare("vit_tiny", 2);
  compare("swin_tiny", 2);
  compare("vit_tiny plain", 2);
}

// Two processes with the same gradients: their sum is twice what one has.
class Twin : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int local_rank() const override { return 0; }
  int world() const override { return 2; }
  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor) override {
    sent.push_back(tensor.numel());
    return std::make_unique<Doubling>(tensor);
  }
  std::unique_ptr<Pending> reduce(const at::Tensor& tensor, int /*to*/) override {
    return all_reduce(tensor);
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor& /*tensor*/, int /*from*/) override {
    struct Same : Pending {
      void wait() override {}
      double done_at() const override { return TraceRecorder::now(); }
    };
    return std::make_unique<Same>();
  }
  void barrier() override {}

  std::vector<std::int64_t> sent;  // elements

 private:
  struct Doubling : Pending {
    explicit Doubling(at::Tensor of) : tensor(std::move(of)) {}
    void wait() override {
      done = TraceRecorder::now();
      tensor.mul_(2);
    }
    double done_at() const override { return done; }
    double done = 0.0;
    at::Tensor tensor;
  };
};

void two_micro_steps(models::Model& model, const std::function<void()>& before_last) {
  for (std::uint64_t micro = 0; micro < 2; ++micro) {
    const at::Tensor loss = model.loss(model.example(2, micro));
    if (micro == 1) before_last();
    loss.backward();
  }
}

TEST(GradientBuckets, BlocksAreSentInTheBackwardPassOfTheLastMicroStepOnly) {
  const auto expected = train::testing::small_vit(1, {4}),
             model = train::testing::small_vit(1, {4});
  Twin group;
  Shares shares(models::trained_parameters(*model), group);
  GradientBuckets buckets(*model, shares, 20000);
  const std::vector<Watch> watches = watched(*model, buckets);
  two_micro_steps(*expected, [] {});
  std::vector<std::int64_t> first_order;
  for (int step = 0; step < 2; ++step) {
    group.sent.clear();
    two_micro_steps(*model, [&] {
      EXPECT_TRUE(group.sent.empty());
      buckets.begin();
    });
    std::int64_t in_blocks = 0, all = 0;
    for (const auto& parameter : model->stacks()[0]->parameters()) in_blocks += parameter.numel();
    for (const std::int64_t elements : group.sent) all += elements;
    // The last bucket of the blocks may hold other parameters as well.
    EXPECT_GT(group.sent.size(), 4U);
    EXPECT_GT(all, in_blocks / 2);
    EXPECT_LE(all, in_blocks);
    buckets.finish();
    all = 0;
    for (const std::int64_t elements : group.sent) all += elements;
    EXPECT_EQ(all, model->parameter_count());
    if (step == 0) first_order = group.sent;
    EXPECT_EQ(group.sent, first_order);
    for (const auto& item : expected->named_parameters()) {
      at::Tensor& got = model->named_parameters()[item.key()].mutable_grad();
      EXPECT_TRUE(got.equal(item.value().grad())) << item.key();
      got.reset();
    }
  }
}

TEST(GradientBuckets, OfDividedGradientsKeepThoseOfOwnParameters) {
  for (const bool backward : {true, false}) {
    const auto expected = train::testing::small_vit(1, {4}),
               model = train::testing::small_vit(1, {4});
    Twin group;
    Shares shares(models::trained_parameters(*model), group, Shard::gradients);
    GradientBuckets buckets(*model, shares, 20000);
    EXPECT_FALSE(buckets.on_block());
    const auto parameters = expected->named_parameters();
    for (int step = 0; step < 2; ++step) {
      group.sent.clear();
      expected->zero_grad();
      drop_gradients(*model);
      for (std::uint64_t micro = 0; micro < 2; ++micro) {
        const bool last = micro == 1;
        const auto batch = model->example(2, micro);
        const auto pass = [&](std::shared_ptr<GradientTaker> taker) {
          return std::make_shared<Pass>(0, 0, nullptr, std::move(taker));
        };
        const auto own = pass(last ? buckets.begin() : nullptr);
        const at::Tensor loss = model->loss(batch, {.pass = own});
        // The last pass may be left out, where its loss is not finite.
        if (last && !backward) continue;
        expected->loss(batch, {.pass = pass(nullptr)}).backward();
        loss.backward();
      }
      buckets.finish();
      EXPECT_GT(group.sent.size(), 4U);
      for (std::size_t i = 0; i < shares.all().size(); ++i) {
        const auto& [name, parameter] = shares.all()[i];
        EXPECT_EQ(parameter.grad().defined(), shares.owner(i) == group.rank()) << name;
        if (!parameter.grad().defined()) continue;
        EXPECT_TRUE(parameter.grad().equal(parameters[name].grad())) << name;
      }
    }
  }
}

TEST(GradientBuckets, TellARecorderWhenEachWasSentAndHadArrived) {
  const auto model = train::testing::small_vit(1, {4});
  Twin group;
  Shares shares(models::trained_parameters(*model), group);
  GradientBuckets buckets(*model, shares, 20000);
  const std::vector<Watch> watches = watched(*model, buckets);
  TraceRecorder recorder(*model);
  recorder.begin("step");
  buckets.set_recorder(&recorder);
  buckets.begin();
  model->loss(model->example(2, 0)).backward();
  const double after_backward = TraceRecorder::now();
  const std::size_t early = group.sent.size();
  buckets.finish();
  const StepTrace trace = recorder.finish();
  std::vector<StepSpan> spans;
  for (const StepSpan& span : trace.spans) {
    if (span.kind == StepKind::communication) spans.push_back(span);
  }
  ASSERT_EQ(spans.size(), group.sent.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].name.rfind("bucket " + std::to_string(i) + ", ", 0), 0U) << spans[i].name;
    EXPECT_EQ(spans[i].begin < after_backward, i < early) << i;
    EXPECT_GT(spans[i].end, after_backward);
  }
}

TEST(GradientBuckets, InOneProcessDoNothing) {
  const auto group = make_process_group({});
  const auto model = train::testing::small_vit(1);
  Shares shares(models::trained_parameters(*model), *group);
  GradientBuckets buckets(*model, shares);
  EXPECT_FALSE(buckets.on_block());
  buckets.begin();
  EXPECT_THROW(buckets.begin(), std::logic_error);
  model->loss(model->example(2, 0)).backward();
  const auto before = model->parameters()[0].grad().clone();
  buckets.finish();
  EXPECT_TRUE(model->parameters()[0].grad().equal(before));
  EXPECT_THROW(buckets.finish(), std::logic_error);
}

}  // namespace
}  // namespace pareprop::distributed
