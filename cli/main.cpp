#include <iostream>

#include "cli/run.h"

int main(int argc, char** argv) { return pareprop::cli::run(argc, argv, std::cout, std::cerr); }
