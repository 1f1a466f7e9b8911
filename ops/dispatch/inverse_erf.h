// The inverse of the error function, for kernels of every device.
#pragma once
#include <cmath>
#include <limits>
#include <numbers>

#ifdef __CUDACC__
#define TROUPE_EVERYWHERE __host__ __device__
#else
#define TROUPE_EVERYWHERE
#endif

namespace troupe::ops {

/// A rational approximation, then two steps of Newton's, as in PyTorch. NaN outside [-1, 1].
template <class T>
TROUPE_EVERYWHERE T inverse_erf(T y) {
  const T size = std::fabs(y);
  if (!(size < 1)) return size == 1 ? std::copysign(std::numeric_limits<T>::infinity(), y) : T(NAN);
  T x;
  if (size <= T(0.7)) {
    const T z = y * y;
    const T up = ((T(-0.140543331) * z + T(0.914624893)) * z + T(-1.645349621)) * z + T(0.886226899);
    const T down =
        (((T(0.012229801) * z + T(-0.329097515)) * z + T(1.442710462)) * z + T(-2.118377725)) * z + 1;
    x = y * up / down;
  } else {
    const T z = std::sqrt(-std::log((1 - size) / 2));
    const T up = ((T(1.641345311) * z + T(3.429567803)) * z + T(-1.624906493)) * z + T(-1.970840454);
    const T down = (T(1.637067800) * z + T(3.543889200)) * z + 1;
    x = std::copysign(up, y) / down;
  }
  for (int step = 0; step < 2; ++step)
    x -= (std::erf(x) - y) / (T(2 * std::numbers::inv_sqrtpi) * std::exp(-x * x));
  return x;
}

}  // namespace troupe::ops
