// sample_probe FILE: writes the page of sample_results(), for report_browser_test.py.

#include <fstream>
#include <iostream>

#include "pareprop/sweep/report_page.h"
#include "tests/sweep/sample_results.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "expected one argument, the page to write\n";
    return 2;
  }
  std::ofstream file(argv[1], std::ios::binary);
  file << pareprop::sweep::report_page(pareprop::sweep::testing::sample_results());
  file.close();
  return file ? 0 : 1;
}
