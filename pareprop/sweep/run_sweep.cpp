#include "pareprop/sweep/run_sweep.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

namespace pareprop::sweep {
namespace {

using Clock = std::chrono::steady_clock;

// The rows of a case that are in the file, if none is missing and none is wrong.
std::vector<ResultRow> found(const Case& one, const std::vector<ResultRow>& rows) {
  std::vector<ResultRow> out;
  const auto take = [&](Mode mode, std::int64_t budget) {
    const ResultRow wanted{
        .case_name = one.name(), .mode = std::string(pareprop::name(mode)), .budget_bytes = budget};
    const auto last = std::find_if(rows.rbegin(), rows.rend(),
                                   [&](const ResultRow& row) { return row.same_as(wanted); });
    if (last == rows.rend() || !last->error.empty()) return false;
    out.push_back(*last);
    return true;
  };
  for (const Mode mode : one.modes) {
    if (!take(mode, 0)) return {};
  }
  for (const std::int64_t budget : one.budgets) {
    if (!take(Mode::automatic, budget)) return {};
  }
  return out;
}

struct Job {
  Case one;
  CaseShape shape = {};
  double work = 0.0;
  std::vector<ResultRow> there = {};
};

// Of the work to come, by the pace so far.
class TimeLeft {
 public:
  explicit TimeLeft(const std::vector<Job>& jobs) {
    for (const Job& job : jobs) total_ += job.there.empty() ? job.work : 0.0;
  }
  void end(const Job& job) { done_ += job.work; }

  double seconds(const Job& running, double share) const {
    const double done = done_ + share * running.work;
    if (done <= 0.0) return -1.0;
    const std::chrono::duration<double> passed = Clock::now() - begin_;
    return passed.count() * (total_ - done) / done;
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  double total_ = 0.0, done_ = 0.0;
};

}  // namespace

SweepResult run_sweep(const Sweep& sweep, ResultsFile* file, const SweepOptions& options) {
  std::vector<Job> jobs;
  for (const Case& one : cases_of(sweep, at::get_num_threads())) {
    Job job{.one = one, .shape = shape_of(one)};
    job.work = job.shape.work(one, sweep.rounds * sweep.steps);
    if (file != nullptr) job.there = found(one, file->rows());
    jobs.push_back(std::move(job));
  }

  SweepResult result;
  TimeLeft left(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    std::vector<ResultRow> rows = job.there;
    if (rows.empty()) {
      const RunOptions run{.rounds = sweep.rounds,
                           .steps = sweep.steps,
                           .memory = options.memory,
                           .on_progress = [&](const std::string& doing, double share) {
                             if (!options.on_progress) return;
                             options.on_progress({.number = i + 1,
                                                  .cases = jobs.size(),
                                                  .doing = job.one.name() + ": " + doing,
                                                  .seconds_left = left.seconds(job, share)});
                           }};
      rows = run_case(job.one, job.shape, run);
      if (file != nullptr) file->append(rows);
      left.end(job);
    } else {
      ++result.skipped;
    }
    const bool wrong = std::any_of(rows.begin(), rows.end(),
                                   [](const ResultRow& row) { return !row.error.empty(); });
    if (wrong) result.wrong.push_back(job.one.name());
    if (options.on_case) options.on_case(job.one, rows, !job.there.empty());
    result.rows.insert(result.rows.end(), rows.begin(), rows.end());
  }
  return result;
}

}  // namespace pareprop::sweep
