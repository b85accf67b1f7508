#include "pareprop/distributed/process_group.h"

#include "pareprop/distributed/c10d_group.h"

namespace pareprop::distributed {
namespace {

class Done : public Pending {
 public:
  void wait() override {}
  double done_at() const override { return begun_; }

 private:
  const double begun_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
};

class OneProcess : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int local_rank() const override { return 0; }
  int world() const override { return 1; }
  std::unique_ptr<Pending> all_reduce(const at::Tensor& /*tensor*/) override {
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> reduce(const at::Tensor& /*tensor*/, int /*to*/) override {
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor& /*tensor*/, int /*from*/) override {
    return std::make_unique<Done>();
  }
  void barrier() override {}
};

}  // namespace

std::unique_ptr<ProcessGroup> one_process() { return std::make_unique<OneProcess>(); }

std::unique_ptr<ProcessGroup> make_process_group(const LaunchVariables& variables,
                                                 const GroupOptions& options) {
  if (variables.world == 1) return one_process();
  return make_c10d_group(variables, options);
}

std::unique_ptr<ProcessGroup> process_group_from_environment(const GroupOptions& options) {
  return make_process_group(launch_variables(), options);
}

}  // namespace pareprop::distributed
