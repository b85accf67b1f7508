#include "pareprop/reversible/range_probe.h"

#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace pareprop {
namespace {

double largest(const double*& extremes) {
  const double low = std::abs(*extremes++), high = std::abs(*extremes++);
  return std::isnan(low) || std::isnan(high) ? NAN : std::max(low, high);
}

}  // namespace

void RangeProbe::look(Look look, const at::Tensor& u, const at::Tensor& f) {
  if (!arithmetic_.exact() || f.numel() == 0 || f.is_meta()) return;
  const auto add = [&](const at::Tensor& t) {
    auto [low, high] = t.aminmax();
    extremes_.push_back(std::move(low));
    extremes_.push_back(std::move(high));
  };
  add(f);
  if (!look.is_input) add(u);
  looks_.push_back(std::move(look));
  if (deferred_) return;
  DeferredChecks now;
  defer_to(now);
  now.run();
}

void RangeProbe::input(const std::string& name, const at::Tensor& x) {
  look({"stack: input " + name, true}, {}, x);
}

void RangeProbe::addition(const std::string& where, const at::Tensor& u, const at::Tensor& f) {
  look({where, false}, u, f);
}

void RangeProbe::defer_to(DeferredChecks& checks) {
  if (looks_.empty()) return;
  checks.add(std::exchange(extremes_, {}),
             [arithmetic = arithmetic_, looks = std::exchange(looks_, {})](auto values) {
               const double* next = values.data();
               for (const Look& look : looks) {
                 const double of_f = largest(next), of_u = look.is_input ? 0.0 : largest(next);
                 const std::string error = arithmetic.range_error(of_u, of_f);
                 if (error.empty()) continue;
                 if (look.is_input) throw std::invalid_argument(look.where + ": " + error);
                 throw std::runtime_error(look.where + ": " + error);
               }
               return true;
             });
}

}  // namespace pareprop
