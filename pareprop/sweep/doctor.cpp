#include "pareprop/sweep/doctor.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "pareprop/device/choose_device.h"
#include "pareprop/device/device_memory.h"
#include "pareprop/device/torch_error.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/sum_order.h"
#include "pareprop/plan/planner.h"
#include "pareprop/sweep/machine.h"
#include "pareprop/sweep/run_case.h"

namespace pareprop::sweep {
namespace {

using nlohmann::ordered_json;

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  Examination examine() {
    fix_order_of_sums();  // for exact streams, before the first product of floating ones
    found_.device = device_text(options_.device);
    found_.machine = describe(this_machine(options_.device));
    found_.date = date_now();
    found_.free_bytes =
        options_.device.is_cpu() ? memory::free_memory() : free_device_memory(options_.device);
    for (const Patient& patient : options_.verified) {
      for (const Precision precision : options_.precisions) {
        verify_one(patient, precision, Arithmetic::floating);
        verify_one(patient, precision, Arithmetic::exact);
      }
    }
    for (const Patient& patient : options_.raced) {
      for (const Precision precision : options_.precisions) {
        for (const std::int64_t batch : options_.batches) race(patient, precision, batch);
      }
    }
    return std::move(found_);
  }

 private:
  void tell(const std::string& doing) const {
    if (options_.on_progress) options_.on_progress(doing);
  }

  void verify_one(const Patient& patient, Precision precision, Arithmetic arithmetic) {
    tell("gradients of " + patient.model + ", " + std::string(name(precision)) + ", " +
         std::string(name(arithmetic)) + " streams");
    VerifiedNetwork network{patient.model, precision, arithmetic};
    try {
      const auto model =
          models::make_model(patient.model, patient.change,
                             {.dtype = stream_dtype(precision), .device = options_.device});
      network.rows = verify(*model, {.precision = precision, .arithmetic = arithmetic});
    } catch (const std::exception& error) {
      network.error = explained(error);
    }
    found_.verified.push_back(std::move(network));
  }

  void race(const Patient& patient, Precision precision, std::int64_t batch) {
    Case one{.model = patient.model,
             .change = patient.change,
             .batch = batch,
             .precision = precision,
             .threads = at::get_num_threads(),
             .device = options_.device,
             .modes = preset_modes()};
    tell(one.name());
    try {
      plan::DryStep dry(
          [&] {
            return models::make_model(patient.model, patient.change,
                                      {.dtype = stream_dtype(precision), .device = at::kMeta});
          },
          {.batch = batch,
           .device = options_.device,
           .precision = precision,
           .optimizer_state = {}});
      std::vector<plan::Prediction> predicted;
      for (const Mode mode : one.modes) predicted.push_back(dry.run(dry.network().plan_of(mode)));
      const auto [least, most] =
          std::minmax_element(predicted.begin(), predicted.end(),
                              [](const auto& a, const auto& b) { return a.at_most < b.at_most; });
      // Mode auto has to keep some and recompute some.
      one.budgets = {least->at_most + (most->at_most - least->at_most) / 2};
      const std::vector<ResultRow> rows = run_case(one, shape_of(one), {.rounds = options_.rounds});
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].error.empty())
          found_.errors.push_back(rows[i].case_name + ": " + rows[i].error);
        RacedMode& raced = found_.raced.emplace_back(
            RacedMode{.row = rows[i], .predicted_peak_bytes = rows[i].predicted_peak_bytes});
        if (i >= predicted.size()) continue;
        raced.predicted_peak_bytes = predicted[i].total_peak;
        raced.predicted_reserved_bytes = predicted[i].reserved_peak;
      }
    } catch (const std::exception& error) {
      found_.errors.push_back(one.name() + ": " + explained(error));
    }
  }

  const DoctorOptions& options_;
  Examination found_;
};

}  // namespace

DoctorOptions usual_examination(c10::Device device) {
  DoctorOptions options{.device = device};
  models::Overrides small_text;
  small_text.depths = {3};
  small_text.width = 96;
  small_text.vocabulary = 1000;
  small_text.length = 64;
  options.verified = {{"vit_cifar"}, {"swin_cifar"}, {"mvit_cifar"}, {"roberta_base", small_text}};
  options.precisions = {Precision::fp32, Precision::bf16};
  if (device.is_cpu()) {
    options.raced = {{"vit_cifar"}, {"swin_cifar"}};
    options.batches = {4, 16};
  } else {
    options.raced = {{"vit_small"}, {"swin_tiny"}, {"mvit_tiny"}, {"roberta_base"}};
    options.batches = {4, 16, 64, 256};
  }
  return options;
}

Examination examine(const DoctorOptions& options) { return Doctor(options).examine(); }

bool VerifiedNetwork::holds() const {
  return error.empty() &&
         std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.holds; });
}

bool Examination::healthy() const {
  return errors.empty() && std::all_of(verified.begin(), verified.end(),
                                       [](const VerifiedNetwork& one) { return one.holds(); });
}

std::string to_json(const Examination& examination) {
  ordered_json out{{"device", examination.device},     {"machine", examination.machine},
                   {"date", examination.date},         {"free_bytes", examination.free_bytes},
                   {"healthy", examination.healthy()}, {"verified", ordered_json::array()},
                   {"raced", ordered_json::array()},   {"errors", examination.errors}};
  for (const VerifiedNetwork& one : examination.verified) {
    ordered_json rows = ordered_json::array();
    for (const VerifyRow& row : one.rows) {
      rows.push_back({{"mode", name(row.mode)},
                      {"max_rel_error", row.max_rel_error},
                      {"bit_identical", row.bit_identical},
                      {"drift", row.drift},
                      {"holds", row.holds},
                      {"error", complaint(row, one.precision)}});
    }
    out["verified"].push_back({{"model", one.model},
                               {"precision", name(one.precision)},
                               {"arithmetic", name(one.arithmetic)},
                               {"holds", one.holds()},
                               {"error", one.error},
                               {"modes", std::move(rows)}});
  }
  for (const RacedMode& one : examination.raced) {
    ordered_json row = ordered_json::parse(to_json(one.row));
    row["predicted_peak_bytes"] = one.predicted_peak_bytes;
    row["predicted_reserved_bytes"] = one.predicted_reserved_bytes;
    out["raced"].push_back(std::move(row));
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace pareprop::sweep
