// How many threads one operator may use.
#pragma once

namespace troupe::ops {

/// Threads for matrix products, for the whole process: 1 unless TROUPE_NUM_THREADS says otherwise.
/// `invalid` unless 1 <= n <= 1024. The number does not depend on which thread calls an operator.
void set_num_threads(int n);
int num_threads();

}  // namespace troupe::ops
