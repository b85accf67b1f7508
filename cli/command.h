#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <iosfwd>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

namespace pareprop::cli {

struct Console {
  std::ostream& out;
  std::ostream& err;
};

// What a subcommand does once its flags are read; returns the exit code. Throws UsageError or
// std::invalid_argument when what was asked for cannot be, other exceptions when it failed. Whoever
// returns anything but 0 has said why in one line on Console::err.
using Action = std::function<int(const Console&)>;

// The command line is wrong: exit code 2.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Each adds its subcommand and flags to the app.
Action add_models(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_verify(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_report(CLI::App& app);
Action add_trace(CLI::App& app);
Action add_train(CLI::App& app);
Action add_eval(CLI::App& app);
Action add_predict(CLI::App& app);
Action add_export(CLI::App& app);
Action add_convert(CLI::App& app);
Action add_demo(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_completion(CLI::App& app);  // of all that were added before

// The text of --device in --help.
inline constexpr const char* kDeviceHelp =
    "Where to compute: auto (an accelerator if there is one, else the CPU), cpu, cuda or cuda:N";

// The device that --device names. Throws UsageError when it is not there.
c10::Device chosen_device(const std::string& text);
// The same for a plan: it need not be there. Throws UsageError when torch knows no such name.
c10::Device planned_device(const std::string& text);

// Throws UsageError: "--batch: expected 1 or more, got 0".
void expect_at_least(const std::string& flag, long long least, long long got);
// Throws UsageError: "--threads: expected 0 to 1024, got 100000".
void expect_between(const std::string& flag, long long least, long long most, long long got);
// Samples that a command takes at a time, and threads: Throws UsageError where nobody could mean
// it.
void expect_batch(long long got);
void expect_threads(long long got);
// Throws UsageError unless 0 <= got < 1.
void expect_probability(const std::string& flag, double got);

}  // namespace pareprop::cli
