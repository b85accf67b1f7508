#include "pareprop/sweep/report_page.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/draw/page.h"
#include "pareprop/sweep/case_groups.h"
#include "pareprop/sweep/report_plots.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"

namespace pareprop::sweep {
namespace {

using sweep::ResultRow;
using sweep::Results;

constexpr std::string_view kReportStyle = R"(
  .scroll { overflow-x: auto; }
  .rows { font-size: .85rem; overflow-wrap: normal; font-variant-numeric: tabular-nums; }
  .rows th, .rows td { white-space: nowrap; text-align: right; }
  .rows th:nth-child(-n+2), .rows td:nth-child(-n+2) { text-align: left; }
  .rows td.why { text-align: left; white-space: normal; min-width: 20rem; }
)";

std::string ratio_text(double value) { return text::fixed(value, 2) + "\u00D7"; }

std::string bytes(std::int64_t value) { return text::bytes_text(static_cast<double>(value)); }

std::string plots_section(std::string_view heading, std::string_view about,
                          const std::vector<Plot>& plots, std::string_view without) {
  if (plots.empty()) {
    return draw::section(heading, draw::element("p", without));
  }
  std::string figures;
  for (const Plot& plot : plots) figures += draw::figure(plot.id, plot.svg);
  return draw::section(heading, draw::element("p", about) + draw::plots(figures));
}

// One mode beside another, over all cases that have both.
class Ratios {
 public:
  template <typename Ratio>
  Ratios(const std::vector<Group>& cases, std::string_view above, std::string_view below,
         Ratio ratio_of) {
    for (const Group& one : cases) {
      const ResultRow* const a = find_mode(one.rows, above);
      const ResultRow* const b = find_mode(one.rows, below);
      if (a != nullptr && b != nullptr) ratios_.push_back(ratio_of(*a, *b));
    }
    std::sort(ratios_.begin(), ratios_.end());
  }

  std::string median() const {
    if (ratios_.empty()) return "\u2013";
    const std::size_t middle = ratios_.size() / 2;
    return ratio_text(ratios_.size() % 2 == 1 ? ratios_[middle]
                                              : (ratios_[middle - 1] + ratios_[middle]) / 2);
  }
  std::string range() const {
    if (ratios_.empty()) return "no case has both";
    return "median of " + std::to_string(ratios_.size()) +
           (ratios_.size() == 1 ? " case" : " cases") + ", " + ratio_text(ratios_.front()) +
           " to " + ratio_text(ratios_.back());
  }

 private:
  std::vector<double> ratios_;
};

std::string key_figures(const Results& results) {
  const auto cases = grouped(results.rows, [](const ResultRow& row) { return row.case_name; });
  const auto untimed = std::count_if(results.rows.begin(), results.rows.end(),
                                     [](const ResultRow& row) { return !row.timed(); });
  const auto speed = [](const ResultRow& a, const ResultRow& b) {
    return a.samples_per_s / b.samples_per_s;
  };
  const auto memory = [](const ResultRow& a, const ResultRow& b) {
    return static_cast<double>(a.activation_peak_bytes) /
           static_cast<double>(std::max<std::int64_t>(1, b.activation_peak_bytes));
  };
  const Ratios gain(cases, "pareprop", "reprop", speed);
  const Ratios faster(cases, "pareprop", "checkpoint", speed);
  const Ratios stored(cases, "pareprop", "stored", speed);
  const Ratios saved(cases, "stored", "pareprop", memory);
  std::string out = "<dl class=\"figures\">\n";
  out += draw::key_figure(
      "Cases", std::to_string(cases.size()),
      std::to_string(results.rows.size()) + " rows, " + std::to_string(untimed) + " not timed");
  out += draw::key_figure("pareprop: speed over reprop", gain.median(), gain.range());
  out += draw::key_figure("pareprop: speed over checkpoint", faster.median(), faster.range());
  out += draw::key_figure("pareprop: speed over stored", stored.median(), stored.range());
  out += draw::key_figure("Activations: stored over pareprop", saved.median(), saved.range());
  return out + "</dl>\n";
}

std::string cells(const ResultRow& row) {
  const auto cell = [](const std::string& words) {
    return "<td>" + draw::escaped(words) + "</td>";
  };
  std::string out = "<tr>" + cell(row.case_name) + cell(mode_text(row));
  if (!row.timed()) {
    const std::string why = row.fits ? row.error : "does not fit in memory";
    return out + "<td class=\"why\" colspan=\"11\">" + draw::escaped(why) + "</td></tr>\n";
  }
  const auto ms = [](double value) { return text::fixed(value, 1); };
  return out + cell(ms(row.step_ms)) + cell(ms(row.step_ms_p10) + "\u2013" + ms(row.step_ms_p90)) +
         cell(ms(row.forward_ms)) + cell(ms(row.backward_ms)) +
         cell(text::fixed(row.samples_per_s, 2)) + cell(bytes(row.activation_peak_bytes)) +
         cell(bytes(row.peak_bytes)) + cell(ms(row.recover_ms)) + cell(ms(row.gradient_ms)) +
         cell(ms(row.weight_gradient_ms)) + cell(ms(row.overlap_ms)) + "</tr>\n";
}

std::string table(const std::vector<ResultRow>& rows) {
  std::string out =
      "<p>Times are milliseconds. Step: median, and 10th to 90th percentile. Recover, gradient, "
      "weight gradient: time of the lanes in one more step. Overlap: time in which recovery and "
      "gradients ran at once.</p>\n<div class=\"scroll\">\n<table class=\"rows\">\n<thead><tr>";
  for (const char* title :
       {"Case", "Mode", "Step", "p10\u2013p90", "Forward", "Backward", "Samples/s", "Activations",
        "Peak", "Recover", "Gradient", "Weight gradient", "Overlap"}) {
    out += "<th>" + std::string(title) + "</th>";
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const ResultRow& row : rows) out += cells(row);
  return out + "</tbody>\n</table>\n</div>\n";
}

}  // namespace

Results merged(const std::vector<Results>& files) {
  if (files.empty()) throw std::invalid_argument("expected one file of results or more");
  Results all = files.front();
  for (std::size_t i = 1; i < files.size(); ++i) {
    if (!(files[i].machine == all.machine)) {
      throw std::invalid_argument(
          "results of two machines cannot be mixed on one page: " + describe(all.machine) +
          ", and " + describe(files[i].machine) + "; make one page for each");
    }
    all.rows.insert(all.rows.end(), files[i].rows.begin(), files[i].rows.end());
    all.torn = all.torn || files[i].torn;
  }
  all.rows = latest(all.rows);
  return all;
}

std::string report_page(const Results& results) {
  const std::vector<ResultRow>& rows = results.rows;
  std::string header = draw::element(
      "p", "Training steps of reversible transformers, measured on " + describe(results.machine) +
               ", started " + results.date +
               ". The modes of a case took turns. Their gradients were compared with ordinary "
               "autograd before the timing.");
  if (results.torn) {
    header +=
        "<p class=\"note\">The last line of a file is incomplete and was left out: the sweep was "
        "stopped, or is still running.</p>\n";
  }
  const std::string plots =
      plots_section("Throughput against batch size",
                    "Higher is better. stored keeps all activations, checkpoint keeps the inputs "
                    "of blocks, reprop and pareprop keep none. pareprop recomputes while it "
                    "computes gradients.",
                    throughput_by_batch(rows), "No network ran with more than one batch size.") +
      plots_section("Gain of overlap",
                    "Speed of pareprop divided by the speed of reprop. Both do the same work; "
                    "pareprop recovers blocks while it computes gradients. d: blocks, b: batch.",
                    gain_over_reprop(rows), "No case ran in both pareprop and reprop.") +
      plots_section("Throughput against memory",
                    "Up and left is better. The line joins the points that no other point beats "
                    "in both; auto appears once for each budget.",
                    throughput_by_memory(rows), "No case was timed.") +
      plots_section("Memory against depth",
                    "Activations of a step: everything except weights and gradients.",
                    memory_by_depth(rows), "No network ran with more than one depth.") +
      plots_section("Time by phase",
                    "Phases of a step in each mode; then the busy time of all lanes in the "
                    "backward pass of the stacks. With overlap the sum is larger than the time "
                    "of the pass.",
                    time_by_phase(rows), "No case was timed.");
  return draw::document(
      {.title = "Reversible training: benchmark",
       .style = kReportStyle,
       .header = header,
       .main = key_figures(results) + plots + draw::section("All rows", table(rows))});
}

}  // namespace pareprop::sweep
