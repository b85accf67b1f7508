// Our contestants, driven by run.py line by line. A line that is a JSON object is a job:
//     {"name": ..., "model": "vit_small", "overrides": {"depths": [2]}, "mode": "reprop",
//      "precision": "bf16", "threads": 2, "weights": FILE, "batch": FILE}
// without "weights" and "batch" where only files are to be made. Mode auto is the planner's choice:
// within the memory that is free; or within "bytes" of activations, or a "share" of those of stored
// training, or with "totals" of all tensors. The batch is whole or in parts, whichever is faster by
// times that are measured once and kept in the folder "times". The answer says what it is. Commands
// for the last job, or for that of another name after "use NAME", each answered by a line of JSON,
// {"error": ...} when it failed:
//     export WEIGHTS BATCH SAMPLES SEED   writes weights under our names, and a batch
//     gradients FILE   one step; its gradients, and "loss"
//     warm N           N steps
//     steps N          milliseconds of N steps, after one that is not timed
//     memory           peaks of one step
// and "drop NAME", which forgets a job, and "quit".
// A step is forward, loss, backward; gradients are dropped after it.

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/peers/planned.h"
#include "pareprop/io/safetensors.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/weights.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/reversible/added_gradients.h"

namespace {

using namespace pareprop;
using nlohmann::json;

models::Overrides overrides_of(const json& job) {
  models::Overrides change{.dropout = 0.0, .drop_path = 0.0};
  const json asked = job.value("overrides", json::object());
  for (const auto& [key, value] : asked.items()) {
    if (key == "depths") {
      change.depths = value.get<std::vector<int>>();
    } else if (key == "width") {
      change.width = value;
    } else if (key == "image_size") {
      change.image_size = value;
    } else if (key == "classes") {
      change.classes = value;
    } else if (key == "length") {
      change.length = value;
    } else if (key == "plain") {
      change.plain = value;
    } else if (key == "vocabulary") {
      change.vocabulary = value;
    } else {
      throw std::invalid_argument("unknown override '" + key + "'");
    }
  }
  return change;
}

// A line of /proc/self/status, in bytes; 0 where there is none.
std::int64_t process_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

bool reset_process_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << 5 << std::flush);
}

class Worker {
 public:
  explicit Worker(const json& job) : job_(job), overrides_(overrides_of(job)) {
    at::set_num_threads(job.at("threads"));
    model_ = models::make_model(job.at("model"), overrides_);
    model_->train();
    if (!job.contains("weights")) return;
    models::load_weights(*model_, io::SafetensorsFile(job.at("weights").get<std::string>()));
    const io::SafetensorsFile batch(job.at("batch").get<std::string>());
    batch_ = {.input = batch.tensor("input").clone(), .target = batch.tensor("target").clone()};
    split(1);
    set_mode(parse_mode(job.at("mode").get<std::string>()),
             parse_precision(job.at("precision").get<std::string>()));
  }

  const json& plan() const { return plan_; }

  json answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, file, other;
    std::int64_t number = 0;
    std::uint64_t seed = 0;
    words >> command;
    if (command == "export" && words >> file >> other >> number >> seed) {
      return export_to(file, other, number, seed);
    }
    if (command == "gradients" && words >> file) return gradients(file);
    if (command == "warm" && words >> number) return warm(number);
    if (command == "steps" && words >> number) return steps(number);
    if (command == "memory") return memory();
    throw std::invalid_argument("unknown command '" + line + "'");
  }

 private:
  void set_mode(Mode mode, Precision precision) {
    model_->set_options({.precision = precision});
    if (mode != Mode::automatic) return model_->set_mode(mode);
    peers::PlanRequest request{.model = job_.at("model"),
                               .overrides = overrides_,
                               .precision = precision,
                               .share = job_.value("share", 0.0),
                               .bytes = job_.value("bytes", std::int64_t{0}),
                               .totals = job_.value("totals", false)};
    if (job_.contains("times")) request.times = job_.at("times").get<std::string>();
    const auto [plan, parts] = peers::plan_step(request, *model_, batch_);
    split(parts);
    model_->set_plan(plan.step);
    memory::trim();
    plan_ = {{"budget_bytes", plan.budget},
             {"predicted_peak_bytes", plan.predicted.total_peak},
             {"fits", plan.fits},
             {"mode", name(nearest_mode(plan.step))},
             {"policies", plan::policy_letters(plan.step)},
             {"recompute_between", plan.step.recompute_between},
             {"totals", request.totals},
             {"parts", parts}};
  }

  json export_to(const std::string& weights, const std::string& batch, std::int64_t samples,
                 std::uint64_t seed) {
    models::save_weights(*model_, weights);
    const models::Batch example = model_->example(samples, seed);
    io::write_safetensors(batch, {{"input", example.input}, {"target", example.target}});
    const models::ModelSummary summary = models::summarise(job_.at("model"), overrides_);
    return {{"parameters", summary.parameters},
            {"gmacs", summary.gmacs},
            {"tokens", summary.tokens},
            {"stacks", summary.stacks}};
  }

  // Into parts whose losses, by their rows, sum up to that of the batch.
  void split(std::int64_t parts) {
    const std::int64_t samples = batch_.input.size(0) / parts;
    const auto rows_of = [&](const models::Batch& batch) {
      return static_cast<double>(model_->row_targets(batch).size(0));
    };
    parts_.clear();
    for (std::int64_t i = 0; i < parts; ++i) {
      const models::Batch part = peers::part_of(batch_, i * samples, samples);
      parts_.push_back({part, rows_of(part) / rows_of(batch_)});
    }
  }

  double backward() {
    double sum = 0.0;
    std::shared_ptr<GradientTaker> adding;  // from the second part on
    for (const auto& [batch, share] : parts_) {
      const auto pass = std::make_shared<Pass>(/*seed=*/0, /*step=*/0, nullptr, adding);
      at::Tensor loss = model_->loss(batch, {.pass = pass});
      if (parts_.size() > 1) loss = loss.mul(share);
      loss.backward();
      sum += loss.item<double>();
      if (parts_.size() > 1) adding = std::make_shared<AddedGradients>(*model_);
    }
    return sum;
  }

  void drop_gradients() {
    for (auto& parameter : model_->parameters()) parameter.mutable_grad().reset();
  }

  json gradients(const std::string& file) {
    const double loss = backward();
    io::NamedTensors all;
    for (const auto& item : model_->named_parameters()) {
      if (!item.value().grad().defined()) {
        throw std::runtime_error(item.key() + " got no gradient");
      }
      all.emplace_back(item.key(), item.value().grad());
    }
    io::write_safetensors(file, all);
    drop_gradients();
    memory::trim();
    return {{"loss", loss}};
  }

  json warm(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      backward();
      drop_gradients();
    }
    memory::trim();
    return {{"steps", count}};
  }

  json steps(std::int64_t count) {
    std::vector<double> times;
    for (std::int64_t i = 0; i <= count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      backward();
      drop_gradients();
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - begin;
      if (i > 0) times.push_back(taken.count());
    }
    memory::trim();  // the others need the room
    return {{"ms", times}};
  }

  json memory() {
    memory::trim();
    const bool reset = reset_process_peak();
    memory::reset_peaks();
    const std::int64_t before = memory::usage().activation_live;
    backward();
    drop_gradients();
    const memory::Usage usage = memory::usage();
    const auto rss = process_bytes("VmHWM");
    memory::trim();  // the others need the room
    return {{"activation_peak_bytes", usage.activation_peak - before},
            {"total_peak_bytes", usage.total_peak},
            {"rss_peak_bytes", rss},
            {"rss_reset", reset}};
  }

  json job_;
  models::Overrides overrides_;
  std::shared_ptr<models::Model> model_;
  models::Batch batch_;
  struct Part {
    models::Batch batch;
    double share;
  };
  std::vector<Part> parts_;
  json plan_;
};

class Server {
 public:
  json answer(const std::string& line) {
    if (line.rfind("{", 0) == 0) {
      const json job = json::parse(line);
      current_ = workers_[job.at("name")] = std::make_shared<Worker>(job);
      return {{"ready", true}, {"rss_bytes", process_bytes("VmRSS")}, {"plan", current_->plan()}};
    }
    std::istringstream words(line);
    std::string command, name;
    words >> command;
    if (command == "use" && words >> name) {
      current_ = workers_.at(name);
      std::string rest;
      std::getline(words >> std::ws, rest);
      return answer(rest);
    }
    if (command == "drop" && words >> name) {
      workers_.erase(name);
      current_ = nullptr;
      memory::trim();
      return json::object();
    }
    if (!current_) throw std::invalid_argument("no job was given before '" + line + "'");
    return current_->answer(line);
  }

 private:
  std::map<std::string, std::shared_ptr<Worker>> workers_;
  std::shared_ptr<Worker> current_;
};

}  // namespace

int main() {
  memory::install_caching_allocator();
  Server server;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    json result;
    try {
      result = server.answer(line);
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result << std::endl;
  }
}
