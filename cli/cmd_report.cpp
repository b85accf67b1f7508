#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "pareprop/sweep/report_page.h"

namespace pareprop::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> files;
  std::string out = "report.html";
  std::string json;
};

int report_results(const ReportFlags& flags, const Console& console) {
  const JsonOutput json(flags.json, console.out);
  std::vector<sweep::Results> files;
  for (const std::string& file : flags.files) files.push_back(sweep::read_results(file));
  const sweep::Results all = sweep::merged(files);
  write_file(flags.out, sweep::report_page(all));
  json.write(
      {{"page", flags.out}, {"files", flags.files}, {"rows", all.rows.size()}, {"torn", all.torn}});
  if (json.takes_stdout()) return 0;
  console.out << "wrote " << flags.out << ": " << all.rows.size() << " rows"
              << (all.torn ? ", without an incomplete last line" : "") << '\n';
  return 0;
}

}  // namespace

Action add_report(CLI::App& app) {
  auto* command = app.add_subcommand(
      "report", "Make a page of plots from the results of 'pareprop bench --out'");
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("results", flags->files, "Files of results, all from one machine")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", flags->out, "Name of the page, one HTML file")->type_name("FILE");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return report_results(*flags, console); };
}

}  // namespace pareprop::cli
