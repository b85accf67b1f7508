#include "pareprop/train/trainer.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <vector>

#include "pareprop/device/choose_device.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/train/config_agreement.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/resume.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/trained_run.h"
#include "pareprop/train/training_loop.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

// What cannot fit is refused before it takes memory, and nobody takes any before all have seen how
// much there is.
void refuse_what_does_not_fit(BudgetKeeper& keeper, distributed::ProcessGroup& group) {
  keeper.expect_to_fit();
  group.barrier();
}

// The step that was done last.
std::int64_t go_on(const StoredCheckpoint& checkpoint, const TrainConfig& config,
                   const TrainingData& data, const Trained& trained, const TrainEvents& events) {
  check_tokenizer(config, data);
  load(checkpoint, trained);
  const std::int64_t step = checkpoint.state.step;
  if (checkpoint.state.data_position != step * config.accumulate) {
    throw std::invalid_argument(checkpoint.folder.string() +
                                ": the data position does not match the step");
  }
  if (events.on_message) events.on_message("resuming from " + checkpoint.folder.string());
  return step;
}

// Processes that see different folders would find different checkpoints.
void check_same_step(std::int64_t step, const TrainConfig& config,
                     distributed::ProcessGroup& group) {
  const at::Tensor sums = at::tensor({step, step * step}, at::kLong);
  group.all_reduce(sums)->wait();
  const std::int64_t* sum = sums.const_data_ptr<std::int64_t>();
  if (sum[0] * sum[0] == sum[1] * group.world()) return;
  throw std::invalid_argument(
      "rank " + std::to_string(group.rank()) + " starts at step " + std::to_string(step) +
      ", other ranks at another step: expected one folder that all processes see, " + config.out);
}

void check_steps(std::int64_t step, std::int64_t all_steps, const TrainConfig& config) {
  if (config.trace > all_steps) {
    throw FieldError("trace", "expected a step of the run, 1 to " + std::to_string(all_steps) +
                                  ", got " + std::to_string(config.trace));
  }
  if (step <= all_steps) return;
  throw std::invalid_argument("--steps or --epochs ask for " + std::to_string(all_steps) +
                              " steps, but the run has done " + std::to_string(step) +
                              " already: expected at least as many");
}

// True when the run that is resumed has nothing left to do. What decides is on the writer's disk.
bool has_ended(const std::optional<StoredCheckpoint>& checkpoint, const RunSchedule& schedule,
               const TrainConfig& config, distributed::ProcessGroup& group) {
  const bool done =
      checkpoint && schedule.is_over(checkpoint->state.step, checkpoint->state.losses);
  const at::Tensor ended = at::tensor({done && fs::exists(weights_file(config.out)) ? 1 : 0});
  group.broadcast(ended)->wait();
  return ended.item<std::int64_t>() != 0;
}

// Tensors that are neither weights nor the optimizer's.
std::int64_t live_besides(const Trained& trained) {
  const memory::Usage usage = usage_of(trained.model, trained.state_bytes());
  return usage.total_live - usage.live_of(memory::Tag::parameters) -
         usage.live_of(memory::Tag::optimizer);
}

// The largest that a process has.
std::int64_t largest(std::int64_t own, distributed::ProcessGroup& group) {
  if (group.world() == 1) return own;
  const at::Tensor all = at::zeros({group.world()}, at::kLong);
  all.select(0, group.rank()).fill_(own);
  group.all_reduce(all)->wait();
  return all.max().item<std::int64_t>();
}

// The parts that a resumed run had, unless something else is asked for than before.
std::optional<std::int64_t> parts_before(const std::optional<StoredCheckpoint>& checkpoint,
                                         const TrainConfig& config) {
  if (!checkpoint) return std::nullopt;
  TrainConfig before;
  apply_json(before, checkpoint->state.config, checkpoint->folder.string());
  if (before.budget != config.budget || before.mode != config.mode) return std::nullopt;
  const std::int64_t parts = checkpoint->state.parts;
  if (parts < 1 || config.batch % parts != 0) {
    throw std::invalid_argument(checkpoint->folder.string() + ": its batches had " +
                                std::to_string(parts) + " parts, which does not divide --batch " +
                                std::to_string(config.batch));
  }
  return parts;
}

// With the network of what it begins with, where it does not name one.
TrainConfig check_and_complete(const TrainConfig& given,
                               const std::optional<StoredCheckpoint>& checkpoint,
                               const std::optional<FirstWeights>& weights) {
  if (weights) {
    TrainConfig whole = weights->complete(given);
    check(whole);
    return whole;
  }
  TrainConfig before;
  before.model = kUsualModel;
  if (checkpoint) {
    apply_json(before, checkpoint->state.config, checkpoint->folder.string());
  }
  return with_network(given, before);
}

// Normalised, and divided into tokens, as what the run begins with was.
TrainingData open_data_of(const TrainConfig& config, bool goes_on,
                          const std::optional<FirstWeights>& weights) {
  TrainingData data = open_training_data(with_tokenizer_of_run(config, goes_on), weights);
  if (goes_on && !config.weights.empty() && data.images && fs::exists(classes_file(config.out))) {
    take_input(read_classes(config.out).input, data.images->channels, data.images->augment);
  }
  return data;
}

// All processes take as many parts as the one that has the least memory.
void plan_steps(const Trained& trained, BudgetKeeper& keeper, std::optional<std::int64_t> parts,
                distributed::ProcessGroup& group) {
  keeper.plan(trained.model, live_besides(trained), parts);
  const std::int64_t agreed = largest(keeper.parts(), group);
  if (agreed != keeper.parts()) keeper.plan(trained.model, live_besides(trained), agreed);
  trained.model.set_plan(keeper.plan().step);
}

// With what it allows, where that is the fastest way. A run that goes on has it settled.
TrainConfig settled(const TrainConfig& asked, const TrainingData& data, const Processes& processes,
                    distributed::ProcessGroup& group, const TrainEvents& events) {
  const Allowed allowed = choices_of(asked).allowed;
  if (!allowed.any()) return asked;
  const std::vector<AllowedWay> ways = allowed_ways(asked, allowed);
  const std::int64_t way =
      largest(BudgetKeeper(asked, data, processes, events.on_message).settle(), group);
  if (way == 0) return asked;
  const AllowedWay& taken = ways.at(static_cast<std::size_t>(way - 1));
  if (events.on_message) events.on_message("the plan takes " + taken.flags + ", as --allow allows");
  return taken.config;
}

// Blocks send their gradients to other processes as long as these live.
std::vector<Watch> watch_gradients(const models::Model& model,
                                   distributed::GradientBuckets& buckets) {
  std::vector<Watch> watches;
  for (const Stack& stack : model.stacks()) {
    watches.push_back(stack->watch({.on_block_gradients = buckets.on_block()}));
  }
  return watches;
}

}  // namespace

TrainResult train(const TrainConfig& given, distributed::ProcessGroup& group,
                  const TrainEvents& events) {
  const bool shards = check(given).shard != distributed::Shard::none;
  check_same_config(given, group);
  if (shards && group.world() == 1 && events.on_message) {
    events.on_message("--shard " + given.shard +
                      ": there is one process, so nothing is divided; --nproc starts several");
  }

  // Open what there is.
  std::optional<RunFolder> folder;  // of the process that writes
  if (group.rank() == 0) folder.emplace(given.out);
  const auto checkpoint = find_checkpoint(given, group.world(), events.on_message);
  // A run that goes on has its weights, and what came with them.
  const auto weights = checkpoint ? std::nullopt : first_weights(given);
  const TrainConfig asked = check_and_complete(given, checkpoint, weights);
  const TrainingData data = open_data_of(asked, checkpoint.has_value(), weights);

  const c10::Device device = device_of(asked, group.local_rank());
  const Processes processes{.all = group.world(),
                            .on_device = processes_on(device, asked.device, group.local_world()),
                            .rank = group.rank(),
                            .device = device};
  const TrainConfig config = checkpoint ? asked : settled(asked, data, processes, group, events);
  const TrainChoices choices = choices_of(config);
  BudgetKeeper keeper(config, data, processes, events.on_message);
  refuse_what_does_not_fit(keeper, group);

  // Make what is trained, and resume it.
  const bool says = group.rank() == 0;
  Learner learner = make_learner(config, choices, data, device, group,
                                 weights ? &*weights : nullptr, says ? events.on_message : nullptr);
  const BatchSets batches =
      make_batches(config, data, *learner.model, {.rank = group.rank(), .world = group.world()});
  const RunSchedule schedule(config, choices.decay, batches.train->per_epoch());
  const std::int64_t step =
      checkpoint ? go_on(*checkpoint, config, data, learner.trained(), events) : 0;
  check_same_step(step, config, group);
  check_steps(step, schedule.all_steps(), config);
  if (has_ended(checkpoint, schedule, config, group)) {
    return {.end = TrainEnd::nothing_to_do, .step = step, .all_steps = schedule.all_steps()};
  }

  // Decide how, and see that the folder is ours.
  plan_steps(learner.trained(), keeper, parts_before(checkpoint, config), group);
  distributed::GradientBuckets buckets(*learner.model, *learner.shares);
  const std::vector<Watch> watches = watch_gradients(*learner.model, buckets);
  std::optional<InsideUpdates> inside;
  if (choices.update == Update::inside) {
    inside.emplace(*learner.model, *learner.optimizer, *learner.shares);
  }
  RunTrace trace(config, *learner.model, group.rank(), step, events.on_message);
  if (folder) folder->own();

  return run_training_loop({.config = config,
                            .events = events,
                            .group = group,
                            .data = data,
                            .batches = batches,
                            .schedule = schedule,
                            .trained = learner.trained(),
                            .keeper = keeper,
                            .buckets = buckets,
                            .inside = inside ? &*inside : nullptr,
                            .trace = trace,
                            .folder = folder ? &*folder : nullptr,
                            .resumed = checkpoint ? &checkpoint->state : nullptr});
}

}  // namespace pareprop::train
