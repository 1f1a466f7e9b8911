// Digits drawn by the program itself: a data set that needs no file.
#pragma once
#include <cstdint>

#include "data/datasets/dataset.h"

namespace troupe::datasets {

/// `count` images of digits, x float32 [count, 784] in [0, 1] (28 x 28, white on black), y int64 [count] in 0
/// .. 9.
///
/// Each is written as a hand would: one of several shapes of the digit, bent, turned, sheared, scaled and
/// shifted at random, with a pen of random width, then blurred and made noisy. Every ten in a row hold each
/// digit once. Image i depends on (seed, i) only, so a smaller set is the start of a larger one. `invalid` if
/// count is below 1.
Dataset generated_digits(int64_t count, uint64_t seed);
/// 10,000 images to learn from and 2,000 others to be judged by.
Split generated_split(uint64_t seed);

}  // namespace troupe::datasets
