#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>

#include "cli/aliases.h"
#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/plan_text.h"
#include "cli/printable_stream.h"
#include "cli/progress.h"
#include "cli/stop_signals.h"
#include "cli/table.h"
#include "cli/train_flags.h"
#include "cli/units.h"
#include "pareprop/device/choose_device.h"
#include "pareprop/distributed/launcher.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/budget_keeper.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/trainer.h"

namespace pareprop::cli {
namespace {

struct TrainCommandFlags {
  std::shared_ptr<TrainFlags> train = std::make_shared<TrainFlags>();
  int nproc = 1;
  int threads = 0;
  bool dry_run = false;
  std::string json;
};

// Of this process, without the name of the program.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

std::string clock_text(double seconds) {
  const auto all = static_cast<long long>(std::max(0.0, seconds));
  const std::string minutes = std::to_string(all / 60 % 60), rest = std::to_string(all % 60);
  const auto two = [](const std::string& digits) {
    return digits.size() < 2 ? "0" + digits : digits;
  };
  if (all < 3600) return minutes + ":" + two(rest);
  return std::to_string(all / 3600) + ":" + two(minutes) + ":" + two(rest);
}

// What matters most first: a narrow terminal shows the first of them.
std::vector<std::string> step_parts(const train::StepRecord& r, std::int64_t all,
                                    double seconds_left) {
  return {clock_text(seconds_left) + " left",
          "step " + std::to_string(r.step) + "/" + std::to_string(all),
          "loss " + text::fixed(r.loss, 4),
          "acc " + percent_text(r.accuracy),
          text::fixed(r.samples_per_s, 1) + " samples/s",
          "peak " + bytes_text(static_cast<double>(r.peak_bytes)),
          "lr " + error_text(r.learning_rate),
          "drift " + error_text(r.drift)};
}

class Watcher {
 public:
  Watcher(const Console& console, bool speaks)
      : err_(console.err), speaks_(speaks), progress_(console.err) {}

  train::TrainEvents events() {
    train::TrainEvents events;
    events.stop_asked = [] { return StopSignals::received() != 0; };
    events.on_begin = [this](std::int64_t first, std::int64_t all) {
      // Until now there was nothing to save.
      StopSignals::remember();
      say("training from step " + std::to_string(first) + " to " + std::to_string(all));
    };
    if (!speaks_) return events;
    events.on_step = [this](const train::StepRecord& record, std::int64_t all, double left) {
      progress_.show_parts(step_parts(record, all, left));
    };
    events.on_evaluating = [this](std::int64_t done, std::int64_t all) {
      progress_.show("evaluating: batch " + std::to_string(done) + " of " + std::to_string(all));
    };
    events.on_evaluation = [this](const train::EvaluationRecord& record) {
      say("step " + std::to_string(record.step) + ": validation loss " +
          text::fixed(record.loss, 4) + ", accuracy " + percent_text(record.accuracy));
    };
    events.on_message = [this](const std::string& what) { say(what); };
    return events;
  }

  void clear() { progress_.clear(); }

  void say(const std::string& what) {
    if (!speaks_) return;
    progress_.clear();
    cli::say(err_, "train", what);
  }

 private:
  std::ostream& err_;
  const bool speaks_;
  Progress progress_;
};

// "finished", "stopped_early", ...
std::string name(train::TrainEnd end) {
  switch (end) {
    case train::TrainEnd::running:
      return "running";
    case train::TrainEnd::nothing_to_do:
      return "nothing_to_do";
    case train::TrainEnd::finished:
      return "finished";
    case train::TrainEnd::stopped_early:
      return "stopped_early";
    case train::TrainEnd::out_of_time:
      return "out_of_time";
    case train::TrainEnd::stopped_by_user:
      return "stopped_by_user";
  }
  return "";
}

std::string end_text(train::TrainEnd end) {
  switch (end) {
    case train::TrainEnd::running:
    case train::TrainEnd::finished:
    case train::TrainEnd::nothing_to_do:
      return "done";
    case train::TrainEnd::stopped_early:
      return "stopped early";
    case train::TrainEnd::out_of_time:
      return "stopped by --time-limit";
    case train::TrainEnd::stopped_by_user:
      return "stopped and saved";
  }
  return "";
}

// Why the run ended and what to do next; empty: it is done.
std::string advice_text(const train::TrainConfig& config, train::TrainEnd end) {
  if (end == train::TrainEnd::stopped_early) {
    return wrapped("The last " + std::to_string(config.early_stop) +
                   " evaluations had no lower validation loss; model.safetensors has the best "
                   "weights.") +
           "\n";
  }
  const bool stopped =
      end == train::TrainEnd::out_of_time || end == train::TrainEnd::stopped_by_user;
  return stopped ? "--resume auto continues the run\n" : "";
}

std::string evaluation_text(const train::TrainConfig& config, const train::TrainResult& result) {
  const auto text = [](const auto& found, const std::string& rest) {
    return "; validation loss " + text::fixed(found.loss, 4) + ", accuracy " +
           percent_text(found.accuracy) + rest;
  };
  if (result.evaluation.rows > 0) {
    const char* const rows = train::names_text(config.data) ? " masked tokens" : " images";
    return text(result.evaluation, " of " + std::to_string(result.evaluation.rows) + rows);
  }
  if (result.evaluations.empty()) return "";
  const train::EvaluationRecord& before = result.evaluations.back();  // it was resumed
  return text(before, " at step " + std::to_string(before.step));
}

std::string files_text(const train::TrainConfig& config) {
  std::string names;
  for (const char* name : {"model.safetensors", "best.safetensors", "run.html", "metrics.jsonl"}) {
    if (!std::filesystem::exists(std::filesystem::path(config.out) / name)) continue;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return "files in " + config.out + ": " + names + "\n";
}

// "38.0 MiB, predicted 38.2 MiB, budget 64.0 MiB"; on an accelerator also "reserved 44.0 MiB".
std::string peak_text(const train::TrainResult& result) {
  auto bytes = [](std::int64_t count) { return bytes_text(static_cast<double>(count)); };
  return bytes(result.memory.total_peak) + ", predicted " + bytes(result.predicted_peak_bytes) +
         (result.budget_bytes > 0 ? ", budget " + bytes(result.budget_bytes) : "") +
         (result.memory.reserved_peak > 0 ? ", reserved " + bytes(result.memory.reserved_peak)
                                          : "");
}

// What would be done: the configuration where programs read and the plan for people; with --json
// both in one.
void show_plan(train::TrainConfig config, int processes, const JsonOutput& json,
               const Console& console) {
  const auto weights = train::first_weights(config);
  if (weights) config = weights->complete(std::move(config));
  config.model = model_of(config);
  const auto asked = nlohmann::ordered_json::parse(to_json(config));
  if (!json.takes_stdout()) JsonOutput("-", console.out).write(asked);
  const train::TrainingData data = train::open_training_data(config, weights);
  const c10::Device device = device_of(config);
  train::BudgetKeeper keeper(config, data,
                             {.all = processes,
                              .on_device = processes_on(device, config.device, processes),
                              .device = device},
                             nullptr);
  keeper.plan_by_shapes([&](plan::JointSearch& search, const plan::JointPlan& plan) {
    const PlanReport report = report_of(search, plan,
                                        {.network = (config.plain ? "plain " : "") + config.model,
                                         .batch = config.batch,
                                         .precision = config.precision});
    console.err << plan_text(report);
    json.write({{"config", asked}, {"plan", plan_json(report)}});
    if (!plan.micro.fits) {
      throw std::runtime_error(plan::does_not_fit(plan.micro, config.model, config.batch));
    }
  });
}

std::string best_text(const train::TrainResult& result) {
  if (!result.best) return "";
  return "best validation loss " + text::fixed(result.best->evaluation_loss.value_or(0.0), 4) +
         " at step " + std::to_string(result.best->step) + "; eval and predict use these weights\n";
}

void summarise(const train::TrainConfig& config, const train::TrainResult& result,
               const Console& console) {
  if (result.end == train::TrainEnd::nothing_to_do) {
    console.out << wrapped("already finished: " + config.out + " is trained to the end, step " +
                           std::to_string(result.step) + " of " + std::to_string(result.all_steps) +
                           "; nothing was changed")
                << "\n";
    return;
  }
  console.out << end_text(result.end) << " after step " << result.step << " of " << result.all_steps
              << ", " << clock_text(result.seconds) << "\n"
              << advice_text(config, result.end)
              << wrapped("loss " + text::fixed(result.last_loss, 4) +
                         evaluation_text(config, result))
              << "\n"
              << best_text(result)
              << wrapped("peak " + peak_text(result) + "\nactivations " +
                         bytes_text(static_cast<double>(result.memory.activation_peak)) +
                         "; waited " + percent_text(result.waited) + " of the time for data")
              << "\n"
              << files_text(config);
}

nlohmann::ordered_json result_json(const train::TrainConfig& config,
                                   const train::TrainResult& result) {
  nlohmann::ordered_json json{{"out", config.out},
                              {"end", name(result.end)},
                              {"step", result.step},
                              {"all_steps", result.all_steps},
                              {"seconds", result.seconds},
                              {"loss", result.last_loss},
                              {"peak_bytes", result.memory.total_peak},
                              {"activation_peak_bytes", result.memory.activation_peak},
                              {"reserved_peak_bytes", result.memory.reserved_peak},
                              {"optimizer_bytes", result.memory.live_of(memory::Tag::optimizer)},
                              {"predicted_peak_bytes", result.predicted_peak_bytes},
                              {"budget_bytes", result.budget_bytes},
                              {"parts", result.parts},
                              {"waited_share", result.waited},
                              {"skipped", result.skipped.size()}};
  if (result.evaluation.rows > 0) {
    json["evaluation"] = {{"loss", result.evaluation.loss},
                          {"accuracy", result.evaluation.accuracy},
                          {"rows", result.evaluation.rows}};
  }
  if (result.best) json["best_step"] = result.best->step;
  return json;
}

int train_model(const TrainCommandFlags& flags, const CLI::App& app, const Console& console) {
  if (flags.train->preset == "list") return list_presets(flags.json, console);
  const train::TrainConfig config = config_of(*flags.train);
  expect_between("--nproc", 1, 1024, flags.nproc);
  expect_threads(flags.threads);
  const JsonOutput json(flags.json, console.out);
  if (flags.dry_run) {
    show_plan(config, flags.nproc, json, console);
    return 0;
  }
  if (flags.nproc > 1) {
    ignore_broken_pipes();
    return distributed::launch(
        flags.nproc, distributed::without_nproc(with_own_flags(app, own_arguments())),
        // Rank 0 finds out at the end of its step, and saves then.
        {.grace_seconds = config.timeout + 60.0,
         .on_failure = [&](const std::string& what) { say(console.err, "pareprop", what); }});
  }
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const StopSignals signals;
  const auto group = distributed::process_group_from_environment(
      {.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1e3)),
       .device = train::device_of(config, distributed::launch_variables().local_rank)});
  const bool first = group->rank() == 0;
  Watcher watcher(console, first);
  const train::TrainResult result = train::train(config, *group, watcher.events());
  if (!result.skipped.empty()) {
    const std::string who =
        group->world() > 1 ? "rank " + std::to_string(group->rank()) + ": " : std::string();
    say(console.err, "train", who + train::left_out_text(result.skipped, config.data));
  }
  watcher.clear();
  if (first) {
    if (!json.takes_stdout()) summarise(config, result, console);
    json.write(result_json(config, result));
  }
  constexpr int kSignalled = 128;
  return result.end == train::TrainEnd::stopped_by_user && StopSignals::received() != 0
             ? kSignalled + StopSignals::received()
             : 0;
}

}  // namespace

Action add_train(CLI::App& app) {
  auto* command = app.add_subcommand(
      "train",
      "Train a network on images or text, with one process or several; resume a stopped run");
  const auto flags = std::make_shared<TrainCommandFlags>();
  add_train_flags(*command, flags->train);
  command->add_option("--nproc", flags->nproc,
                      "Number of processes on this machine that train together");
  command->add_option("--threads", flags->threads, "CPU threads of each process; 0: all cores");
  command->add_flag(
      "--dry-run", flags->dry_run,
      "Do not train: print the configuration to standard output and the plan of a step to standard "
      "error; --json has both (default: off)");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags, &app](const Console& console) { return train_model(*flags, app, console); };
}

}  // namespace pareprop::cli
