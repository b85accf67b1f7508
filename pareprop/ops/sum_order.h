#pragma once

namespace pareprop {

// Makes torch's products of float32 and float64 have the same bits on any number of threads and at
// any address (Note [Sums of MKL]); exact streams ask for it. True: they have. False: torch had
// multiplied before, or the variable MKL_CBWR asks for something else.
bool fix_order_of_sums();

}  // namespace pareprop
