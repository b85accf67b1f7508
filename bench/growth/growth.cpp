// How the cost of a training step grows with depth, batch and tokens: bench_growth FOLDER writes a
// plot of each, and a table to standard output. Loss is compared between modes before anything is
// kept.

#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pareprop/draw/line_plot.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/sweep/measure.h"
#include "pareprop/text/fixed.h"

namespace pareprop {
namespace {

struct Problem {
  double x = 0.0;
  models::Overrides change;
  std::int64_t batch = 4;
};

struct Sweep {
  std::string name;     // of the file
  std::string x_label;  // what grows
  std::vector<Problem> problems;
};

const std::vector<Mode> kModes = {Mode::stored, Mode::reprop, Mode::pareprop};

std::vector<Sweep> sweeps() {
  Sweep depth{"depth", "blocks (vit_tiny, batch 4)", {}};
  for (const int blocks : {4, 8, 12, 24}) {
    depth.problems.push_back({.x = double(blocks), .change = {.depths = {blocks}}});
  }
  Sweep batch{"batch", "images (vit_tiny)", {}};
  for (const std::int64_t images : {1, 2, 4, 8, 16}) {
    batch.problems.push_back({.x = double(images), .change = {}, .batch = images});
  }
  Sweep tokens{"tokens", "tokens (vit_tiny, batch 2)", {}};
  for (const std::int64_t side : {96, 160, 224, 320, 448}) {
    const std::int64_t count = (side / 16) * (side / 16) + 1;
    tokens.problems.push_back({.x = double(count), .change = {.image_size = side}, .batch = 2});
  }
  return {depth, batch, tokens};
}

std::vector<MeasureRow> measured(const Problem& problem) {
  const auto model = models::make_model("vit_tiny", problem.change);
  const auto rows =
      measure(*model, {.modes = kModes, .batch = problem.batch, .rounds = 5, .steps = 1});
  for (const MeasureRow& row : rows) {
    if (!(std::abs(row.loss - rows.front().loss) < 1e-5)) {
      throw std::runtime_error("mode " + std::string(name(row.contestant.mode)) +
                               " has another loss");
    }
  }
  return rows;
}

void run(const Sweep& sweep, const std::filesystem::path& folder) {
  draw::LinePlot time{.title = "Time of a step",
                      .x_label = sweep.x_label,
                      .y_label = "ms",
                      .whole_x = true,
                      .y_from_zero = true};
  draw::LinePlot memory{.title = "Peak of activations",
                        .x_label = sweep.x_label,
                        .y_label = "MiB",
                        .whole_x = true,
                        .y_from_zero = true};
  for (const Mode mode : kModes) {
    time.series.push_back({.name = std::string(name(mode)), .markers = true});
    memory.series.push_back({.name = std::string(name(mode)), .markers = true});
  }
  std::cout << "| " << sweep.x_label << " | stored | reprop | pareprop |\n|---:|---:|---:|---:|\n";
  for (const Problem& problem : sweep.problems) {
    const auto rows = measured(problem);
    std::cout << "| " << text::fixed(problem.x, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double mib = static_cast<double>(rows[i].activation_peak_bytes) / (1 << 20);
      time.series[i].points.push_back({problem.x, rows[i].median_ms()});
      memory.series[i].points.push_back({problem.x, mib});
      std::cout << " | " << text::fixed(rows[i].median_ms(), 0) << " ms, " << text::fixed(mib, 1)
                << " MiB";
    }
    std::cout << " |" << std::endl;
  }
  std::cout << '\n';
  io::write_file(folder / ("growth_" + sweep.name + "_time.svg"), svg(time));
  io::write_file(folder / ("growth_" + sweep.name + "_memory.svg"), svg(memory));
}

}  // namespace
}  // namespace pareprop

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::invalid_argument("expected one argument, the folder of the plots");
    pareprop::memory::install_caching_allocator();
    std::filesystem::create_directories(argv[1]);
    for (const auto& sweep : pareprop::sweeps()) pareprop::run(sweep, argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "bench_growth: " << error.what() << '\n';
    return 1;
  }
}
