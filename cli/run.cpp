#include "cli/run.h"

#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ostream>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/advice.h"
#include "cli/aliases.h"
#include "cli/command.h"
#include "cli/printable_stream.h"
#include "cli/table.h"
#include "pareprop/device/choose_device.h"
#include "pareprop/device/torch_error.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/train/train_config.h"

namespace pareprop::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// A name out of a file or a flag can have a megabyte. What was expected is at the end.
std::string shortened(const std::string& what) {
  constexpr std::size_t kBegin = 2000, kEnd = 1000;
  if (what.size() <= kBegin + kEnd) return what;
  return what.substr(0, kBegin) + " ... " + what.substr(what.size() - kEnd);
}

int fail(std::ostream& err, int code, const std::string& what) {
  say(err, "pareprop", shortened(what));
  return code;
}

// "pareprop verify --help"; of no command: null.
std::string help_command(const CLI::App* command) {
  return "'pareprop " + (command == nullptr ? "" : command->get_name() + " ") + "--help'";
}

// Of the subcommand that was given, if one was.
std::string help_command(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return help_command(given.empty() ? nullptr : given.front());
}

// --help in lines of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNames); }

  std::string make_description(const CLI::App* app) const override {
    return app->get_description().empty() ? "" : wrapped(app->get_description()) + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), beside(command->get_description()), kNames);
    return out.str();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return beside(option->get_description());
  }

 private:
  static constexpr std::size_t kNames = 34;

  static std::string beside(const std::string& text) { return wrapped(text, kPageWidth - kNames); }
};

int run_action(const Action& action, const CLI::App& command, const Console& console,
               const std::string& help) {
  try {
    return action(console);
  } catch (const train::FieldError& error) {
    return fail(console.err, kWrongUsage,
                train::flag_name(error.key()) + ": " + error.why() + "; see " + help);
  } catch (const std::invalid_argument& error) {
    return fail(console.err, kWrongUsage, std::string(error.what()) + "; see " + help);
  } catch (const std::exception& error) {
    return fail(console.err, kFailed, explained(error) + advice(fault_of(error), command));
  }
}

}  // namespace

void expect_at_least(const std::string& flag, long long least, long long got) {
  if (got >= least) return;
  throw UsageError(flag + ": expected " + std::to_string(least) + " or more, got " +
                   std::to_string(got));
}

void expect_between(const std::string& flag, long long least, long long most, long long got) {
  expect_at_least(flag, least, got);
  if (got <= most) return;
  throw UsageError(flag + ": expected at most " + std::to_string(most) + ", got " +
                   std::to_string(got));
}

void expect_batch(long long got) {
  constexpr long long kMost = 1 << 20;
  expect_between("--batch", 1, kMost, got);
}

void expect_threads(long long got) {
  constexpr long long kMost = 1024;
  expect_between("--threads", 0, std::max<long long>(kMost, std::thread::hardware_concurrency()),
                 got);
}

namespace {

template <typename Find>
c10::Device found_device(Find&& find) {
  try {
    return find();
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--device: ") + error.what());
  }
}

}  // namespace

c10::Device chosen_device(const std::string& text) {
  return found_device([&] { return choose_device(text); });
}

c10::Device planned_device(const std::string& text) {
  return found_device([&] { return named_device(text); });
}

void expect_probability(const std::string& flag, double got) {
  if (got >= 0.0 && got < 1.0) return;
  throw UsageError(flag + ": expected a probability, 0 <= P < 1, got " + std::to_string(got));
}

namespace {

struct Ended {
  int code = 0;
  std::string command = {};
};

Ended run_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  CLI::App app(
      "Train reversible transformers in much less memory: activations are recomputed in the "
      "backward pass instead of stored.",
      "pareprop");
  app.set_version_flag(
      "--version", "pareprop " PAREPROP_VERSION " (libtorch " + std::string(TORCH_VERSION) + ")");
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(0, 1);
  const std::vector<std::pair<std::string, Action>> commands = {
      {"models", add_models(app)},   {"plan", add_plan(app)},
      {"train", add_train(app)},     {"eval", add_eval(app)},
      {"predict", add_predict(app)}, {"export", add_export(app)},
      {"convert", add_convert(app)}, {"verify", add_verify(app)},
      {"bench", add_bench(app)},     {"report", add_report(app)},
      {"trace", add_trace(app)},     {"demo", add_demo(app)},
      {"doctor", add_doctor(app)},   {"completion", add_completion(app)}};
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    command->footer(aliases_text(*command));
  }

  const std::vector<std::string> words =
      with_own_flags(app, {argv + std::min(argc, 1), argv + argc});
  try {
    const std::string unknown = unknown_word(app, words);
    if (!unknown.empty()) {
      const CLI::App* const command = words.empty() ? nullptr : find_command(app, words.front());
      return {fail(err, kWrongUsage, unknown + "; see " + help_command(command))};
    }
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& wanted) {  // --help, --version
    return {app.exit(wanted, out, err)};
  } catch (const CLI::ParseError& error) {
    return {fail(err, kWrongUsage, std::string(error.what()) + "; see " + help_command(app))};
  }
  const Console console{out, err};
  const std::string help = help_command(app);
  std::string names;
  for (const auto& [name, action] : commands) {
    if (app.got_subcommand(name)) {
      return {run_action(action, *app.get_subcommand(name), console, help), name};
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  return {
      fail(err, kWrongUsage, "no command was given: expected one of " + names + "; see " + help)};
}

}  // namespace

int run(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  memory::install_caching_allocator();
  PrintableStream printable_out(out, PrintableStream::Flush::when_asked);
  PrintableStream printable_err(err, PrintableStream::Flush::each_line);
  const Ended ended = run_command(argc, argv, printable_out, printable_err);
  printable_out.flush();
  const int error = printable_out.error();
  // A run that outlived its terminal is whole: what it had to say is in its folder too.
  const bool nobody_reads = ended.command == "train" && (error == EPIPE || error == EIO);
  if (ended.code != 0 || error == 0 || nobody_reads) return ended.code;
  return fail(printable_err, kFailed,
              "cannot write to standard output: " + std::string(std::strerror(error)));
}

}  // namespace pareprop::cli
