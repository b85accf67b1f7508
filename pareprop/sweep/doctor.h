#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/models/overrides.h"
#include "pareprop/ops/precision.h"
#include "pareprop/reversible/stream_arithmetic.h"
#include "pareprop/sweep/result_row.h"
#include "pareprop/sweep/verify.h"

namespace pareprop::sweep {

// A network of the examination: small enough for any device.
struct Patient {
  std::string model;
  models::Overrides change = {};
};

struct DoctorOptions {
  c10::Device device = at::kCPU;
  std::vector<Patient> verified = {};      // whose gradients are compared
  std::vector<Patient> raced = {};         // whose modes are timed
  std::vector<std::int64_t> batches = {};  // of the race
  std::vector<Precision> precisions = {};  // of both
  int rounds = 3;                          // turns of each mode in the race
  std::function<void(const std::string& doing)> on_progress = nullptr;
};

// One of every family to verify; one to race, of a size that keeps the device busy.
DoctorOptions usual_examination(c10::Device device);

// Gradients of a network in every mode. With `error`, what kept them from being compared.
struct VerifiedNetwork {
  std::string model;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  std::vector<VerifyRow> rows = {};
  std::string error = {};

  bool holds() const;
};

// A case of the race, and what was predicted of it.
struct RacedMode {
  ResultRow row;
  std::int64_t predicted_peak_bytes = 0;
  std::int64_t predicted_reserved_bytes = 0;  // on an accelerator
};

struct Examination {
  std::string device;   // device_text()
  std::string machine;  // processor, threads, torch
  std::string date;
  std::int64_t free_bytes = 0;  // on the device, before
  std::vector<VerifiedNetwork> verified = {};
  std::vector<RacedMode> raced = {};
  std::vector<std::string> errors = {};  // of cases that could not be raced

  bool healthy() const;  // all gradients hold, nothing failed
};

// What the device does with the engine: right gradients, speed of every mode, memory beside the
// prediction, overlap of recovery and gradients. What fails is noted and does not end it.
Examination examine(const DoctorOptions& options);

// All of it, as one JSON object for whoever is to read it.
std::string to_json(const Examination& examination);

}  // namespace pareprop::sweep
